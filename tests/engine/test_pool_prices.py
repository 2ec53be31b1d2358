"""Portfolios priced from pools on a real node: moved pools and spam pools change no account's value."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.evm.protocols.uniswap_v2 import FAMILY
from chainfolio.contracts import Snapshot
from chainfolio.engine.results import TransactionFilter
from chainfolio.engine.snapshots.mixed_reads import with_mixed_reads
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.engine.transactions.pages import Statement
from chainfolio.engine.transactions.subjects import Subject
from chainfolio.environment import Environment
from chainfolio.indexer.registry import Registry
from chainfolio.localchain.airdrop import airdrop
from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.deploy import FOREVER, WAD, Deployer
from chainfolio.localchain.evm import Tx, created_address, tx, words
from chainfolio.localchain.hostile import GOOD, TRANSFER, Log, log_tx
from chainfolio.portfolio.activity import Functions
from chainfolio.portfolio.facts import ChainFacts
from chainfolio.portfolio.nav import nav
from chainfolio.portfolio.pnl.entries import money
from chainfolio.portfolio.pnl.methods import gains_of
from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.records import entries_of
from chainfolio.portfolio.pnl.transaction_records import record_of
from chainfolio.portfolio.transactions import TransactionDocument
from chainfolio.portfolio.valuation import valuate
from chainfolio.pricing.http_reads import Http
from chainfolio.pricing.registry import build_sources
from chainfolio.protocols import InstalledProtocol, InstalledProtocols
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import index
from tests.pricing.pool_chain import PoolChain, section

pytestmark = pytest.mark.node
NONE = InstalledProtocols()


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(5) as chain:
        yield chain


@pytest.fixture(scope="module")
def market(subject: EvmSubject) -> PoolChain:
    """Return the chain with a deployer of pools, and WETH and USDC as trusted tokens."""
    node, account = subject.node, subject.deployment.accounts["deployer"]
    nonce = int(node.rpc("eth_getTransactionCount", account, "pending"), 16)
    deployer = Deployer(node, account, nonce)
    deployer.contracts.update(subject.deployment.contracts)
    chain = PoolChain(node, deployer, dict(subject.deployment.tokens))
    for symbol in ("WETH", "USDC"):
        chain.trusting(symbol)
    chain.deployer.do(chain.tokens["WETH"].address, "deposit()", value=2000 * WAD)
    chain.deployer.settle()
    return chain


def settings(market: PoolChain, feeds: Any) -> dict[str, Any]:
    coins = {"WETH": "ETH", "USDC": "USDC"}
    chainlink = {
        str(market.asset(symbol)): {"feed": feeds[feed].lower(), "decimals": 8, "heartbeat_s": 10**6}
        for symbol, feed in coins.items()
    }
    return {"chainlink": {"local": chainlink}, "pools": {"local": section(market, {"WETH": "5", "USDC": "10000"})}}


def take_snapshot(
    subject: EvmSubject, market: PoolChain, folder: Path, account: str, installed: InstalledProtocols = NONE
) -> Snapshot:
    """Index the chain and take a snapshot of an account."""

    async def go() -> Snapshot:
        async with index(subject, folder) as indexed:
            await indexed.fill_final()
            await indexed.materialise()
            await indexed.follower().step()
            priced = build_sources(settings(market, subject.deployment.feeds), {}, indexed.key, "evm")
            http = Http(Environment())
            book = TokenBook(indexed.chain.key, indexed.lake, {})
            snapshotter = Snapshotter(
                with_mixed_reads(indexed.chain, http), indexed.lake, indexed.tail, book, priced, installed
            )
            return await snapshotter.take([account], await indexed.chain.block(subject.height))

    return asyncio.run(go())


def test_who_moves_a_pool_moves_nobody_s_net_asset_value(
    subject: EvmSubject, market: PoolChain, tmp_path: Path
) -> None:
    holder = "0x" + "7a" * 20
    market.token("PEPE")
    market.pair("PEPE", 10**6 * WAD, "WETH", 100 * WAD)
    market.do(market.tokens["PEPE"].address, "transfer(address,uint256)", holder, 1000 * WAD)
    market.do(market.tokens["USDC"].address, "transfer(address,uint256)", holder, 50 * 10**6)
    market.node.mine()
    honest = nav(valuate([take_snapshot(subject, market, tmp_path / "1", holder)]))
    assert (honest.nav, honest.unpriced_assets) == (Decimal(250), 0)  # 1,000 PEPE for 0.1 WETH of 2,000 USD, 50 USDC

    market.swap("WETH", "PEPE", 900 * WAD)  # a hundred times the price, at the end of the block
    snapshot = take_snapshot(subject, market, tmp_path / "2", holder)
    moved_nav = nav(valuate([snapshot]))
    assert (moved_nav.nav, moved_nav.unpriced_assets) == (Decimal(50), 1)
    (pool_issue,) = [issue for issue in snapshot.issues if issue.adapter == "pools"]
    assert pool_issue.subject == str(market.asset("PEPE"))
    assert "within the block: manipulated?" in pool_issue.reason
    assert not pool_issue.makes_partial


def test_what_somebody_sends_of_a_token_with_a_thin_market_is_worth_no_more_than_that_pays(
    subject: EvmSubject, market: PoolChain, tmp_path: Path
) -> None:
    holder = "0x" + "7b" * 20
    market.token("WHALE")
    market.pair("WHALE", 10**6 * WAD, "WETH", 100 * WAD)
    market.do(market.tokens["WHALE"].address, "mint(address,uint256)", holder, 10**12 * WAD)
    market.node.mine()

    async def go() -> tuple[Snapshot, list[TransactionDocument]]:
        async with index(subject, tmp_path) as indexed:
            await indexed.fill_final()
            await indexed.materialise()
            await indexed.follower().step()
            priced = build_sources(settings(market, subject.deployment.feeds), {}, indexed.key, "evm")
            book = TokenBook(indexed.chain.key, indexed.lake, {})
            source = Snapshotter(
                with_mixed_reads(indexed.chain, Http(Environment())), indexed.lake, indexed.tail, book, priced
            )
            page_subject = Subject(source, ChainFacts(indexed.key, "Local", 31337), indexed.datasets, (holder,))
            statement = Statement(Registry(()), Functions(), 1000, TransactionFilter(10, 0))
            snapshot = await source.take([holder], await indexed.chain.block(subject.height))
            return snapshot, (await statement.page([page_subject]))[0]

    snapshot, (record,) = asyncio.run(go())
    (incoming,) = record.assets_in
    assert nav(valuate([snapshot])).nav == Decimal(incoming.value) == 200_000  # what is in the pool, and not 2 * 10^14
    (entry,) = entries_of([record_of(record)], {holder}, Treatment()).entries
    assert (entry.kind, entry.value) == ("received", money(Decimal(200_000)))


def test_a_token_that_logs_what_it_likes_at_a_price_of_its_own_market_is_no_gain_and_no_loss(
    subject: EvmSubject, market: PoolChain, tmp_path: Path
) -> None:
    """The token's maker opens a real market for it, and logs transfers to and from a wallet."""
    holder, maker, weth = "0x" + "7d" * 20, market.node.accounts[9], market.tokens["WETH"].address
    rows = [answer.row(signature) for signature, answer in GOOD.items()]
    nonce = int(market.node.rpc("eth_getTransactionCount", maker, "pending"), 16)
    market.node.settle(
        [Tx(maker, None, artifact("Hostile").creation(words(["(bytes4,uint8,uint256,bytes)[]"], rows)), gas=6_000_000)]
    )
    bait, factory = created_address(maker, nonce), market.contracts["UniswapV2Factory"]
    market.do(factory, "createPair(address,address)", bait, weth)
    pair = market.node.call(factory, "getPair(address,address)(address)", bait, weth)
    to = "transfer(address,uint256)"
    market.do(weth, to, pair, 100 * WAD)
    market.do(pair, "mint(address)", maker)
    market.node.mine()
    parties = ["0x" + "00" * 12 + each[2:].lower() for each in (maker, holder)]
    for ends, count in ((parties, 3), (parties[::-1], 2)):
        log = Log([TRANSFER, *ends], words(["uint256"], 1000 * WAD))
        market.node.settle([log_tx(maker, bait, log)] * count)
    market.do(market.tokens["USDC"].address, to, holder, 50 * 10**6)

    async def go() -> tuple[Snapshotter, list[TransactionDocument]]:
        async with index(subject, tmp_path) as indexed:
            await indexed.fill_final()
            await indexed.materialise()
            await indexed.follower().step()
            priced = build_sources(settings(market, subject.deployment.feeds), {}, indexed.key, "evm")
            book = TokenBook(indexed.chain.key, indexed.lake, {})
            source = Snapshotter(
                with_mixed_reads(indexed.chain, Http(Environment())), indexed.lake, indexed.tail, book, priced
            )
            page_subject = Subject(source, ChainFacts(indexed.key, "Local", 31337), indexed.datasets, (holder,))
            statement = Statement(Registry(()), Functions(), 1000, TransactionFilter(10, 0, newest_first=False))
            return source, (await statement.page([page_subject]))[0]

    source, records = asyncio.run(go())
    forged = [
        asset
        for record in records
        for asset in (*record.assets_in, *record.assets_out)
        if asset.contract == bait.lower()
    ]
    assert [asset.value for asset in forged] == ["200000"] * 5, "each is worth what the market holds"
    vouched = Treatment(is_trusted=lambda key: source.is_trusted_contract(key.partition(":")[2]))
    read = entries_of(list(map(record_of, records)), {holder}, vouched)
    assert [each.kind for each in read.entries] == ["unasked"] * 3 + ["taken"] * 2 + ["received"]
    gains = gains_of(read.entries, "fifo")
    assert gains.gains == []
    (usdc,) = [each for each in gains.remaining if each.quantity]
    assert (usdc.quantity, usdc.cost) == (50 * 10**6, money(Decimal(50)))


