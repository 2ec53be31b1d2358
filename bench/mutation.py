"""Measure the share of code mutations that tests notice, by area.

`make mutation` changes one operator, constant or argument at a time (mutmut does that; `[tool.mutmut]` in
pyproject.toml names the files) and runs the tests that execute the changed function. Results are cached in `mutants/`:
the next run tests only functions that changed since, and survivors again if tests changed. All mutations take days on
two cores; `--sample 50` takes as many of each area, always the same ones of an unchanged function, and others with
another `--seed`.

A mutation that no test notices is a survivor. `tests/mutation_survivors.toml` lists survivors that change no behaviour,
with the reason; they do not count. A mutation whose tests exceed their time is noticed, and counted separately too.
The command ends with 1 if an area notices less than MIN_SHARE of the others, and with 2 if tests fail without one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
MUTANTS: Final = ROOT / "mutants"
SURVIVORS: Final = ROOT / "tests" / "mutation_survivors.toml"
MIN_SHARE: Final = Fraction(92, 100)
AREAS: Final = ("storage/state", "portfolio", "pricing", "chainfolio", "adapters")
# mutmut's exit codes: 0 survived, 33 and 5 without a test, None not tested yet; every other one was noticed.
SURVIVED: Final = frozenset({0, 5, 33})
TIMED_OUT: Final = frozenset({-24, 24, 36, 152, 255})
NO_MUTATION: Final = "none:"  # a name that matches nothing: mutations are made and tests mapped, and none is tested
NO_MATCH: Final = "nothing matches"  # what mutmut writes about such a name, after the tests were mapped


@dataclass(frozen=True, slots=True)
class Mutation:
    """A mutation: its name in mutmut, its area, and mutmut's exit code (None: not tested yet)."""

    name: str
    area: str
    code: int | None


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


def mutations() -> list[Mutation]:
    """Return all mutations in `mutants/`, in the order of their names; empty if none were made yet."""
    result: list[Mutation] = []
    for file in MUTANTS.rglob("*.meta"):
        path = file.relative_to(MUTANTS).as_posix()
        area = next((area for area in AREAS if path.startswith(f"{area}/")), None)
        if area is not None:
            codes = json.loads(file.read_bytes())["exit_code_by_key"]
            result.extend(Mutation(name, area, code) for name, code in codes.items())
    return sorted(result, key=lambda mutation: mutation.name)


def sampled(every: Iterable[Mutation], count: int, seed: str = "") -> list[Mutation]:
    """Return up to `count` mutations of each area, those with the lowest hashes of `seed` and their names.

    The choice is random, and the same each time with the same seed.
    """
    by_area: dict[str, list[Mutation]] = {}
    for mutation in every:
        by_area.setdefault(mutation.area, []).append(mutation)
    return [
        mutation
        for area in AREAS
        for mutation in sorted(
            by_area.get(area, []), key=lambda one: hashlib.sha256(f"{seed}{one.name}".encode()).digest()
        )[:count]
    ]


