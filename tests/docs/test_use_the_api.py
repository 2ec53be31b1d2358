"""Every curl line of the docs is run, as it stands there, and answers in the shape that is shown."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from tests.e2e.running import ALICE, Demo, Running

ROOT = Path(__file__).resolve().parents[2]
# In this order: what one asks for, a subscription for example, the next may need.
PAGES = [ROOT / "docs" / "how-to" / name for name in ("use-the-api.md", "ask-for-the-past.md")]
EVERY_PAGE = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")]
FENCES = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
# What a reader takes from one answer into a later call.
TAKEN: dict[str, Callable[[Any], Any]] = {
    "CURSOR": lambda answer: answer["cursor"],
    "BUNDLE": lambda answer: answer["data"]["id"],
    "VIRTUAL": lambda answer: answer[0]["address"],
}

pytestmark = [
    pytest.mark.node,
    pytest.mark.xdist_group("demo"),
    pytest.mark.skipif(which("curl") is None, reason="there is no curl here"),
]


@dataclass(frozen=True)
class Example:
    """A command, and the answer that the page shows for it, if it does."""

    command: str
    expected_json: str | None

    @property
    def name(self) -> str:
        """Return the request that it makes."""
        method = re.search(r"-X (\w+)", self.command)
        path = re.search(r"\$URL(/[^\"?]+)", self.command)
        assert path
        return f"{method[1] if method else 'GET'} {path[1]}"


def examples(page: Path) -> Iterator[Example]:
    fences = FENCES.findall(page.read_text())
    for number, (language, body) in enumerate(fences):
        if language == "sh" and "$URL/" in body:
            after = fences[number + 1] if number + 1 < len(fences) else ("", "")
            yield Example(body, after[1] if after[0] == "json" else None)


EXAMPLES = [example for page in PAGES for example in examples(page)]


@dataclass(frozen=True)
class ReadResult:
    """Exit code, status and body of a command."""

    status: int
    body: str


@pytest.fixture(scope="module")
def answers(demo: Demo, ethereum: Running, tmp_path_factory: pytest.TempPathFactory) -> list[ReadResult]:
    """Run all examples, in the order of the pages. Those about Ethereum go to the server that has such a chain."""
    holdings = tmp_path_factory.mktemp("holdings") / "holdings.json"
    holdings.write_text(json.dumps([{"chain": "local", "contract": "native", "amount": "1.5"}]))
    (owner,) = [each["accountId"] for each in demo.command("account", "list") if each["name"] == "demo"]
    demo.command(
        "virtual-user", "add", "--account", owner, "--type", "BALANCE", "--label", "Cold", "--file", str(holdings)
    )
    ethereum_key = ethereum.account("reader", grants=("portfolio", "at-block")).key
    results: list[ReadResult] = []
    variables: dict[str, str] = {}
    for example in EXAMPLES:
        url, key = (ethereum.url, ethereum_key) if "ethereum" in example.command else (demo.url, demo.key)
        environment = {**os.environ, "URL": f"{url}/v1", "KEY": key, "WALLET": ALICE, **variables}
        results.append(run(example.command, environment))
        variables |= take(results[-1].body)
    return results


def run(command: str, environment: dict[str, str]) -> ReadResult:
    """Runs a command in a shell, where curl says the status behind the body."""
    script = "curl() { command curl -w '\\n%{http_code}' \"$@\"; }\n" + command
    process = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    body, _, status = process.stdout.rpartition("\n")
    return ReadResult(int(status or 0), body or process.stderr)


def take(body: str) -> dict[str, str]:
    variables: dict[str, str] = {}
    for name, pick in TAKEN.items():
        try:
            value = pick(json.loads(body))
        except (ValueError, LookupError, TypeError):
            continue
        if isinstance(value, str):
            variables[name] = value
    return variables


def differences(expected: Any, answered: Any, path: str = "answer") -> list[str]:
    """Return where an answer lacks a shown field, or has another type; it may hold more."""
    if isinstance(expected, bool) or expected is None or isinstance(answered, bool):
        return [] if type(expected) is type(answered) else [f"{path}: {answered!r}, shown {expected!r}"]
    if isinstance(expected, (int, float)):
        return [] if isinstance(answered, (int, float)) else [f"{path}: {answered!r}, shown {expected!r}"]
    if type(expected) is not type(answered):
        return [f"{path}: {answered!r}, shown {expected!r}"]
    if isinstance(expected, dict):
        missing = [f"{path}.{name}: missing" for name in expected if name not in answered]
        return missing + [
            line
            for name in expected
            if name in answered
            for line in differences(expected[name], answered[name], f"{path}.{name}")
        ]
    if isinstance(expected, list) and expected:
        return differences(expected[0], answered[0], f"{path}[0]") if answered else [f"{path}: empty"]
    return []


def test_every_curl_line_is_an_example() -> None:
    run_here = {example.command for example in EXAMPLES}
    fences = [body for page in EVERY_PAGE for _, body in FENCES.findall(page.read_text())]
    fences = [body for body in fences if not re.search("^chainfolio ", body, re.M)]  # `test_commands` runs those
    examples_shown = [body for body in fences if re.search(r"^\s*(?:\$ )?curl ", body, re.M)]
    assert len(examples_shown) > 30
    assert [body for body in examples_shown if body not in run_here] == []


def test_the_page_shows_every_group_of_calls() -> None:
    text = "\n".join(example.command for example in EXAMPLES)
    groups = (
        "portfolio",
        "wallet",
        "nav",
        "historical",
        "token-overview",
        "portfolio/at-block",
        "approvals",
        "addressbook",
        "bundles",
        "virtual-users",
        "chains",
        "status",
        "credits",
        "contract-protocol",
        "subscribe-snapshot",
        "sync-transactions",
    )
    assert [group for group in groups if f"$URL/{group}" not in text] == []


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=lambda number: f"{number} {EXAMPLES[number].name}")
def test_an_example_works_and_answers_what_is_shown(answers: list[ReadResult], number: int) -> None:
    example, answer = EXAMPLES[number], answers[number]
    assert answer.status == (204 if is_deletion(example) else 200), f"{example.command}\n{answer.body[:600]}"
    if answer.status == 204:
        assert answer.body == ""
        return
    event = re.search("^data: (.*)$", answer.body, re.M) if answer.body.startswith("retry: ") else None
    document = json.loads(answer.body if event is None else event[1])
    if example.expected_json is not None:
        assert differences(json.loads(example.expected_json), document) == []


def is_deletion(example: Example) -> bool:
    """Taking an address out of a bundle answers with the bundle."""
    return example.name.startswith("DELETE") and "/addresses/" not in example.name
