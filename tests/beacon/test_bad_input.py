"""Beacon nodes that are wrong, behind, pruned or strangers: what becomes of their answers."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.beacon.chain import BeaconChain, build
from chainfolio.adapters.beacon.registry import Registry
from chainfolio.adapters.beacon.responses import KeyedFields, KeyedRow
from chainfolio.adapters.beacon.selection import withdrawal_address
from chainfolio.adapters.beacon.settings import BeaconSettings
from chainfolio.adapters.beacon.state_reader import StateReader
from chainfolio.adapters.beacon.validator_table import validator_table
from chainfolio.blocks import Span
from chainfolio.environment import Environment, SystemClock
from chainfolio.errors import (
    BadAnswer,
    BadSettings,
    ChainfolioError,
    HistoryUnavailable,
    NoBlock,
    NodeBehind,
    NoQuorum,
    NotFound,
    Reorged,
    Unavailable,
    UnsupportedMethod,
    WrongChain,
)
from chainfolio.localchain.beacon import BeaconRuntime
from chainfolio.memory import ByteBudget
from chainfolio.settings_file import load
from chainfolio.transport.exchange import HttpResponse, RateLimited, Sink
from chainfolio.transport.http import HttpTransport
from tests.beacon.conftest import CONFIGS, started

pytestmark = pytest.mark.node
Alter = Callable[[str, int, Any], tuple[int, Any]]
MISSED = 13


class Patient(SystemClock):
    """A clock that jumps over what is waited for."""

    def __init__(self) -> None:
        self._slept_s = 0.0

    def monotonic_s(self) -> float:
        """The time with all that was slept."""
        return super().monotonic_s() + self._slept_s

    async def sleep(self, seconds: float) -> None:
        """Jump ahead."""
        self._slept_s += seconds


class Altered:
    """The real transport, with some answers changed on their way."""

    def __init__(self, alter: Alter, only: str = "") -> None:
        self._alter, self._only = alter, only
        self._way = HttpTransport(ByteBudget(), connections=4)

    async def get(self, source: str, url: str, timeout_s: float) -> HttpResponse:
        """The node's answer, altered."""
        return self._changed(url, await self._way.get(source, url, timeout_s))

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        """The node's answer, altered."""
        return self._changed(url, await self._way.post(source, url, body, timeout_s))

    async def stream(self, source: str, url: str, sink: Sink, timeout_s: float) -> HttpResponse:
        """Stream nothing: the node speaks JSON alone."""
        return HttpResponse(406, None, b"{}")

    def _changed(self, url: str, posted: HttpResponse) -> HttpResponse:
        if self._only and self._only not in url:
            return posted
        posted.give_back()
        path = re.sub(r"https?://[^/]+", "", url)
        status, document = self._alter(path, posted.status, json.loads(posted.body))
        return HttpResponse(status, None, json.dumps(document).encode())

    async def close(self) -> None:
        """Let go."""
        await self._way.close()


@pytest.fixture(scope="module")
def node() -> Iterator[BeaconRuntime]:
    """A short chain that missed one slot."""
    running = started(slots=0)
    try:
        running.advance(64, miss=[MISSED])
        yield running
    finally:
        running.__exit__(None, None, None)


@dataclass
class Wrong:
    """A chain at a node whose answers are altered."""

    chain: BeaconChain

    async def error_message(self, kind: type[ChainfolioError], last: int = 40) -> str:
        """Return the message of the error that collecting raises."""
        with pytest.raises(kind) as caught:
            await self.chain.collect(Span(0, last), self.chain.default_datasets)
        await self.chain.close()
        return str(caught.value)


def wrong(node: BeaconRuntime, alter: Alter, *more: str, **settings: Any) -> Wrong:
    """A chain whose node says what `alter` makes of it."""
    chain_settings = BeaconSettings(adapter="beacon", rpc=[node.url, *more], **settings)
    return Wrong(build("own", chain_settings, Environment(clock=Patient()), configs=CONFIGS, transport=Altered(alter)))


def unchanged(path: str, status: int, document: Any) -> tuple[int, Any]:
    return status, document


