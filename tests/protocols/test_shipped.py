"""The shipped protocol files name decoders that are installed, and roles and options that these ask for."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from chainfolio.protocols import Always, Collection, Counterparty, Token
from indexer.families import families

FILES = {
    path.stem: tomllib.loads(path.read_text())
    for path in sorted((Path(__file__).parents[2] / "configs" / "protocols").glob("*.toml"))
}


@pytest.mark.parametrize("key", [key for key, file in FILES.items() if file.get("families")])
def test_each_family_of_a_file_is_installed_and_concerns_somebody_by_it(key: str) -> None:
    named = {role for roles in FILES[key]["contracts"].values() for role in roles}
    for name in FILES[key]["families"]:
        rules = families()[name].rules
        roles = {rule.role for rule in rules if isinstance(rule, Always | Collection | Counterparty | Token)}
        assert "" in roles or roles & named, f"no contract of {key} is in a role of {name}: {sorted(roles)}"
