"""The measure of mutations: which are chosen, how a change is named, and which share is noticed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from bench import mutation
from bench.mutation import AREAS, AreaResult, Mutation, change_of, reasons, sampled

DIFF = """--- storage/state/ledger.py
+++ storage/state/ledger.py
@@ -1,3 +1,3 @@
 def post(tx):
-    return 1
+    return 2
"""


def mutations(counts: Sequence[int]) -> list[Mutation]:
    return [
        Mutation(f"{area}.x_work__mutmut_{number}", area, None)
        for area, count in zip(AREAS, counts, strict=True)
        for number in range(count)
    ]


def test_a_sample_has_as_many_of_each_area_and_is_the_same_again() -> None:
    every = mutations((30, 3, 0, 10, 11))
    chosen = sampled(every, 10)
    counts = {area: sum(mutation.area == area for mutation in chosen) for area in AREAS}
    assert list(counts.values()) == [10, 3, 0, 10, 10]
    assert sampled(every[::-1], 10) == chosen
    assert len(set(chosen)) == len(chosen)
    assert sampled(every, 10, "another") != chosen


def test_a_change_is_named_by_its_lines() -> None:
    assert change_of(DIFF) == "- return 1\n+ return 2"


@pytest.mark.parametrize(
    ("tested", "equivalent", "survivors", "share"),
    [
        pytest.param(100, 0, 8, Fraction(92, 100), id="some-survive"),
        pytest.param(100, 20, 8, Fraction(9, 10), id="equivalent-ones-do-not-count"),
        pytest.param(0, 0, 0, Fraction(1), id="none"),
    ],
)
def test_the_share_is_of_mutations_that_change_behaviour(
    tested: int, equivalent: int, survivors: int, share: Fraction
) -> None:
    assert AreaResult("pricing", tested, equivalent, [""] * survivors).share == share


def test_every_listed_survivor_has_a_reason() -> None:
    assert all(reason.strip() for reason in reasons().values())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of results, and a repository with one test."""
    monkeypatch.setattr(mutation, "ROOT", tmp_path)
    monkeypatch.setattr(mutation, "MUTANTS", tmp_path / "mutants")
    (tmp_path / "chainfolio").mkdir()
    (tmp_path / "pricing").mkdir()
    (tmp_path / "chainfolio" / "pricing").symlink_to("../pricing")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_pools.py").write_text("def test_pool(): ...")
    return tmp_path / "mutants"


def test_mutated_folders_are_linked_like_those_of_the_package(cache: Path) -> None:
    for _ in range(2):
        mutation.link_folders()
        (cache / "chainfolio" / "pricing" / "rules.py").write_text("")
        assert (cache / "pricing" / "rules.py").exists()


def test_survivors_and_the_map_of_changed_tests_are_forgotten_after_a_change_of_tests(cache: Path) -> None:
    cache.joinpath("tests").mkdir(parents=True)
    cache.joinpath("tests", "test_pools.py").write_text("def test_pool(): ...")
    assert mutation.changed_tests() == set()
    cache.joinpath("tests", "test_removed.py").write_text("")
    cache.joinpath("tests", "test_pools.py").write_text("def test_pool(): assert False")
    changed = mutation.changed_tests()
    assert changed == {"tests/test_pools.py", "tests/test_removed.py"}
    codes = {"noticed": 1, "survived": 0, "untested": 33, "timed out": 36}
    cache.joinpath("rules.py.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    durations = {"tests/test_pools.py::test_pool": 1, "tests/test_rules.py::test_rule": 2}
    cache.joinpath("mutmut-stats.json").write_text(json.dumps({"duration_by_test": durations}))
    mutation.forget(changed)
    left = json.loads(cache.joinpath("rules.py.meta").read_bytes())["exit_code_by_key"]
    assert left == {"noticed": 1, "survived": None, "untested": None, "timed out": 36}
    stats = json.loads(cache.joinpath("mutmut-stats.json").read_bytes())
    assert stats == {"duration_by_test": {"tests/test_rules.py::test_rule": 2}}
    assert not cache.joinpath("tests").exists()


@pytest.mark.parametrize("failing", [1, 2], ids=["while-mapped", "before-mutations"])
def test_tests_that_fail_without_a_mutation_end_with_2(
    failing: int, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def fail(*arguments: str, show: bool = False) -> subprocess.CompletedProcess[str]:
        calls.append(arguments[1])
        return subprocess.CompletedProcess([], 1, "", mutation.NO_MATCH if len(calls) < failing else "")

    monkeypatch.setattr(mutation, "_mutmut", fail)
    monkeypatch.setattr("sys.argv", ["mutation", "--area", "pricing"])
    mutation.link_folders()
    cache.joinpath("pricing", "rules.py.meta").write_text(
        json.dumps({"exit_code_by_key": {"chainfolio.pricing.rules.x_rule__mutmut_1": None}})
    )
    assert mutation.main() == 2
    assert len(calls) == failing
