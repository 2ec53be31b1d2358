"""Assets in the books that no wallet shows: gone, or not shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from chainfolio.exports.dataset import COMPLETE
from chainfolio.portfolio.document import UNKNOWN, WALLET, every_asset

if TYPE_CHECKING:
    from chainfolio.exports.commodities import AssetKey
    from chainfolio.portfolio.document import Portfolio, PositionDocument, ProtocolChainDocument

NOT_KNOWN: Final = "not asserted, because it is not completely known what the wallets hold"
IN_POSITION: Final = "not asserted, because it may stand for a position in a protocol"


class GoneAssets:
    """Knows which assets wallets certainly hold no more, by portfolios with the sources of positions."""

    def __init__(self, portfolios: Sequence[Portfolio]) -> None:
        """Remember what the portfolios hold and what they leave open, by chain and contract."""
        self._is_complete = all(each.completeness == COMPLETE for each in portfolios)
        self._lists_collectibles = all(each.nfts_by_collection is not UNSET for each in portfolios)
        self._chains = {key for portfolio in portfolios for key in portfolio.chains}
        self._unclear_chains: set[str] = set()
        self._not_shown: set[tuple[str, str]] = set()
        self._in_positions: set[tuple[str, str]] = set()
        for portfolio in portfolios:
            for key, protocol in portfolio.asset_by_protocols.items():
                for chain in protocol.chains.values():
                    self._add(chain, is_wallet=key == WALLET)

    def doubt(self, asset: AssetKey) -> str:
        """Return why wallets may still hold an asset that they do not show; empty if it is gone."""
        place = asset.chain, asset.contract.lower()
        is_listed = self._lists_collectibles or not asset.number
        if not self._is_complete or asset.chain not in self._chains or not is_listed or place in self._not_shown:
            return NOT_KNOWN
        return IN_POSITION if asset.chain in self._unclear_chains or place in self._in_positions else ""

    def _add(self, chain: ProtocolChainDocument, *, is_wallet: bool) -> None:
        """Note the assets of unknown balance on a chain, and the contracts of its positions.

        A chain with a position without sources is unclear.
        """
        for asset in every_asset(chain):
            if asset.balance == UNKNOWN:
                self._not_shown.add((chain.key, asset.contract.lower()))
        if is_wallet:
            return
        for positions in chain.protocol_positions.values():
            for position in positions.protocol_positions:
                contracts = set(_contracts(position))
                self._in_positions |= {(chain.key, contract.lower()) for contract in contracts}
                if position.sources is UNSET or not position.sources.calls:
                    self._unclear_chains.add(chain.key)


def _contracts(position: PositionDocument) -> Iterator[str]:
    """Yield the contracts that a position was read from; the token that stands for it is among them."""
    yield position.vault_address
    yield position.pool_address
    for call in () if position.sources is UNSET else position.sources.calls:
        if call.contract is not None:
            yield call.contract
