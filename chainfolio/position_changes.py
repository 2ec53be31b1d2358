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
            the wallet did before. `share` is one side of a swap of a pool's share in its vault.
        contract: The core contract, which a protocol file names.
        vault: The vault, the contract that holds the savings, the pool, or the wallet whose deposit paid.
        collateral: Collateral that went in, times 10^18; negative if it came out. None if the logs do not tell it: what
            else the wallet moved counts.
        token: The token that is borrowed, saved or swapped; empty if only collateral changed.
        raw: How much of it was created, lent or swapped for in this transaction; negative if more was destroyed, repaid
            or swapped away.
        holder: The contract for which other contracts hold the collateral; empty if it lies where it was sent.
    """

    kind: Literal["loan", "savings", "balance", "gas", "share"]
    contract: str
    vault: str
    collateral: int | None
    token: str
    raw: int
    holder: str = ""


CallKind = Literal[
    "open",
    "add",
    "remove",
    "earn",
    "close",
    "share",
    "lend",
    "debt",
    "swap debt",
    "request",
    "resize",
    "rent",
    "cost",
    "unclear",
    "unread",
]


@dataclass(frozen=True, slots=True)
class CallChange:
    """A change of a position by one call of a program, with the movements of one account.

    Attributes:
        kind: `open` creates a position, and `add`, `remove`, `earn` and `resize` change it; `close` ends it. `share`
            moves shares of a pool or a vault against assets. `lend` changes a deposit without units, `debt` a loan;
            `swap debt` repays a loan and returns a deposit. `request` turns shares into a position that pays later.
            `rent` is what accounts need to exist: the owner paid or got it. `cost` is what else the owner paid.
            The meaning of `unclear` is not known, and `unread` says that the node did not record all calls.
        position: The mint of the position's NFT or of its shares, or its account.
        owner: The account whose assets moved; empty if none did, or if it is not known.
        moved: What came to the owner, or (negative) left: raw units by mint. An empty text is the native coin.
        units: Shares or liquidity that were added or removed; None if the call does not tell it.
        part: Ten-thousandths of the position that were removed; None if the call does not tell it.
        span: The bins of a new position, or those from which a part was removed.
        is_pool: The position exchanges its assets.
        holder: The owner of a new account, or of the position that needs it; empty for an account that existed before.
        needed_by: The position that needs the account of a `rent`; empty for other accounts.
    """

    kind: CallKind
    position: str
    owner: str = ""
    moved: tuple[tuple[str, int], ...] = ()
    units: int | None = None
    part: int | None = None
    span: tuple[int, int] | None = None
    is_pool: bool = False
    holder: str = ""
    needed_by: str = ""
