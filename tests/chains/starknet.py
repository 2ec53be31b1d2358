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
from tests.chains.subject import FINALITY, RequestLog, Row
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
    """An event's content: `kind` moves, approves, or allows all. Its felts stand in the keys from `keys` on."""

    kind: str
    token: int
    source: int
    destination: int
    raw: int = 0
    ids: tuple[tuple[int, int], ...] = ()  # of editions: numbers and amounts

    def event(self) -> dict[str, Any]:
        """Return the event of the contract: with keys if it is young, one felt an amount if it is narrow."""
        halves = [self.raw & MASK, self.raw >> 128]
        if self.token == PIECES and self.kind == "moves":
            numbers, raws = ([felt for pair in self.ids for felt in (pair[at], 0)] for at in (0, 1))
            name = "TransferBatch"
            fields = [WALLETS[0], self.source, self.destination, len(self.ids), *numbers, len(self.ids), *raws]
        elif self.kind == "all":
            name, fields = "ApprovalForAll", [self.source, self.destination, self.raw]
        else:
            name = "Transfer" if self.kind == "moves" else "Approval"
            fields = [self.source, self.destination, *([self.raw] if self.token == NARROW else halves)]
        keys = 2 if self.token in (COIN, YOUNG) else 0
        felts = [hex(each) for each in fields]
        return {"from_address": hex(self.token), "keys": [hex(number_of(name)), *felts[:keys]], "data": felts[keys:]}

    def change(self, state: dict[Any, int]) -> None:
        """Apply the event to the state of contracts."""
        if self.kind != "moves":
            state[
                self.kind,
                self.token,
                self.source,
                self.destination if self.token != ART or self.kind == "all" else self.raw,
            ] = self.destination if self.token == ART and self.kind == "approves" else self.raw
            return
        for number, raw in self.ids or ((self.raw if self.token == ART else -1, 1 if self.token == ART else self.raw),):
            for account, sign in ((self.source, -1), (self.destination, 1)):
                slot = "held", self.token, account, number
                state[slot] = state.get(slot, 0) + sign * raw


