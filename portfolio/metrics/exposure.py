"""The exposure of portfolios: their value by chain, by protocol and by asset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

from msgspec import UNSET

from chainfolio import amounts
from chainfolio.portfolio.document import UNKNOWN, AssetDocument, Portfolio, ProtocolChainDocument


class Exposure(NamedTuple):
    """Values in USD by chain, by protocol and by asset (`chain:contract`), with debt subtracted.

    `symbols` are those of the assets. `unpriced` are assets without a price: they are in no value.
    """

    chains: dict[str, Decimal]
    protocols: dict[str, Decimal]
    assets: dict[str, Decimal]
    unpriced: frozenset[str]
    symbols: dict[str, str]


def exposure(portfolios: Iterable[Portfolio]) -> Exposure:
    """Return the exposure of several portfolios together: values by chain, protocol and asset.

    Debts count negative. No value includes spam; assets without a value are in `unpriced`.
    """
    chains: defaultdict[str, list[Decimal]] = defaultdict(list)
    protocols: defaultdict[str, list[Decimal]] = defaultdict(list)
    assets: defaultdict[str, list[Decimal]] = defaultdict(list)
    unpriced: set[str] = set()
    symbols: dict[str, str] = {}
    for portfolio in portfolios:
        for protocol in portfolio.asset_by_protocols.values():
            for key, chain in protocol.chains.items():
                for asset, sign in _signed(chain):
                    if asset.spam is not UNSET:
                        continue
                    if asset.value == UNKNOWN:
                        unpriced.add(asset.chain_contract)
                        continue
                    symbols[asset.chain_contract] = asset.symbol
                    value = Decimal(asset.value)
                    value = value if sign > 0 else value.copy_negate()
                    for sums, name in ((chains, key), (protocols, protocol.key), (assets, asset.chain_contract)):
                        sums[name].append(value)
    return Exposure(_summed(chains), _summed(protocols), _summed(assets), frozenset(unpriced), symbols)


def _signed(chain: ProtocolChainDocument) -> Iterator[tuple[AssetDocument, int]]:
    """Yield the assets of a protocol on a chain with a sign: -1 for debt, 1 for all others."""
    for positions in chain.protocol_positions.values():
        yield from ((asset, 1) for asset in positions.assets)
        for nested in positions.protocol_positions:
            for part in (nested.assets, nested.supply_assets, nested.reward_assets, nested.dex_assets):
                yield from ((asset, 1) for asset in part)
            yield from ((asset, -1) for asset in nested.borrow_assets)


def _summed(values: dict[str, list[Decimal]]) -> dict[str, Decimal]:
    return {key: amounts.total(parts) for key, parts in sorted(values.items())}


def largest_first(values: dict[str, Decimal]) -> Sequence[tuple[str, Decimal]]:
    """Return keys and values by falling value, then by key."""
    return sorted(values.items(), key=lambda item: (item[1].copy_negate(), item[0]))
