"""Protocols, independent of the kind of chain: families, installed protocols and decoded positions.

How a family finds accounts, and what it reads, depends on its kind of chain: for the EVM see
`adapters/evm/positions`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from chainfolio.contracts import Issue
from chainfolio.position_changes import EventLog, PositionChange, VaultChange

# The types of positions, as the service names them.
POSITION_TYPES: Final = frozenset(
    {
        "AIRDROP",
        "DEPOSIT",
        "FARMING",
        "GOVERNANCE",
        "INSURANCEBUYER",
        "INSURANCESELLER",
        "INVESTMENT",
        "LENDING",
        "LEVERAGE",
        "LEVERAGED FARMING",
        "LIQUIDITYPOOL",
        "LOCKED",
        "MARGIN",
        "MARGINPS",
        "NFTBORROWER",
        "NFTFRACTION",
        "NFTLENDER",
        "NFTLENDING",
        "NFTLIQUIDITYPOOL",
        "NFTSTAKED",
        "OPTIONSBUYER",
        "OPTIONSSELLER",
        "PERPETUALS",
        "REWARDS",
        "SPOT",
        "STAKED",
        "VAULT",
        "VAULTPS",
        "VESTING",
        "WALLET",
        "YIELD",
    }
)


def position_type_problem(position_type: object) -> str:
    """Return the problem of a position's type; an empty text if it is valid."""
    if position_type in POSITION_TYPES:
        return ""
    matches = difflib.get_close_matches(str(position_type)[:32].upper(), sorted(POSITION_TYPES), 1)
    return f"there is no position type {position_type!r}" + (f" (did you mean `{matches[0]}`?)" if matches else "")


@dataclass(frozen=True, slots=True)
class TokenAmount:
    """`raw` units of a token inside a position; on the EVM the zero address is the native coin."""

    token: str
    raw: int


@dataclass(frozen=True, slots=True)
class DecodedPosition:
    """One position as its decoder returns it. Zero amounts are allowed; borrowed amounts are positive.

    `replaces`: tokens of the wallet that represent this position; they are no longer shown as wallet tokens. `debts`:
    those of them that stand for what is owed. `name`: its own name; if empty, the symbols of supplied tokens are used.
    `unknown`: the part that could not be read, if the rest is worth showing. `unverified`: the reason why the
    contracts' claims cannot be relied on: the position is shown without value and is in no sum. `is_unlisted`: it rests
    on a share that anybody could have deployed (see `UnlistedShare`). `remark`: an additional note for the user.
    """

    position_type: str
    supplied: tuple[TokenAmount, ...] = ()
    borrowed: tuple[TokenAmount, ...] = ()
    rewards: tuple[TokenAmount, ...] = ()
    name: str = ""
    health: Decimal | None = None
    unlock_s: int = 0
    vault: str = ""
    pool: str = ""
    replaces: tuple[str, ...] = ()
    unknown: str = ""
    unverified: str = ""
    is_unlisted: bool = False
    remark: str = ""
    debts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnverifiedShare:
    """A decoder's result for a contract with unreliable claims: it stays a token, with the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class UnlistedShare:
    """Result of `unwrap` for a share that anybody could have deployed, but whose claims real assets cover.

    It counts only if the account acquired the share in its own transaction.
    """

    parts: tuple[TokenAmount, ...]


@dataclass(frozen=True, slots=True)
class AnnotatedShare:
    """Result of `unwrap` with a remark for the user about the underlying assets."""

    parts: tuple[TokenAmount, ...] | UnlistedShare
    remark: str


@dataclass(frozen=True, slots=True)
class TypedCalls:
    """The transaction type of calls of some functions; `needs` is as in a protocol's file.

    Without functions, it is the type of any call that moves an asset between the account and a contract of the file,
    also of a call of a router or of a wallet contract. `roles`: then only contracts in these roles count, or all.
    """

    type: str
    needs: str
    functions: tuple[str, ...]
    roles: tuple[str, ...] = ()


VaultChangesReader = Callable[[Sequence[EventLog], Mapping[str, Sequence[str]]], list[VaultChange]]


@dataclass(frozen=True)
class ProtocolFamily:
    """One kind of protocol; its forks are files that name it. Each kind of chain subclasses it.

    `kind`: the kind of chain whose contracts it reads. `roles`: roles of a protocol file that its decoders read, in
    addition to `lookup_roles`; `options`: the options that they read. Other roles and options are errors. `changes`:
    reads the changes of its positions, if they are collectibles, from all logs of one transaction: anybody can deploy
    a contract that logs the same, so that no change counts without the movements of an account. `calls`: what calls of
    the contracts in its files mean, after the `[[transactions]]` of a file: every fork has them. `vault_changes`: reads
    the changes of vaults from all logs of one transaction and the contracts of a file, by role; only logs of these
    contracts count. `is_proven`: False if the decoder was written from a published interface, and neither the
    protocol's code nor a recording has proven it: its positions are shown without value, until the setting `proven`
    names the family.
    """

    name: str
    kind: str = field(kw_only=True)
    changes: Callable[[Sequence[EventLog]], list[PositionChange]] | None = field(default=None, kw_only=True)
    vault_changes: VaultChangesReader | None = field(default=None, kw_only=True)
    calls: tuple[TypedCalls, ...] = field(default=(), kw_only=True)
    roles: tuple[str, ...] = field(default=(), kw_only=True)
    options: tuple[str, ...] = field(default=(), kw_only=True)
    is_proven: bool = field(default=True, kw_only=True)

    @property
    def all_roles(self) -> tuple[str, ...]:
        """The roles that a file may use, those of `lookup_roles` first."""
        return tuple(dict.fromkeys([*self.lookup_roles, *self.roles]))

    @property
    def lookup_roles(self) -> tuple[str, ...]:
        """The roles of contracts by which accounts are found."""
        return ()

    def can_find_accounts(self, roles: Collection[str]) -> bool:
        """Return True if a file that names contracts in these roles is enough to find accounts."""
        return not self.lookup_roles or any(role in roles for role in self.lookup_roles)

    @property
    def problem(self) -> str:
        """The problem of a family definition; an empty text if it is valid."""
        if not isinstance(self.name, str) or not self.name or not isinstance(self.kind, str):
            return "it needs a name"
        for called, names in (("roles", self.roles), ("options", self.options)):
            if not isinstance(names, list | tuple) or not all(isinstance(each, str) and each for each in names):
                return f"`{called}` is {names!r}, not a tuple of names"
        return ""


@dataclass(frozen=True, slots=True)
class InstalledProtocol:
    """One protocol on one chain, read by one family; `is_fork` if its contracts' code was not reviewed."""

    protocol: str
    family: ProtocolFamily
    contracts: Mapping[str, tuple[str, ...]]
    options: Mapping[str, str]
    is_fork: bool = False


@dataclass(frozen=True, slots=True)
class UnreadProtocol:
    """A protocol whose contract holds positions that no installed family reads, and the problem."""

    key: str
    name: str
    problem: str


@dataclass(frozen=True, slots=True)
class InstalledProtocols:
    """The protocols of one chain.

    `issues`: packages that cannot be used. `unread`: contracts that no installed family reads.
    """

    rows: tuple[InstalledProtocol, ...] = ()
    issues: tuple[Issue, ...] = ()
    unread: Mapping[str, UnreadProtocol] = field(default_factory=dict)
