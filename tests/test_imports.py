"""Modules have no import cycles: not at once, through an import inside a function, or for their types."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent
# Folders of the repository that are packages inside `chainfolio`, by a link there.
LINKED = (
    "adapters",
    "agents",
    "alerts",
    "api",
    "cli",
    "configs",
    "dashboard",
    "engine",
    "exports",
    "indexer",
    "localchain",
    "portfolio",
    "pricing",
    "storage",
    "transport",
)


ON_TOP = ("async_session", "session")  # the public ones, over the engine


def check_no_circle(imports: Mapping[str, Set[str]]) -> None:
    """Fail with the modules of a circle, where there is one."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"these need each other: {' <- '.join(error.args[1])}")


def test_no_modules_need_each_other() -> None:
    graph = grimp.build_graph("chainfolio", cache_dir=None)
    assert len(graph.modules) > 250
    assert graph.direct_import_exists(importer="chainfolio.api.request", imported="chainfolio.api.charge"), "for types"
    check_no_circle({name: graph.find_modules_directly_imported_by(name) for name in graph.modules})


def test_a_circle_is_named() -> None:
    check_no_circle({"a": {"b"}, "b": {"c"}})
    with pytest.raises(pytest.fail.Exception, match=r"a <- b <- c <- a|b <- c <- a <- b|c <- a <- b <- c"):
        check_no_circle({"a": {"c"}, "b": {"a"}, "c": {"b"}, "d": {"a"}})


@pytest.mark.parametrize("folder", LINKED)
def test_every_folder_is_a_package_of_chainfolio(folder: str) -> None:
    link = ROOT / "chainfolio" / folder
    assert link.is_symlink()
    assert link.readlink() == Path("..") / folder, "a link of another form breaks where the checkout is moved"


def test_the_lowest_layer_names_every_shared_module() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    shared = {path.stem for path in (ROOT / "chainfolio").glob("*.py")} - {"__init__", "__main__", *ON_TOP}
    assert set(contracts[0]["layers"][-1].split(" : ")) == shared
    by_name = {each["name"]: each for each in contracts}
    pure = by_name["Code that knows things does no I/O"]["source_modules"]
    assert {f"chainfolio.{each}" for each in shared} | {"chainfolio.portfolio"} == set(pure)
