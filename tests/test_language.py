"""Rules of names, docstrings and documents: a maximum of exceptions per 1,000 lines of code.

Each rule has a ceiling. A failure lists the places with their lines. A word that is right in one place, such as the
`place` of an order, is an entry of EXCEPTIONS with its reason.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("language")  # one process reads the code once
ROOT = Path(__file__).parent.parent
PRODUCT = (  # with its benchmarks and its local chains
    "adapters",
    "agents",
    "alerts",
    "api",
    "bench",
    "chainfolio",
    "cli",
    "engine",
    "exports",
    "indexer",
    "localchain",
    "portfolio",
    "pricing",
    "storage",
    "transport",
)

# Words that say how a value came to be, or that stand for a noun. A good name is a noun, or a verb with its object.
EVERYDAY = frozenset(
    """about again anybody anyone asked asking aside away began begun behind belonging beside besides borne bring came
    come counted deed deeds done earned everybody everything far few found gathered given gone got grown half heard hear
    held inside kept known lacking lasting least led left listed looked lost lot made many met mine moment more most
    moved named near nobody noted nothing once one other others ours out own owed paid place placed places played
    reached refused rest said same say seen sent settle settled several shown since some spared spoilt standing still
    taken tell there together told tried twice until vouches wanted way ways what when where which while who whole whose
    why with within word words worth worths written""".split()  # noqa: SIM905
)
# A class of one such word, or of one participle.
PARTICIPLE = re.compile(r"(?:[A-Z][a-z]+ed|About|Absent|Always|Forged|Frozen|Kept|Known|Past|Torn|Unfit)")

RIDDLE = re.compile(
    r"(?:What|Whether|Who|Whose|How|Where|Why|When|That|Of|It|Its|The same|Such|Those|Not|Nobody|Nothing|All|Some|As)\b"
)
IDIOM = re.compile(
    r"\b(?:nobody|everybody|somebody|whoever|whatever is|what is no|vouch(?:es|ed)?|cure[sd]?|(?:is|are) told"
    r"|(?:is|are|was) said|by then|beside the|of its own|(?:what )?they are as|what they are|as they are|foretold"
    r"|bears? out|comes? together|no more than|other than what|of which)\b",
    re.IGNORECASE,
)
ANY = re.compile(r"(?::|->|\[|,)\s*Any\b")
LONGEST_SUMMARY = 100  # characters of the first line of a docstring
LONGEST_SENTENCE = 28  # words

CEILINGS = {  # per 1,000 lines of code
    "bare class": 0.0,
    "everyday name": 4.0,
    "riddle docstring": 0.3,
    "idiom": 0.1,
    "format switched off": 0.3,
    "raises undocumented": 0.5,
    "Any": 4.0,
    "late import": 3.0,
}
MOST_LONG_SENTENCES = 5
EXCEPTIONS = {  # "rule: path: name" to its reason
    "bare class: adapters/evm/prover.py: _Word": "a word is 32 bytes of a contract's storage",
    "bare class: adapters/solana/forms.py: Authorized": "the type's name in Solana's stake program",
    "bare class: chainfolio/errors.py: Locked": "errors may be named by the state that they report",
    "bare class: chainfolio/errors.py: Reorged": "errors may be named by the state that they report",
    "bare class: chainfolio/plans.py: Reverted": "the outcome that the EVM and its tools call so",
    "bare class: portfolio/pnl/lots.py: Lot": "what accountants match is a lot",
    "bare class: adapters/evm/prices/chainlink.py: Feed": "Chainlink's name of a price",
}
MOST_EXCEPTIONS = 20


@dataclass
class Census:
    """Places of each rule, and the lines of code that were read."""

    places: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    line_count: int = 0

    def add(self, rule: str, path: str, line: int, text: str) -> None:
        if f"{rule}: {path}: {text}" not in EXCEPTIONS:
            self.places[rule].append(f"{path}:{line}: {text}")

    def rate(self, rule: str) -> float:
        return 1000 * len(self.places[rule]) / self.line_count


@cache
def census() -> Census:
    """Read all code once."""
    result = Census()
    for path in _modules():
        text = (ROOT / path).read_text(encoding="utf-8")
        result.line_count += text.count("\n")
        _read_lines(result, path, text)
        _read_tree(result, path, ast.parse(text))
    return result


def _modules() -> list[str]:
    """Paths of all modules that are tracked, or new and not ignored: bench/home has code of others."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    command += [f"{package}/*.py" for package in PRODUCT]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [path for path in sorted(set(output.splitlines())) if (ROOT / path).is_file()]


def _read_lines(result: Census, path: str, text: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"#\s*fmt:\s*(?:skip|off)", line):
            result.add("format switched off", path, number, line.strip())
        comment = re.search(r"#\s(.*)", line)
        if comment and IDIOM.search(comment[1]):
            result.add("idiom", path, number, comment[1])
        if ANY.search(line) and not line.lstrip().startswith(("from", "import", "#")):
            result.add("Any", path, number, line.strip())


def _read_tree(result: Census, path: str, tree: ast.Module) -> None:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef():
                _read_class(result, path, node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                _read_function(result, path, node)
            case ast.Name(id=name, ctx=ast.Store()) if name.strip("_") in EVERYDAY:
                result.add("everyday name", path, node.lineno, name)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            _read_docstring(result, path, node)


def _read_class(result: Census, path: str, node: ast.ClassDef) -> None:
    name = node.name.lstrip("_")
    if name.lower() in EVERYDAY or PARTICIPLE.fullmatch(name):
        result.add("bare class", path, node.lineno, node.name)


def _read_function(result: Census, path: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    parameters = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    for name in (node.name, *(parameter.arg for parameter in parameters)):
        if name.strip("_") in EVERYDAY:
            result.add("everyday name", path, node.lineno, name)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Import | ast.ImportFrom):
            result.add("late import", path, inner.lineno, ast.unparse(inner))
    errors = set(_raised(node))
    documented = ast.get_docstring(node) or ""
    if errors and not node.name.startswith("_") and not any(error.split(".")[-1] in documented for error in errors):
        result.add("raises undocumented", path, node.lineno, f"{node.name} raises {', '.join(sorted(errors))}")


def _raised(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Names of the typed errors that a function raises itself."""
    for node in ast.walk(function):
        if isinstance(node, ast.Raise) and node.exc:
            error = ast.unparse(node.exc).split("(")[0]
            if error[0].isupper() and error not in ("NotImplementedError", "AssertionError"):
                yield error


def _read_docstring(
    result: Census, path: str, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
) -> None:
    text = ast.get_docstring(node)
    if not text:
        return
    summary = text.splitlines()[0]
    line = getattr(node, "lineno", 1)
    if RIDDLE.match(summary) or len(summary) > LONGEST_SUMMARY:
        result.add("riddle docstring", path, line, summary)
    if IDIOM.search(text):
        result.add("idiom", path, line, summary)


def long_sentences(text: str) -> list[str]:
    """Sentences of a Markdown text with more than 28 words, outside code, tables and headings."""
    prose = re.sub(r"^\s*[|#].*$", "", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE)
    paragraphs = (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", prose))
    sentences = (sentence for text in paragraphs for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`\[*])", text))
    return [sentence for sentence in sentences if len(sentence.split()) > LONGEST_SENTENCE]


@pytest.mark.parametrize("rule", CEILINGS)
def test_code_keeps_the_ceiling_of(rule: str) -> None:
    violations = census().places[rule]
    assert census().rate(rule) <= CEILINGS[rule], f"{len(violations)} places:\n" + "\n".join(violations)


def test_documents_have_short_sentences() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/how-to").glob("*.md"))]
    sentences = [f"{page.name}: {sentence}" for page in pages for sentence in long_sentences(page.read_text("utf-8"))]
    assert len(sentences) <= MOST_LONG_SENTENCES, "\n".join(sentences)


def test_exceptions_are_few_and_used() -> None:
    assert len(EXCEPTIONS) <= MOST_EXCEPTIONS
    for key in EXCEPTIONS:
        path = key.split(": ")[1]
        assert (ROOT / path).is_file(), key


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("class Said: ...", "bare class"),
        ("class _Refused(Exception): ...", "bare class"),
        ("def read(wanted): ...", "everyday name"),
        ("found = 1", "everyday name"),
        ('def read():\n    """What some accounts have."""', "riddle docstring"),
        (f'"""{"Read accounts " * 8}"""', "riddle docstring"),
        ('def read():\n    """Return what nobody vouches for."""', "idiom"),
        ("x = 1  # nobody reads it", "idiom"),
        ("x = 1  # fmt: skip".replace("skip", "off"), "format switched off"),
        ('def read():\n    """Read."""\n    raise LookupFailed("x")', "raises undocumented"),
        ("def read(x: Any) -> None: ...", "Any"),
        ("def read():\n    import os", "late import"),
    ],
)
def test_each_rule_sees_its_fault(source: str, rule: str) -> None:
    result = Census(line_count=1)
    _read_lines(result, "a.py", source)
    _read_tree(result, "a.py", ast.parse(source))
    assert result.places[rule]


def test_plain_code_breaks_no_rule() -> None:
    source = '''
def deployed_venues(tokens: Sequence[str]) -> dict[str, Venue]:
    """Return the deployed venue of each token; tokens without one are left out.

    Raises:
        LookupFailed: The registry did not answer.
    """
    venues = registry.read(tokens)
    raise LookupFailed("no answer")
'''
    result = Census(line_count=1)
    _read_lines(result, "a.py", source)
    _read_tree(result, "a.py", ast.parse(source))
    assert {rule: violations for rule, violations in result.places.items() if violations} == {}


def test_long_sentences_are_seen_outside_code_and_tables() -> None:
    long = " ".join(["word"] * 29) + "."
    assert long_sentences(f"Short. {long.capitalize()}") == [long.capitalize()]
    assert long_sentences(f"```\n{long}\n```\n\n| {long} |\n\n# {long}") == []