@dataclass(frozen=True)
class SentTransaction:
    """A transaction of a wallet: its hash, its nonce, its events, and its fee."""

    hash: int
    sender: int
    nonce: int
    events_sent: tuple[Deed, ...]
    fee: int
    is_early: bool = False  # from the time when fees were of ether and had no event

    @property
    def changes(self) -> list[Deed]:
        """Return the changes of the transaction and of its fee."""
        coin = ETHER if self.is_early else COIN
        return [*self.events_sent, *((Deed("moves", coin, self.sender, SEQUENCER, self.fee),) if self.fee else ())]

    @property
    def events(self) -> list[Deed]:
        """Return the events in the chain's form."""
        return [*self.events_sent] if self.is_early else self.changes

    def rpc_transaction(self) -> dict[str, Any]:
        """Return the transaction in a block's form."""
        body = {
            "type": "INVOKE",
            "version": "0x1" if self.is_early else "0x3",
            "sender_address": hex(self.sender),
            "nonce": hex(self.nonce),
            "calldata": ["0x1", hex(self.events_sent[-1].token), hex(number_of("transfer")), "0x0"],
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
    transactions: tuple[SentTransaction, ...]
    state: Mapping[Any, int]
    nonces: Mapping[int, int]


@dataclass
class Ledger:
    """The blocks of one branch."""

    blocks: list[Made] = field(default_factory=list)
    is_early: bool = False  # what is added next

    def add(self, branch: str, *calls: tuple[int, Sequence[Deed]], fee: int = 100) -> None:
        """One more block."""
        height, last = len(self.blocks), self.blocks[-1] if self.blocks else None
        state, nonces = (dict(last.state), Counter(last.nonces)) if last else ({}, Counter[int]())
        block_text = repr((height, branch, last and last.hash, calls)).encode()
        seed = int.from_bytes(hashlib.sha256(block_text).digest(), "big") % 2**250
        transactions = []
        for at, (account, deed_list) in enumerate(calls):
            transactions.append(
                SentTransaction(seed ^ (at + 1), account, nonces[account], tuple(deed_list), fee, self.is_early)
            )
            nonces[account] += 1
        for each in transactions:
            for change in each.changes:
                change.change(state)
        self.blocks.append(Made(height, seed, last.hash if last else 0, tuple(transactions), state, nonces))


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
        self.request_log, self.ledger, self._branch = RequestLog(), Ledger(), 0
        self._spare: Ledger | None = None
        coins = [Deed("moves", COIN, NOBODY, account, 10**18) for account in WALLETS]
        self.ledger.add("0", (WALLETS[0], coins), fee=0)
        gifts = [Deed("moves", token, NOBODY, account, 10**12) for token in (OLD, YOUNG, NARROW) for account in WALLETS]
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
        self.request_log.count_spans(chain)
        return chain

    def note_methods(self, methods: list[str]) -> None:
        """Count an exchange, unless it reads blocks one by one."""
        if any(each != "starknet_getBlockWithReceipts" for each in methods):
            self.request_log.count()

    def answer(self, method: str, params: Any) -> Any:
        """Answer a request as a node does."""
        match method:
            case "starknet_chainId":
                return hex(int.from_bytes(b"SN_MAIN", "big"))
            case "starknet_specVersion":
                return "0.8.1"
            case "starknet_getBlockWithTxHashes":
                block = self._at(params[0])
                return {**self._header(block), "transactions": [hex(each.hash) for each in block.transactions]}
            case "starknet_getBlockWithReceipts":
                block = self._at(params[0])
                return {**self._header(block), "transactions": [each.rpc_transaction() for each in block.transactions]}
            case "starknet_getTransactionByHash":
                return self._transaction(params[0])[1].rpc_transaction()["transaction"]
            case "starknet_getTransactionReceipt":
                block, transaction = self._transaction(params[0])
                return {
                    **transaction.rpc_transaction()["receipt"],
                    "block_number": block.height,
                    "block_hash": hex(block.hash),
                }
            case "starknet_getNonce":
                return hex(self._at(params[0]).nonces.get(int(params[1], 16), 0))
            case "starknet_getEvents":
                return self._events(params[0])
            case "starknet_call":
                return [hex(each) for each in self._called(params[0], self._at(params[1]))]
        raise RpcError(method, -32601, "Method not found")

    def _transaction(self, hashed: str) -> tuple[Made, SentTransaction]:
        for block in self.ledger.blocks:
            for transaction in block.transactions:
                if transaction.hash == int(hashed, 16):
                    return block, transaction
        raise RpcError("a transaction", 29, "Transaction hash not found")

    def _events(self, event_filter: Mapping[str, Any]) -> Any:
        """Events by their keys, a page of them; how it goes on is the number of the next one."""
        key_filter = [{int(each, 16) for each in alternatives} for alternatives in event_filter["keys"]]
        span = range(event_filter["from_block"]["block_number"], event_filter["to_block"]["block_number"] + 1)
        events = [
            {
                **event,
                "block_number": block.height,
                "block_hash": hex(block.hash),
                "transaction_hash": hex(transaction.hash),
            }
            for block in self.ledger.blocks[span.start : span.stop]
            for transaction in block.transactions
            for event in (each.event() for each in transaction.events)
            if len(event["keys"]) >= len(key_filter)
            and all(
                not alternatives or int(key, 16) in alternatives
                for alternatives, key in zip(key_filter, event["keys"], strict=False)
            )
        ]
        first = int(event_filter.get("continuation_token", "0"))
        last = first + event_filter["chunk_size"]
        return {"events": events[first:last], **({"continuation_token": str(last)} if last < len(events) else {})}

    def _at(self, block_id: Any) -> Made:
        match block_id:
            case "latest":
                return self.ledger.blocks[-1]
            case "l1_accepted" if self.height >= FINALITY:
                return self.ledger.blocks[self.height - FINALITY]
            case {"block_number": int(height)} if height <= self.height:
                return self.ledger.blocks[height]
            case {"block_hash": hashed}:
                for block in self.ledger.blocks:
                    if block.hash == int(hashed, 16):
                        return block
        raise RpcError("a block", 24, "Block not found")

    def _header(self, block: Made) -> dict[str, Any]:
        accepted = block.height <= self.height - FINALITY
        return {
            "block_hash": hex(block.hash),
            "parent_hash": hex(block.parent),
            "block_number": block.height,
            "timestamp": BEGAN_S + block.height,
            "sequencer_address": hex(SEQUENCER),
            "starknet_version": "0.13.4",
            "status": "ACCEPTED_ON_L1" if accepted else "ACCEPTED_ON_L2",
        }

    def _called(self, call: Mapping[str, Any], block: Made) -> Sequence[int]:
        """Return a contract's answer after a block."""
        token, args = int(call["contract_address"], 16), [int(each, 16) for each in call["calldata"]]
        if token not in STANDARDS or (token != COIN and block.height < self.birth):
            raise RpcError("starknet_call", 20, "Contract not found")
        name = FUNCTIONS.get(int(call["entry_point_selector"], 16), "")
        answer = self._contract_answer(token, name, args, block.state)
        if answer is None:
            raise RpcError("starknet_call", 21, "Requested entrypoint does not exist in the contract")
        return answer

    def _contract_answer(
        self, token: int, name: str, args: Sequence[int], state: Mapping[Any, int]
    ) -> Sequence[int] | None:
        fungible = STANDARDS[token] in ("native", "erc20")
        match name:
            case "isApprovedForAll" if not fungible:
                return [state.get(("all", token, *args), 0)]
            case "supportsInterface" if not fungible:
                return [int(args[0] == OLD_IDS[token])]
            case "ownerOf" if token == ART and args:
                owners = [
                    slot[2]
                    for slot, balance in state.items()
                    if slot[::3] == ("held", args[0]) and slot[1] == ART and balance > 0
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
                return sum(balance for slot, balance in state.items() if slot[:3] == ("held", ART, args[0]))
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
            self._add_transactions(chance)

    def _add_transactions(self, chance: Random) -> None:
        sender, recipient = chance.sample(WALLETS, 2)
        raw, number = chance.randrange(1, 10**6), len(self.ledger.blocks)
        changes = [
            Deed("moves", COIN, sender, recipient, raw),
            Deed("moves", chance.choice((OLD, YOUNG, NARROW)), NOBODY, sender, raw),
            Deed("moves", chance.choice((OLD, YOUNG, NARROW)), sender, recipient, raw),
            Deed("approves", chance.choice((OLD, YOUNG, NARROW, COIN)), sender, recipient, raw),
            Deed("moves", ART, NOBODY, sender, number),
            Deed("approves", ART, sender, recipient, number),
            Deed("all", chance.choice((ART, PIECES)), sender, recipient, chance.randrange(2)),
            Deed("moves", PIECES, NOBODY, sender, ids=((number, 5), (number + 1, raw))),
        ]
        cut = chance.randrange(4, len(changes) + 1)
        self.ledger.add(
            str(self._branch), (sender, changes[:cut]), *([(recipient, changes[:1])] if raw % 3 == 0 else [])
        )

    def reorg(self, depth: int) -> None:
        """Other blocks with other movements in the place of the newest."""
        self._branch += 1
        top = self.height
        del self.ledger.blocks[top + 1 - depth :]
        self._add_transactions(Random(top))
        self.mine(top - self.height)

    def fork(self, depth: int) -> None:
        """Copy the blocks, with another end."""
        assert self._spare is None, "there is a second ledger already"
        old_ledger = self.ledger
        self.ledger = Ledger(list(old_ledger.blocks))
        if depth:
            self.reorg(depth)
        self.ledger, self._spare = old_ledger, self.ledger

    def switch(self) -> None:
        """The other ledger is the chain now."""
        assert self._spare is not None, "there is no second ledger"
        self.ledger, self._spare = self._spare, self.ledger

    # --- the truth ---------------------------------------------------------------------------------------------------

    def native(self, account: str, height: int) -> int:
        """Return the balance in the contract of the coin."""
        return self.ledger.blocks[height].state.get(("held", COIN, int(account, 16), -1), 0)

    def balance(self, account: str, token: str, height: int) -> int | None:
        """Return the balance in a token's contract; None before it exists, or if there is no such token."""
        if height < self.birth or STANDARDS.get(int(token, 16)) != "erc20":
            return None
        return self.ledger.blocks[height].state.get(("held", int(token, 16), int(account, 16), -1), 0)

    def allowance(self, owner: str, token: str, spender: str, height: int) -> int:
        """Return the newest allowance."""
        slot = "approves", int(token, 16), int(owner, 16), int(spender, 16)
        return self.ledger.blocks[height].state.get(slot, 0)

    def rows(self, span: Span) -> Mapping[str, list[Row]]:
        """Deed by deed; what this chain does not have is null."""
        rows_by_table: dict[str, list[Row]] = {
            name: [] for name in ("blocks", "transactions", "transfers", "approvals", "logs")
        }
        for block in self.ledger.blocks[span.first : span.last + 1]:
            block_columns = {
                "chain": KEY,
                "height": block.height,
                "time": datetime.fromtimestamp(BEGAN_S + block.height, UTC),
            }
            row = {
                **block_columns,
                "hash": _felt(block.hash),
                "parent": _felt(block.parent),
                "tx_count": len(block.transactions),
            }
            rows_by_table["blocks"].append({**row, **dict.fromkeys(("miner", "gas_used", "gas_limit", "base_fee"))})
            log_index = 0
            for tx_index, transaction in enumerate(block.transactions):
                at = {**block_columns, "tx_index": tx_index}
                rows_by_table["transactions"].append(
                    {
                        **at,
                        "hash": _felt(transaction.hash),
                        "sender": _felt(transaction.sender),
                        "status": 1,
                        "type": 3,
                        "nonce": transaction.nonce,
                        "recipient": _felt(transaction.events_sent[-1].token),
                        "created": None,
                        "raw": bytes(32),
                        "fee": _raw(transaction.fee),
                        "input": number_of("transfer").to_bytes(32, "big")[-4:],
                        "gas_used": None,
                        "gas_price": None,
                    }
                )
                for number, change in enumerate(transaction.events_sent):
                    self._add(
                        rows_by_table,
                        {**at, "log_index": log_index + number, "tx_hash": _felt(transaction.hash)},
                        change,
                    )
                log_index += len(transaction.events)
        return rows_by_table

    def _add(self, rows_by_table: dict[str, list[Row]], columns: Row, change: Deed) -> None:
        token = None if change.token == COIN and change.kind == "moves" else _felt(change.token)
        if change.kind != "moves":
            standard = "operator" if change.kind == "all" else "erc721" if change.token == ART else "erc20"
            rows_by_table["approvals"].append(
                {
                    **columns,
                    "token": token,
                    "standard": standard,
                    "owner": _felt(change.source),
                    "spender": _felt(change.destination),
                    "token_id": _raw(change.raw) if standard == "erc721" else None,
                    "raw": _raw(change.raw) if standard == "erc20" else None,
                    "approved": change.raw == 1 if standard == "operator" else None,
                }
            )
            return
        parties = {"sender": _felt(change.source), "recipient": _felt(change.destination)}
        collectible = ((change.raw, 1),) if change.token == ART else change.ids or ((None, change.raw),)
        for item, (number, raw) in enumerate(collectible):
            rows_by_table["transfers"].append(
                {
                    **columns,
                    **parties,
                    "token": token,
                    "standard": STANDARDS[change.token],
                    "item": item,
                    "operator": _felt(WALLETS[0]) if change.token == PIECES else None,
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
