"""Nodes of other makers than anvil: their answers are read in the same way, and missing ones are issues."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainfolio.amounts import raw_from_bytes
from chainfolio.blocks import Span
from chainfolio.cli.demo import index_chain, prepare
from chainfolio.contracts import Snapshot
from chainfolio.engine.wiring import snapshotter_of
from chainfolio.errors import UnsupportedMethod
from chainfolio.indexer.wiring import System
from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import trade
from tests.chains.index import FETCHED, in_order, index
from tests.nodes.conftest import started
from tests.nodes.small import SmallSubject

pytestmark = [pytest.mark.node, pytest.mark.xdist_group("nodes")]


async def test_every_row_is_that_of_a_plain_reading(small_subject: SmallSubject, tmp_path: Path) -> None:
    async with index(small_subject, tmp_path) as indexed:
        await indexed.fill_final()
        await indexed.follower().step()
        plain = small_subject.rows(Span(0, small_subject.height))
        for table in FETCHED:
            assert indexed.rows(table) == in_order(plain[table]), table
        assert {row["standard"] for row in plain["transfers"]} == {"native", "erc20", "wrap", "unwrap"}
        assert indexed.chain.node.endpoints[0].capabilities["receipts"] == 1


async def test_a_snapshot_of_any_block_is_what_the_contracts_said_there(
    small_subject: SmallSubject, tmp_path: Path
) -> None:
    async with index(small_subject, tmp_path) as indexed:
        await indexed.fill_final()
        await indexed.follower().step()
        for height in (small_subject.birth, small_subject.birth + 5, small_subject.height):
            snapshot = await indexed.snapshot(
                small_subject.accounts, await indexed.chain.block(height), small_subject.plain
            )
            raw_by_asset = {(each.account, each.token.asset.reference): each.raw for each in snapshot.holdings}
            assert snapshot.issues == ()
            for account in small_subject.accounts:
                assert raw_by_asset[account, "60"] == small_subject.native(account, height)
                for token in small_subject.plain:
                    assert raw_by_asset.get((account, token), 0) == small_subject.balance(account, token, height)


async def test_a_reverted_past_leaves_nothing_behind(small_subject: SmallSubject, tmp_path: Path) -> None:
    async with index(small_subject, tmp_path) as indexed:
        await indexed.fill_final()
        before = small_subject.node.snapshot()
        small_subject.trade(5, seed=2)
        await indexed.follower().step()
        removed_block = indexed.tail.top(indexed.key)
        small_subject.node.revert(before)
        small_subject.trade(7, seed=3)
        await indexed.follower().step()
        plain = small_subject.rows(Span(0, small_subject.height))
        for table in FETCHED:
            assert indexed.rows(table) == in_order(plain[table]), table
        assert removed_block is not None
        assert removed_block.hash not in {row["hash"] for row in plain["blocks"]}


async def test_inner_transfers_are_those_of_unwrapping_or_said_to_be_unknown(small_subject: SmallSubject) -> None:
    span = Span(small_subject.birth, small_subject.birth + 12)
    chain = small_subject.chain()
    try:
        if small_subject.maker == "ganache":
            with pytest.raises(UnsupportedMethod, match="does not trace") as caught:
                await chain.collect(span, ["internal"])
            assert "leave `internal` out" in caught.value.remedy
        else:
            transfers = (await chain.collect(span, ["internal"])).tables["transfers"].to_pylist()
            unwrapped = [row for row in small_subject.rows(span)["transfers"] if row["standard"] == "unwrap"]
            assert unwrapped
            weth = small_subject.token("WETH")
            assert [(row["recipient"], raw_from_bytes(row["raw"])) for row in transfers if row["sender"] == weth] == [
                (row["sender"], raw_from_bytes(row["raw"])) for row in unwrapped
            ]
    finally:
        await chain.close()


async def test_balances_are_proven_against_the_root_of_a_past_block(small_subject: SmallSubject) -> None:
    chain, alice, weth = small_subject.chain(), small_subject.accounts[1], small_subject.token("WETH")
    try:
        height = small_subject.birth + 3
        block, raw = await chain.block(height), small_subject.balance(alice, weth, height)
        assert raw
        coin, token = chain.info.native.asset, chain.info.token_asset(weth)
        proof = await chain.prove(block, alice, {coin: small_subject.native(alice, height), token: raw})
        assert proof.header.status == "proven"
        assert [proof.balances[each].status for each in (coin, token)] == ["proven"] * 2
        wrong = (await chain.prove(block, alice, {coin: 1})).balances[coin]
        assert (wrong.status, wrong.value) == ("contradicted", small_subject.native(alice, height))
    finally:
        await chain.close()


@pytest.mark.slow("trades on two nodes of different makers")
async def test_a_whole_market_is_the_same_portfolio_on_either_node(tmp_path: Path) -> None:
    """Coins aside: what gas costs follows each node's own base fees."""
    portfolios = []
    for maker in ("hardhat", "anvil"):
        node = started(maker)
        try:
            snapshot = await market(node, tmp_path / maker)
            coins = [each for each in snapshot.holdings if each.token.asset.is_native]
            assert all(each.raw == int(node.rpc("eth_getBalance", each.account, "latest"), 16) for each in coins)
        finally:
            node.stop()
        raw_by_asset = {(each.account, each.token.asset): each.raw for each in snapshot.holdings if each not in coins}
        portfolios.append((raw_by_asset, snapshot.positions, snapshot.prices, snapshot.issues))
    assert portfolios[0] == portfolios[1]
    assert {each.protocol for each in portfolios[0][1]} >= {"aave3", "uniswap2", "uniswap3"}
    assert portfolios[0][3] == ()


async def market(node: LocalNode, folder: Path) -> Snapshot:
    """Return what all wallets have at the newest block, after a while of trading."""
    deployment = deploy(node)
    trade(node, deployment, 30)
    system = System(prepare(folder, node, deployment, 0))
    try:
        await index_chain(system, quiet=True)
        chain = system.chain("local")
        accounts = [each.lower() for each in deployment.accounts.values()]
        return await snapshotter_of(system, chain).take(accounts, await chain.block(node.height))
    finally:
        await system.close()
