"""Install the EVM node and compile the contracts, once: `python -m chainfolio.localchain.install`."""

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from chainfolio.localchain.errors import InstallFailed, LocalChainError, NodeJsMissing, NoSuchNode

SOURCES = Path(__file__).parent / "contracts"
OLDEST_NODE_JS = 20
FOLDERS = ("node_modules", "compiled")
PATIENCE_S = 1200.0
SAY_EVERY_S = 10.0
# Without a network npm is silent for a quarter of an hour by default; these are tried once more and then said.
NETWORK = {"npm_config_fetch_retries": "1", "npm_config_fetch_timeout": "60000"}
STAMP = ".complete"  # written last, so that a folder without it was left half-way

Say = Callable[[str], None]
Run = Callable[[str, list[str]], None]  # one step of an installation: its name, its command


def _ignore(line: str) -> None:
    """Report nothing."""


def home() -> Path:
    """Return the folder: CHAINFOLIO_LOCALCHAIN_HOME, else .localchain in the checkout or working folder."""
    chosen = os.environ.get("CHAINFOLIO_LOCALCHAIN_HOME")
    if chosen:
        return Path(chosen).expanduser().resolve()
    root = Path(__file__).resolve().parent.parent
    checkout = root if (root / "pyproject.toml").exists() else Path.cwd()
    return checkout / ".localchain"


def anvil(folder: Path) -> Path:
    """Return the program of the EVM node for this machine; NoSuchNode if npm installed none."""
    system = platform.system().lower()
    processor = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    program = folder / "node_modules" / "@foundry-rs" / f"anvil-{system}-{processor}" / "bin" / "anvil"
    if not program.exists():
        raise NoSuchNode(
            f"npm brought no @foundry-rs/anvil-{system}-{processor}: either there is none for this kind of machine, "
            "or npm could not fetch it, and trying again helps"
        )
    return program


def ensure(report: Say = _ignore) -> Path:
    """Install missing parts and return their folder. Processes may call it in parallel."""
    root = home()
    packages, contracts = _keys()
    folders = dict(zip(FOLDERS, (packages, contracts), strict=True))
    message = f"the local chain is installed in {root}"
    if all(_complete(root / folder, key) for folder, key in folders.items()):
        report(message)
        return root
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root, report) as lock:
        if not _complete(root / "node_modules", packages):
            report("installing the EVM node and the published contracts (npm, about 300 MB)")
            _fresh(root / "node_modules", packages, lambda: _install_packages(root, lock))
        if not _complete(root / "compiled", contracts):
            report("compiling the contracts")
            _fresh(root / "compiled", contracts, lambda: _compile(root, lock))
    report(message)
    return root


def packages(manifest: Path, folder: Path, patience_s: float) -> Path:
    """Install the packages of a `package.json` into a folder once, and return the folder.

    A `package-lock.json` beside it says which releases, with their hashes. A changed file installs them again.
    """
    files = [file for file in (manifest, manifest.with_name("package-lock.json")) if file.exists()]
    key = _hash(files)
    if not _complete(folder / "node_modules", key):
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder, _ignore) as lock:
            if not _complete(folder / "node_modules", key):
                _check_node_js()
                for file in files:
                    shutil.copyfile(file, folder / file.name)
                _fresh(folder / "node_modules", key, lambda: _install_twice(folder, lock, patience_s))
    return folder


def archives(manifest: Path, folder: Path) -> Path:
    """Extract the files that a manifest names from npm packages into a folder, once; return the folder."""
    key = _hash([manifest])
    if not _complete(folder / "node_modules", key):
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder, _ignore) as lock:
            if not _complete(folder / "node_modules", key):
                _check_node_js()
                _fresh(folder / "node_modules", key, lambda: _unpack_all(manifest, folder, lock))
    return folder


def environments(manifest: Path, root: Path, fill: Callable[[Path, Run], None]) -> Path:
    """Fill the folder `environments` below `root` once for a manifest, by steps of `fill`; return it."""
    key, folder = _hash([manifest]), root / "environments"
    if not _complete(folder, key):
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root, _ignore) as lock:
            if not _complete(folder, key):
                _fresh(folder, key, partial(_filled, folder, fill, partial(_run, folder=root, lock=lock)))
    return folder


def environment(manifest: Path, root: Path) -> Path | None:
    """Return the folder that `environments` filled; None if it is missing or of another manifest."""
    folder = root / "environments"
    return folder if _complete(folder, _hash([manifest])) else None


def _filled(folder: Path, fill: Callable[[Path, Run], None], run: Run) -> None:
    folder.mkdir()
    fill(folder, run)


def _install_twice(folder: Path, lock: int, patience_s: float) -> None:
    """Install twice: npm omits packages that need a newer Node.js, which the first run may install."""
    command = ["npm", "install", "--no-audit", "--no-fund"]
    _run("npm install", command, folder, lock, patience_s)
    newer = folder / "node_modules" / "node" / "bin"
    if newer.exists():
        # It has built-in certificates; those of the machine may include a proxy's.
        options = f"NODE_OPTIONS=--use-system-ca {os.environ.get('NODE_OPTIONS', '')}".rstrip()
        _run("npm install", ["env", f"PATH={newer}:{os.environ['PATH']}", options, *command], folder, lock, patience_s)


