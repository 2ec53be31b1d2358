"""Steps of prices are held in the prices of many blocks as they are where each block is asked for alone."""

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
from chainfolio.engine.prices.past_prices import MAX_ITERATIONS, PastPrices
from chainfolio.engine.prices.store import PriceStore
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
class Told:
    """A source of what it is told, by height; it notes at which blocks it was asked."""

    name: str
    says: Series
    asked: list[int] = field(default_factory=list)

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Quotes]:
        yield from ()
        self.asked.append(block.height)
        said = self.says.get(block.height, {})
        known = [each for each in assets if each in said]
        return Quotes(tuple(Price(each, Decimal(said[each]), self.name, block.time_us, Decimal(1)) for each in known))


def block(height: int) -> Block:
    return Block(height, f"0x{height}", f"0x{height - 1}", 1_700_000_000_000_000 + height * DAY_US)


Found = dict[int, dict[Asset, tuple[str, Decimal]]]


async def found(folder: Path, sources: Sequence[Told], batches: Sequence[Mapping[int, Sequence[Asset]]]) -> Found:
    """The prices that are found where these are asked for one after the other."""
    store = PriceStore("a", Lake(str(folder / "lake")), Tail(folder / "tail.sqlite"))
    past, all_of_them = PastPrices(cast(Chain, Final()), sources, store), dict[int, dict[Asset, tuple[str, Decimal]]]()
    for batch in batches:
        prices, issues = await past.prices({block(height): assets for height, assets in batch.items()})
        assert issues == []
        for height, each in prices.items():
            all_of_them.setdefault(height, {}).update({of: (one.source, one.usd) for of, one in each.items()})
    store.tail.close()
    return all_of_them


def both(batches: Sequence[Mapping[int, Sequence[Asset]]], *says: Series) -> tuple[Found, Found, list[Told]]:
    """What is found in these batches, and where each block is asked for alone; the sources of the first."""
    alone = [{height: batch[height]} for batch in batches for height in sorted(batch)]
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        asked = [Told(f"s{at}", each) for at, each in enumerate(says)]
        together = asyncio.run(found(Path(one), asked, batches))
        single = [Told(f"s{at}", each) for at, each in enumerate(says)]
        return together, asyncio.run(found(Path(other), single, alone)), asked


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
    together, alone, _ = both(batches, first, second)
    assert together == alone


def test_a_step_within_a_batch_is_held_and_what_comes_after_it_is_not() -> None:
    says = {1: {ETH: "100"}, 2: {ETH: "100000"}, 3: {ETH: "101"}}
    together, alone, (source,) = both([dict.fromkeys(says, (ETH,))], says)
    assert together == alone == {1: {ETH: ("s0", Decimal(100))}, 2: {}, 3: {ETH: ("s0", Decimal(101))}}
    assert source.asked == [1, 2, 3, 2]  # the one that was wrong is asked again, the others are not


def test_a_step_that_stays_is_the_price_once_the_last_one_is_too_old() -> None:
    says = {height: {ETH: "1" if height < 3 else "1000"} for height in range(1, 14)}
    together, alone, (source,) = both([dict.fromkeys(says, (ETH,))], says)
    assert together == alone
    assert [height for height, each in together.items() if not each] == [3, 4, 5, 6, 7, 8, 9]
    assert len(source.asked) < 2 * len(says) + 1


def test_a_price_that_is_kept_between_two_blocks_counts_for_the_later_one() -> None:
    says = {1: {ETH: "1"}, 2: {ETH: "9"}, 3: {ETH: "80"}}
    together, alone, _ = both([{1: [ETH]}, {2: [ETH]}, {1: [USDC], 3: [ETH]}], says)
    assert together == alone
    assert together[3] == {ETH: ("s0", Decimal(80))}


def test_what_is_not_settled_in_the_turns_that_there_are_has_no_price_rather_than_a_wrong_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("chainfolio.engine.prices.past_prices.MAX_ITERATIONS", 1)
    says = {1: {ETH: "100"}, 2: {ETH: "100000"}, 3: {ETH: "101"}}
    with TemporaryDirectory() as folder:
        got = asyncio.run(found(Path(folder), [Told("s0", says)], [dict.fromkeys(says, (ETH,))]))
    assert got[2] == {}
    assert MAX_ITERATIONS == 16


@pytest.mark.node
async def test_a_feed_that_jumps_for_a_block_has_no_price_there_alone_or_with_others(tmp_path: Path) -> None:
    with evm(3) as subject:
        heights = []
        for price in (2_000, 200_000, 2_010):
            set_price(subject.node, subject.deployment, "ETH", price * 10**8)
            heights.append(subject.node.height)
        subject.mine(70)
        said = []
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
                said.append({height: [price.usd for price in each.values()] for height, each in prices.items()})
    assert said[0] == said[1] == dict(zip(heights, ([Decimal(2_000)], [], [Decimal(2_010)]), strict=True))
