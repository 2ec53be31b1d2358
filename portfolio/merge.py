"""Merges several portfolios into one. Sums are exact; fields on which the parts disagree are left out.

Equal assets of one position type become one: balances and values are added. If their prices differ, the price is value
by balance, to 18 places. Unpriced assets stay apart from priced ones. Nested positions stay apart, each with its own
health. The order is that of any document and does not depend on the order of the parts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from chainfolio import amounts
from chainfolio.portfolio.document import (
    UNKNOWN,
    AssetDocument,
    ChainDocument,
    Portfolio,
    PositionDocument,
    PositionsDocument,
    ProtocolChainDocument,
    ProtocolDocument,
    Sources,
    SpamDocument,
    every_asset,
    percentages,
    rounded,
)

T = TypeVar("T")
PLACES: Final = 18
SUMS: Final = (  # fields of a portfolio that are sums over its parts
    "cash_balance",
    "daily_income",
    "daily_expense",
    "fees_fiat",
    "open_pnl",
    "closed_pnl",
    "total_cost_basis",
    "manual_balance_networth",
)
# Sort key of rows that are otherwise equal: arbitrary, but deterministic.
_WHOLE: Final = msgspec.json.Encoder(order="deterministic")


def merge(parts: Sequence[Portfolio], address: str) -> Portfolio:
    """Return one portfolio of all parts (at least one), dated as the oldest; partial if any part is.

    A sum is unknown if it is unknown in any part. Fields that must agree, such as the block, are unset if they differ.
    """
    assert parts, "nothing to merge"
    protocols = _protocols(parts)
    chains = _grouped(part.chains for part in parts)
    values = {key: _total(chain.value for chain in chain_parts) for key, chain_parts in chains.items()}
    shares = percentages(values)
    assets = [
        asset
        for chain_parts in protocols.values()
        for chain in chain_parts.chains.values()
        for asset in every_asset(chain)
    ]
    issues = {issue for part in parts for issue in part.issues}
    return Portfolio(
        address=address,
        networth=exact_sum(part.networth for part in parts),
        last_updated=min((part.last_updated for part in parts), key=int),
        asset_by_protocols=protocols,
        chains={key: _chain(chains[key], values[key], shares[key]) for key in chains},
        completeness="partial" if any(part.completeness == "partial" for part in parts) else "complete",
        issues=tuple(sorted(issues, key=lambda issue: (issue.adapter, issue.subject, issue.reason))),
        unpriced_assets=sum(asset.value == UNKNOWN for asset in assets),
        spam_assets=sum(asset.spam is not UNSET for asset in assets),
        price_adapters=tuple(sorted({adapter for part in parts for adapter in part.price_adapters})),
        conversion_rates=_rates(parts),
        block_number=_agreed(part.block_number for part in parts),
        fees=_fees([part.fees for part in parts], len(chains)),
        **exact_sums(parts, *SUMS),
    )


def merge_users(portfolios: Sequence[Portfolio]) -> Portfolio:
    """Return the exact sums of several virtual users, under their addresses joined by commas.

    An account that is in two groups is in both of their sums, and so in this one twice.
    """
    return merge(portfolios, ",".join(each.address for each in portfolios))


# --- sums and common values ------------------------------------------------------------------------------------------


def _total(values: Iterable[str]) -> Decimal:
    return amounts.total([Decimal(value) for value in values])


def exact_sum(values: Iterable[str]) -> str:
    """Return the exact sum; unknown as soon as one of the values is."""
    texts = list(values)
    return UNKNOWN if UNKNOWN in texts else amounts.text(_total(texts))


def exact_sums(parts: Sequence[Any], *names: str) -> dict[str, Any]:
    """Return the exact sums of fields, by name; unknown if one of the values is."""
    return {name: exact_sum(getattr(part, name) for part in parts) for name in names}


def _fees(fees: Sequence[str], chains: int) -> str:
    """Return the sum of fees in smallest units; unknown if fees of several chains would be added up."""
    nonzero_fees = [fee for fee in fees if fee != "0"]
    return exact_sum(nonzero_fees) if len(nonzero_fees) < 2 or chains < 2 else UNKNOWN


def pnl_sums(parts: Sequence[Any]) -> dict[str, Any]:
    """Return the exact sums of cost basis, open and closed gains."""
    return exact_sums(parts, "total_cost_basis", "total_open_pnl", "total_closed_pnl")


def _agreed(values: Iterable[T | UnsetType]) -> T | UnsetType:
    """Return the common value; UNSET if values differ."""
    all_values = list(values)
    return all_values[0] if all(value == all_values[0] for value in all_values) else UNSET


def _links(parts: Sequence[Any], *names: str) -> dict[str, Any]:
    return {name: _agreed(getattr(part, name) for part in parts) for name in names}


def _pictures(parts: Sequence[Any]) -> dict[str, Any]:
    return _links(parts, "img_small", "img_large")


def _grouped(parts: Iterable[Mapping[str, T]]) -> dict[str, list[T]]:
    """Return the values of all mappings by key, sorted by key."""
    groups: defaultdict[str, list[T]] = defaultdict(list)
    for part in parts:
        for key, value in part.items():
            groups[key].append(value)
    return {key: groups[key] for key in sorted(groups)}


def _rates(parts: Sequence[Portfolio]) -> dict[str, str]:
    """Return each rate from the newest part that has it."""
    newest: dict[str, tuple[int, Decimal]] = {}
    for part in parts:
        for symbol, rate in part.conversion_rates.items():
            dated_rate = int(part.last_updated), Decimal(rate)
            newest[symbol] = max(newest.get(symbol, dated_rate), dated_rate)
    return {symbol: amounts.text(newest[symbol][1]) for symbol in sorted(newest)}


# --- the tree --------------------------------------------------------------------------------------------------------


def _chain(parts: Sequence[ChainDocument], value: Decimal, share: str) -> ChainDocument:
    """Merge the documents of one chain: sums, the lowest block, and the largest distance to the head."""
    heights = [int(part.block_number) for part in parts if isinstance(part.block_number, str)]
    blocks_behind = [part.blocks_behind for part in parts if isinstance(part.blocks_behind, int)]
    return ChainDocument(
        name=min(part.name for part in parts),
        key=parts[0].key,
        chain_id=min(part.chain_id for part in parts),
        value=amounts.text(value),
        value_percentile=share,
        block_number=str(min(heights)) if heights else UNSET,
        blocks_behind=max(blocks_behind) if blocks_behind else UNSET,
        **pnl_sums(parts),
        **_pictures(parts),
    )


def _protocols(parts: Sequence[Portfolio]) -> dict[str, ProtocolDocument]:
    """Return the merged protocols by key.

    A protocol with several names, such as the exchanges of virtual users, is split: the name becomes part of the key.
    """
    merged_protocols: dict[str, ProtocolDocument] = {}
    for key, documents in _grouped(part.asset_by_protocols for part in parts).items():
        by_name = _grouped({each.name: each} for each in documents)
        for name, each in by_name.items():
            merged_key = key if len(by_name) == 1 else f"{key}:{name}"
            merged_protocols[merged_key] = _protocol(merged_key, each)
    return {key: merged_protocols[key] for key in sorted(merged_protocols)}


def _protocol(key: str, parts: Sequence[ProtocolDocument]) -> ProtocolDocument:
    """Merge the documents of one protocol; its value is unknown if one is."""
    return ProtocolDocument(
        name=parts[0].name,
        key=key,
        value=exact_sum(part.value for part in parts),
        chains={key: _protocol_chain(each) for key, each in _grouped(part.chains for part in parts).items()},
        **pnl_sums(parts),
        **_pictures(parts),
    )


def _protocol_chain(parts: Sequence[ProtocolChainDocument]) -> ProtocolChainDocument:
    """Merge a protocol's documents of one chain; its value is unknown if one is."""
    kinds = _grouped(part.protocol_positions for part in parts)
    return ProtocolChainDocument(
        name=min(part.name for part in parts),
        key=parts[0].key,
        value=exact_sum(part.value for part in parts),
        protocol_positions={kind: _positions(each) for kind, each in kinds.items()},
        **pnl_sums(parts),
        **_pictures(parts),
    )


