"""What was read of some accounts at one block, before anybody judges it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Holding, Issue, Token
from chainfolio.plans import Reverted, Unknown
from chainfolio.positions import AccountState, OpenPosition
from engine.daily import Daily
from engine.descriptions import About
from engine.trust import Trust

Held = tuple[str, Asset, int]  # account, token, raw


@dataclass(frozen=True, slots=True)
class Reading:
    """What the index and the node say of some accounts at one block.

    `held` are the tokens that are there, `unknown` says which balances nobody told. `issues` is what the protocols and
    the index cannot say. `collectibles` are those that are there.
    `moved` and `fees` are empty where the index does not reach, and `no_days` says why.
    """

    block: Block
    states: Mapping[str, AccountState]
    held: tuple[Held, ...]
    about: About
    unknown: tuple[Issue, ...]
    issues: tuple[Issue, ...]
    moved: Mapping[str, Daily]
    no_days: str
    fees: Mapping[str, int]
    collectibles: tuple[Holding, ...] = ()
    opened: tuple[OpenPosition, ...] = field(init=False)
    own: Mapping[str, set[Asset]] = field(init=False)  # the tokens that each account has, and the native coin

    def __post_init__(self) -> None:
        opened = tuple(each for state in self.states.values() for each in state.positions)
        own = {account: {self.about.chain.info.native.asset} for account in self.states}
        for account, asset, _ in self.held:
            own[account].add(asset)
        for each in opened:
            own[each.account] |= each.tokens
        object.__setattr__(self, "opened", opened)
        object.__setattr__(self, "own", own)


def holdings_of(
    states: Mapping[str, AccountState], wanted: Mapping[str, Mapping[Asset, bool]], trust: Trust
) -> tuple[list[Held], list[Issue]]:
    """Return the holdings above zero, and an issue for each balance that could not be read. The answer is partial if
    `trust` covers the token of the account: nobody can send one of those to spoil an answer.

    A token that is only on a list, and answers nothing, gives no issue: at most blocks it was not there yet.
    """
    held, issues = [], []
    for account, state in states.items():
        for asset, raw in state.balances.items():
            if isinstance(raw, int):
                if raw:
                    held.append((account, asset, raw))
            elif wanted[account].get(asset, True):
                reason = f"the balance of {account} is unknown: {_why(raw)}"
                gone = isinstance(raw, Unknown) and raw.cause == "absent"
                makes_partial = not gone and trust.is_trusted(account, asset)
                issues.append(Issue("balance", asset.reference, reason, makes_partial=makes_partial, account=account))
    return held, issues


def natives_of(states: Mapping[str, AccountState], native: Token) -> tuple[list[Holding], list[Issue]]:
    """The native coins of each account, zero included, and an issue where they are not known."""
    known, unknown = [], []
    for account, state in states.items():
        if isinstance(state.native, int):
            known.append(Holding(account, native, state.native))
        else:
            reason = f"the native balance could not be read: {_why(state.native)}"
            unknown.append(Issue("balance", account, reason, account=account))
    return known, unknown


def _why(answer: Any) -> str:
    return "the contract refuses" if isinstance(answer, Reverted) else str(answer.reason)
