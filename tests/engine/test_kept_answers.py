"""An answer about a final block stays the same bytes and causes no request to its sources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.engine.stored_prices.store import PriceStore
from chainfolio.plans import Plan
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.document import encode_one
from chainfolio.portfolio.facts import ChainFacts, Options
from chainfolio.portfolio.valuation import valuate
from chainfolio.price_sources import Quotes
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import Index, index

pytestmark = pytest.mark.node


@dataclass
class Moody:
    """A source that says another price each time it is asked, and notes how often."""

    name: str = "moody"
    request_count: int = 0

    def prices(self, assets: Any, block: Block) -> Plan[Quotes]:
        yield from ()
        self.request_count += len(assets)
        price = Decimal(self.request_count) / 7
        return Quotes(tuple(Price(each, price, self.name, block.time_us, Decimal(1)) for each in assets))


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(12) as chain:
        chain.mine(70)
        yield chain


def snapshotter(indexed: Index, source: Moody, store: PriceStore | None) -> Snapshotter:
    book = TokenBook(indexed.chain.key, indexed.lake, {})
    return Snapshotter(indexed.chain, indexed.lake, indexed.tail, book, (source,), store=store)


async def answer(source: Snapshotter, account: str, block: Block) -> bytes:
    """The document of a portfolio at a block, with its sources."""
    valuation = valuate([await source.take([account], block)])
    facts = {"local": ChainFacts("local", "Local", 31337)}
    return encode_one(portfolio(account, valuation, facts, updated_ms=0, options=Options(sources=True)))


async def test_a_past_answer_is_the_same_bytes_after_its_source_changed_its_mind(
    subject: EvmSubject, tmp_path: Path
) -> None:
    account, source = subject.deployment.accounts["alice"].lower(), Moody()
    async with index(subject, tmp_path) as indexed:
        await indexed.fill_final()
        await indexed.materialise()
        await indexed.chain.heads()
        store = PriceStore(indexed.key, indexed.lake, indexed.tail)
        block = await indexed.chain.block(subject.height - 66)
        assert indexed.chain.is_final(block.height)
        bare = snapshotter(indexed, source, None)
        assert await answer(bare, account, block) != await answer(bare, account, block)  # its source is moody indeed
        first = await answer(snapshotter(indexed, source, store), account, block)
        request_count = source.request_count
        assert b'"moody"' in first
        assert await answer(snapshotter(indexed, source, store), account, block) == first
        assert await snapshotter(indexed, source, store).settle_prices() > 1
        anew = PriceStore(indexed.key, Lake(indexed.lake.uri), Tail(indexed.tail.place, reader=True))
        assert await answer(snapshotter(indexed, source, anew), account, block) == first
        anew.tail.close()
        assert source.request_count == request_count


async def test_prices_of_past_blocks_are_asked_for_once_and_not_again_by_another_process(
    subject: EvmSubject, tmp_path: Path
) -> None:
    source = Moody()
    async with index(subject, tmp_path) as indexed:
        await indexed.fill_final()
        await indexed.chain.heads()
        store = PriceStore(indexed.key, indexed.lake, indexed.tail)
        native: Asset = indexed.chain.info.native.asset
        assets_by_block = {await indexed.chain.block(height): [native] for height in (2, 3, 4)}
        first, issues = await snapshotter(indexed, source, store).past.prices(assets_by_block)
        assert (issues, source.request_count) == ([], 3)
        await snapshotter(indexed, source, store).settle_prices()
        before = indexed.chain.requests
        second_prices, _ = await snapshotter(indexed, source, store).past.prices(assets_by_block)
        assert (second_prices, source.request_count, indexed.chain.requests) == (first, 3, before)


async def test_prices_at_the_head_are_kept_when_its_block_is_final_and_gone_when_it_was_reorganised(
    subject: EvmSubject, tmp_path: Path
) -> None:
    account, source = subject.deployment.accounts["bob"].lower(), Moody()
    async with index(subject, tmp_path) as indexed:
        store = PriceStore(indexed.key, indexed.lake, indexed.tail)
        taking = snapshotter(indexed, source, store)
        saved = subject.node.rpc("evm_snapshot")
        subject.mine(1)
        replaced_block = (await taking.take([account], live=True)).block
        assert (await taking.settle_prices(), store.has_waiting()) == (0, True)
        subject.node.rpc("evm_revert", saved)
        subject.trade(1, 5)
        snapshot = await taking.take([account], live=True)
        subject.mine(70)
        assert await taking.settle_prices() == len(snapshot.prices)
        assert not store.has_waiting()
        assert {each.usd for each in store.at(snapshot.block).values()} == {each.usd for each in snapshot.prices}
        assert replaced_block.hash != snapshot.block.hash
