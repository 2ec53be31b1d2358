"""`chainfolio reconcile` on a chain whose nodes keep no old state compares rows with current balances."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.tron import history
from chainfolio.adapters.tron.history import ListedTransaction
from chainfolio.blocks import Span
from chainfolio.cli.main import main
from chainfolio.localchain.tron.forms import base58check
from chainfolio.localchain.tron.node import TronNode
from chainfolio.localchain.tron.wallet import Person, TronWeb
from chainfolio.storage.lake import Lake
from chainfolio.tables import ACCOUNT_TRANSFERS, TRANSFERS
from tests.tron.chains import facts
from tests.tron.conftest import RICH
from tests.tron.test_node import token_made

pytestmark = pytest.mark.node
Run = Callable[..., tuple[int, Any, str]]
RIGHT, DIFFERS = 0, 12


@dataclass(frozen=True)
class WalletChain:
    """A chain on which Alice holds coins, a TRC-10 token and a TRC-20 token, paid at `paid_height`."""

    node: TronNode
    alice: Person
    wrapped: str
    number: str
    paid_height: int

    @property
    def names(self) -> dict[str, str]:
        """The assets of alice."""
        chain = f"tron:{self.node.chain_id}"
        return {
            f"{chain}/slip44:195": "coins",
            f"{chain}/trc10:{self.number}": "own",
            f"{chain}/trc20:{base58check(self.wrapped)}": "token",
        }


@pytest.fixture(scope="module")
def lived(web: TronWeb) -> Iterator[WalletChain]:
    with TronNode(lag=2, grid=True) as node:
        alice, bob = (Person(node, web, number) for number in range(2))
        for each in (alice, bob):
            node.endow(each.hex, RICH)
        node.advance()
        wrapped = bob.deploy("WETH9")
        node.advance()
        number = token_made(node, bob)
        bob.call(wrapped, "deposit()", sun=9_000)
        node.advance()
        for raw in (100, 600):  # a token without rows is not read
            bob.call(wrapped, "transfer(address,uint256)", ("address", alice.hex), ("uint256", raw))
            paid_height = node.advance().height
        node.advance(3)
        bob.send("sendToken", alice.hex, 1_234, number, bob.hex)
        alice.pay(bob.hex, 55)
        node.advance(6)
        alice.pay(bob.hex, 66)  # not final
        node.advance()
        yield WalletChain(node, alice, wrapped, number, paid_height)


@pytest.fixture
def run(lived: WalletChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command on that chain and return its exit code, its document and its error output."""
    monkeypatch.chdir(tmp_path)
    path = facts(lived.node, tmp_path, wrapped=lived.wrapped)
    (tmp_path / "chainfolio.toml").write_text(
        f'data = "data"\n[chains.tron]\nadapter = "tron"\nrpc = ["{lived.node.url}"]\nfacts = "{path}"\n'
        'trongrid = true\nindex = "accounts"\n'
    )

    def ran(*arguments: str) -> tuple[int, Any, str]:
        capsys.readouterr()
        code = main((*arguments, "--json"))
        captured = capsys.readouterr()
        return code, json.loads(captured.out) if captured.out.strip() else None, captured.err

    return ran


def lose(folder: Path, height: int) -> None:
    """Takes the movements of a block out of an index that says that it has them."""
    lake = Lake(str(folder / "data" / "lake"))
    lake.delete_span("tron", Span(height, height), [TRANSFERS, ACCOUNT_TRANSFERS])


def test_rows_of_a_wallet_come_to_what_it_has_now_and_one_that_is_lost_is_named_with_its_cure(
    lived: WalletChain, run: Run, tmp_path: Path
) -> None:
    alice = lived.alice.address
    code, answer, _ = run("reconcile", alice)
    assert (code, answer["error"]["kind"]) == (4, "NotIndexed")
    assert run("watch", alice)[0] == RIGHT
    code, (report,), _ = run("reconcile", alice)
    assert code == RIGHT
    account, head = lived.node.state.accounts[lived.alice.hex], lived.node.head.height
    assert {lived.names[each["asset"]]: int(each["balance"]) for each in report["assets"]} == {
        "coins": account.balance,
        "own": 1_234,
        "token": 700,
    }
    assert all(each["opening"] == "0" and each["movements"] == each["balance"] for each in report["assets"])
    assert (report["firstBlock"], report["blockHash"]) == (0, lived.node.blocks[report["lastBlock"]].id)
    assert any(f"block {head} " in note for note in report["notes"])

    lose(tmp_path, lived.paid_height)
    code, (estimated,), _ = run("reconcile", alice, "--estimate")
    assert (code, estimated["differing"]) == (RIGHT, 1)
    code, (report,), _ = run("reconcile", alice)
    assert code == DIFFERS
    (difference,) = report["differences"]
    assert (lived.names[difference["asset"]], difference["block"], difference["amount"]) == (
        "token",
        lived.paid_height,
        "600",
    )
    assert difference["cause"] == "missing_row"
    (fix,) = (note for note in report["notes"] if "--rewind" in note)
    assert run(*fix.split("`")[1].split()[1:])[0] == RIGHT
    assert run("reconcile", alice)[0] == RIGHT


def test_what_the_lists_of_a_node_leave_out_differs_and_no_block_is_made_up(
    lived: WalletChain, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TronGrid loses transactions now and then: read again, they are lost again."""
    alice, list_all = lived.alice.address, history.list_transactions
    lost_ones = {each.txid for each in lived.node.blocks[lived.paid_height].transactions}

    async def lossy(*arguments: Any) -> Sequence[ListedTransaction]:
        return [each for each in await list_all(*arguments) if each.hash not in lost_ones]

    monkeypatch.setattr(history, "list_transactions", lossy)
    assert run("watch", alice)[0] == RIGHT
    code, (report,), _ = run("reconcile", alice)
    assert code == DIFFERS
    (difference,) = report["differences"]
    assert (difference["block"], difference["after"], difference["amount"]) == (report["lastBlock"], -1, "600")
    assert difference["cause"] == "unknown"


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        (("--from", "3"), 2, "from: nodes of this chain tell balances of now alone"),
        (("--to", "3"), 2, "to: nodes of this chain tell balances of now alone"),
        (("--max-requests", "1"), 10, "the budget of 1 requests is used up"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    lived: WalletChain, run: Run, options: tuple[str, str], code: int, reason: str
) -> None:
    assert run("watch", lived.alice.address)[0] == RIGHT
    ended, document, _ = run("reconcile", lived.alice.address, *options)
    assert ended == code
    assert reason in document["error"]["message"]


def test_an_index_that_does_not_reach_back_to_the_first_block_proves_nothing(lived: WalletChain, run: Run) -> None:
    assert run("watch", lived.alice.address, "--from", "3")[0] == RIGHT
    code, document, _ = run("reconcile", lived.alice.address)
    assert (code, document["error"]["kind"]) == (4, "NotIndexed")
    assert "blocks 0..2" in document["error"]["message"]