async def test_a_missed_slot_has_no_block_and_no_row(node: BeaconRuntime) -> None:
    chain = wrong(node, unchanged).chain
    with pytest.raises(NoBlock):
        await chain.block(MISSED)
    with pytest.raises(NodeBehind):
        await chain.block(65)
    result = await chain.collect(Span(MISSED, MISSED), (*chain.default_datasets, "blocks"))
    assert result.last is None
    assert all(len(rows) == 0 for rows in result.tables.values())
    assert [block.height for block in await chain.blocks([12, 13, 14])] == [12, 14]
    await chain.close()


async def test_a_node_that_lost_a_block_does_not_pass_for_one_that_missed_it(node: BeaconRuntime) -> None:
    def lose(path: str, status: int, document: Any) -> tuple[int, Any]:
        return (404, {"code": 404, "message": "gone"}) if path.endswith("/blocks/20") else (status, document)

    assert "some are missing" in await wrong(node, lose).error_message(Unavailable)


@pytest.mark.parametrize("span", [Span(0, 9), Span(5, 30), Span(5, 40), Span(31, 31)])
async def test_a_node_that_lost_the_first_blocks_of_a_span_does_not_pass_for_a_quiet_chain(
    node: BeaconRuntime, span: Span
) -> None:
    def lose(path: str, status: int, document: Any) -> tuple[int, Any]:
        slot = int(path.rpartition("/")[2]) if re.search(r"/(blocks|headers)/\d+$", path) else 99
        if "/headers/0x" in path and status == 200:
            slot = int(document["data"]["header"]["message"]["slot"])
        return (404, {"code": 404, "message": "gone"}) if 0 < slot <= 31 else (status, document)

    chain = wrong(node, lose).chain
    with pytest.raises(HistoryUnavailable, match="the parent of the block at slot 32"):
        await chain.collect(span, ("blocks",))
    assert (await chain.collect(Span(32, 40), ("blocks",))).blocks[0].height == 32
    await chain.close()


async def test_a_limit_of_a_node_is_not_the_end_of_the_registry(node: BeaconRuntime) -> None:
    def limit(path: str, status: int, document: Any) -> tuple[int, Any]:
        if "/validator" in path:
            document["data"] = document["data"][:10]
        return status, document

    chain = wrong(node, limit).chain
    registry, spec = Registry(chain.nodes), await chain.spec()
    for read in (registry.validators(16, spec), registry.balances(16)):
        with pytest.raises(BadAnswer, match="lists 10 validators where more follow"):
            await read
    await chain.close()


async def test_a_limit_of_a_node_hides_no_validator_of_an_address(node: BeaconRuntime) -> None:
    def limit(path: str, status: int, document: Any) -> tuple[int, Any]:
        if "/validators" in path:
            document["data"] = document["data"][:10]
        return status, document

    whole, limited = wrong(node, unchanged).chain, wrong(node, limit).chain
    registry = await Registry(whole.nodes).validators(16, await whole.spec())
    addresses = sorted({address for each in registry.credentials if (address := withdrawal_address(bytes(each)))})
    expected = await whole.validators_of(addresses)
    assert len(expected) > 10
    assert await limited.validators_of(addresses) == expected
    for chain in (whole, limited):
        await chain.close()


async def test_a_validator_that_a_node_leaves_out_is_not_one_that_does_not_exist(node: BeaconRuntime) -> None:
    def leave_out(path: str, status: int, document: Any) -> tuple[int, Any]:
        if "/validators" in path:
            document["data"] = [each for each in document["data"] if each["index"] != "5"]
        return status, document

    chain = wrong(node, leave_out).chain
    reader = StateReader(chain.nodes, await chain.spec(), (5, 6))
    with pytest.raises(BadAnswer, match="leaves out validator 5"):
        await reader.validators_at_slot(16, (5, 6))
    await chain.close()


