"""The measure of mutations: which are chosen, how a change is named, and which share is noticed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from bench import mutation, mutation_runs
from bench.mutation import AREAS, AreaResult, Mutation, Results, change_of, reasons, sampled
from bench.mutation_runs import TIMED_OUT

DIFF = """--- storage/state/ledger.py
+++ storage/state/ledger.py
@@ -1,3 +1,3 @@
 def post(tx):
-    return 1
+    return 2
"""


def mutations(counts: Sequence[int]) -> list[Mutation]:
    return [
        Mutation(f"{area}.x_work__mutmut_{number}", area)
        for area, count in zip(AREAS, counts, strict=True)
        for number in range(count)
    ]


def test_a_sample_has_as_many_of_each_area_and_is_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation, "_change", lambda each: "- a\n+ b")
    every = mutations((30, 3, 0, 10, 11))
    chosen = sampled(every, 10)
    counts = {area: sum(mutation.area == area for mutation in chosen) for area in AREAS}
    assert list(counts.values()) == [10, 3, 0, 10, 10]
    assert sampled(every[::-1], 10) == chosen
    assert len(set(chosen)) == len(chosen)
    assert sampled(every, 10, "another") != chosen
    assert sorted(map(str, sampled(every, None))) == sorted(map(str, every))
    monkeypatch.setattr(mutation, "_change", lambda each: "- a\n+ a" if each == chosen[0] else "- a\n+ b")
    assert chosen[0] not in sampled(every, None)


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        ("zip(a, b, strict=True)", "zip(a, b, strict=None)", True),
        ("zip(a, b, strict=True)", "zip(a, b, )", True),
        ("zip(a, b, strict=True)", "zip(a, None, strict=True)", False),
        ("cast(list[Any], rows)", "cast(None, rows)", True),
        ('cast("Row", rows)', 'cast("XXRowXX", rows)', True),
        ("cast(Row, rows)", "cast(Row, None)", False),
        ("broadcast(a, b)", "broadcast(None, b)", False),
        ('raw.to_bytes(32, "big")', "raw.to_bytes(32, )", True),
        ('raw.to_bytes(32, "big")', "raw.to_bytes(None, )", False),
        ('raw.to_bytes(32, "little")', "raw.to_bytes(32, )", False),
        ('text.encode("utf-8")', 'text.encode("UTF-8")', True),
        ("next(rows, None)", "next(rows, )", False),
        ("f(a)", "f(b)", False),
    ],
)
def test_what_changes_nothing_is_left_out(before: str, after: str, is_same: bool) -> None:
    assert mutation.changes_nothing(f"- {before}\n+ {after}") == is_same


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
def results(tmp_path: Path) -> Callable[[], Results]:
    """Opens the stored results of a repository with one test."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_pools.py").write_text("def test_pool(): ...")
    return lambda: Results(tmp_path / "results.json", tmp_path / "tests")


def test_noticed_mutations_stay_and_survivors_are_tested_again_after_a_change_of_tests(
    results: Callable[[], Results], tmp_path: Path
) -> None:
    noticed, survivor = (Mutation(f"pricing.pools.x_work__mutmut_{number}", "pricing", "a1") for number in (1, 2))
    results().add(noticed, "tests/test_pools.py::test_pool")
    results().add(survivor, "")
    assert [results().get(each) for each in (noticed, survivor)] == ["tests/test_pools.py::test_pool", ""]
    assert results().get(replace(noticed, function="a2")) is None
    (tmp_path / "tests" / "test_pools.py").write_text("def test_pool(): assert False")
    assert [results().get(each) for each in (noticed, survivor)] == ["tests/test_pools.py::test_pool", None]
    results().forget("tests/test_pools.py::test_pool")
    assert results().get(noticed) is None


GRAPH = {
    "chainfolio.pricing.pools": {"chainfolio.amounts"},
    "chainfolio.pricing.search": {"chainfolio.pricing.pools"},
    "tests.pricing.test_liquidity": {"chainfolio.pricing.pools"},
    "tests.pricing.test_pools_of_others": {"chainfolio.pricing"},
    "tests.pricing.test_search": {"chainfolio.pricing.search"},
    "tests.cli.test_prices": {"chainfolio.pricing.pools"},
    "tests.pricing.fakes": {"chainfolio.pricing.pools"},
    "tests.pricing.test_vendors": {"chainfolio.amounts"},
}


def test_tests_that_import_a_module_or_have_its_name_are_run_before_those_behind_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mutation_runs, "_by_size", lambda modules: sorted(modules))
    close_tests, distant_tests, end_to_end = mutation_runs.test_files("chainfolio.pricing.pools", GRAPH)
    assert close_tests == ["tests.pricing.test_liquidity", "tests.pricing.test_pools_of_others"]
    assert (distant_tests, end_to_end) == (["tests.pricing.test_search"], [])


