"""A recording holds what was read and nothing else, and ends as it did or says in what it differs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chainfolio.adapters.evm.chain import EvmChain
from chainfolio.adapters.evm.facts import load
from chainfolio.adapters.evm.kit.kit import KIT
from chainfolio.adapters.evm.kit.recordings import Recording, read, record, replay, save, text
from chainfolio.adapters.evm.positions.events import parse_event
from chainfolio.adapters.evm.positions.interactions import ContractInteractions, NamedEvent
from chainfolio.adapters.evm.positions.rules import (
    Collection,
    Counterparty,
    DecoderPlan,
    Event,
    Family,
    MayRefuse,
    ProtocolMatch,
    Rule,
    Token,
)
from chainfolio.adapters.evm.reads import Call, NativeBalance, Read
from chainfolio.blocks import Block
from chainfolio.errors import BadRequest, ChainfolioError, NotFound, Unavailable
from chainfolio.indexer.registry import Protocol, Registry
from chainfolio.interactions import Interactions
from chainfolio.plans import Reverted, Unknown
from chainfolio.protocols import DecodedPosition, InstalledProtocol, TokenAmount

ALICE, FARM, OTHER, TOKEN, COIN = ("0x" + pair * 20 for pair in ("aa", "fa", "0e", "70", "c0"))
BLOCK = Block(7, "0x" + "07" * 32, "0x" + "06" * 32, 1_700_000_000_000_000)
MET = ContractInteractions(
    frozenset([TOKEN, OTHER]), {OTHER: frozenset([3])}, {FARM: frozenset([TOKEN, None]), OTHER: frozenset([TOKEN])}
)
STAKED, TELLS, NAME = "staked(address)(uint256)", "token()(address)", "name()(string)"
SAYS = {
    STAKED: 10**30,
    TELLS: TOKEN,
    NAME: "Farm – " + "long " * 200,
    "pair()(uint112,bool)": (5, True),
    "data()(*)": b"\x01",
    "paused()(bool)": Reverted(b"\x08"),
    "gone()(bool)": Unknown("there is no contract", "absent"),
}


def position(interactions: ProtocolMatch) -> DecoderPlan:
    staked, token, name, pair, data, paused, removed = yield [
        Call(interactions.contract, STAKED, (interactions.account,)),
        *(Call(interactions.contract, each) for each in (TELLS, NAME, "pair()(uint112,bool)", "data()(*)")),
        *(MayRefuse(Call(interactions.contract, each)) for each in ("paused()(bool)", "gone()(bool)")),
    ]
    assert (paused, removed) == (None, None)
    health = Decimal(interactions.options.get("health", "1.5"))
    rewards = (TokenAmount(token, pair[0]), TokenAmount(token, len(data)))
    return DecodedPosition(
        "FARMING", supplied=(TokenAmount(token, staked),), rewards=rewards, name=name.strip(), health=health
    )


def row(position: Callable[[ProtocolMatch], DecoderPlan] = position) -> InstalledProtocol:
    return InstalledProtocol("farm", Family("farm", (Counterparty("farm"),), position), {"farm": (FARM,)}, {})


def node(says: Mapping[str, Any]) -> EvmChain:
    """A chain that says this of every contract."""

    async def answer(reads: Sequence[Read], block: Block) -> list[Any]:
        assert block is BLOCK
        return [0 if isinstance(ask, NativeBalance) else says.get(ask.signature, 0) for ask in reads]

    return cast(EvmChain, SimpleNamespace(key="local", answer=answer))


def recorded(
    installed: InstalledProtocol | None = None, interactions: ContractInteractions = MET, says: Mapping[str, Any] = SAYS
) -> Recording:
    return asyncio.run(record(node(says), BLOCK, ALICE, interactions, [installed or row()], frozenset([COIN])))


def replay_recording(
    recording: Recording, installed: InstalledProtocol | None = None, registry: Registry | None = None
) -> Any:
    family = (installed or row()).family
    return replay("file", recording, (registry or Registry([])).protocols, {family.name: family})


def test_every_kind_of_answer_comes_back_from_the_file_as_it_was(tmp_path: Path) -> None:
    recording = recorded()
    save(tmp_path / "deep" / "one.json", recording)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["one.json"]
    loaded = read(tmp_path / "deep" / "one.json")
    assert text(loaded) == text(recording) == text(recorded())
    ended = replay_recording(loaded)
    assert (ended.status, ended.summary) == ("same", "")
    (farm,) = ended.result.positions
    assert farm.supplied[0].raw == str(10**30)
    assert [each.raw for each in farm.rewards] == ["6"]
    assert farm.health == "1.5"


def test_only_what_concerned_a_decoder_is_kept() -> None:
    recording = recorded()
    assert recording.interactions.interactions() == ContractInteractions(exchanged={FARM: frozenset([TOKEN, None])})
    assert OTHER not in text(recording).decode()
    assert {call.to for call in recording.calls} == {FARM, ALICE}


def test_a_fork_is_replayed_as_a_fork() -> None:
    def doubted(match: ProtocolMatch) -> DecoderPlan:
        decoded = yield from position(match)
        return replace(decoded, unverified="nobody read its code" if match.is_fork else "")

    fork = replace(row(doubted), is_fork=True)
    recording = recorded(fork)
    assert [each.unverified for each in recording.found.positions] == ["nobody read its code"]
    assert replay_recording(recording, fork).status == "same"


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (Collection("farm", question="factory()(address)"), {"factory()(address)": FARM}),
        (
            Token("farm", "POOL()(address)", through=("PROVIDER()(address)", "getPool()(address)")),
            {"POOL()(address)": COIN, "PROVIDER()(address)": FARM, "getPool()(address)": COIN},
        ),
    ],
    ids=["by the factory of a collection", "by what leads to a pool"],
)
def test_what_no_file_names_is_recorded_with_what_shows_whose_it_is(rule: Rule, says: Mapping[str, str]) -> None:
    installed = replace(row(), family=Family("farm", (rule,), position))
    recording = recorded(installed, says={**SAYS, **says})
    assert {*says} <= {call.function for call in recording.calls}
    assert replay_recording(recording, installed).status == "same"
    assert [each.protocol for each in recording.found.positions] == ["farm"]


def test_a_difference_is_told_by_its_place() -> None:
    def as_staked(interactions: ProtocolMatch) -> DecoderPlan:
        decoded = yield from position(interactions)
        return DecodedPosition("STAKED", supplied=decoded.supplied, name=decoded.name, health=decoded.health)

    ended = replay_recording(recorded(), row(as_staked))
    assert ended.status == "differs"
    assert any(line.startswith("no longer found: farm FARMING") for line in ended.differences)
    assert any(line.startswith("newly found: farm STAKED") for line in ended.differences)


def test_the_file_of_the_installation_is_what_is_tested() -> None:
    protocol = Protocol("farm", "Farm", {"local": {"farm": [FARM]}}, families=["farm"], options={"health": "2"})
    ended = replay_recording(recorded(), registry=Registry([protocol]))
    (line,) = ended.differences
    assert line.endswith("health: 2, recorded 1.5")
    elsewhere = Protocol("farm", "Farm", {"mars": {"farm": [FARM]}}, families=["farm"], options={"health": "2"})
    assert replay_recording(recorded(), registry=Registry([elsewhere])).status == "same"


def test_calls_that_were_not_recorded_are_all_named() -> None:
    def extra_calls(interactions: ProtocolMatch) -> DecoderPlan:
        yield [
            Call(interactions.contract, "fresh(uint256)(uint256)", (1,)),
            Call(interactions.contract, "newer()(bool)"),
        ]

    ended = replay_recording(recorded(), row(extra_calls))
    assert ended.status == "unplayable"
    assert ended.missing == (f"fresh(uint256)(uint256) of {FARM} with (1)", f"newer()(bool) of {FARM} with ()")


def test_a_call_that_cannot_be_made_is_named_and_not_raised() -> None:
    def wrong(interactions: ProtocolMatch) -> DecoderPlan:
        yield [Call(interactions.contract, STAKED, ("nobody",))]

    ended = replay_recording(recorded(), row(wrong))
    assert ended.status == "unplayable"
    assert "staked(address)(uint256)" in ended.summary
    assert "cannot be asked" in ended.summary
    with pytest.raises(BadRequest, match="cannot be asked"):
        recorded(row(wrong))


def test_a_decoder_that_goes_by_something_else_is_not_recorded() -> None:
    numbers = count()

    def fickle(interactions: ProtocolMatch) -> DecoderPlan:
        yield [Call(interactions.contract, STAKED, (interactions.account,))]
        return DecodedPosition("STAKED", supplied=(TokenAmount(TOKEN, next(numbers) + 1),))

    with pytest.raises(BadRequest, match="asked the same again, it does otherwise"):
        recorded(row(fickle))


@pytest.mark.parametrize(
    ("interactions", "says", "kind", "message"),
    [
        (ContractInteractions(), SAYS, NotFound, "met none of these protocols"),
        (MET, {**SAYS, STAKED: Unknown("out of gas")}, Unavailable, f"staked of {FARM} could not be read: out of gas"),
    ],
)
def test_what_is_not_known_is_not_recorded_as_nothing(
    interactions: ContractInteractions, says: Mapping[str, Any], kind: type[ChainfolioError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        recorded(interactions=interactions, says=says)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gives": "0xzz"}, "this is no recording"),
        ({"gives": None}, "has not one answer"),
        ({"refuses": "0x"}, "has not one answer"),
        ({"function": "nothing", "gives": "0x"}, "this is no recording"),
        ({"unknown": "why", "gives": None, "cause": "read"}, "is no cause of an answer"),
        ({"more": 1}, "unknown field"),
    ],
)
def test_a_file_that_was_damaged_is_refused_by_name(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    content = json.loads(text(recorded()))
    call = next(each for each in content["calls"] if each.get("function") == STAKED)
    call |= changed
    (tmp_path / "torn.json").write_text(json.dumps(content))
    with pytest.raises(BadRequest, match=message) as error:
        read(tmp_path / "torn.json")
    assert error.value.field == "torn.json"


def test_another_format_is_not_read_as_this_one(tmp_path: Path) -> None:
    (tmp_path / "new.json").write_text(json.dumps({**json.loads(text(recorded())), "format": 1}))
    with pytest.raises(BadRequest, match="format 1 is not 3"):
        read(tmp_path / "new.json")


# --- a protocol that is met by events --------------------------------------------------------------------------------

PUT = parse_event("Put(address indexed user, uint256 indexed pid, uint256 amount)")
SOMEBODY, POOL, RAW = "0x" + "00" * 12 + "bb" * 20, f"0x{5:064x}", (7).to_bytes(32, "big")
MINE = "0x" + "00" * 12 + ALICE[2:]
FIRST, SECOND = NamedEvent(1, (MINE, POOL), RAW), NamedEvent(1, (MINE, f"0x{6:064x}"), RAW)
PUTS = {PUT.filter(FARM): (FIRST, SECOND, NamedEvent(2, (SOMEBODY, MINE), RAW)), PUT.filter(OTHER): (FIRST,)}
BY_EVENTS = ContractInteractions(events=PUTS, covered=frozenset(PUTS))


def by_events(interactions: ProtocolMatch) -> DecoderPlan:
    staked = yield [
        Call(interactions.contract, "staked(uint256,address)(uint256)", (pid, interactions.account))
        for pid, _ in interactions.values
    ]
    name = f"{sum(raw for _, raw in interactions.values)} put{'' if interactions.has_all_events else ' at least'}"
    return DecodedPosition("FARMING", supplied=(TokenAmount(TOKEN, sum(staked)),), name=name)


EVENTFUL = InstalledProtocol(
    "farm",
    Family("farm", (Event("farm", "Put(address indexed user, uint256 indexed pid, uint256)", 0, (1, 2)),), by_events),
    {"farm": (FARM,)},
    {},
)
STAKES = {"staked(uint256,address)(uint256)": 9}


def test_a_protocol_that_is_met_by_events_is_replayed_from_its_file(tmp_path: Path) -> None:
    recording = recorded(EVENTFUL, BY_EVENTS, STAKES)
    save(tmp_path / "one.json", recording)
    loaded = read(tmp_path / "one.json")
    assert text(loaded) == text(recording)
    ended = replay_recording(loaded, EVENTFUL)
    assert (ended.status, ended.summary) == ("same", "")
    (farm,) = ended.result.positions
    assert (farm.name, farm.supplied[0].raw) == ("14 put", "18")


def test_of_events_only_those_of_contracts_that_were_read_are_kept() -> None:
    stored = recorded(EVENTFUL, BY_EVENTS, STAKES).interactions.interactions()
    event = PUT.filter(FARM)
    assert stored == ContractInteractions(events={event: PUTS[event]}, covered=frozenset([event]))


def test_whether_all_events_were_indexed_is_part_of_what_was_met() -> None:
    partial = ContractInteractions(events=PUTS)
    (farm,) = replay_recording(recorded(EVENTFUL, partial, STAKES), EVENTFUL).result.positions
    assert farm.name == "14 put at least"


@pytest.mark.parametrize(
    "changed",
    [{"topics": ["0x00"]}, {"topics": [MINE] * 4}, {"topics": ["0xzz"]}, {"data": "0x0"}, {"place": "1"}, {"more": 1}],
)
def test_an_event_that_was_damaged_is_refused_by_name(tmp_path: Path, changed: dict[str, Any]) -> None:
    content = json.loads(text(recorded(EVENTFUL, BY_EVENTS, STAKES)))
    content["interactions"]["events"][PUT.filter(FARM)][0] |= changed
    (tmp_path / "torn.json").write_text(json.dumps(content))
    with pytest.raises(BadRequest, match="this is no recording"):
        read(tmp_path / "torn.json")


def test_a_recording_made_before_there_were_events_is_read() -> None:
    interactions = json.loads(text(recorded()))["interactions"]
    assert "events" not in interactions
    assert "covered" not in interactions


def test_what_is_named_is_met_as_a_token_and_exchanged_and_joins_what_is_indexed() -> None:
    info = load(Path(__file__).parents[2] / "configs" / "chains" / "ethereum.toml").info
    by_name = KIT.interactions(info, [FARM.upper().replace("0X", "0x"), f"{OTHER}/3", f"{OTHER}/4"])
    assert ContractInteractions.of(by_name) == ContractInteractions(
        frozenset([FARM]), {OTHER: frozenset([3, 4])}, {FARM: frozenset()}, {FARM: frozenset([FARM])}
    )
    token, collection = info.token_asset(TOKEN), info.asset("erc721", OTHER, 5).collection
    indexed = Interactions(
        frozenset([token]),
        {collection: frozenset([5])},
        {OTHER: frozenset([token])},
        {FARM: frozenset([token])},
        {"e": ({"place": 1},)},
        frozenset(["e"]),
    )
    farm = info.token_asset(FARM)
    assert indexed | by_name == Interactions(
        frozenset([token, farm]),
        {collection: frozenset([3, 4, 5])},
        {OTHER: frozenset([token]), FARM: frozenset()},
        {FARM: frozenset([token, farm])},
        {"e": ({"place": 1},)},
        frozenset(["e"]),
    )


@pytest.mark.parametrize("address", [f"{FARM}/x", f"{FARM}/", "0x12"])
def test_what_cannot_be_met_is_refused(address: str) -> None:
    info = load(Path(__file__).parents[2] / "configs" / "chains" / "ethereum.toml").info
    with pytest.raises(BadRequest):
        KIT.interactions(info, [address])
