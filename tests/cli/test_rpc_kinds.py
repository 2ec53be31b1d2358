"""Commands with `--rpc` recognise nodes of every kind, and their addresses."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from chainfolio.localchain.errors import InstallFailed, NodeJsMissing, NoSuchNode
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.starknet.devnet import Devnet
from chainfolio.localchain.tron.forms import base58check
from chainfolio.localchain.tron.node import TronNode
from tests.beacon.conftest import started as started_beacon
from tests.cli.conftest import ALICE, Run
from tests.solana.conftest import facts_of
from tests.solana.conftest import started as started_solana
from tests.starknet.conftest import facts_file
from tests.tron.chains import facts as tron_facts

pytestmark = pytest.mark.node
TRX = 1_000_000  # sun
CONFIRMED = 'commitment = "confirmed"\n'  # a new node has no final slot
PERSON = "12" * 20
SOLANA = "7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtV"
TRON = base58check(f"41{PERSON}")
STARKNET = f"0x{int('0x04ab', 16):064x}"


@dataclass(frozen=True)
class Place:
    """A node, and the settings without an endpoint by which its chain is known."""

    kind: str
    url: str
    settings: Callable[[Path], str]


@pytest.fixture(scope="module", params=["evm", "solana", "tron", "starknet", "beacon"])
def stand_in(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A real node or a stand-in of each kind."""
    with ExitStack() as stack:
        try:
            yield PLACES[request.param](stack)
        except (InstallFailed, NodeJsMissing, NoSuchNode) as error:
            pytest.skip(f"a node of {request.param} cannot be installed here: {error}")


def _evm(stack: ExitStack) -> Place:
    node = stack.enter_context(LocalNode())
    node.rpc("anvil_setBalance", ALICE, hex(10**18))
    node.mine()
    return Place("evm", node.url, lambda folder: "")


def _solana(stack: ExitStack) -> Place:
    node = stack.enter_context(started_solana())
    genesis = node.rpc("getGenesisHash")
    return Place("solana", node.url, lambda folder: _chain("solana", facts_of(genesis, folder)) + CONFIRMED)


def _tron(stack: ExitStack) -> Place:
    node = stack.enter_context(TronNode(grid=True, balances=True))
    node.endow(f"41{PERSON}", 7 * TRX)
    node.advance(3)
    return Place("tron", node.url, lambda folder: _chain("tron", tron_facts(node, folder)))


def _starknet(stack: ExitStack) -> Place:
    node = stack.enter_context(Devnet())
    return Place("starknet", f"{node.url}/rpc", lambda folder: _chain("starknet", facts_file(folder)))


def _beacon(stack: ExitStack) -> Place:
    node = started_beacon(validators=16)
    stack.push(node.__exit__)
    node.advance(8)
    return Place("beacon", node.url, lambda folder: _chain("own", _beacon_facts(node.url, folder), "beacon"))


PLACES = {"evm": _evm, "solana": _solana, "tron": _tron, "starknet": _starknet, "beacon": _beacon}
ADDRESSES = {"evm": ALICE, "solana": SOLANA, "tron": TRON, "starknet": STARKNET}


def _chain(key: str, path: Path, kind: str = "") -> str:
    return f'[chains.{key}]\nadapter = "{kind or key}"\nfacts = "{path}"\nindex = "accounts"\n'


def _beacon_facts(url: str, folder: Path) -> Path:
    with urllib.request.urlopen(f"{url}/eth/v1/beacon/genesis", timeout=30) as answer:
        root = json.load(answer)["data"]["genesis_validators_root"]
    path = folder / "own.toml"
    path.write_text(f'key = "own"\nkind = "beacon"\nname = "Own"\ngenesis = "{root}"\n')
    return path


