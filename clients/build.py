"""Builds the clients of the API into `dist/clients`: `python -m clients.build`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from chainfolio.api.openapi import describe
from chainfolio.api.routes import ROUTES
from chainfolio.settings import Settings
from clients import python_source

HERE: Final = Path(__file__).resolve().parent
DIST: Final = HERE.parent / "dist" / "clients"
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


def main() -> None:
    """Build the clients and print their files."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir(parents=True)
    print(build_python(DIST).relative_to(HERE.parent))


if __name__ == "__main__":
    main()
