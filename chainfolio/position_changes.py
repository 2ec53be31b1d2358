"""Changes of positions by events of a transaction: added, released and paid amounts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class EventLog(NamedTuple):
    """One log of a transaction. `topics` are 0x + 64 hex digits."""

    contract: str
    topics: tuple[str, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class PositionChange:
    """One change of a position that is a collectible, such as liquidity between two prices.

    Attributes:
        contract: The collection.
        number: Its number in the collection.
        units: Liquidity that was added, or (negative) removed; 0 for a payment.
        tokens: The tokens of the position; empty texts if this transaction does not show them.
        raws: The amounts of both tokens that went in, that were released, or that were paid.
        pool: The contract that holds the tokens.
        has_amounts: False if the events tell no amounts: what the wallet moved in the transaction counts.
    """

    contract: str
    number: int
    units: int
    tokens: tuple[str, str]
    raws: tuple[int, int]
    pool: str
    has_amounts: bool = True

    def key(self, chain: str) -> str:
        """Return the key of the position as an asset of a chain."""
        return f"{chain}:{self.contract}:{self.number}"
