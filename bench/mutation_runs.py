"""Choose the test files that can notice a mutation, and run them in a separate process.

Mutated modules stand in `mutants/chainfolio`, which is imported instead of the project's package; everything else is
linked. mutmut's code in them executes the mutation that MUTANT_UNDER_TEST names.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import pytest

from bench.mutation_tests import do_not_shrink

ROOT: Final = Path(__file__).parent.parent
MUTANTS: Final = ROOT / "mutants"
TEST_FOLDERS: Final = frozenset(
    {
        "alerts",
        "api",
        "chainfolio",
        "chains",
        "engine",
        "evm",
        "gains",
        "portfolio",
        "pricing",
        "protocols",
        "solana",
        "starknet",
        "storage",
        "tron",
    }
)
MAX_FILES: Final = 20  # test files that reach a module only through another one
# Parts of the package that the tests of a folder execute through the whole program: they import none of its modules.
END_TO_END_TESTS: Final = {"chainfolio.portfolio.pnl.": "gains"}
# Tests that stop processes at some time fail on a busy machine, and those of public signatures on any mutated package.
LEFT_OUT: Final = re.compile("kills?$|rolling$|public_api$")
TEST_LIMIT_S: Final = 180
RUN_LIMIT_S: Final = 1_800
POLL_S: Final = 0.2
OPTIONS: Final = [
    *(
        "-x",
        "-q",
        "-rfE",
        "--tb=no",
        "--assert=plain",
        "-k",
        "not postgresql",
        "-m",
        "not slow",
        f"--timeout={TEST_LIMIT_S}",
    ),
    *("-p", "bench.mutation_tests", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", f"pythonpath={MUTANTS}"),
]
TIMED_OUT: Final = "timed out"
PASSED, FAILED, INTERRUPTED, NO_TESTS = 0, 1, 2, 5  # exit codes of pytest; interrupted: a module cannot be imported
FAILURE: Final = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


def imports() -> dict[str, set[str]]:
    """Return the modules of the project and of `tests`, each with those that it imports."""
    folders = [link.resolve() for link in (ROOT / "chainfolio").iterdir() if link.is_symlink()]
    paths = [*(ROOT / "chainfolio").glob("*.py"), *(ROOT / "tests").rglob("*.py")]
    paths += [path for folder in folders for path in folder.rglob("*.py")]
    return {module_of(path): set(_imported(path)) for path in paths}


def module_of(path: Path) -> str:
    """Return the name of a module of the project or of `tests`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts if parts[:1] in (("tests",), ("chainfolio",)) else ("chainfolio", *parts))