def test_calculations_of_gains_are_tested_with_all_tests_of_gains_at_last() -> None:
    groups = mutation_runs.test_files("chainfolio.portfolio.pnl.call_movements", mutation_runs.imports())
    close_tests, distant_tests, end_to_end = map(set, groups)
    assert {"tests/gains/test_solana_forged.py", "tests/gains/test_solana_lending.py"} <= end_to_end
    assert not end_to_end & (close_tests | distant_tests)


def test_the_imports_of_the_project_are_known() -> None:
    graph = mutation_runs.imports()
    assert "bench.mutation" not in graph
    assert "chainfolio.amounts" in graph["chainfolio.pricing.registry"] | graph["chainfolio.portfolio.document"]
    close_tests, *_ = mutation_runs.test_files("chainfolio.storage.state.ledger", graph)
    assert "tests/storage/test_meter.py" in close_tests
    assert "tests/api/test_ledger_kills.py" not in close_tests
    close_tests, *_ = mutation_runs.test_files("chainfolio.storage.state.deliveries", graph)
    assert "tests/alerts/test_delivery.py" in close_tests
    close_tests, *_ = mutation_runs.test_files("chainfolio.adapters.evm.protocols.venus_vai", graph)
    assert "tests/protocols/test_venus_vaults.py" in close_tests, "it names the family"


TESTS = """import os, time

def test_files(tmp_path): assert 'mutation-' in str(tmp_path)

def test_first(): assert os.environ['MUTANT_UNDER_TEST'] != 'first'

def test_second():
    if os.environ['MUTANT_UNDER_TEST'] == 'endless': time.sleep(600)
    assert os.environ['MUTANT_UNDER_TEST'] != 'second'
"""
RUN = """import json, sys
from bench import mutation_runs
mutation_runs._import_tests = lambda files: None
groups = {name: [[], [sys.argv[1]]] for name in ("first", "second", "none")}
outcomes = dict(mutation_runs.run_tests(groups, 3))
mutation_runs.RUN_LIMIT_S = 0
outcomes |= mutation_runs.run_tests({"endless": [[sys.argv[1]]]}, 1)
print(json.dumps(outcomes))
"""


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_the_first_test_that_fails_or_does_not_end_notices_a_mutation(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-c", RUN, str(tmp_path / "test_it.py")]
    ran = subprocess.run(command, cwd=mutation_runs.ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    outcomes = {name: test.rpartition("/")[2] for name, test in json.loads(ran.stdout.splitlines()[-1]).items()}
    first, second = "test_it.py::test_first", "test_it.py::test_second"
    assert outcomes == {"first": first, "second": second, "endless": TIMED_OUT, "none": ""}


IMPORTED = """import pathlib, sys
from bench import mutation_runs
mutation_runs.MUTANTS = pathlib.Path(sys.argv[1])
mutation_runs._import_tests(())
print(sys.modules["chainfolio"].__file__, sys.modules["chainfolio.errors"].__file__)
"""


def test_tests_import_the_mutated_package(tmp_path: Path) -> None:
    package = tmp_path / "chainfolio"
    package.mkdir()
    for each in (mutation_runs.ROOT / "chainfolio").iterdir():
        (package / each.name).symlink_to(each.resolve())
    command = [sys.executable, "-c", IMPORTED, str(tmp_path)]
    ran = subprocess.run(command, cwd=mutation_runs.ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [str(package / name) for name in ("__init__.py", "errors.py")]


def test_a_mutation_without_tests_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation_runs, "_import_tests", lambda files: None)  # it would take modules from this process
    assert list(mutation_runs.run_tests({"one": [[]]}, 1)) == [("one", "")]


def test_a_test_that_fails_without_a_mutation_ends_with_2_and_its_results_are_forgotten(
    results: Callable[[], Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation_run, test = (
        Mutation("chainfolio.pricing.pools.x_work__mutmut_1", "pricing", "a1"),
        "tests/test_pools.py::test_pool",
    )
    results().add(mutation_run, test)
    monkeypatch.setattr(mutation, "make_mutations", lambda: None)
    monkeypatch.setattr(mutation, "mutations", lambda: [mutation_run])
    monkeypatch.setattr(mutation, "_change", lambda each: "- a\n+ b")
    monkeypatch.setattr(mutation, "Results", results)
    monkeypatch.setattr(mutation, "run_tests", lambda groups, jobs: [(name, test) for name in groups])
    monkeypatch.setattr("sys.argv", ["mutation", "--area", "pricing"])
    assert mutation.main() == 2
    assert results().get(mutation_run) is None
