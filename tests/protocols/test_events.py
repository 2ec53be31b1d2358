"""Membership by events: what somebody else put into a contract for an account is found, and fetched once."""

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
class Given:
    """The world, what was done in it, and where it stood before."""

    world: World
    morpho: str
    markets: Mapping[bytes, Params]
    before: int

    def account(self, name: str) -> str:
        return self.world.deployment.accounts[name].lower()


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Given]:
    with LocalNode() as node:
        deployment = deploy(node)
        morpho, markets = opened(node, deployment)
        before = node.height
        put_for_others(node, deployment, morpho, list(markets.values()))
        stake_in_two_pools(node, deployment)
        node.mine(3, 5 * 86_400)
        files = {"morpho": MORPHO.format(morpho=morpho.lower())}
        yield Given(World(node, deployment, tmp_path_factory.mktemp("events"), files), morpho, markets, before)


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


def test_what_others_put_there_for_an_account_is_found_by_its_events_to_the_unit(given: Given) -> None:
    ivan, heidi = given.account("ivan"), given.account("heidi")
    snapshot = given.world.snapshot(ivan, heidi)
    assert snapshot.issues == ()
    lent, secured = of(snapshot, "morpho")
    assert (lent.account, secured.account) == (ivan, heidi)
    (market, terms), (_, second), *_ = given.markets.items()
    shares, _, _ = given.world.node.call(
        given.morpho, "position(bytes32,address)(uint256,uint128,uint128)", market, ivan, block=snapshot.block.height
    )
    leave = tx(ivan, given.morpho, f"withdraw({PARAMS},uint256,uint256,address,address)", terms, 0, shares, ivan, ivan)
    assert parts([lent], "supplied") == given.world.paid(ivan, [leave], snapshot.block)
    assert parts([secured], "supplied") == {second[1].lower(): SECURED}


def test_neither_of_them_ever_exchanged_anything_with_the_contract(given: Given) -> None:
    async def match(system: System) -> Interactions:
        ivan = given.account("ivan")
        index, info = ChainIndex(system.lake, system.tail, "local"), system.chain("local").info
        return account_index.interactions_of(index, [ivan], given.world.node.height, info)[ivan]

    assert given.morpho.lower() not in given.world.run(match).exchanged_with


def test_before_it_was_put_there_nothing_is_found_and_nothing_is_unknown(given: Given) -> None:
    snapshot = given.world.snapshot(given.account("ivan"), height=given.before)
    assert (of(snapshot, "morpho"), snapshot.issues) == ([], ())


def test_only_the_pools_of_its_events_are_read_of_a_farm(given: Given) -> None:
    snapshot = given.world.snapshot(given.account("grace"))
    found = of(snapshot, "sushi")
    assert sum(sum(parts([each], "supplied").values()) for each in found) == STAKED
    assert pools_asked(found) == {2, 4}


def pools_asked(found: list[Position]) -> set[int]:
    reads = [each.read for position in found for each in position.calls]
    return {read.args[0] for read in reads if isinstance(read, Call) and read.signature.startswith("userInfo(")}


def test_where_events_are_not_indexed_that_is_said_and_every_pool_is_read(given: Given) -> None:
    """And then only what is missing is fetched: all filters, of the blocks so far; after that nothing."""
    node = given.world.node

    async def go(system: System) -> tuple[Snapshot, list[Work], list[Work], Snapshot]:
        chain = system.chain("local")
        snapshotter = snapshotter_of(system, chain)
        block = await chain.block(node.height)
        forget(system)
        without = await snapshotter.take([given.account("grace"), given.account("ivan")], block)
        before = lacking(system, block)
        await index_chain(system, quiet=True)
        return without, before, lacking(system, block), await snapshotter.take([given.account("ivan")], block)

    without, before, after, found = given.world.run(go)
    assert pools_asked(of(without, "sushi")) == set(range(POOLS))
    assert of(without, "morpho") == []
    said = {issue.subject for issue in without.issues}
    assert said == {given.morpho.lower(), given.world.deployment.contracts["MasterChef"].lower()}
    assert all(issue.makes_partial for issue in without.issues)
    assert [(each.datasets, len(each.filters)) for each in before] == [(("events",), 5)]
    assert after == []
    assert found.issues == ()
    assert len(of(found, "morpho")) == 1


def forget(system: System) -> None:
    """An index as one that was made before there was any rule over events."""
    with system.tail._write() as tx:
        tx.run("DELETE FROM cover WHERE dataset IN ('events', 'account_events/events')")
        tx.run("DELETE FROM rows WHERE name = 'logs'")
    for table in (TABLES["logs"], TABLES["account_events"]):
        system.lake.replace(table, "local", table.schema().empty_table())


def lacking(system: System, block: Block) -> list[Work]:
    chain = system.chain("local")
    datasets = system.datasets(chain)
    span = Span(0, block.height)
    return missing(system.tail, "local", span, datasets, (), system.event_filters(chain, datasets))


def test_a_protocol_that_is_added_later_costs_its_own_events_and_nothing_twice(given: Given, tmp_path: Path) -> None:
    world = World(given.world.node, given.world.deployment, tmp_path)

    async def go(system: System) -> tuple[list[Work], int, int, Snapshot]:
        block = await system.chain("local").block(given.world.node.height)
        kept = system.lake.scan(LOGS, chain="local").collect().height
        file = MORPHO.format(morpho=given.morpho.lower())
        (Path(system.settings.protocols) / "morpho.toml").write_text(file)
        later = System(system.settings)
        try:
            before = lacking(later, block)
            await index_chain(later, quiet=True)
            rows = later.lake.scan(LOGS, chain="local").select("height", "log_index").collect()
            assert rows.is_unique().all()
            found = await snapshotter_of(later, later.chain("local")).take([given.account("ivan")], block)
        finally:
            await later.close()
        return before, kept, rows.height, found

    before, kept, now, found = world.run(go)
    assert [each.datasets for each in before] == [("events",)]
    assert {filter_.partition("/")[0] for each in before for filter_ in each.filters} == {given.morpho.lower()}
    assert now > kept
    assert found.issues == ()
    assert len(of(found, "morpho")) == 1