def _imported(path: Path) -> Iterator[str]:
    """Yield every name that a file imports, with its module: some of them are modules."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_files(module: str, graph: Mapping[str, set[str]]) -> tuple[list[str], list[str], list[str]]:
    """Return the test files that can notice a mutation of a module, in three groups that are run in this order.

    First those that import it, have its name or, for a decoder of a protocol, write its name; then up to MAX_FILES that
    import it through one other module, first those of the same part of the package; at last those of END_TO_END_TESTS.
    Small files come first.
    """
    importers = {name for name, imported in graph.items() if module in imported}
    direct = {name for name in graph if _is_test(name) and (name in importers or _has_name_of(module, name))}
    if ".protocols." in module:
        direct |= {name for name in graph if _is_test(name) and _writes_name_of(module, name)}
    folders = {folder for part, folder in END_TO_END_TESTS.items() if module.startswith(part)}
    end_to_end = {name for name in graph if _is_test(name) and name.split(".")[1] in folders} - direct
    indirect = {name for name, imported in graph.items() if _is_test(name) and imported & importers}
    indirect -= direct | end_to_end
    parts = set(module.split("."))
    same_part = {name for name in indirect if name.split(".")[1] in parts}
    through_modules = [*_by_size(same_part), *_by_size(indirect - same_part)][:MAX_FILES]
    return _by_size(direct), through_modules, _by_size(end_to_end)


def _is_test(name: str) -> bool:
    """Return True for a test file of TEST_FOLDERS that is not left out."""
    top, folder, *_, last = (name.split(".") + [""] * 3)[: max(3, name.count(".") + 1)]
    return top == "tests" and folder in TEST_FOLDERS and last.startswith("test_") and not LEFT_OUT.search(last)


def _has_name_of(module: str, test: str) -> bool:
    """Return True for `test_aave` and `test_aave_v3_risks` of the module `aave_v3`."""
    subject, name = module.rpartition(".")[2], test.rpartition(".")[2].removeprefix("test_")
    return f"{name}_".startswith(f"{subject}_") or f"{subject}_".startswith(f"{name}_")


def _writes_name_of(module: str, test: str) -> bool:
    """Return True if a test file has the name of a module in quotes, as tests of protocols name a family."""
    path = (ROOT / Path(*test.split("."))).with_suffix(".py")
    return path.exists() and f'"{module.rpartition(".")[2]}"' in path.read_text()


def _by_size(modules: Iterable[str]) -> list[str]:
    paths = [Path(*name.split(".")).with_suffix(".py") for name in modules]
    return [path.as_posix() for path in sorted(paths, key=lambda path: ((ROOT / path).stat().st_size, path))]


@dataclass(slots=True)
class TestRun:
    """A process that runs test files on one mutation until a test fails.

    Attributes:
        mutation: Its name in mutmut; empty for the code without a mutation.
        remaining: Groups of test files to run if all tests of this process pass.
        output: What pytest prints.
        end_s: When the process is stopped.
        process_id: Of the process.
    """

    mutation: str
    remaining: list[list[str]]
    output: IO[str]
    end_s: float
    process_id: int


def run_tests(groups_by_mutation: Mapping[str, Iterable[list[str]]], jobs: int) -> Iterator[tuple[str, str]]:
    """Yield each mutation with the test that notices it, TIMED_OUT, or an empty text if none does.

    Raises RuntimeError if pytest cannot run the tests.
    """
    pending = [(mutation, [group for group in groups if group]) for mutation, groups in groups_by_mutation.items()]
    _import_tests({file.partition("::")[0] for _, groups in pending for group in groups for file in group})
    running: list[TestRun] = []
    try:
        while pending or running:
            while pending and len(running) < jobs:
                mutation, groups = pending.pop(0)
                if groups:
                    running.append(_started(mutation, groups))
                else:
                    yield mutation, ""
            time.sleep(POLL_S)
            for each in list(running):
                test = _outcome(each)
                if test is None:
                    continue
                running.remove(each)
                each.output.close()
                if not test and each.remaining:
                    running.append(_started(each.mutation, each.remaining))
                else:
                    yield each.mutation, test
    finally:
        for each in running:
            with contextlib.suppress(OSError):  # it has ended
                os.killpg(each.process_id, signal.SIGKILL)
                os.waitpid(each.process_id, 0)


def _import_tests(files: Iterable[str]) -> None:
    """Import test files and all that they need from the mutated package: the forks have them in memory."""
    os.environ |= {"MUTANT_UNDER_TEST": "", "PYTHONPATH": str(MUTANTS), "PYTHONSAFEPATH": "1", "COLUMNS": "400"}
    os.environ.setdefault("CHAINFOLIO_LOCALCHAIN_HOME", str(ROOT / ".localchain"))
    sys.path[:] = [str(MUTANTS), *(path for path in sys.path if path not in ("", str(ROOT), str(MUTANTS))), str(ROOT)]
    for name in [name for name in sys.modules if name.partition(".")[0] == "chainfolio"]:
        del sys.modules[name]  # `bench` has imported it without mutations
    importlib.import_module("tests.conftest")
    do_not_shrink()
    for file in sorted(files):
        importlib.import_module(module_of(ROOT / file))


def _started(mutation: str, groups: list[list[str]]) -> TestRun:
    """Start the tests of the first group in a fork."""
    output = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
    sys.stdout.flush()
    process_id = os.fork()
    if process_id:
        with contextlib.suppress(OSError):  # the fork has set it already, or has ended
            os.setpgid(process_id, process_id)
        return TestRun(mutation, groups[1:], output, time.monotonic() + RUN_LIMIT_S, process_id)
    code = 70
    try:
        os.setpgid(0, 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        os.environ["MUTANT_UNDER_TEST"] = mutation
        with tempfile.TemporaryDirectory(prefix="mutation-") as folder:  # other processes delete pytest's default
            code = int(pytest.main([*OPTIONS, f"--basetemp={folder}/tests", *groups[0]]))
    except BaseException:  # a fork must never go on with the work of its parent
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _outcome(run: TestRun) -> str | None:
    """Return the failed test, TIMED_OUT, an empty text if all passed, or None while the tests run."""
    process_id, status = os.waitpid(run.process_id, os.WNOHANG)
    if not process_id:
        if time.monotonic() < run.end_s:
            return None
        os.killpg(run.process_id, signal.SIGKILL)
        os.waitpid(run.process_id, 0)
        return TIMED_OUT
    code = os.waitstatus_to_exitcode(status)
    if code in (PASSED, NO_TESTS):
        return ""
    run.output.seek(0)
    text = run.output.read()
    failure = FAILURE.search(text)
    if code not in (FAILED, INTERRUPTED) or failure is None:
        raise RuntimeError(f"pytest ended with {code}: {text[-2000:]}")
    return TIMED_OUT if "Failed: Timeout" in failure[0] else failure[1]
