"""A chain, a protocol and Chainfolio from wheels, in a folder with modules of common names: all work together."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from bench.footprint import required
from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import trade
from tests.chains.invented.chainfolio_invented.ledger import ACCOUNTS

pytestmark = pytest.mark.node
ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
OWN = (
    "api.py",
    "cli.py",
    "storage/__init__.py",
    "engine/__init__.py",
    "configs/x.toml",
    "indexer/tail.py",
    "adapters/__init__.py",
)
SCRIPT = """
import json, sys
import chainfolio
with chainfolio.open("chainfolio.toml") as session:
    documents = session.portfolios(sys.argv[1:])
    frames = [document.to_polars() for document in documents]
    print(json.dumps([[row for row in frame.rows()] for frame in frames], default=str))
"""


@dataclass(frozen=True)
class Project:
    """A third-party folder, and the environment in which it runs."""

    folder: Path
    python: Path
    alice: str
    token: str

    def run(self, *words: str, path: str = "") -> str:
        """Return the output of a program of the environment, in the folder; `path` is its PYTHONPATH."""
        process = self.ended(*words, path=path)
        assert process.returncode == 0, f"{words}: {process.stdout}{process.stderr}"
        return process.stdout

    def ended(self, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in the folder, and return the ended process."""
        environment = {"PATH": os.defpath, "HOME": str(self.folder), "PYTHONPATH": path}
        return subprocess.run(
            [str(self.python), *words], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )


def link_required(packages: Path) -> None:
    """Link the packages that the wheel requires into an environment, and no other."""
    for name in required("chainfolio"):
        for top in {file.parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}:
            link = packages / top
            if not link.exists():
                link.symlink_to(Path(str(distribution(name).locate_file(top))))


def wheel(source: Path, into: Path) -> Path:
    """The wheel of a package."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    process = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    return max(into.glob("*.whl"), key=lambda each: each.stat().st_mtime_ns)


def install(wheel: Path, *options: str) -> None:
    """Install a wheel without its dependencies; modules are compiled if they are imported."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([*command, *options, str(wheel)], check=True)


def package(source: Path, into: Path) -> Path:
    """A copy of a package, which leaves nothing beside its source."""
    return Path(shutil.copytree(source, into / source.name, ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    root = tmp_path_factory.mktemp("third")
    with LocalNode() as node:
        deployment = deploy(node)
        trade(node, deployment, 20)
        token = deployment.contracts["WETH"].lower()
        staking = package(HERE / "staking", root)
        (staking / "chainfolio_staking" / "third_share.toml").write_text(
            'key = "third_share"\nname = "Third Share"\nfamilies = ["third_party_share"]\n'
            f'[contracts.local]\npool = ["{token}"]\n'
        )
        venv.create(root / "env")  # without its pip, which takes 3 s
        python = root / "env/bin/python"
        (packages,) = (root / "env/lib").glob("python3.*/site-packages")
        link_required(packages)
        for source in (ROOT, package(ROOT / "tests/chains/invented", root), staking):
            install(wheel(source, root / "wheels"), "--target", str(packages))
        folder = root / "project"
        for name in OWN:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('raise SystemExit("the wrong module")\n' if path.suffix == ".py" else "")
        (folder / "script.py").write_text(SCRIPT)
        (folder / "chainfolio.toml").write_text(
            f'[chains.local]\nrpc = ["{node.url}"]\n[chains.moon]\nadapter = "invented"\nheights = 60\n'
            '[prices]\n"eip155:31337/slip44:60" = "2000"\n"invented:moon/slip44:7777" = "2.5"\n'
        )
        yield Project(folder, python, deployment.accounts["alice"].lower(), token)


def rows(answers: list[list[list[Any]]]) -> list[tuple[str, str, str]]:
    """Chain, protocol and contract of every asset."""
    return [(row[1], row[3], row[8]) for answer in answers for row in answer]


def test_a_script_has_the_chain_and_the_protocol_of_third_parties(project: Project) -> None:
    answers = json.loads(project.run("script.py", project.alice, ACCOUNTS[0]))
    result_rows = rows(answers)
    assert ("local", "third_share", project.token) in result_rows
    assert any(chain == "moon" and protocol == "wallet" for chain, protocol, _ in result_rows)


@pytest.mark.slow("a notebook imports what the script imports")
def test_a_notebook_has_them_too(project: Project) -> None:
    """Jupyter is not part of the environment: its packages come behind those of the environment."""
    cell = SCRIPT.replace("sys.argv[1:]", repr([project.alice, ACCOUNTS[0]]))
    code = (
        "import nbclient, nbformat.v4\n"
        f"notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell({cell!r})])\n"
        "nbclient.NotebookClient(notebook, kernel_name='python3').execute()\n"
        "print(notebook.cells[0].outputs[0].text)"
    )
    answers = json.loads(project.run("-c", code, path=sysconfig.get_path("purelib")))
    assert ("local", "third_share", project.token) in rows(answers)


def test_the_module_has_them_too(project: Project) -> None:
    (evm,) = json.loads(project.run("-m", "chainfolio", "portfolio", project.alice, "--json"))
    position = evm["assetByProtocols"]["third_share"]["chains"]["local"]["protocolPositions"]["STAKED"]
    (asset,) = position["protocolPositions"][0]["supplyAssets"]
    assert (asset["contract"], Decimal(asset["balance"]) > 0) == (project.token, True)
    (moon,) = json.loads(project.run("-m", "chainfolio", "portfolio", ACCOUNTS[0], "--json"))
    assert set(moon["chains"]) == {"moon"}


def test_one_that_imports_names_of_an_older_release_is_told_the_new_ones(project: Project, tmp_path: Path) -> None:
    """Use a folder whose own `adapters/` is not what the package means."""
    old = package(HERE / "staking", tmp_path)
    share = old / "chainfolio_staking" / "share.py"
    share.write_text(share.read_text().replace("chainfolio.plugins.protocol", "adapters.evm.reads"))
    install(wheel(old, tmp_path / "wheels"), "--target", str(tmp_path / "site"))
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        "from chainfolio.cli.main import main\nsys.exit(main(['doctor', '--json']))"
    )
    (project.folder / "adapters" / "__init__.py").write_text("")
    ended = project.ended("-c", code)
    assert ended.returncode == 7, ended.stdout + ended.stderr
    assert "`adapters.evm` is of an older release: import from `chainfolio.plugins.protocol`" in ended.stdout
