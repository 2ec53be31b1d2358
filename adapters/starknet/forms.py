"""The shapes of what Starknet nodes answer, from version 0.3 to 0.10 of the specification."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from chainfolio.adapters.starknet.felts import Numbers, Padded
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer

MAX_TIME_S = 2**37
UNITS = ("WEI", "FRI")
THROWN_AWAY = ("REJECTED", "REVERTED", "ABORTED")  # by the sequencer, or with the state that Ethereum took back
Number = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class Header(msgspec.Struct):
    """A block without its transactions. One that is only being made has neither hash nor number."""

    block_hash: str
    parent_hash: str
    block_number: Number
    timestamp: Annotated[int, msgspec.Meta(ge=0, lt=MAX_TIME_S)]
    sequencer_address: str = "0x0"
    status: str = ""

    def block(self, source: str, height: int | None = None) -> Block:
        """As everything else knows a block; BadAnswer where it is another one than was asked for."""
        if height is not None and self.block_number != height:
            raise BadAnswer(source, f"gives block {self.block_number} for block {height}")
        forms = Padded(source)
        hashed, parent = forms[self.block_hash], forms[self.parent_hash]
        if self.status in THROWN_AWAY:
            raise BadAnswer(source, f"block {self.block_number} was thrown away: {self.status}")
        return Block(self.block_number, hashed, parent, self.timestamp * 1_000_000)


class Fee(msgspec.Struct):
    """What a transaction paid, and in what: WEI of ether, or FRI of STRK."""

    amount: str
    unit: str = "WEI"


class Event(msgspec.Struct):
    """What a contract said."""

    from_address: str
    keys: list[str]
    data: list[str]


class Receipt(msgspec.Struct):
    """What a transaction did. Earlier versions write the fee as a felt alone, and no status where it is done."""

    transaction_hash: str
    actual_fee: str | Fee
    events: list[Event]
    execution_status: Literal["SUCCEEDED", "REVERTED"] = "SUCCEEDED"
    contract_address: str | None = None

    @property
    def failed(self) -> bool:
        """Whether it did nothing but pay."""
        return self.execution_status == "REVERTED"

    def fee(self, numbers: Numbers) -> tuple[int, str]:
        """Return the fee and its unit, `WEI` or `FRI`. Raises BadAnswer for any other unit."""
        paid = self.actual_fee if isinstance(self.actual_fee, Fee) else Fee(self.actual_fee)
        if paid.unit not in UNITS:
            raise BadAnswer(numbers.source, f"a fee in {paid.unit[:40]}")
        return numbers[paid.amount], paid.unit


class Body(msgspec.Struct):
    """What was asked of the chain, whatever its type and version."""

    type: str
    version: str = "0x0"
    transaction_hash: str | None = None
    sender_address: str | None = None
    contract_address: str | None = None
    calldata: list[str] = []
    nonce: str | None = None
    entry_point_selector: str | None = None


class Done(msgspec.Struct):
    """A transaction with its receipt."""

    transaction: Body
    receipt: Receipt


class Whole(Header, kw_only=True):
    """A block with its transactions and their receipts. From version 0.10 on its header counts both; some older blocks
    are not counted."""

    transactions: list[Done]
    transaction_count: Number | None = None
    event_count: Number | None = None

    def check_counts(self, source: str) -> None:
        """BadAnswer where there are others than the header counts: a node left something out."""
        events = sum(len(each.receipt.events) for each in self.transactions)
        for what, counted, there in (
            ("transactions", self.transaction_count, len(self.transactions)),
            ("events", self.event_count, events),
        ):
            if counted and counted != there:
                raise BadAnswer(
                    source, f"block {self.block_number} has {there} {what}, and its header counts {counted}"
                )


class Hashes(Header, kw_only=True):
    """A block with the hashes of its transactions."""

    transactions: list[str]


class Bodies(Header, kw_only=True):
    """A block with its transactions, where the receipts have to be asked for one by one."""

    transactions: list[Body]
