"""`chainfolio verify` on a real chain: what is true is shown to be, and whoever changes one thing is found out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chainfolio.assets import ZERO_ADDRESS
from chainfolio.cli.main import main
from chainfolio.localchain.evm import call_data
from chainfolio.localchain.node import LocalNode
from chainfolio.settings import Settings
from tests.e2e.byzantine_node import Lie, byzantine, replacing
from tests.e2e.conftest import World, history
from tests.e2e.test_past import indexed
from tests.e2e.test_portfolio import on_chain, place

pytestmark = pytest.mark.node
NOBODY = "http://127.0.0.1:9"
AT = "eth_getBlockByNumber"


@pytest.fixture(scope="module")
def world_and_settings(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with LocalNode() as node:
        world = history(node)
        yield world, indexed(world, tmp_path_factory.mktemp("verify") / "data")


@pytest.fixture
def world(world_and_settings: tuple[World, Settings]) -> World:
    return world_and_settings[0]


class Verified:
    """What one run of the command said, and how it ended."""

    def __init__(self, code: int, out: str) -> None:
        self.code, self.document = code, json.loads(out)

    def rows(self, number: str) -> dict[str, dict[str, Any]]:
        return {row["asset"]: row for row in self.document["checks"] if row["number"] == number}

    def statuses(self, number: str) -> set[str]:
        return {row["status"] for row in self.rows(number).values()}

    def of(self, number: str, contract: str) -> dict[str, Any]:
        wanted = "slip44" if contract == ZERO_ADDRESS else contract
        return next(row for asset, row in self.rows(number).items() if wanted in asset)


class Verify:
    """Runs the command at a past block."""

    def __init__(self, world: World, settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
        self.world, self.capsys, self.height = world, capsys, world.node.height - 3
        self.config = settings.data_dir / "chainfolio.toml"

    def answered_by(self, folder: Path, *urls: str) -> None:
        """Other endpoints than the chain's own from here on."""
        written = self.config.read_text()
        assert self.world.node.url in written
        own, others = json.dumps([self.world.node.url]), json.dumps(urls)
        assert own in written
        self.config = self.config.with_name(f"{folder.name}.toml")  # paths in it are taken from its folder
        self.config.write_text(written.replace(own, others))

    def __call__(self, *more: str, who: str = "alice", as_json: bool = True) -> Any:
        shown = ["--json"] if as_json else []
        block = ["--block", str(self.height)]
        self.capsys.readouterr()
        code = main(["verify", self.world.wallets[who], *block, "--config", str(self.config), *more, *shown])
        out = self.capsys.readouterr().out
        return Verified(code, out) if as_json else (code, out)


@pytest.fixture
def verify(world_and_settings: tuple[World, Settings], capsys: pytest.CaptureFixture[str]) -> Verify:
    return Verify(*world_and_settings, capsys)


# --- honest nodes ----------------------------------------------------------------------------------------------------


def test_with_another_honest_endpoint_every_number_is_equal_or_proven(world: World, verify: Verify) -> None:
    found = verify("--against", world.node.url)
    assert found.code == 0
    assert (found.document["faults"], found.document["silent"]) == ([], [])
    assert found.document["counts"] | {"proven": 0, "equal": 0} == dict.fromkeys(found.document["counts"], 0)
    assert found.document["blockHash"] == world.node.block(verify.height)["hash"]
    assert found.statuses("block") == {"proven"}
    assert found.statuses("networth") == {"equal"}
    for symbol in ("ETH", "WETH", "USDC", "DAI", "WBTC"):
        row = found.of("balance", place(world, symbol))
        held = on_chain(world, place(world, symbol), world.wallets["alice"], verify.height)
        assert (row["status"], row["value"], row["elsewhere"][0]["value"]) == ("proven", str(held), str(held))
        assert found.of("price", place(world, symbol))["status"] == "equal"


def test_with_one_endpoint_only_proofs_are_made_and_it_says_so(world: World, verify: Verify) -> None:
    found = verify()
    assert found.code == 11
    assert found.statuses("block") == found.statuses("balance") == {"proven"}
    assert found.statuses("price") == found.statuses("decimals") == {"unprovable"}
    assert found.document["comparedWith"] == []
    assert "only proofs" in found.document["notes"][0]
    assert found.rows("networth") == {}


def test_what_cannot_be_proven_is_equal_elsewhere_or_says_why_not(world: World, verify: Verify) -> None:
    debt = world.deployment.contracts["aDAI"].lower()
    alone, compared = verify(who="bob"), verify("--against", world.node.url, who="bob")
    assert alone.of("balance", debt)["status"] == "unprovable"
    assert "rebasing: scaledBalanceOf" in alone.of("balance", debt)["reason"]
    assert (compared.code, compared.of("balance", debt)["status"]) == (0, "equal")


