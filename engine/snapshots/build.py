"""Build the snapshot of a reading and its judgement, or of a chain that could not be read."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import DayFlows, Holding, Issue, Position, Snapshot, Token
from chainfolio.engine.snapshots.day_flows import Flows
from chainfolio.engine.snapshots.judgement import Judgement
from chainfolio.engine.snapshots.reading import Reading, natives_of
from chainfolio.engine.snapshots.trust import group_untrusted_issues
from chainfolio.errors import SourceError
from chainfolio.price_sources import PriceSource, Quotes
from chainfolio.pricing.fixed import pegged_assets
from chainfolio.pricing.rules import rules_of

if TYPE_CHECKING:
    from chainfolio.chains import Chain

log = logging.getLogger("chainfolio.engine")


def build_snapshot(chain: Chain, reading: Reading, judgement: Judgement, sources: Sequence[PriceSource]) -> Snapshot:
    """Return the snapshot of a reading; untrusted issues are grouped. No I/O.

    Issues are in the order of their cause: balances, positions, prices, the index.
    """
    context, native = reading.context, chain.info.native
    tokens, quotes = context.tokens, context.quotes
    natives, native_issues = natives_of(reading.states, native)
    issues = [
        *native_issues,
        *judgement.issues,
        *reading.balance_issues,
        *(issue for state in reading.states.values() for issue in state.issues),
        *context.issues,
        *price_issues(quotes, reading.account_tokens, sources),
        *reading.issues,
    ]
    holdings = [*natives, *(Holding(account, tokens[asset], raw) for account, asset, raw in reading.holdings)]
    positions = tuple(each.with_tokens(tokens) for each in judgement.positions)
    return Snapshot(
        chain=chain.key,
        block=reading.block,
        accounts=tuple(reading.states),
        holdings=tuple(holdings),
        prices=quotes.prices,
        issues=tuple(group_untrusted_issues(issues)),
        positions=positions,
        spam=judgement.spam,
        fees=tuple(Holding(account, native, raw) for account, raw in reading.fees.items()),
        day_flows=tuple(_day(account, each, tokens) for account, each in reading.flows.items()),
        pegged=pegged_assets(sources),
        day_flows_problem=reading.no_days,
        collectibles=(*reading.collectibles, *_collectible_tokens(chain, holdings, positions, quotes)),
    )


def _collectible_tokens(
    chain: Chain, holdings: Sequence[Holding], positions: Sequence[Position], quotes: Quotes
) -> list[Holding]:
    """Return the unpriced tokens without decimals in wallets, and those that are positions of wallets.

    Empty for chains whose collectibles are no such tokens.
    """
    if not chain.info.has_collectible_tokens:
        return []
    priced = {price.asset for price in quotes.prices}
    in_positions = [part for each in positions if each.type == "WALLET" for part in each.supplied]
    return [each for each in (*holdings, *in_positions) if each.token.decimals == 0 and each.token.asset not in priced]


def unreadable(chain: Chain, addresses: Sequence[str], error: SourceError, time_us: int) -> Snapshot:
    """Log the error and return a snapshot without holdings, with the error as issue of each account."""
    log.warning("%s could not be read: %s", chain.key, error.message)
    reason = f"the chain could not be read: {error.reason}"
    issues = tuple(Issue(chain.key, address, reason, account=address) for address in addresses)
    return Snapshot(chain.key, Block(0, "", "", time_us), tuple(addresses), (), (), issues)


def price_issues(
    quotes: Quotes, account_tokens: Mapping[str, Set[Asset]], sources: Sequence[PriceSource]
) -> list[Issue]:
    """Return an issue for each refusal of an asset without a price, and each disagreement, by account.

    Only an unread feed makes the answer partial: without its price the sums are too low.
    """
    priced: set[Asset] = {price.asset for price in quotes.prices}
    guards = rules_of(sources).guards
    reasons = [
        (each.source, each.asset, each.reason, each.is_unread) for each in quotes.refused if each.asset not in priced
    ]
    reasons += [
        (each.source, each.asset, guards.disagreements(each), False) for each in quotes.prices if each.alternatives
    ]
    return [
        Issue(source, str(asset), reason, makes_partial=is_unread, account=account)
        for source, asset, reason, is_unread in reasons
        if reason
        for account, tokens in account_tokens.items()
        if asset in tokens
    ]


def _day(account: str, flows: Flows, tokens: Mapping[Asset, Token]) -> DayFlows:
    """Return an account's flows of the day as holdings in the order of assets, without those of zero."""
    incoming, outgoing = (
        tuple(Holding(account, tokens[asset], raw) for asset, raw in sorted(side.items()) if raw)
        for side in (flows.incoming, flows.outgoing)
    )
    return DayFlows(account, incoming, outgoing)
