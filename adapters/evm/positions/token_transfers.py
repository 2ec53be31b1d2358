"""Transfers of fungible tokens among the logs of one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from chainfolio.adapters.evm.events import TRANSFER
from chainfolio.position_changes import EventLog

ZERO_TOPIC: Final = "0x" + "0" * 64  # the sender of created tokens, and the recipient of destroyed ones


class TokenTransfer(NamedTuple):
    """A `Transfer` of ERC-20. Sender and recipient are topics, the amount is raw."""

    token: str
    sender: str
    recipient: str
    raw: int

    @property
    def created(self) -> int:
        """The created amount; negative if it was destroyed, 0 if it only moved."""
        return self.raw * ((self.sender == ZERO_TOPIC) - (self.recipient == ZERO_TOPIC))


def token_transfers(logs: Iterable[EventLog]) -> Iterator[TokenTransfer]:
    """Yield the transfers among logs, in their order; logs of another shape are skipped."""
    for log in logs:
        if len(log.topics) == 3 and log.topics[0] == TRANSFER and len(log.data) == 32:
            yield TokenTransfer(log.contract, log.topics[1], log.topics[2], int.from_bytes(log.data, "big"))


def token_of_amount(logs: Iterable[EventLog], contract: str, raw: int, *, is_paid: bool) -> str:
    """Return the first token that a contract paid or received in exactly this amount; empty if none."""
    topic = "0x" + "0" * 24 + contract[2:]
    transfers = (each for each in token_transfers(logs) if each.raw == raw)
    return next((each.token for each in transfers if (each.sender if is_paid else each.recipient) == topic), "")
