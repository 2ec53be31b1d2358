"""Rules of every test: the number of examples of properties, and which tests run in one process.

Properties have the same examples each time. CHAINFOLIO_TESTS=luck makes other ones, CHAINFOLIO_TESTS=deep many more,
and CHAINFOLIO_TESTS=quick fewer. A test with some slow variants names them, or the others:
`@pytest.mark.slow("reason", only=["solana-*"])`, `fast=["evm-*"]`.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from chainfolio.storage.lake import Lake
from tests.e2e.running import Demo, Running, as_ethereum, demonstrated
from tests.storage.s3_server import S3, serving
from tests.storage.stores import KINDS, Stores, postgres

if os.environ.get("CHAINFOLIO_TESTS") != "deep":
    os.fsync = lambda fd: None  # the power stays on; writes in other processes still wait for the disk

COLLECTED_AFTER = (10_000, 20, 20)  # thresholds of the collector; those of the product are others
RECURSION_LIMIT = 4_096  # that of `chainfolio.adapters.evm.datasets.internal`
DEAR = (
    "world",
    "demo_world",
    "transfers",
    "traded",
    "closed",
)  # nodes with a history, of a session: one process makes each
PROFILES = ("here", "quick", "luck", "deep")
PROFILE = os.environ.get("CHAINFOLIO_TESTS") or "here"
assert PROFILE in PROFILES, f"CHAINFOLIO_TESTS is one of {', '.join(PROFILES)}"

settings.register_profile("luck", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100)
settings.register_profile("deep", parent=settings.get_profile("luck"), max_examples=2_000)
settings.register_profile("here", parent=settings.get_profile("luck"), max_examples=30, derandomize=True)
settings.register_profile("quick", parent=settings.get_profile("here"), max_examples=20)
settings.load_profile(PROFILE)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Widen the lines that name failed tests to hold their reasons: pytest cuts them at 80 columns."""
    if not terminalreporter.isatty:
        terminalreporter._tw.fullwidth = 250


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Undo what an imported library does to the process: py_ecc lets calls nest 100,000 levels deep."""
    limit = max(sys.getrecursionlimit(), RECURSION_LIMIT)
    try:
        return (yield)
    finally:
        sys.setrecursionlimit(min(sys.getrecursionlimit(), limit))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector: it would walk 15,000 tests again, for half of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*COLLECTED_AFTER)
        gc.enable()


def pytest_sessionfinish() -> None:
    """Let the interpreter free what is left as it ends: libraries print what leaks."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the tests that share a fixture of a module run in one process, which sets the fixture up once.

    pytest-xdist 3.8 appends the group to an attribute that pytest 9.2 no longer reads (its issue 1386), and then runs
    the tests of a group in any process. So the group is appended here to what pytest reads.
    """
    for item in items:
        _let_be_fast(item)
        _bound_examples(item)
        if isinstance(item, pytest.Function) and not item.get_closest_marker("xdist_group") and (name := _group(item)):
            item.add_marker(pytest.mark.xdist_group(name))
        group = item.get_closest_marker("xdist_group")
        if group and config.getoption("loadgroup", False) and hasattr(item, "_id"):
            item._id = type(item._id).parse(f"{item.nodeid}@{group.args[0]}")


def _let_be_fast(item: pytest.Item) -> None:
    """Take the mark `slow` from a variant of a test with a `fast` id, or without an `only` one."""
    for mark in [each for each in item.own_markers if each.name == "slow" and each.kwargs]:
        ((selection, ids),) = mark.kwargs.items()
        assert isinstance(item, pytest.Function)
        if any(fnmatchcase(item.callspec.id, id_) for id_ in ids) is (selection == "fast"):
            item.own_markers.remove(mark)


def _bound_examples(item: pytest.Item) -> None:
    """Let a property that names a number of examples have no more of them than its profile."""
    if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
        inner = getattr(item.obj, "__func__", item.obj)
        test_settings = getattr(inner, "_hypothesis_internal_use_settings", None)  # a state machine has none
        if test_settings and test_settings.max_examples > settings().max_examples:
            inner._hypothesis_internal_use_settings = settings(test_settings, max_examples=settings().max_examples)


def _group(item: pytest.Function) -> str | None:
    """Return the session's dear fixture of a test; or its module, if it shares fixtures, with their parameters."""
    fixtures = item._fixtureinfo.name2fixturedefs.items()
    dear = [name for name, (*_, last) in fixtures if name in DEAR and last.scope == "session"]
    if dear:
        return f"{item.nodeid.partition('::')[0].rpartition('/')[0]}-{dear[0]}"
    shared = [name for name, (*_, last) in fixtures if last.scope == "module" and last.baseid]
    indices = item.callspec.indices if hasattr(item, "callspec") else {}
    kinds = [str(indices[name]) for name in shared if name in indices]
    return "-".join([item.nodeid.partition("::")[0], *kinds]) if shared else None


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """Fresh state stores, of either kind."""
    with postgres() as server:
        yield Stores(tmp_path_factory.mktemp("stores"), server)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """An S3 service that tests can make fail."""
    with serving(tmp_path_factory.mktemp("s3")) as service:
        yield service


@pytest.fixture
def bucket_lake(s3: S3, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Create a lake in a new bucket, with the credentials in the environment."""
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    return Lake(s3.bucket())


@pytest.fixture(params=KINDS)
def state_url(request: pytest.FixtureRequest, stores: Stores) -> str:
    """Return the URL of a new state store; its tests run once on each kind."""
    return stores.url(request.param)


@pytest.fixture(params=KINDS)
def tail_place(request: pytest.FixtureRequest, stores: Stores) -> str:
    """Return the path or URL of a new tail; its tests run once on each kind."""
    return stores.tail(request.param)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """One `chainfolio demo`, for every test that is its customer."""
    with demonstrated(tmp_path_factory.mktemp("demo")) as running:
        yield running


@pytest.fixture(scope="session")
def ethereum(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The demo's chain served once more, under the key `ethereum`."""
    with as_ethereum(demo, tmp_path_factory.mktemp("ethereum")) as running:
        yield running
