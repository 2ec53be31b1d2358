"""The Python client as it is installed: built into a wheel and unpacked."""

from __future__ import annotations

import importlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.build import build_python


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
