"""Steps of `operate.md` on a server: the wheel installs as written, systemd takes the unit, data outlives both.

The commands are those of the page, with folders of the test in the place of the system's. The dependencies come from
the environment that runs the tests, for nothing is downloaded.
"""

from __future__ import annotations

import configparser
import re
import shlex
import subprocess
import sys
import sysconfig
import zipfile
from ctypes.util import find_library
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from shutil import which

import pytest

from chainfolio import __version__
from chainfolio.cli.main import parser
from tests.docs import confined
from tests.e2e.running import ALICE, ROOT, Demo, as_ethereum

PAGE = (ROOT / "docs" / "how-to" / "operate.md").read_text()
SYSTEMD = ROOT / "deploy" / "systemd"
UNIT = (SYSTEMD / "chainfolio.service").read_text()
CONFINED = Path(confined.__file__)
LOCKED = "/opt/chainfolio/bin/pip install --require-hashes -r requirements.lock"
SETTINGS = 'data = "data"\n'


def fences(kind: str, heading: str) -> str:
    """The first fence of a kind below a heading."""
    below = PAGE[PAGE.index(f"\n## {heading}\n") :]
    match = re.search(rf"^```{kind}\n(.*?)^```$", below, re.M | re.S)
    assert match, f"no {kind} below {heading}"
    return match[1]


