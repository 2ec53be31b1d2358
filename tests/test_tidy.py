"""The house rules that no linter knows. Each failure names the file, the line and what stands there."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = (
    "adapters",
    "agents",
    "alerts",
    "api",
    "bench",
    "chainfolio",
    "cli",
    "clients",
    "configs",
    "dashboard",
    "engine",
    "exports",
    "indexer",
    "localchain",
    "portfolio",
    "pricing",
    "storage",
    "tests",
    "transport",
)
# The marks are spelt with a bracket in them so that this file does not contain what it forbids.
REGISTRIES = re.compile(
    r"py[p]i\.org|pythonhosted\.[o]rg|npm[j]s\.(?:org|com)|registry\.[y]arnpkg|(?:deb|security)\.[d]ebian\.org"
    r"|arch[i]ve\.ubuntu\.com|jf[r]og|artif[a]ctory|index-[u]rl\s*[=:]|find-[l]inks\s*[=:]|file:/{2}[/]",
    re.IGNORECASE,
)
MACHINE_PATHS = re.compile(r"(?<![\w.})/-])/(?:(?:root|home)/|work\b)")
TEMPORARY_PATHS = re.compile(r"(?<![\w.})/-])/tmp/")
UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E|X[X]X)\b")
BROAD_EXCEPT = re.compile(r"^\s*except(?:\*?\s[^:]*\b(?:Base)?Exception\b[^:]*)?\s*:")
REASON = re.compile(r"#\s*(?!noqa|type:|pragma)\w+.*\s\w+")
# What only a chain of the EVM has: its address shape, its null address, its CAIP-2 namespace.
OF_EVM = re.compile(r"0x[0-9a-fA-F]{40}\b|\{40\}|ZERO_ADDRESS|eip155:|\"0\" \* 4")
ANY_KIND = ("engine/", "portfolio/", "pricing/", "api/", "indexer/", "cli/")
EXAMPLES = ("api/example_addresses.py", "cli/examples.py", "cli/demo.py")
EXACT = ("adapters/", "portfolio/", "pricing/", "chainfolio/amounts.py")
MAX_MODULE = 450
STANDALONE = {"exports/close/check_pack.py": 600}  # one file that an auditor reads and runs alone
MAX_TESTS = 700  # lines of a module of tests, whose tables take a line a case
MAX_FUNCTION = 60
MAX_FUNCTION_P90 = 18  # lines from `def` to the end, without the docstring
MAX_LINE = 120
# Data (TOML) and prose (Markdown) have lines as long as their facts and tables need.
LINES_COUNT = {".py", ".sh", ".sql", ".css", ".js", ".mjs", ".cjs", ".html", ""}
FRAGMENT = re.compile(r"[0-9A-Za-z]+-[a-z0-9]+(?:-[a-z0-9]+)*\.md")


@cache
def files() -> tuple[Path, ...]:
    """Every file of the repository: tracked, or new and not ignored."""
    output = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    return tuple(path for name in sorted(set(output.split("\0")) - {""}) if (path := ROOT / name).is_file())


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def is_own(path: Path) -> bool:
    """Return True if a file was written here, and neither taken over nor made by a tool."""
    return not (
        path.name in {"LICENSE", "package-lock.json"} or path.suffix == ".lock" or ".min." in path.name
    ) and not ({"vendor", "node_modules"} & set(PurePosixPath(name(path)).parts))


@cache
def lines(path: Path) -> tuple[str, ...]:
    """The lines of a text file; of a binary one, none."""
    data = path.read_bytes()
    if b"\0" in data[:8192]:
        return ()
    return tuple(data.decode("utf-8", errors="replace").splitlines())


def modules() -> list[Path]:
    return [path for path in files() if path.suffix == ".py"]


def matches(pattern: re.Pattern[str], paths: Iterator[Path] | list[Path] | tuple[Path, ...]) -> list[str]:
    return [
        f"{name(path)}:{number}: {line.strip()[:120]}"
        for path in paths
        for number, line in enumerate(lines(path), 1)
        if pattern.search(line)
    ]


def explained(path: Path, number: int, reason: re.Pattern[str]) -> bool:
    """A comment that matches `reason` stands on line `number` (from 1) or on the one before."""
    text = lines(path)
    return any(reason.search(text[at]) for at in (number - 1, number - 2) if at >= 0)


def test_no_file_names_a_package_registry() -> None:
    assert matches(REGISTRIES, files()) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert matches(MACHINE_PATHS, files()) == []
    assert matches(TEMPORARY_PATHS, [path for path in files() if not name(path).startswith("tests/")]) == []


def test_nothing_is_left_for_later() -> None:
    assert matches(UNFINISHED, [path for path in files() if is_own(path)]) == []


def test_a_module_has_one_thing_to_say() -> None:
    def most(path: Path) -> int:
        return MAX_TESTS if name(path).startswith("tests/") else STANDALONE.get(name(path), MAX_MODULE)

    assert [f"{name(path)}: {len(lines(path))} lines" for path in modules() if len(lines(path)) > most(path)] == []


def test_functions_are_short() -> None:
    lengths: list[int] = []
    too_long = []
    for path in modules():
        package, _, inner_path = name(path).partition("/")
        if not inner_path or package == "tests" or package not in PACKAGES:
            continue
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = line_count(node)
                docstring = node.body[0] if ast.get_docstring(node) is not None else None
                lengths.append(length - (line_count(docstring) if docstring else 0))
                if length > MAX_FUNCTION:
                    too_long.append(f"{name(path)}:{node.lineno}: {node.name}: {length} lines")
    assert len(lengths) > 5000
    assert too_long == []
    assert sorted(lengths)[len(lengths) * 9 // 10] <= MAX_FUNCTION_P90


def line_count(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_the_readme_is_read_in_minutes() -> None:
    assert 60 <= len(lines(ROOT / "README.md")) <= 120


def test_no_module_is_a_drawer() -> None:
    assert [name(path) for path in modules() if re.fullmatch(r"(?:utils?|helpers?)\d*\.py", path.name)] == []
    assert [name(path) for path in modules() if re.search(r"/(?:utils?|helpers?)/", f"/{name(path)}")] == []


def test_lines_fit_a_page() -> None:
    assert [
        f"{name(path)}:{number}: {len(line)} columns"
        for path in files()
        if is_own(path) and path.suffix in LINES_COUNT
        for number, line in enumerate(lines(path), 1)
        if len(line) > MAX_LINE
    ] == []


@pytest.mark.parametrize("package", [package for package in PACKAGES if (ROOT / package).is_dir()])
def test_a_part_says_what_it_is_on_one_page(package: str) -> None:
    readme = ROOT / package / "README.md"
    assert readme.is_file(), f"{package}/ has no README.md"
    text_lines = [line for line in lines(readme) if not re.match(r"\| [a-z]+ \| .* \| (?:yes|\*\*no\*\*|–) \|$", line)]
    assert 10 <= len(text_lines) <= 40, f"{package}/README.md has {len(text_lines)} lines, figures aside, not 10 to 40"


@pytest.mark.parametrize("package", ["bench", "chainfolio", "tests"])
def test_no_installed_distribution_takes_one_of_our_names(package: str) -> None:
    assert set(packages_distributions().get(package, [])) <= {"chainfolio"}


def test_changes_are_told_in_named_fragments() -> None:
    fragments = [path for path in files() if name(path).startswith("changelog.d/") and path.name != "README.md"]
    assert [name(path) for path in fragments if not FRAGMENT.fullmatch(path.name)] == []
    assert [name(path) for path in fragments if not path.read_text().strip()] == []


def test_every_decision_stands_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    assert [path.name for path in folder.glob("[0-9]*.md") if f"]({path.name})" not in index] == []


def test_a_float_near_money_says_why() -> None:
    assert [
        f"{name(path)}:{number}: {line.strip()}"
        for path in modules()
        if name(path).startswith(EXACT)
        for number, line in enumerate(lines(path), 1)
        if re.search(r"(?<![\w.])float\(", line) and not explained(path, number, re.compile(r"# float: \w+"))
    ] == []


def test_a_broad_except_says_why() -> None:
    assert [
        f"{name(path)}:{number}: {line.strip()}"
        for path in modules()
        for number, line in enumerate(lines(path), 1)
        if BROAD_EXCEPT.match(line) and not explained(path, number, REASON)
    ] == []


def test_what_knows_things_opens_no_address() -> None:
    """Check the part of "no I/O" that import-linter cannot: it sees whole distributions, and `urllib.parse` is fine."""
    pure = [path for path in modules() if name(path).startswith(("chainfolio/", "portfolio/"))]
    assert [
        f"{name(path)}:{node.lineno}"
        for path in pure
        for node in ast.walk(ast.parse(path.read_text(), str(path)))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for imported in imports(node)
        if imported == "urllib.request" or imported.startswith("http.")
    ] == []


def imports(node: ast.Import | ast.ImportFrom) -> list[str]:
    names = [alias.name for alias in node.names]
    if isinstance(node, ast.Import):
        return names
    return [node.module, *(f"{node.module}.{each}" for each in names)] if node.module else []


@pytest.mark.parametrize(
    ("pattern", "forbidden", "allowed"),
    [
        (REGISTRIES, "https://py" + "pi.org/simple", "sqlite:///data/state.db"),
        (REGISTRIES, "file:" + "///wheels", "file: data/lake"),
        (MACHINE_PATHS, '"/' + 'home/me/x"', "states/{id}/root/"),
        (MACHINE_PATHS, "cd /" + "work", "/v1/work-in-progress"),
        (UNFINISHED, "# TO" + "DO: later", "mktemp foo.XXXXXX"),
        (BROAD_EXCEPT, "    except Exception as error:", "    except TimeoutError as error:"),
        (BROAD_EXCEPT, "except (KeyError, BaseException):", "except ChainfolioException:"),
        (BROAD_EXCEPT, "except:", "except KeyError:"),
        (REASON, "except Exception:  # a decoder is a stranger's code", "except Exception:  # noqa: BLE001"),
    ],
)
def test_these_rules_can_fail(pattern: re.Pattern[str], forbidden: str, allowed: str) -> None:
    assert pattern.search(forbidden)
    assert not pattern.search(allowed)


def test_what_serves_every_kind_of_chain_names_no_address_of_one() -> None:
    lines_by_name: dict[str, int] = {}
    for path in files():
        name = str(path.relative_to(ROOT))
        if name.startswith(ANY_KIND) and name.endswith(".py") and name not in EXAMPLES:
            lines = sum(bool(OF_EVM.search(line)) for line in path.read_text().splitlines())
            lines_by_name |= {name: lines} if lines else {}
    assert not lines_by_name