def _positions(parts: Sequence[PositionsDocument]) -> PositionsDocument:
    """Merge documents of one type: equal assets are summed, positions stay single."""
    return PositionsDocument(
        name=min(part.name for part in parts),
        total_value=exact_sum(part.total_value for part in parts),
        unlock_at=max((part.unlock_at for part in parts), key=int),
        assets=_assets(asset for part in parts for asset in part.assets),
        protocol_positions=tuple(
            sorted((nested for part in parts for nested in part.protocol_positions), key=_position_key)
        ),
        **pnl_sums(parts),
        **_links(parts, "img_small", "img_large", "explorer_url"),
    )


def _position_key(position: PositionDocument) -> tuple[Decimal, str, int, bytes]:
    return Decimal(position.value).copy_negate(), position.name, int(position.unlock_at), _WHOLE.encode(position)


def _assets(assets: Iterable[AssetDocument]) -> tuple[AssetDocument, ...]:
    """Return the assets with equal ones joined, in the order of every document.

    Known and unknown amounts or values, and spam, stay apart.
    """
    groups: defaultdict[tuple[object, ...], list[AssetDocument]] = defaultdict(list)
    for each in assets:
        flags = each.balance == UNKNOWN, each.value == UNKNOWN, each.spam is UNSET
        groups[each.chain_contract, each.symbol, each.name, each.decimal, *flags].append(each)
    return tuple(sorted((_asset(parts) for parts in groups.values()), key=_asset_key))


