"""Tests that share a dear fixture run in one process, with the locked releases of pytest and pytest-xdist."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def dear() -> Path:
    return Path(__file__)


def test_tests_that_share_a_fixture_of_a_module_are_one_group(request: pytest.FixtureRequest, dear: Path) -> None:
    module = request.node.path.relative_to(request.config.rootpath).as_posix()
    assert dear.name == "test_groups.py"
    assert request.node.get_closest_marker("xdist_group").args == (module,)
    if request.config.getoption("loadgroup", False):
        assert request.node.nodeid.endswith(f"@{module}"), "the schedule reads the group from here"


@pytest.mark.xdist_group("named")
def test_a_group_that_is_named_is_the_group(request: pytest.FixtureRequest, dear: Path) -> None:
    if request.config.getoption("loadgroup", False):
        assert request.node.nodeid.endswith("@named")


@pytest.fixture(scope="session")
def transfers() -> Path:
    """A fixture with the name of a dear one."""
    return Path(__file__)


def test_tests_of_a_package_that_share_a_dear_fixture_of_a_session_are_one_group(
    request: pytest.FixtureRequest, dear: Path, transfers: Path
) -> None:
    assert dear == transfers
    group = f"{request.node.path.parent.relative_to(request.config.rootpath).as_posix()}-transfers"
    assert request.node.get_closest_marker("xdist_group").args == (group,)


def test_a_test_alone_has_no_group(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("xdist_group") is None
