"""No configured secret is printed, logged or stored, whatever a command does and however it ends."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import trade
from tests.cli.conftest import Run

PASSWORD, KEY, EXPLORER_KEY, TRON_KEY, VENDOR_KEY = (
    f"{name}S3cr3t" for name in ("pass", "query", "scan", "grid", "cg")
)
SECRETS = (PASSWORD, KEY, EXPLORER_KEY, TRON_KEY, VENDOR_KEY)
SETTINGS = """
prices_file = "prices.toml"
[chains.local]
rpc = ["{rpc}"]
explorer = "http://127.0.0.1:1/api?apikey={explorer}"
index = "accounts"
[chains.tron]
adapter = "tron"
rpc = ["http://127.0.0.1:1"]
api_key = "{tron}"
"""
COMMANDS = (
    ("doctor",),
    ("status",),
    ("watch", "{alice}", "--chain", "local"),
    ("index", "local", "--estimate"),
    ("portfolio", "{alice}"),
    ("portfolio", "{alice}", "--chain", "local", "--json", "--sources", "--explain"),
    ("portfolio", "{alice}", "--rpc", "{rpc}"),
    ("nav", "{alice}", "--rpc", "{rpc}", "--json"),
    ("transactions", "{alice}", "--rpc", "{rpc}"),
    ("reconcile", "{alice}", "--chain", "local"),
    ("approvals", "{alice}", "--chain", "local"),
    ("verify", "{alice}", "--chain", "local"),
    ("check",),
    ("price", "local:ETH", "--explain"),
)

AT_A_DEAD_NODE = [command for command in COMMANDS if command[0] in ("doctor", "watch") or "--sources" in command]
WORK_ALONE = ("watch", "transactions", "nav", "approvals")  # while the node of the other chain is dead


@pytest.fixture(scope="module")
def traded() -> Iterator[tuple[LocalNode, str]]:
    """Return a chain on which Alice has traded, and her address."""
    with LocalNode() as node:
        deployment = deploy(node)
        trade(node, deployment, 20)
        yield node, deployment.accounts["alice"]


@pytest.mark.slow("all commands at a node that is dead, instead of three", only=["node is dead, all commands"])
@pytest.mark.node
@pytest.mark.parametrize(
    ("alive", "commands"),
    [
        (True, COMMANDS),
        (False, AT_A_DEAD_NODE),
        (False, [command for command in COMMANDS if "reconcile" not in command]),
    ],
    ids=["node answers", "node is dead", "node is dead, all commands"],
)
def test_no_command_shows_or_stores_a_configured_secret(  # noqa: PLR0913 - pytest passes fixtures as arguments
    run: Run,
    here: Path,
    traded: tuple[LocalNode, str],
    dead: str,
    waited: list[float],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    alive: bool,
    commands: Sequence[tuple[str, ...]],
) -> None:
    node, alice = traded
    host = (node.url if alive else dead).removeprefix("http://")
    rpc = f"http://user:{PASSWORD}@{host}/?apikey={KEY}"
    (here / "chainfolio.toml").write_text(SETTINGS.format(rpc=rpc, explorer=EXPLORER_KEY, tron=TRON_KEY))
    (here / "prices.toml").write_text("[coingecko]\n")
    monkeypatch.setenv("COINGECKO_DEMO_KEY", VENDOR_KEY)
    caplog.set_level(logging.DEBUG)
    for command in commands:
        ran = run(*(argument.format(alice=alice, rpc=rpc) for argument in command))
        assert "settings" not in ran.err, f"{command}: {ran.err}"
        assert ran.code == 0 or not (alive and command[0] in WORK_ALONE), f"{command}: {ran.err}"
        for secret in SECRETS:
            assert secret not in ran.out + ran.err, command
    logged = [secret for secret in SECRETS if secret in caplog.text]
    files = [each for each in here.rglob("*") if each.is_file() and each.name != "chainfolio.toml"]
    assert files
    stored = [(each.name, secret) for each in files for secret in SECRETS if secret.encode() in each.read_bytes()]
    assert (logged, stored) == ([], [])
