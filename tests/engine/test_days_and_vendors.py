"""A past day is the snapshot that was taken of it, byte for byte, after a vendor of its prices changed its mind."""

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
world, whole = test_history.world, test_history.whole
ETHER = "eip155:31337/slip44:60"


async def told(settings: Settings, wallets: Sequence[str], days: Sequence[date]) -> list[bytes]:
    """What a new process answers about these days; it moves what it keeps to the lake, as a server does."""
    system = System(settings)
    engine = Engine(system)
    found = [
        encode_one(each)
        for day in days
        for each in await engine.historical([account(wallet) for wallet in wallets], day)
    ]
    await engine.settle_prices()
    await system.close()
    return found


def forget(settings: Settings, *tables: str) -> None:
    for table in tables:
        shutil.rmtree(Path(settings.lake_uri, table))


async def test_a_day_that_is_recomputed_is_its_snapshot_after_a_vendor_changed_its_mind(
    world: World, whole: Settings, tmp_path: Path
) -> None:
    mind, days, wallets = [2000], DAYS[3:5], [world.wallets["alice"], world.wallets["carol"]]

    def says(request: web.Request) -> str:
        seen = {at: mind[0] for ats in moments(request).values() for at in ats}
        return answered(request, {"coingecko:ether": seen})

    async with vendor(says) as found:
        prices = tmp_path / "prices.toml"
        prices.write_text(f'[defillama]\nbase_url = "{found.url}"\n[defillama.coins]\n"{ETHER}" = "ether"\n')
        settings = msgspec.structs.replace(whole, prices_file=str(prices))
        taken = await told(settings, wallets, days)
        assert all(b'"price":"2000"' in each for each in taken)
        asked, mind[0] = len(found.requests), 2345
        forget(settings, SNAPSHOTS.name, SNAPSHOT_HOLDINGS.name)
        assert await told(settings, wallets, days) == taken
        assert len(found.requests) == asked > 0
        forget(settings, SNAPSHOTS.name, SNAPSHOT_HOLDINGS.name, PRICES.name)
        anew = await told(settings, wallets, days)
    assert anew != taken  # without what is kept, the day would be worth what the vendor says by now
    assert all(b'"price":"2345"' in each for each in anew)
