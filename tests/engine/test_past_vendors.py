"""Past prices with a vendor among the sources: many blocks in one request, and isolated failures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import pytest

from chainfolio.assets import Asset, asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.engine.snapshots.mixed_reads import with_mixed_reads
from chainfolio.engine.stored_prices.past_prices import PastPrices
from chainfolio.environment import Environment
from chainfolio.plans import Plan
from chainfolio.price_sources import Quotes
from chainfolio.pricing.defillama import SECTION
from chainfolio.pricing.http_reads import Http
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import index
from tests.pricing.test_defillama import answered
from tests.pricing.vendor_server import vendor

pytestmark = pytest.mark.node
TOKEN, OTHER = (asset(f"eip155:1/erc20:0x{number:040x}") for number in (1, 2))


class Behind:
    """A source that reads the chain after the vendor was asked."""

    name = "behind"

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Quotes]:
        from chainfolio.adapters.evm.reads import NativeBalance

        (balance,) = yield [NativeBalance("0x" + "a1" * 20)]
        assert isinstance(balance, int), balance
        priced_assets = [each for each in assets if each == OTHER]
        return Quotes(tuple(Price(each, Decimal(7), self.name, block.time_us, Decimal(1)) for each in priced_assets))


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(5) as chain:
        chain.mine(70)
        yield chain


async def test_a_vendor_is_asked_once_for_many_blocks_and_its_failure_spoils_no_other_source(
    subject: EvmSubject, tmp_path: Path
) -> None:
    down = [True]
    async with index(subject, tmp_path, datasets=("transfers",)) as indexed:
        await indexed.fill_final()
        blocks = await indexed.chain.blocks([2, 3, 4])
        assets_by_block = dict.fromkeys(blocks, (TOKEN, OTHER))
        price_by_time = {block.time_us // 1_000_000: number for number, block in enumerate(blocks, 1)}
        async with vendor(
            lambda request: 404 if down[0] else answered(request, {f"x:{TOKEN.reference}": price_by_time})
        ) as server:
            http = Http(Environment())
            source = SECTION.build({"base_url": server.url, "chains": {"eip155:1": "x"}}, "local", "defillama")
            past = PastPrices(with_mixed_reads(indexed.chain, http), (source, Behind()))
            prices, issues = await past.prices(assets_by_block)
            assert [[price.source for price in each.values()] for each in prices.values()] == [["behind"]] * 3
            assert issues == []
            down[0], before = False, len(server.requests)
            prices, issues = await past.prices(assets_by_block)
            await http.close()
    assert [each[TOKEN].usd for each in prices.values()] == [1, 2, 3]
    assert [each[OTHER].usd for each in prices.values()] == [7, 7, 7]
    assert len(server.requests) == before + 1
