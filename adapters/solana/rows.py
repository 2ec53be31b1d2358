"""Rows of blocks, transactions and movements, by what transactions changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from solders.pubkey import Pubkey
from solders.signature import Signature

from adapters.solana.datasets import STANDARDS
from adapters.solana.layouts import SYSTEM
from adapters.solana.transactions import Change, moved
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer
from chainfolio.tables import BLOCKS, REWARD, TRANSACTIONS, TRANSFERS

NO_RAW: Final = bytes(32)
NATIVE, TOKEN = STANDARDS["native"], STANDARDS["transfers"]
# The columns of `transfers` that rows here have, in their order.
MOVEMENT: Final = (
    "height", "time", "tx_index", "tx_hash", "standard", "token", "sender", "recipient", "raw", "item",
)  # fmt: skip
PAID: Final = ("height", "time", "tx_index", "hash", "sender", "recipient", "status", "fee", "input")
Row = tuple[Any, ...]
Rewarded = tuple[Block, str, str, int]  # by block, stake account, owner and lamports


class Done(msgspec.Struct, frozen=True, gc=False):
    """A transaction with its place. `tx_index` is taken from its signature: an endpoint that gives a transaction does
    not say where in its block it lies."""

    slot: int
    time_us: int
    tx_index: int
    change: Change


def places(source: str, signatures: Sequence[str]) -> list[int]:
    """A number for each transaction of a slot, which is the same whoever reads it, alone or with its block. BadAnswer
    where `source` gave what is no signature."""
    try:
        found = [int.from_bytes(bytes(Signature.from_string(each))[:4], "big") >> 1 for each in signatures]
    except ValueError:
        raise BadAnswer(source, "a transaction whose signature is none") from None
    if len(set(found)) == len(found):
        return found
    taken: set[int] = set()
    numbers = dict.fromkeys(signatures, 0)
    for number, signature in sorted(zip(found, signatures, strict=True)):  # as good as never: the next free one
        while number in taken:
            number = (number + 1) % 2**31
        taken.add(number)
        numbers[signature] = number
    return [numbers[each] for each in signatures]


def tables(
    chain: str, done: Sequence[Done], datasets: Collection[str], contracts: Collection[str] = ()
) -> dict[str, pa.Table]:
    """The rows of transactions and movements, in the tables that some datasets fill."""
    found = {}
    if "transactions" in datasets:
        rows: list[Row] = [_paid(each) for each in done]
        found["transactions"] = TRANSACTIONS.filled(chain, PAID, rows, raw=NO_RAW)
    standards = {STANDARDS[name] for name in datasets if name in STANDARDS}
    if standards:
        rows = [row for each in done for row in _movements(each)]
        if len(standards) < len(STANDARDS) or contracts:
            rows = [
                row for row in rows if row[4] in standards and not (contracts and row[5] and row[5] not in contracts)
            ]
        found["transfers"] = TRANSFERS.filled(chain, MOVEMENT, rows, log_index=-1)
    return found


def reward_table(chain: str, rewards: Iterable[Rewarded]) -> pa.Table:
    """Rows of what stake accounts earned. They stand before the
    transactions of their block, each at a number of its stake account, whatever others are read with it."""
    rows: list[Row] = []
    for block, stake, owner, raw in rewards:
        place = block.height, block.time_us, -1, block.hash
        rows.append((*place, REWARD, None, stake, owner, raw.to_bytes(32, "big"), _number(stake)))
    rows.sort(key=lambda row: (row[0], row[-1]))
    return TRANSFERS.filled(chain, MOVEMENT, rows, log_index=-1)


def _number(address: str) -> int:
    return int.from_bytes(bytes(Pubkey.from_string(address))[:4], "big") >> 1


def blocks_table(chain: str, blocks: Iterable[tuple[Block, int]]) -> pa.Table:
    """The rows of blocks, each with the number of its transactions."""
    rows = [(block.height, block.time_us, block.hash, block.parent, count) for block, count in blocks]
    return BLOCKS.filled(chain, ("height", "time", "hash", "parent", "tx_count"), rows)


def _paid(done: Done) -> Row:
    """Who paid, and for what. What was moved is said by movements, so a transaction sends nothing itself."""
    each = done.change
    fee = each.fee.to_bytes(32, "big")
    place = done.slot, done.time_us, done.tx_index, each.signature
    return *place, each.payer, each.program, int(not each.failed), fee, each.content


def _movements(done: Done) -> Iterator[Row]:
    """Movements of coins first, then those of each mint in the order of the mints: numbered whatever is asked for."""
    change, item = done.change, 0
    place = (done.slot, done.time_us, done.tx_index, change.signature)
    for sender, recipient, raw in moved(change.native, SYSTEM):
        yield *place, NATIVE, None, sender, recipient, raw.to_bytes(32, "big"), item
        item += 1
    for mint in sorted(change.tokens):
        for sender, recipient, raw in moved(change.tokens[mint], mint):
            yield *place, TOKEN, mint, sender, recipient, raw.to_bytes(32, "big"), item
            item += 1
