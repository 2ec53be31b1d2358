"""Measure the share of code mutations that tests notice, by area.

`make mutation` changes one operator, constant or argument at a time: mutmut makes the mutations of the files that
`[tool.mutmut]` in pyproject.toml names. Each one is tested with the test files that import its module or have its name,
and if all of them pass, with some that import it through another module; calculations of gains also with tests/gains,
which execute the whole program. mutmut's own runner is not used: it first runs all tests to see which function each one
executes, which takes an hour. The share is a lower bound: tests with the mark `slow`, tests of a local chain outside of
tests/gains, tests/pricing and tests/protocols, and tests that need PostgreSQL are left out, and code that runs when a
module is imported runs without the mutation.

Results are stored in `mutants/results.json`: the next run tests only mutations of functions that changed since, and
survivors again if tests changed. All mutations take weeks; `--sample 50` takes as many of each area, always the same
ones of an unchanged function, and others with another `--seed`.

Some mutations can change no behaviour wherever they stand, and are not tested: see NO_CHANGE.

A mutation that no test notices is a survivor. `tests/mutation_survivors.toml` lists survivors that change no behaviour,
with the reason; they do not count. A mutation whose tests exceed their time is noticed, and counted separately too.
The command ends with 1 if an area notices less than MIN_SHARE of the others, and with 2 if tests fail without one.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import islice, zip_longest
from pathlib import Path
from typing import Final

from bench.mutation_runs import MUTANTS, ROOT, TIMED_OUT, imports, run_tests, test_files

SURVIVORS: Final = ROOT / "tests" / "mutation_survivors.toml"
RESULTS: Final = MUTANTS / "results.json"
MIN_SHARE: Final = Fraction(92, 100)
AREAS: Final = (
    "storage/state",
    "portfolio",
    "pricing",
    "adapters",
    "chainfolio",
)  # the rest of chainfolio is last
MUTATED: Final = frozenset({"adapters", "portfolio", "pricing", "storage"})  # folders that mutmut copies


# Parts of code whose mutations change no behaviour: two lines that are equal without them do the same.
NO_CHANGE: Final = (
    # zip() raises for lists of unequal length. Ruff asks for it everywhere; here one list is made from the other, and
    # the lengths of external data are compared before, with a separate error.
    re.compile(r",?\s*\bstrict=\w+"),
    re.compile(r"(?<=\bcast\()(?:[^,\[]|\[[^\]]*\])*(?=,)"),  # a type: typing.cast returns the value as it is
    re.compile(r',\s*"big"(?=\))'),  # the default of to_bytes and from_bytes; another text raises
    re.compile(r'"utf-8"', re.IGNORECASE),  # names of encodings have no case
    re.compile(r",\s*(?=\))"),  # the comma of a removed argument
)


@dataclass(frozen=True, slots=True)
class Mutation:
    """A mutation.

    Attributes:
        name: Its name in mutmut.
        area: One of AREAS.
        function: Hash of the function that it changes.
    """

    name: str
    area: str
    function: str = ""

    @property
    def module(self) -> str:
        """The mutated module."""
        return self.name.rpartition(".")[0]

    @property
    def file(self) -> str:
        """The path of the module in the package."""
        path = self.module.replace(".", "/")
        return f"{path}/__init__.py" if (ROOT / path).is_dir() else f"{path}.py"


@dataclass(frozen=True, slots=True)
class AreaResult:
    """Numbers of tested and of equivalent mutations of an area, and the other survivors.

    `timed_out` of them were noticed because their tests did not end in time.
    """

    area: str
    tested: int
    equivalent: int
    survivors: Sequence[str]
    timed_out: int = 0

    @property
    def share(self) -> Fraction:
        """Share of mutations that tests notice, without equivalent ones; 1 if there are none."""
        relevant = self.tested - self.equivalent
        return 1 - Fraction(len(self.survivors), relevant) if relevant else Fraction(1)


def make_mutations() -> None:
    """Write the mutated modules that changed since the last run, and link all others."""
    from mutmut.__main__ import create_mutants  # reads the settings in the working directory when imported

    package = MUTANTS / "chainfolio"
    package.mkdir(parents=True, exist_ok=True)
    for link in (ROOT / "chainfolio").iterdir():
        copy = package / link.name
        if link.is_symlink() and link.name not in MUTATED and not copy.is_symlink():
            copy.symlink_to(link.resolve())
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        create_mutants(os.cpu_count() or 1)


def mutations() -> list[Mutation]:
    """Return all mutations in `mutants/`, in the order of their names; empty if none were made yet."""
    result: list[Mutation] = []
    for file in (MUTANTS / "chainfolio").rglob("*.meta"):
        path = file.relative_to(MUTANTS / "chainfolio").as_posix()
        area = next((area for area in AREAS if path.startswith(f"{area}/")), AREAS[-1])
        content = json.loads(file.read_bytes())
        for name in content["exit_code_by_key"]:
            function = _function(name).rpartition(".")[2]
            result.append(Mutation(name, area, content["hash_by_function_name"].get(function, "")))
    return sorted(result, key=lambda mutation: mutation.name)


def sampled(every: Iterable[Mutation], count: int | None, seed: str = "") -> list[Mutation]:
    """Return up to `count` mutations of each area, those with the lowest hashes of `seed` and their names.

    All for None. The choice is random, and the same each time with the same seed. The areas follow one another in
    turns.
    """
    by_area: dict[str, list[Mutation]] = {area: [] for area in AREAS}
    for mutation in sorted(every, key=lambda one: hashlib.sha256(f"{seed}{one.name}".encode()).digest()):
        by_area[mutation.area].append(mutation)
    tested = (filter(lambda one: not changes_nothing(_change(one)), chosen) for chosen in by_area.values())
    turns = zip_longest(*(islice(chosen, count) for chosen in tested))
    return [mutation for turn in turns for mutation in turn if mutation is not None]


def change_of(diff: str) -> str:
    """Return the changed lines of a unified diff as text, which identifies a mutation permanently."""
    lines = [line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return "\n".join(f"{line[0]} {line[1:].strip()}" for line in lines)


def changes_nothing(change: str) -> bool:
    """Return True if the removed and the added lines of a change are equal without what NO_CHANGE matches."""
    sides: dict[str, list[str]] = {"-": [], "+": []}
    for line in change.splitlines():
        sides[line[0]].append(reduce(lambda text, part: part.sub("", text), NO_CHANGE, line[1:]))
    return sides["-"] == sides["+"]


def _change(mutation: Mutation) -> str:
    from mutmut.mutation.diff_apply import get_diff_for_mutant  # as in make_mutations

    return change_of(get_diff_for_mutant(mutation.name, path=mutation.file))


def result_of(
    area: str, noticed: Mapping[Mutation, str], changes: Mapping[Mutation, str], reasons: Mapping[tuple[str, str], str]
) -> AreaResult:
    """Return the result of one area.

    Args:
        area: One of AREAS.
        noticed: Mutations with the test that noticed them; empty for survivors.
        changes: The changed lines of each survivor.
        reasons: Why survivors are equivalent, by function and change.
    """
    tested = {mutation: test for mutation, test in noticed.items() if mutation.area == area}
    survivors = [mutation for mutation, test in tested.items() if not test]
    not_equivalent = [each for each in survivors if (_function(each.name), changes[each]) not in reasons]
    timed_out = sum(test == TIMED_OUT for test in tested.values())
    texts = [f"{each.name}\n{changes[each]}" for each in not_equivalent]
    return AreaResult(area, len(tested), len(survivors) - len(not_equivalent), texts, timed_out)


def reasons() -> dict[tuple[str, str], str]:
    """Return the reasons in `tests/mutation_survivors.toml`, by function and change."""
    content = tomllib.loads(SURVIVORS.read_text(encoding="utf-8"))
    return {(entry["function"], entry["change"].strip()): entry["reason"] for entry in content.get("survivor", [])}


def _function(name: str) -> str:
    """Return the function of a mutation: of `storage.state.ledger.x_post__mutmut_3` all before the number."""
    return name.rpartition("__mutmut_")[0]


class Results:
    """Stored results: the test that noticed a mutation, or the tests that did not."""

    def __init__(self, file: Path = RESULTS, tests: Path = ROOT / "tests") -> None:
        self._file = file
        digest = hashlib.sha256()
        for path in sorted(tests.rglob("*.py")):
            digest.update(path.read_bytes())
        self._tests = digest.hexdigest()
        self._stored: dict[str, list[str]] = json.loads(file.read_bytes()) if file.exists() else {}

    def get(self, mutation: Mutation) -> str | None:
        """Return the test that noticed a mutation, empty for a survivor; None if it must be tested."""
        function, test, tests = self._stored.get(mutation.name, ("", "", ""))
        return test if function == mutation.function and (test or tests == self._tests) else None

    def add(self, mutation: Mutation, test: str) -> None:
        """Store a result."""
        self._stored[mutation.name] = [mutation.function, test, self._tests]
        self._write()

    def forget(self, test: str) -> None:
        """Delete the results of a test."""
        self._stored = {name: stored for name, stored in self._stored.items() if stored[1] != test}
        self._write()

    def _write(self) -> None:
        new_file = self._file.with_suffix(".new")
        new_file.write_text(json.dumps(self._stored, indent=0))
        new_file.replace(self._file)


def run(chosen: Sequence[Mutation], results: Results, jobs: int) -> None:
    """Test the chosen mutations that have no result."""
    pending = [mutation for mutation in chosen if results.get(mutation) is None]
    if not pending:
        return
    graph = imports()
    groups = {mutation.name: test_files(mutation.module, graph) for mutation in pending}
    by_name = {mutation.name: mutation for mutation in pending}
    for count, (name, test) in enumerate(run_tests(groups, jobs), 1):
        results.add(by_name[name], test)
        print(f"{count}/{len(pending)} {name}: {test or 'survived'}", file=sys.stderr)


def failing(tests: Iterable[str]) -> str:
    """Return a test that fails without a mutation; empty if there is none."""
    [(_, failed)] = run_tests({"": [sorted(set(tests))]}, 1)
    return failed


def main() -> int:
    """Test mutations and print the noticed share; return 1 if it is too low, 2 if the tests fail."""
    parser = argparse.ArgumentParser(prog="python -m bench.mutation", description=__doc__)
    parser.add_argument("--sample", type=int, help="test as many mutations of each area; all, if not given")
    parser.add_argument("--seed", default="", help="choose another sample")
    parser.add_argument("--area", action="append", choices=AREAS, help="test this area alone; may be repeated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutations that are tested at once")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    os.chdir(ROOT)
    make_mutations()
    areas = [area for area in AREAS if not options.area or area in options.area]
    chosen = [mutation for mutation in mutations() if mutation.area in areas]
    chosen = sampled(chosen, options.sample, options.seed)
    results = Results()
    run(chosen, results, options.jobs)
    noticed = {mutation: results.get(mutation) or "" for mutation in chosen}
    if test := failing([test for test in noticed.values() if test and test != TIMED_OUT]):
        results.forget(test)
        print(f"A test fails without a mutation: {test}. Its results are deleted; run again.", file=sys.stderr)
        return 2
    changes = {mutation: _change(mutation) for mutation, test in noticed.items() if not test}
    equivalent = reasons()
    area_results = [result_of(area, noticed, changes, equivalent) for area in areas]
    _print(area_results, as_json=options.json)
    return 0 if all(result.share >= MIN_SHARE for result in area_results) else 1


def _print(results: Sequence[AreaResult], *, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "area": result.area,
                "tested": result.tested,
                "equivalent": result.equivalent,
                "timedOut": result.timed_out,
                "noticedPercent": f"{float(result.share * 100):.1f}",
                "survivors": list(result.survivors),
            }
            for result in results
        ]
        print(json.dumps(rows, indent=2))
        return
    for result in results:
        for survivor in result.survivors:
            print(f"\n{survivor}")
    print(f"\n{'area':<16}{'tested':>8}{'equivalent':>12}{'survivors':>11}{'timed out':>11}{'noticed':>9}")
    for result in results:
        share = f"{float(result.share):.1%}"
        print(
            f"{result.area:<16}{result.tested:>8}{result.equivalent:>12}{len(result.survivors):>11}"
            f"{result.timed_out:>11}{share:>9}"
        )


if __name__ == "__main__":
    sys.exit(main())
