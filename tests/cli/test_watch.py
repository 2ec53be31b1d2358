"""`chainfolio watch` on the command line: histories of accounts from an ordinary node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chainfolio.assets import asset
from chainfolio.blocks import Span
from chainfolio.chain_results import UnexplainedChange
from chainfolio.environment import SystemClock
from chainfolio.indexer import arrow_ipc
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.storage.watches import OwnedWatch, WatchLimits
from chainfolio.tables import TABLES
from tests.chains.evm import KEY, EvmSubject, evm
from tests.cli.conftest import Run, configure

FINALITY = 16
NATIVE = asset("eip155:31337/slip44:60")
SOURCES = ("transactions", "transfers", "approvals", "logs")
HISTORIES = ("account_transactions", "account_transfers", "account_approvals")
pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(48) as subject:
        yield subject


@pytest.fixture
def configured(here: Path, subject: EvmSubject) -> Path:
    configure(here, subject.node.url, chain="local", more=f'facts = "{subject.facts(FINALITY)}"\nindex = "accounts"')
    return here


def configure_whole(folder: Path, subject: EvmSubject) -> None:
    datasets = 'datasets = ["blocks", "transactions", "native", "transfers", "approvals", "internal"]'
    configure(folder, subject.node.url, chain="local", more=f'facts = "{subject.facts(FINALITY)}"\n{datasets}')


def account(subject: EvmSubject, name: str = "alice") -> str:
    return subject.deployment.accounts[name].lower()


def stored(folder: Path, table: str, accounts: set[str]) -> list[dict[str, Any]]:
    """The rows of lake and tail that name some accounts, in the order of the chain."""
    lake, tail = Lake(str(folder / "data" / "lake")), Tail(folder / "data" / "tail.db")
    fresh = arrow_ipc.load((stream for _, stream in tail.rows(KEY, table, 0, 2**40)), TABLES[table])
    rows = [*lake.window(TABLES[table], KEY, Span(0, 2**62)).to_pylist(), *fresh.to_pylist()]
    tail.close()
    names = accounts | {"0x" + each[2:].rjust(64, "0") for each in accounts}
    account_rows = [row for row in rows if names & {value for value in row.values() if isinstance(value, str)}]
    return sorted(account_rows, key=lambda row: [str(row[name]) for name in TABLES[table].key])


def histories(folder: Path, accounts: set[str]) -> dict[str, list[dict[str, Any]]]:
    tables = {name: stored(folder, name, accounts) for name in HISTORIES}
    return {name: [row for row in rows if row["account"] in accounts] for name, rows in tables.items()}


def issues(run: Run, address: str) -> list[str]:
    (portfolio,) = run("portfolio", address, "--json").json
    return [issue["reason"] for issue in portfolio["issues"]]


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_a_watched_account_is_answered_wholly_by_a_node_without_any_other_index(
    run: Run, configured: Path, subject: EvmSubject
) -> None:
    alice = account(subject)
    assert any("transfers are not indexed" in reason for reason in issues(run, alice))
    (chain,) = run("status", "--json").json["chains"]
    assert chain["hints"] == [f"no account is watched: chainfolio watch ADDRESS --chain {KEY}"]
    assert run("transactions", alice, "--json").error["kind"] == "NotIndexed"
    assert run("approvals", alice, "--json").error["kind"] == "NotIndexed"
    ran = run("watch", "0x" + alice[2:].upper(), alice, "--json")
    assert ran.code == 0, ran.out + ran.err
    (chain,) = ran.json
    (watched_account,) = chain["accounts"]
    assert (chain["chain"], chain["state"], watched_account["account"]) == ("local", "watched", alice), (
        "two spellings, one account"
    )
    for each in watched_account["datasets"]:
        assert (each["indexed"], each["missing"]) == ([[0, subject.height]], []), each
        assert each["ways"], each
    assert not any("not indexed" in reason for reason in issues(run, alice))
    ran = run("transactions", alice, "--json")
    assert (ran.code, ran.json["completeness"]) == (0, "complete")
    assert ran.json["transactions"]
    assert run("approvals", alice, "--json").code == 0
    (chain,) = run("status", "--json").json["chains"]
    assert (chain["newest"], chain["accounts"], chain["hints"]) == (subject.height, [watched_account], [])
    assert "chainfolio index" not in run("status").out, "it would change nothing"
    bob = account(subject, "bob")
    assert any("transfers are not indexed" in reason for reason in issues(run, bob)), "nobody else is known"
    assert f"chainfolio watch ADDRESS --chain {KEY}" in run("transactions", bob, "--json").error["remedy"]


@pytest.mark.slow("indexes a chain in five ways")
def test_what_is_stored_of_accounts_is_what_a_whole_index_has_of_them_whichever_came_first(
    run: Run, configured: Path, subject: EvmSubject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = {account(subject, name) for name in ("alice", "bob")}
    assert run("watch", account(subject)).code == 0
    assert run("watch", account(subject, "bob")).code == 0
    alone = {name: stored(configured, name, watched) for name in SOURCES}, histories(configured, watched)
    full_folder = tmp_path / "whole"
    full_folder.mkdir()
    monkeypatch.chdir(full_folder)
    configure_whole(full_folder, subject)
    assert run("index", "local").code == 0
    of_whole = {name: stored(full_folder, name, watched) for name in SOURCES}, histories(full_folder, watched)
    events = [row for row in alone[0]["logs"] if row not in of_whole[0]["logs"]]
    assert (alone[0] | {"logs": of_whole[0]["logs"]}, alone[1]) == of_whole
    assert run("watch", *sorted(watched)).code == 0
    both = {name: stored(full_folder, name, watched) for name in SOURCES}, histories(full_folder, watched)
    assert both == (of_whole[0] | {"logs": alone[0]["logs"]}, of_whole[1]), "the events that nobody else asked for came"
    monkeypatch.chdir(configured)
    configure_whole(configured, subject)
    assert run("index", "local").code == 0
    assert ({name: stored(configured, name, watched) for name in SOURCES}, histories(configured, watched)) == both
    assert all(both[0][name] for name in SOURCES if name != "logs"), "there was something to compare"
    assert events == [row for row in both[0]["logs"] if row not in of_whole[0]["logs"]]


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_a_change_of_a_balance_that_nobody_explained_makes_the_transactions_partial(
    run: Run, configured: Path, subject: EvmSubject
) -> None:
    alice = account(subject)
    assert run("watch", alice).code == 0
    assert run("transactions", alice, "--json").json["completeness"] == "complete"
    tail = Tail(configured / "data" / "tail.db")
    tail.add_history_notes(KEY, [], [UnexplainedChange(alice, 9, NATIVE, 70, "nobody traces")])
    tail.close()
    page = run("transactions", alice, "--json").json
    assert page["completeness"] == "partial"
    assert [each["reason"] for each in page["issues"] if each["adapter"] != "pnl"] == [
        f"movements may be missing: block 9: 70 of {NATIVE}: nobody traces"
    ]


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_a_portfolio_says_what_nobody_explained_of_a_history_and_stays_complete_for_balances_are_read(
    run: Run, configured: Path, subject: EvmSubject
) -> None:
    alice = account(subject)
    assert run("watch", alice).code == 0
    (before,) = run("portfolio", alice, "--json").json
    tail = Tail(configured / "data" / "tail.db")
    tail.add_history_notes(KEY, [], [UnexplainedChange(alice, 9, NATIVE, 70, "nobody traces")])
    tail.close()
    (document,) = run("portfolio", alice, "--json").json
    assert document["completeness"] == before["completeness"] == "complete"
    new = [each["reason"] for each in document["issues"] if each not in before["issues"]]
    assert new == [f"movements may be missing: block 9: 70 of {NATIVE}: nobody traces"]


def test_what_it_would_cost_is_said_before_and_a_budget_ends_it_without_losing_anything(
    run: Run, configured: Path, subject: EvmSubject
) -> None:
    (estimated,) = run("watch", account(subject), "--estimate", "--json").json
    assert (estimated["state"], estimated["blocks"]) == ("estimated", subject.height - FINALITY + 1)
    assert estimated["requests"] > 0 < estimated["rows"]
    assert "of the blocks for this" in run("watch", account(subject), "--estimate").out
    assert run("status", "--json").json["chains"][0]["accounts"] == [], "nobody is watched for asking"
    ran = run("watch", account(subject), "--max-requests", "1", "--json")
    assert (ran.code, ran.error["kind"]) == (10, "OverBudget")
    ran = run("watch", account(subject), "--max-units", "30", "--json")
    assert (ran.code, ran.error["kind"]) == (10, "OverBudget"), ran.out
    assert "compute units" in ran.error["message"]
    ran = run("watch", account(subject), "--json")
    assert (ran.code, ran.json[0]["accounts"][0]["datasets"][0]["missing"]) == (0, [])
    assert run("watch", account(subject), "--estimate", "--json").json[0]["blocks"] == 0
    assert run("watch", account(subject), "--estimate").out == "local: nothing is missing\n"
    repeated = run("watch", account(subject), "--json").json[0]
    assert (repeated["blocks"], repeated["rows"]) == (0, 0), "what is there is not read again"


def test_a_chain_that_another_process_indexes_takes_up_who_is_watched_meanwhile(
    run: Run, configured: Path, subject: EvmSubject
) -> None:
    tail = Tail(configured / "data" / "tail.db")
    with tail.lock(KEY):
        (chain,) = run("watch", account(subject), "--json").json
    assert (chain["state"], [each.account for each in tail.watches(KEY)]) == ("queued", [account(subject)])
    tail.close()
    assert run("index", KEY).code == 0
    (watched_account,) = run("status", "--json").json["chains"][0]["accounts"]
    assert [each["missing"] for each in watched_account["datasets"]] == [[]] * len(watched_account["datasets"])
    (stopped,) = run("watch", account(subject), "--stop", "--json").json
    assert stopped["accounts"] == [{"account": account(subject)}]
    assert run("status", "--json").json["chains"][0]["accounts"] == []


def test_status_counts_the_places_of_accounts_and_stop_leaves_what_is_sold(
    run: Run, configured: Path, subject: EvmSubject
) -> None:
    wallet, until_us = account(subject), SystemClock().now_us() + 10**12
    tail = Tail(configured / "data" / "tail.db")
    tail.add_synced_watches(KEY, 0, "acc_1", [wallet, "0x" + "2" * 40], WatchLimits(0, until_us, 9, 9))
    tail.add_sold_watches(KEY, 0, [OwnedWatch(wallet, "acc_2", True, until_us)])
    tail.close()
    assert run("status", "--json").json["chains"][0]["places"] == [
        {"account": "acc_1", "synced": 2, "subscribed": 0},
        {"account": "acc_2", "synced": 0, "subscribed": 1},
    ]
    assert "  watched for acc_1: 2 synced, 0 subscribed\n" in run("status").out
    assert run("watch", wallet, "--stop").out == (
        f"{KEY}: watched no longer: none was\n"
        f"{KEY}: {wallet} stays watched: a client subscribed to it (chainfolio status)\n"
    )
    (chain,) = run("status", "--json").json["chains"]
    assert [each["account"] for each in chain["places"]] == ["acc_1", "acc_2"]
    assert chain["places"][0]["synced"] == 1


def test_a_part_of_a_history_is_read_and_the_rest_is_said_to_be_missing(
    run: Run, configured: Path, subject: EvmSubject
) -> None:
    assert run("watch", account(subject), "--from", "10", "--to", "30").code == 0
    (watched_account,) = run("status", "--json").json["chains"][0]["accounts"]
    assert {tuple(map(tuple, each["indexed"])) for each in watched_account["datasets"]} == {((10, 30),)}
    assert any("0..9, 31.." in reason for reason in issues(run, account(subject)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["0x" + "0" * 40], "no history of its own"),
        (["0x1234"], "not"),
        (["7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtV"], "no chain of its kind is among: local"),
        (["0x" + "1" * 40, "--chain", "nowhere"], "nowhere is not configured"),
        (["0x" + "1" * 40, "--from", "9", "--to", "8"], "8 is before 9"),
        (["0x" + "1" * 40, "--from", "-1"], "at least 0"),
        (["0x" + "1" * 40, "--from", "99999999"], "99999999 is above the newest block of local"),
        (["0x" + "1" * 40, "--max-requests", "0"], "at least 1"),
        (["0x" + "1" * 40, "--max-units", "0"], "at least 1"),
    ],
)
def test_who_cannot_be_watched_is_refused(run: Run, configured: Path, arguments: list[str], message: str) -> None:
    ran = run("watch", *arguments)
    assert ran.code == 2, ran.err
    assert message in ran.err
    assert run("status", "--json").json["chains"][0]["accounts"] == []


def test_accounts_of_the_settings_are_read_by_an_index(run: Run, configured: Path, subject: EvmSubject) -> None:
    with (configured / "chainfolio.toml").open("a") as settings:
        settings.write(f'[accounts]\nwatch = ["{account(subject)}"]\n')
    assert run("index", KEY).code == 0
    (watched_account,) = run("status", "--json").json["chains"][0]["accounts"]
    assert (watched_account["account"], watched_account["datasets"][0]["missing"]) == (account(subject), [])
    assert not any("not indexed" in reason for reason in issues(run, account(subject)))


@pytest.mark.slow("indexes a chain in two ways and asks every question twice")
def test_answers_about_a_watched_account_are_those_of_a_whole_index(
    run: Run, configured: Path, subject: EvmSubject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, past = account(subject), str(subject.height - FINALITY // 2)

    def answers() -> list[Any]:
        documents = [
            run("portfolio", alice, "--json").json,
            run("portfolio", alice, "--block", past, "--json").json,
            run("nav", alice, "--json").json,
            run("transactions", alice, "--limit", "250", "--json").json,
            run("approvals", alice, "--json").json,
        ]
        return [_timeless(each) for each in documents]

    assert run("watch", alice).code == 0
    alone = answers()
    full_folder = tmp_path / "whole"
    full_folder.mkdir()
    monkeypatch.chdir(full_folder)
    configure_whole(full_folder, subject)
    assert run("index", "local").code == 0
    assert answers() == alone
    (portfolio,), (past_portfolio,), _, transactions, approvals = alone
    assert (portfolio["completeness"], past_portfolio["completeness"]) == ("complete", "complete")
    assert transactions["transactions"]
    assert approvals


def _timeless(document: Any) -> Any:
    """A document without what depends on when and how it was made."""
    if isinstance(document, dict):
        skipped = {"lastUpdated", "requests", "updatedAt"}
        return {name: _timeless(each) for name, each in document.items() if name not in skipped}
    return [_timeless(each) for each in document] if isinstance(document, list) else document


def test_a_contract_with_very_many_transfers_is_read_budget_by_budget_and_each_row_is_there_once(
    run: Run, here: Path, subject: EvmSubject
) -> None:
    """Each run ends where its budget does, says how to go on, and goes on behind what was read."""
    settings = f'facts = "{subject.facts(FINALITY)}"\nindex = "accounts"\nspan = 10'
    configure(here, subject.node.url, chain="local", more=settings)
    token = subject.token("WETH")
    final = subject.height - FINALITY
    indexed, runs = list[int](), 0
    while True:
        ran = run("watch", token, "--max-requests", "9", "--to", str(final), "--json")
        runs += 1
        (watched_account,) = run("status", "--json").json["chains"][0]["accounts"]
        indexed.append(sum(last - first + 1 for each in watched_account["datasets"] for first, last in each["indexed"]))
        if ran.code == 0:
            break
        assert (ran.code, ran.error["kind"]) == (10, "OverBudget")
        assert "it goes on where this ended" in ran.error["remedy"]
        assert runs < 20
    assert runs > 1
    assert indexed == sorted(indexed), "what was read is kept"
    rows = stored(here, "transfers", {token})
    assert len({tuple(row[name] for name in TABLES["transfers"].key) for row in rows}) == len(rows) > 20
