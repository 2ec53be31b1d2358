"""Events at the head: found before their block is final, dropped with it, and sorted by account once it is final."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from chainfolio.adapters.evm.positions.events import parse_event
from chainfolio.adapters.evm.positions.interactions import ContractInteractions, NamedEvent
from chainfolio.adapters.evm.protocols.masterchef import DEPOSIT, FAMILY
from chainfolio.blocks import Span, Spans
from chainfolio.cli.demo import SUSHI
from chainfolio.contracts import Snapshot
from chainfolio.engine.rows import ChainIndex
from chainfolio.engine.snapshots import account_index
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.indexer import materialise, reprocess
from chainfolio.localchain.evm import tx
from chainfolio.protocols import InstalledProtocol, InstalledProtocols
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import EVERYTHING, Index, in_order, index
from tests.chains.subject import FINALITY

pytestmark = pytest.mark.node
DATASETS = (*EVERYTHING, "events")
EVENT = parse_event(DEPOSIT)


@pytest.fixture
def living() -> Iterator[EvmSubject]:
    with evm(60) as living:
        yield living


def chef(subject: EvmSubject) -> str:
    return subject.deployment.contracts["MasterChef"].lower()


def deposits_of_node(subject: EvmSubject) -> list[tuple[int, str]]:
    """Height and account of each deposit, as the node tells them."""
    log_filter = {"fromBlock": "0x0", "toBlock": "latest", "address": chef(subject), "topics": [EVENT.topic]}
    logs = subject.node.rpc("eth_getLogs", log_filter)
    return [(int(log["blockNumber"], 16), "0x" + log["topics"][1][-40:]) for log in logs]


def known_events(indexed: Index, subject: EvmSubject, account: str) -> tuple[NamedEvent, ...]:
    event_filter = EVENT.filter(chef(subject))
    unindexed = account_index.unindexed(indexed.tail, indexed.key, subject.height, [event_filter], [account])
    interactions = account_index.interactions_of(
        ChainIndex(indexed.lake, indexed.tail, indexed.key), [account], subject.height, indexed.chain.info, unindexed
    )[account]
    assert interactions.covered == {event_filter}
    return ContractInteractions.of(interactions).events.get(event_filter, ())


def stake_nothing(subject: EvmSubject, name: str) -> None:
    """A deposit of nothing: an event, and no token that moves but what was earned."""
    account = subject.deployment.accounts[name]
    subject.node.settle([tx(account, chef(subject), "deposit(uint256,uint256)", 0, 0)])


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_an_event_is_met_in_the_tail_goes_with_its_block_and_comes_back(
    living: EvmSubject, tmp_path: Path
) -> None:
    ivan = living.deployment.accounts["ivan"].lower()
    assert ivan not in {account for _, account in deposits_of_node(living)}
    async with index(living, tmp_path, datasets=DATASETS) as indexed:
        indexed.events = (EVENT.filter(chef(living)),)
        await indexed.fill_final()
        follower = indexed.follower()
        await follower.step()
        assert known_events(indexed, living, ivan) == ()
        stake_nothing(living, "ivan")
        await follower.step()
        (event,) = known_events(indexed, living, ivan)
        assert EVENT.values((0, 1, 2), event.topics, event.data) == (ivan, 0, 0)
        living.reorg(3)
        await follower.step()
        assert deposits_of_node(living)[-1][1] != ivan
        assert known_events(indexed, living, ivan) == ()
        stake_nothing(living, "ivan")
        living.mine(FINALITY + 1)
        await follower.step()
        follower.finalise(living.height - FINALITY)
        assert len(known_events(indexed, living, ivan)) == 1, "it is in the lake, and not sorted yet"
        await indexed.materialise()
        assert len(known_events(indexed, living, ivan)) == 1


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_the_history_is_every_event_once_however_it_came_about(living: EvmSubject, tmp_path: Path) -> None:
    """Filter after filter, followed or filled, derived at once or in between, decoded again: the same rows."""
    contracts = (chef(living), living.deployment.contracts["StakingRewards"].lower())
    staked = parse_event("Staked(address indexed user, uint256 amount)")
    filters = (EVENT.filter(contracts[0]), staked.filter(contracts[1]))
    stake_nothing(living, "alice")
    living.mine(FINALITY)
    last = living.height - FINALITY
    async with index(living, tmp_path / "a", datasets=DATASETS) as pieces:
        pieces.events = filters[:1]
        await pieces.fill(0, last // 2)
        await pieces.materialise()
        pieces.events = filters
        await pieces.fill(0, last)
        await pieces.materialise()
        for event in filters:
            assert pieces.tail.indexed_ranges(pieces.key, "account_events/events", event) == Spans([Span(0, last)])
        async with index(living, tmp_path / "b", datasets=DATASETS) as full_index:
            full_index.events = filters
            await full_index.fill(0, last)
            await full_index.materialise()
            assert pieces.read_all() == full_index.read_all()
            rows = in_order(full_index.stored("account_events").to_pylist())
            assert in_order(pieces.stored("account_events").to_pylist()) == rows
            deposits = [(row["height"], row["account"]) for row in rows if row["topic0"] == EVENT.topic]
            assert deposits
            assert sorted(deposits) == sorted(each for each in deposits_of_node(living) if each[0] <= last)
            reprocess.reprocess(full_index.chain, full_index.lake)
            materialise.rebuild_history(full_index.lake, full_index.tail, full_index.key, "account_events")
            assert in_order(full_index.stored("account_events").to_pylist()) == rows


# --- an index that begins later than a protocol ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def traded() -> Iterator[EvmSubject]:
    with evm(90) as traded:
        traded.mine(FINALITY)
        yield traded


async def farmed(indexed: Index, subject: EvmSubject, account: str) -> Snapshot:
    """The account's portfolio where nothing but the farm is known."""
    row = InstalledProtocol("sushi", FAMILY, {"chef": (chef(subject),)}, SUSHI)
    book, installed = TokenBook(indexed.chain.key, indexed.lake, {}), InstalledProtocols((row,))
    return await Snapshotter(indexed.chain, indexed.lake, indexed.tail, book, (), installed).take([account])


