"""Tokens of the activities of a page, and those that are spam."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Token
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.portfolio.activity import Activity


async def add_tokens(
    snapshotter: Snapshotter,
    tokens: dict[Asset, Token],
    activities: Collection[Activity],
    block: Block,
    balances: dict[tuple[str, Asset], Any],
) -> set[tuple[str, Asset]]:
    """Add the tokens of activities to `tokens`: listed ones by the list, others by their state at `block`.

    Args:
        balances: Caches balances at that block: known ones are used, and the ones that are read are added.

    Returns:
        The moved tokens that are spam, each with its account, as a portfolio at that block would judge. Listed tokens
        are never spam, and nothing is read if all tokens are listed.

    Raises:
        SourceError: The chain could not be read.
    """
    listed = snapshotter.book.listed
    moves = [(each.account, move.asset.collection) for each in activities for move in each.movements]
    transferred = {pair for pair in moves if not pair[1].is_native}
    assets = moved_assets(activities)
    tokens |= {asset: listed[asset] for asset in assets & listed.keys()}
    if assets <= listed.keys():
        return set()
    described, spam = await snapshotter.judge(transferred, assets - listed.keys(), block, balances)
    tokens |= described
    return set(spam)


def moved_assets(activities: Collection[Activity]) -> set[Asset]:
    """Return the tokens and collections that activities moved or approved."""
    transferred = {move.asset.collection for each in activities for move in each.movements}
    approved = {permission.asset for each in activities for permission in each.permissions}
    return {asset for asset in transferred if not asset.is_native} | approved
