"""Commands run in this process, in a folder of their own, with an environment of their own."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chainfolio.cli.main import main
from chainfolio.environment import SystemClock
from chainfolio.localchain.deploy import Deployment, deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import trade
from tests.cli.close_world import ClosedWorld, closed_world
from tests.cli.newcomer import fast_clock as fast_clock
from tests.cli.newcomer import newcomer_chain as newcomer_chain
from tests.cli.newcomer import rent as rent

ALICE = "0xd8da6bf26964af9d7eed9e03e53415d37aa96045"


@dataclass(frozen=True)
class Ran:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The JSON document that the command printed."""
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """The one JSON object that says what was wrong."""
        assert list(self.json) == ["error"]
        error: dict[str, Any] = self.json["error"]
        return error


Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: empty, so that no settings of the machine are found."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("CHAINFOLIO_")]:
        monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command in this process."""

    def ran(*arguments: str) -> Ran:
        capsys.readouterr()
        try:
            code = main(arguments)
        except SystemExit as end:  # argparse ends by itself
            code = end.code if isinstance(end.code, int) else 1
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return ran


@pytest.fixture
def dead() -> Iterator[str]:
    """Yield the URL of a port that is bound, but not listened on."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{holder.getsockname()[1]}"


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that commands would have waited between attempts; they do not wait."""
    seconds: list[float] = []

    async def at_once(_: SystemClock, duration: float) -> None:
        seconds.append(duration)

    monkeypatch.setattr(SystemClock, "sleep", at_once)
    return seconds


def configure(folder: Path, *urls: str, chain: str = "ethereum", more: str = "") -> None:
    """Settings with one chain at some endpoints."""
    (folder / "chainfolio.toml").write_text(f"[chains.{chain}]\nrpc = {json.dumps(urls)}\n{more}\n")


@pytest.fixture(scope="session")
def traded() -> Iterator[tuple[LocalNode, Deployment]]:
    """A chain with trades, for all tests of this folder: who changes it uses `changed`."""
    with LocalNode() as node:
        deployment = deploy(node)
        trade(node, deployment, 60)
        yield node, deployment


@pytest.fixture
def changed(traded: tuple[LocalNode, Deployment]) -> Iterator[LocalNode]:
    """The node of that chain, for a test that changes it; afterwards the chain is as it was."""
    node, _ = traded
    before = node.snapshot()
    yield node
    node.revert(before)


@pytest.fixture(scope="session")
def indexed(traded: tuple[LocalNode, Deployment], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with settings and an index of the chain, and with prices that the operator fixed."""
    node, deployment = traded
    usd = {"USDC": "1", "DAI": "1", "WBTC": "60000", "WETH": "2000"}
    lines = [
        f'"eip155:31337/erc20:{deployment.contracts[symbol].lower()}" = "{price}"' for symbol, price in usd.items()
    ]
    folder = tmp_path_factory.mktemp("indexed")
    configure(
        folder, node.url, chain="local", more="\n".join(["[prices]", '"eip155:31337/slip44:60" = "2000"', *lines])
    )
    with chdir(folder):
        assert main(("index", "local")) == 0
    return folder


@pytest.fixture
def wallets(indexed: Path, traded: tuple[LocalNode, Deployment], here: Path) -> dict[str, str]:
    """A copy of the indexed folder to work in; wallets by name."""
    shutil.copytree(indexed, here, dirs_exist_ok=True)
    return {name: address.lower() for name, address in traded[1].accounts.items()}


@pytest.fixture(scope="session")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClosedWorld]:
    """Yield a chain with a wallet whose period can be closed."""
    with closed_world(tmp_path_factory.mktemp("closed")) as world:
        yield world


@pytest.fixture(scope="session")
def pack(closed: ClosedWorld) -> Path:
    """Make a signed pack of that wallet; its key is beside it."""
    assert closed.make("pack", "--key", "key") == 0
    return closed.folder / "pack"
