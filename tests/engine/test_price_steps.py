"""Prices of many blocks hold steps back exactly as prices of single blocks do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainfolio.assets import Asset, asset
from chainfolio.blocks import Block
from chainfolio.chains import Chain
from chainfolio.contracts import Price
from chainfolio.engine.stored_prices.past_prices import MAX_ITERATIONS, PastPrices
from chainfolio.engine.stored_prices.store import PriceStore
from chainfolio.localchain.trade import set_price
from chainfolio.plans import Plan
from chainfolio.price_sources import Quotes
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from tests.chains.evm import evm
from tests.chains.index import index
from tests.engine.test_past_prices import feeds

DAY_US = 86_400_000_000
ETH, USDC = asset("eip155:1/slip44:60"), asset(f"eip155:1/erc20:0x{'a0' * 20}")
Series = Mapping[int, Mapping[Asset, str]]


@dataclass
class Final:
    """A chain all of whose blocks are final; its sources here read nothing of it."""

    key: str = "a"

    def is_final(self, height: int) -> bool:
        return height >= 0


@dataclass
class ScriptedSource:
    """A price source with given prices by height; `heights` lists the blocks that were read."""

    name: str
    says: Series
    heights: list[int] = field(default_factory=list)

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Quotes]:
        yield from ()
        self.heights.append(block.height)
        price_by_asset = self.says.get(block.height, {})
        priced_assets = [each for each in assets if each in price_by_asset]
        return Quotes(
            tuple(
                Price(each, Decimal(price_by_asset[each]), self.name, block.time_us, Decimal(1))
                for each in priced_assets
            )
        )


def block(height: int) -> Block:
    return Block(height, f"0x{height}", f"0x{height - 1}", 1_700_000_000_000_000 + height * DAY_US)


PricesByHeight = dict[int, dict[Asset, tuple[str, Decimal]]]


async def read_prices(
    folder: Path, sources: Sequence[ScriptedSource], batches: Sequence[Mapping[int, Sequence[Asset]]]
) -> PricesByHeight:
    """Return the prices of these batches, read one after the other."""
    store = PriceStore("a", Lake(str(folder / "lake")), Tail(folder / "tail.sqlite"))
    past, all_of_them = PastPrices(cast(Chain, Final()), sources, store), dict[int, dict[Asset, tuple[str, Decimal]]]()
    for batch in batches:
        prices, issues = await past.prices({block(height): assets for height, assets in batch.items()})
        assert issues == []
        for height, each in prices.items():
            all_of_them.setdefault(height, {}).update({of: (price.source, price.usd) for of, price in each.items()})
    store.tail.close()
    return all_of_them


def both(
    batches: Sequence[Mapping[int, Sequence[Asset]]], *says: Series
) -> tuple[PricesByHeight, PricesByHeight, list[ScriptedSource]]:
    """Return prices of these batches, prices of each block read alone, and the sources of the batches."""
    alone = [{height: batch[height]} for batch in batches for height in sorted(batch)]
    with TemporaryDirectory() as first_folder, TemporaryDirectory() as second_folder:
        sources = [ScriptedSource(f"s{at}", each) for at, each in enumerate(says)]
        batch_prices = asyncio.run(read_prices(Path(first_folder), sources, batches))
        single = [ScriptedSource(f"s{at}", each) for at, each in enumerate(says)]
        return batch_prices, asyncio.run(read_prices(Path(second_folder), single, alone)), sources


SAID = st.dictionaries(
    st.integers(1, 14),
    st.dictionaries(st.sampled_from([ETH, USDC]), st.sampled_from(["1", "3", "25", "300"])),
    min_size=8,
)
BATCH = st.dictionaries(st.integers(1, 14), st.lists(st.sampled_from([ETH, USDC]), unique=True, min_size=1), min_size=1)


@settings(max_examples=40, deadline=None)
@given(st.lists(BATCH, min_size=1, max_size=3), SAID, SAID)
def test_many_blocks_at_once_have_the_prices_that_each_alone_has(
    batches: list[dict[int, list[Asset]]], first: Series, second: Series
) -> None:
    batch_prices, alone, _ = both(batches, first, second)
    assert batch_prices == alone


def test_a_step_within_a_batch_is_held_and_what_comes_after_it_is_not() -> None:
    says = {1: {ETH: "100"}, 2: {ETH: "100000"}, 3: {ETH: "101"}}
    batch_prices, alone, (source,) = both([dict.fromkeys(says, (ETH,))], says)
    assert batch_prices == alone == {1: {ETH: ("s0", Decimal(100))}, 2: {}, 3: {ETH: ("s0", Decimal(101))}}
    assert source.heights == [1, 2, 3, 2]  # the one that was wrong is asked again, the others are not


def test_a_step_that_stays_is_the_price_once_the_last_one_is_too_old() -> None:
    says = {height: {ETH: "1" if height < 3 else "1000"} for height in range(1, 14)}
    batch_prices, alone, (source,) = both([dict.fromkeys(says, (ETH,))], says)
    assert batch_prices == alone
    assert [height for height, each in batch_prices.items() if not each] == [3, 4, 5, 6, 7, 8, 9]
    assert len(source.heights) < 2 * len(says) + 1


def test_a_price_that_is_kept_between_two_blocks_counts_for_the_later_one() -> None:
    says = {1: {ETH: "1"}, 2: {ETH: "9"}, 3: {ETH: "80"}}
    batch_prices, alone, _ = both([{1: [ETH]}, {2: [ETH]}, {1: [USDC], 3: [ETH]}], says)
    assert batch_prices == alone
    assert batch_prices[3] == {ETH: ("s0", Decimal(80))}


def test_what_is_not_settled_in_the_turns_that_there_are_has_no_price_rather_than_a_wrong_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("chainfolio.engine.stored_prices.past_prices.MAX_ITERATIONS", 1)
    says = {1: {ETH: "100"}, 2: {ETH: "100000"}, 3: {ETH: "101"}}
    with TemporaryDirectory() as folder:
        prices = asyncio.run(read_prices(Path(folder), [ScriptedSource("s0", says)], [dict.fromkeys(says, (ETH,))]))
    assert prices[2] == {}
    assert MAX_ITERATIONS == 16


@pytest.mark.node
async def test_a_feed_that_jumps_for_a_block_has_no_price_there_alone_or_with_others(tmp_path: Path) -> None:
    with evm(3) as subject:
        heights = []
        for price in (2_000, 200_000, 2_010):
            set_price(subject.node, subject.deployment, "ETH", price * 10**8)
            heights.append(subject.node.height)
        subject.mine(70)
        price_lists = []
        for name in ("together", "alone"):
            async with index(subject, tmp_path / name) as indexed:
                await indexed.fill_final()
                blocks = await indexed.chain.blocks(heights)
                store = PriceStore(indexed.chain.key, indexed.lake, indexed.tail)
                past, native = (
                    PastPrices(indexed.chain, (feeds(subject, indexed),), store),
                    indexed.chain.info.native.asset,
                )
                parts = [[each] for each in blocks] if name == "alone" else [blocks]
                prices = dict[int, dict[Asset, Price]]()
                for part in parts:
                    prices |= (await past.prices(dict.fromkeys(part, (native,))))[0]
                price_lists.append({height: [price.usd for price in each.values()] for height, each in prices.items()})
    assert price_lists[0] == price_lists[1] == dict(zip(heights, ([Decimal(2_000)], [], [Decimal(2_010)]), strict=True))
