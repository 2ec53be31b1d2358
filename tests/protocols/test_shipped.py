"""Shipped protocol files name installed decoders, and roles and options that these require."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from chainfolio.adapters.evm.positions.rules import Collection, Counterparty, Event, EveryAccount, Family, Rule, Token
from chainfolio.indexer.families import families

PROTOCOLS = Path(__file__).parents[2] / "configs" / "protocols"
FILES = {path.stem: tomllib.loads(path.read_text()) for path in sorted(PROTOCOLS.glob("*.toml"))}


def rules_of(name: str) -> Sequence[Rule]:
    family = families()[name]
    assert isinstance(family, Family)
    return family.rules


@pytest.mark.parametrize("key", [key for key, file in FILES.items() if file.get("families")])
def test_each_family_of_a_file_is_installed_and_concerns_somebody_by_it(key: str) -> None:
    role_names = {role for roles in FILES[key]["contracts"].values() for role in roles}
    for name in FILES[key]["families"]:
        family = families()[name]
        assert family.can_find_accounts(role_names), (
            f"no contract of {key} is in a role of {name}: {family.lookup_roles}"
        )


def test_for_each_family_it_is_written_down_who_could_mint_its_positions() -> None:
    table = (PROTOCOLS.parents[1] / "docs" / "decisions" / "0016-trusted-shares.md").read_text()
    assert [name for name in families() if f"`{name}`" not in table] == []


def test_each_fork_is_of_a_family_that_is_installed_and_in_a_role_that_it_knows() -> None:
    with (PROTOCOLS / "forks.csv").open(newline="") as file:
        pairs = {(row["family"], row["role"]) for row in csv.DictReader(file)}
    for name, role in pairs:
        rules = rules_of(name)
        assert role in {rule.role for rule in rules if isinstance(rule, Collection | Counterparty | Token)}
        # Hundreds of forks with indexed events, or with a read for every wallet, would slow every snapshot.
        assert role not in {rule.role for rule in rules if isinstance(rule, EveryAccount | Event)}
