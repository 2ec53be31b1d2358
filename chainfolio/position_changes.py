"""Changes of positions and vaults by events of a transaction: added, released and paid amounts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


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


@dataclass(frozen=True, slots=True)
class VaultChange:
    """The changes of a vault or of savings in a transaction, as its protocol's contract logged them.

    Attributes:
        kind: A loan against collateral, savings, or the gas that an operation of a contract wallet paid. `balance` is
            a token that was burnt for a balance in the core contract, or minted for one: a loan or savings, by what
            the wallet did before.
        contract: The core contract, which a protocol file names.
        vault: The vault, the contract that holds the savings, or the wallet whose deposit paid.
        collateral: Collateral that went in, times 10^18; negative if it came out. None if the logs do not tell it: what
            else the wallet moved counts.
        token: The token that is borrowed or saved; empty if only collateral changed.
        raw: How much of it was created or lent in this transaction; negative if more was destroyed or repaid.
        holder: The contract for which other contracts hold the collateral; empty if it lies where it was sent.
    """

    kind: Literal["loan", "savings", "balance", "gas"]
    contract: str
    vault: str
    collateral: int | None
    token: str
    raw: int
    holder: str = ""
