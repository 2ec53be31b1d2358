"""Nodes of other makers than anvil: what they tell is read in the same way, and what they lack is said."""

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


async def test_every_row_is_that_of_a_plain_reading(other: SmallSubject, tmp_path: Path) -> None:
    async with index(other, tmp_path) as indexed:
        await indexed.fill_final()
        await indexed.follower().step()
        plain = other.rows(Span(0, other.height))
        for table in FETCHED:
            assert indexed.rows(table) == in_order(plain[table]), table
        assert {row["standard"] for row in plain["transfers"]} == {"native", "erc20", "wrap", "unwrap"}
        assert indexed.chain.node.endpoints[0].capabilities["receipts"] == 1


async def test_a_snapshot_of_any_block_is_what_the_contracts_said_there(other: SmallSubject, tmp_path: Path) -> None:
    async with index(other, tmp_path) as indexed:
        await indexed.fill_final()
        await indexed.follower().step()
        for height in (other.birth, other.birth + 5, other.height):
            snapshot = await indexed.snapshot(other.accounts, await indexed.chain.block(height), other.plain)
            held = {(each.account, each.token.asset.reference): each.raw for each in snapshot.holdings}
            assert snapshot.issues == ()
            for account in other.accounts:
                assert held[account, "60"] == other.native(account, height)
                for token in other.plain:
                    assert held.get((account, token), 0) == other.balance(account, token, height)


async def test_a_reverted_past_leaves_nothing_behind(other: SmallSubject, tmp_path: Path) -> None:
    async with index(other, tmp_path) as indexed:
        await indexed.fill_final()
        before = other.node.snapshot()
        other.trade(5, seed=2)
        await indexed.follower().step()
        gone = indexed.tail.top(indexed.key)
        other.node.revert(before)
        other.trade(7, seed=3)
        await indexed.follower().step()
        plain = other.rows(Span(0, other.height))
        for table in FETCHED:
            assert indexed.rows(table) == in_order(plain[table]), table
        assert gone is not None
        assert gone.hash not in {row["hash"] for row in plain["blocks"]}


async def test_inner_transfers_are_those_of_unwrapping_or_said_to_be_unknown(other: SmallSubject) -> None:
    span = Span(other.birth, other.birth + 12)
    chain = other.chain()
    try:
        if other.maker == "ganache":
            with pytest.raises(UnsupportedMethod, match="does not trace") as caught:
                await chain.collect(span, ["internal"])
            assert "leave `internal` out" in caught.value.remedy
        else:
            found = (await chain.collect(span, ["internal"])).tables["transfers"].to_pylist()
            unwrapped = [row for row in other.rows(span)["transfers"] if row["standard"] == "unwrap"]
            assert unwrapped
            weth = other.token("WETH")
            assert [(row["recipient"], raw_from_bytes(row["raw"])) for row in found if row["sender"] == weth] == [
                (row["sender"], raw_from_bytes(row["raw"])) for row in unwrapped
            ]
    finally:
        await chain.close()


async def test_balances_are_proven_against_the_root_of_a_past_block(other: SmallSubject) -> None:
    chain, alice, weth = other.chain(), other.accounts[1], other.token("WETH")
    try:
        height = other.birth + 3
        block, raw = await chain.block(height), other.balance(alice, weth, height)
        assert raw
        coin, token = chain.info.native.asset, chain.info.token_asset(weth)
        found = await chain.prove(block, alice, {coin: other.native(alice, height), token: raw})
        assert found.header.status == "proven"
        assert [found.balances[each].status for each in (coin, token)] == ["proven"] * 2
        wrong = (await chain.prove(block, alice, {coin: 1})).balances[coin]
        assert (wrong.status, wrong.value) == ("contradicted", other.native(alice, height))
    finally:
        await chain.close()


@pytest.mark.slow("trades on two nodes of different makers")
async def test_a_whole_market_is_the_same_portfolio_on_either_node(tmp_path: Path) -> None:
    """Coins aside: what gas costs follows each node's own base fees."""
    told = []
    for maker in ("hardhat", "anvil"):
        node = started(maker)
        try:
            found = await market(node, tmp_path / maker)
            coins = [each for each in found.holdings if each.token.asset.is_native]
            assert all(each.raw == int(node.rpc("eth_getBalance", each.account, "latest"), 16) for each in coins)
        finally:
            node.stop()
        held = {(each.account, each.token.asset): each.raw for each in found.holdings if each not in coins}
        told.append((held, found.positions, found.prices, found.issues))
    assert told[0] == told[1]
    assert {each.protocol for each in told[0][1]} >= {"aave3", "uniswap2", "uniswap3"}
    assert told[0][3] == ()


async def market(node: LocalNode, folder: Path) -> Snapshot:
    """What all wallets have at the newest block, after a while of trading."""
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
