"""The error tree: few kinds, each with its fields, its remedy and its exit code."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from chainfolio import errors
from chainfolio.errors import ChainfolioError

ROOT = Path(__file__).parents[2]

# Every class with what makes one, its exit code and its parent: a change of the tree is a change here.
MADE: dict[str, tuple[ChainfolioError, int, type[Exception]]] = {
    "ChainfolioError": (errors.ChainfolioError("no", remedy="yes"), 1, Exception),
    "SourceError": (errors.SourceError("node", "no"), 3, errors.ChainfolioError),
    "Unavailable": (errors.Unavailable("node", "429", retry_after_s=1.5), 3, errors.SourceError),
    "NodeBehind": (errors.NodeBehind("node", "does not have block 5"), 3, errors.Unavailable),
    "NoBlock": (errors.NoBlock("node", 7), 3, errors.SourceError),
    "BadAnswer": (errors.BadAnswer("node", "malformed"), 3, errors.SourceError),
    "Contradiction": (errors.Contradiction("node", "block 5", "a", "b"), 3, errors.BadAnswer),
    "NoQuorum": (errors.NoQuorum("node", "no majority"), 3, errors.BadAnswer),
    "WrongChain": (errors.WrongChain("node", "serves chain 5", remedy="another"), 3, errors.BadAnswer),
    "ResponseTooLarge": (errors.ResponseTooLarge("node", "too many", max_span=10, dense=True), 3, errors.BadAnswer),
    "UnsupportedMethod": (errors.UnsupportedMethod("node", "no such method"), 3, errors.BadAnswer),
    "HistoryUnavailable": (errors.HistoryUnavailable("node", 7, "pruned"), 3, errors.SourceError),
    "Reorged": (errors.Reorged("node", 7, "0xab"), 3, errors.SourceError),
    "NotIndexed": (errors.NotIndexed("ethereum", "transfers", 1, 9), 4, errors.ChainfolioError),
    "NothingIndexed": (errors.NothingIndexed("transfers"), 4, errors.ChainfolioError),
    "MissingCapability": (errors.MissingCapability("ethereum", "proofs"), 8, errors.NotSupported),
    "BadRequest": (errors.BadRequest("address", "no such"), 2, errors.ChainfolioError),
    "BadSettings": (errors.BadSettings("server.port", "no port"), 2, errors.BadRequest),
    "StoreError": (errors.StoreError("lake", "broken"), 5, errors.ChainfolioError),
    "StorageFull": (errors.StorageFull("lake"), 5, errors.StoreError),
    "TooManyFiles": (errors.TooManyFiles("lake"), 5, errors.StoreError),
    "StoreUnavailable": (errors.StoreUnavailable("lake", "503"), 5, errors.StoreError),
    "AccessDenied": (errors.AccessDenied("lake", "no credentials"), 5, errors.StoreError),
    "Locked": (errors.Locked("tail", "locked", holder="process 7"), 5, errors.StoreError),
    "CorruptFile": (errors.CorruptFile("part-1.parquet", "cut off", "blocks"), 5, errors.StoreError),
    "StaleTable": (errors.StaleTable("transfers", 1, 2), 5, errors.StoreError),
    "DeepReorg": (errors.DeepReorg("ethereum", 7, "0xaa", "0xbb"), 6, errors.ChainfolioError),
    "NotSupported": (errors.NotSupported("validators", remedy="add a beacon node"), 8, errors.ChainfolioError),
    "NotFound": (errors.NotFound("Validator not found for index 7"), 9, errors.ChainfolioError),
    "OverBudget": (errors.OverBudget("requests", 100), 10, errors.ChainfolioError),
    "MissingDependency": (errors.MissingDependency("node.js is not installed"), 7, errors.ChainfolioError),
}
FIELDS: dict[str, dict[str, object]] = {
    "Unavailable": {"source": "node", "reason": "429", "retry_after_s": 1.5},
    "ResponseTooLarge": {"max_span": 10, "dense": True},
    "HistoryUnavailable": {"height": 7},
    "NoBlock": {"source": "node", "height": 7},
    "MissingCapability": {"chain": "ethereum", "capability": "proofs"},
    "Reorged": {"height": 7, "block_hash": "0xab"},
    "NotIndexed": {"chain": "ethereum", "dataset": "transfers", "first": 1, "last": 9},
    "NothingIndexed": {"table": "transfers"},
    "BadRequest": {"field": "address", "reason": "no such"},
    "StoreError": {"store": "lake"},
    "Locked": {"store": "tail", "holder": "process 7"},
    "CorruptFile": {"table": "blocks", "path": "part-1.parquet", "reason": "cut off"},
    "StaleTable": {"table": "transfers", "found": 1, "wanted": 2},
    "NotSupported": {"what": "validators"},
    "OverBudget": {"what": "requests", "limit": 100},
    "DeepReorg": {"chain": "ethereum", "height": 7, "ours": "0xaa", "theirs": "0xbb"},
}
PACKAGES = (
    "adapters",
    "agents",
    "alerts",
    "api",
    "chainfolio",
    "cli",
    "engine",
    "exports",
    "indexer",
    "portfolio",
    "pricing",
    "storage",
    "transport",
)
# The roots are there to be caught; heights without a block are met by kinds of chain that skip some.
UNUSED = {"ChainfolioError", "SourceError", "NoBlock"}
each = pytest.mark.parametrize("name", MADE)


def tree(root: type[ChainfolioError] = ChainfolioError) -> Iterator[type[ChainfolioError]]:
    if root.__module__ == errors.__name__:
        yield root
    for kind in root.__subclasses__():
        yield from tree(kind)


def test_every_kind_of_error_is_known_here() -> None:
    assert {kind.__name__ for kind in tree()} == set(MADE)


@each
def test_each_kind_has_its_place_in_the_tree_and_its_exit_code(name: str) -> None:
    error, exit_code, parent = MADE[name]
    assert type(error).__name__ == name
    assert type(error).__bases__ == (parent,)
    assert error.exit_code == exit_code


def test_exit_codes_never_clash_with_those_of_the_shell() -> None:
    assert {kind.exit_code for kind in tree()} == set(range(1, 11))


@each
def test_each_error_says_what_is_wrong_and_then_the_cure(name: str) -> None:
    error = MADE[name][0]
    assert error.message
    assert str(error) == (f"{error.message} ({error.remedy})" if error.remedy else error.message)


@pytest.mark.parametrize("name", FIELDS)
def test_errors_carry_fields_and_not_only_prose(name: str) -> None:
    error = MADE[name][0]
    assert {field: getattr(error, field) for field in FIELDS[name]} == FIELDS[name]


@each
def test_an_error_survives_the_way_to_another_process(name: str) -> None:
    error = MADE[name][0]
    for duplicate in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(duplicate) is type(error)
        assert str(duplicate) == str(error)
        assert vars(duplicate) == vars(error)


@pytest.mark.parametrize("name", sorted(MADE.keys() - UNUSED))
def test_every_kind_is_raised_somewhere(name: str) -> None:
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert any(re.search(rf"(?<!class )\b{name}\(", path.read_text()) for path in sources)


def test_what_can_be_cured_by_a_command_names_the_whole_command() -> None:
    assert MADE["NotIndexed"][0].remedy == (
        "chainfolio index ethereum --from 1 --to 9, or of single accounts: chainfolio watch ADDRESS --chain ethereum"
    )
    assert MADE["StaleTable"][0].remedy.endswith("or index into an empty one")
    assert MADE["DeepReorg"][0].remedy.endswith("chainfolio index ethereum --rewind 7")