def test_the_table_names_every_number_and_what_showed_it(world: World, verify: Verify) -> None:
    code, out = verify("--against", world.node.url, as_json=False)
    assert code == 0
    for text in ("weth", "networth", "proven", "account proof", f"compared with {world.node.url[7:]}"):
        assert text in out
    code, out = verify(as_json=False)
    assert code == 11
    assert "name another with --against" in out


def test_an_endpoint_that_is_not_there_is_named_and_no_excuse(world: World, verify: Verify) -> None:
    found = verify("--against", NOBODY, "--against", world.node.url)
    assert found.code == 0
    assert {fault["endpoint"] for fault in found.document["silent"]} == {"127.0.0.1:9"}
    alone = verify("--against", NOBODY)
    assert alone.code == 11
    assert alone.statuses("balance") == {"proven"}
    assert any("no other endpoint could be read" in note for note in alone.document["notes"])


def test_the_other_endpoints_of_the_settings_are_asked_by_themselves(
    world: World, verify: Verify, tmp_path: Path
) -> None:
    verify.answered_by(tmp_path, world.node.url, world.node.url)
    found = verify()
    assert (found.code, found.document["comparedWith"]) == (0, [world.node.url[7:]])


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--block", "1000000"], "above the head"),
        (["--block", "-1"], "at least 0"),
        (["--chain", "base"], "configured"),
        (["--against", "localhost:8545"], "--against http://"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    verify: Verify, capsys: pytest.CaptureFixture[str], more: list[str], named: str
) -> None:
    code = main(["verify", verify.world.wallets["alice"], "--config", str(verify.config), *more])
    assert code == 2
    assert named in capsys.readouterr().err


# --- liars -----------------------------------------------------------------------------------------------------------


def changed(world: World, symbol: str, height: int, who: str = "alice", by: int = 10**6) -> Lie:
    """The script that changes one balance, in whatever way it is read."""
    held = on_chain(world, place(world, symbol), world.wallets[who], height)
    return replacing("eth_call", f"{held:064x}", f"{held + by:064x}")


@pytest.mark.slow("asks many endpoints for proofs; a changed node of a proof has a faster test")
@pytest.mark.parametrize("symbol", ["ETH", "WETH", "USDC", "DAI"])
def test_one_changed_balance_is_found_out_wherever_the_liar_sits(
    world: World, verify: Verify, tmp_path: Path, symbol: str
) -> None:
    contract = place(world, symbol)
    held = on_chain(world, contract, world.wallets["alice"], verify.height)
    with byzantine(world.node.url, changed(world, symbol, verify.height)) as lying:
        against = verify("--against", lying)
        row = against.of("balance", contract)
        assert (against.code, row["status"], row["value"]) == (10, "differs", str(held))
        assert row["elsewhere"][0]["value"] == str(held + 10**6)
        assert row["proof"], "and the proof says who is right"
        assert against.statuses("networth") == {"differs"}
        verify.answered_by(tmp_path, lying)
        alone = verify()
        row = alone.of("balance", contract)
        assert (alone.code, row["status"], row["value"]) == (10, "differs", str(held + 10**6))
        assert str(held) in row["reason"]
        both = verify("--against", world.node.url)
        assert (both.code, both.of("balance", contract)["status"]) == (10, "differs")
    others = [row["status"] for row in both.document["checks"] if row["number"] == "balance"]
    assert others.count("differs") == 1


def test_a_holding_that_is_hidden_is_found_out_without_anybody_else(
    world: World, verify: Verify, tmp_path: Path
) -> None:
    held = on_chain(world, place(world, "WETH"), world.wallets["alice"], verify.height)
    with byzantine(world.node.url, changed(world, "WETH", verify.height, by=-held)) as lying:
        verify.answered_by(tmp_path, lying)
        row = verify().of("balance", place(world, "WETH"))
    assert (row["status"], row["value"]) == ("differs", "0")
    assert str(held) in row["reason"]


def test_a_changed_price_is_found_out(world: World, verify: Verify) -> None:
    feed = world.deployment.feeds["ETH"]
    price = world.node.call(feed, "latestAnswer()(int256)", block=verify.height)
    with byzantine(world.node.url, replacing("eth_call", f"{price:064x}", f"{price + 1:064x}")) as lying:
        found = verify("--against", lying)
    assert found.code == 10
    assert found.of("price", ZERO_ADDRESS)["status"] == found.of("price", place(world, "WETH"))["status"] == "differs"
    assert found.of("price", place(world, "USDC"))["status"] == "equal"
    assert found.statuses("balance") == {"proven"}
    assert found.statuses("networth") == {"differs"}


