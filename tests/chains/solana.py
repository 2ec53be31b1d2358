"""The Solana family's subject: real transactions of real programs, kept in blocks that can leave the chain.

No node that forks can be installed, so Surfpool runs every transaction, and a keeper before it puts them into slots,
some of which have no block. What accounts have is the node's own word, of now: the past is what moved since.
"""

from __future__ import annotations

import base64
import hashlib
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import pytest
from solders.keypair import Keypair
from solders.pubkey import Pubkey
from solders.signature import Signature

from chainfolio.adapters.solana.chain import SolanaChain, build
from chainfolio.adapters.solana.settings import SolanaSettings
from chainfolio.blocks import Span
from chainfolio.capabilities import Capability
from chainfolio.environment import Environment
from chainfolio.localchain.errors import InstallFailed, NodeJsMissing, RpcError
from chainfolio.localchain.solana.node import SolanaNode
from chainfolio.localchain.solana.programs import (
    account_opening,
    associated_account,
    coin_transfer,
    create_mint,
    send_coins,
    token_issue,
    token_transfer,
)
from tests.chains.subject import FINALITY, RequestLog, Row
from tests.json_rpc import JsonRpcNode

ROOT = Path(__file__).parents[2]
KEY, GENESIS = "solana", "5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d"
CLOCK = "SysvarC1ock11111111111111111111111111111111"
SYSTEM = "1" * 32
BEGAN_S = 1_700_000_000
WALLETS, TOKENS = 4, 3


@dataclass(frozen=True)
class Slot:
    """A block: its hash, the hash and slot of its parent, and its transactions, as the node returns them."""

    height: int
    hash: str
    parent: str
    parent_slot: int
    transactions: tuple[Mapping[str, Any], ...] = ()

    @property
    def header(self) -> dict[str, Any]:
        """Return the head of a `getBlock` response."""
        return {
            "blockhash": self.hash,
            "previousBlockhash": self.parent,
            "parentSlot": self.parent_slot,
            "blockTime": BEGAN_S + self.height,
        }


@dataclass
class Ledger:
    """The blocks of one branch."""

    slots: dict[int, Slot] = field(default_factory=dict)
    head: int = -1

    def add(self, transactions: Sequence[Mapping[str, Any]], branch: str) -> None:
        """One more block; every fifth slot before it has none."""
        height = self.head + 1 + (self.head % 5 == 3)
        last = self.slots.get(self.head)
        block_text = repr(
            (height, branch, last and last.hash, [each["transaction"]["signatures"] for each in transactions])
        )
        digest = str(Pubkey(hashlib.sha256(block_text.encode()).digest()))
        parent, slot = (last.hash, last.height) if last else (GENESIS, 0)
        self.slots[height] = Slot(height, digest, parent, slot, tuple(transactions))
        self.head = height

    def cut(self, depth: int) -> None:
        """Drop what lies at so many of the newest heights."""
        self.slots = {height: slot for height, slot in self.slots.items() if height <= self.head - depth}
        self.head = max(self.slots)


@contextmanager
def started() -> Iterator[SolanaNode]:
    """A node of one subject: each transaction takes it longer than the one before."""
    try:
        with SolanaNode() as node:
            yield node
    except (InstallFailed, NodeJsMissing) as error:
        pytest.skip(f"Surfpool cannot be installed here: {error}")


