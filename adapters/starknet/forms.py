"""The JSON of Starknet nodes as structs, for versions 0.3 to 0.10 of the specification."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from chainfolio.adapters.starknet.felts import FeltNumbers, FormattedFelts
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer

MAX_TIME_S = 2**37
FEE_UNITS = ("WEI", "FRI")
DISCARDED_STATUSES = ("REJECTED", "REVERTED", "ABORTED")  # by the sequencer, or with state that Ethereum reverted
Number = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class Header(msgspec.Struct):
    """A block without its transactions. A pending block has no hash and no number, so it does not decode."""

    block_hash: str
    parent_hash: str
    block_number: Number
    timestamp: Annotated[int, msgspec.Meta(ge=0, lt=MAX_TIME_S)]
    sequencer_address: str = "0x0"
    status: str = ""

    def block(self, source: str, height: int | None = None) -> Block:
        """Return the block in the form that all chains share. `height` is None if it was requested by a tag.

        Raises:
            BadAnswer: The block has another height, was discarded, or has an invalid hash.
        """
        if height is not None and self.block_number != height:
            raise BadAnswer(source, f"gives block {self.block_number} for block {height}")
        felts = FormattedFelts(source)
        block_hash, parent_hash = felts[self.block_hash], felts[self.parent_hash]
        if self.status in DISCARDED_STATUSES:
            raise BadAnswer(source, f"block {self.block_number} was thrown away: {self.status}")
        return Block(self.block_number, block_hash, parent_hash, self.timestamp * 1_000_000)


class Fee(msgspec.Struct):
    """The fee of a transaction: WEI of ether, or FRI of STRK."""

    amount: str
    unit: str = "WEI"


class Event(msgspec.Struct):
    """An event of a contract. Its first key is the selector of its name."""

    from_address: str
    keys: list[str]
    data: list[str]


class Receipt(msgspec.Struct):
    """The outcome of a transaction. In early versions the fee is a felt, and success has no status."""

    transaction_hash: str
    actual_fee: str | Fee
    events: list[Event]
    execution_status: Literal["SUCCEEDED", "REVERTED"] = "SUCCEEDED"
    contract_address: str | None = None

    @property
    def failed(self) -> bool:
        """True if the transaction was reverted: it paid its fee and changed nothing else."""
        return self.execution_status == "REVERTED"

    def fee(self, numbers: FeltNumbers) -> tuple[int, str]:
        """Return the fee and its unit, `WEI` or `FRI`.

        Raises:
            BadAnswer: The unit is another one, or the amount is no felt.
        """
        fee = self.actual_fee if isinstance(self.actual_fee, Fee) else Fee(self.actual_fee)
        if fee.unit not in FEE_UNITS:
            raise BadAnswer(numbers.source, f"a fee in {fee.unit[:40]}")
        return numbers[fee.amount], fee.unit


class ReceiptWithBlock(Receipt, kw_only=True):
    """A receipt with the block of its transaction; None while the transaction is pending."""

    block_number: int | None = None
    block_hash: str | None = None


class Transaction(msgspec.Struct):
    """A transaction of any type and version, without its outcome."""

    type: str
    version: str = "0x0"
    transaction_hash: str | None = None
    sender_address: str | None = None
    contract_address: str | None = None
    calldata: list[str] = []
    nonce: str | None = None
    entry_point_selector: str | None = None


class TransactionWithReceipt(msgspec.Struct):
    """A transaction with its receipt."""

    transaction: Transaction
    receipt: Receipt


class FullBlock(Header, kw_only=True):
    """A block with its transactions and receipts.

    The header counts transactions and events from version 0.10 on; the counts of some older blocks are 0.
    """

    transactions: list[TransactionWithReceipt]
    transaction_count: Number | None = None
    event_count: Number | None = None

    def check_counts(self, source: str) -> None:
        """Compare the numbers of transactions and events with the header's counts, if it has them.

        A count of 0 is not compared.

        Raises:
            BadAnswer: They differ, so the node left something out.
        """
        events = sum(len(each.receipt.events) for each in self.transactions)
        for name, expected, actual in (
            ("transactions", self.transaction_count, len(self.transactions)),
            ("events", self.event_count, events),
        ):
            if expected and expected != actual:
                raise BadAnswer(
                    source, f"block {self.block_number} has {actual} {name}, and its header counts {expected}"
                )


class BlockWithHashes(Header, kw_only=True):
    """A block with the hashes of its transactions."""

    transactions: list[str]


class BlockWithTransactions(Header, kw_only=True):
    """A block with its transactions, whose receipts are separate requests."""

    transactions: list[Transaction]
