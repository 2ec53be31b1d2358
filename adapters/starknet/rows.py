"""Rows of blocks, transactions and movements."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from adapters.starknet.datasets import NATIVE, TOKENS
from adapters.starknet.events import UNSURE, Moved, moved, name_of
from adapters.starknet.facts import Facts
from adapters.starknet.felts import Padded
from adapters.starknet.forms import Done, Whole
from adapters.starknet.transactions import nonce, parties, version
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer
from chainfolio.table import Table
from chainfolio.tables import BLOCKS, TRANSACTIONS, TRANSFERS

PAID: Final = (
    "height", "time", "tx_index", "hash", "sender", "recipient", "created", "nonce", "type", "status", "fee",
)  # fmt: skip
MOVEMENT: Final = (
    "height", "time", "tx_index", "log_index", "tx_hash", "token", "standard", "sender", "recipient", "raw", "token_id",
    "operator", "item",
)  # fmt: skip
NO_RAW: Final = bytes(32)
Row = tuple[Any, ...]
Placed = tuple[int, str, Moved]  # the position of the event in its transaction, the token, what was moved


@dataclass(frozen=True, slots=True)
class Read:
    """A block with the rows of what was done in it: of transactions, and of movements as MOVEMENT names them."""

    block: Block
    paid: list[Row]
    movements: list[Row]

    @property
    def unsure(self) -> set[str]:
        """The contracts of which their events do not say whether they are tokens or collections."""
        return {row[5] for row in self.movements if row[6] == UNSURE}


def read(source: str, height: int, whole: Whole, facts: Facts) -> Read:
    """The rows of a block."""
    block, forms = whole.block(source, height), Padded(source)
    sequencer, time = forms[whole.sequencer_address], block.time
    paid: list[Row] = []
    movements: list[Row] = []
    log_index = 0
    for tx_index, done in enumerate(whole.transactions):
        row, payment = _paid(forms, done, sequencer, facts.fee_unit)
        paid.append((height, time, tx_index, *row))
        for at, token, each in _movements(forms, done, facts.coin, payment):
            movements.append((height, time, tx_index, log_index + at, row[0], token, *each[:3], each.raw, *each[4:]))
        log_index += len(done.receipt.events)
    return Read(block, paid, movements)


def _paid(forms: Padded, done: Done, sequencer: str, unit: str) -> tuple[Row, tuple[str, str, int] | None]:
    """The row of a transaction behind its place, and the movement that its fee is. A fee in another
    coin than the native one is a movement like any other."""
    body, receipt, source = done.transaction, done.receipt, forms.source
    hashed = forms[receipt.transaction_hash]
    if body.transaction_hash is not None and forms[body.transaction_hash] != hashed:
        raise BadAnswer(source, f"a transaction with the receipt of another one, {hashed}")
    sender, recipient, created = parties(forms, body, receipt)
    fee = receipt.fee(source, unit)
    row = (
        hashed, sender, recipient, created, nonce(source, body), version(source, body), int(not receipt.failed),
        fee.to_bytes(32, "big"),
    )  # fmt: skip
    return row, (sender, sequencer, fee) if fee else None


def _movements(forms: Padded, done: Done, coin: str, payment: tuple[str, str, int] | None) -> list[Placed]:
    """What a transaction moved. What it paid of the native coin is said by its fee: the event that says it once more,
    the last of its kind, has no row."""
    found: list[Placed] = []
    for at, event in enumerate(done.receipt.events):
        if name := name_of(forms, event):
            token = forms[event.from_address]
            found += [(at, token, each) for each in moved(forms, name, event)]
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
        rows = [_settled(row, coin, collections) for each in blocks for row in each.movements]
        rows = [
            row for row in rows if row[6] in standards and not (contracts and row[5] and row[5] not in contracts)
        ]  # fmt: skip
        found["transfers"] = _table(TRANSFERS, chain, MOVEMENT, rows, {})
    return found


def _settled(row: Row, coin: str, collections: Mapping[str, bool]) -> Row:
    """A movement whose standard is sure: of the native coin, of a token, of a collectible by its number."""
    *place, token, standard, sender, recipient, raw, token_id, operator, item = row
    if token == coin:
        token, standard = None, NATIVE[0]
    elif standard == UNSURE:
        standard = "erc721" if collections[token] else "erc20"
        raw, token_id = (1, raw) if collections[token] else (raw, None)
    number = None if token_id is None else token_id.to_bytes(32, "big")
    return *place, token, standard, sender, recipient, raw.to_bytes(32, "big"), number, operator, item


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