class SolanaSubject(JsonRpcNode):
    """Surfpool behind a keeper of blocks."""

    asks_each_block = False
    lacks = frozenset(
        [
            Capability.APPROVALS,
            Capability.PAST_BALANCES,
            Capability.PROOFS,
            Capability.RESTORE,
            Capability.CROSS_CHECK,
            Capability.FORECASTS,
            Capability.HEAD_EVENTS,
            Capability.NAMES,
            Capability.PAST_COINS,
            Capability.RECEIPTS,
            Capability.EVENT_LOGS,
            Capability.VALIDATORS,
        ]
    )
    no_rows = frozenset(["approvals", "logs"])
    datasets = ("blocks", "transactions", "native", "transfers")
    standards = frozenset(["native", "spl"])
    approval_standards: frozenset[str] = frozenset()
    events: Sequence[str] = ()

    def __init__(self, node: SolanaNode, folder: Path, blocks: int) -> None:
        self.node, self.request_log, self._folder = node, RequestLog(), folder
        self.wallets = [Keypair() for _ in range(WALLETS)]
        self.mints = [create_mint(self.node, decimals) for decimals in (6, 9, 0)]
        for each in self.wallets:
            self.node.send([account_opening(self.node, each.pubkey(), token) for token in self.mints])
        self.ledger, self._branch = Ledger(), 0
        self._spare: Ledger | None = None
        self.ledger.add([], "genesis")
        self.ledger.add(
            [self._transaction(send_coins(self.node, each.pubkey(), 10**9)) for each in self.wallets], "genesis"
        )
        gifts = [
            token_issue(self.node, token, associated_account(self.wallets[0].pubkey(), token), 10**9)
            for token in self.mints
        ]
        self.ledger.add([self._transaction(self.node.send(gifts))], "genesis")
        self.birth = self.ledger.head
        for _ in range(blocks - self.birth if blocks else 0):
            if self.ledger.head < blocks:
                self._send_payments(Random(self.ledger.head))

    # --- who and what ------------------------------------------------------------------------------------------------

    @property
    def accounts(self) -> Sequence[str]:
        """Return the wallets, and an address that holds nothing."""
        return [*(str(each.pubkey()) for each in self.wallets), str(Pubkey(bytes([7] * 32)))]

    @property
    def tokens(self) -> Sequence[str]:
        """Return all mints."""
        return [str(each) for each in self.mints]

    plain = tokens

    @property
    def height(self) -> int:
        """The newest slot."""
        return self.ledger.head

    # --- the adapter -------------------------------------------------------------------------------------------------

    def chain(self, *, contracts: Sequence[str] = (), span: int = 25) -> SolanaChain:
        """A new adapter; what it asks is counted, but for the blocks of a span, which it reads one by one."""
        settings = SolanaSettings(
            adapter="solana",
            rpc=["http://keeper.test"],
            contracts=list(contracts),
            span=span,
            concurrency=3,
            commitment="confirmed",
        )
        chain = build(KEY, settings, Environment(), configs=ROOT / "configs", transport=self)
        self.request_log.count_spans(chain)
        return chain

    def note_methods(self, methods: list[str]) -> None:
        """Count an exchange, unless it reads blocks one by one."""
        if any(each != "getBlock" for each in methods):
            self.request_log.count()

    def answer(self, method: str, params: Any) -> Any:
        """Answer a request as a node does."""
        head = self.ledger.head
        match method:
            case "getGenesisHash":
                return GENESIS
            case "getSlot":
                return max(0, head - FINALITY) if params[0]["commitment"] == "finalized" else head
            case "getFirstAvailableBlock":
                return 0
            case "getBlocks":
                return [height for height in range(params[0], min(params[1], head) + 1) if height in self.ledger.slots]
            case "getBlock":
                return self._block(*params)
            case "getTransaction":
                matches = (
                    each for each in self._transactions_in_slots() if each["transaction"]["signatures"][0] == params[0]
                )
                return next(matches, None)
            case "getSignaturesForAddress":
                return self._signatures(*params)
        response = self.node.rpc(
            method,
            *(
                {**each, "minContextSlot": 0} if isinstance(each, dict) and "minContextSlot" in each else each
                for each in params
            ),
        )
        response["context"]["slot"] = head
        if method == "getMultipleAccounts" and CLOCK in params[0]:
            clock = struct.pack("<QqQQq", head, 0, 7, 7, BEGAN_S + head)
            response["value"][params[0].index(CLOCK)]["data"][0] = base64.b64encode(clock).decode()
        return response

    def _transactions_in_slots(self) -> Iterator[dict[str, Any]]:
        """Every transaction with the slot that it lies in here, the oldest first."""
        for slot in self.ledger.slots.values():
            for each in slot.transactions:
                yield {**each, "slot": slot.height, "blockTime": BEGAN_S + slot.height}

    def _signatures(self, address: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The final transactions that name an address, the newest first."""
        last = self.ledger.head - (FINALITY if options["commitment"] == "finalized" else 0)
        transactions = [
            each for each in self._transactions_in_slots() if address in each["transaction"]["message"]["accountKeys"]
        ]
        signatures = [
            (each["transaction"]["signatures"][0], each["slot"]) for each in transactions if each["slot"] <= last
        ][::-1]
        begin = next((at + 1 for at, (name, _) in enumerate(signatures) if name == options.get("before")), 0)
        return [{"signature": name, "slot": slot} for name, slot in signatures[begin : begin + options["limit"]]]

    def _block(self, height: int, options: Mapping[str, Any]) -> Any:
        slot = self.ledger.slots.get(height)
        if slot is None:
            skipped = height <= self.ledger.head
            raise RpcError("getBlock", -32007 if skipped else -32004, f"Slot {height} was skipped or is to come")
        if options["transactionDetails"] == "none":
            return slot.header
        return {**slot.header, "transactions": list(slot.transactions)}

    # --- control -----------------------------------------------------------------------------------------------------

    def mine(self, blocks: int) -> None:
        """Empty blocks."""
        for _ in range(blocks):
            self.ledger.add([], str(self._branch))

    def trade(self, blocks: int, seed: int) -> None:
        """Payments in coins and in every token."""
        chance = Random(seed)
        for _ in range(blocks):
            self._send_payments(chance)

    def reorg(self, depth: int) -> None:
        """Other blocks with other movements in the place of the newest."""
        self._branch += 1
        top = self.ledger.head
        self.ledger.cut(depth)
        self._send_payments(Random(top))
        while self.ledger.head < top:
            self.ledger.add([], str(self._branch))

    def fork(self, depth: int) -> None:
        """Copy the blocks, with another end."""
        assert self._spare is None, "there is a second ledger already"
        old_ledger = self.ledger
        self.ledger = Ledger(dict(old_ledger.slots), old_ledger.head)
        if depth:
            self.reorg(depth)
        self.ledger, self._spare = old_ledger, self.ledger

    def switch(self) -> None:
        """The other ledger is the chain now."""
        assert self._spare is not None, "there is no second ledger"
        self.ledger, self._spare = self._spare, self.ledger

    def _send_payments(self, chance: Random) -> None:
        giver, taker = self.wallets[0], chance.choice(self.wallets[1:])
        raws = [chance.randrange(1, 1_000) for _ in range(1 + TOKENS)]
        steps = [coin_transfer(giver.pubkey(), taker.pubkey(), raws[0])]
        for token, decimals, raw in zip(self.mints, (6, 9, 0), raws[1:], strict=True):
            token_accounts = associated_account(giver.pubkey(), token), associated_account(taker.pubkey(), token)
            steps.append(token_transfer(token, *token_accounts, giver.pubkey(), raw, decimals))
        self.ledger.add([self._transaction(self.node.send(steps, giver))], str(self._branch))

    def _transaction(self, signature: str) -> Mapping[str, Any]:
        """A transaction as the node tells it."""
        options = {"encoding": "json", "maxSupportedTransactionVersion": 0, "commitment": "confirmed"}
        transaction: dict[str, Any] = self.node.rpc("getTransaction", signature, options)
        return transaction

    # --- the truth ---------------------------------------------------------------------------------------------------

    def native(self, account: str, height: int) -> int:
        """Return the node's balance of the account after its last transaction up to a height."""
        lamports = 0
        for slot in self.ledger.slots.values():
            for each in slot.transactions if slot.height <= height else ():
                keys = each["transaction"]["message"]["accountKeys"]
                if account in keys:
                    lamports = each["meta"]["postBalances"][keys.index(account)]
        return lamports

    def balance(self, account: str, token: str, height: int) -> int | None:
        """Return the sum of the program's transfers, or None before the mint exists."""
        if height < self.birth:
            return None
        transfers = [row for row in self.rows(Span(0, height))["transfers"] if row["token"] == token]
        balance: int = sum(
            int.from_bytes(row["raw"], "big") * ((row["recipient"] == account) - (row["sender"] == account))
            for row in transfers
        )
        if height == self.height:
            call = ("getTokenAccountsByOwner", account, {"mint": token}, {"encoding": "jsonParsed"})
            accounts = self.node.rpc(*call)["value"]
            parsed = (each["account"]["data"]["parsed"]["info"]["tokenAmount"]["amount"] for each in accounts)
            assert sum(map(int, parsed)) == balance, "the program moves what it is told to move"
        return balance

    def allowance(self, owner: str, token: str, spender: str, height: int) -> int:
        """Return 0: this chain has no allowances."""
        return 0

    def rows(self, span: Span) -> Mapping[str, list[Row]]:
        """Instruction by instruction, as they were written: what was paid, moved and made."""
        rows_by_table: dict[str, list[Row]] = {
            name: [] for name in ("blocks", "transactions", "transfers", "approvals", "logs")
        }
        for slot in self.ledger.slots.values():
            if slot.height in span:
                block_columns = {
                    "chain": KEY,
                    "height": slot.height,
                    "time": datetime.fromtimestamp(BEGAN_S + slot.height, UTC),
                }
                row = {**block_columns, "hash": slot.hash, "parent": slot.parent, "tx_count": len(slot.transactions)}
                rows_by_table["blocks"].append({**row, **dict.fromkeys(("miner", "gas_used", "gas_limit", "base_fee"))})
                for each in slot.transactions:
                    self._add(rows_by_table, block_columns, each)
        return rows_by_table

    def _add(self, rows_by_table: dict[str, list[Row]], block_columns: Row, transaction: Mapping[str, Any]) -> None:
        message, (signature,) = transaction["transaction"]["message"], transaction["transaction"]["signatures"][:1]
        keys = message["accountKeys"]
        number = int.from_bytes(bytes(Signature.from_string(signature))[:4], "big") >> 1
        steps = [
            (keys[each["programIdIndex"]], _bytes(each["data"]), [keys[at] for at in each["accounts"]])
            for each in message["instructions"]
        ]
        none = dict.fromkeys(("nonce", "type", "gas_used", "gas_price", "input", "created"))
        fee = transaction["meta"]["fee"].to_bytes(32, "big")
        rows_by_table["transactions"].append(
            {
                **block_columns,
                "tx_index": number,
                "hash": signature,
                "sender": keys[0],
                "recipient": steps[0][0],
                "status": 1,
                "raw": bytes(32),
                "fee": fee,
                **none,
            }
        )
        moves = sorted(map(self._move, steps), key=lambda move: move[0] or "")
        for item, (token, sender, recipient, raw) in enumerate(moves):
            token_columns = {
                "standard": "spl" if token else "native",
                "token": token,
                "token_id": None,
                "operator": None,
            }
            rows_by_table["transfers"].append(
                {
                    **block_columns,
                    "tx_index": number,
                    "log_index": -1,
                    "item": item,
                    "tx_hash": signature,
                    **token_columns,
                    "sender": sender,
                    "recipient": recipient,
                    "raw": raw.to_bytes(32, "big"),
                    "layout": None,
                }
            )

    @cached_property
    def _owners(self) -> Mapping[str, str]:
        """The wallet of each token account."""
        return {
            str(associated_account(each.pubkey(), token)): str(each.pubkey())
            for each in self.wallets
            for token in self.mints
        }

    def _move(self, step: tuple[str, bytes, list[str]]) -> tuple[str | None, str, str, int]:
        """Decode an instruction: a transfer of coins, a checked transfer of tokens, or new tokens."""
        program, content, accounts = step
        if program == SYSTEM:
            return None, accounts[0], accounts[1], struct.unpack("<IQ", content)[1]
        owners = self._owners
        if content[0] == 7:  # MintTo: mint, account
            return accounts[0], accounts[0], owners[accounts[1]], struct.unpack_from("<Q", content, 1)[0]
        assert content[0] == 12, "TransferChecked: source, mint, destination"
        return accounts[1], owners[accounts[0]], owners[accounts[2]], struct.unpack_from("<Q", content, 1)[0]


def _bytes(text: str) -> bytes:
    """Decode a base58 text by the package of that name."""
    import base58

    return bytes(base58.b58decode(text))


@contextmanager
def solana(blocks: int) -> Iterator[SolanaSubject]:
    """A Solana subject with so many slots of trading."""
    with started() as node, tempfile.TemporaryDirectory() as folder:
        yield SolanaSubject(node, Path(folder), blocks)
