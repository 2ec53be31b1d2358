"""Positions found by events: deposits by others for an account are found, and fetched once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from chainfolio.adapters.evm.reads import Call
from chainfolio.blocks import Block, Span
from chainfolio.cli.demo import index_chain
from chainfolio.contracts import Position, Snapshot
from chainfolio.engine.rows import ChainIndex
from chainfolio.engine.snapshots import account_index
from chainfolio.engine.wiring import snapshotter_of
from chainfolio.indexer.wiring import System
from chainfolio.indexer.work import Work, missing
from chainfolio.interactions import Interactions
from chainfolio.localchain.deploy import Deployer, Deployment, deploy
from chainfolio.localchain.evm import MAX, tx
from chainfolio.localchain.node import LocalNode
from chainfolio.tables import LOGS, TABLES
from tests.protocols.test_morpho_blue import PARAMS, Params, opened
from tests.protocols.world import World, parts

MORPHO = """\
key = "morpho"
name = "Morpho"
families = ["morpho_blue"]
[contracts.local]
morpho = ["{morpho}"]
"""
POOLS = 6
LENT, SECURED, STAKED = 250_000 * 10**6, 10**8, 10**6


@dataclass
class MorphoWorld:
    """The world, Morpho's contract and markets, and the height before the deposits."""

    world: World
    morpho: str
    markets: Mapping[bytes, Params]
    before: int

    def account(self, name: str) -> str:
        return self.world.deployment.accounts[name].lower()


@pytest.fixture(scope="module")
def morpho_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MorphoWorld]:
    with LocalNode() as node:
        deployment = deploy(node)
        morpho, markets = opened(node, deployment)
        before = node.height
        put_for_others(node, deployment, morpho, list(markets.values()))
        stake_in_two_pools(node, deployment)
        node.mine(3, 5 * 86_400)
        files = {"morpho": MORPHO.format(morpho=morpho.lower())}
        yield MorphoWorld(World(node, deployment, tmp_path_factory.mktemp("events"), files), morpho, markets, before)


def put_for_others(node: LocalNode, deployment: Deployment, morpho: str, markets: list[Params]) -> None:
    """The deployer lends for Ivan, and gives collateral for Heidi: neither of them ever met the contract."""
    rich, heidi, ivan = (deployment.accounts[name] for name in ("deployer", "heidi", "ivan"))
    first, second = markets[0], markets[1]
    node.settle([tx(rich, each, "approve(address,uint256)", morpho, MAX) for each in (first[0], second[1])])
    supply = f"supply({PARAMS},uint256,uint256,address,bytes)"
    node.settle(
        [
            tx(rich, morpho, supply, first, LENT, 0, ivan, b""),
            tx(rich, morpho, f"supplyCollateral({PARAMS},uint256,address,bytes)", second, SECURED, heidi, b""),
        ]
    )


