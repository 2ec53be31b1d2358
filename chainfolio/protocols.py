"""Protocols as every kind of chain has them: families, what is installed on a chain, and the positions that are found.

How a family finds accounts, and what it reads, is its kind of chain's own: for the EVM see `adapters/evm/positions`.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from chainfolio.contracts import Issue

# What positions can be, as the service names them.
POSITION_TYPES: Final = frozenset({
    "AIRDROP", "DEPOSIT", "FARMING", "GOVERNANCE", "INSURANCEBUYER", "INSURANCESELLER", "INVESTMENT", "LENDING",
    "LEVERAGE", "LEVERAGED FARMING", "LIQUIDITYPOOL", "LOCKED", "MARGIN", "MARGINPS", "NFTBORROWER", "NFTFRACTION",
    "NFTLENDER", "NFTLENDING", "NFTLIQUIDITYPOOL", "NFTSTAKED", "OPTIONSBUYER", "OPTIONSSELLER", "PERPETUALS",
    "REWARDS", "SPOT", "STAKED", "VAULT", "VAULTPS", "VESTING", "WALLET", "YIELD",
})  # fmt: skip


def problem_of_type(position_type: Any) -> str:
    """What is wrong with a position's type; empty where nothing is."""
    if position_type in POSITION_TYPES:
        return ""
    near = difflib.get_close_matches(str(position_type)[:32].upper(), sorted(POSITION_TYPES), 1)
    return f"there is no position type {position_type!r}" + (f" (did you mean `{near[0]}`?)" if near else "")


@dataclass(frozen=True, slots=True)
class TokenAmount:
    """`raw` units of a token inside a position; on the EVM the zero address is the native coin."""

    token: str
    raw: int


@dataclass(frozen=True, slots=True)
class DecodedPosition:
    """One position as its decoder found it. Parts of zero may be left in; borrowed parts are positive.

    `replaces`: tokens of the account that this position is another view of; they are no longer shown as loose ones.
    `name`: where it has one of its own; else it is called by what was supplied. `unknown`: what of it could not be
    read, where the rest of it is worth showing. `unverified`: why nobody can rely on what the contracts claim here: the
    position is shown with its amounts, has no value and is in no sum. `unlisted`: what was supplied is what a share
    gives that anybody could have made, as `Unlisted` says of one. `remark`: what else the answer says of it.
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
    unlisted: bool = False
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Unverified:
    """What a decoder returns for a contract that claims something nobody can rely on, and why: it stays the token that
    it is, and the answer says so."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unlisted:
    """What an `unwrap` returns for a share that anybody could have made, where real assets cover what it claims for
    all its holders: it counts only where the share came to the account by an act of its own."""

    parts: tuple[TokenAmount, ...]


@dataclass(frozen=True, slots=True)
class Remarked:
    """What an `unwrap` returns where the answer has to say something of what lies behind the share."""

    given: tuple[TokenAmount, ...] | Unlisted
    remark: str


@dataclass(frozen=True)
class ProtocolFamily:
    """One kind of protocol; its forks are files that name it. Each kind of chain has families of its own class.

    `kind`: the kind of chain whose contracts it reads. `roles` are those of a file that its decoders read beside those
    by which accounts are found, `options` the options: a file that names another one is wrong.
    """

    name: str
    kind: str = field(kw_only=True)
    roles: tuple[str, ...] = field(default=(), kw_only=True)
    options: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def all_roles(self) -> tuple[str, ...]:
        """The roles that a file may name contracts in: those by which accounts are found first."""
        return tuple(dict.fromkeys([*self.finding_roles, *self.roles]))

    @property
    def finding_roles(self) -> tuple[str, ...]:
        """The roles by whose contracts accounts are found."""
        return ()

    def finds_anybody(self, roles: Collection[str]) -> bool:
        """Whether accounts can be found where a file names contracts in these roles and no others."""
        return not self.finding_roles or any(role in roles for role in self.finding_roles)

    @property
    def problem(self) -> str:
        """What is wrong with a family that somebody wrote; empty where nothing is."""
        if not isinstance(self.name, str) or not self.name or not isinstance(self.kind, str):
            return "it needs a name"
        for called, names in (("roles", self.roles), ("options", self.options)):
            if not isinstance(names, list | tuple) or not all(isinstance(each, str) and each for each in names):
                return f"`{called}` is {names!r}, not a tuple of names"
        return ""


@dataclass(frozen=True, slots=True)
class InstalledProtocol:
    """One protocol on one chain, as one family of decoders sees it; `is_fork` if nobody read its contracts' code."""

    protocol: str
    family: ProtocolFamily
    contracts: Mapping[str, tuple[str, ...]]
    options: Mapping[str, str]
    is_fork: bool = False


@dataclass(frozen=True, slots=True)
class UnreadProtocol:
    """A protocol of which a contract holds positions that nobody reads here, and why."""

    key: str
    name: str
    problem: str


@dataclass(frozen=True, slots=True)
class InstalledProtocols:
    """All protocols of one chain. `issues`: which packages cannot be used. `unread`: contracts that no installed family
    reads."""

    rows: tuple[InstalledProtocol, ...] = ()
    issues: tuple[Issue, ...] = ()
    unread: Mapping[str, UnreadProtocol] = field(default_factory=dict)
