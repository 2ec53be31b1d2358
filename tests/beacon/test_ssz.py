"""States in SSZ: the same rows as of JSON, from nodes that offer it; JSON from those that do not; nodes that lie."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import numpy as np
import pytest

from chainfolio.adapters.beacon.chain import BeaconChain, build
from chainfolio.adapters.beacon.registry import Registry
from chainfolio.adapters.beacon.settings import BeaconSettings
from chainfolio.adapters.beacon.ssz import MAX_STATE, MEDIA_TYPE, Layout, StateSink, state_layout
from chainfolio.adapters.beacon.validator_table import ValidatorTable
from chainfolio.blocks import Span
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, HistoryUnavailable, Unavailable
from chainfolio.localchain.beacon import BeaconRuntime
from tests.beacon.conftest import CONFIGS, started
from tests.beacon.test_bad_input import Altered, Patient, unchanged

pytestmark = pytest.mark.node
EARLIER = pytest.mark.slow("an earlier fork with another layout of the state")
STATE = "/eth/v2/debug/beacon/states/"
SLOT = 20


@dataclass
class NodeResponse:
    """A node's response, to be altered on its way."""

    status: int
    headers: dict[str, str]
    body: bytes
    says_length: int | None = None


Alter = Callable[[str, NodeResponse], None]


@dataclass
class Between:
    """A real server between the adapter and a node, which alters what that says."""

    url: str = ""
    paths: list[str] = field(default_factory=list)

    @property
    def states(self) -> int:
        """Number of states that were requested."""
        return sum(path.startswith(STATE) for path in self.paths)


@contextmanager
def between(node: BeaconRuntime, alter: Alter) -> Iterator[Between]:
    """A server that passes on what a node says, altered."""
    proxy = Between()

    class Passing(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._pass(None)

        def do_POST(self) -> None:
            self._pass(self.rfile.read(int(self.headers["content-length"])))

        def _pass(self, body: bytes | None) -> None:
            proxy.paths.append(self.path)
            response = fetch(node, self.path, body, self.headers["accept"])
            alter(self.path, response)
            self.send_response(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(response.says_length or len(response.body)))
            self.end_headers()
            self.wfile.write(response.body)
            self.close_connection = response.says_length is not None

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Passing)
    server.daemon_threads = True
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()


