"""Index reads about accounts at one block, from their rows alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.chains import Chain
from chainfolio.engine.rows import ChainIndex
from chainfolio.engine.snapshots.account_rows import AccountRows
from chainfolio.engine.snapshots.arrivals import arrivals_in, own_assets_in
from chainfolio.engine.snapshots.day_flows import Flows, day_gap, flows_of_day
from chainfolio.engine.snapshots.sent_transactions import are_fees_indexed, fees_of
from chainfolio.portfolio.spam import TokenArrival

Tokens = Mapping[str, Collection[Asset]]


def flows_of(index: ChainIndex, chain: Chain, accounts: Sequence[str], block: Block) -> tuple[dict[str, Flows], str]:
    """Return the flows of a block's day, or the reason why they are not known."""
    if gap := day_gap(index.lake, index.tail, chain, accounts, block):
        return {}, gap
    return flows_of_day(AccountRows(index, accounts, block.height), chain, block)


def arrivals_of(
    index: ChainIndex, tokens: Tokens, trusted: Tokens, height: int, listed_tokens: Collection[Asset] = ()
) -> dict[str, dict[Asset, TokenArrival]]:
    """Return how tokens came to accounts up to a height; check own actions against those read alone."""
    rows = AccountRows(index, list(tokens), height)
    arrivals = arrivals_in(rows, tokens, trusted, listed_tokens)
    own_actions = {
        account: {asset for asset, each in of.items() if each.is_own_action} for account, of in arrivals.items()
    }
    assert own_assets_in(rows, tokens, trusted, listed_tokens) == own_actions
    return arrivals


def fees_at(index: ChainIndex, accounts: Sequence[str], block: Block) -> dict[str, int]:
    """Return what accounts paid up to a block, empty if it is not indexed."""
    if not are_fees_indexed(index.tail, index.chain, accounts, block):
        return {}
    return fees_of(AccountRows(index, accounts, block.height), block)
