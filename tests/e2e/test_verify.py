"""`chainfolio verify` on a real chain: true numbers are proven, and one changed number is found out."""

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
from tests.e2e.test_portfolio import contract_of, on_chain

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
    """Output and exit code of one run of the command."""

    def __init__(self, code: int, output: str) -> None:
        self.code, self.document = code, json.loads(output)

    def rows(self, number: str) -> dict[str, dict[str, Any]]:
        return {row["asset"]: row for row in self.document["checks"] if row["number"] == number}

    def statuses(self, number: str) -> set[str]:
        return {row["status"] for row in self.rows(number).values()}

    def of(self, number: str, contract: str) -> dict[str, Any]:
        reference = "slip44" if contract == ZERO_ADDRESS else contract
        return next(row for asset, row in self.rows(number).items() if reference in asset)


class Verify:
    """Runs the command at a past block."""

    def __init__(self, world: World, settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
        self.world, self.capsys, self.height = world, capsys, world.node.height - 3
        self.config = settings.data_dir / "chainfolio.toml"

    def answered_by(self, folder: Path, *urls: str) -> None:
        """Other endpoints than the chain's own from here on."""
        config_text = self.config.read_text()
        assert self.world.node.url in config_text
        own_urls, other_urls = json.dumps([self.world.node.url]), json.dumps(urls)
        assert own_urls in config_text
        self.config = self.config.with_name(f"{folder.name}.toml")  # paths in it are taken from its folder
        self.config.write_text(config_text.replace(own_urls, other_urls))

    def __call__(self, *more: str, wallet: str = "alice", as_json: bool = True) -> Any:
        output_options = ["--json"] if as_json else []
        block = ["--block", str(self.height)]
        self.capsys.readouterr()
        code = main(
            ["verify", self.world.wallets[wallet], *block, "--config", str(self.config), *more, *output_options]
        )
        output = self.capsys.readouterr().out
        return Verified(code, output) if as_json else (code, output)


@pytest.fixture
def verify(world_and_settings: tuple[World, Settings], capsys: pytest.CaptureFixture[str]) -> Verify:
    return Verify(*world_and_settings, capsys)


# --- honest nodes ----------------------------------------------------------------------------------------------------


def test_with_another_honest_endpoint_every_number_is_equal_or_proven(world: World, verify: Verify) -> None:
    result = verify("--against", world.node.url)
    assert result.code == 0
    assert (result.document["faults"], result.document["silent"]) == ([], [])
    assert result.document["counts"] | {"proven": 0, "equal": 0} == dict.fromkeys(result.document["counts"], 0)
    assert result.document["blockHash"] == world.node.block(verify.height)["hash"]
    assert result.statuses("block") == {"proven"}
    assert result.statuses("networth") == {"equal"}
    for symbol in ("ETH", "WETH", "USDC", "DAI", "WBTC"):
        row = result.of("balance", contract_of(world, symbol))
        balance = on_chain(world, contract_of(world, symbol), world.wallets["alice"], verify.height)
        assert (row["status"], row["value"], row["elsewhere"][0]["value"]) == ("proven", str(balance), str(balance))
        assert result.of("price", contract_of(world, symbol))["status"] == "equal"


def test_with_one_endpoint_only_proofs_are_made_and_it_says_so(world: World, verify: Verify) -> None:
    result = verify()
    assert result.code == 11
    assert result.statuses("block") == result.statuses("balance") == {"proven"}
    assert result.statuses("price") == result.statuses("decimals") == {"unprovable"}
    assert result.document["comparedWith"] == []
    assert "only proofs" in result.document["notes"][0]
    assert result.rows("networth") == {}


def test_what_cannot_be_proven_is_equal_elsewhere_or_says_why_not(world: World, verify: Verify) -> None:
    debt = world.deployment.contracts["aDAI"].lower()
    alone, compared = verify(wallet="bob"), verify("--against", world.node.url, wallet="bob")
    assert alone.of("balance", debt)["status"] == "unprovable"
    assert "rebasing: scaledBalanceOf" in alone.of("balance", debt)["reason"]
    assert (compared.code, compared.of("balance", debt)["status"]) == (0, "equal")


def test_the_table_names_every_number_and_what_showed_it(world: World, verify: Verify) -> None:
    code, output = verify("--against", world.node.url, as_json=False)
    assert code == 0
    for text in ("weth", "networth", "proven", "account proof", f"compared with {world.node.url[7:]}"):
        assert text in output
    code, output = verify(as_json=False)
    assert code == 11
    assert "name another with --against" in output


def test_an_endpoint_that_is_not_there_is_named_and_no_excuse(world: World, verify: Verify) -> None:
    result = verify("--against", NOBODY, "--against", world.node.url)
    assert result.code == 0
    assert {fault["endpoint"] for fault in result.document["silent"]} == {"127.0.0.1:9"}
    alone = verify("--against", NOBODY)
    assert alone.code == 11
    assert alone.statuses("balance") == {"proven"}
    assert any("no other endpoint could be read" in note for note in alone.document["notes"])


def test_the_other_endpoints_of_the_settings_are_asked_by_themselves(
    world: World, verify: Verify, tmp_path: Path
) -> None:
    verify.answered_by(tmp_path, world.node.url, world.node.url)
    result = verify()
    assert (result.code, result.document["comparedWith"]) == (0, [world.node.url[7:]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--block", "1000000"], "above the head"),
        (["--block", "-1"], "at least 0"),
        (["--chain", "base"], "configured"),
        (["--against", "localhost:8545"], "--against http://"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    verify: Verify, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code = main(["verify", verify.world.wallets["alice"], "--config", str(verify.config), *arguments])
    assert code == 2
    assert message in capsys.readouterr().err


# --- liars -----------------------------------------------------------------------------------------------------------


def changed(world: World, symbol: str, height: int, wallet: str = "alice", by: int = 10**6) -> Lie:
    """The script that changes one balance, in whatever way it is read."""
    balance = on_chain(world, contract_of(world, symbol), world.wallets[wallet], height)
    return replacing("eth_call", f"{balance:064x}", f"{balance + by:064x}")


@pytest.mark.slow("asks many endpoints for proofs; a changed node of a proof has a faster test")
@pytest.mark.parametrize("symbol", ["ETH", "WETH", "USDC", "DAI"])
def test_one_changed_balance_is_found_out_wherever_the_liar_sits(
    world: World, verify: Verify, tmp_path: Path, symbol: str
) -> None:
    contract = contract_of(world, symbol)
    balance = on_chain(world, contract, world.wallets["alice"], verify.height)
    with byzantine(world.node.url, changed(world, symbol, verify.height)) as lying:
        against = verify("--against", lying)
        row = against.of("balance", contract)
        assert (against.code, row["status"], row["value"]) == (10, "differs", str(balance))
        assert row["elsewhere"][0]["value"] == str(balance + 10**6)
        assert row["proof"], "and the proof says who is right"
        assert against.statuses("networth") == {"differs"}
        verify.answered_by(tmp_path, lying)
        alone = verify()
        row = alone.of("balance", contract)
        assert (alone.code, row["status"], row["value"]) == (10, "differs", str(balance + 10**6))
        assert str(balance) in row["reason"]
        both = verify("--against", world.node.url)
        assert (both.code, both.of("balance", contract)["status"]) == (10, "differs")
    balance_statuses = [row["status"] for row in both.document["checks"] if row["number"] == "balance"]
    assert balance_statuses.count("differs") == 1


def test_a_holding_that_is_hidden_is_found_out_without_anybody_else(
    world: World, verify: Verify, tmp_path: Path
) -> None:
    balance = on_chain(world, contract_of(world, "WETH"), world.wallets["alice"], verify.height)
    with byzantine(world.node.url, changed(world, "WETH", verify.height, by=-balance)) as lying:
        verify.answered_by(tmp_path, lying)
        row = verify().of("balance", contract_of(world, "WETH"))
    assert (row["status"], row["value"]) == ("differs", "0")
    assert str(balance) in row["reason"]


def test_a_changed_price_is_found_out(world: World, verify: Verify) -> None:
    feed = world.deployment.feeds["ETH"]
    price = world.node.call(feed, "latestAnswer()(int256)", block=verify.height)
    with byzantine(world.node.url, replacing("eth_call", f"{price:064x}", f"{price + 1:064x}")) as lying:
        result = verify("--against", lying)
    assert result.code == 10
    assert (
        result.of("price", ZERO_ADDRESS)["status"]
        == result.of("price", contract_of(world, "WETH"))["status"]
        == "differs"
    )
    assert result.of("price", contract_of(world, "USDC"))["status"] == "equal"
    assert result.statuses("balance") == {"proven"}
    assert result.statuses("networth") == {"differs"}


def flipped(hexadecimal: str) -> str:
    return hexadecimal[:-1] + ("0" if hexadecimal[-1] != "0" else "1")


@pytest.mark.parametrize("proof_name", ["accountProof", "storageProof"])
def test_one_changed_node_of_a_proof_is_found_out_and_another_endpoint_proves(
    world: World, verify: Verify, tmp_path: Path, proof_name: str
) -> None:
    def lie(method: str, params: list[Any], result: Any) -> Any:
        if method == "eth_getProof" and params[0] == contract_of(world, "WETH"):
            nodes = result[proof_name] if proof_name == "accountProof" else result[proof_name][0]["proof"]
            nodes[-1] = flipped(nodes[-1])
        return result

    with byzantine(world.node.url, lie) as lying:
        result = verify("--against", lying)
        assert result.code == 10
        assert [fault["kind"] for fault in result.document["faults"]] == ["BadProof"]
        assert (result.document["provenBy"], result.statuses("balance")) == (world.node.url[7:], {"proven"})
        verify.answered_by(tmp_path, lying)
        alone = verify()
    assert alone.code == 10
    row = alone.of("balance", contract_of(world, "WETH"))
    assert (row["status"], alone.of("balance", contract_of(world, "DAI"))["status"]) == ("unprovable", "proven")
    assert "does not lead" in row["reason"]


@pytest.mark.parametrize("name", ["stateRoot", "gasUsed", "timestamp", "miner", "receiptsRoot"])
def test_one_changed_field_of_a_header_is_found_out(world: World, verify: Verify, tmp_path: Path, name: str) -> None:
    def lie(method: str, params: list[Any], result: Any) -> Any:
        if method == AT and params[0] == hex(verify.height):
            return {**result, name: flipped(result[name])}
        return result

    with byzantine(world.node.url, lie) as lying:
        verify.answered_by(tmp_path, lying)
        result = verify()
    assert result.code == 10
    assert [fault["reason"] for fault in result.document["faults"]] == [
        f"the header of block {verify.height} does not hash to {result.document['blockHash']}: a field is not true"
    ]


def test_another_hash_of_the_block_is_found_out(world: World, verify: Verify) -> None:
    block_hash = world.node.block(verify.height)["hash"]
    with byzantine(world.node.url, replacing(AT, block_hash, "0x" + "77" * 32)) as lying:
        result = verify("--against", lying)
    assert (result.code, result.statuses("block")) == (10, {"differs"})
    assert result.document["silent"], "at that hash nothing can be read"


# --- what an answer says of itself -----------------------------------------------------------------------------------


def test_every_call_that_sources_list_gives_the_number_when_it_is_made_again(
    world: World, verify: Verify, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []
    for address in world.wallets.values():
        capsys.readouterr()
        block = ["--block", str(verify.height), "--config", str(verify.config)]
        assert main(["portfolio", address, *block, "--sources", "--json"]) == 0
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
                assert repeat_call(world, call, sources["blockHash"]) == call["result"]
                seen.append((call["number"], call["method"]))
    assert set(seen) == {
        ("balance", "eth_getBalance"),
        ("balance", "eth_call"),
        ("decimal", "eth_call"),
        ("price", "eth_call"),
    }
    assert len(seen) > 40


def repeat_call(world: World, call: dict[str, Any], block_hash: str) -> list[str]:
    """Repeat a listed call at the block, with only the listing as input, and return its result."""
    at = {"blockHash": block_hash}
    if call["method"] == "eth_getBalance":
        return [str(int(world.node.rpc("eth_getBalance", *call["arguments"], at), 16))]
    request = {"to": call["contract"], "data": call_data(call["signature"], *call["arguments"])}
    response = world.node.rpc("eth_call", request, at)
    data_words = [response[2 + 64 * k : 66 + 64 * k] for k in range(len(response) // 64)]
    return [str(int(data_word, 16)) for data_word in data_words]
