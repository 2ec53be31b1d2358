"""Compressed NFTs of accounts at the slot of a snapshot: those whose leaves are proven by their trees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from chainfolio.adapters.solana.account_reads import AccountRead
from chainfolio.adapters.solana.account_records import BubblegumTree
from chainfolio.adapters.solana.facts import COMPRESSED
from chainfolio.adapters.solana.parsing import key_bytes
from chainfolio.adapters.solana.reads import LeafList, TreeRead
from chainfolio.adapters.solana.trees import BUBBLEGUM, Leaf, Tree, fault
from chainfolio.assets import Asset
from chainfolio.contracts import Issue
from chainfolio.plans import Unknown

NO_INDEX: Final = "compressed NFTs lie in no account of their own, and are not seen: no endpoint has an index of them"
MAX_SHOWN_IDS: Final = 3  # in an issue


@dataclass(slots=True)
class CompressedNfts:
    """The compressed NFTs of all accounts of one snapshot.

    Attributes:
        caip2: The name of the chain in assets.
        lists: The lists of the endpoints, by account.
        tree_results: The results of `tree_reads`.
    """

    caip2: str = ""
    lists: dict[str, LeafList | Unknown] = field(default_factory=dict)
    tree_results: Mapping[TreeRead | AccountRead, Any] = field(default_factory=dict)

    def tree_reads(self) -> list[TreeRead | AccountRead]:
        """Return the reads that prove the listed NFTs: each tree, and Bubblegum's account about it."""
        lists = [each for each in self.lists.values() if isinstance(each, LeafList)]
        trees = sorted(
            {_tree_read(each, leaf) for each in lists for leaf in each.leaves}, key=lambda read: read.address
        )
        return [*trees, *map(_config_read, dict.fromkeys(each.address for each in trees))]

    def proven(self, account: str) -> list[Leaf]:
        """Return the NFTs of an account whose leaves are proven."""
        return [leaf for leaf, reason in self._checked_leaves(account) if not reason]

    def issues(self, account: str) -> list[Issue]:
        """Return one issue per reason why NFTs of an account are not proven, or are not known; [] if all are."""
        leaf_list = self.lists.get(account)
        if isinstance(leaf_list, Unknown):
            if leaf_list.cause == "absent":
                return [Issue("solana", account, NO_INDEX, makes_partial=False, account=account)]
            # A list that is too large makes nothing partial: the senders of NFTs decide on its size.
            makes_partial = leaf_list.cause != "contract"
            reason = f"compressed NFTs could not be read: {leaf_list.reason}"
            return [Issue("solana", account, reason, makes_partial=makes_partial, account=account)]
        ids_by_reason: dict[str, list[str]] = {}
        unproven = [(leaf.id, reason) for leaf, reason in self._checked_leaves(account)]
        for id, reason in [*(leaf_list.faults if leaf_list else ()), *unproven]:
            if reason:
                ids_by_reason.setdefault(reason, []).append(id)
        return [self._issue(account, reason, ids) for reason, ids in ids_by_reason.items()]

    def _issue(self, account: str, reason: str, ids: list[str]) -> Issue:
        """Return the issue about NFTs that are not shown.

        The ids repeat the account for list entries without an id. Such entries cannot be trusted assets, so their
        issue makes nothing partial.
        """
        if set(ids) == {account}:
            text = f"of compressed NFTs: {reason}"
            return Issue("solana", account, text, makes_partial=False, account=account, count=len(ids))
        rest_count = f" and {len(ids) - MAX_SHOWN_IDS} more" if len(ids) > MAX_SHOWN_IDS else ""
        text = f"not shown as held, for it is not proven ({', '.join(ids[:MAX_SHOWN_IDS])}{rest_count}): {reason}"
        assets = tuple(Asset(self.caip2, COMPRESSED, id) for id in ids)
        return Issue("solana", ids[0], text, account=account, count=len(ids), assets=assets)

    def _checked_leaves(self, account: str) -> list[tuple[Leaf, str]]:
        """Return the listed leaves, each with the reason why it is not proven; empty if it is."""
        leaf_list = self.lists.get(account)
        if not isinstance(leaf_list, LeafList):
            return []
        return [(leaf, self._fault(leaf, _tree_read(leaf_list, leaf))) for leaf in leaf_list.leaves]

    def _fault(self, leaf: Leaf, read: TreeRead) -> str:
        """Return why a leaf cannot be trusted, also if its tree could not be read; empty if it can."""
        tree, config = self.tree_results.get(read), self.tree_results.get(_config_read(leaf.tree))
        if not isinstance(tree, Tree):
            return f"its tree could not be read: {tree.reason if tree else 'what else there is changes too fast'}"
        if isinstance(config, Unknown) and config.cause == "read":
            return f"what Bubblegum says of its tree could not be read: {config.reason}"
        return fault(leaf, tree, config.minted_count if isinstance(config, BubblegumTree) else 0)


def _config_read(tree: str) -> AccountRead:
    """Return the read of Bubblegum's own account about a tree.

    Anybody can make a tree, write leaves into it, and then name Bubblegum as its authority. But only Bubblegum can make
    this account.
    """
    return AccountRead(BUBBLEGUM, "bubblegum_tree", (key_bytes(tree),))


def _tree_read(leaf_list: LeafList, leaf: Leaf) -> TreeRead:
    return TreeRead(leaf.tree, leaf_list.tree_sizes[leaf.tree])