def change_of(diff: str) -> str:
    """Return the changed lines of a unified diff as text, which identifies a mutation permanently."""
    lines = [line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return "\n".join(f"{line[0]} {line[1:].strip()}" for line in lines)


def result_of(area: str, tested: Sequence[Mutation], reasons: Mapping[tuple[str, str], str]) -> AreaResult:
    """Return the result of one area. `reasons` are the equivalent survivors, by function and change."""
    survivors: list[str] = []
    equivalent = 0
    for mutation in tested:
        if mutation.area != area or mutation.code not in SURVIVED:
            continue
        change = change_of(_mutmut("show", mutation.name).stdout)
        if (_function(mutation.name), change) in reasons:
            equivalent += 1
        else:
            survivors.append(f"{mutation.name}\n{change}")
    codes = [mutation.code for mutation in tested if mutation.area == area]
    return AreaResult(area, len(codes), equivalent, survivors, sum(code in TIMED_OUT for code in codes))


def reasons() -> dict[tuple[str, str], str]:
    """Return the reasons in `tests/mutation_survivors.toml`, by function and change."""
    content = tomllib.loads(SURVIVORS.read_text(encoding="utf-8"))
    return {(entry["function"], entry["change"].strip()): entry["reason"] for entry in content.get("survivor", [])}


def _function(name: str) -> str:
    """Return the function of a mutation: of `storage.state.ledger.x_post__mutmut_3` all before the number."""
    return name.rpartition("__mutmut_")[0]


def link_folders() -> None:
    """Link the folders of the repository into `mutants/chainfolio` like the links in `chainfolio`.

    mutmut writes mutated files by their names in the package, and through the links into copies of the folders.
    """
    for link in (ROOT / "chainfolio").iterdir():
        if link.is_symlink():
            copy = MUTANTS / "chainfolio" / link.name
            (MUTANTS / link.name).mkdir(parents=True, exist_ok=True)
            copy.parent.mkdir(exist_ok=True)
            if not copy.is_symlink():
                copy.symlink_to(link.readlink())


def changed_tests() -> set[str]:
    """Return the paths under `tests/` that were changed, added or removed since the last run."""
    now, before = (_contents(root / "tests") for root in (ROOT, MUTANTS))
    return {f"tests/{path}" for path in now.keys() | before.keys() if now.get(path) != before.get(path)}


def _contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def forget(changed: Set[str]) -> None:
    """Delete cached results that `changed` tests can affect: survivors, and functions that they execute.

    mutmut maps tests that it does not know, so tests of changed files are removed from its map. Copies of tests are
    deleted: mutmut copies them anew, but keeps those that were removed.
    """
    for file in MUTANTS.rglob("*.meta"):
        content = json.loads(file.read_bytes())
        codes = content["exit_code_by_key"]
        content["exit_code_by_key"] = {name: None if code in SURVIVED else code for name, code in codes.items()}
        file.write_text(json.dumps(content))
    stats = MUTANTS / "mutmut-stats.json"
    if stats.exists():
        content = json.loads(stats.read_bytes())
        durations = content["duration_by_test"]
        content["duration_by_test"] = {test: s for test, s in durations.items() if test.split("::")[0] not in changed}
        stats.write_text(json.dumps(content))
    shutil.rmtree(MUTANTS / "tests", ignore_errors=True)


def _mutmut(*arguments: str, show: bool = False) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mutmut", *arguments]
    environment = {"CHAINFOLIO_LOCALCHAIN_HOME": str(ROOT / ".localchain"), **os.environ}
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        text=True,
        check=False,
        stdout=None if show else subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def main() -> int:
    """Test mutations and print the noticed share; return 1 if it is too low, 2 if the tests fail."""
    parser = argparse.ArgumentParser(prog="python -m bench.mutation", description=__doc__)
    parser.add_argument("--sample", type=int, help="test as many mutations of each area; all, if not given")
    parser.add_argument("--seed", default="", help="choose another sample")
    parser.add_argument("--area", action="append", choices=AREAS, help="test this area alone; may be repeated")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    link_folders()
    if changed := changed_tests():
        forget(changed)
    mapped = _mutmut("run", NO_MUTATION, show=not options.json)
    all_mutations = mutations()
    if NO_MATCH not in mapped.stderr or not all_mutations:
        print(f"The tests fail without a mutation, or none could be made.\n{mapped.stderr}", file=sys.stderr)
        return 2
    areas = [area for area in AREAS if not options.area or area in options.area]
    chosen = [mutation for mutation in all_mutations if mutation.area in areas]
    if options.sample is not None:
        chosen = sampled(chosen, options.sample, options.seed)
    if pending := [mutation.name for mutation in chosen if mutation.code is None]:
        _mutmut("run", *pending, show=not options.json)
    names = {mutation.name for mutation in chosen}
    tested = [mutation for mutation in mutations() if mutation.name in names and mutation.code is not None]
    if len(tested) < len(names):
        print(f"{len(names) - len(tested)} mutations were not tested: do the tests pass without one?", file=sys.stderr)
        return 2
    equivalent = reasons()
    results = [result_of(area, tested, equivalent) for area in areas]
    _print(results, as_json=options.json)
    return 0 if all(result.share >= MIN_SHARE for result in results) else 1


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