@dataclass(frozen=True, slots=True)
class Server:
    """A machine with an installation, and a wheel to install again."""

    root: Path
    wheel: Path

    def shell(self, script: str) -> str:
        """Run commands of the page here; what they print."""
        script = script.replace("/opt/", f"{self.root}/opt/").replace("/usr/local/", f"{self.root}/usr/local/")
        environment = {"PATH": f"{self.root}/usr/local/bin:/usr/bin:/bin", "HOME": str(self.root), "PIP_NO_INDEX": "1"}
        process = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == 0, f"{script}\n{process.stdout}{process.stderr}"
        return process.stdout

    def install(self) -> None:
        """The last step of the installation, which is also that of an upgrade."""
        self.shell(f"/opt/chainfolio/bin/pip install --quiet --no-deps --force-reinstall {self.wheel}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    root = tmp_path_factory.mktemp("server")
    (build,) = re.findall(r"`python (-m hatchling build -t wheel)`", PAGE)
    subprocess.run([sys.executable, *shlex.split(build), "-d", str(root)], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = root.glob("*.whl")
    for folder in ("opt", "usr/local/bin"):
        (root / folder).mkdir(parents=True)
    steps = fences("sh", "Install")
    assert LOCKED in steps
    new_server = Server(root, wheel)
    environment, install_steps = steps.split(LOCKED)
    new_server.shell(environment.replace("python3", sys.executable))
    (packages,) = (root / "opt/chainfolio/lib").glob("python3.*/site-packages")
    (packages / "locked.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert " --no-deps .\n" in install_steps
    new_server.shell(install_steps.replace(" --no-deps .\n", f" --no-deps {wheel}\n"))
    return new_server


@pytest.mark.slow("builds and installs the wheel first")
def test_a_server_without_a_checkout_runs_the_wheel(server: Server) -> None:
    assert server.shell("chainfolio --version").split() == ["chainfolio", __version__]
    code = "from chainfolio import indexer, storage; print(indexer.__file__, storage.__file__)"
    print_paths = f"/opt/chainfolio/bin/python -c '{code}'"
    assert all(Path(each).is_relative_to(server.root) for each in server.shell(print_paths).split())
    assert "complete" in server.shell("chainfolio completion bash")


def test_a_folder_with_modules_of_common_names_changes_nothing(server: Server) -> None:
    """Add names of many projects: an `api.py`, a `storage/`. Neither package imports the other's modules."""
    folder = server.root / "project"
    for name in ("api.py", "cli.py", "storage/__init__.py", "engine/__init__.py", "configs/x.toml", "indexer/tail.py"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('raise SystemExit("the wrong module")\n' if path.suffix == ".py" else "")
    (folder / "script.py").write_text(
        "from chainfolio.api.app import make_app\nfrom chainfolio.storage.tail import Tail\n"
        "from chainfolio.engine.service import Engine\nfrom chainfolio.indexer.wiring import System\nprint('ours')\n"
    )
    python = "/opt/chainfolio/bin/python"
    assert server.shell(f"cd {folder} && {python} script.py") == "ours\n"
    assert server.shell(f"cd {folder} && {python} -m chainfolio --version").split() == ["chainfolio", __version__]
    assert "usage: chainfolio portfolio" in server.shell(f"cd {folder} && chainfolio portfolio --help")


def test_the_wheel_takes_one_name(server: Server) -> None:
    with zipfile.ZipFile(server.wheel) as wheel:
        names = {Path(name).parts[0] for name in wheel.namelist()}
        tests = [name for name in wheel.namelist() if "/tests/" in name or "recordings" in Path(name).parts]
    assert names == {"chainfolio", f"chainfolio-{__version__}.dist-info"}
    assert tests == []


@pytest.mark.slow("installs the wheel again; upgrades of the store have faster tests")
def test_accounts_outlive_an_upgrade(server: Server) -> None:
    (server.root / "chainfolio.toml").write_text(SETTINGS)
    server.shell("chainfolio account create --name team --config chainfolio.toml")
    server.install()
    assert server.shell("chainfolio --version").split()[-1] == __version__
    assert "team" in server.shell("chainfolio account list --config chainfolio.toml")


def unit() -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None, strict=False)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string(UNIT)
    return found


def test_the_unit_starts_a_command_that_there_is_and_waits_for_its_end() -> None:
    service = unit()["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert program == "/opt/chainfolio/bin/chainfolio"
    assert parser().parse_args(arguments).config == "/etc/chainfolio/chainfolio.toml"
    assert service["UMask"] == "0077"
    assert int(service["LimitNOFILE"]) >= 4096


def test_systemd_takes_the_unit(server: Server) -> None:
    analyze = which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd here")
    file = server.root / "chainfolio.service"
    file.write_text(UNIT.replace("/opt/", f"{server.root}/opt/"))
    process = subprocess.run([analyze, "verify", "--man=no", str(file)], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr) == (0, "")
    file.write_text(file.read_text().replace("Restart=", "Restrat="))
    process = subprocess.run([analyze, "verify", "--man=no", str(file)], capture_output=True, text=True, check=False)
    assert "Restrat" in process.stderr, "systemd would have told"


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    if (program := which("systemd-analyze")) is None:
        pytest.skip("there is no systemd here")
    return subprocess.run([program, *words], capture_output=True, text=True, check=False)


def test_the_unit_is_hardened(tmp_path: Path) -> None:
    file = tmp_path / "chainfolio.service"
    text = UNIT
    file.write_text(text)
    checked = ["security", "--offline=true", "--no-pager", "--threshold=30", str(file)]
    assert (process := analyze(*checked)).returncode == 0, process.stdout
    file.write_text("\n".join(line for line in text.splitlines() if not line.startswith(("Protect", "SystemCall"))))
    assert analyze(*checked).returncode != 0, "systemd would have told"


def test_the_user_of_the_unit_is_created(tmp_path: Path) -> None:
    if (sysusers := which("systemd-sysusers")) is None:
        pytest.skip("there is no systemd here")
    file = tmp_path / "chainfolio.conf"
    (tmp_path / "etc").mkdir()
    file.write_text((SYSTEMD / "chainfolio.sysusers.conf").read_text())
    subprocess.run([sysusers, f"--root={tmp_path}", str(file)], check=True)
    (user,) = (tmp_path / "etc/passwd").read_text().splitlines()
    service = unit()["Service"]
    assert user.split(":")[0] == service["User"]
    assert user.split(":")[5] == f"/var/lib/{service['StateDirectory']}"


def test_a_server_indexes_and_answers_under_the_restrictions_of_the_unit(demo: Demo, tmp_path: Path) -> None:
    if sys.platform != "linux" or find_library("seccomp") is None or which("systemd-analyze") is None:
        pytest.skip("nothing here can restrict a process as systemd does")
    filters = re.findall(r"^SystemCallFilter=(.+)$", UNIT, re.M)
    assert filters
    (tmp_path / "data").mkdir()
    launcher = [sys.executable, str(CONFINED), str(tmp_path / "data"), ",".join(filters)]
    with as_ethereum(demo, tmp_path, launcher) as server:
        account = server.account("team", grants=("portfolio",))
        (portfolio,) = server.client(account.key).portfolio(ALICE)
    assert portfolio.completeness == "complete"
    assert Decimal(portfolio.networth) > 0