def stake_in_two_pools(node: LocalNode, deployment: Deployment) -> None:
    """The farm gets more pools, of plain tokens; Grace stakes in two of them."""
    grace, rich = deployment.accounts["grace"], deployment.accounts["deployer"]
    chef, tokens = deployment.contracts["MasterChef"], [each.address for each in deployment.tokens.values()]
    deployer = Deployer(node, rich, int(node.rpc("eth_getTransactionCount", rich, "pending"), 16))
    with node.by_hand():
        for at in range(1, POOLS):
            deployer.do(chef, "add(uint256,address,bool)", 10, tokens[at % len(tokens)], True)
        for at in (2, 4):
            deployer.do(tokens[at % len(tokens)], "transfer(address,uint256)", grace, STAKED)
        deployer.settle()
    for at in (2, 4):
        token = tokens[at % len(tokens)]
        node.settle([tx(grace, token, "approve(address,uint256)", chef, MAX)])
        node.settle([tx(grace, chef, "deposit(uint256,uint256)", at, STAKED // 2)])


def of(snapshot: Snapshot, protocol: str) -> list[Position]:
    return [each for each in snapshot.positions if each.protocol == protocol]


def test_what_others_put_there_for_an_account_is_found_by_its_events_to_the_unit(morpho_world: MorphoWorld) -> None:
    ivan, heidi = morpho_world.account("ivan"), morpho_world.account("heidi")
    snapshot = morpho_world.world.snapshot(ivan, heidi)
    assert snapshot.issues == ()
    lent, secured = of(snapshot, "morpho")
    assert (lent.account, secured.account) == (ivan, heidi)
    (market, terms), (_, second), *_ = morpho_world.markets.items()
    shares, _, _ = morpho_world.world.node.call(
        morpho_world.morpho,
        "position(bytes32,address)(uint256,uint128,uint128)",
        market,
        ivan,
        block=snapshot.block.height,
    )
    leave = tx(
        ivan, morpho_world.morpho, f"withdraw({PARAMS},uint256,uint256,address,address)", terms, 0, shares, ivan, ivan
    )
    assert parts([lent], "supplied") == morpho_world.world.payout(ivan, [leave], snapshot.block)
    assert parts([secured], "supplied") == {second[1].lower(): SECURED}


def test_neither_of_them_ever_exchanged_anything_with_the_contract(morpho_world: MorphoWorld) -> None:
    async def match(system: System) -> Interactions:
        ivan = morpho_world.account("ivan")
        index, info = ChainIndex(system.lake, system.tail, "local"), system.chain("local").info
        return account_index.interactions_of(index, [ivan], morpho_world.world.node.height, info)[ivan]

    assert morpho_world.morpho.lower() not in morpho_world.world.run(match).exchanged_with


def test_before_it_was_put_there_nothing_is_found_and_nothing_is_unknown(morpho_world: MorphoWorld) -> None:
    snapshot = morpho_world.world.snapshot(morpho_world.account("ivan"), height=morpho_world.before)
    assert (of(snapshot, "morpho"), snapshot.issues) == ([], ())


def test_only_the_pools_of_its_events_are_read_of_a_farm(morpho_world: MorphoWorld) -> None:
    snapshot = morpho_world.world.snapshot(morpho_world.account("grace"))
    positions = of(snapshot, "sushi")
    assert sum(sum(parts([each], "supplied").values()) for each in positions) == STAKED
    assert pools_asked(positions) == {2, 4}


def pools_asked(positions: list[Position]) -> set[int]:
    reads = [each.read for position in positions for each in position.calls]
    return {read.args[0] for read in reads if isinstance(read, Call) and read.signature.startswith("userInfo(")}


def test_where_events_are_not_indexed_that_is_said_and_every_pool_is_read(morpho_world: MorphoWorld) -> None:
    """And then only what is missing is fetched: all filters, of the blocks so far; after that nothing."""
    node = morpho_world.world.node

    async def go(system: System) -> tuple[Snapshot, list[Work], list[Work], Snapshot]:
        chain = system.chain("local")
        snapshotter = snapshotter_of(system, chain)
        block = await chain.block(node.height)
        forget(system)
        without = await snapshotter.take([morpho_world.account("grace"), morpho_world.account("ivan")], block)
        before = missing_work(system, block)
        await index_chain(system, quiet=True)
        return (
            without,
            before,
            missing_work(system, block),
            await snapshotter.take([morpho_world.account("ivan")], block),
        )

    without, before, after, latest = morpho_world.world.run(go)
    assert pools_asked(of(without, "sushi")) == set(range(POOLS))
    assert of(without, "morpho") == []
    subjects = {issue.subject for issue in without.issues}
    assert subjects == {morpho_world.morpho.lower(), morpho_world.world.deployment.contracts["MasterChef"].lower()}
    assert all(issue.makes_partial for issue in without.issues)
    assert [(each.datasets, len(each.filters)) for each in before] == [(("events",), 5)]
    assert after == []
    assert latest.issues == ()
    assert len(of(latest, "morpho")) == 1


def forget(system: System) -> None:
    """An index as one that was made before there was any rule over events."""
    with system.tail._write() as tx:
        tx.run("DELETE FROM cover WHERE dataset IN ('events', 'account_events/events')")
        tx.run("DELETE FROM rows WHERE name = 'logs'")
    for table in (TABLES["logs"], TABLES["account_events"]):
        system.lake.replace(table, "local", table.schema().empty_table())


def missing_work(system: System, block: Block) -> list[Work]:
    chain = system.chain("local")
    datasets = system.datasets(chain)
    span = Span(0, block.height)
    return missing(system.tail, "local", span, datasets, (), system.event_filters(chain, datasets))


def test_a_protocol_that_is_added_later_costs_its_own_events_and_nothing_twice(
    morpho_world: MorphoWorld, tmp_path: Path
) -> None:
    world = World(morpho_world.world.node, morpho_world.world.deployment, tmp_path)

    async def go(system: System) -> tuple[list[Work], int, int, Snapshot]:
        block = await system.chain("local").block(morpho_world.world.node.height)
        stored_count = system.lake.scan(LOGS, chain="local").collect().height
        file = MORPHO.format(morpho=morpho_world.morpho.lower())
        (Path(system.settings.protocols) / "morpho.toml").write_text(file)
        later = System(system.settings)
        try:
            before = missing_work(later, block)
            await index_chain(later, quiet=True)
            rows = later.lake.scan(LOGS, chain="local").select("height", "log_index").collect()
            assert rows.is_unique().all()
            snapshot = await snapshotter_of(later, later.chain("local")).take([morpho_world.account("ivan")], block)
        finally:
            await later.close()
        return before, stored_count, rows.height, snapshot

    before, stored_count, row_count, snapshot = world.run(go)
    assert [each.datasets for each in before] == [("events",)]
    assert {filter_.partition("/")[0] for each in before for filter_ in each.filters} == {morpho_world.morpho.lower()}
    assert row_count > stored_count
    assert snapshot.issues == ()
    assert len(of(snapshot, "morpho")) == 1
