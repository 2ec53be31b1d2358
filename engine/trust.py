"""Which positions count that rest on shares which anybody could have made.

What such a share claims is covered by real assets, but whoever made it may be the one who put them there, and may take
them away. It counts for those who came by it in an act of their own, and for nobody to whom it was sent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from chainfolio.assets import Asset
from chainfolio.contracts import Issue
from chainfolio.decoded import uncounted
from chainfolio.positions import OpenPosition
from portfolio.spam import Arrival

NO_ACT = "no file names this share, and the account did not come by it in an act of its own"


def in_doubt(opened: Sequence[OpenPosition]) -> dict[str, set[Asset]]:
    """The tokens of positions that count only where the account came by them itself, by account."""
    found: dict[str, set[Asset]] = {}
    for each in opened:
        if _is_in_doubt(each):
            found.setdefault(each.account, set()).update(each.ground)
    return found


def judged(
    opened: Sequence[OpenPosition], came: Mapping[str, Mapping[Asset, Arrival]]
) -> tuple[list[OpenPosition], list[Issue]]:
    """The positions, those in doubt marked as unverified where no act of the account's is known; and why."""
    result, issues = [], []
    for each in opened:
        if _is_in_doubt(each) and not _is_own(each.ground, came.get(each.account, {})):
            for share in sorted(share.reference for share in each.unlisted):
                reason = uncounted(each.account, NO_ACT)
                issues.append(Issue(each.protocol, share, reason, makes_partial=False, account=each.account))
            each = replace(each, unverified=NO_ACT)
        result.append(each)
    return result, issues


def _is_in_doubt(each: OpenPosition) -> bool:
    return bool(each.unlisted) and not each.vouches and not each.unverified


def _is_own(tokens: Collection[Asset], came: Mapping[Asset, Arrival]) -> bool:
    return bool(tokens) and all(token in came and came[token].own for token in tokens)
