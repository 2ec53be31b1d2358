"""Names of the Ethereum Name Service on the command line, with its contracts on a real node."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import chainfolio
from chainfolio.errors import BadRequest, NotFound
from chainfolio.indexer.wiring import CONFIGS
from chainfolio.localchain.names import YEAR_S, Names, deploy_names
from chainfolio.localchain.node import LocalNode
from tests.cli.conftest import Run, configure

pytestmark = pytest.mark.node


@dataclass(frozen=True)
class EnsNode:
    """A node with names, and the accounts that have them."""

    node: LocalNode
    names: Names
    alice: str
    bob: str
    carol: str


@pytest.fixture(scope="module")
def ens() -> Iterator[EnsNode]:
    with LocalNode() as node:
        names = deploy_names(node)
        alice, bob, carol = (account.lower() for account in node.accounts[1:4])
        names.register("alice.eth", alice, alice)
        names.register("pay.alice.eth", alice, bob)
        names.set_reverse(alice, "alice.eth")
        names.register("silent.eth", bob)
        names.register("ghost.eth", carol, carol, seconds=YEAR_S // 2)
        names.set_reverse(carol, "alice.eth")
        names.register("boss.eth", alice, carol)
        yield EnsNode(node, names, alice, bob, carol)


@pytest.fixture(autouse=True)
def ethereum(here: Path, ens: EnsNode) -> None:
    """Settings in which the chain of the node is Ethereum."""
    facts = (CONFIGS / "chains" / "local.toml").read_text().replace('key = "local"', 'key = "ethereum"')
    (here / "ethereum.toml").write_text(facts)
    configure(here, ens.node.url, more='facts = "ethereum.toml"')


def test_a_name_is_read_as_its_address_and_shown_where_the_address_says_the_same(run: Run, ens: EnsNode) -> None:
    ran = run("portfolio", "Alice.eth")
    assert (ran.code, ran.err) == (0, f"Alice.eth is {ens.alice}\n")
    assert ran.out.startswith(f"alice.eth ({ens.alice}): ")
    assert run("portfolio", "alice.eth", ens.alice, "--json").json[0]["address"] == ens.alice


def test_an_address_is_shown_with_its_name_where_that_is_wanted(run: Run, ens: EnsNode) -> None:
    assert run("portfolio", ens.alice).out.startswith(f"{ens.alice}: ")
    assert run("portfolio", ens.alice, "--names").out.startswith(f"alice.eth ({ens.alice}): ")


def test_a_name_that_another_account_stands_behind_is_not_shown_for_the_account_that_claims_it(
    run: Run, ens: EnsNode
) -> None:
    assert run("portfolio", ens.carol, "--names").out.startswith(f"{ens.carol}: ")
    ran = run("nav", "boss.eth")
    assert (ran.code, f"{ens.carol} gives itself no name that stands for it" in ran.err) == (0, True)


def test_a_name_below_another_one_is_a_name_too(run: Run, ens: EnsNode) -> None:
    ran = run("nav", "pay.alice.eth", "--json")
    assert (ran.code, f"pay.alice.eth is {ens.bob}" in ran.err) == (0, True)


@pytest.mark.slow(
    "the same names in other commands", fast=["silent.eth-portfolio", "nobody.eth-nav", "nobody.example-transactions"]
)
@pytest.mark.parametrize("command", ["portfolio", "nav", "approvals", "transactions", "verify"])
@pytest.mark.parametrize("name", ["silent.eth", "nobody.eth", "nobody.example"])
def test_a_name_that_stands_for_nothing_is_said_to(run: Run, command: str, name: str) -> None:
    ran = run(command, name, "--json")
    assert (ran.code, ran.error["kind"]) == (9, "NotFound")
    assert name in ran.error["message"]


@pytest.mark.parametrize("name", ["\u0430lice.eth", "\u0430\u0440\u0435.eth", "a_b.eth", "a..eth", "xn--alice.eth"])
def test_what_only_looks_like_a_name_is_refused(run: Run, name: str) -> None:
    ran = run("portfolio", name, "--json")
    assert (ran.code, ran.error["kind"], ran.error["field"]) == (2, "BadRequest", "address")


def test_letters_that_may_look_like_others_or_are_not_seen_are_named(run: Run, ens: EnsNode) -> None:
    ens.names.register("\u00e4lice.eth", ens.bob, ens.bob)
    for name, letter in (("\u00e4lice.eth", "(U+00E4)"), ("ali\u200bce.eth", "(U+200B)")):
        ran = run("nav", name)
        assert (ran.code, letter in ran.err) == (0, True)


def test_a_name_that_has_expired_is_refused_with_its_day_and_so_is_what_lies_below_it(run: Run, ens: EnsNode) -> None:
    assert run("nav", "ghost.eth").code == 0
    snapshot = ens.node.rpc("evm_snapshot")
    try:
        ens.node.rpc("evm_setNextBlockTimestamp", int(ens.node.block()["timestamp"], 16) + YEAR_S)
        ens.node.mine()
        ran = run("nav", "ghost.eth", "--json")
        assert (ran.code, ran.error["kind"]) == (9, "NotFound")
        assert "expired on 2024-" in ran.error["message"]
    finally:
        ens.node.rpc("evm_revert", snapshot)


def test_a_name_without_a_node_of_ethereum_is_refused_with_the_cure(run: Run, here: Path, ens: EnsNode) -> None:
    (here / "chainfolio.toml").unlink()
    ran = run("portfolio", "alice.eth", "--rpc", ens.node.url, "--json")
    assert (ran.code, ran.error["kind"]) == (2, "BadRequest")
    assert "names are looked up on ethereum" in ran.error["message"]
    assert "--rpc" in ran.error["remedy"]


def test_a_session_takes_names_for_addresses(here: Path, ens: EnsNode, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "chainfolio.session")
    with chainfolio.open(here) as session:
        by_name, by_address = session.portfolios(["Alice.eth", ens.bob])
        assert (by_name.address, by_address.address) == (ens.alice, ens.bob)
        assert caplog.messages == [f"Alice.eth is {ens.alice}"]
        assert session.portfolio("alice.eth").networth == by_name.networth
        assert session.nav(["alice.eth", ens.alice]).nav == session.nav(ens.alice).nav
        with pytest.raises(NotFound, match=r"silent\.eth"):
            session.portfolio("silent.eth")
        with pytest.raises(BadRequest):
            session.nav("a_b.eth")


@pytest.mark.slow("a plain session has the same look-ups")
async def test_an_asynchronous_session_takes_names_for_addresses(here: Path, ens: EnsNode) -> None:
    async with chainfolio.AsyncSession.open(here) as session:
        assert (await session.portfolio("pay.alice.eth")).address == ens.bob


def test_a_session_without_a_node_of_ethereum_refuses_names(ens: EnsNode) -> None:
    with chainfolio.connect(ens.node.url) as session, pytest.raises(BadRequest, match="looked up on ethereum"):
        session.portfolio("alice.eth")


def test_an_address_that_is_kept_may_be_written_as_a_name(run: Run, ens: EnsNode) -> None:
    account = run("account", "create", "--name", "me", "--json").json["accountId"]
    ran = run("subscription", "add", "alice.eth", "--account", account, "--json")
    assert ran.json["address"] == ens.alice


def test_a_chain_without_the_resolver_of_names_is_a_typed_error_and_gives_no_name(
    run: Run, here: Path, ens: EnsNode
) -> None:
    with LocalNode() as bare:
        configure(here, bare.url, more='facts = "ethereum.toml"')
        ran = run("portfolio", "alice.eth", "--json")
        assert (ran.code, ran.error["kind"]) == (9, "NotFound")
        assert "no resolver of ENS names" in ran.error["message"]
        ran = run("portfolio", ens.alice, "--names")
        assert (ran.code, ran.out.startswith(f"{ens.alice}: ")) == (0, True)