def test_worthless_pairs_with_a_token_mint_no_more_than_its_own_market_could_pay(
    subject: EvmSubject, market: PoolChain, tmp_path: Path
) -> None:
    """Pairs with an unpriced token cost only gas, but hold units of the priced token."""
    holder, router = "0x" + "7c" * 20, market.contracts["UniswapV2Router02"]
    market.token("BAIT")
    market.pair("BAIT", 10**6 * WAD, "WETH", 100 * WAD)
    add = "addLiquidity(address,address,uint256,uint256,uint256,uint256,address,uint256)"
    for number in range(5):
        market.token(f"JUNK{number}")
        tokens = (market.tokens[symbol].address for symbol in ("BAIT", f"JUNK{number}"))
        market.do(router, add, *tokens, 10**7 * WAD, WAD, 0, 0, holder, FOREVER)
    market.node.mine()
    pairs = InstalledProtocol("uniswap2", FAMILY, {"factory": (market.contracts["UniswapV2Factory"].lower(),)}, {})
    snapshot = take_snapshot(subject, market, tmp_path, holder, InstalledProtocols((pairs,)))
    valuation = valuate([snapshot])
    assert len(valuation.positions) == 5
    assert nav(valuation).nav == 200_000, "what lies in the pool with WETH, and not five times that"
    (issue,) = valuation.capped_issues
    assert "200000 USD at most" in issue.reason


def test_spam_for_which_somebody_opened_a_pool_is_spam_still(
    subject: EvmSubject, market: PoolChain, tmp_path: Path
) -> None:
    moon = airdrop(subject.node, subject.deployment)["MOON"]
    bob, weth = subject.deployment.accounts["bob"].lower(), market.tokens["WETH"].address
    factory = market.contracts["UniswapV2Factory"]
    market.do(factory, "createPair(address,address)", moon, weth)
    pair = market.node.call(factory, "getPair(address,address)(address)", moon, weth)
    market.do(weth, "transfer(address,uint256)", pair, 100 * WAD)
    market.do(pair, "mint(address)", market.me)
    market.node.settle([tx(market.me, weth, "transfer(address,uint256)", bob, 1)])
    snapshot = take_snapshot(subject, market, tmp_path, bob)
    prices = {price.asset.reference: price for price in snapshot.prices}
    assert prices[moon.lower()].source == "pools"
    assert prices[moon.lower()].depth_usd == 200_000
    (reasons,) = [each.reasons for (_, asset), each in snapshot.spam.items() if asset.reference == moon.lower()]
    assert {"MASS_TRANSFER", "UNSOLICITED", "NO_PRICE"} <= set(reasons)
