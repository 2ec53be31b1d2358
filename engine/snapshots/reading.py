"""Everything that was read of accounts at one block, before it is judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Holding, Issue, Token
from chainfolio.engine.snapshots.account_rows import AccountRows
from chainfolio.engine.snapshots.day_flows import Flows
from chainfolio.engine.snapshots.token_context import TokenContext
from chainfolio.engine.snapshots.trust import Trust
from chainfolio.errors import BadAnswer
from chainfolio.plans import Reverted, Unknown
from chainfolio.positions import AccountState, OpenPosition

Held = tuple[str, Asset, int]  # account, token, raw


@dataclass(frozen=True, slots=True)
class Reading:
    """Results of the index and the node for accounts at one block.

    Attributes:
        holdings: Tokens with a balance above zero.
        balance_issues: Issues about balances that could not be read.
        issues: Issues of protocols, the index and stakes.
        flows: The day's flows by account; empty if the day is not indexed, and `no_days` says why.
        fees: Fees paid so far by account; empty if transactions are not completely indexed.
        rows: The rows of the accounts up to the block, from which flows and fees were computed; None: read again.
        account_tokens: The tokens of each account in wallet and positions, and the native coin.
    """

    block: Block
    states: Mapping[str, AccountState]
    holdings: tuple[Held, ...]
    context: TokenContext
    balance_issues: tuple[Issue, ...]
    issues: tuple[Issue, ...]
    flows: Mapping[str, Flows]
    no_days: str
    fees: Mapping[str, int]
    collectibles: tuple[Holding, ...] = ()
    rows: AccountRows | None = None
    positions: tuple[OpenPosition, ...] = field(init=False)
    account_tokens: Mapping[str, set[Asset]] = field(
        init=False
    )  # the tokens that each account has, and the native coin

    def __post_init__(self) -> None:
        """Set `positions` of all accounts, and `account_tokens`: native coin, holdings, tokens of positions."""
        positions = tuple(each for state in self.states.values() for each in state.positions)
        account_tokens = {account: {self.context.chain.info.native.asset} for account in self.states}
        for account, asset, _ in self.holdings:
            account_tokens[account].add(asset)
        for each in positions:
            account_tokens[each.account] |= each.tokens
        object.__setattr__(self, "positions", positions)
        object.__setattr__(self, "account_tokens", account_tokens)


def holdings_of(
    states: Mapping[str, AccountState], requested: Mapping[str, Mapping[Asset, bool]], trust: Trust
) -> tuple[list[Held], list[Issue]]:
    """Return the holdings above zero, and an issue for each balance that could not be read.

    An issue makes the answer partial only if `trust` covers the token: strangers cannot spoil an answer. Tokens that
    are only listed, and do not answer, give no issue: at most blocks they did not exist yet.

    Args:
      requested: The tokens that were read, by account; True if the account has ever had the token.
    """
    holdings, issues = [], []
    for account, state in states.items():
        for asset, raw in state.balances.items():
            if isinstance(raw, int):
                if raw:
                    holdings.append((account, asset, raw))
            elif requested[account].get(asset, True):
                reason = f"the balance of {account} is unknown: {_reason(raw)}"
                is_absent = isinstance(raw, Unknown) and raw.cause == "absent"
                makes_partial = not is_absent and trust.is_trusted(account, asset)
                issues.append(Issue("balance", asset.reference, reason, makes_partial=makes_partial, account=account))
    return holdings, issues


def natives_of(states: Mapping[str, AccountState], native: Token) -> tuple[list[Holding], list[Issue]]:
    """Return the native coins of each account, zero included, and an issue for each unreadable balance."""
    holdings, issues = [], []
    for account, state in states.items():
        if isinstance(state.native, int):
            holdings.append(Holding(account, native, state.native))
        else:
            reason = f"the native balance could not be read: {_reason(state.native)}"
            issues.append(Issue("balance", account, reason, account=account))
    return holdings, issues


def _reason(answer: Any) -> str:
    return "the contract refuses" if isinstance(answer, Reverted) else str(answer.reason)


def with_stakes_of(
    states: Mapping[str, AccountState], stakes: Iterable[OpenPosition], trust: Trust
) -> dict[str, AccountState]:
    """Return the states with the stakes added to their positions.

    Issues about assets remain partial only if `trust` covers one of the assets.
    """
    positions = {account: list(state.positions) for account, state in states.items()}
    for stake in stakes:
        positions[stake.account].append(stake)
    return {
        account: replace(state, positions=tuple(positions[account]), issues=tuple(trust.resolve_issues(state.issues)))
        for account, state in states.items()
    }


def block_of(states: Mapping[str, AccountState], requested: Block) -> Block:
    """Return the block of the reads: the requested one, or a newer one if the chain keeps no old state.

    Raises:
        BadAnswer: The accounts were read at several blocks.
    """
    blocks = {state.block or requested for state in states.values()}
    if len(blocks) > 1:
        raise BadAnswer("engine", "accounts of one snapshot were read at several blocks")
    return next(iter(blocks), requested)
