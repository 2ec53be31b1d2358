"""Table rows of blocks: transactions, transfers, approvals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from chainfolio.adapters.starknet.datasets import NATIVE, TOKENS
from chainfolio.adapters.starknet.events import (
    AMBIGUOUS,
    APPROVAL_EVENTS,
    NAME_SUFFIXES,
    TRANSFER_EVENTS,
    decode_approval,
    decode_transfers,
)
from chainfolio.adapters.starknet.facts import Facts
from chainfolio.adapters.starknet.felts import FormattedFelts
from chainfolio.adapters.starknet.forms import Event, FullBlock, TransactionWithReceipt
from chainfolio.adapters.starknet.transactions import ZERO_ADDRESS, nonce, parties, sender_fee, version
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer
from chainfolio.tables import APPROVALS, BLOCKS, TRANSACTIONS, TRANSFERS

if TYPE_CHECKING:
    import pyarrow as pa

ZERO_RAW: Final = bytes(32)
MAX_EVENT_FELTS: Final = 8  # of one transfer or approval; the rare longer events have no limit
CALLDATA_FELTS: Final = 4  # from the start of the calldata to the recipient of its first call
NO_LOG: Final = -1  # log index of a fee that no event shows
TokenEvent = tuple[int, Event]  # an event that may be of a token, after its log index


class TransactionRow(NamedTuple):
    """A row of the table of transactions: `type` is the version, `status` 1 for success."""

    height: int
    time: datetime
    tx_index: int
    hash: str
    sender: str
    recipient: str | None
    created: str | None
    nonce: int | None
    type: int
    status: int
    fee: bytes
    input: bytes | None


class MovementRow(NamedTuple):
    """A transfer before its standard is known: if that is AMBIGUOUS, `raw` is an amount or a token id."""

    height: int
    time: datetime
    tx_index: int
    log_index: int
    tx_hash: str
    token: str
    standard: str
    sender: str
    recipient: str
    raw: int
    token_id: int | None
    operator: str | None
    item: int


class ApprovalRow(NamedTuple):
    """An approval before its standard is known: if that is AMBIGUOUS, `raw` is an amount or a token id."""

    height: int
    time: datetime
    tx_index: int
    log_index: int
    tx_hash: str
    token: str
    standard: str
    owner: str
    spender: str
    raw: int | None
    token_id: int | None
    approved: bool | None


@dataclass(frozen=True, slots=True)
class BlockRows:
    """A block with its rows.

    Attributes:
        block: The block.
        transaction_count: Its number of transactions, also if only its header was read.
        transactions: One row per transaction.
        movements: One row per transfer.
        approvals: One row per approval.
        account_transactions: The hashes of transactions whose events have one of the searched accounts in a key.
    """

    block: Block
    transaction_count: int
    transactions: list[TransactionRow]
    movements: list[MovementRow]
    approvals: list[ApprovalRow]
    account_transactions: frozenset[str] = frozenset()

    @property
    def ambiguous_contracts(self) -> set[str]:
        """The contracts that may be tokens or collections, according to their events."""
        movements = {row.token for row in self.movements if row.standard == AMBIGUOUS}
        return movements | {row.token for row in self.approvals if row.standard == AMBIGUOUS}


def build_rows(source: str, height: int, full_block: FullBlock, facts: Facts) -> BlockRows:
    """Build the rows of a block; a transaction's fee is 0 if paid in another token than the native coin.

    The transfer that pays a fee in the native coin is left out, and one in another token is added if missing.

    Raises:
        BadAnswer: The block has another height, lacks or repeats a transaction, or has an invalid field.
    """
    block, felts = full_block.block(source, height), FormattedFelts(source)
    full_block.check_counts(source)
    token_events = _token_events(felts, full_block.transactions)
    rows = BlockRows(block, len(full_block.transactions), [], [], [])
    sequencer, time = felts[full_block.sequencer_address], block.time
    for tx_index, (each, events) in enumerate(zip(full_block.transactions, token_events, strict=True)):
        fee, unit = sender_fee(felts.numbers, each.transaction, each.receipt)
        is_native = unit == facts.fee_unit
        row = _transaction_row(felts, (height, time, tx_index), each, fee if is_native else 0)
        rows.transactions.append(row)
        first = len(rows.movements)
        _add_events(rows, felts, row, events)
        if fee:
            _settle_fee(rows.movements, first, row, (facts.fee_token(unit), sequencer, fee), is_native)
    if len({row.hash for row in rows.transactions}) != len(rows.transactions):
        raise BadAnswer(source, f"block {height} has a transaction twice")
    return rows


def _token_events(felts: FormattedFelts, transactions: Sequence[TransactionWithReceipt]) -> list[list[TokenEvent]]:
    """Return per transaction the events that may be of tokens, with their index in the block.

    Also preloads the felts of all rows.
    """
    token_events, texts, log_index = [], list[str](), 0
    for each in transactions:
        events, transaction = each.receipt.events, each.transaction
        selected = [
            (index, event)
            for index, event in enumerate(events, log_index)
            if event.keys and event.keys[0][-8:].lower() in NAME_SUFFIXES
        ]
        texts += (each.receipt.transaction_hash, transaction.sender_address or "0x0")
        texts += transaction.calldata[:CALLDATA_FELTS]
        for _, event in selected:
            if len(event.keys) + len(event.data) <= MAX_EVENT_FELTS:
                texts.append(event.from_address)
                texts += event.keys
                texts += event.data
        token_events.append(selected)
        log_index += len(events)
    felts.preload(texts)
    return token_events


def _transaction_row(
    felts: FormattedFelts, position: tuple[int, datetime, int], each: TransactionWithReceipt, fee: int
) -> TransactionRow:
    """Return the row of a transaction. `position` is height, time and transaction index.

    Raises BadAnswer if the receipt is another transaction's.
    """
    transaction, receipt, numbers = each.transaction, each.receipt, felts.numbers
    tx_hash = felts[receipt.transaction_hash]
    if transaction.transaction_hash is not None and felts[transaction.transaction_hash] != tx_hash:
        raise BadAnswer(felts.source, f"a transaction with the receipt of another one, {tx_hash}")
    sender, recipient, created, function = parties(felts, transaction, receipt)
    return TransactionRow(
        *position,
        tx_hash,
        sender,
        recipient,
        created,
        nonce(numbers, transaction),
        version(numbers, transaction),
        int(not receipt.failed),
        fee.to_bytes(32, "big"),
        function,
    )


def _add_events(rows: BlockRows, felts: FormattedFelts, row: TransactionRow, events: Sequence[TokenEvent]) -> None:
    """Add the transfers and approvals of a transaction to the rows of its block."""
    height, time, tx_index, tx_hash = row[:4]
    for log_index, event in events:
        name, token = felts[event.keys[0]], felts[event.from_address]
        if name in TRANSFER_EVENTS:
            for each in decode_transfers(felts, name, event):
                rows.movements.append(MovementRow(height, time, tx_index, log_index, tx_hash, token, *each))
        elif name in APPROVAL_EVENTS and (approval := decode_approval(felts, name, event)) is not None:
            rows.approvals.append(ApprovalRow(height, time, tx_index, log_index, tx_hash, token, *approval))


def _settle_fee(
    movements: list[MovementRow], first: int, row: TransactionRow, payment: tuple[str, str, int], is_native: bool
) -> None:
    """Count the fee of a transaction once: in its row if it is in the native coin, else as a movement.

    Args:
        movements: Those of the block. Changed in place.
        first: The index of the transaction's first movement.
        row: The transaction; its sender pays.
        payment: The token, the sequencer (zero if the node does not name it) and the amount.
        is_native: True if the row of the transaction has the fee.
    """
    token, sequencer, fee = payment
    newest_first = range(len(movements) - 1, first - 1, -1)
    index = next((at for at in newest_first if _is_payment(movements[at], row.sender, payment)), None)
    if is_native and index is not None:
        del movements[index]
    elif not is_native and index is None:  # early fees have no event (mainnet block 2800)
        fee_row = MovementRow(
            *row[:3], NO_LOG, row.hash, token, "erc20", row.sender, sequencer, fee, token_id=None, operator=None, item=0
        )
        movements.insert(first, fee_row)


def _is_payment(movement: MovementRow, payer: str, payment: tuple[str, str, int]) -> bool:
    """Return True if a movement is a fee: its token and amount, from the payer to the sequencer."""
    token, sequencer, fee = payment
    is_fee = (movement.token, movement.sender, movement.raw) == (token, payer, fee)
    return is_fee and sequencer in (movement.recipient, ZERO_ADDRESS)


def build_tables(
    chain: str,
    blocks: Sequence[BlockRows],
    datasets: Collection[str],
    contracts: Collection[str],
    coin: str,
    collections: Mapping[str, bool],
) -> dict[str, pa.Table]:
    """Return the tables of some datasets; "native" and "transfers" both are in `transfers`.

    The native coin's transfers are kept whatever the contracts.

    Args:
        chain: The key of the chain.
        blocks: The rows of all blocks.
        datasets: Names of datasets.
        contracts: The only contracts whose rows are included; empty for all.
        coin: The contract of the native coin.
        collections: For each of the blocks' `ambiguous_contracts` but `coin`, whether it is a collection.
    """
    tables = {}
    if "blocks" in datasets:
        headers = [(b.block.height, b.block.time, b.block.hash, b.block.parent, b.transaction_count) for b in blocks]
        tables["blocks"] = BLOCKS.filled(chain, ("height", "time", "hash", "parent", "tx_count"), headers)
    if "transactions" in datasets:
        transactions = [row for each in blocks for row in each.transactions]
        tables["transactions"] = TRANSACTIONS.filled(chain, TransactionRow._fields, transactions, raw=ZERO_RAW)
    standards = {*(NATIVE if "native" in datasets else ()), *(TOKENS if "transfers" in datasets else ())}
    if standards:
        movements = (
            (row, NATIVE[0] if row.token == coin else _standard(row, coin, collections))
            for each in blocks
            for row in each.movements
            if "transfers" in datasets or row.token == coin
        )
        transfers = [
            _values(row, standard, item_raw=1)
            for row, standard in movements
            if standard in standards and (not contracts or row.token == coin or row.token in contracts)
        ]
        tables["transfers"] = TRANSFERS.filled(chain, MovementRow._fields, transfers)
    if "approvals" in datasets:
        approvals = [
            _values(row, _standard(row, coin, collections), item_raw=None)
            for each in blocks
            for row in each.approvals
            if not contracts or row.token in contracts
        ]
        tables["approvals"] = APPROVALS.filled(chain, ApprovalRow._fields, approvals)
    return tables


def _standard(row: MovementRow | ApprovalRow, coin: str, collections: Mapping[str, bool]) -> str:
    if row.standard != AMBIGUOUS:
        return row.standard
    return "erc721" if row.token != coin and collections[row.token] else "erc20"


def _values(row: MovementRow | ApprovalRow, standard: str, *, item_raw: int | None) -> tuple[object, ...]:
    """Return the values of a row for its table, in the order of its fields. The native coin has no token.

    `item_raw` is the amount if an ambiguous `raw` is a token id.
    """
    token = None if standard == NATIVE[0] else row.token
    is_item = row.standard == AMBIGUOUS and standard == "erc721"
    raw, token_id = (item_raw, row.raw) if is_item else (row.raw, row.token_id)
    return *row[:5], token, standard, *row[7:9], _bytes(raw), _bytes(token_id), *row[11:]


def _bytes(number: int | None) -> bytes | None:
    return None if number is None else number.to_bytes(32, "big")
