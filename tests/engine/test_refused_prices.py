"""What needs no second request: prices that sources refuse at final blocks, and reads of the newest block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from bench.first import DelayedProxy
from chainfolio.assets import Asset, account
from chainfolio.blocks import Block
from chainfolio.chains import Chain
from chainfolio.cli.demo import index_chain, prepare
from chainfolio.engine.gains.pnl import PnlRequest, pnl
from chainfolio.engine.service import Engine
from chainfolio.engine.stored_prices import past_prices
from chainfolio.engine.stored_prices.past_prices import PastPrices
from chainfolio.engine.stored_prices.store import PriceStore
from chainfolio.indexer.wiring import System
from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import HABITS, trade
from chainfolio.plans import Plan
from chainfolio.portfolio.pnl.report import PnlDocument
from chainfolio.price_sources import Quotes, Refusal
from chainfolio.settings_file import load
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from tests.engine.test_price_steps import ETH, USDC, Final, ScriptedSource, block


@dataclass
class Refusing:
    """A source that refuses to price; `assets` lists what it was asked for."""

    name: str = "feeds"
    reads_chain_only: bool = True
    is_broken: bool = False
    assets: list[Asset] = field(default_factory=list)

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Quotes]:
        yield from ()
        self.assets += assets
        if self.is_broken:
            raise RuntimeError("broken")
        return Quotes(refused=tuple(Refusal(each, self.name, "no answer yet") for each in assets))


async def ask_twice(folder: Path, source: Refusing, *digests: str) -> list[Asset]:
    """Ask two processes for a price of ETH at a final block; return what the source was asked for."""
    for digest in digests:
        store = PriceStore("a", Lake(str(folder / "lake")), Tail(folder / "tail.sqlite"), sources=digest)
        prices, issues = await PastPrices(cast(Chain, Final()), [source], store).prices({block(3): [ETH]})
        assert (prices, issues) == ({3: {}}, [])
        store.tail.close()
    return source.assets


async def test_price_that_the_chain_refused_is_requested_once(tmp_path: Path) -> None:
    assert await ask_twice(tmp_path, Refusing(), "one", "one") == [ETH]


@pytest.mark.parametrize(
    ("source", "digests"),
    [
        (Refusing(), ("one", "two")),
        (Refusing(), ("", "")),
        (Refusing(reads_chain_only=False), ("one", "one")),
        (Refusing(is_broken=True), ("one", "one")),
    ],
    ids=["other sources", "no digest", "a vendor", "a source that failed"],
)
async def test_other_missing_prices_are_requested_again(
    tmp_path: Path, source: Refusing, digests: tuple[str, str]
) -> None:
    assert await ask_twice(tmp_path, source, *digests) == [ETH, ETH]


async def test_a_price_and_a_refusal_of_one_block_are_both_stored(tmp_path: Path) -> None:
    store = PriceStore("a", Lake(str(tmp_path / "lake")), Tail(tmp_path / "tail.sqlite"), sources="one")
    source, refusing = ScriptedSource("s0", {3: {ETH: "7"}}), Refusing()
    for _ in range(2):
        past = PastPrices(cast(Chain, Final()), [refusing, source], store)
        prices, _ = await past.prices({block(3): [ETH, USDC]})
        assert {each.usd for each in prices[3].values()} == {7}
    assert source.heights == [3, 3], "a vendor may price the other asset later"
    assert (refusing.assets.count(ETH), refusing.assets.count(USDC)) == (1, 2)
    store.tail.close()


@pytest.mark.parametrize("has_store", [True, False], ids=["with a store", "without one"])
async def test_a_full_cache_hides_no_price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_store: bool) -> None:
    monkeypatch.setattr(past_prices, "MAX_BLOCKS", 3)
    store = PriceStore("a", Lake(str(tmp_path / "lake")), Tail(tmp_path / "tail.sqlite"), sources="one")
    source = ScriptedSource("s0", {height: {ETH: "7"} for height in range(1, 9)})
    past = PastPrices(cast(Chain, Final()), [source], store if has_store else None)
    await past.prices({block(height): [ETH] for height in (5, 6, 7)})  # stored
    await past.prices({block(height): [ETH] for height in (1, 2, 3)})  # cached
    prices, issues = await past.prices({block(height): [ETH] for height in range(1, 9)})
    assert issues == []
    assert {height: {each.usd for each in by_asset.values()} for height, by_asset in prices.items()} == {
        height: {7} for height in range(1, 9)
    }
    store.tail.close()


@pytest.mark.slow("two reports of a chain with all protocols")
@pytest.mark.node
async def test_second_report_of_gains_takes_no_request(tmp_path: Path) -> None:
    with LocalNode() as node:
        deployment = deploy(node)
        trade(node, deployment, 25, may_fail=True)
        node.mine(20)
        prepare(tmp_path / "data", node, deployment, 0)
        proxy, file = DelayedProxy(node.url, 0), tmp_path / "data" / "chainfolio.toml"
        async with proxy.served() as address:
            file.write_text(file.read_text().replace(node.url, address))
            settings, reports, requests = load(file, {}), list[PnlDocument](), list[int]()
            await index_chain(system := System(settings), quiet=True)
            await system.close()
            for _ in range(2):
                system, before = System(settings, shares_answers=True), proxy.requests
                engine = Engine(system, max_lookups=None, adds_gains=False)
                reports.append(await pnl(engine, [account(deployment.accounts[name]) for name in HABITS], PnlRequest()))
                await system.close()
                requests.append(proxy.requests - before)
    assert requests[0]
    assert requests[1] == 0
    assert reports[0] == reports[1]