def fetch(node: BeaconRuntime, path: str, body: bytes | None, form: str) -> NodeResponse:
    """Return the node's own response."""
    request = urllib.request.Request(node.url + path, body, {"accept": form, "content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            header_names = ("content-type", "eth-consensus-version")
            return NodeResponse(
                answer.status, {each: answer.headers[each] or "" for each in header_names}, answer.read()
            )
    except urllib.error.HTTPError as error:
        return NodeResponse(error.code, {"content-type": "application/json"}, error.read())


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few validators are a large network."""
    monkeypatch.setattr("chainfolio.adapters.beacon.registry.PAGE_SIZE", 16)


@pytest.fixture(scope="module")
def node() -> Iterator[BeaconRuntime]:
    """A short chain with all that Electra has in lists."""
    running = started()
    try:
        running.do("deposit", amount=32 * 10**9)
        running.advance(24, miss=[13])
        yield running
    finally:
        running.__exit__(None, None, None)


def chain_of(*urls: str) -> BeaconChain:
    """The adapter at some nodes."""
    chain_settings = BeaconSettings(adapter="beacon", rpc=list(urls))
    return build("own", chain_settings, Environment(clock=Patient()), configs=CONFIGS)


def in_json(node: BeaconRuntime) -> BeaconChain:
    """The adapter at a node that has no SSZ."""
    chain_settings = BeaconSettings(adapter="beacon", rpc=[node.url])
    return build("own", chain_settings, Environment(clock=Patient()), configs=CONFIGS, transport=Altered(unchanged))


def equal(first: ValidatorTable, second: ValidatorTable) -> bool:
    """Return True if all columns are the same, byte for byte."""
    pairs = [(getattr(first, each.name), getattr(second, each.name)) for each in fields(ValidatorTable)]
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)


async def read(chain: BeaconChain, slot: int = SLOT) -> ValidatorTable:
    """The registry after a slot, by a reader that knows of none."""
    return await Registry(chain.nodes).validators(slot, await chain.spec())


def unaltered(path: str, response: NodeResponse) -> None:
    """Leave a response as it is."""


@pytest.mark.slow("the same rows of another fork", only=["minimal-64-electra"])
@pytest.mark.parametrize(
    ("preset", "slots", "fork"),
    [
        ("minimal", 64, "electra"),
        ("minimal", 64, "fulu"),
        pytest.param("mainnet", 96, "fulu", marks=pytest.mark.slow("the same forks with longer epochs and vectors")),
        *(pytest.param("mainnet", 96, fork, marks=EARLIER) for fork in ("capella", "deneb", "electra")),
    ],
)
async def test_rows_of_states_in_ssz_are_those_of_states_in_json(preset: str, slots: int, fork: str) -> None:
    running = started(preset=preset, fork=fork, validators=64 if preset == "minimal" else 128)
    try:
        running.advance(40, miss=[13, 14])
        running.do("exit", validators=[9])
        running.do("slash", validators=[11])
        running.advance(slots - 40)
        with between(running, unaltered) as proxy:
            chains = chain_of(proxy.url), in_json(running)
            ssz_rows, json_rows = [await chain.collect(Span(0, slots), chain.default_datasets) for chain in chains]
            assert ssz_rows.tables == json_rows.tables
            assert len(ssz_rows.tables["validator_rewards"]) > 0
            assert proxy.states > 1
            for slot in (0, 1, slots - 1):
                assert equal(await read(chains[0], slot), await read(chains[1], slot))
            for chain in chains:
                await chain.close()
    finally:
        running.__exit__(None, None, None)


@pytest.mark.slow("other sizes of the same pieces", only=["121", "5000", "1048576"])
@pytest.mark.parametrize("size", [1, 7, 121, 5_000, 1 << 20])
async def test_a_state_may_arrive_in_pieces_of_any_size(node: BeaconRuntime, size: int) -> None:
    chain = chain_of(node.url)
    spec, response = await chain.spec(), fetch(node, f"{STATE}{SLOT}", None, MEDIA_TYPE)
    layout = state_layout(spec, spec.epoch(SLOT))
    assert layout is not None
    sink = StateSink("node", layout, SLOT, spec.genesis.genesis_validators_root)
    sink.begin({each.encode(): value for each, value in response.headers.items()}, None)
    for at in range(0, len(response.body), size):
        sink.take(response.body[at : at + size])
    plain = in_json(node)
    assert equal(sink.table(), await read(plain))
    await chain.close()
    await plain.close()


# --- nodes that do not offer it --------------------------------------------------------------------------------------


def refuse(status: int) -> Alter:
    def alter(path: str, response: NodeResponse) -> None:
        response.status, response.headers, response.body = (
            status,
            {"content-type": "application/json"},
            b'{"message":"no"}',
        )

    return alter


def as_json(path: str, response: NodeResponse) -> None:
    response.headers, response.body = (
        {"content-type": "application/json", "eth-consensus-version": "electra"},
        b'{"data":{}}',
    )


def as_page(path: str, response: NodeResponse) -> None:
    response.headers, response.body = {"content-type": "text/html"}, b"<html>welcome</html>"


def later_fork(path: str, response: NodeResponse) -> None:
    response.headers["eth-consensus-version"] = "gloas"


def no_fork(path: str, response: NodeResponse) -> None:
    del response.headers["eth-consensus-version"]


def packed(path: str, response: NodeResponse) -> None:
    response.headers["content-encoding"] = "gzip"


def hung_up(path: str, response: NodeResponse) -> None:
    response.says_length, response.body = len(response.body), response.body[:15_000]


OTHERWISE = {str(status): refuse(status) for status in (400, 401, 403, 404, 405, 406, 415, 429, 500, 501, 503)} | {
    "JSON": as_json,
    "a page": as_page,
    "a later fork": later_fork,
    "no fork": no_fork,
    "packed": packed,
    "hung up": hung_up,
}


@pytest.mark.slow("other statuses are answered in the same way", only=["40[01345]", "415", "50*"])
@pytest.mark.parametrize("how", OTHERWISE)
async def test_a_node_that_does_not_bring_a_state_in_ssz_is_asked_for_it_once_and_read_in_json(
    node: BeaconRuntime, how: str
) -> None:
    def alter(path: str, response: NodeResponse) -> None:
        if path.startswith(STATE):
            OTHERWISE[how](path, response)

    with between(node, alter) as proxy:
        chain, plain = chain_of(proxy.url), in_json(node)
        for slot in (SLOT, SLOT + 1):
            assert equal(await read(chain, slot), await read(plain, slot))
        assert proxy.states == 1
        await chain.close()
        await plain.close()


async def test_of_a_small_network_or_of_unknown_lengths_no_state_is_asked_for(
    node: BeaconRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(path: str, response: NodeResponse) -> None:
        if path.endswith("/spec"):
            document = json.loads(response.body)
            del document["data"]["SYNC_COMMITTEE_SIZE"]
            response.body = json.dumps(document).encode()

    with between(node, forget) as proxy:
        chain = chain_of(proxy.url)
        assert len(await read(chain)) >= 64
        assert proxy.states == 0
        await chain.close()
    monkeypatch.setattr("chainfolio.adapters.beacon.registry.PAGE_SIZE", 1_000)
    with between(node, unaltered) as proxy:
        chain = chain_of(proxy.url)
        assert len(await read(chain)) >= 64
        assert proxy.states == 0
        await chain.close()


async def test_a_state_that_is_gone_or_not_believed_is_not_asked_for_in_ssz(node: BeaconRuntime) -> None:
    def not_found(path: str, response: NodeResponse) -> None:
        if re.search(r"/states/20/", path):
            response.status, response.body = 404, b'{"message":"State not found"}'

    def optimistic(path: str, response: NodeResponse) -> None:
        if re.search(r"/states/20/", path):
            response.body = json.dumps({**json.loads(response.body), "execution_optimistic": True}).encode()

    for alter, kind in ((not_found, HistoryUnavailable), (optimistic, Unavailable)):
        with between(node, alter) as proxy:
            chain = chain_of(proxy.url)
            registry, spec = Registry(chain.nodes), await chain.spec()
            await registry.validators(SLOT - 1, spec)
            with pytest.raises(kind):
                await registry.validators(SLOT, spec)
            assert proxy.states == 1
            await chain.close()


# --- nodes that lie --------------------------------------------------------------------------------------------------


@dataclass
class StateBytes:
    """A state, its offsets by the names of its lists, and where these are written."""

    body: bytearray
    layout: Layout

    @property
    def offsets(self) -> Mapping[str, int]:
        """Offsets at which each list begins."""
        return {name: self.read(offset) for name, offset in self.layout.lists.items()}

    def read(self, offset: int) -> int:
        """An offset."""
        return int.from_bytes(self.body[offset : offset + 4], "little")

    def point(self, name: str, to: int) -> None:
        """Let the list begin elsewhere."""
        offset = self.layout.lists[name]
        self.body[offset : offset + 4] = to.to_bytes(4, "little")


def cut(name: str, size: int) -> Callable[[StateBytes], None]:
    def alter(state: StateBytes) -> None:
        del state.body[state.offsets[name] + size :]

    return alter


def move_list(name: str, by: int) -> Callable[[StateBytes], None]:
    return lambda state: state.point(name, state.offsets[name] + by)


def pointed(name: str, to: int) -> Callable[[StateBytes], None]:
    return lambda state: state.point(name, to)


def put(offset: Callable[[StateBytes], int], content: bytes) -> Callable[[StateBytes], None]:
    def alter(state: StateBytes) -> None:
        state.body[offset(state) : offset(state) + len(content)] = content

    return alter


def swapped(state: StateBytes) -> None:
    validators, balances = state.offsets["validators"], state.offsets["balances"]
    state.point("validators", balances)
    state.point("balances", validators)


def leave_empty(state: StateBytes) -> None:
    state.body.clear()


LIES: dict[str, tuple[Callable[[StateBytes], None], str]] = {
    "nothing at all": (leave_empty, "breaks off"),
    "cut in the fixed part": (cut("historical_roots", -100), "breaks off"),
    "cut after the fixed part": (cut("historical_roots", 0), "breaks off"),
    "cut before the validators": (cut("validators", -1), "breaks off"),
    "cut between validators": (cut("validators", 121), "breaks off"),
    "cut within a validator": (cut("validators", 121 * 3 + 60), "breaks off"),
    "cut before the balances": (cut("balances", 0), "breaks off"),
    "cut within a balance": (cut("balances", 12), "breaks off"),
    "cut in the participation": (cut("current_epoch_participation", 5), "breaks off"),
    "cut in the scores": (cut("inactivity_scores", 5), "breaks off"),
    "cut in the header of the payload": (cut("latest_execution_payload_header", 5), "breaks off"),
    "cut in the last list": (lambda state: state.body.extend(bytes(15)), "a part of a record"),
    "a first list that begins elsewhere": (move_list("historical_roots", 4), "out of order"),
    "offsets of zero": (pointed("balances", 0), "out of order"),
    "offsets that are swapped": (swapped, "out of order"),
    "an offset beyond the state": (pointed("pending_consolidations", 900_000), "breaks off|a part of a record"),
    "an offset beyond all states": (pointed("pending_consolidations", 2**32 - 1), "out of order"),
    "a part of a validator": (move_list("balances", -1), "a part of a record"),
    "validators that are balances": (move_list("balances", -121 * 8), "another number"),
    "fewer participants": (move_list("inactivity_scores", -8), "another number"),
    "another slot": (put(lambda state: state.layout.slot, (SLOT + 1).to_bytes(8, "little")), "of slot 21"),
    "another network": (put(lambda state: state.layout.root, b"x" * 32), "of another network"),
    "a flag of two": (put(lambda state: state.offsets["validators"] + 88, b"\x02"), "that is none"),
    "too large a balance": (put(lambda state: state.offsets["balances"], b"\xff" * 8), "that is none"),
    "too large a stake": (put(lambda state: state.offsets["validators"] + 80, b"\xff" * 8), "that is none"),
}


async def lied(node: BeaconRuntime, alter: Alter, says: str) -> None:
    """Check that reading such a node raises BadAnswer, and that the next node's answer is read."""

    def altered(path: str, response: NodeResponse) -> None:
        if path.startswith(STATE):
            alter(path, response)

    with between(node, altered) as proxy:
        chain, both, plain = chain_of(proxy.url), chain_of(proxy.url, node.url), in_json(node)
        with pytest.raises(BadAnswer, match=says):
            await read(chain)
        both.nodes.endpoints[1].health.latency_s = 60.0  # the liar is asked first
        assert equal(await read(both), await read(plain))
        for each in (chain, both, plain):
            await each.close()


@pytest.mark.parametrize("how", LIES)
async def test_what_is_no_such_state_is_refused(node: BeaconRuntime, how: str) -> None:
    chain = chain_of(node.url)
    spec = await chain.spec()
    await chain.close()
    layout = state_layout(spec, spec.epoch(SLOT))
    assert layout is not None

    def alter(path: str, response: NodeResponse) -> None:
        state = StateBytes(bytearray(response.body), layout)
        LIES[how][0](state)
        response.body = bytes(state.body)

    await lied(node, alter, LIES[how][1])


async def test_a_state_of_another_fork_slot_or_size_than_it_says_is_refused(node: BeaconRuntime) -> None:
    def other_fork(path: str, response: NodeResponse) -> None:
        response.headers["eth-consensus-version"] = "deneb"

    def other_slot(path: str, response: NodeResponse) -> None:
        response.body = fetch(node, f"{STATE}{SLOT - 1}", None, MEDIA_TYPE).body

    def huge(path: str, response: NodeResponse) -> None:
        response.says_length = MAX_STATE + 1

    lies = {"of the fork `deneb`": other_fork, "of slot 19": other_slot, "of more than 1024 MiB": huge}
    for says, alter in lies.items():
        await lied(node, alter, says)


def decode_table(sink: StateSink, body: bytes) -> ValidatorTable:
    """Return the table that a sink makes of a body."""
    sink.take(body)
    return sink.table()


async def test_noise_is_never_a_state(node: BeaconRuntime) -> None:
    chain, chance = chain_of(node.url), np.random.default_rng(7)
    spec, response = await chain.spec(), fetch(node, f"{STATE}{SLOT}", None, MEDIA_TYPE)
    await chain.close()
    layout = state_layout(spec, spec.epoch(SLOT))
    assert layout is not None
    for _ in range(300):
        body = bytearray(response.body[: chance.integers(0, len(response.body))])
        for offset in chance.integers(0, max(1, len(body)), 4):
            body[offset : offset + 1] = chance.bytes(1)
        with pytest.raises(BadAnswer):
            decode_table(StateSink("node", layout, SLOT, spec.genesis.genesis_validators_root), bytes(body))
