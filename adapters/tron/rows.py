"""Rows of blocks, transactions and movements."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from adapters.tron.addresses import ZERO
from adapters.tron.contracts import FAILED, INPUTS, TYPES, Asked, Move, Pair, message
from adapters.tron.datasets import INTERNAL, NATIVE
from adapters.tron.events import TOLD, Moved, approved, inside, moved
from adapters.tron.facts import TRC10, Facts
from adapters.tron.forms import Info, Transaction, Whole
from adapters.tron.protobuf import data, fields, first, word
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.chains import Unexplained
from chainfolio.errors import BadAnswer
from chainfolio.tables import APPROVALS, BLOCKS, RESOURCES, TRANSACTIONS, TRANSFERS

PAID: Final = (
    "height", "time", "tx_index", "hash", "sender", "recipient", "created", "raw", "type", "status", "gas_used", "fee",
    "input",
)  # fmt: skip
USED: Final = (
    "height", "time", "tx_index", "tx_hash", "account", "energy", "energy_staked", "energy_of_contract",
    "energy_penalty", "energy_fee", "bandwidth", "bandwidth_fee",
)  # fmt: skip
MOVEMENT: Final = (
    "height", "time", "tx_index", "log_index", "tx_hash", "token", "standard", "sender", "recipient", "raw", "token_id",
    "operator", "item",
)  # fmt: skip
ALLOWED: Final = (
    "height", "time", "tx_index", "log_index", "tx_hash", "token", "standard", "owner", "spender", "token_id", "raw",
    "approved",
)  # fmt: skip
DONE: Final = ("SUCCESS", "")  # what old transactions do not say has succeeded, unless the receipt says otherwise
CONTRACT = 11  # of the fields of what was signed
Row = tuple[Any, ...]
Pairs = Mapping[int, tuple[str | None, str | None]]


@dataclass(frozen=True, slots=True)
class Read:
    """A block with the rows of what was done in it: of transactions, what they used up, movements (as MOVEMENT names
    them), approvals. `untold`: what of accounts nobody can tell."""

    source: str
    block: Block
    time: datetime
    coin: Asset
    wrapped: str | None
    paid: list[Row] = field(default_factory=list)
    used: list[Row] = field(default_factory=list)
    movements: list[Row] = field(default_factory=list)
    approvals: list[Row] = field(default_factory=list)
    untold: list[Unexplained] = field(default_factory=list)

    @property
    def exchanges(self) -> set[int]:
        """The exchanges of which it takes both tokens to say what moved."""
        return {row[5].exchange for row in self.movements if isinstance(row[5], Pair)}

    def transactions_of(self, accounts: Collection[str]) -> set[str]:
        """Return the hashes of transactions that accounts sent, or that moved or approved something of theirs."""
        if not accounts:
            return set()
        return {
            *(row[3] for row in self.paid if row[4] in accounts or row[5] in accounts),
            *(row[4] for row in (*self.movements, *self.approvals) if row[7] in accounts or row[8] in accounts),
        }

    def add(self, tx_index: int, log_index: int, done: Transaction, info: Info) -> None:
        """Take in one transaction, `log_index` events behind the beginning of its block."""
        source, height, tx_hash = self.source, self.block.height, done.txID
        if info.blockNumber != height:
            raise BadAnswer(source, f"a receipt of block {info.blockNumber} for transaction {tx_hash}")
        kind, asked = asked_by(source, done, info, is_first=height == 0)
        failed = has_failed(source, done, info)
        place = height, self.time, tx_index
        self.paid.append((
            *place, tx_hash, asked.owner, asked.recipient, None if failed else asked.created,
            asked.raw.to_bytes(32, "big"), kind, int(not failed), info.receipt.energy_usage_total,
            info.fee.to_bytes(32, "big"), asked.input,
        ))  # fmt: skip
        of = info.receipt
        self.used.append((
            *place, tx_hash, asked.owner, of.energy_usage_total, of.energy_usage, of.origin_energy_usage,
            of.energy_penalty_total, of.energy_fee, of.net_usage, of.net_fee,
        ))  # fmt: skip
        if failed:
            return
        for item, each in enumerate(self._coins(asked, info)):
            self.movements.append((*place, -1, tx_hash, each[1], each[0], *each[2:5], None, None, item))
        for at, log in enumerate(info.log, log_index):
            if not log.topics or log.topics[0] not in TOLD:
                continue
            for each in moved(source, log, self.wrapped):
                self.movements.append((*place, at, tx_hash, each[1], each[0], *each[2:]))
            if allowed := approved(source, log):
                self.approvals.append((*place, at, tx_hash, *allowed))

    def _coins(self, asked: Asked, info: Info) -> Sequence[Moved]:
        """What a transaction moved itself, and what the contracts did that it called. What nobody can tell is noted."""
        moves = [Moved(NATIVE if each[0] is None else TRC10, *each) for each in asked.moves]  # type: ignore[arg-type]
        if asked.untold:
            self.note(asked.owner, asked.untold)
        for call in info.internal_transactions:
            try:
                moves += inside(self.source, call)
            except KeyError as error:
                kind = error.args[0][:60]
                self.note(asked.owner, f"a call of the kind {kind!r}, of which nobody knows what it moves")
        return moves

    def note(self, account: str, reason: str) -> None:
        """Keep that something of an account is not explained."""
        self.untold.append(Unexplained(account, self.block.height, self.coin, 0, reason))


def started(source: str, block: Block, facts: Facts) -> Read:
    """A block of which no transaction is read yet."""
    return Read(source, block, block.time, facts.native_asset, facts.wrapped.address if facts.wrapped else None)


def read(source: str, height: int, whole: Whole, infos: Sequence[Info], facts: Facts) -> Read:
    """The rows of a block."""
    found = started(source, whole.block(source, height), facts)
    of = {each.id: each for each in infos}
    known = {each.txID for each in whole.transactions}
    if len(known) != len(whole.transactions):
        raise BadAnswer(source, f"block {height} has a transaction twice")
    if height and (of.keys() != known or len(of) != len(infos)):
        raise BadAnswer(source, f"block {height} has {len(known)} transactions, and receipts of others")
    log_index = 0
    for tx_index, each in enumerate(whole.transactions):
        info = of.get(each.txID) or Info(each.txID)
        found.add(tx_index, log_index, each, info)
        log_index += len(info.log)
    return found


def asked_by(source: str, done: Transaction, info: Info, *, is_first: bool = False) -> tuple[int, Asked]:
    """The type of a transaction and what it asked for, from the bytes that were signed; BadAnswer where they are not
    those of its hash. Those of the first block nobody signed."""
    try:
        packed = bytes.fromhex(done.raw_data_hex)
        if hashlib.sha256(packed).hexdigest() != done.txID:
            raise BadAnswer(source, f"transaction {done.txID} has the bytes of another one")
        contract = fields(first(packed, CONTRACT), message=2)
        kind, told = word(contract, 1), message(source, data(fields(data(contract, 2)), 2))
        if is_first:
            to, raw = told.address(2), told.raw(3)
            return kind, Asked(ZERO, to, raw=raw, moves=(Move(None, ZERO, to, raw),))
        if kind not in TYPES:
            raise BadAnswer(source, f"transaction {done.txID} is of the unknown type {kind}")
        asked = TYPES[kind].read(told, info)
    except ValueError as error:
        raise BadAnswer(source, f"transaction {done.txID}: {error}") from None
    return kind, asked._replace(input=INPUTS[kind]) if kind in INPUTS else asked


def has_failed(source: str, done: Transaction, info: Info) -> bool:
    """Whether a transaction did nothing but pay; BadAnswer where its block and its receipt do not say the same. The
    chain writes into the first result; any others are what its sender wrote."""
    said = done.ret[0].contractRet if done.ret else ""
    if said and info.receipt.result and said != info.receipt.result:
        raise BadAnswer(source, f"transaction {done.txID} ended with {said[:40]} and {info.receipt.result[:40]}")
    return info.result == FAILED or (said or info.receipt.result) not in DONE


def tables(
    chain: str, blocks: Sequence[Read], datasets: Collection[str], contracts: Collection[str], pairs: Pairs
) -> dict[str, pa.Table]:
    """The rows of blocks in the tables that some datasets fill. `pairs` are the two tokens of each exchange."""
    found = {}
    if "blocks" in datasets:
        rows: list[Row] = [(b.block.height, b.block.time, b.block.hash, b.block.parent, len(b.paid)) for b in blocks]
        found["blocks"] = BLOCKS.filled(chain, ("height", "time", "hash", "parent", "tx_count"), rows)
    if "transactions" in datasets:
        found["transactions"] = TRANSACTIONS.filled(chain, PAID, [row for each in blocks for row in each.paid])
    if "resources" in datasets:
        found["resources"] = RESOURCES.filled(chain, USED, [row for each in blocks for row in each.used])
    if "approvals" in datasets:
        rows = [row for each in blocks for row in each.approvals if not contracts or row[5] in contracts]
        found["approvals"] = APPROVALS.filled(chain, ALLOWED, rows)
    if {"native", "internal", "transfers"} & {*datasets}:
        rows = [_settled(row, pairs) for each in blocks for row in each.movements]
        found["transfers"] = TRANSFERS.filled(chain, MOVEMENT, _wanted(rows, datasets, contracts))
    return found


def _wanted(rows: Sequence[Row], datasets: Collection[str], contracts: Collection[str]) -> Sequence[Row]:
    """The movements that some datasets have."""
    unwanted = {each for each in (NATIVE, INTERNAL) if each not in datasets}
    tokens = "transfers" in datasets
    return [
        row for row in rows
        if (row[6] not in unwanted if row[5] is None else tokens and (not contracts or row[5] in contracts))
    ]  # fmt: skip


def _settled(row: Row, pairs: Pairs) -> Row:
    """A movement whose token is sure, its numbers as tables have them."""
    *place, token, standard, sender, recipient, raw, token_id, operator, item = row
    if isinstance(token, Pair):
        one, other = pairs[token.exchange]
        token = other if token.token == one else one
        standard = NATIVE if token is None else TRC10
    number = None if token_id is None else token_id.to_bytes(32, "big")
    return *place, token, standard, sender, recipient, raw.to_bytes(32, "big"), number, operator, item
