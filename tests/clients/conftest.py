"""The clients in their installed form: built into a wheel and a tarball, and unpacked."""

from __future__ import annotations

import importlib
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chainfolio.localchain.errors import InstallFailed, NodeJsMissing
from clients.build import build_python, build_typescript

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_python(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the wheel is unpacked into."""
    folder = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.fixture(scope="session")
def package(installed: Path) -> Iterator[Any]:
    """The package `chainfolio_client`."""
    sys.path.insert(0, str(installed))
    try:
        yield importlib.import_module("chainfolio_client")
    finally:
        sys.path.remove(str(installed))


@pytest.fixture(scope="session")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The TypeScript client; skips where npm cannot install its compiler."""
    try:
        return build_typescript(tmp_path_factory.mktemp("tarball"))
    except (InstallFailed, NodeJsMissing) as error:
        pytest.skip(f"the TypeScript compiler cannot be installed here: {error}")


@pytest.fixture(scope="session")
def project(tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which Node.js finds the package, as after `npm install`."""
    folder = tmp_path_factory.mktemp("project")
    with tarfile.open(tarball) as archive:
        archive.extractall(folder, filter="data")
    (folder / "node_modules").mkdir()
    (folder / "package").rename(folder / "node_modules" / "chainfolio-client")
    shutil.copy(HERE / "calls.mjs", folder)
    return folder
