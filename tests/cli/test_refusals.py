"""Refusals have a remedy, as text or as one JSON object, and the right exit code."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chainfolio.cli.groups import GROUPS
from chainfolio.localchain.node import LocalNode
from chainfolio.transport import http_endpoint
from tests.cli.conftest import ALICE, Run, configure

ROOT = Path(__file__).parents[2]
FAST_S = 15
NEEDS_NODE = {
    "portfolio": ("portfolio", ALICE),
    "portfolio at a block": ("portfolio", ALICE, "--block", "5"),
    "portfolio of a chain": ("portfolio", ALICE, "--chain", "ethereum"),
    "nav": ("nav", ALICE),
    "index": ("index", "ethereum"),
    "estimate": ("index", "ethereum", "--estimate"),
}


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with LocalNode() as node:
        yield node


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [("portfolio", ALICE), ("nav", ALICE)], ids=["portfolio", "nav"])
def test_without_settings_nothing_is_known_which_is_not_zero(run: Run, command: tuple[str, ...]) -> None:
    ran = run(*command)
    assert (ran.code, ran.out) == (2, "")
    assert "no chain is configured" in ran.err
    assert "remedy: name a node with --rpc http://…, or add [chains.ethereum]" in ran.err
    assert "chainfolio demo" in ran.err


@pytest.mark.parametrize(
    "command", [("index", "mars"), ("materialise", "mars"), ("portfolio", ALICE, "--chain", "mars")]
)
def test_an_unknown_chain_is_refused_with_those_that_are_configured(
    run: Run, here: Path, dead: str, command: tuple[str, ...]
) -> None:
    configure(here, dead)
    ran = run(*command, "--json")
    assert ran.code == 2
    assert ran.error["message"] == "chain: mars is not configured"
    assert ran.error["remedy"] == "configured are: ethereum; add [chains.mars]"


def test_a_chain_nobody_knows_facts_of_is_refused_with_those_there_are(run: Run, here: Path, dead: str) -> None:
    configure(here, dead, chain="mars")
    ran = run("index", "mars")
    assert ran.code == 2
    assert "mars is not a chain known here" in ran.err
    assert "arbitrum" in ran.err


def test_a_chain_without_endpoint_is_refused_with_the_key_to_set(run: Run, here: Path) -> None:
    configure(here)
    ran = run("index", "ethereum")
    assert ran.code == 3
    assert "remedy: set chains.ethereum.rpc" in ran.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[server]\nprot = 1", "unknown key `prot` in [server]; did you mean `port`?"),
        ("x = ", "not valid TOML"),
        ('[chains.ethereum]\nrpc = ["env:NOBODY_SET_THIS"]', "the environment variable NOBODY_SET_THIS is not set"),
    ],
)
@pytest.mark.parametrize("command", ["doctor", "serve", "worker", "sql", "demo-less"])
def test_wrong_settings_stop_every_command_before_it_begins(
    run: Run, here: Path, text: str, message: str, command: str
) -> None:
    (here / "chainfolio.toml").write_text(text)
    arguments = {"sql": ["sql", "SELECT 1"], "demo-less": ["account", "list"]}.get(command, [command])
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert list(here.iterdir()) == [here / "chainfolio.toml"]


def test_settings_are_found_by_option_before_variable_before_folder(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("option", "variable", "chainfolio"):
        (here / f"{name}.toml").write_text(f"{name} = 1")
    assert "unknown key `chainfolio`" in run("doctor").err
    monkeypatch.setenv("CHAINFOLIO_CONFIG", "variable.toml")
    assert "unknown key `variable`" in run("doctor").err
    assert "unknown key `option`" in run("doctor", "--config", "option.toml").err
    assert "there is no such settings file" in run("doctor", "--config", "nowhere.toml").err


@pytest.mark.parametrize("option", [("--port", "99999"), ("--port", "-1"), ("--workers", "0")])
def test_options_of_the_server_are_as_strict_as_its_settings(run: Run, option: tuple[str, str]) -> None:
    ran = run("serve", *option)
    assert ran.code == 2
    assert ran.err.startswith("error: server")


@pytest.mark.parametrize("command", [("account", "list"), ("doctor",), ("index", "ethereum")])
def test_a_folder_that_cannot_be_made_is_said_without_a_traceback(
    run: Run, here: Path, dead: str, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    configure(here, dead)
    monkeypatch.setenv("CHAINFOLIO_DATA", str(here / "chainfolio.toml" / "data"))
    ran = run(*command, "--json")
    assert ran.code == 5
    assert ran.error["kind"] == "StoreError"
    assert "Not a directory" in ran.error["message"]
    assert "`data` in the settings" in ran.error["remedy"]


# --- nodes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", NEEDS_NODE.values(), ids=NEEDS_NODE.keys())
def test_a_node_that_cannot_be_reached_is_named_with_a_cure_soon(
    run: Run, here: Path, dead: str, waited: list[float], command: tuple[str, ...]
) -> None:
    configure(here, f"{dead}/v2/s3cr3t0123456789?key=s3cr3t0123456789", more="worker_processes = 1")
    start_s = time.monotonic()
    ran = run(*command, "--json")
    assert ran.code == 3
    assert ran.error["kind"] == "Unreachable"
    assert ran.error["source"] == dead.removeprefix("http://")
    assert "cannot be reached" in ran.error["message"]
    assert "is the node running" in ran.error["remedy"]
    assert "s3cr3t" not in ran.out + ran.err
    assert time.monotonic() - start_s + sum(waited) < FAST_S


def test_a_command_ends_with_its_code_and_says_why_on_standard_error_alone(here: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "chainfolio.cli.main", "portfolio", "0x12"],
        cwd=here,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (child.returncode, child.stdout) == (2, "")
    first, remedy = child.stderr.splitlines()
    assert first == "error: address: '0x12' is not an address of any kind known here"
    assert remedy.startswith("  remedy: EVM 0x + 40 hex digits")


@pytest.fixture
def silent() -> Iterator[str]:
    """Yield the URL of a server that accepts every connection and never answers."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen(100)
        yield f"http://127.0.0.1:{holder.getsockname()[1]}"


