"""`new-protocol` writes usable packages, overwrites nothing, and refuses invalid contracts."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.evm.positions.rules import Counterparty, Family
from chainfolio.indexer import families
from chainfolio.indexer.protocol_files import protocol_of
from chainfolio.protocols import ProtocolFamily
from tests.cli.conftest import Run

FACTORY = "0x" + "FA" * 20
TAKEN = "0x5c69bee701ef814a2b6a3edd4b1652cb9cc5aa6f"  # Uniswap's factory


@pytest.fixture
def folder(here: Path) -> Path:
    """The folder of protocols that the settings name."""
    (here / "chainfolio.toml").write_text('protocols = "protocols"\n')
    return here / "protocols"


def family_in(path: Path) -> ProtocolFamily:
    space: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    family = space["FAMILY"]
    assert isinstance(family, ProtocolFamily)
    return family


def test_a_fork_is_one_file_that_the_settings_find(run: Run, folder: Path) -> None:
    arguments = ("new-protocol", "my_swap", "--fork-of", "uniswap_v2", "--chain", "base", "--contract")
    ran = run(*arguments, f"factory={FACTORY}", "--option", "protocol_fee=1/4", "--json")
    assert ran.code == 0, ran.err
    file = folder / "my_swap.toml"
    assert ran.json["files"] == ["protocols/my_swap.toml"]
    assert any(step.startswith("chainfolio record") and "--chain base" in step for step in ran.json["next"])
    protocol = protocol_of(file, {"base": "evm"})
    assert (protocol.name, protocol.families) == ("My Swap", ["uniswap_v2"])
    assert protocol.contracts == {"base": {"factory": [FACTORY.lower()]}}
    assert protocol.options == {"protocol_fee": "1/4"}
    before = file.read_text()
    repeated = run(*arguments, f"factory={FACTORY}", "--json")
    assert (repeated.code, "already" in repeated.error["reason"], file.read_text()) == (2, True, before)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("Swap",), "cannot be a protocol's key"),
        (("wallet",), "cannot be a protocol's key"),
        (("lido",), "there is a protocol `lido` already"),
        (("swap", "--fork-of", "nothing"), "no protocol family `nothing` is installed"),
        (("swap", "--like", "nothing"), "no protocol family `nothing` is installed"),
        (("swap", "--fork-of", "uniswap_v2"), "by its contracts, in the role of: factory"),
        (
            ("swap", "--fork-of", "uniswap_v2", "--chain", "base", "--contract", f"pool={FACTORY}"),
            "in the role of: factory",
        ),
        (("swap", "--fork-of", "uniswap_v2", "--contract", f"factory={FACTORY}"), "a contract lies on a chain"),
        (("swap", "--chain", "mars"), "no such chain: mars"),
        (("swap", "--chain", "base", "--contract", "factory"), "is not ROLE=0x…"),
        (("swap", "--chain", "base", "--contract", "factory=0x12"), "is not an EVM address"),
        (("swap", "--option", "fee"), "is not NAME=TEXT"),
        (("swap", "--chain", "base", "--contract", f"pool=0x{'0' * 40}"), "is no contract's EVM address"),
        (("swap", "--chain", "ethereum", "--contract", f"pool={TAKEN}"), "belongs to uniswap2 already"),
        (
            ("swap", "--fork-of", "uniswap_v2", "--chain", "ethereum", "--contract", f"factory={TAKEN}"),
            "belongs to uniswap2 already",
        ),
    ],
)
def test_what_could_not_be_read_is_not_written(
    run: Run, folder: Path, here: Path, arguments: tuple[str], reason: str
) -> None:
    ran = run("new-protocol", *arguments, "--json")
    assert ran.code == 2
    assert reason in ran.error["reason"]
    assert [path.name for path in here.iterdir()] == ["chainfolio.toml"]


def test_a_family_that_asks_every_token_needs_other_contracts_of_a_fork(run: Run, folder: Path) -> None:
    arguments = ("new-protocol", "gauges", "--fork-of", "liquidity_gauge", "--chain", "base", "--json")
    assert run(*arguments).code == 2
    assert run(*arguments, "--contract", f"minter={FACTORY}").code == 0


def test_a_fork_needs_a_folder_of_the_settings(run: Run) -> None:
    ran = run("new-protocol", "swap", "--fork-of", "uniswap_v2", "--json")
    assert ran.code == 2
    assert ran.error["remedy"] == 'add protocols = "protocols"'


def test_a_package_starts_with_the_shortest_decoder(run: Run, here: Path) -> None:
    ran = run("new-protocol", "my_stake")
    assert ran.code == 0
    home = here / "chainfolio-my-stake"
    assert sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()) == [
        "chainfolio_my_stake/__init__.py",
        "chainfolio_my_stake/my_stake.py",
        "chainfolio_my_stake/my_stake.toml",
        "pyproject.toml",
        "tests/test_my_stake.py",
    ]
    family = family_in(home / "chainfolio_my_stake" / "my_stake.py")
    assert isinstance(family, Family)
    assert (family.name, family.rules) == ("my_stake", (Counterparty("pool"),))
    entries = tomllib.loads((home / "pyproject.toml").read_text())["project"]["entry-points"]
    assert entries == {families.GROUP: {"my_stake": "chainfolio_my_stake"}}
    assert protocol_of(home / "chainfolio_my_stake" / "my_stake.toml", {}).families == ["my_stake"]
    contents = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    repeated = run("new-protocol", "my_stake")
    assert repeated.code == 2
    assert "exists already" in repeated.err
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == contents


@pytest.mark.slow(
    "other families are renamed in the same way",
    fast=["aave_v3", "erc4626", "uniswap_v2", "uniswap_v4", "orca_whirlpool", "staking_rewards"],
)
@pytest.mark.parametrize("like", sorted(families.families()))
def test_a_package_may_start_as_any_family_under_its_own_name(run: Run, here: Path, like: str) -> None:
    assert run("new-protocol", "mine", "--like", like, "--option", 'word=a "quoted" \\ text').code == 0
    package = here / "chainfolio-mine" / "chainfolio_mine"
    family, original = family_in(package / "mine.py"), families.families()[like]
    assert (type(family), family.name, family.kind) == (type(original), "mine", original.kind)
    assert (family.lookup_roles, family.all_roles) == (original.lookup_roles, original.all_roles)
    if isinstance(family, Family) and isinstance(original, Family):
        assert (family.rules, family.position_type) == (original.rules, original.position_type)
    assert protocol_of(package / "mine.toml", {}).options == {"word": 'a "quoted" \\ text'}


def test_what_a_family_reads_of_its_file_stands_there_to_be_filled_in(run: Run, here: Path) -> None:
    run("new-protocol", "farm", "--like", "masterchef")
    text = (here / "chainfolio-farm" / "chainfolio_farm" / "farm.toml").read_text()
    for line in ('# reward = "…"', '# pending = "…"', '# chef = ["0x…"]'):
        assert line in text.splitlines()


def test_the_package_s_own_test_fails_until_something_was_recorded(run: Run, here: Path) -> None:
    run("new-protocol", "my_stake")
    ran = run("test-protocol", "chainfolio-my-stake/tests/recordings", "--json")
    assert ran.code == 2
    (here / "chainfolio-my-stake" / "tests" / "recordings").mkdir()
    ran = run("test-protocol", "chainfolio-my-stake/tests/recordings", "--json")
    assert ran.code == 9
    assert "chainfolio record" in ran.error["remedy"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"format": 1}', "\x00", json.dumps({"chain": "ethereum"})],
)
def test_what_is_no_recording_is_refused_by_name_and_never_written_over(run: Run, here: Path, text: str) -> None:
    (here / "notes.json").write_text(text)
    ran = run("test-protocol", "notes.json", "--json")
    assert ran.code == 2
    assert ran.error["field"] == "notes.json"
    ran = run("record", FACTORY, "--chain", "ethereum", "--to", "notes.json", "--json")
    assert (ran.code, ran.error["field"]) == (2, "notes.json")
    assert (here / "notes.json").read_text() == text


def test_the_doctor_names_a_package_that_cannot_be_used(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(here))
    (here / "p_torn.py").write_text("raise RuntimeError('torn')")
    (here / "p_torn-2.0.dist-info").mkdir()
    (here / "p_torn-2.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: p-torn\nVersion: 2.0\n")
    (here / "p_torn-2.0.dist-info" / "entry_points.txt").write_text(f"[{families.GROUP}]\ntorn = p_torn\n")
    families.installed.cache_clear()
    try:
        ran = run("doctor", "--json")
        (torn,) = [each for each in ran.json["protocols"] if not each["ok"]]
        assert ran.code == 7
        assert torn["problem"] == "it cannot be loaded: RuntimeError: torn"
        assert torn["remedy"] == "repair or uninstall p-torn 2.0"
        assert "repair or uninstall p-torn 2.0" in run("doctor").out
    finally:
        families.installed.cache_clear()
