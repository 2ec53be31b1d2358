"""Table rows of blocks, transactions, transfers and staking rewards."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from solders.pubkey import Pubkey
from solders.signature import Signature

from chainfolio.adapters.solana.datasets import STANDARDS
from chainfolio.adapters.solana.layouts import SYSTEM
from chainfolio.adapters.solana.transactions import Change, paired_transfers
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer
from chainfolio.tables import BLOCKS, REWARD, TRANSACTIONS, TRANSFERS

ZERO_RAW: Final = bytes(32)
NATIVE, TOKEN = STANDARDS["native"], STANDARDS["transfers"]
# The columns of the rows below, in their order.
TRANSFER_COLUMNS: Final = (
    "height",
    "time",
    "tx_index",
    "tx_hash",
    "standard",
    "token",
    "sender",
    "recipient",
    "raw",
    "item",
)
TRANSACTION_COLUMNS: Final = (
    "height",
    "time",
    "tx_index",
    "hash",
    "sender",
    "recipient",
    "status",
    "fee",
    "input",
)
Row = tuple[object, ...]
TransferRow = tuple[int, int, int, str, str, str | None, str, str, bytes, int]


class StakeReward(NamedTuple):
    """A reward that a block paid to a stake account, and the owner who could withdraw it."""

    block: Block
    stake: str
    owner: str
    lamports: int


class LocatedChange(msgspec.Struct, frozen=True, gc=False):
    """The changes of a transaction with its position.

    `tx_index` is derived from the signature: an endpoint that returns a single transaction does not tell its index.
    """

    slot: int
    time_us: int
    tx_index: int
    change: Change


def tx_indexes(source: str, signatures: Sequence[str]) -> list[int]:
    """Return a unique index for each transaction of a slot: the first 31 bits of its signature.

    So it does not depend on other transactions, except for a collision: the larger signature's index is increased.

    Raises:
        BadAnswer: A signature is invalid; `source` is the endpoint that sent it.
    """
    try:
        indexes = [int.from_bytes(bytes(Signature.from_string(each))[:4], "big") >> 1 for each in signatures]
    except ValueError:
        raise BadAnswer(source, "a transaction whose signature is none") from None
    if len(set(indexes)) == len(indexes):
        return indexes
    occupied: set[int] = set()
    index_by_signature = dict.fromkeys(signatures, 0)
    for index, signature in sorted(zip(indexes, signatures, strict=True)):  # collisions are very rare: take the next
        while index in occupied:
            index = (index + 1) % 2**31
        occupied.add(index)
        index_by_signature[signature] = index
    return [index_by_signature[each] for each in signatures]


def tables(
    chain: str, changes: Sequence[LocatedChange], datasets: Collection[str], contracts: Collection[str] = ()
) -> dict[str, pa.Table]:
    """Return the tables of transactions and transfers that some datasets fill, by name.

    Args:
        chain: The key of the chain.
        changes: The transactions.
        datasets: Names of `DATASETS`.
        contracts: Keep only transfers of these mints and of lamports; empty for all.
    """
    filled = {}
    if "transactions" in datasets:
        filled["transactions"] = TRANSACTIONS.filled(
            chain, TRANSACTION_COLUMNS, [_transaction_row(each) for each in changes], raw=ZERO_RAW
        )
    standards = {STANDARDS[name] for name in datasets if name in STANDARDS}
    if standards:
        rows = [row for each in changes for row in _transfer_rows(each)]
        if len(standards) < len(STANDARDS) or contracts:
            rows = [
                row for row in rows if row[4] in standards and not (contracts and row[5] and row[5] not in contracts)
            ]
        filled["transfers"] = TRANSFERS.filled(chain, TRANSFER_COLUMNS, rows, log_index=-1)
    return filled


def reward_table(chain: str, rewards: Iterable[StakeReward]) -> pa.Table:
    """Return the transfers of staking rewards.

    Their index is before the transactions of the block. Their item is a number of the stake account, so that it does
    not depend on the other rewards that are read.
    """
    rows: list[TransferRow] = []
    for block, stake, owner, lamports in rewards:
        position = block.height, block.time_us, -1, block.hash
        rows.append((*position, REWARD, None, stake, owner, lamports.to_bytes(32, "big"), _number(stake)))
    rows.sort(key=lambda row: (row[0], row[-1]))
    return TRANSFERS.filled(chain, TRANSFER_COLUMNS, rows, log_index=-1)


def _number(address: str) -> int:
    return int.from_bytes(bytes(Pubkey.from_string(address))[:4], "big") >> 1


def blocks_table(chain: str, blocks: Iterable[tuple[Block, int]]) -> pa.Table:
    """Return the table of blocks, each with its number of transactions."""
    rows = [(block.height, block.time_us, block.hash, block.parent, count) for block, count in blocks]
    return BLOCKS.filled(chain, ("height", "time", "hash", "parent", "tx_count"), rows)


def _transaction_row(located: LocatedChange) -> Row:
    """Return the row of a transaction: its payer calls its main program. Transfers are other rows."""
    change = located.change
    fee = change.fee.to_bytes(32, "big")
    position = located.slot, located.time_us, located.tx_index, change.signature
    return *position, change.payer, change.program, int(not change.failed), fee, change.content


def _transfer_rows(located: LocatedChange) -> Iterator[TransferRow]:
    """Yield the transfers of lamports, then those of each mint in sorted order.

    The item numbers do not depend on the datasets that are read.
    """
    change, item = located.change, 0
    position = (located.slot, located.time_us, located.tx_index, change.signature)
    for sender, recipient, raw in paired_transfers(change.native, SYSTEM):
        yield *position, NATIVE, None, sender, recipient, raw.to_bytes(32, "big"), item
        item += 1
    for mint in sorted(change.tokens):
        for sender, recipient, raw in paired_transfers(change.tokens[mint], mint):
            yield *position, TOKEN, mint, sender, recipient, raw.to_bytes(32, "big"), item
            item += 1