def test_a_node_that_never_said_anything_is_named_meanwhile_and_given_up_after_two_time_outs(
    run: Run,
    here: Path,
    silent: str,
    waited: list[float],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(http_endpoint, "NOTICE_S", 0.2)
    configure(here, f"{silent}/v2/s3cr3t0123456789", more="worker_processes = 1\ntimeout_s = 1")
    ran = run("portfolio", ALICE, "--json")
    name = silent.removeprefix("http://")
    assert (ran.code, ran.error["kind"], ran.error["source"]) == (3, "NoResponse", name)
    assert ran.error["message"].endswith("no answer within 1 s")
    assert "is the address right" in ran.error["remedy"]
    messages = [record.getMessage() for record in caplog.records]
    # The portfolio, and the rates of other currencies beside it, twice each.
    assert messages.count(f"{name}: no answer yet after 0.2 s") == 4
    assert messages.index(f"{name}: no answer yet after 0.2 s") < messages.index(
        f"{name}: no answer within 1 s (NoResponse, 1 so far)"
    )
    assert "s3cr3t" not in ran.out + ran.err


@pytest.mark.parametrize(
    ("symbol", "begins"),
    [
        ("ETH", ["base:ETH", "ethereum:ETH", "arbitrum:ETH"]),
        ("USDC", ["arbitrum:0xaf88", "arbitrum:0xff97", "base:USDC", "ethereum:USDC"]),  # two of them on Arbitrum
        ("arbitrum:USDC", ["arbitrum:0xaf88", "arbitrum:0xff97"]),
    ],
)
def test_each_way_to_write_a_symbol_of_several_tokens_works_when_it_is_pasted(
    run: Run, here: Path, dead: str, symbol: str, begins: list[str]
) -> None:
    (here / "chainfolio.toml").write_text(
        "".join(f'[chains.{key}]\nrpc = ["{dead}"]\n' for key in ("ethereum", "base", "arbitrum"))
    )
    ran = run("price", symbol, "--json")
    message = f"asset: several tokens have the symbol {symbol.rpartition(':')[2]!r}"
    assert (ran.code, ran.error["message"]) == (2, message)
    spellings = [spelling.split(" ")[0] for spelling in ran.error["remedy"].removeprefix("write ").split(" or ")]
    assert len(spellings) == len(begins)
    assert all(any(spelling.startswith(each) for spelling in spellings) for each in begins), spellings
    assert {run("price", spelling, "--json").error["kind"] for spelling in spellings} == {"Unreachable"}


def test_where_no_list_has_a_symbol_it_is_said_how_any_token_is_written(run: Run, here: Path, dead: str) -> None:
    (here / "chainfolio.toml").write_text("".join(f'[chains.{key}]\nrpc = ["{dead}"]\n' for key in ("base", "scroll")))
    assert run("price", "NOPE", "--json").error["remedy"].endswith("base:ADDRESS or scroll:ADDRESS")


@pytest.mark.node
@pytest.mark.parametrize("command", NEEDS_NODE.values(), ids=NEEDS_NODE.keys())
def test_a_node_of_another_chain_is_refused(run: Run, here: Path, node: LocalNode, command: tuple[str, ...]) -> None:
    configure(here, node.url, more="worker_processes = 1")
    ran = run(*command, "--json")
    assert ran.code == 3
    assert ran.error["kind"] == "WrongChain"
    assert "serves chain 31337, not 1 (ethereum)" in ran.error["message"]
    assert "chains.ethereum.rpc" in ran.error["remedy"]


@pytest.mark.node
def test_a_block_beyond_the_final_one_is_refused_with_the_last_that_is(run: Run, here: Path, node: LocalNode) -> None:
    configure(here, node.url, chain="local", more="worker_processes = 1")
    ran = run("index", "local", "--from", "1000000", "--json")
    assert ran.code == 2
    assert ran.error["kind"] == "BadRequest"
    assert "1000000" in ran.error["message"]


@pytest.mark.node
@pytest.mark.parametrize(
    "span",
    [
        ("--from", "-1"),
        ("--to", "-1"),
        ("--from", "5", "--to", "2"),
        ("--rewind", "-1"),
    ],
)
def test_what_is_no_span_is_refused(run: Run, here: Path, node: LocalNode, span: tuple[str, ...]) -> None:
    configure(here, node.url, chain="local", more="worker_processes = 1")
    ran = run("index", "local", *span, "--json")
    assert ran.code == 2
    assert ran.error["kind"] == "BadRequest"


def test_an_estimate_forgets_nothing(run: Run, here: Path, dead: str) -> None:
    configure(here, dead)
    ran = run("index", "ethereum", "--rewind", "100", "--estimate", "--json")
    assert (ran.code, ran.error["kind"], ran.error["remedy"]) == (2, "BadRequest", "leave one out")


# --- what is asked for -----------------------------------------------------------------------------------------------


def test_an_unknown_dataset_is_refused_with_those_there_are(run: Run, here: Path, dead: str) -> None:
    configure(here, dead)
    ran = run("index", "ethereum", "--datasets", "transfers,gossip", "--json")
    assert ran.code == 2
    assert ran.error["message"] == "datasets: ethereum has no dataset `gossip`"
    datasets = "blocks, transactions, native, transfers, approvals, internal, withdrawals, events"
    assert ran.error["remedy"] == f"there are: {datasets}"


@pytest.mark.parametrize(
    ("address", "options", "message"),
    [
        (ALICE, ("--limit", "0"), "limit: 0 is not between 1 and 250"),
        (ALICE, ("--limit", "251"), "limit: 251 is not between 1 and 250"),
        (ALICE, ("--chain", "nowhere"), "chain: nowhere is not configured"),
        ("TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t", ("--chain", "ethereum"), "no chain of its kind is among: ethereum"),
    ],
)
def test_transactions_that_cannot_be_meant_are_refused(
    run: Run, here: Path, dead: str, address: str, options: tuple[str, ...], message: str
) -> None:
    configure(here, dead)
    ran = run("transactions", address, *options, "--json")
    assert ran.code == 2
    assert message in ran.error["message"]


def test_an_unknown_table_is_refused_with_those_there_are(run: Run, here: Path, dead: str) -> None:
    configure(here, dead)
    ran = run("materialise", "ethereum", "--tables", "gossip")
    assert ran.code == 2
    assert "`gossip` cannot be derived" in ran.err
    assert "account_transfers" in ran.err


@pytest.mark.parametrize("address", ["vitalik.eth", "0x12", ALICE + "0" * 30, "", "TNPeeaaFB7K9cmo4uQpcU32zGK8G1NYqeM"])
@pytest.mark.parametrize("command", ["portfolio", "nav"])
def test_a_malformed_address_is_refused_before_anything_is_opened(
    run: Run, here: Path, command: str, address: str
) -> None:
    ran = run(command, address, "--json")
    assert ran.code == 2
    assert ran.error["field"] == "address"
    assert list(here.iterdir()) == []


def test_a_malformed_contract_is_refused(run: Run, here: Path, dead: str) -> None:
    configure(here, dead)
    ran = run("index", "ethereum", "--contracts", "0x1", "--json")
    assert (ran.code, ran.error["field"]) == (2, "address")


def test_a_block_below_the_first_is_refused_without_asking_a_node(run: Run, here: Path, dead: str) -> None:
    configure(here, dead)
    ran = run("portfolio", ALICE, "--block", "-5", "--json")
    assert (ran.code, ran.error["field"]) == (2, "block")


def test_a_block_belongs_to_one_chain(run: Run, here: Path, dead: str) -> None:
    configure(here, dead, more=f'[chains.base]\nrpc = ["{dead}"]')
    ran = run("portfolio", ALICE, "--block", "5", "--json")
    assert (ran.code, ran.error["remedy"]) == (2, "--chain one of base, ethereum")


SOLANA = "Gxg1WonE51gka27Gjaj1yxzMVekv8heKwuGFfUrFBrNL"


@pytest.mark.parametrize(
    "arguments",
    [
        ("portfolio", SOLANA, "--chain", "ethereum", "--block", "5"),
        ("portfolio", SOLANA, "--chain", "ethereum"),
        ("portfolio", SOLANA, ALICE, "--block", "5"),
        ("portfolio", SOLANA, "--block", "5"),
        ("approvals", SOLANA),
        ("verify", SOLANA),
        ("pnl", SOLANA, "--chain", "ethereum"),
        ("transactions", SOLANA, "--chain", "ethereum"),
    ],
)
def test_an_account_of_another_kind_is_refused_before_a_node_is_asked(
    run: Run, here: Path, dead: str, arguments: tuple[str, ...]
) -> None:
    configure(here, dead)
    ran = run(*arguments, "--json")
    assert (ran.code, ran.error["field"]) == (2, "address")


def test_of_chains_of_several_kinds_the_only_one_of_an_account_need_not_be_named(
    run: Run, here: Path, dead: str
) -> None:
    configure(here, dead, more=f'[chains.solana]\nadapter = "solana"\nrpc = ["{dead}"]')
    for arguments in (("approvals", ALICE), ("verify", ALICE), ("portfolio", ALICE, "--block", "5")):
        assert run(*arguments, "--json").code == 3  # the node is asked, and is dead


def test_an_unknown_currency_is_refused_with_those_there_are(run: Run, here: Path, dead: str) -> None:
    configure(here, dead)
    ran = run("nav", ALICE, "--currency", "usd")
    assert ran.code == 2
    assert "USD, EUR, CAD" in ran.err


# --- usage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", GROUPS)
def test_every_command_explains_itself(run: Run, group: str) -> None:
    ran = run(group, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"usage: chainfolio {group}")
    if group not in VERBS:
        assert "--config FILE" in ran.out
        assert "--json" in ran.out


VERBS = {
    "close": ("make", "check"),
    "account": (
        "create",
        "list",
        "show",
        "credit",
        "grant",
        "revoke-grant",
        "plan",
        "quota",
        "delegate",
        "audit",
        "ledger",
    ),
    "key": ("create", "list", "revoke"),
    "addressbook": ("add", "plan", "list"),
    "subscription": ("add", "list"),
    "virtual-user": ("add", "list", "remove"),
    "alert": ("add", "list", "test", "remove", "rotate", "deliveries", "replay", "run"),
}


@pytest.mark.parametrize(("group", "verb"), [(group, verb) for group, verbs in VERBS.items() for verb in verbs])
def test_every_verb_explains_itself(run: Run, group: str, verb: str) -> None:
    ran = run(group, verb, "--help")
    assert ran.code == 0
    assert "--config FILE" in ran.out
    assert "--json" in ran.out


def test_the_help_of_all_names_every_command_and_where_settings_come_from(run: Run) -> None:
    ran = run("--help")
    assert ran.code == 0
    assert all(f"\n    {group}" in ran.out for group in GROUPS)
    assert "$CHAINFOLIO_CONFIG" in ran.out


@pytest.mark.parametrize(
    "arguments", [(), ("fly",), ("index",), ("transactions",), ("account",), ("account", "create")]
)
def test_wrong_usage_is_told_with_the_right_one(run: Run, arguments: tuple[str, ...]) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("usage: chainfolio")


def test_a_portfolio_of_nobody_is_told_where_addresses_come_from(run: Run) -> None:
    ran = run("portfolio")
    assert (ran.code, ran.out) == (2, "")
    assert "no address is given" in ran.err
    assert "--from FILE" in ran.err


def test_being_stopped_is_no_failure_to_report(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("chainfolio.cli.state_store.open_state", stopped)
    ran = run("account", "list")
    assert (ran.code, ran.err) == (130, "stopped; what was committed stays\n")


@pytest.mark.parametrize("error", [OSError("no file is named here"), BrokenPipeError("of another process")])
def test_what_is_not_an_error_of_ours_is_not_hidden(run: Run, monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr("chainfolio.cli.state_store.open_state", broken)
    with pytest.raises(OSError, match=str(error)):
        run("account", "list")
