"""First files of a new protocol: the file of a fork, or a small package with a decoder and its test.

The decoder itself is scaffolded by the kit of its kind of chain.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from chainfolio.errors import BadRequest, StoreError
from chainfolio.indexer.families import module_of
from chainfolio.protocols import ProtocolFamily
from chainfolio.recordings import DecoderKit

KEY = re.compile(r"[a-z][a-z0-9_]{0,31}\Z")
ROLE = re.compile(r"[a-z][a-z0-9_]*\Z")

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "chainfolio-{dashed}"
version = "0.1.0"
description = "Positions in {title}, for Chainfolio"
requires-python = ">=3.11"
# Chainfolio is an application: this is installed into its environment, and does not ask for it.

[project.entry-points."chainfolio.protocols"]
{key} = "chainfolio_{key}"

[tool.hatch.build.targets.wheel]
packages = ["chainfolio_{key}"]
"""
PUBLIC = "chainfolio.plugins.protocol"  # by its name: the layers forbid this module to import it
PACKAGE = (
    '"""Positions in {title}: every module here with a FAMILY, and every protocol file, is found once installed."""\n'
)
TEST = '''\
"""What was found of real accounts is still found: `chainfolio record` makes a recording, one file each."""

import json
import subprocess
import sys
from pathlib import Path

RECORDINGS = Path(__file__).parent / "recordings"


def test_recorded_accounts_have_what_was_found() -> None:
    command = [sys.executable, "-m", "chainfolio", "test-protocol", str(RECORDINGS), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads(ended.stdout)["recordings"]
'''


@dataclass(frozen=True, slots=True)
class Deployment:
    """Contracts of a protocol on one chain, by role, and the options of its file."""

    chain: str = ""
    contracts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProtocolFields:
    """Fields that a family reads of its file: roles of contracts (required ones first), and options."""

    roles: tuple[str, ...]
    options: tuple[str, ...]


def protocol_fields(family: ProtocolFamily) -> ProtocolFields:
    """Return the fields that a family reads from its file."""
    return ProtocolFields(family.all_roles, family.options)


def check_key(key: str) -> None:
    """Raise BadRequest if a text cannot be the key of a protocol."""
    if not KEY.match(key) or key == "wallet":
        raise BadRequest(
            "NAME", f"{key!r} cannot be a protocol's key", remedy="lower-case letters, digits and _, as in my_swap"
        )


def deployment(
    chain: str, contracts: Sequence[str], options: Sequence[str], address_of: Callable[[str], str]
) -> Deployment:
    """Parse the options ROLE=0x… and NAME=TEXT of a command line.

    Raises:
        BadRequest: An option cannot be parsed, or there are contracts without a chain.
    """
    if contracts and not chain:
        raise BadRequest("chain", "a contract lies on a chain", remedy="--chain ethereum")
    by_role: dict[str, list[str]] = {}
    for text in contracts:
        role, address = _pair("contract", text, "ROLE=0x…")
        by_role.setdefault(role, []).append(address_of(address))
    return Deployment(chain, by_role, dict(_pair("option", text, "NAME=TEXT") for text in options))