def _asset_key(asset: AssetDocument) -> tuple[bool, bool, Decimal, str, bytes]:
    value_usd = amounts.ZERO if asset.value == UNKNOWN else Decimal(asset.value).copy_negate()
    return asset.spam is not UNSET, asset.value == UNKNOWN, value_usd, asset.contract, _WHOLE.encode(asset)


def _asset(parts: Sequence[AssetDocument]) -> AssetDocument:
    """Return the sum of equal assets; a single one is unchanged.

    Args:
        parts: Assets of one group of `_assets`: balances, and values, are known for all or for none.
    """
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    balance = None if first.balance == UNKNOWN else _total(part.balance for part in parts)
    value = None if first.value == UNKNOWN else _total(part.value for part in parts)
    return AssetDocument(
        symbol=first.symbol,
        name=first.name,
        contract=first.contract,
        chain_key=first.chain_key,
        chain_contract=first.chain_contract,
        balance=UNKNOWN if balance is None else amounts.text(balance),
        price=_price([part.price for part in parts], balance, value),
        value=UNKNOWN if value is None else amounts.text(value),
        decimal=first.decimal,
        sources=_sources([part.sources for part in parts]),
        spam=_spam([part.spam for part in parts if isinstance(part.spam, SpamDocument)]),
        **exact_sums(parts, "open_pnl", "total_cost_basis"),
        price_source=", ".join(sorted({part.price_source for part in parts})),
        **_links(parts, "img_small", "img_large", "explorer_url"),
    )


def _price(prices: Sequence[str], balance: Decimal | None, value: Decimal | None) -> str:
    """Return the common price; else value by balance, or unknown without either."""
    agreed = _agreed(prices)
    if not isinstance(agreed, UnsetType):
        return agreed
    if not balance or value is None:
        return UNKNOWN
    return amounts.text(rounded(Fraction(value) / Fraction(balance), PLACES))


def _spam(verdicts: Sequence[SpamDocument]) -> SpamDocument | UnsetType:
    """Return the gravest of several verdicts on one token; UNSET without one."""
    return max(verdicts, key=lambda each: (each.score, each.reasons)) if verdicts else UNSET


def _sources(all_sources: Sequence[Sources | UnsetType]) -> Sources | UnsetType:
    """Return the common evidence of several assets, with summed `raw` and all calls.

    UNSET if one has none, or if blocks or prices differ.
    """
    sources = [each for each in all_sources if isinstance(each, Sources)]
    if len(sources) < len(all_sources):
        return UNSET
    agreed = _agreed(msgspec.structs.replace(each, raw="", calls=()) for each in sources)
    raw = str(sum(int(each.raw) for each in sources))
    calls = tuple(sorted({call for each in sources for call in each.calls}, key=_WHOLE.encode))
    return msgspec.structs.replace(agreed, raw=raw, calls=calls) if isinstance(agreed, Sources) else UNSET
