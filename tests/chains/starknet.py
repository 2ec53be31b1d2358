"""The Starknet family's subject: a node of version 0.8 in memory, with tokens of every layout.

The node that can be installed speaks version 0.4, knows neither STRK nor acceptance on Ethereum, and needs a second for
a transfer; `tests/starknet` runs it. This one keeps blocks that can leave the chain, and what contracts have at each.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

from sha3 import keccak_256

from chainfolio.adapters.starknet.chain import StarknetChain, build
from chainfolio.adapters.starknet.settings import StarknetSettings
from chainfolio.blocks import Span
from chainfolio.capabilities import Capability
from chainfolio.environment import Environment
from chainfolio.localchain.errors import RpcError
from tests.chains.subject import FINALITY, Asked, Row
from tests.json_rpc import JsonRpcNode

ROOT: Final = Path(__file__).parents[2]
KEY, BEGAN_S, MASK = "starknet", 1_700_000_000, 2**128 - 1
NOBODY, SEQUENCER = 0, 0x1176
COIN: Final = 0x04718F5A0FC34CC1AF16A1CDEE98FFB20C31F5CD61D6AB07201858F4287C938D
ETHER: Final = 0x049D36570D4E46F48E99674BD3FCC84644DDD6B96F7C741B1562B82F9E004DC7
OLD, YOUNG, NARROW, ART, PIECES = (0x70 + each for each in range(5))  # NARROW counts in one felt
WALLETS: Final = (0xA1, 0xA2, 0xA3)
TOKENS: Final = dict.fromkeys((ETHER, OLD, YOUNG, NARROW), "erc20")
STANDARDS: Final = {COIN: "native", **TOKENS, ART: "erc721", PIECES: "erc1155"}
OLD_IDS: Final = {ART: 0x80AC58CD, PIECES: 0xD9B67A26}


def number_of(name: str) -> int:
    """The number of a function or an event."""
    return int.from_bytes(keccak_256(name.encode()).digest(), "big") % 2**250


FUNCTIONS: Final = {
    number_of(each): each
    for each in (
        "balanceOf",
        "balance_of",
        "decimals",
        "symbol",
        "name",
        "allowance",
        "totalSupply",
        "ownerOf",
        "getApproved",
        "isApprovedForAll",
        "supportsInterface",
    )
}


@dataclass(frozen=True)
class Deed:
    """What one event says: `kind` moves, approves, or allows all. Its felts stand in the keys from `keys` on."""

    kind: str
    token: int
    one: int
    other: int
    raw: int = 0
    ids: tuple[tuple[int, int], ...] = ()  # of editions: numbers and amounts

    def event(self) -> dict[str, Any]:
        """As the contract says it: in the keys where it is young, in one felt where it is narrow."""
        halves = [self.raw & MASK, self.raw >> 128]
        if self.token == PIECES and self.kind == "moves":
            numbers, raws = ([half for pair in self.ids for half in (pair[at], 0)] for at in (0, 1))
            name = "TransferBatch"
            said = [WALLETS[0], self.one, self.other, len(self.ids), *numbers, len(self.ids), *raws]
        elif self.kind == "all":
            name, said = "ApprovalForAll", [self.one, self.other, self.raw]
        else:
            name = "Transfer" if self.kind == "moves" else "Approval"
            said = [self.one, self.other, *([self.raw] if self.token == NARROW else halves)]
        keys = 2 if self.token in (COIN, YOUNG) else 0
        words = [hex(each) for each in said]
        return {"from_address": hex(self.token), "keys": [hex(number_of(name)), *words[:keys]], "data": words[keys:]}

    def change(self, state: dict[Any, int]) -> None:
        """What contracts have afterwards."""
        if self.kind != "moves":
            state[
                self.kind, self.token, self.one, self.other if self.token != ART or self.kind == "all" else self.raw
            ] = self.other if self.token == ART and self.kind == "approves" else self.raw
            return
        for number, raw in self.ids or ((self.raw if self.token == ART else -1, 1 if self.token == ART else self.raw),):
            for who, sign in ((self.one, -1), (self.other, 1)):
                place = "held", self.token, who, number
                state[place] = state.get(place, 0) + sign * raw


@dataclass(frozen=True)
class Done:
    """A transaction of a wallet: its hash, how many of its own were before it, what it did, and what it paid."""

    hash: int
    sender: int
    nonce: int
    deeds: tuple[Deed, ...]
    fee: int
    is_early: bool = False  # from the time when fees were of ether and had no event

    @property
    def changes(self) -> list[Deed]:
        """What it did, and what it paid."""
        coin = ETHER if self.is_early else COIN
        return [*self.deeds, *((Deed("moves", coin, self.sender, SEQUENCER, self.fee),) if self.fee else ())]

    @property
    def events(self) -> list[Deed]:
        """The same as the chain says it."""
        return [*self.deeds] if self.is_early else self.changes

    def told(self) -> dict[str, Any]:
        """As a block has it."""
        body = {
            "type": "INVOKE",
            "version": "0x1" if self.is_early else "0x3",
            "sender_address": hex(self.sender),
            "nonce": hex(self.nonce),
            "calldata": ["0x1", hex(self.deeds[-1].token), hex(number_of("transfer")), "0x0"],
        }
        receipt = {
            "type": "INVOKE",
            "transaction_hash": hex(self.hash),
            "messages_sent": [],
            "actual_fee": {"amount": hex(self.fee), "unit": "WEI" if self.is_early else "FRI"},
            "execution_status": "SUCCEEDED",
            "finality_status": "ACCEPTED_ON_L2",
            "events": [each.event() for each in self.events],
        }
        return {"transaction": body, "receipt": receipt}


@dataclass(frozen=True)
class Made:
    """A block, and after it: what contracts have, and how many transactions accounts have sent."""

    height: int
    hash: int
    parent: int
    done: tuple[Done, ...]
    state: Mapping[Any, int]
    sent: Mapping[int, int]


@dataclass
class Ledger:
    """The blocks of one branch."""

    blocks: list[Made] = field(default_factory=list)
    is_early: bool = False  # what is added next

    def add(self, branch: str, *done: tuple[int, Sequence[Deed]], fee: int = 100) -> None:
        """One more block."""
        height, last = len(self.blocks), self.blocks[-1] if self.blocks else None
        state, sent = (dict(last.state), Counter(last.sent)) if last else ({}, Counter[int]())
        written = repr((height, branch, last and last.hash, done)).encode()
        seed = int.from_bytes(hashlib.sha256(written).digest(), "big") % 2**250
        transactions = []
        for at, (who, deeds) in enumerate(done):
            transactions.append(Done(seed ^ (at + 1), who, sent[who], tuple(deeds), fee, self.is_early))
            sent[who] += 1
        for each in transactions:
            for deed in each.changes:
                deed.change(state)
        self.blocks.append(Made(height, seed, last.hash if last else 0, tuple(transactions), state, sent))


class StarknetSubject(JsonRpcNode):
    """A node in memory."""

    asks_each_block = False
    lacks = frozenset(
        [
            Capability.PROOFS,
            Capability.RESTORE,
            Capability.CROSS_CHECK,
            Capability.FORECASTS,
            Capability.HEAD_EVENTS,
            Capability.NAMES,
            Capability.OLDEST_BLOCK,
            Capability.PAST_COINS,
            Capability.PAST_POSITIONS,
            Capability.RECEIPTS,
            Capability.EVENT_LOGS,
            Capability.PROGRAM_CALLS,
            Capability.VALIDATORS,
        ]
    )
    no_rows = frozenset(["logs"])
    datasets = ("blocks", "transactions", "native", "transfers", "approvals")
    standards = frozenset(["native", "erc20", "erc721", "erc1155"])
    approval_standards = frozenset(["erc20", "erc721", "operator"])
    accounts: Sequence[str] = tuple(f"0x{each:064x}" for each in (*WALLETS, 0xDEAD))
    tokens: Sequence[str] = tuple(f"0x{each:064x}" for each in (OLD, YOUNG, NARROW))
    plain = tokens
    events: Sequence[str] = ()
    birth = 1

    def __init__(self, blocks: int) -> None:
        self.asked, self.ledger, self._branch = Asked(), Ledger(), 0
        self._spare: Ledger | None = None
        coins = [Deed("moves", COIN, NOBODY, who, 10**18) for who in WALLETS]
        self.ledger.add("0", (WALLETS[0], coins), fee=0)
        gifts = [Deed("moves", token, NOBODY, who, 10**12) for token in (OLD, YOUNG, NARROW) for who in WALLETS]
        self.ledger.add("0", (WALLETS[0], gifts))
        self.trade(max(0, blocks - 1), 0)

    @property
    def height(self) -> int:
        """The newest block's height."""
        return len(self.ledger.blocks) - 1

    # --- the adapter -------------------------------------------------------------------------------------------------

    def chain(self, *, contracts: Sequence[str] = (), span: int = 25) -> StarknetChain:
        """A new adapter; what it asks is counted, but for the blocks of a span, which it reads one by one."""
        settings = StarknetSettings(
            adapter="starknet", rpc=["http://memory.test"], contracts=list(contracts), span=span, concurrency=3
        )
        chain = build(KEY, settings, Environment(), configs=ROOT / "configs", transport=self)
        self.asked.count_spans(chain)
        return chain

    def note_methods(self, methods: list[str]) -> None:
        """Count an exchange, unless it reads blocks one by one."""
        if any(each != "starknet_getBlockWithReceipts" for each in methods):
            self.asked.count()

    def answer(self, method: str, params: Any) -> Any:
        """What a node answers."""
        match method:
            case "starknet_chainId":
                return hex(int.from_bytes(b"SN_MAIN", "big"))
            case "starknet_specVersion":
                return "0.8.1"
            case "starknet_getBlockWithTxHashes":
                made = self._at(params[0])
                return {**self._header(made), "transactions": [hex(each.hash) for each in made.done]}
            case "starknet_getBlockWithReceipts":
                made = self._at(params[0])
                return {**self._header(made), "transactions": [each.told() for each in made.done]}
            case "starknet_getTransactionByHash":
                return self._sent(params[0])[1].told()["transaction"]
            case "starknet_getTransactionReceipt":
                made, done = self._sent(params[0])
                return {**done.told()["receipt"], "block_number": made.height, "block_hash": hex(made.hash)}
            case "starknet_getNonce":
                return hex(self._at(params[0]).sent.get(int(params[1], 16), 0))
            case "starknet_getEvents":
                return self._listed(params[0])
            case "starknet_call":
                return [hex(each) for each in self._called(params[0], self._at(params[1]))]
        raise RpcError(method, -32601, "Method not found")

    def _sent(self, hashed: str) -> tuple[Made, Done]:
        for made in self.ledger.blocks:
            for done in made.done:
                if done.hash == int(hashed, 16):
                    return made, done
        raise RpcError("a transaction", 29, "Transaction hash not found")

    def _listed(self, asked: Mapping[str, Any]) -> Any:
        """Events by their keys, a page of them; how it goes on is the number of the next one."""
        wanted = [{int(each, 16) for each in some} for some in asked["keys"]]
        span = range(asked["from_block"]["block_number"], asked["to_block"]["block_number"] + 1)
        found = [
            {**event, "block_number": made.height, "block_hash": hex(made.hash), "transaction_hash": hex(done.hash)}
            for made in self.ledger.blocks[span.start : span.stop]
            for done in made.done
            for event in (each.event() for each in done.events)
            if len(event["keys"]) >= len(wanted)
            and all(not some or int(key, 16) in some for some, key in zip(wanted, event["keys"], strict=False))
        ]
        first = int(asked.get("continuation_token", "0"))
        last = first + asked["chunk_size"]
        return {"events": found[first:last], **({"continuation_token": str(last)} if last < len(found) else {})}

    def _at(self, wanted: Any) -> Made:
        match wanted:
            case "latest":
                return self.ledger.blocks[-1]
            case "l1_accepted" if self.height >= FINALITY:
                return self.ledger.blocks[self.height - FINALITY]
            case {"block_number": int(height)} if height <= self.height:
                return self.ledger.blocks[height]
            case {"block_hash": hashed}:
                for made in self.ledger.blocks:
                    if made.hash == int(hashed, 16):
                        return made
        raise RpcError("a block", 24, "Block not found")

    def _header(self, made: Made) -> dict[str, Any]:
        accepted = made.height <= self.height - FINALITY
        return {
            "block_hash": hex(made.hash),
            "parent_hash": hex(made.parent),
            "block_number": made.height,
            "timestamp": BEGAN_S + made.height,
            "sequencer_address": hex(SEQUENCER),
            "starknet_version": "0.13.4",
            "status": "ACCEPTED_ON_L1" if accepted else "ACCEPTED_ON_L2",
        }

    def _called(self, asked: Mapping[str, Any], made: Made) -> Sequence[int]:
        """What a contract answers after a block."""
        token, args = int(asked["contract_address"], 16), [int(each, 16) for each in asked["calldata"]]
        if token not in STANDARDS or (token != COIN and made.height < self.birth):
            raise RpcError("starknet_call", 20, "Contract not found")
        name = FUNCTIONS.get(int(asked["entry_point_selector"], 16), "")
        said = self._said(token, name, args, made.state)
        if said is None:
            raise RpcError("starknet_call", 21, "Requested entrypoint does not exist in the contract")
        return said

    def _said(self, token: int, name: str, args: Sequence[int], state: Mapping[Any, int]) -> Sequence[int] | None:
        fungible = STANDARDS[token] in ("native", "erc20")
        match name:
            case "isApprovedForAll" if not fungible:
                return [state.get(("all", token, *args), 0)]
            case "supportsInterface" if not fungible:
                return [int(args[0] == OLD_IDS[token])]
            case "ownerOf" if token == ART and args:
                owners = [
                    place[2]
                    for place, held in state.items()
                    if place[::3] == ("held", args[0]) and place[1] == ART and held > 0
                ]
                if not owners:
                    raise RpcError("starknet_call", 40, "Contract error")
                return owners
            case "decimals" if fungible:
                return [6]
            case "symbol" | "name" if fungible:
                return [int.from_bytes(f"T{token:x}"[:8].encode(), "big")]
        raw = self._raw(token, name, args, state, fungible)
        return None if raw is None else [raw & MASK, raw >> 128] if token != NARROW else [raw]

    def _raw(self, token: int, name: str, args: Sequence[int], state: Mapping[Any, int], fungible: bool) -> int | None:
        """An amount of a token: balance, allowance or supply."""
        match name:
            case "balanceOf" | "balance_of" if fungible and (name == "balance_of") == (token == YOUNG):
                return state.get(("held", token, args[0], -1), 0)
            case "balanceOf" if token == PIECES and len(args) == 3:
                return state.get(("held", token, args[0], args[1]), 0)
            case "balanceOf" if token == ART:
                return sum(held for place, held in state.items() if place[:3] == ("held", ART, args[0]))
            case "allowance" if fungible:
                return state.get(("approves", token, *args), 0)
            case "totalSupply" if fungible:
                return 10**20
        return None

    # --- control -----------------------------------------------------------------------------------------------------

    def mine(self, blocks: int) -> None:
        """Empty blocks."""
        for _ in range(blocks):
            self.ledger.add(str(self._branch))

    def trade(self, blocks: int, seed: int) -> None:
        """Movements of coins, of every token and of collectibles, and approvals."""
        chance = Random(seed)
        for _ in range(blocks):
            self._deed(chance)

    def _deed(self, chance: Random) -> None:
        one, other = chance.sample(WALLETS, 2)
        some, number = chance.randrange(1, 10**6), len(self.ledger.blocks)
        deeds = [
            Deed("moves", COIN, one, other, some),
            Deed("moves", chance.choice((OLD, YOUNG, NARROW)), NOBODY, one, some),
            Deed("moves", chance.choice((OLD, YOUNG, NARROW)), one, other, some),
            Deed("approves", chance.choice((OLD, YOUNG, NARROW, COIN)), one, other, some),
            Deed("moves", ART, NOBODY, one, number),
            Deed("approves", ART, one, other, number),
            Deed("all", chance.choice((ART, PIECES)), one, other, chance.randrange(2)),
            Deed("moves", PIECES, NOBODY, one, ids=((number, 5), (number + 1, some))),
        ]
        cut = chance.randrange(4, len(deeds) + 1)
        self.ledger.add(str(self._branch), (one, deeds[:cut]), *([(other, deeds[:1])] if some % 3 == 0 else []))

    def reorg(self, depth: int) -> None:
        """Other blocks with other movements in the place of the newest."""
        self._branch += 1
        top = self.height
        del self.ledger.blocks[top + 1 - depth :]
        self._deed(Random(top))
        self.mine(top - self.height)

    def fork(self, depth: int) -> None:
        """The same blocks once more, with another end."""
        assert self._spare is None, "there is a second ledger already"
        kept = self.ledger
        self.ledger = Ledger(list(kept.blocks))
        if depth:
            self.reorg(depth)
        self.ledger, self._spare = kept, self.ledger

    def switch(self) -> None:
        """The other ledger is the chain now."""
        assert self._spare is not None, "there is no second ledger"
        self.ledger, self._spare = self._spare, self.ledger

    # --- the truth ---------------------------------------------------------------------------------------------------

    def native(self, account: str, height: int) -> int:
        """What the contract of the coin has."""
        return self.ledger.blocks[height].state.get(("held", COIN, int(account, 16), -1), 0)

    def balance(self, account: str, token: str, height: int) -> int | None:
        """What the contract of a token has, once it is there; None of what is no token."""
        if height < self.birth or STANDARDS.get(int(token, 16)) != "erc20":
            return None
        return self.ledger.blocks[height].state.get(("held", int(token, 16), int(account, 16), -1), 0)

    def allowance(self, owner: str, token: str, spender: str, height: int) -> int:
        """What was allowed last."""
        place = "approves", int(token, 16), int(owner, 16), int(spender, 16)
        return self.ledger.blocks[height].state.get(place, 0)

    def rows(self, span: Span) -> Mapping[str, list[Row]]:
        """Deed by deed; what this chain does not have is null."""
        found: dict[str, list[Row]] = {
            name: [] for name in ("blocks", "transactions", "transfers", "approvals", "logs")
        }
        for made in self.ledger.blocks[span.first : span.last + 1]:
            place = {"chain": KEY, "height": made.height, "time": datetime.fromtimestamp(BEGAN_S + made.height, UTC)}
            row = {**place, "hash": _felt(made.hash), "parent": _felt(made.parent), "tx_count": len(made.done)}
            found["blocks"].append({**row, **dict.fromkeys(("miner", "gas_used", "gas_limit", "base_fee"))})
            log_index = 0
            for tx_index, done in enumerate(made.done):
                at = {**place, "tx_index": tx_index}
                found["transactions"].append(
                    {
                        **at,
                        "hash": _felt(done.hash),
                        "sender": _felt(done.sender),
                        "status": 1,
                        "type": 3,
                        "nonce": done.nonce,
                        "recipient": _felt(done.deeds[-1].token),
                        "created": None,
                        "raw": bytes(32),
                        "fee": _raw(done.fee),
                        "input": number_of("transfer").to_bytes(32, "big")[-4:],
                        "gas_used": None,
                        "gas_price": None,
                    }
                )
                for number, deed in enumerate(done.deeds):
                    self._add(found, {**at, "log_index": log_index + number, "tx_hash": _felt(done.hash)}, deed)
                log_index += len(done.events)
        return found

    def _add(self, found: dict[str, list[Row]], place: Row, deed: Deed) -> None:
        token = None if deed.token == COIN and deed.kind == "moves" else _felt(deed.token)
        if deed.kind != "moves":
            standard = "operator" if deed.kind == "all" else "erc721" if deed.token == ART else "erc20"
            found["approvals"].append(
                {
                    **place,
                    "token": token,
                    "standard": standard,
                    "owner": _felt(deed.one),
                    "spender": _felt(deed.other),
                    "token_id": _raw(deed.raw) if standard == "erc721" else None,
                    "raw": _raw(deed.raw) if standard == "erc20" else None,
                    "approved": deed.raw == 1 if standard == "operator" else None,
                }
            )
            return
        parties = {"sender": _felt(deed.one), "recipient": _felt(deed.other)}
        collectible = ((deed.raw, 1),) if deed.token == ART else deed.ids or ((None, deed.raw),)
        for item, (number, raw) in enumerate(collectible):
            found["transfers"].append(
                {
                    **place,
                    **parties,
                    "token": token,
                    "standard": STANDARDS[deed.token],
                    "item": item,
                    "operator": _felt(WALLETS[0]) if deed.token == PIECES else None,
                    "token_id": None if number is None else _raw(number),
                    "raw": _raw(raw),
                    "layout": None,
                }
            )


def _felt(number: int) -> str:
    return f"0x{number:064x}"


def _raw(number: int) -> bytes:
    return number.to_bytes(32, "big")


@contextmanager
def starknet(blocks: int) -> Iterator[StarknetSubject]:
    """A Starknet subject with so many blocks of trading."""
    yield StarknetSubject(blocks)