async def filled(indexed: Index, subject: EvmSubject, first: int, events_from: int) -> None:
    """Transfers from one block on, events of the farm from another one on, up to the head."""
    indexed.chain.settings = msgspec.structs.replace(indexed.chain.settings, start_block=first)
    last = (await indexed.chain.heads()).finalized
    await indexed.fill(first, last, [name for name in DATASETS if name != "events"])
    indexed.events = (EVENT.filter(chef(subject)),)
    await indexed.fill(events_from, last, ["events"])
    await indexed.follower().step()


async def test_an_index_that_begins_after_a_deposit_says_what_it_cannot_know(
    traded: EvmSubject, tmp_path: Path
) -> None:
    (first, account), *_ = deposits_of_node(traded)
    later = traded.height - FINALITY  # nothing happens from there on
    farms = {}
    for name, start, events in (("whole", 0, 0), ("late", later, later), ("unindexed", 0, first + 1)):
        async with index(traded, tmp_path / name, datasets=DATASETS) as indexed:
            await filled(indexed, traded, start, events)
            farms[name] = await farmed(indexed, traded, account)
            gaps = account_index.unindexed(indexed.tail, indexed.key, traded.height, indexed.events, [account])
            interactions = account_index.interactions_of(
                ChainIndex(indexed.lake, indexed.tail, indexed.key), [account], traded.height, indexed.chain.info, gaps
            )[account]
            assert interactions.covered == (set(indexed.events) if name == "whole" else set())
    assert {name: len(each.positions) for name, each in farms.items()} == {"whole": 1, "late": 0, "unindexed": 1}
    spoiling = {name: [issue for issue in each.issues if issue.makes_partial] for name, each in farms.items()}
    assert spoiling["whole"] == []
    (late,), (unindexed,) = spoiling["late"], spoiling["unindexed"]
    assert (late.adapter, late.subject) == ("index", "local")
    assert f"not indexed for blocks 0..{later - 1}: what was met only there may be missing" in late.reason
    assert (unindexed.adapter, unindexed.subject) == ("index", chef(traded))
    assert f"not indexed for blocks 0..{first}: what others put there" in unindexed.reason