def _pair(option: str, text: str, form: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not ROLE.match(name) or not value:
        raise BadRequest(option, f"{text!r} is not {form}")
    return name, value


def title(key: str) -> str:
    """Return a key as a title: `my_swap` becomes `My Swap`."""
    return key.replace("_", " ").title()


def file_text(key: str, family: str, deployed: Deployment, fields: ProtocolFields) -> str:
    """Return the TOML text of a protocol file; options and roles without a value are comments.

    Args:
        key: The protocol; its name is the key as a title.
        deployed: Options and contracts that are known.
        fields: Names of all options and roles that the family reads.
    """
    lines = [f'key = "{key}"', f'name = "{title(key)}"', f'families = ["{family}"]', ""]
    open_options = [name for name in fields.options if name not in deployed.options]
    if deployed.options or open_options:
        lines.append("[options]")
        lines += [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in deployed.options.items()]
        lines += [f'# {name} = "…"' for name in open_options]
        lines.append("")
    if deployed.contracts:
        lines.append(f"[contracts.{deployed.chain}]")
        lines += [f"{role} = {json.dumps(list(addresses))}" for role, addresses in deployed.contracts.items()]
        lines += [f'# {role} = ["0x…"]' for role in fields.roles if role not in deployed.contracts]
    else:
        lines += ["[contracts]", "# Where it is deployed, addresses in lower case:", "# [contracts.ethereum]"]
        lines += [f'# {role} = ["0x…"]' for role in fields.roles]
    return "\n".join(lines) + "\n"


def package(key: str, like: ProtocolFamily | None, deployed: Deployment, kit: DecoderKit) -> dict[str, str]:
    """Return the texts of a package's files by path; nothing is written.

    The decoder is a copy of `like` under the name `key`; without `like` it is the kit's scaffold with the role `pool`.
    """
    names = {"key": key, "dashed": key.replace("_", "-"), "title": title(key)}
    folder = f"chainfolio_{key}"
    fields = ProtocolFields(("pool",), ()) if like is None else protocol_fields(like)
    return {
        "pyproject.toml": PYPROJECT.format(**names),
        f"{folder}/__init__.py": PACKAGE.format(**names),
        f"{folder}/{key}.py": kit.scaffold(key, title(key)) if like is None else renamed(like, key),
        f"{folder}/{key}.toml": file_text(key, key, deployed, fields),
        f"tests/test_{key}.py": TEST,
    }


def renamed(family: ProtocolFamily, name: str) -> str:
    """Return the source of a family's module with `name` for the family, and imports of public names only.

    Raises:
        BadRequest: The source does not name the family in a call of `Family`.
    """
    source = inspect.getsource(module_of(family))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Family" and node.args:
            first = node.args[0]
            lines = source.splitlines(keepends=True)
            line = lines[first.lineno - 1].encode()
            lines[first.lineno - 1] = (
                line[: first.col_offset] + f'"{name}"'.encode() + line[first.end_col_offset :]
            ).decode()
            return public_imports("".join(lines))
    raise BadRequest("like", f"the source of `{family.name}` does not name it", remedy="start from another one")


def public_imports(source: str) -> str:
    """Return a decoder's source that imports public names from `chainfolio.plugins`, in one statement.

    A statement with a name that is not public stays: its module has to be copied too. Other lines are unchanged.
    """
    public = set(import_module(PUBLIC).__all__)
    names = list[str]()
    lines = source.splitlines(keepends=True)
    line_ranges = list[tuple[int, int]]()
    for node in ast.parse(source).body:
        is_own = isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "chainfolio"
        if is_own and isinstance(node, ast.ImportFrom) and all(each.name in public for each in node.names):
            names += [each.name if each.asname is None else f"{each.name} as {each.asname}" for each in node.names]
            line_ranges.append((node.lineno - 1, node.end_lineno or node.lineno))
    if not line_ranges:
        return source
    text = f"from {PUBLIC} import (\n" + "".join(f"    {name},\n" for name in sorted(set(names))) + ")\n"
    for first, last in reversed(line_ranges):
        lines[first:last] = [text] if first == line_ranges[0][0] else []
    return "".join(lines)


def write(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write files that do not exist yet, with their folders, and return their paths.

    Args:
        files: Texts by path below `folder`.

    Raises:
        BadRequest: A file exists already; none is written.
        StoreError: A file cannot be written; earlier ones stay.
    """
    paths = {folder / name: text for name, text in files.items()}
    for path in paths:
        if path.exists():
            raise BadRequest("NAME", f"{path} exists already", remedy="choose another name, or another --dir")
    for path, text in paths.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x") as file:
                file.write(text)
        except OSError as error:
            raise StoreError(
                "files", f"{path}: {error.strerror}", remedy="name a folder that can be written to"
            ) from None
    return list(paths)