@pytest.mark.slow("starts a node of every kind")
def test_a_node_of_any_kind_is_recognised(run: Run, stand_in: Place, here: Path) -> None:
    (here / "chainfolio.toml").write_text(stand_in.settings(here))
    ran = run("status", "--rpc", stand_in.url, "--json")
    assert [chain["kind"] for chain in ran.json["chains"]] == [stand_in.kind]
    if stand_in.kind in ADDRESSES:
        ran = run("portfolio", ADDRESSES[stand_in.kind], "--rpc", stand_in.url, "--json")
        assert ran.code == 0, ran.out + ran.err
        assert ran.json[0]["chains"]


TWINS = ("evm", "tron")  # an address 0x… is one of Tron where the chain is


@pytest.mark.slow("slower nodes to start; other kinds show the same", only=["starknet", "beacon"])
def test_an_address_of_another_kind_than_the_node_is_an_error(run: Run, stand_in: Place, here: Path) -> None:
    (here / "chainfolio.toml").write_text(stand_in.settings(here))
    addresses = [
        address for kind, address in ADDRESSES.items() if kind != stand_in.kind and (kind, stand_in.kind) != TWINS
    ]
    assert len(addresses) >= 2
    for address in addresses:
        for command in ("portfolio", "nav", "watch", "pnl"):
            ran = run(command, address, "--rpc", stand_in.url, "--json")
            assert (ran.code, ran.error["kind"], ran.error["field"]) == (2, "BadRequest", "address"), address
            assert "no chain of its kind" in ran.error["message"]


@pytest.mark.slow("slower nodes to start; other kinds show the same", only=["starknet", "beacon"])
@pytest.mark.parametrize("stand_in", ["tron", "starknet", "beacon"], indirect=True)  # no file describes these nodes
def test_an_unknown_chain_of_any_kind_is_refused_by_its_identity(run: Run, stand_in: Place) -> None:
    ran = run("portfolio", ALICE, "--rpc", stand_in.url, "--json")
    assert (ran.code, ran.error["kind"], ran.error["field"]) == (2, "BadRequest", "rpc")
    assert f"of the kind `{stand_in.kind}`" in ran.error["message"]


@pytest.mark.parametrize("stand_in", ["tron"], indirect=True)
def test_an_address_of_hex_is_one_of_tron_at_a_node_of_tron(run: Run, stand_in: Place, here: Path) -> None:
    (here / "chainfolio.toml").write_text(stand_in.settings(here))
    (by_hex,), (by_text,) = (
        run("portfolio", each, "--rpc", stand_in.url, "--json").json for each in (f"0x{PERSON}", TRON)
    )
    assert by_hex["address"] == by_text["address"] == TRON
    (asset,) = by_hex["assetByProtocols"]["wallet"]["chains"]["tron"]["protocolPositions"]["WALLET"]["assets"]
    assert asset["balance"] == "7"
    (here / "wallets").write_text(f"0x{PERSON}\n")
    ran = run("portfolio", "--from", "wallets", "--rpc", stand_in.url, "--json")
    assert json.loads(ran.out)["address"] == TRON


@pytest.fixture
def web_page() -> Iterator[str]:
    """A server that answers everything with a page for browsers."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.send_header("Content-Length", "13")
            self.end_headers()
            self.wfile.write(b"<html></html>")

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_server_that_is_no_node_is_refused_without_waiting(run: Run, web_page: str, waited: list[float]) -> None:
    ran = run("portfolio", ALICE, "--rpc", web_page, "--json")
    assert (ran.code, ran.error["kind"]) == (3, "BadAnswer")
    assert "serves no kind of chain" in ran.error["message"]
    assert waited == []


@pytest.mark.parametrize("arguments", [("portfolo", ALICE), ("portfolio", "--blok", "5"), ("approvals",), ()])
def test_a_usage_error_is_one_json_object_if_json_is_wanted(run: Run, arguments: tuple[str, ...]) -> None:
    ran = run(*arguments, "--json")
    assert (ran.code, ran.error["kind"], ran.error["field"], ran.err) == (2, "UsageError", "usage", "")
    assert ran.error["usage"].startswith("usage: chainfolio")
    plain = run(*arguments)
    assert (plain.code, plain.out) == (2, "")
    assert plain.err == f"{ran.error['usage']}{ran.error['program']}: error: {ran.error['reason']}\n"
