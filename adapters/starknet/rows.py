"""Rows of blocks, transactions, movements and approvals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from adapters.starknet.datasets import NATIVE, TOKENS
from adapters.starknet.events import MOVES, UNSURE, Allowed, Moved, allowed, moved, name_of
from adapters.starknet.facts import Facts
from adapters.starknet.felts import Padded
from adapters.starknet.forms import Done, Whole
from adapters.starknet.transactions import nonce, parties, version
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer
from chainfolio.table import Table
from chainfolio.tables import APPROVALS, BLOCKS, TRANSACTIONS, TRANSFERS

PAID: Final = (
    "height", "time", "tx_index", "hash", "sender", "recipient", "created", "nonce", "type", "status", "fee", "input",
)  # fmt: skip
MOVEMENT: Final = (
    "height", "time", "tx_index", "log_index", "tx_hash", "token", "standard", "sender", "recipient", "raw", "token_id",
    "operator", "item",
)  # fmt: skip
APPROVAL: Final = (
    "height", "time", "tx_index", "log_index", "tx_hash", "token", "standard", "owner", "spender", "raw", "token_id",
    "approved",
)  # fmt: skip
NO_RAW: Final = bytes(32)
Row = tuple[Any, ...]
Placed = tuple[int, str, Moved]  # the position of the event in its transaction, the token, what was moved


@dataclass(frozen=True, slots=True)
class Read:
    """A block with the rows of what was done in it: of transactions, of movements as MOVEMENT names them, of approvals
    as APPROVAL does. `named` are the transactions whose events name, in their keys, accounts that were looked for."""

    block: Block
    paid: list[Row]
    movements: list[Row]
    approvals: list[Row]
    named: frozenset[str] = frozenset()

    @property
    def unsure(self) -> set[str]:
        """The contracts of which their events do not say whether they are tokens or collections."""
        return {row[5] for row in (*self.movements, *self.approvals) if row[6] == UNSURE}


def read(source: str, height: int, whole: Whole, facts: Facts) -> Read:
    """The rows of a block."""
    block, forms = whole.block(source, height), Padded(source)
    sequencer, time = forms[whole.sequencer_address], block.time
    paid: list[Row] = []
    movements: list[Row] = []
    approvals: list[Row] = []
    log_index = 0
    for tx_index, done in enumerate(whole.transactions):
        row, payment = _paid(forms, done, sequencer, facts.fee_unit)
        paid.append((height, time, tx_index, *row))
        found, allowances = _said(forms, done)
        for at, token, each in _without(found, facts.coin, payment):
            movements.append((height, time, tx_index, log_index + at, row[0], token, *each))
        for at, token, given in allowances:
            approvals.append((height, time, tx_index, log_index + at, row[0], token, *given))
        log_index += len(done.receipt.events)
    return Read(block, paid, movements, approvals)


def _paid(forms: Padded, done: Done, sequencer: str, unit: str) -> tuple[Row, tuple[str, str, int] | None]:
    """The row of a transaction behind its place, and the movement that its fee is. A fee in another
    coin than the native one is a movement like any other."""
    body, receipt, source = done.transaction, done.receipt, forms.source
    hashed = forms[receipt.transaction_hash]
    if body.transaction_hash is not None and forms[body.transaction_hash] != hashed:
        raise BadAnswer(source, f"a transaction with the receipt of another one, {hashed}")
    sender, recipient, created, called = parties(forms, body, receipt)
    fee = receipt.fee(source, unit)
    row = (
        hashed, sender, recipient, created, nonce(source, body), version(source, body), int(not receipt.failed),
        fee.to_bytes(32, "big"), called,
    )  # fmt: skip
    return row, (sender, sequencer, fee) if fee else None


def _said(forms: Padded, done: Done) -> tuple[list[Placed], list[tuple[int, str, Allowed]]]:
    """What the events of a transaction moved, and what they allowed."""
    found: list[Placed] = []
    approvals: list[tuple[int, str, Allowed]] = []
    for at, event in enumerate(done.receipt.events):
        name = name_of(forms, event)
        if name in MOVES:
            token = forms[event.from_address]
            found += [(at, token, each) for each in moved(forms, name, event)]
        elif name and (given := allowed(forms, name, event)):
            approvals.append((at, forms[event.from_address], given))
    return found, approvals


def _without(found: list[Placed], coin: str, payment: tuple[str, str, int] | None) -> list[Placed]:
    """Movements without the fee. What a transaction paid of the native coin is said by its fee: the event that says it
    once more, the last of its kind, has no row."""
    for place in range(len(found) - 1, -1, -1) if payment else ():
        _, token, each = found[place]
        if token == coin and each[1:4] == payment:
            del found[place]
            break
    return found


def tables(
    chain: str, blocks: Sequence[Read], datasets: Collection[str], contracts: Collection[str], coin: str,
    collections: Mapping[str, bool],
) -> dict[str, pa.Table]:  # fmt: skip
    """The rows of blocks in the tables that some datasets fill. `collections` says of the contracts whose events do not
    whether they are collections."""
    found = {}
    if "blocks" in datasets:
        rows: list[Row] = [(b.block.height, b.block.time, b.block.hash, b.block.parent, len(b.paid)) for b in blocks]
        found["blocks"] = _table(BLOCKS, chain, ("height", "time", "hash", "parent", "tx_count"), rows, {})
    if "transactions" in datasets:
        rows = [row for each in blocks for row in each.paid]
        found["transactions"] = _table(TRANSACTIONS, chain, PAID, rows, {"raw": NO_RAW})
    standards = {*(NATIVE if "native" in datasets else ()), *(TOKENS if "transfers" in datasets else ())}
    if standards:
        wanted = (row for each in blocks for row in each.movements if "transfers" in datasets or row[5] == coin)
        rows = [_settled(row, coin, collections) for row in wanted]
        rows = [
            row for row in rows if row[6] in standards and not (contracts and row[5] and row[5] not in contracts)
        ]  # fmt: skip
        found["transfers"] = _table(TRANSFERS, chain, MOVEMENT, rows, {})
    if "approvals" in datasets:
        rows = [_sure(row, coin, collections) for each in blocks for row in each.approvals]
        rows = [row for row in rows if not contracts or row[5] in contracts]
        found["approvals"] = _table(APPROVALS, chain, APPROVAL, rows, {})
    return found


def _settled(row: Row, coin: str, collections: Mapping[str, bool]) -> Row:
    """A movement whose standard is sure: of the native coin, of a token, of a collectible by its number."""
    *place, token, standard, sender, recipient, raw, token_id, operator, item = row
    if token == coin:
        token, standard = None, NATIVE[0]
    elif standard == UNSURE:
        standard = "erc721" if collections[token] else "erc20"
        raw, token_id = (1, raw) if collections[token] else (raw, None)
    return *place, token, standard, sender, recipient, _bytes(raw), _bytes(token_id), operator, item


def _sure(row: Row, coin: str, collections: Mapping[str, bool]) -> Row:
    """An approval whose standard is sure: of an amount, or of a collectible by its number."""
    *place, token, standard, owner, spender, raw, token_id, approved = row
    if standard == UNSURE:
        is_one = token != coin and collections[token]
        standard, raw, token_id = ("erc721", None, raw) if is_one else ("erc20", raw, None)
    return *place, token, standard, owner, spender, _bytes(raw), _bytes(token_id), approved


def _bytes(number: int | None) -> bytes | None:
    return None if number is None else number.to_bytes(32, "big")


def _table(table: Table, chain: str, names: Sequence[str], rows: Sequence[Row], constant: dict[str, Any]) -> pa.Table:
    """Rows as a table: constants are the same in each, and what is not named is null."""
    columns = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(names, ())
    schema = table.schema()
    constant = {"chain": chain, **constant}
    arrays = [
        pa.array(columns[field.name], field.type)
        if field.name in columns
        else pa.repeat(pa.scalar(constant.get(field.name), field.type), len(rows))
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
