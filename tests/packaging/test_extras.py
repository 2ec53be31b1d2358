"""The smallest environment works without the packages of the extras; a command names the extra that it lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.footprint import required
from chainfolio.errors import MissingDependency, needs_extra
from chainfolio.localchain.node import LocalNode

EXTRAS = {
    "server": ("alembic", "apscheduler", "prometheus_client", "sqlalchemy", "structlog"),
    "postgres": ("psycopg",),
    "ens": ("ens", "web3"),
    "sql": ("duckdb", "pytz"),
    "plot": ("matplotlib",),
    "exports": ("reportlab", "xlsxwriter"),
    "mcp": ("mcp",),
    "otel": ("opentelemetry",),
}
OF_OTHER_KINDS = ("solana", "solders", "spl")  # libraries of chains that an EVM wallet has nothing on
ALL = tuple(module for modules in EXTRAS.values() for module in modules)
WALLET = "0xd8da6bf26964af9d7eed9e03e53415d37aa96045"
CHILD = """
import sys
sys.modules.update(dict.fromkeys(sys.argv.pop(1).split(",")))
from chainfolio.cli.main import main
sys.exit(main())
"""


def run(folder: Path, missing: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process in which some modules cannot be imported."""
    command = [sys.executable, "-c", CHILD, ",".join(missing), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("server", ("serve",)),
        ("server", ("worker",)),
        ("server", ("demo",)),
        ("server", ("account", "list")),
        ("server", ("key", "list", "--account", "acc_1")),
        ("sql", ("sql", "SELECT 1")),
        ("mcp", ("mcp",)),
        ("exports", ("export", "holdings", WALLET, "--format", "pdf", "-o", "a.pdf")),
        ("exports", ("export", "holdings", WALLET, "--format", "xlsx", "-o", "a.xlsx")),
        ("plot", ("history", WALLET, "-o", "a.png", "--rpc", "http://127.0.0.1:1")),
    ],
)
def test_a_command_names_the_extra_that_it_lacks(tmp_path: Path, extra: str, arguments: tuple[str, ...]) -> None:
    ran = run(tmp_path, EXTRAS[extra], *arguments)
    assert (ran.returncode, f'pip install "chainfolio[{extra}]"' in ran.stderr) == (7, True), ran.stderr


@pytest.mark.parametrize(("store", "arguments"), [("state", ("account", "list")), ("tail", ("status",))])
def test_stores_in_postgresql_name_their_extra(tmp_path: Path, store: str, arguments: tuple[str, ...]) -> None:
    settings = (
        f'[{store}]\nurl = "postgresql://nobody@127.0.0.1:1/x"\n[chains.ethereum]\nrpc = ["http://127.0.0.1:1"]\n'
    )
    (tmp_path / "chainfolio.toml").write_text(settings)
    ran = run(tmp_path, EXTRAS["postgres"], *arguments)
    assert (ran.returncode, 'pip install "chainfolio[postgres]"' in ran.stderr) == (7, True), ran.stderr


@pytest.mark.parametrize("arguments", [("portfolio", WALLET), ("watch", WALLET), ("transactions", WALLET)])
def test_a_wallet_by_rpc_needs_no_extra(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """The port has no listener: the command ends at the node, and not at an import."""
    ran = run(tmp_path, ALL, *arguments, "--rpc", "http://127.0.0.1:1")
    assert ran.returncode == 3, ran.stderr
    assert "cannot be reached" in ran.stderr


def test_a_name_names_its_extra(tmp_path: Path) -> None:
    (tmp_path / "chainfolio.toml").write_text('[chains.ethereum]\nrpc = ["http://127.0.0.1:1"]\n')
    ran = run(tmp_path, EXTRAS["ens"], "portfolio", "vitalik.eth")
    assert (ran.returncode, 'pip install "chainfolio[ens]"' in ran.stderr) == (7, True), ran.stderr


@pytest.mark.slow("takes seconds, and faster tests take its branches")
@pytest.mark.node
def test_a_wallet_of_a_real_node_loads_no_extra_and_no_other_kind(tmp_path: Path) -> None:
    with LocalNode() as node:
        for arguments in (("portfolio",), ("nav",), ("watch",), ("transactions",), ("pnl",)):
            ran = run(tmp_path, ALL + OF_OTHER_KINDS, *arguments, node.accounts[0], "--rpc", node.url)
            assert ran.returncode == 0, ran.stderr


def test_the_packages_of_extras_are_in_no_smaller_environment() -> None:
    smallest = required("chainfolio")
    optional = {"alembic", "sqlalchemy", "psycopg", "web3", "duckdb", "matplotlib", "prometheus-client"}
    assert not smallest & optional
    assert optional <= required("chainfolio", ["all"])


def test_a_module_of_ours_that_is_missing_is_no_missing_extra() -> None:
    with pytest.raises(ModuleNotFoundError), needs_extra("ens", "a name"):
        __import__("chainfolio.nowhere")
    with pytest.raises(MissingDependency, match="no_such_package"), needs_extra("ens", "a name"):
        __import__("no_such_package")