@pytest.mark.parametrize("after", [0, 1])
async def test_a_block_that_leaves_the_chain_while_it_is_read_is_read_again_later(
    node: BeaconRuntime, after: int
) -> None:
    """Drop its slot's block, as by a reorganisation: between its body and its header, and after both."""
    request_counts = Counter[str]()

    def leave(path: str, status: int, document: Any) -> tuple[int, Any]:
        request_counts[path] += 1
        has_left = path.endswith("/headers/60") and request_counts[path] > after
        return (404, {"code": 404, "message": "missed"}) if has_left else (status, document)

    message = await wrong(node, leave).error_message(Unavailable, last=60)
    assert "the chain changed while it was read" in message


async def test_an_optimistic_answer_is_not_believed_yet(node: BeaconRuntime) -> None:
    def optimistic(path: str, status: int, document: Any) -> tuple[int, Any]:
        return status, {**document, "execution_optimistic": True} if "/blocks/" in path else document

    assert "optimistic" in await wrong(node, optimistic).error_message(Unavailable)


async def test_a_final_slot_that_a_node_calls_unfinalised_is_not_stored(node: BeaconRuntime) -> None:
    def unsure(path: str, status: int, document: Any) -> tuple[int, Any]:
        return status, {**document, "finalized": False} if re.search(r"/headers/\d+$", path) else document

    assert "not final any more" in await wrong(node, unsure).error_message(Unavailable)


async def test_a_pruned_state_is_said_to_be_gone_and_is_never_zero(node: BeaconRuntime) -> None:
    def pruned(path: str, status: int, document: Any) -> tuple[int, Any]:
        return (
            (404, {"message": "State not found"}) if re.search(r"/states/\d+/validators", path) else (status, document)
        )

    assert "no state at block" in await wrong(node, pruned).error_message(HistoryUnavailable)


async def test_numbers_may_be_written_as_numbers_and_rows_stay_the_same(node: BeaconRuntime) -> None:
    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: bare(value) for name, value in value.items()}
        if isinstance(value, list):
            return [bare(value) for value in value]
        return int(value) if isinstance(value, str) and value.lstrip("-").isdecimal() else value

    def unquoted(path: str, status: int, document: Any) -> tuple[int, Any]:
        return status, document if path.endswith("/spec") else bare(document)

    plain, unquoted_chain = wrong(node, unchanged).chain, wrong(node, unquoted).chain
    quoted_rows, unquoted_rows = [
        await chain.collect(Span(0, 40), chain.default_datasets) for chain in (plain, unquoted_chain)
    ]
    assert quoted_rows.tables == unquoted_rows.tables
    assert len(quoted_rows.tables["validator_rewards"]) == 64 * 3
    await plain.close()
    await unquoted_chain.close()


async def test_a_node_that_takes_no_posted_list_is_asked_by_the_address(node: BeaconRuntime) -> None:
    def old(path: str, status: int, document: Any) -> tuple[int, Any]:
        posted = path.endswith(("/validators", "/validator_balances"))
        return (404, {"message": "Route POST not found"}) if posted else (status, document)

    plain, old_chain = wrong(node, unchanged).chain, wrong(node, old).chain
    posted_rows, get_rows = [await chain.collect(Span(0, 24), chain.default_datasets) for chain in (plain, old_chain)]
    assert posted_rows.tables == get_rows.tables
    assert (await old_chain.validator(7)).index == 7
    await plain.close()
    await old_chain.close()


@pytest.mark.parametrize("bad", ["-1", "1.5", "0x10", "", " 1", None, True, [], "9" * 40])
async def test_what_is_no_number_is_refused(node: BeaconRuntime, bad: Any) -> None:
    def spoil(path: str, status: int, document: Any) -> tuple[int, Any]:
        if "/validators" in path:
            document["data"][0]["balance"] = bad
        return status, document

    assert "wrong shape" in await wrong(node, spoil).error_message(BadAnswer)


@pytest.mark.parametrize("bad", ["0x" + "zz" * 48, "00" * 49, "0x" + "é" * 96, "0x" + "0 " * 48])
def test_a_public_key_that_is_no_hex_is_refused(bad: str) -> None:
    fields = KeyedFields("0x01" + "00" * 31, 0, False, 0, 0, 0, 0, pubkey=bad)
    with pytest.raises(BadAnswer, match="a pubkey that is no hex"):
        validator_table("node", [KeyedRow(7, 0, fields)])


