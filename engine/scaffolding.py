"""What a new protocol starts from: the file of a fork, or a small package with a decoder of its own and its test.

The decoder itself is scaffolded by the kit of its kind of chain."""

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
PUBLIC = "chainfolio.plugins.protocol"  # by its name: it is above this module
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
    """Where a protocol lies, addresses by role on one chain, and what its file says beside."""

    chain: str = ""
    contracts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wants:
    """What a family may be told by a file: roles of contracts, those that its rules name first, and options."""

    roles: tuple[str, ...]
    options: tuple[str, ...]


def wants(family: ProtocolFamily) -> Wants:
    """What a family reads of its file."""
    return Wants(family.all_roles, family.options)


def check_key(key: str) -> None:
    """BadRequest where a protocol cannot be called so."""
    if not KEY.match(key) or key == "wallet":
        raise BadRequest(
            "NAME", f"{key!r} cannot be a protocol's key", remedy="lower-case letters, digits and _, as in my_swap"
        )


def deployment(
    chain: str, contracts: Sequence[str], options: Sequence[str], address_of: Callable[[str], str]
) -> Deployment:
    """ROLE=0x… and NAME=TEXT as they are written on a command line; BadRequest says which cannot be meant."""
    if contracts and not chain:
        raise BadRequest("chain", "a contract lies on a chain", remedy="--chain ethereum")
    by_role: dict[str, list[str]] = {}
    for written in contracts:
        role, address = _pair("contract", written, "ROLE=0x…")
        by_role.setdefault(role, []).append(address_of(address))
    return Deployment(chain, by_role, dict(_pair("option", written, "NAME=TEXT") for written in options))


def _pair(where: str, written: str, form: str) -> tuple[str, str]:
    name, sign, value = written.partition("=")
    if not sign or not ROLE.match(name) or not value:
        raise BadRequest(where, f"{written!r} is not {form}")
    return name, value


def title(key: str) -> str:
    """A key as people would write it."""
    return key.replace("_", " ").title()


def file_text(key: str, family: str, where: Deployment, wanted: Wants) -> str:
    """A protocol file; what is not known yet stands in it as comments."""
    lines = [f'key = "{key}"', f'name = "{title(key)}"', f'families = ["{family}"]', ""]
    open_options = [name for name in wanted.options if name not in where.options]
    if where.options or open_options:
        lines.append("[options]")
        lines += [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in where.options.items()]
        lines += [f'# {name} = "…"' for name in open_options]
        lines.append("")
    if where.contracts:
        lines.append(f"[contracts.{where.chain}]")
        lines += [f"{role} = {json.dumps(list(addresses))}" for role, addresses in where.contracts.items()]
        lines += [f'# {role} = ["0x…"]' for role in wanted.roles if role not in where.contracts]
    else:
        lines += ["[contracts]", "# Where it is deployed, addresses in lower case:", "# [contracts.ethereum]"]
        lines += [f'# {role} = ["0x…"]' for role in wanted.roles]
    return "\n".join(lines) + "\n"


def package(key: str, like: ProtocolFamily | None, where: Deployment, kit: DecoderKit) -> dict[str, str]:
    """The files of a package, by path: the decoder is that of the family it is like, or the scaffold of the kit."""
    names = {"key": key, "dashed": key.replace("_", "-"), "title": title(key)}
    inside = f"chainfolio_{key}"
    wanted = Wants(("pool",), ()) if like is None else wants(like)
    return {
        "pyproject.toml": PYPROJECT.format(**names),
        f"{inside}/__init__.py": PACKAGE.format(**names),
        f"{inside}/{key}.py": kit.scaffold(key, title(key)) if like is None else renamed(like, key),
        f"{inside}/{key}.toml": file_text(key, key, where, wanted),
        f"tests/test_{key}.py": TEST,
    }


def renamed(family: ProtocolFamily, name: str) -> str:
    """The source of a family's module, in which the family is called otherwise."""
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
    """A decoder's source that imports from `chainfolio.plugins` what is public. What it shares with other decoders is
    not: it is imported as it was, and has to be copied too."""
    public = set(import_module(PUBLIC).__all__)
    names = list[str]()
    lines = source.splitlines(keepends=True)
    places = list[tuple[int, int]]()
    for node in ast.parse(source).body:
        is_ours = isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "chainfolio"
        if is_ours and isinstance(node, ast.ImportFrom) and all(each.name in public for each in node.names):
            names += [each.name if each.asname is None else f"{each.name} as {each.asname}" for each in node.names]
            places.append((node.lineno - 1, node.end_lineno or node.lineno))
    if not places:
        return source
    text = f"from {PUBLIC} import (\n" + "".join(f"    {name},\n" for name in sorted(set(names))) + ")\n"
    for first, last in reversed(places):
        lines[first:last] = [text] if first == places[0][0] else []
    return "".join(lines)


def write(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write files that do not exist yet; BadRequest, and nothing written, where one does."""
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
