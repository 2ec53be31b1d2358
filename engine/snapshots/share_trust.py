"""Decide whether positions count that rest on shares which anybody could have deployed.

Such a share claims assets that really exist, but its deployer may have put them there and may remove them again. The
position counts for an account that bought or deposited the share itself, and not for one that was sent it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from chainfolio.assets import Asset
from chainfolio.contracts import Issue
from chainfolio.decoded import uncounted
from chainfolio.portfolio.spam import TokenArrival
from chainfolio.positions import OpenPosition

UNSOLICITED_SHARE: Final = "the share is on no list, and the account received it without an action of its own"


def unverified_assets(positions: Sequence[OpenPosition]) -> dict[str, set[Asset]]:
    """Return the assets whose arrival decides whether a position counts, by account."""
    assets: dict[str, set[Asset]] = {}
    for position in positions:
        if needs_own_action(position):
            assets.setdefault(position.account, set()).update(position.required_assets)
    return assets


def mark_unsolicited(
    positions: Sequence[OpenPosition], arrivals: Mapping[str, Mapping[Asset, TokenArrival]]
) -> tuple[list[OpenPosition], list[Issue]]:
    """Mark each position that rests on an unsolicited share as unverified.

    Args:
        positions: All positions of a reading.
        arrivals: The arrivals of each asset of `unverified_assets`, by account. A missing entry counts as unsolicited.

    Returns:
        All positions in the same order, and one issue per unsolicited share. No issue makes the answer partial.
    """
    marked: list[OpenPosition] = []
    issues: list[Issue] = []
    for position in positions:
        if not needs_own_action(position) or is_acquired(position, arrivals.get(position.account, {})):
            marked.append(position)
            continue
        marked.append(replace(position, unverified=UNSOLICITED_SHARE))
        reason = uncounted(position.account, UNSOLICITED_SHARE)
        for share in sorted(share.reference for share in position.unlisted_shares):
            issues.append(Issue(position.protocol, share, reason, makes_partial=False, account=position.account))
    return marked, issues


def needs_own_action(position: OpenPosition) -> bool:
    """Return True if the position counts only for accounts that acquired its shares themselves."""
    return bool(position.unlisted_shares) and not position.has_trusted_assets and not position.unverified


def is_acquired(position: OpenPosition, arrivals: Mapping[Asset, TokenArrival]) -> bool:
    """Return True if the account obtained every required asset in its own action.

    False if no asset is required: nothing then shows how the account came to the position.
    """
    return bool(position.required_assets) and all(
        asset in arrivals and arrivals[asset].is_own_action for asset in position.required_assets
    )
