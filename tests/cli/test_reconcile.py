"""`chainfolio reconcile` on the command line: output, exit codes, and its result in other commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from eth_utils.crypto import keccak

from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.evm import tx
from chainfolio.localchain.node import LocalNode
from tests.cli.conftest import Run, configure
from tests.engine.drifting import WAD, drifting

ROOT = Path(__file__).resolve().parents[2]
BEHIND = 10  # blocks behind the last deed: more than are final
pytestmark = pytest.mark.node


class Lived:
    """Wallets: honest coins alone, with a token that grows without events, and with that token alone."""

    def __init__(self, node: LocalNode) -> None:
        self.node = node
        owner, self.plain, self.other, self.dusted = node.accounts[:4]
        self.token = drifting(node, owner)
        wallets = (self.plain, self.other, self.dusted)
        node.settle([tx(owner, self.token, "mint(address,uint256)", wallet, 1_000) for wallet in wallets])
        node.settle(
            [tx(self.other, self.token, "transfer(address,uint256)", owner, 0)]
        )  # a transaction of the wallet itself
        node.settle([tx(self.plain, self.token, "transfer(address,uint256)", owner, 1_000)])
        node.mine(5)
        self.grown = [node.settle([tx(owner, self.token, "rebase(uint256)", rate * WAD)]) for rate in (2, 3)]
        node.mine(BEHIND)


@pytest.fixture(scope="module")
def lived() -> Iterator[Lived]:
    with LocalNode() as node:
        yield Lived(node)


@pytest.fixture
def configured(here: Path, lived: Lived) -> Path:
    configure(here, lived.node.url, chain="local", more=f'facts = "{ROOT / "configs" / "chains" / "local.toml"}"')
    return here


def test_an_account_without_a_difference_is_proven_and_one_with_some_is_told_block_and_cause(
    run: Run, configured: Path, lived: Lived
) -> None:
    assert run("reconcile", lived.plain, "--json").error["kind"] == "NotIndexed"
    assert run("watch", lived.plain, lived.other).code == 0
    ran = run("reconcile", lived.plain, lived.plain.lower(), "--json")
    assert ran.code == 0, ran.out + ran.err
    (report,) = ran.json
    assert (report["address"], report["lastBlock"]) == (lived.plain.lower(), lived.node.height)
    assert report["blockHash"] == lived.node.block()["hash"]
    assert (report["counts"]["equal"], report["differences"]) == (2, [])
    for each in report["assets"]:
        assert int(each["opening"]) + int(each["movements"]) == int(each["balance"]), each
    (estimated,) = run("reconcile", lived.other, "--estimate", "--json").json
    assert (estimated["differing"], estimated["requests"] > 0) == (1, True)
    assert "1 assets differ between" in run("reconcile", lived.other, "--estimate").out
    ran = run("reconcile", lived.other, lived.plain, "--checkpoints", "3", "--json")
    assert ran.code == 12
    assert [each["address"] for each in ran.json] == [lived.other.lower(), lived.plain.lower()]
    differences = [(each["block"], each["amount"], each["cause"]) for each in ran.json[0]["differences"]]
    assert differences == [(height, "1000", "rebasing") for height in lived.grown]


def test_a_token_that_strangers_sent_is_listed_apart_and_changes_no_exit_code(
    run: Run, configured: Path, lived: Lived
) -> None:
    assert run("watch", lived.dusted).code == 0
    ran = run("reconcile", lived.dusted, "--json")
    assert ran.code == 0, ran.out + ran.err
    (report,) = ran.json
    assert (report["differences"], report["more"]) == ([], [])
    assert (report["counts"]["equal"], report["counts"]["untrusted"]) == (1, 1)
    token = f"eip155:31337/erc20:{lived.token.lower()}"
    (apart,) = report["untrusted"]
    assert (apart["cause"], apart["count"], apart["assets"]) == ("rebasing", 1, [token])
    assert "untrusted, listed apart: " in run("reconcile", lived.dusted).out
    assert not run("status", "--json").json["chains"][0]["reconciled"][0]["differences"]


def test_people_read_a_table_and_the_progress_beside_it(run: Run, configured: Path, lived: Lived) -> None:
    assert run("watch", lived.other).code == 0
    ran = run("reconcile", lived.other)
    assert ran.code == 12
    assert "1 equal, 1 differs" in " ".join(ran.out.split())
    assert ran.out.count("rebasing") == 2
    assert f"{lived.grown[0]}" in ran.out
    assert "round 1: " in ran.err
    assert "reading 2 blocks again" in ran.err


def test_a_difference_has_the_name_and_the_scaled_amount_of_its_token(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with LocalNode() as node:
        deployment = deploy(node)
        token, owner = deployment.tokens["USDC"].address, deployment.accounts["alice"]
        wallet = node.accounts[9]
        node.settle([tx(owner, token, "transfer(address,uint256)", wallet, 2_000_000)])
        node.settle([tx(wallet, token, "transfer(address,uint256)", owner, 0)])  # a transaction of the wallet itself
        node.mine(2)
        set_balance(node, token, wallet, 5_250_000)
        node.mine(BEHIND)
        configure(here, node.url, chain="local", more=f'facts = "{ROOT / "configs" / "chains" / "local.toml"}"')
        assert run("watch", wallet).code == 0
        ran = run("reconcile", wallet)
    assert ran.code == 12
    (row,) = [line for line in ran.out.splitlines() if line.startswith("USDC ")]
    assert " -999996.75 " in row
    assert "[1]" in row
    assert max(map(len, ran.out.splitlines())) <= 80


def set_balance(node: LocalNode, token: str, owner: str, raw: int) -> None:
    """Change what a token says that an account has, without an event."""
    for slot in range(12):
        storage_slot = "0x" + keccak(bytes.fromhex(f"{owner[2:]:0>64}{slot:064x}")).hex()
        before = node.rpc("eth_getStorageAt", token, storage_slot, "latest")
        node.rpc("anvil_setStorageAt", token, storage_slot, f"0x{raw:064x}")
        if node.call(token, "balanceOf(address)(uint256)", owner) == raw:
            return
        node.rpc("anvil_setStorageAt", token, storage_slot, before)
    raise AssertionError("the token keeps its balances elsewhere")


def test_the_result_is_shown_by_status_and_beside_answers(run: Run, configured: Path, lived: Lived) -> None:
    assert run("watch", lived.other).code == 0
    assert run("reconcile", lived.other).code == 12
    (chain,) = run("status", "--json").json["chains"]
    (summary,) = chain["reconciled"]
    assert (summary["account"], summary["last"]) == (lived.other.lower(), lived.node.height)
    assert summary["counts"] == {"equal": 1, "differs": 1, "unreadable": 0, "unindexed": 0, "untrusted": 0}
    assert [each["block"] for each in summary["differences"]] == lived.grown
    assert f"{lived.other.lower()} reconciled from block 0 to {lived.node.height}" in run("status").out
    (portfolio,) = run("portfolio", lived.other, "--json").json
    (issue,) = (each for each in portfolio["issues"] if each["adapter"] == "reconcile")
    assert f"from block {lived.grown[0]} on (rebasing)" in issue["reason"]
    assert portfolio["completeness"] == "complete", "the token tells less than it does, and nothing is lacking"
    answer = run("transactions", lived.other, "--json").json
    assert "reconcile" in {each["adapter"] for each in answer["issues"]}
    assert answer["completeness"] == "complete"


def test_a_history_that_lacks_blocks_makes_answers_partial(run: Run, configured: Path, lived: Lived) -> None:
    """The movements of the first blocks are not indexed: their coins and tokens came from nowhere."""
    assert run("watch", lived.plain, "--from", "4").code == 0
    ran = run("reconcile", lived.plain, "--from", "0", "--json")
    assert ran.code == 12
    (report,) = ran.json
    assert {each["cause"] for each in report["differences"]} == {"not_indexed"}
    (portfolio,) = run("portfolio", lived.plain, "--json").json
    assert portfolio["completeness"] == "partial"
    assert run("watch", lived.plain, "--from", "0").code == 0
    (chain,) = run("status", "--json").json["chains"]
    assert chain["reconciled"] == [], "what was lacking is there: the comparison is of another time"
    assert run("reconcile", lived.plain).code == 0


@pytest.mark.slow("other options are refused in the same way", fast=["options0*", "options3*"])
@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--checkpoints", "0"), 2, "checkpoints: at least 1"),
        (("--from", "-1"), 2, "from: a block height is at least 0"),
        (("--to", "100000"), 2, "above the head"),
        (("--max-requests", "1"), 10, "with a larger budget"),
        (("--chain", "nowhere"), 2, "nowhere"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    run: Run, configured: Path, lived: Lived, options: tuple[str, str], code: int, message: str
) -> None:
    assert run("watch", lived.other).code == 0
    ran = run("reconcile", lived.other, *options)
    assert ran.code == code, ran.err
    assert message in ran.err
    assert run("reconcile", "0x" + "00" * 20).code == 2
