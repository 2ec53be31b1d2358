"""Trust in assets, for all kinds of chain: what strangers send must not decide an owner's answer.

An asset is trusted if it is on a list, if the settings price it, or if the account obtained or sent it in its own
action. Unread untrusted assets are listed apart: they never make an answer partial, so they never suppress a net asset
value. Their contracts are read after all others, with bounded work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Final

from chainfolio.assets import Asset
from chainfolio.chain_results import ChainInfo
from chainfolio.contracts import Issue
from chainfolio.reads import AtParent

MAX_SINGLE_ISSUES: Final = 5  # untrusted subjects that one reason is shown for one by one
MAX_REASONS: Final = 25  # reasons of one part that are shown apart, for one account


@dataclass(frozen=True, slots=True)
class Trust:
    """The trusted assets of some accounts.

    Attributes:
      is_listed: Returns True for assets that are on a list or priced by the settings.
      own_assets: Assets that each account obtained in its own action, by account.
    """

    is_listed: Callable[[Asset], bool]
    own_assets: Mapping[str, Collection[Asset]] = field(default_factory=dict)

    def is_trusted(self, account: str, asset: Asset) -> bool:
        """Return True if an unread `asset` of `account` makes its answer partial."""
        return asset.is_native or self.is_listed(asset) or asset in self.own_assets.get(account, ())

    def resolve_issues(self, issues: Iterable[Issue]) -> list[Issue]:
        """Return the issues in order; those about assets stay partial only if one of the assets is trusted."""
        return [self._resolve(issue) if issue.assets else issue for issue in issues]

    def _resolve(self, issue: Issue) -> Issue:
        is_trusted = any(self.is_trusted(issue.account, asset) for asset in issue.assets)
        return replace(issue, makes_partial=issue.makes_partial and is_trusted, assets=())

    def untrusted_contracts(self, assets: Iterable[Asset]) -> frozenset[str]:
        """Return the contracts of those `assets` that no account trusts; listed and native ones never."""
        own_assets = {asset for assets_of in self.own_assets.values() for asset in assets_of}
        return frozenset(
            asset.reference
            for asset in assets
            if not asset.is_native and asset not in own_assets and not self.is_listed(asset)
        )


def is_coin(info: ChainInfo, contract: str) -> bool:
    """Return True if `contract`, as documents show it, stands for the native coin."""
    coins = (info.native.asset, info.wrapped, info.also_at)
    return contract in {each.shown_contract for each in coins if each}


def mark_untrusted(reads: Iterable[Any], untrusted: Set[str]) -> list[Any]:
    """Return the reads in order; those that concern untrusted contracts are marked.

    A read is marked by its method `untrusted_if(contracts)`, which returns the marked read or itself. Reads without
    that method do not change.
    """
    return [_mark(read, untrusted) for read in reads]


def _mark(read: Any, untrusted: Set[str]) -> Any:
    if isinstance(read, AtParent):
        return AtParent(_mark(read.read, untrusted))
    mark = getattr(read, "untrusted_if", None)
    return read if mark is None else mark(untrusted)


def group_untrusted_issues(issues: Sequence[Issue]) -> list[Issue]:
    """Return the issues in order, with floods of untrusted subjects grouped.

    A thousand tokens must not make a thousand issues: more than `MAX_SINGLE_ISSUES` subjects with one reason become one
    issue with its `count`, and so do all reasons beyond `MAX_REASONS`. Issues that make an answer partial stay as they
    are.
    """
    groups: dict[tuple[str, str, str], list[Issue]] = {}
    for issue in issues:
        if not issue.makes_partial:
            groups.setdefault((issue.adapter, issue.account, issue.reason), []).append(issue)
    parts: defaultdict[tuple[str, str], list[list[Issue]]] = defaultdict(list)
    for (adapter, account, _), equal in groups.items():
        parts[adapter, account].extend([equal] if len(equal) > MAX_SINGLE_ISSUES else ([issue] for issue in equal))
    grouped: dict[int, Issue] = {}
    for groups_of_part in parts.values():
        groups_of_part.sort(key=lambda equal: -len(equal))
        for equal in groups_of_part[:MAX_REASONS]:
            grouped[id(equal[0])] = _group(equal, equal[0].reason)
        if remaining := [issue for equal in groups_of_part[MAX_REASONS:] for issue in equal]:
            reason = (
                remaining[0].reason
                if len(remaining) == 1
                else f"several reasons, the first of which is: {remaining[0].reason}"
            )
            grouped[id(remaining[0])] = _group(remaining, reason)
    return [
        issue if issue.makes_partial else grouped[id(issue)]
        for issue in issues
        if issue.makes_partial or id(issue) in grouped
    ]


def _group(issues: Sequence[Issue], reason: str) -> Issue:
    """Return one issue for several of one part and account; the issue itself if it is alone."""
    count = sum(issue.count for issue in issues)
    return (
        issues[0] if len(issues) == 1 else replace(issues[0], subject=f"{count} subjects", reason=reason, count=count)
    )