async def test_a_registry_with_a_gap_is_refused_and_one_read_again_is_the_same(
    node: BeaconRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chainfolio.adapters.beacon.registry.PAGE_SIZE", 16)

    def leave_out(path: str, status: int, document: Any) -> tuple[int, Any]:
        if "/states/16/validators" in path:
            document["data"] = [each for each in document["data"] if each["index"] != "5"]
        return status, document

    chain = wrong(node, leave_out).chain
    registry, spec = Registry(chain.nodes), await chain.spec()
    first, second = await registry.validators(15, spec), await registry.validators(17, spec)
    assert len(set(map(bytes, first.pubkey))) == 64
    assert second.pubkey.tolist() == (await Registry(chain.nodes).validators(17, spec)).pubkey.tolist()
    assert (len(first), second.pubkey is first.pubkey, second.balance is first.balance) == (64, True, False)
    with pytest.raises(BadAnswer, match="some are left out"):
        await registry.validators(16, spec)
    await chain.close()


async def test_a_validator_that_a_node_leaves_out_of_the_rewards_is_missed(node: BeaconRuntime) -> None:
    def leave_out(path: str, status: int, document: Any) -> tuple[int, Any]:
        if "/rewards/attestations/" in path:
            document["data"]["total_rewards"] = document["data"]["total_rewards"][1:]
        return status, document

    assert "no rewards of validator 0" in await wrong(node, leave_out).error_message(BadAnswer)


async def test_the_reward_of_a_block_is_its_proposers_and_the_sum_of_its_parts(node: BeaconRuntime) -> None:
    def other_total(path: str, status: int, document: Any) -> tuple[int, Any]:
        if "/rewards/blocks/" in path:
            document["data"]["total"] = "1"
        return status, document

    assert "is not its proposer" in await wrong(node, other_total).error_message(BadAnswer)


async def test_a_reward_that_no_balance_bears_out_stands_as_unexplained(node: BeaconRuntime) -> None:
    def invent(path: str, status: int, document: Any) -> tuple[int, Any]:
        if path.endswith("/rewards/blocks/9"):
            document["data"] |= {name: str(int(document["data"][name]) + 1000) for name in ("total", "attestations")}
        return status, document

    chain = wrong(node, invent).chain
    rows = (await chain.collect(Span(0, 40), chain.default_datasets)).tables["validator_rewards"].to_pylist()
    assert [(each["epoch"], each["unexplained"]) for each in rows if each["unexplained"]] == [(1, -1000)]
    await chain.close()


async def test_where_balances_do_not_bear_out_what_a_seat_is_worth_each_block_is_asked_about(
    node: BeaconRuntime,
) -> None:
    requested_slots, path = set[int](), "/eth/v1/beacon/rewards/sync_committee"
    first = 8  # of epoch 1, whose other blocks have the right rewards

    def invent(path: str, status: int, document: Any) -> tuple[int, Any]:
        if "/rewards/sync_committee/" in path:
            requested_slots.add(slot := int(path.rpartition("/")[2]))
            if slot == first:
                document["data"] = [each | {"reward": str(3 * int(each["reward"]))} for each in document["data"]]
        return status, document

    chain = wrong(node, invent).chain
    rows = (await chain.collect(Span(0, 40), chain.default_datasets)).tables["validator_rewards"].to_pylist()
    await chain.close()
    honest = {str(seat["validator_index"]): 0 for seat in node.call(f"{path}/{first}", [])["data"]}
    for seat in node.call(f"{path}/{first}", [])["data"]:
        honest[str(seat["validator_index"])] += int(seat["reward"])
    wrongly = {str(each["validator"]): -each["unexplained"] // 2 for each in rows if each["unexplained"]}
    assert wrongly == {index: reward for index, reward in honest.items() if reward}
    assert {each["epoch"] for each in rows if each["unexplained"]} == {1}
    assert {slot for slot in requested_slots if 8 <= slot < 16} == set(range(8, 16)) - {MISSED}
    assert all(sum(slot // 8 == epoch for slot in requested_slots) == 1 for epoch in (0, 2, 3))


@pytest.mark.parametrize("bits", ["0xabc", "0xzz", "ab", ["0xab"]])
async def test_bits_that_are_no_bytes_are_refused(node: BeaconRuntime, bits: Any) -> None:
    def spoil(path: str, status: int, document: Any) -> tuple[int, Any]:
        if path.endswith("/beacon/blocks/9"):
            document["data"]["message"]["body"]["sync_aggregate"]["sync_committee_bits"] = bits
        return status, document

    assert "of the wrong shape" in await wrong(node, spoil).error_message(BadAnswer)


async def test_a_fork_that_is_not_known_stops_the_index_and_says_so(node: BeaconRuntime) -> None:
    def later(path: str, status: int, document: Any) -> tuple[int, Any]:
        return status, {**document, "version": "gloas"} if "/blocks/" in path else document

    assert "`gloas`" in await wrong(node, later).error_message(UnsupportedMethod)

    def started_fork(path: str, status: int, document: Any) -> tuple[int, Any]:
        if path.endswith("/spec"):
            document["data"]["GLOAS_FORK_EPOCH"] = "1"
        return status, document

    assert "`gloas`" in await wrong(node, started_fork).error_message(UnsupportedMethod)


async def test_a_block_of_another_slot_and_a_chain_that_does_not_follow_are_refused(node: BeaconRuntime) -> None:
    def shifted(path: str, status: int, document: Any) -> tuple[int, Any]:
        if path.endswith("/blocks/20"):
            document["data"]["message"]["slot"] = "21"
        return status, document

    assert "in the place of 20" in await wrong(node, shifted).error_message(BadAnswer)
    chain = wrong(node, unchanged).chain
    await chain.heads()
    before = await chain.block(12)
    with pytest.raises(Reorged):
        await chain.collect(Span(21, 30), chain.default_datasets, before=before)
    await chain.close()


async def test_a_node_of_another_network_is_refused_by_its_genesis(node: BeaconRuntime) -> None:
    def of_another_network(path: str, status: int, document: Any) -> tuple[int, Any]:
        if path.endswith("/genesis"):
            document["data"]["genesis_validators_root"] = "0x" + "ab" * 32
        return status, document

    chain_settings = BeaconSettings(adapter="beacon", rpc=[node.url])
    chain = build("beacon", chain_settings, Environment(clock=Patient()), configs=CONFIGS)  # the facts of mainnet
    with pytest.raises(WrongChain):
        await chain.heads()
    (row,) = await chain.examine()
    assert not row["ok"]
    assert "another network" in row["problem"]
    await chain.close()
    second = node.url.replace("127.0.0.1", "localhost")
    both = build(
        "own",
        BeaconSettings(adapter="beacon", rpc=[node.url, second]),
        Environment(clock=Patient()),
        configs=CONFIGS,
        transport=Altered(of_another_network, only="localhost"),
    )
    with pytest.raises(WrongChain, match="another network than own"):
        await both.heads()
    await both.close()


async def test_two_nodes_that_disagree_about_a_final_block_are_a_dispute(node: BeaconRuntime) -> None:
    def other_root(path: str, status: int, document: Any) -> tuple[int, Any]:
        if re.search(r"/headers/\d+$", path) and status == 200:
            document["data"]["root"] = "0x" + "cd" * 32
        return status, document

    second = node.url.replace("127.0.0.1", "localhost")
    chain = build(
        "own",
        BeaconSettings(adapter="beacon", rpc=[node.url, second]),
        Environment(clock=Patient()),
        configs=CONFIGS,
        transport=Altered(other_root, only="localhost"),
    )
    assert "another final block at slot 40" in await Wrong(chain).error_message(NoQuorum)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (500, Unavailable),
        (503, Unavailable),
        (429, RateLimited),
        (400, BadAnswer),
        (501, UnsupportedMethod),
        (301, BadAnswer),
    ],
)
async def test_each_status_is_an_error_of_its_kind(
    node: BeaconRuntime, status: int, kind: type[ChainfolioError]
) -> None:
    def refuse(path: str, before: int, document: Any) -> tuple[int, Any]:
        return (status, {"message": "secret words"}) if "/blocks/" in path else (before, document)

    assert "secret" not in await wrong(node, refuse).error_message(kind)


async def test_a_second_node_answers_what_the_first_one_has_no_more_or_does_not_serve(node: BeaconRuntime) -> None:
    for status in (404, 501):

        def poor(path: str, before: int, document: Any, status: int = status) -> tuple[int, Any]:
            is_state = re.search(r"/states/[0-9]+/validators", path)
            return (status, {"message": "no"}) if is_state or "/rewards/" in path else (before, document)

        second = node.url.replace("127.0.0.1", "localhost")
        chain_settings = BeaconSettings(adapter="beacon", rpc=[node.url, second])
        environment, transport = Environment(clock=Patient()), Altered(poor, only="127.0.0.1")
        poor_first = build("own", chain_settings, environment, configs=CONFIGS, transport=transport)
        full_chain = wrong(node, unchanged).chain
        poor_rows, full_rows = [
            await chain.collect(Span(0, 40), chain.default_datasets) for chain in (poor_first, full_chain)
        ]
        assert poor_rows.tables == full_rows.tables
        assert len(poor_rows.tables["validator_rewards"]) == 64 * 3
        first, second_health = poor_first.health()
        assert first.errors == second_health.errors == {}, "a 404 is an answer and no fault"
        await poor_first.close()
        await full_chain.close()


async def test_a_node_that_comes_back_as_one_of_another_network_is_not_believed(node: BeaconRuntime) -> None:
    is_down = True

    def of_another_network(path: str, status: int, document: Any) -> tuple[int, Any]:
        if path.endswith("/genesis"):
            document["data"]["genesis_validators_root"] = "0x" + "ab" * 32
        return (503, {}) if is_down else (status, document)

    second = node.url.replace("127.0.0.1", "localhost")
    chain_settings = BeaconSettings(adapter="beacon", rpc=[second, node.url])
    transport = Altered(of_another_network, only="localhost")
    chain = build("own", chain_settings, Environment(clock=Patient()), configs=CONFIGS, transport=transport)
    assert (await chain.heads()).latest.height == 64
    is_down = False
    chain.nodes.endpoints[0].down_until_s = 0.0  # it is asked first again
    assert (await chain.heads()).latest.height == 64
    assert chain.health()[0].errors["WrongChain"] > 0
    await chain.close()


async def test_a_second_node_answers_where_the_first_one_is_down(node: BeaconRuntime) -> None:
    chain_settings = BeaconSettings(adapter="beacon", rpc=["http://127.0.0.1:1", node.url])
    chain = build("own", chain_settings, Environment(clock=Patient()), configs=CONFIGS)
    assert (await chain.heads()).latest.height == 64
    await chain.close()


async def test_a_validator_above_the_registry_is_not_found_whatever_the_node_calls_it(node: BeaconRuntime) -> None:
    chain = wrong(node, unchanged).chain
    for validator in (64, 2**62, "0x" + "ab" * 48):
        with pytest.raises(NotFound):
            await chain.validator(validator)
    await chain.close()


@pytest.mark.parametrize("validator", ["-1", "07", "0x12", "0x" + "g" * 96, "vitalik.eth", ""])
def test_what_names_no_validator_is_refused_with_the_settings(validator: str) -> None:
    with pytest.raises(BadSettings, match="no index, no public key"):
        BeaconSettings(adapter="beacon", validators=[validator]).check("chains.beacon")


def test_an_upper_case_key_is_the_same_validator() -> None:
    assert BeaconSettings(adapter="beacon", validators=["0x" + "AB" * 48]).chosen == ["0x" + "ab" * 48]


def test_nodes_without_an_address_of_http_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "chainfolio.toml"
    file.write_text('[chains.own]\nadapter = "beacon"\nnodes = ["http://127.0.0.1:5052"]\n')
    with pytest.raises(BadSettings, match=r"unknown key `nodes`.*did you mean `rpc`"):
        load(file)
    file.write_text(file.read_text().replace("nodes", "rpc").replace("http:", "ftp:"))
    with pytest.raises(BadSettings, match="an endpoint is an http:// or https:// address"):
        load(file)
