"""The rule of trust, for all kinds of chain: what strangers send does not decide what an owner gets.

An asset is trusted if it is on a list, if the settings price it, or if the account came by it or sent it in an act of
its own. An unread asset that nobody trusts is listed apart: it never makes an answer partial, so it never refuses a net
asset value, and its contract is read after all others, with bounded work.

A position on an unlisted share counts only for accounts that came by the share in an act of their own: whoever made the
share may have put the assets there that cover it, and may take them away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Final

from chainfolio.assets import Asset
from chainfolio.contracts import Issue
from chainfolio.decoded import uncounted
from chainfolio.positions import OpenPosition
from chainfolio.reads import AtParent
from portfolio.spam import Arrival

NO_ACT = "no file names this share, and the account did not come by it in an act of its own"
MAX_EQUAL: Final = 5  # untrusted subjects that one reason is shown for one by one
MAX_REASONS: Final = 25  # reasons of one part that are shown apart, for one account


@dataclass(frozen=True, slots=True)
class Trust:
    """Which assets of some accounts are trusted.

    `is_vouched` returns True for assets that are on a list or priced by the settings. `own` are the assets of each
    account that it came by in an act of its own.
    """

    is_vouched: Callable[[Asset], bool]
    own: Mapping[str, Collection[Asset]] = field(default_factory=dict)

    def is_trusted(self, account: str, asset: Asset) -> bool:
        """Return True if an unread `asset` of `account` makes its answer partial."""
        return asset.is_native or self.is_vouched(asset) or asset in self.own.get(account, ())

    def resolve(self, issues: Iterable[Issue]) -> list[Issue]:
        """Return the issues in order: those about assets make an answer partial only if one of these is trusted."""
        return [self._resolved(issue) if issue.assets else issue for issue in issues]

    def _resolved(self, issue: Issue) -> Issue:
        is_trusted = any(self.is_trusted(issue.account, asset) for asset in issue.assets)
        return replace(issue, makes_partial=issue.makes_partial and is_trusted, assets=())

    def strangers(self, assets: Iterable[Asset]) -> frozenset[str]:
        """Return the contracts of those `assets` that none of the accounts trusts."""
        own = {asset for assets_of in self.own.values() for asset in assets_of}
        return frozenset(
            asset.reference
            for asset in assets
            if not asset.is_native and asset not in own and not self.is_vouched(asset)
        )


def marked(reads: Iterable[Any], strangers: Set[str]) -> list[Any]:
    """Return the reads in order, those that concern `strangers` marked as untrusted where their kind knows that mark:
    a read with a method `untrusted_if(strangers)`, which returns the marked read or itself."""
    return [_mark(read, strangers) for read in reads]


def _mark(read: Any, strangers: Set[str]) -> Any:
    if isinstance(read, AtParent):
        return AtParent(_mark(read.read, strangers))
    mark = getattr(read, "untrusted_if", None)
    return read if mark is None else mark(strangers)


def listed_apart(issues: Sequence[Issue]) -> list[Issue]:
    """Return the issues with floods of untrusted subjects summed up, so that a thousand tokens do not make a thousand
    issues: one issue with its `count` for each reason that more than MAX_EQUAL subjects share, and one for all reasons
    beyond MAX_REASONS. Issues that make an answer partial stay as they are. The order is kept."""
    groups: dict[tuple[str, str, str], list[Issue]] = {}
    for issue in issues:
        if not issue.makes_partial:
            groups.setdefault((issue.adapter, issue.account, issue.reason), []).append(issue)
    parts: defaultdict[tuple[str, str], list[list[Issue]]] = defaultdict(list)
    for (adapter, account, _), equal in groups.items():
        parts[adapter, account].extend([equal] if len(equal) > MAX_EQUAL else ([issue] for issue in equal))
    shown: dict[int, Issue] = {}
    for several in parts.values():
        several.sort(key=lambda equal: -len(equal))
        for equal in several[:MAX_REASONS]:
            shown[id(equal[0])] = _summed(equal, equal[0].reason)
        if rest := [issue for equal in several[MAX_REASONS:] for issue in equal]:
            reason = rest[0].reason if len(rest) == 1 else f"several reasons, the first of which is: {rest[0].reason}"
            shown[id(rest[0])] = _summed(rest, reason)
    return [
        issue if issue.makes_partial else shown[id(issue)]
        for issue in issues
        if issue.makes_partial or id(issue) in shown
    ]


def _summed(issues: Sequence[Issue], reason: str) -> Issue:
    """Return one issue for several of one part and account; the issue itself if it is alone."""
    count = sum(issue.count for issue in issues)
    return (
        issues[0] if len(issues) == 1 else replace(issues[0], subject=f"{count} subjects", reason=reason, count=count)
    )


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
