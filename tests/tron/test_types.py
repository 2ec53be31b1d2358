"""Types of Tron transactions of the official client, by the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainfolio.cli.main import main
from chainfolio.localchain.tron.forms import base58check
from chainfolio.localchain.tron.node import TronNode
from chainfolio.localchain.tron.state import TRX
from chainfolio.localchain.tron.wallet import Person
from tests.commands import run_json
from tests.tron.chains import facts

pytestmark = pytest.mark.node
People = tuple[Person, Person, Person]


@pytest.fixture
def settings(node: TronNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings that name the node, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "chainfolio.toml"
    path.write_text(
        f'data = "data"\n[chains.tron]\nadapter = "tron"\nrpc = ["{node.url}"]\ntrongrid = true\n'
        f'facts = "{facts(node, tmp_path)}"\n'
    )
    return path


def test_what_the_system_does_has_its_types(
    node: TronNode, people: People, settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alice, bob, carol = people
    witness = base58check(next(iter(node.state.witnesses)))
    did = {
        alice.send("freezeBalanceV2", 40 * TRX, "ENERGY", alice.hex): ("STAKE", "FreezeBalanceV2"),
        alice.pay(carol.hex, 2 * TRX): ("TRANSFEROUT", ""),
    }
    node.advance()
    did[alice.send("vote", {witness: 7}, alice.hex)] = ("VOTE", "VoteWitness")
    did[alice.send("delegateResource", 5 * TRX, bob.hex, "ENERGY", alice.hex, False, 0)] = (
        "INTERACTION",
        "DelegateResource",
    )
    node.advance()
    did[alice.send("unfreezeBalanceV2", 15 * TRX, "ENERGY", alice.hex)] = ("UNSTAKE", "UnfreezeBalanceV2")
    node.advance(5)
    assert main(("index", "tron")) == 0
    page = run_json(capsys, "transactions", alice.address)
    types = {each["hash"]: (each["type"], each["functionName"]) for each in page["transactions"]}
    assert {each: types[each] for each in did} == did
