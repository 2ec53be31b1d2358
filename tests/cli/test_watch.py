"""`chainfolio watch`: the histories of some accounts, from an ordinary node, through the real command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from chainfolio.blocks import Span
from chainfolio.tables import TABLES
from storage.lake import Lake
from tests.chains.evm import EvmSubject, evm
from tests.cli.conftest import Run, configure

FINALITY = 64
DATASETS = "blocks,transactions,native,transfers,approvals"
pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(120) as subject:
        yield subject


@pytest.fixture
def configured(here: Path, subject: EvmSubject) -> Path:
    configure(here, subject.node.url, chain="local", more=f'facts = "{subject.facts(FINALITY)}"')
    return here


def account(subject: EvmSubject, name: str = "alice") -> str:
    return subject.deployment.accounts[name].lower()


def stored(folder: Path, table: str, concerning: str) -> list[dict[str, object]]:
    """The rows of the lake that name an account, in the order of the chain."""
    rows = Lake(str(folder / "data" / "lake")).window(TABLES[table], "local", Span(0, 2**62)).to_pylist()
    return [row for row in rows if concerning in row.values()]


def test_a_watched_account_is_answered_wholly_by_a_node_without_any_other_index(
    run: Run, configured: Path, subject: EvmSubject
) -> None:
    ran = run("watch", account(subject).upper().replace("0X", "0x"), account(subject), "--json")
    assert ran.code == 0, ran.out + ran.err
    (chain,) = ran.json
    assert (chain["chain"], chain["state"]) == ("local", "watched")
    (shown,) = chain["accounts"]
    assert shown["account"] == account(subject), "two spellings are one account"
    print(json.dumps(shown, indent=1))
    found = {each["dataset"]: each for each in shown["datasets"]}
    for name in ("transfers", "approvals", "events"):
        assert (found[name]["indexed"], found[name]["missing"]) == ([[0, subject.height]], [])
    (portfolio,) = run("portfolio", account(subject), "--json").json
    assert not [issue for issue in portfolio["issues"] if "transfers are not indexed" in issue["reason"]], portfolio
    assert run("approvals", account(subject), "--json").code == 0
