"""Which compressed NFTs accounts have at the slot of a snapshot: those whose leaves lie in their trees there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from adapters.solana.account_layouts import BubblegumTree
from adapters.solana.account_reads import AccountRead
from adapters.solana.facts import COMPRESSED
from adapters.solana.parsing import key_bytes
from adapters.solana.reads import Leaves, TreeRead
from adapters.solana.trees import BUBBLEGUM, Leaf, Tree, fault
from chainfolio.assets import Asset
from chainfolio.contracts import Issue
from chainfolio.plans import Unknown

UNSEEN: Final = "compressed NFTs lie in no account of their own, and are not seen: no endpoint has an index of them"
SHOWN: Final = 3  # of many that have the same fault


@dataclass(slots=True)
class Compressed:
    """The compressed NFTs of all accounts of one snapshot: what was said of each account, and what their trees say.
    `caip2` is the name of the chain in assets."""

    caip2: str = ""
    told: dict[str, Leaves | Unknown] = field(default_factory=dict)
    trees: Mapping[TreeRead | AccountRead, Any] = field(default_factory=dict)

    def wanted(self) -> list[TreeRead | AccountRead]:
        """The trees that have to be read, and what Bubblegum says of each."""
        several = [each for each in self.told.values() if isinstance(each, Leaves)]
        trees = sorted({_tree(each, leaf) for each in several for leaf in each.found}, key=lambda tree: tree.address)
        return [*trees, *map(_planted, dict.fromkeys(each.address for each in trees))]

    def proven(self, account: str) -> list[Leaf]:
        """Those that an account has."""
        return [leaf for leaf, why in self._judged(account) if not why]

    def issues(self, account: str) -> list[Issue]:
        """What is not known of an account's, an issue for each reason."""
        told = self.told.get(account)
        if isinstance(told, Unknown):
            if told.cause == "absent":
                return [Issue("solana", account, UNSEEN, makes_partial=False, account=account)]
            # What is written about NFTs, and how much of it there is, is up to whoever sends them.
            reason, is_fault = f"compressed NFTs could not be read: {told.reason}", told.cause != "contract"
            return [Issue("solana", account, reason, makes_partial=is_fault, account=account)]
        faults: dict[str, list[str]] = {}
        for id, why in [*(told.faults if told else ()), *((leaf.id, why) for leaf, why in self._judged(account))]:
            if why:
                faults.setdefault(why, []).append(id)
        return [self._issue(account, why, ids) for why, ids in faults.items()]

    def _issue(self, account: str, why: str, ids: list[str]) -> Issue:
        """Return an issue about NFTs that are not shown: which of them, how many, and why. Of entries of the list that
        name no asset, `ids` repeats the account: nobody can trust those."""
        if set(ids) == {account}:
            reason = f"of compressed NFTs: {why}"
            return Issue("solana", account, reason, makes_partial=False, account=account, count=len(ids))
        more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
        reason = f"not shown as held, for it is not proven ({', '.join(ids[:SHOWN])}{more}): {why}"
        assets = tuple(Asset(self.caip2, COMPRESSED, id) for id in ids)
        return Issue("solana", ids[0], reason, account=account, count=len(ids), assets=assets)

    def _judged(self, account: str) -> list[tuple[Leaf, str]]:
        told = self.told.get(account)
        if not isinstance(told, Leaves):
            return []
        return [(leaf, self._fault(leaf, _tree(told, leaf))) for leaf in told.found]

    def _fault(self, leaf: Leaf, read: TreeRead) -> str:
        tree, planted = self.trees.get(read), self.trees.get(_planted(leaf.tree))
        if not isinstance(tree, Tree):
            return f"its tree could not be read: {tree.reason if tree else 'what else there is changes too fast'}"
        if isinstance(planted, Unknown) and planted.cause == "read":
            return f"what Bubblegum says of its tree could not be read: {planted.reason}"
        return fault(leaf, tree, planted.minted if isinstance(planted, BubblegumTree) else 0)


def _planted(tree: str) -> AccountRead:
    """What Bubblegum keeps of a tree that it has planted. Whoever made a tree himself, and wrote leaves into it, can
    name Bubblegum as the one who may change it, but cannot make this."""
    return AccountRead(BUBBLEGUM, "bubblegum_tree", (key_bytes(tree),))


def _tree(told: Leaves, leaf: Leaf) -> TreeRead:
    return TreeRead(leaf.tree, told.sizes[leaf.tree])