def _keys() -> tuple[str, str]:
    """Return hashes of the inputs of the installed packages and of the compiled contracts."""
    manifest = [SOURCES / "package.json", SOURCES / ".npmrc"]
    sources = [SOURCES / "compile.cjs", *sorted((SOURCES / "src").rglob("*.sol"))]
    return _hash(manifest), _hash([*manifest, *sources])


def _hash(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def _complete(folder: Path, key: str) -> bool:
    try:
        return (folder / STAMP).read_text() == key
    except FileNotFoundError:
        return False


def _fresh(folder: Path, key: str, fill: Callable[[], None]) -> None:
    """Empty a folder, fill it, and stamp it with the key.

    The rest of a killed run would look installed to npm.
    """
    shutil.rmtree(folder, ignore_errors=True)
    fill()
    stamp = folder / STAMP
    stamp.with_suffix(".new").write_text(key)
    stamp.with_suffix(".new").replace(stamp)


@contextmanager
def _locked(folder: Path, report: Say) -> Iterator[int]:
    """Hold the lock on a folder within the context; yield its descriptor for children to inherit."""
    (folder / ".gitignore").write_text("*\n")
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another process that installs the local chain")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def _install_packages(folder: Path, lock: int) -> None:
    """Install the packages and extract the archives of SOURCES; NoSuchNode without an EVM node."""
    _check_node_js()
    for name in ("package.json", ".npmrc"):
        shutil.copyfile(SOURCES / name, folder / name)
    command = ["npm", "install", "--ignore-scripts", "--legacy-peer-deps", "--no-audit", "--no-fund"]
    _run("npm install", command, folder, lock)
    _unpack_all(SOURCES / "package.json", folder, lock)
    anvil(folder)  # npm treats it as optional, because it depends on the platform; here it is required


def _unpack_all(manifest: Path, folder: Path, lock: int) -> None:
    for package, paths in json.loads(manifest.read_text())["archives"].items():
        _unpack(package, paths, folder, lock)


def _unpack(package: str, paths: Sequence[str], target: Path, lock: int) -> None:
    """Extract some folders of a package that is large, or has unused dependencies."""
    with tempfile.TemporaryDirectory(dir=target) as folder:
        _run(f"npm pack {package}", ["npm", "pack", package, "--pack-destination", folder], target, lock)
        (archive,) = Path(folder).iterdir()
        prefixes = tuple(f"package/{path}" for path in paths)
        with tarfile.open(archive) as files:
            for file in files:
                content = files.extractfile(file) if file.name.startswith(prefixes) else None
                if content is not None and ".." not in Path(file.name).parts:
                    destination = (
                        target / "node_modules" / package.rpartition("@")[0] / file.name.removeprefix("package/")
                    )
                    destination.parent.mkdir(parents=True, exist_ok=True)
                    destination.write_bytes(content.read())


def _compile(folder: Path, lock: int) -> None:
    _check_node_js()
    command = ["node", str(SOURCES / "compile.cjs"), str(SOURCES / "src"), str(folder / "compiled")]
    _run("compiling the contracts", command, folder, lock)


def _check_node_js() -> None:
    """Raise NodeJsMissing unless node and npm exist, and node is new enough."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise NodeJsMissing(f"{program} was not found")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    major = re.match(r"v(\d+)\.", version)
    if major is None or int(major[1]) < OLDEST_NODE_JS:
        raise NodeJsMissing(f"found {version or 'one that does not start'}")


def _run(step: str, command: list[str], folder: Path, lock: int, patience_s: float = PATIENCE_S) -> None:
    """Run one step as a child process with progress lines; InstallFailed if it fails or is too slow."""
    # The child inherits the lock: if this process is killed, the lock stays held until the child ends.
    start_s = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=folder,
        pass_fds=(lock,),
        text=True,
        errors="replace",
        env={**NETWORK, **os.environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as child:
        try:
            while (output := _output(child, min(SAY_EVERY_S, patience_s))) is None:
                if (spent_s := time.monotonic() - start_s) >= patience_s:
                    raise InstallFailed(step, f"it took longer than {patience_s:g} s")
                print(f"  {step}: {spent_s:.0f} s", file=sys.stderr, flush=True)
        except BaseException:  # an interrupt as well: nothing of it goes on
            child.kill()
            raise
    if child.returncode:
        raise InstallFailed(step, output)


def _output(child: subprocess.Popen[str], wait_s: float) -> str | None:
    """Return the output of a process that ended within `wait_s`; None if it did not end."""
    try:
        return child.communicate(timeout=wait_s)[0]
    except subprocess.TimeoutExpired:
        return None


def check() -> None:
    """Raise NodeJsMissing if parts are missing and Node.js is too, before any download."""
    if not all(_complete(home() / folder, key) for folder, key in zip(FOLDERS, _keys(), strict=True)):
        _check_node_js()


def main(arguments: Sequence[str]) -> None:
    """Install; with `--check` only check that the installation could work. Exits with an error message."""
    try:
        check() if "--check" in arguments else ensure(lambda line: print(line, flush=True))
    except LocalChainError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        print("stopped; the next run begins this step again", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main(sys.argv[1:])