def flipped(hexadecimal: str) -> str:
    return hexadecimal[:-1] + ("0" if hexadecimal[-1] != "0" else "1")


@pytest.mark.parametrize("which", ["accountProof", "storageProof"])
def test_one_changed_node_of_a_proof_is_found_out_and_another_endpoint_proves(
    world: World, verify: Verify, tmp_path: Path, which: str
) -> None:
    def lie(method: str, params: list[Any], result: Any) -> Any:
        if method == "eth_getProof" and params[0] == place(world, "WETH"):
            nodes = result[which] if which == "accountProof" else result[which][0]["proof"]
            nodes[-1] = flipped(nodes[-1])
        return result

    with byzantine(world.node.url, lie) as lying:
        found = verify("--against", lying)
        assert found.code == 10
        assert [fault["kind"] for fault in found.document["faults"]] == ["BadProof"]
        assert (found.document["provenBy"], found.statuses("balance")) == (world.node.url[7:], {"proven"})
        verify.answered_by(tmp_path, lying)
        alone = verify()
    assert alone.code == 10
    row = alone.of("balance", place(world, "WETH"))
    assert (row["status"], alone.of("balance", place(world, "DAI"))["status"]) == ("unprovable", "proven")
    assert "does not lead" in row["reason"]


@pytest.mark.parametrize("name", ["stateRoot", "gasUsed", "timestamp", "miner", "receiptsRoot"])
def test_one_changed_field_of_a_header_is_found_out(world: World, verify: Verify, tmp_path: Path, name: str) -> None:
    def lie(method: str, params: list[Any], result: Any) -> Any:
        if method == AT and params[0] == hex(verify.height):
            return {**result, name: flipped(result[name])}
        return result

    with byzantine(world.node.url, lie) as lying:
        verify.answered_by(tmp_path, lying)
        found = verify()
    assert found.code == 10
    assert [fault["reason"] for fault in found.document["faults"]] == [
        f"the header of block {verify.height} does not hash to {found.document['blockHash']}: a field is not true"
    ]


def test_another_hash_of_the_block_is_found_out(world: World, verify: Verify) -> None:
    own = world.node.block(verify.height)["hash"]
    with byzantine(world.node.url, replacing(AT, own, "0x" + "77" * 32)) as lying:
        found = verify("--against", lying)
    assert (found.code, found.statuses("block")) == (10, {"differs"})
    assert found.document["silent"], "at that hash nothing can be read"


# --- what an answer says of itself -----------------------------------------------------------------------------------


def test_every_call_that_sources_list_gives_the_number_when_it_is_made_again(
    world: World, verify: Verify, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []
    for who in world.wallets.values():
        capsys.readouterr()
        block = ["--block", str(verify.height), "--config", str(verify.config)]
        assert main(["portfolio", who, *block, "--sources", "--json"]) == 0
        (document,) = json.loads(capsys.readouterr().out)
        for asset in document["assetByProtocols"]["wallet"]["chains"]["local"]["protocolPositions"]["WALLET"]["assets"]:
            sources = asset["sources"]
            assert sources["blockHash"] == world.node.block(verify.height)["hash"]
            calls = {call["number"]: call for call in sources["calls"]}
            assert calls["balance"]["result"] == [sources["raw"]]
            assert ("price" in calls) == (asset["price"] != "N/A")
            if "decimal" in calls:
                assert calls["decimal"]["result"] == [asset["decimal"]]
            for call in sources["calls"]:
                assert made(world, call, sources["blockHash"]) == call["result"]
                seen.append((call["number"], call["method"]))
    assert set(seen) == {
        ("balance", "eth_getBalance"),
        ("balance", "eth_call"),
        ("decimal", "eth_call"),
        ("price", "eth_call"),
    }
    assert len(seen) > 40


def made(world: World, call: dict[str, Any], block_hash: str) -> list[str]:
    """The result of a listed call, made again at the block by somebody who knows nothing but the listing."""
    at = {"blockHash": block_hash}
    if call["method"] == "eth_getBalance":
        return [str(int(world.node.rpc("eth_getBalance", *call["arguments"], at), 16))]
    sent = {"to": call["contract"], "data": call_data(call["signature"], *call["arguments"])}
    given = world.node.rpc("eth_call", sent, at)
    words = [given[2 + 64 * k : 66 + 64 * k] for k in range(len(given) // 64)]
    return [str(int(word, 16)) for word in words]
