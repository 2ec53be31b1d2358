"""The portfolio of one account over several chains, from its portfolios on each of them.

A snapshot is kept chain by chain, so an answer about a past day is always put together here, whether its parts were
kept or have just been read: both give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

import msgspec

from chainfolio.portfolio.document import UNKNOWN, IssueDocument, Portfolio, ProtocolDocument, percentages
from chainfolio.portfolio.merge import SUMS, exact_sum, exact_sums, pnl_sums

Coin = tuple[str, int | None]  # symbol and decimals of the coin that pays fees


def join_chains(parts: Mapping[str, Portfolio], coins: Mapping[str, Coin]) -> Portfolio:
    """Return one portfolio of an account from its portfolios by chain.

    There is at least one, and no two share a chain. `coins` are the coins of the chains. A single part is returned
    unchanged. Sums are exact, and `N/A` if that of a part is. The portfolio is partial if a part is.
    """
    documents = [parts[chain] for chain in sorted(parts)]
    assert documents, "nothing to join"
    if len(documents) == 1:
        return documents[0]
    chains = {key: chain for each in documents for key, chain in each.chains.items()}
    assert len(chains) == sum(len(each.chains) for each in documents), "a chain is in one part"
    shares = percentages({key: Decimal(chain.value) for key, chain in chains.items()})
    protocol_keys = sorted({key for each in documents for key in each.asset_by_protocols})
    return msgspec.structs.replace(
        documents[0],
        networth=exact_sum(each.networth for each in documents),
        asset_by_protocols={
            key: _protocol([each.asset_by_protocols[key] for each in documents if key in each.asset_by_protocols])
            for key in protocol_keys
        },
        chains={key: msgspec.structs.replace(chains[key], value_percentile=shares[key]) for key in sorted(chains)},
        completeness="partial" if any(each.completeness == "partial" for each in documents) else "complete",
        issues=tuple(sorted({issue for each in documents for issue in each.issues}, key=_issue_key)),
        unpriced_assets=sum(each.unpriced_assets for each in documents),
        spam_assets=sum(each.spam_assets for each in documents),
        price_adapters=tuple(sorted({adapter for each in documents for adapter in each.price_adapters})),
        fees=_fees(parts, coins),
        **exact_sums(documents, *SUMS),
    )


def _issue_key(issue: IssueDocument) -> tuple[str, str, str]:
    return issue.adapter, issue.subject, issue.reason


def _protocol(parts: Sequence[ProtocolDocument]) -> ProtocolDocument:
    """Join a protocol's documents of different chains; the value is unknown if one is."""
    chains = {key: chain for each in parts for key, chain in each.chains.items()}
    return msgspec.structs.replace(
        parts[0],
        value=exact_sum(each.value for each in parts),
        chains={key: chains[key] for key in sorted(chains)},
        **pnl_sums(parts),
    )


def _fees(parts: Mapping[str, Portfolio], coins: Mapping[str, Coin]) -> str:
    """Return the sum of fees in the smallest unit; unknown if fees of several coins would be added up."""
    fees = {chain: each.fees for chain, each in parts.items() if each.fees != "0"}
    has_several_coins = len({coins[chain] for chain in fees}) > 1
    return UNKNOWN if has_several_coins else exact_sum(fees.values())
