"""Prices of past transactions are those of the feeds at their own blocks, read in few requests."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from chainfolio.adapters.evm.kind import KIND
from chainfolio.adapters.evm.prices.chainlink import Chainlink, build_chainlink
from chainfolio.adapters.evm.scan import ROUTE
from chainfolio.adapters.evm.scanner import CREATION, OVERRIDE, SINGLES
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.engine.results import TransactionFilter
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.engine.transactions.function_names import load
from chainfolio.engine.transactions.pages import Statement
from chainfolio.engine.transactions.subjects import Subject
from chainfolio.indexer.registry import Registry
from chainfolio.indexer.wiring import CONFIGS
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import set_price
from chainfolio.portfolio.facts import ChainFacts
from chainfolio.portfolio.transactions import TransactionAssetDocument, TransactionDocument
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import Index, index

pytestmark = pytest.mark.node
FUNCTIONS = load(CONFIGS / "functions.toml", KIND.selector)
YEAR_S = 365 * 86_400


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(20) as chain:
        for price in (1_900, 2_100, 2_345):
            chain.trade(3, price)
            set_price(chain.node, chain.deployment, "ETH", price * 10**8)
        chain.mine(70)
        yield chain


def feeds(subject: EvmSubject, indexed: Index) -> Chainlink:
    """The feeds of the chain: ether's is its wrapper's too."""
    facts, deployment = indexed.chain.facts, subject.deployment
    assets = {facts.token_asset(t.address.lower()): symbol for symbol, t in deployment.tokens.items()}
    assets[facts.native_asset] = "ETH"
    return build_chainlink(
        {
            str(asset): {
                "feed": deployment.feeds["ETH" if symbol == "WETH" else symbol].lower(),
                "decimals": 8,
                "heartbeat_s": YEAR_S,
            }
            for asset, symbol in assets.items()
            if symbol == "WETH" or symbol in deployment.feeds
        },
        "feeds",
    )


def snapshotter(subject: EvmSubject, indexed: Index) -> Snapshotter:
    book = TokenBook(indexed.chain.key, indexed.lake, {})
    return Snapshotter(indexed.chain, indexed.lake, indexed.tail, book, (feeds(subject, indexed),))


async def ask(
    source: Snapshotter, indexed: Index, account: str, limit: int = 250
) -> tuple[list[TransactionDocument], Statement]:
    statement = Statement(Registry(()), FUNCTIONS, 100_000, TransactionFilter(limit, 0))
    facts = ChainFacts("local", "Local", 31337)
    documents, _ = await statement.page([Subject(source, facts, indexed.datasets, (account,))])
    return documents, statement


async def filled(indexed: Index) -> None:
    await indexed.fill_final()
    await indexed.materialise()
    await indexed.follower().step()


def feed_price(node: LocalNode, feed: str, height: int) -> str:
    """Read the answer of a feed at the end of a block, as text."""
    raw = node.call(feed, "latestAnswer()(int256)", block=height)
    return f"{Decimal(raw).scaleb(-8).normalize():f}"


def check(subject: EvmSubject, documents: list[TransactionDocument]) -> set[str]:
    """Hold every price against its feed; the prices of ether that were met."""
    symbols = {t.address.lower(): symbol for symbol, t in subject.deployment.tokens.items()}
    ether = set()
    for each in documents:
        height = each.block_number
        coin = Decimal(feed_price(subject.node, subject.deployment.feeds["ETH"], height))
        ether.add(each.native_asset_fees.price)
        assert Decimal(each.fees_fiat) == Decimal(each.fees) * coin
        assert Decimal(each.value_fiat) == Decimal(each.value) * coin

        def priced(asset: TransactionAssetDocument, height: int = height) -> None:
            symbol = "ETH" if asset.contract == ZERO_ADDRESS else symbols.get(asset.contract, "")
            feed = subject.deployment.feeds.get("ETH" if symbol == "WETH" else symbol)
            if feed is None or asset.nft is not msgspec.UNSET:
                assert (asset.price, asset.value, asset.price_source) == ("N/A", "N/A", "N/A")
                return
            assert asset.price == feed_price(subject.node, feed, height)
            assert Decimal(asset.value) == Decimal(asset.balance) * Decimal(asset.price)
            assert asset.price_source == "chainlink"

        for asset in (each.native_asset_fees, *each.assets_in, *each.assets_out):
            priced(asset)
    return ether


@pytest.mark.slow("other heights of the same chain", only=["1"])
@pytest.mark.parametrize("route", [OVERRIDE, CREATION, SINGLES])
async def test_each_price_is_of_its_own_block_and_read_once(subject: EvmSubject, tmp_path: Path, route: int) -> None:
    account = subject.deployment.accounts["alice"].lower()
    async with index(subject, tmp_path) as indexed:
        await filled(indexed)
        indexed.chain.node.endpoints[0].learn(ROUTE, route)
        source = snapshotter(subject, indexed)
        await ask(source, indexed, account, 1)  # what tokens are called is asked once
        before = indexed.chain.requests
        documents, statement = await ask(source, indexed, account)
        first = indexed.chain.requests - before
        heights = {each.block_number for each in documents}
        deployed = [each for each in documents if each.native_asset_fees.price != "N/A"]
        assert len(heights) > 12
        assert len(check(subject, deployed)) > 3
        assert statement.issues == []
        before = indexed.chain.requests
        repeated, _ = await ask(source, indexed, account)
        assert repeated == documents
        # All prices of all blocks are one request, and none the second time.
        assert first == indexed.chain.requests - before + 1 <= 5


async def test_many_blocks_are_one_request(subject: EvmSubject, tmp_path: Path) -> None:
    async with index(subject, tmp_path) as indexed:
        await filled(indexed)
        source = snapshotter(subject, indexed)
        head = (await indexed.chain.heads()).latest.height
        blocks = await indexed.chain.blocks(range(head - 99, head + 1))
        before = indexed.chain.requests
        ether, dollar = source.native.asset, indexed.chain.info.token_asset(subject.token("USDC"))
        prices, issues = await source.past.prices({block: {ether, dollar} for block in blocks})
        assert indexed.chain.requests - before == 1
        assert issues == []
        assert {len(each) for each in prices.values()} == {2}
        for block in blocks[::9]:
            price = prices[block.height][ether]
            assert f"{price.usd.normalize():f}" == feed_price(
                subject.node, subject.deployment.feeds["ETH"], block.height
            )


async def test_before_there_was_a_feed_there_is_no_price(subject: EvmSubject, tmp_path: Path) -> None:
    async with index(subject, tmp_path) as indexed:
        await filled(indexed)
        source = snapshotter(subject, indexed)
        (early,) = await indexed.chain.blocks([1])
        before = indexed.chain.requests
        for _ in range(2):
            assert await source.past.prices({early: {source.native.asset}}) == ({1: {}}, [])
        assert indexed.chain.requests - before == 1


async def test_a_block_that_the_node_has_forgotten_has_no_price_and_that_is_said(tmp_path: Path) -> None:
    with evm(20, LocalNode(archive=False, extra_args=["--prune-history", "5"])) as subject:
        account = subject.deployment.accounts["alice"].lower()
        subject.mine(100)
        subject.trade(2, 1)
        async with index(subject, tmp_path) as indexed:
            await filled(indexed)
            source = snapshotter(subject, indexed)
            documents, statement = await ask(source, indexed, account)
            newest = subject.height
            fresh = [each for each in documents if each.block_number > newest - 3]
            old = [each for each in documents if each.block_number < newest - 50]
            assert fresh
            assert old
            check(subject, fresh)
            for each in old:
                record_assets = (each.native_asset_fees, *each.assets_in, *each.assets_out)
                assert {asset.price for asset in record_assets} | {asset.value for asset in record_assets} == {"N/A"}
                assert (each.value_fiat, each.fees_fiat) == ("N/A", "N/A")
            (issue,) = statement.issues
            assert (issue.adapter, issue.subject, issue.makes_partial) == ("local", "prices", False)
            assert "could not be read" in issue.reason
