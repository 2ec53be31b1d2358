"""Commands with `--rpc` need no settings and no index, and leave no file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chainfolio.engine.snapshots.token_registry import TokenRegistry
from chainfolio.indexer.wiring import CONFIGS
from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import trade
from tests.cli.conftest import ALICE, Run, configure
from tests.engine.test_token_registry import INFO

pytestmark = pytest.mark.node
TOKEN = "0x60055f5260205ff3"  # answers 5, whatever it is asked
ETHER = "0x" + "0" * 40


@pytest.fixture(scope="module")
def fantom() -> Iterator[LocalNode]:
    """A chain that has the chain id of one that is known here."""
    with LocalNode(chain_id=250) as node:
        node.rpc("anvil_setBalance", ALICE, hex(3 * 10**18))
        node.mine()
        yield node


@pytest.fixture(scope="module")
def local() -> Iterator[LocalNode]:
    with LocalNode() as node:
        deploy(node)
        yield node


@pytest.fixture(scope="module")
def traded() -> Iterator[tuple[LocalNode, str]]:
    """A chain on which Alice has traded, and her address."""
    with LocalNode() as node:
        deployment = deploy(node)
        trade(node, deployment, 40)
        yield node, deployment.accounts["alice"]


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_node_is_enough_for_a_portfolio_and_nothing_is_written(run: Run, fantom: LocalNode, here: Path) -> None:
    registry = TokenRegistry(CONFIGS / "tokens" / "fantom.csv", INFO)
    token = registry.assets_on(2)[-1].reference
    fantom.rpc("anvil_setCode", token, TOKEN)
    fantom.mine()
    ran = run("portfolio", ALICE, "--rpc", fantom.url, "--json", "--explain")
    (document,) = ran.json
    wallet = document["assetByProtocols"]["wallet"]["chains"]["fantom"]["protocolPositions"]["WALLET"]["assets"]
    assert {asset["contract"]: asset["balance"] for asset in wallet}.keys() == {ETHER, token}
    assert document["completeness"] == "partial"
    (missing,) = [issue for issue in document["issues"] if issue["adapter"] == "index"]
    assert f"chainfolio watch {ALICE} --chain fantom" in missing["reason"]
    assert f"balanceOf {len(registry) + 1}" in ran.err  # the registry does not have the wrapped coin
    assert "requests, " in ran.err
    assert files(here) == []


def test_a_table_ends_with_the_command_that_reads_what_is_missing(run: Run, fantom: LocalNode) -> None:
    ran = run("portfolio", ALICE, "--rpc", fantom.url)
    assert ran.code == 0
    reason, command = ran.out.splitlines()[-2:]
    assert reason.strip() == "to read what is missing:"
    assert command.strip() == f'chainfolio watch {ALICE} --rpc "$RPC"'


def test_several_nodes_are_several_chains_or_one_chain_more_than_once(
    run: Run, fantom: LocalNode, local: LocalNode
) -> None:
    nodes = [argument for url in (fantom.url, f"{fantom.url}/?b", local.url) for argument in ("--rpc", url)]
    assert run("portfolio", ALICE, *nodes, "--json").json[0]["chains"].keys() == {"fantom", "local"}
    assert run("portfolio", ALICE, *nodes, "--chain", "fantom", "--json").json[0]["chains"].keys() == {"fantom"}
    ran = run("portfolio", ALICE, *nodes, "--chain", "base")
    assert (ran.code, "configured are: fantom, local" in ran.err) == (2, True)


def test_settings_of_a_chain_stay_but_for_its_nodes(run: Run, local: LocalNode, dead: str, here: Path) -> None:
    facts = (CONFIGS / "chains" / "local.toml").read_text().replace('key = "local"', 'key = "mine"')
    (here / "mine.toml").write_text(facts)
    configure(here, dead, chain="mine", more='facts = "mine.toml"')
    (document,) = run("portfolio", ALICE, "--rpc", local.url, "--json").json
    assert document["chains"].keys() == {"mine"}


@pytest.mark.parametrize("command", ["nav", "verify"])
def test_other_commands_take_a_node_too(run: Run, local: LocalNode, here: Path, command: str) -> None:
    ran = run(command, ALICE, "--rpc", local.url, "--json")
    assert ran.code in (0, 11)  # 11: something cannot be proven
    assert ran.json
    assert files(here) == []


def test_a_registry_token_that_is_held_is_verified_and_nothing_is_written(
    run: Run, fantom: LocalNode, here: Path
) -> None:
    token = TokenRegistry(CONFIGS / "tokens" / "fantom.csv", INFO).assets_on(2)[-1].reference
    fantom.rpc("anvil_setCode", token, TOKEN)
    fantom.mine()
    ran = run("verify", ALICE, "--rpc", fantom.url, "--block", str(fantom.height), "--json")
    assert ran.code in (0, 11)
    assert f"eip155:250/erc20:{token}" in {check["asset"] for check in ran.json["checks"]}
    assert files(here) == []


def test_what_needs_an_index_says_so_at_a_node_too(run: Run, local: LocalNode) -> None:
    for command in ("approvals", "transactions"):
        ran = run(command, ALICE, "--rpc", local.url, "--json")
        assert (ran.code, ran.error["kind"]) == (4, "NotIndexed")


@pytest.mark.parametrize("address", ["ws://127.0.0.1:8545", "127.0.0.1:8545", "http://", "env:NO_SUCH_NODE"])
def test_what_is_no_address_of_a_node_is_refused(run: Run, address: str) -> None:
    ran = run("portfolio", ALICE, "--rpc", address, "--json")
    assert (ran.code, ran.error["kind"], ran.error["field"]) == (2, "BadRequest", "rpc")


def test_the_key_in_an_address_is_not_shown_where_it_is_refused(run: Run) -> None:
    ran = run("portfolio", ALICE, "--rpc", "ws://node.example/secret-key")
    assert (ran.code, "secret-key" in ran.err) == (2, False)


def test_an_address_in_the_environment_is_read_from_there(
    run: Run, local: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_NODE", local.url)
    assert run("nav", ALICE, "--rpc", "env:MY_NODE").code == 0


def test_a_node_of_a_chain_that_nothing_describes_is_refused_with_the_number(run: Run) -> None:
    with LocalNode(chain_id=424242) as node:
        ran = run("portfolio", ALICE, "--rpc", node.url, "--json")
    assert (ran.code, ran.error["kind"], ran.error["field"]) == (2, "BadRequest", "rpc")
    assert "chain 424242" in ran.error["message"]
    assert "add-a-chain" in ran.error["remedy"]


def test_a_node_that_is_another_chain_with_a_known_number_is_refused(run: Run) -> None:
    with LocalNode(chain_id=1) as node:
        ran = run("portfolio", ALICE, "--rpc", node.url, "--json")
    assert (ran.code, ran.error["kind"]) == (3, "WrongChain")


def test_a_node_that_is_down_is_said_to_be(run: Run, dead: str, waited: list[float]) -> None:
    ran = run("portfolio", ALICE, "--rpc", dead, "--json")
    assert ran.code == 3
    assert "refused" in ran.error["message"]


def test_a_data_folder_that_is_there_is_used(run: Run, local: LocalNode, here: Path) -> None:
    (here / "data").mkdir()
    assert run("nav", ALICE, "--rpc", local.url).code == 0
    assert "data/tail.db" in files(here)


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_what_is_watched_at_a_node_is_what_later_answers_at_it_are_made_of(
    run: Run, traded: tuple[LocalNode, str], here: Path
) -> None:
    node, alice = traded
    before = run("portfolio", alice, "--rpc", node.url, "--json").json[0]
    assert files(here) == []
    assert run("watch", alice, "--rpc", node.url, "--json").code == 0
    (after,) = run("portfolio", alice, "--rpc", node.url, "--json").json
    assert [issue["subject"] for issue in before["issues"] if issue["adapter"] == "index"] == ["local"]
    assert [issue["subject"] for issue in after["issues"] if issue["adapter"] == "index"] == []
    assert len(wallet(before)) < len(wallet(after))
    assert run("transactions", alice, "--rpc", node.url, "--json").json["transactions"]
    assert run("approvals", alice, "--rpc", node.url).code == 0
    assert alice.lower() in run("status", "--rpc", node.url, "--json").out


def wallet(document: dict[str, Any]) -> list[str]:
    """The contracts of what lies loose in a portfolio."""
    (chain,) = document["assetByProtocols"]["wallet"]["chains"].values()
    return [asset["contract"] for asset in chain["protocolPositions"]["WALLET"]["assets"]]
