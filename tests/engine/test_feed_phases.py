"""Prices of a feed before and after its aggregator is replaced (Chainlink's phase change)."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.localchain.deploy import Deployer
from chainfolio.localchain.evm import ZERO
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import index
from tests.engine.test_past_prices import feeds

pytestmark = pytest.mark.node
ROUND = "latestRoundData()(uint80,int256,uint256,uint256,uint80)"
PHASE = "phaseId()(uint16)"


@pytest.fixture
def subject() -> Iterator[EvmSubject]:
    with evm(1) as chain:
        yield chain


def deployer(subject: EvmSubject) -> Deployer:
    account = subject.deployment.accounts["deployer"]
    return Deployer(subject.node, account, int(subject.node.rpc("eth_getTransactionCount", account, "latest"), 16))


def replaced(subject: EvmSubject, *, decimals: int, price: int | None) -> int:
    """Put another aggregator behind the feed of ether, and return the height.

    Without `price`, the new aggregator has no round yet.
    """
    work, feed = deployer(subject), subject.deployment.feeds["ETH"]
    aggregator = work.create(
        "next",
        "FluxAggregator",
        ("address", "uint128", "uint32", "address", "int256", "int256", "uint8", "string"),
        ZERO,
        0,
        600,
        ZERO,
        0,
        10**30,
        decimals,
        "ETH / USD",
    )
    oracle = [work.account]
    work.do(
        aggregator, "changeOracles(address[],address[],address[],uint32,uint32,uint32)", [], oracle, oracle, 1, 1, 0
    )
    if price is not None:
        work.do(aggregator, "submit(uint256,int256)", 1, price)
    work.do(feed, "proposeAggregator(address)", aggregator)
    work.do(feed, "confirmAggregator(address)", aggregator)
    work.settle()
    return subject.node.height


async def read_prices(subject: EvmSubject, folder: Path, heights: list[int]) -> list[tuple[Decimal | None, str]]:
    """Return the price of ether with its detail, or None with the reason, at each height."""
    prices_with_details: list[tuple[Decimal | None, str]] = []
    async with index(subject, folder, datasets=("transfers",)) as indexed:
        book = TokenBook(indexed.chain.key, indexed.lake, {})
        taking = Snapshotter(indexed.chain, indexed.lake, indexed.tail, book, (feeds(subject, indexed),))
        native = taking.native.asset
        for block in await indexed.chain.blocks(heights):
            quotes = (await taking.token_context([native], block)).quotes
            prices = {each.asset: each for each in quotes.prices}
            refusal_reasons = [each.reason for each in quotes.refused if each.asset == native]
            prices_with_details.append(
                (prices[native].usd, prices[native].detail) if native in prices else (None, refusal_reasons[0])
            )
    return prices_with_details


async def test_prices_before_and_after_a_phase_change_are_those_of_the_feed_at_the_block(
    subject: EvmSubject, tmp_path: Path
) -> None:
    feed, before = subject.deployment.feeds["ETH"], subject.node.height
    after = replaced(subject, decimals=8, price=2_345 * 10**8)
    subject.mine(3)
    phases = [subject.node.call(feed, PHASE, block=height) for height in (before, after)]
    assert phases[1] == phases[0] + 1
    expected = []
    for height in (before, after):
        number, answer, *_ = subject.node.call(feed, ROUND, block=height)
        expected.append((Decimal(answer).scaleb(-8), f"feed {feed.lower()} round {number}"))
    assert await read_prices(subject, tmp_path, [before, after]) == expected
    assert expected[0] != expected[1]
    assert int(expected[1][1].rpartition(" ")[2]) >> 64 == phases[1]


async def test_an_aggregator_with_other_decimals_prices_nothing_from_its_first_block_on(
    subject: EvmSubject, tmp_path: Path
) -> None:
    before, after = subject.node.height, replaced(subject, decimals=18, price=2_345 * 10**18)
    old, new = await read_prices(subject, tmp_path, [before, after])
    assert old[0] is not None
    assert (new[0], new[1].partition(" (")[0]) == (None, "the feed has 18 decimals, the settings say 8")


async def test_an_aggregator_without_a_round_prices_nothing(subject: EvmSubject, tmp_path: Path) -> None:
    ((usd, detail),) = await read_prices(subject, tmp_path, [replaced(subject, decimals=8, price=None)])
    assert (usd, detail.partition(" (")[0]) == (None, "the feed refused to tell its latest round")
