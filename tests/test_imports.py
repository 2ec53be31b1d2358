"""No module needs another that needs it: not at once, and not through an import inside a function."""

from __future__ import annotations

from collections.abc import Mapping, Set
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

PARTS = (
    "adapters",
    "api",
    "chainfolio",
    "cli",
    "engine",
    "indexer",
    "localchain",
    "portfolio",
    "pricing",
    "storage",
    "transport",
)


def check_no_circle(imports: Mapping[str, Set[str]]) -> None:
    """Fail with the modules of a circle, where there is one."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"these need each other: {' <- '.join(error.args[1])}")


def test_no_modules_need_each_other() -> None:
    graph = grimp.build_graph(*PARTS, exclude_type_checking_imports=True, cache_dir=None)
    assert len(graph.modules) > 250
    check_no_circle({name: graph.find_modules_directly_imported_by(name) for name in graph.modules})


def test_a_circle_is_named() -> None:
    check_no_circle({"a": {"b"}, "b": {"c"}})
    with pytest.raises(pytest.fail.Exception, match=r"a <- b <- c <- a|b <- c <- a <- b|c <- a <- b <- c"):
        check_no_circle({"a": {"c"}, "b": {"a"}, "c": {"b"}, "d": {"a"}})
