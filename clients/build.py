"""Builds the clients of the API into `dist/clients`: `python -m clients.build`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from chainfolio.api.openapi import describe
from chainfolio.api.routes import ROUTES
from chainfolio.localchain import install
from chainfolio.localchain.errors import InstallFailed, NodeJsMissing
from chainfolio.settings import Settings
from clients import python_source, typescript_source

HERE: Final = Path(__file__).resolve().parent
DIST: Final = HERE.parent / "dist" / "clients"
PATIENCE_S: Final = 120.0  # for each step of npm's installation
OPEN: Final = ("chain", "chainKey", "currency")  # parameters whose values an operator's settings extend


def describe_api() -> dict[str, Any]:
    """Return the OpenAPI description of a server with default settings, without values that other servers extend."""
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(describe(ROUTES, Settings())))
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation["parameters"]:
                if parameter["name"] in OPEN and "enum" in parameter["schema"]:
                    parameter["schema"] = {"type": "string"}
    return document


def write_python(folder: Path) -> Path:
    """Copy the Python package into a new folder, add its generated modules, and return the folder."""
    shutil.copytree(HERE / "python", folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HERE.parent / "LICENSE", folder)
    description, package = describe_api(), folder / "chainfolio_client"
    client = python_source.client_module(description)
    for name, source in {
        "version": f'"""That of the API."""\n\n__version__ = "{description["info"]["version"]}"\n',
        "models": python_source.models_module(description),
        "async_client": client,
        "client": python_source.sync_module(client),
        "sync": python_source.sync_module((package / "aio.py").read_text()),
    }.items():
        (package / f"{name}.py").write_text(source)
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "check", "--quiet", "--isolated", "--select=I", "--fix", package], check=True)
    subprocess.run([*ruff, "format", "--quiet", "--isolated", "--line-length=120", package], check=True)
    return folder


def build_python(folder: Path) -> Path:
    """Build the wheel of the Python client into a folder and return it."""
    with tempfile.TemporaryDirectory() as temporary:
        source = write_python(Path(temporary, "python"))
        target = folder.resolve()
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
            cwd=source,
            check=True,
            stdout=subprocess.DEVNULL,
        )
    (wheel,) = folder.glob("chainfolio_client-*.whl")
    return wheel


def write_typescript(folder: Path) -> Path:
    """Copy the TypeScript package into a new folder, add and compile what is generated, and return the folder.

    Raises:
        InstallFailed, NodeJsMissing: npm could not install the compiler.
    """
    tools = install.packages(HERE / "typescript" / "package.json", install.home() / "clients", PATIENCE_S)
    shutil.copytree(HERE / "typescript", folder, ignore=shutil.ignore_patterns("node_modules", "dist", "*-lock.json"))
    shutil.copy(HERE.parent / "LICENSE", folder)
    (folder / "node_modules").symlink_to(tools / "node_modules")
    description = describe_api()
    manifest = json.loads((folder / "package.json").read_text()) | {"version": description["info"]["version"]}
    (folder / "package.json").write_text(json.dumps(manifest, indent=2) + "\n")
    (folder / "openapi.json").write_text(json.dumps(typescript_source.exact_description(description)))
    (folder / "src" / "operations.ts").write_text(typescript_source.operations_module(description))
    _run(folder, "node_modules/.bin/openapi-typescript", "openapi.json", "--output", "src/schema.ts")
    _run(folder, "node_modules/.bin/tsc", "--project", ".")
    return folder


def build_typescript(folder: Path) -> Path:
    """Build the tarball of the TypeScript client into a folder and return it."""
    with tempfile.TemporaryDirectory() as temporary:
        source = write_typescript(Path(temporary, "typescript"))
        _run(source, "npm", "pack", "--ignore-scripts", "--pack-destination", str(folder.resolve()))
    (archive,) = folder.glob("chainfolio-client-*.tgz")
    return archive


def _run(folder: Path, *command: str) -> None:
    """Run a program in a folder; SystemExit with its output if it fails."""
    environment = {**os.environ, "REDOCLY_TELEMETRY": "off"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def main() -> None:
    """Build the clients and print their files. SystemExit if npm cannot install the compiler of one."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir(parents=True)
    print(build_python(DIST).relative_to(HERE.parent))
    try:
        print(build_typescript(DIST).relative_to(HERE.parent))
    except (InstallFailed, NodeJsMissing) as error:
        raise SystemExit(f"the TypeScript client is not built: {error}") from None


if __name__ == "__main__":
    main()
