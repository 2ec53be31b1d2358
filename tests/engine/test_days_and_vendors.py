"""A past day equals its stored snapshot byte for byte after a price vendor changes its answers."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from chainfolio.assets import account
from chainfolio.engine.service import Engine
from chainfolio.indexer.wiring import System
from chainfolio.portfolio.document import encode_one
from chainfolio.settings import Settings
from chainfolio.tables import PRICES, SNAPSHOT_HOLDINGS, SNAPSHOTS
from tests.e2e.conftest import World
from tests.engine import test_history
from tests.engine.test_history import DAYS
from tests.pricing.test_defillama import answered, moments
from tests.pricing.vendor_server import vendor

pytestmark = pytest.mark.node
world, indexed_settings = test_history.world, test_history.indexed_settings
ETHER = "eip155:31337/slip44:60"


async def read_days(settings: Settings, wallets: Sequence[str], days: Sequence[date]) -> list[bytes]:
    """Return the encoded portfolios of these days from a new process, which moves its prices to the lake."""
    system = System(settings)
    engine = Engine(system)
    answers = [
        encode_one(each)
        for day in days
        for each in await engine.historical([account(wallet) for wallet in wallets], day)
    ]
    await engine.settle_prices()
    await system.close()
    return answers


def forget(settings: Settings, *tables: str) -> None:
    for table in tables:
        shutil.rmtree(Path(settings.lake_uri, table))


async def test_a_day_that_is_recomputed_is_its_snapshot_after_a_vendor_changed_its_mind(
    world: World, indexed_settings: Settings, tmp_path: Path
) -> None:
    mind, days, wallets = [2000], DAYS[3:5], [world.wallets["alice"], world.wallets["carol"]]

    def says(request: web.Request) -> str:
        price_by_time = {at: mind[0] for ats in moments(request).values() for at in ats}
        return answered(request, {"coingecko:ether": price_by_time})

    async with vendor(says) as server:
        prices = tmp_path / "prices.toml"
        prices.write_text(f'[defillama]\nbase_url = "{server.url}"\n[defillama.coins]\n"{ETHER}" = "ether"\n')
        settings = msgspec.structs.replace(indexed_settings, prices_file=str(prices))
        snapshots = await read_days(settings, wallets, days)
        assert all(b'"price":"2000"' in each for each in snapshots)
        request_count, mind[0] = len(server.requests), 2345
        forget(settings, SNAPSHOTS.name, SNAPSHOT_HOLDINGS.name)
        assert await read_days(settings, wallets, days) == snapshots
        assert len(server.requests) == request_count > 0
        forget(settings, SNAPSHOTS.name, SNAPSHOT_HOLDINGS.name, PRICES.name)
        anew = await read_days(settings, wallets, days)
    assert anew != snapshots  # without what is kept, the day would be worth what the vendor says by now
    assert all(b'"price":"2345"' in each for each in anew)
