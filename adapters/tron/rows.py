"""Table rows of blocks: transactions, resources, transfers, approvals."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from chainfolio.adapters.tron.addresses import ZERO
from chainfolio.adapters.tron.contracts import (
    CONTRACT_TYPES,
    FAILED,
    SYSTEM_SELECTORS,
    CounterToken,
    DirectTransfer,
    Operation,
    decode_message,
)
from chainfolio.adapters.tron.datasets import INTERNAL, NATIVE
from chainfolio.adapters.tron.events import (
    DECODED_EVENTS,
    Movement,
    decode_approval,
    decode_internal,
    decode_transfers,
)
from chainfolio.adapters.tron.facts import TRC10, Facts
from chainfolio.adapters.tron.forms import FullBlock, ResourceReceipt, Transaction, TransactionInfo
from chainfolio.adapters.tron.protobuf import bytes_field, decode_fields, enum_field, first_bytes_field
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.chain_results import UnexplainedChange
from chainfolio.errors import BadAnswer
from chainfolio.tables import APPROVALS, BLOCKS, RESOURCES, TRANSACTIONS, TRANSFERS

if TYPE_CHECKING:
    import pyarrow as pa

SUCCESS: Final = ("SUCCESS", "")  # old transactions without a result have succeeded, unless the receipt differs
CONTRACT = 11  # field of the signed message
Row = tuple[Any, ...]
ExchangeTokens = Mapping[int, tuple[str | None, str | None]]  # both tokens by exchange; None is the native coin


class TransactionRow(NamedTuple):
    """A row of the table of transactions. Amounts are 32 bytes, `status` is 1 for success."""

    height: int
    time: datetime
    tx_index: int
    hash: str
    sender: str
    recipient: str | None
    created: str | None
    raw: bytes
    type: int
    status: int
    gas_used: int
    fee: bytes
    input: bytes | None


class ResourceRow(NamedTuple):
    """A row of the table of resources: the energy and bandwidth that a transaction used. Fees are in sun."""

    height: int
    time: datetime
    tx_index: int
    tx_hash: str
    account: str
    energy: int
    energy_staked: int
    energy_of_contract: int
    energy_penalty: int
    energy_fee: int
    bandwidth: int
    bandwidth_fee: int


class TransferRow(NamedTuple):
    """A transfer before its token is looked up (if it is a `CounterToken`) and its numbers are 32 bytes."""

    height: int
    time: datetime
    tx_index: int
    log_index: int
    tx_hash: str
    token: str | CounterToken | None
    standard: str
    sender: str
    recipient: str
    raw: int
    token_id: int | None
    operator: str | None
    item: int


class ApprovalRow(NamedTuple):
    """A row of the table of approvals."""

    height: int
    time: datetime
    tx_index: int
    log_index: int
    tx_hash: str
    token: str
    standard: str
    owner: str
    spender: str
    token_id: bytes | None
    raw: bytes | None
    approved: bool | None


@dataclass(frozen=True, slots=True)
class BlockRows:
    """A block with the rows of its transactions.

    Attributes:
        source: The node that gave it.
        coin: The native coin.
        wrapped: The contract of the wrapped coin, if the chain has one.
        unexplained: Changes of accounts that nodes do not show.
    """

    source: str
    block: Block
    time: datetime
    coin: Asset
    wrapped: str | None
    transactions: list[TransactionRow] = field(default_factory=list)
    resources: list[ResourceRow] = field(default_factory=list)
    transfers: list[TransferRow] = field(default_factory=list)
    approvals: list[ApprovalRow] = field(default_factory=list)
    unexplained: list[UnexplainedChange] = field(default_factory=list)

    @property
    def exchanges(self) -> set[int]:
        """The exchanges whose two tokens are needed to complete the transfers."""
        return {row.token.exchange for row in self.transfers if isinstance(row.token, CounterToken)}

    def transactions_of(self, accounts: Collection[str]) -> set[str]:
        """Return the hashes of transactions that accounts sent, or that moved or approved something of theirs."""
        if not accounts:
            return set()
        return {
            *(row.hash for row in self.transactions if row.sender in accounts or row.recipient in accounts),
            *(row.tx_hash for row in self.transfers if row.sender in accounts or row.recipient in accounts),
            *(row.tx_hash for row in self.approvals if row.owner in accounts or row.spender in accounts),
        }

    def add(self, tx_index: int, log_index: int, transaction: Transaction, info: TransactionInfo) -> None:
        """Add the rows of a transaction; a failed one has neither transfers nor approvals.

        Args:
            tx_index: Its position in the block.
            log_index: The position of its first event in the block.
            transaction: The signed bytes.
            info: The receipt.

        Raises:
            BadAnswer: The receipt is of another block, or the transaction is malformed or of an unknown type.
        """
        source, height, tx_hash = self.source, self.block.height, transaction.txID
        if info.blockNumber != height:
            raise BadAnswer(source, f"a receipt of block {info.blockNumber} for transaction {tx_hash}")
        kind, operation = decode_operation(source, transaction, info, is_first=height == 0)
        failed = has_failed(source, transaction, info)
        position = height, self.time, tx_index
        self.transactions.append(
            TransactionRow(
                *position,
                tx_hash,
                operation.owner,
                operation.recipient,
                None if failed else operation.created,
                operation.raw.to_bytes(32, "big"),
                kind,
                int(not failed),
                info.receipt.energy_usage_total,
                info.fee.to_bytes(32, "big"),
                operation.input,
            )
        )
        self.resources.append(_resource_row(position, tx_hash, operation.owner, info.receipt))
        if failed:
            return
        for item, move in enumerate(self._direct_movements(operation, info)):
            self._add_transfer(tx_index, -1, tx_hash, move._replace(item=item))
        for index, log in enumerate(info.log, log_index):
            if not log.topics or log.topics[0] not in DECODED_EVENTS:
                continue
            for move in decode_transfers(source, log, self.wrapped):
                self._add_transfer(tx_index, index, tx_hash, move)
            if approval := decode_approval(source, log):
                self.approvals.append(ApprovalRow._make((*position, index, tx_hash, *approval)))

    def _add_transfer(self, tx_index: int, log_index: int, tx_hash: str, move: Movement) -> None:
        position = (self.block.height, self.time, tx_index, log_index, tx_hash)
        self.transfers.append(TransferRow._make((*position, move.token, move.standard, *move[2:])))

    def _direct_movements(self, operation: Operation, info: TransactionInfo) -> Sequence[Movement]:
        """Return the transfers of a transaction, then those of its internal calls.

        Note what nodes do not show. An internal call of an unknown kind is noted, and its transfers are left out.
        """
        movements = [Movement(NATIVE if each.token is None else TRC10, *each) for each in operation.transfers]
        if operation.unexplained:
            self.note(operation.owner, operation.unexplained)
        for call in info.internal_transactions:
            try:
                movements += decode_internal(self.source, call)
            except KeyError as error:
                kind = error.args[0][:60]
                self.note(operation.owner, f"a call of the unknown kind {kind!r}: it is not known what it moves")
        return movements

    def note(self, account: str, reason: str) -> None:
        """Add an unexplained change of an account."""
        self.unexplained.append(UnexplainedChange(account, self.block.height, self.coin, 0, reason))


def _resource_row(
    position: tuple[int, datetime, int], tx_hash: str, account: str, receipt: ResourceReceipt
) -> ResourceRow:
    """Return what a transaction used (energy, bandwidth) and paid for it in sun, from its receipt."""
    return ResourceRow(
        *position,
        tx_hash,
        account,
        receipt.energy_usage_total,
        receipt.energy_usage,
        receipt.origin_energy_usage,
        receipt.energy_penalty_total,
        receipt.energy_fee,
        receipt.net_usage,
        receipt.net_fee,
    )


def empty_rows(source: str, block: Block, facts: Facts) -> BlockRows:
    """Return a block without rows, to which transactions are added."""
    return BlockRows(source, block, block.time, facts.native_asset, facts.wrapped.address if facts.wrapped else None)


def block_rows(
    source: str, height: int, full_block: FullBlock, infos: Sequence[TransactionInfo], facts: Facts
) -> BlockRows:
    """Return the rows of a block; transactions of block 0 may have no receipt.

    Raises:
        BadAnswer: The block is not at this height, or its receipts are not those of its transactions.
    """
    rows = empty_rows(source, full_block.block(source, height), facts)
    receipts = {info.id: info for info in infos}
    hashes = {transaction.txID for transaction in full_block.transactions}
    if len(hashes) != len(full_block.transactions):
        raise BadAnswer(source, f"block {height} has a transaction twice")
    if height and (receipts.keys() != hashes or len(receipts) != len(infos)):
        raise BadAnswer(source, f"block {height} has {len(hashes)} transactions, and receipts of others")
    log_index = 0
    for tx_index, transaction in enumerate(full_block.transactions):
        info = receipts.get(transaction.txID) or TransactionInfo(transaction.txID)
        rows.add(tx_index, log_index, transaction, info)
        log_index += len(info.log)
    return rows


def decode_operation(
    source: str, transaction: Transaction, info: TransactionInfo, *, is_first: bool = False
) -> tuple[int, Operation]:
    """Return the number of a transaction's type and its content, from the signed bytes.

    Types of the system without call data get a selector as their input.

    Args:
        source: The node, for errors.
        transaction: The signed bytes.
        info: The receipt.
        is_first: The transaction is in the first block, whose transactions are unsigned allocations from ZERO.

    Raises:
        BadAnswer: The bytes are not those of its hash, are malformed, or of an unknown type.
    """
    try:
        packed = bytes.fromhex(transaction.raw_data_hex)
        if hashlib.sha256(packed).hexdigest() != transaction.txID:
            raise BadAnswer(source, f"transaction {transaction.txID} has the bytes of another one")
        contract = decode_fields(first_bytes_field(packed, CONTRACT), merged=2)
        kind = enum_field(contract, 1)
        message = decode_message(source, bytes_field(decode_fields(bytes_field(contract, 2)), 2))
        if is_first:
            to, raw = message.address(2), message.raw(3)
            return kind, Operation(ZERO, to, raw=raw, transfers=(DirectTransfer(None, ZERO, to, raw),))
        if kind not in CONTRACT_TYPES:
            raise BadAnswer(source, f"transaction {transaction.txID} is of the unknown type {kind}")
        operation = CONTRACT_TYPES[kind].decode(message, info)
    except ValueError as error:
        raise BadAnswer(source, f"transaction {transaction.txID}: {error}") from None
    return kind, operation._replace(input=SYSTEM_SELECTORS[kind]) if kind in SYSTEM_SELECTORS else operation


def has_failed(source: str, transaction: Transaction, info: TransactionInfo) -> bool:
    """Return True if a transaction only paid its fee.

    The first result counts: the sender wrote any others.

    Raises:
        BadAnswer: The block and the receipt disagree.
    """
    result = transaction.ret[0].contractRet if transaction.ret else ""
    if result and info.receipt.result and result != info.receipt.result:
        raise BadAnswer(
            source, f"transaction {transaction.txID} ended with {result[:40]} and {info.receipt.result[:40]}"
        )
    return info.result == FAILED or (result or info.receipt.result) not in SUCCESS


def build_tables(
    chain: str,
    blocks: Sequence[BlockRows],
    datasets: Collection[str],
    contracts: Collection[str],
    exchange_tokens: ExchangeTokens,
) -> dict[str, pa.Table]:
    """Return the tables of some datasets, by name, with the rows of blocks.

    `native`, `internal` and `transfers` select the rows of one table, `transfers`.

    Args:
        chain: Key of the chain.
        blocks: The blocks, in order.
        datasets: Names of datasets.
        contracts: Tokens whose transfers and approvals are kept; all if empty.
        exchange_tokens: Has every exchange of the blocks.
    """
    tables = {}
    if "blocks" in datasets:
        rows: list[Row] = [
            (each.block.height, each.block.time, each.block.hash, each.block.parent, len(each.transactions))
            for each in blocks
        ]
        tables["blocks"] = BLOCKS.filled(chain, ("height", "time", "hash", "parent", "tx_count"), rows)
    if "transactions" in datasets:
        rows = [row for each in blocks for row in each.transactions]
        tables["transactions"] = TRANSACTIONS.filled(chain, TransactionRow._fields, rows)
    if "resources" in datasets:
        rows = [row for each in blocks for row in each.resources]
        tables["resources"] = RESOURCES.filled(chain, ResourceRow._fields, rows)
    if "approvals" in datasets:
        rows = [row for each in blocks for row in each.approvals if not contracts or row.token in contracts]
        tables["approvals"] = APPROVALS.filled(chain, ApprovalRow._fields, rows)
    if {"native", "internal", "transfers"} & {*datasets}:
        transfers = [_with_token(row, exchange_tokens) for each in blocks for row in each.transfers]
        rows = [_encode_row(row) for row in transfers if _is_selected(row, datasets, contracts)]
        tables["transfers"] = TRANSFERS.filled(chain, TransferRow._fields, rows)
    return tables


def _is_selected(row: TransferRow, datasets: Collection[str], contracts: Collection[str]) -> bool:
    """Return True if one of the datasets has the transfer; those of coins by system contracts always."""
    if row.token is None:
        return row.standard not in (NATIVE, INTERNAL) or row.standard in datasets
    return "transfers" in datasets and (not contracts or row.token in contracts)


def _with_token(row: TransferRow, exchange_tokens: ExchangeTokens) -> TransferRow:
    """Return a transfer with the token of its exchange, if it is of one."""
    if not isinstance(row.token, CounterToken):
        return row
    first, second = exchange_tokens[row.token.exchange]
    token = second if row.token.token == first else first
    return row._replace(token=token, standard=NATIVE if token is None else TRC10)


def _encode_row(row: TransferRow) -> Row:
    """Return a transfer with its numbers as 32 bytes, as the table has them."""
    token_id = None if row.token_id is None else row.token_id.to_bytes(32, "big")
    return *row[:9], row.raw.to_bytes(32, "big"), token_id, *row[11:]
