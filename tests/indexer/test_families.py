"""Third-party packages: a fault of one is reported, and stops no other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chainfolio.adapters.evm.positions.rules import Family
from chainfolio.errors import BadSettings
from chainfolio.indexer import families
from chainfolio.indexer.wiring import System
from chainfolio.settings import Settings

Install = Callable[..., None]
GOOD = """
from chainfolio.adapters.evm.positions.rules import Counterparty, Family
def position(met):
    yield []
FAMILY = Family("{name}", rules=(Counterparty("pool"),), position=position)
"""
FARM = "0x" + "fa" * 20


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package of one module, and protocol files, where it is found as an installed one is."""
    monkeypatch.syspath_prepend(str(tmp_path))

    put_there = []

    def put(name: str, source: str, **files: str) -> None:
        put_there.append(name)
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(source)
        for key, text in files.items():
            (tmp_path / name / f"{key}.toml").write_text(text)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{families.GROUP}]\nmine = {name}\n")
        families.installed.cache_clear()

    yield put
    families.installed.cache_clear()
    for name in put_there:
        sys.modules.pop(name, None)


def problems(system: System) -> dict[str, str]:
    return {each.provider: each.problem for each in system.packages if each.problem}


MOVED = "0x" + "77" * 20


def file(key: str, chain: str = "ethereum", address: str = FARM) -> str:
    return f'key = "{key}"\nname = "Its"\nfamilies = ["{key}"]\n[contracts.{chain}]\npool = ["{address}"]\n'


FAMILY = "from chainfolio.adapters.evm.positions.rules import Family\nFAMILY = Family('farm', rules=(), {})"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise RuntimeError('no luck')", "cannot be loaded: RuntimeError: no luck"),
        ("import sys; sys.exit(3)", "cannot be loaded: SystemExit: 3"),
        ("import nobody_has_this", "cannot be loaded: ModuleNotFoundError"),
        ("FAMILY = 'farm'", "`p_broken.FAMILY` is a str, not a Family"),
        ("x = 1", "no module of `p_broken` has a FAMILY"),
        (
            "from chainfolio.adapters.evm.positions.rules import Family\nFAMILY = Family('farm', rules=())",
            "needs a name, rules, and a function",
        ),
        (
            "from chainfolio.adapters.evm.positions.rules import Family\n"
            "FAMILY = Family('farm', rules=('pool',), position=len)",
            "needs a name, rules, and a function",
        ),
        (FAMILY.format("unwrap=len"), "there is no position type ''"),
        (
            FAMILY.format("unwrap=len, position_type='STEAKED'"),
            "no position type 'STEAKED' (did you mean `STAKED`?)",
        ),
        (FAMILY.format("position=len, roles='pool'"), "`roles` is 'pool', not a tuple of names"),
        (FAMILY.format("position=len, options=(1,)"), "`options` is (1,), not a tuple of names"),
        (GOOD.format(name="erc4626"), "its family `erc4626` has the name of Chainfolio's own"),
    ],
)
def test_a_broken_package_is_told_and_the_others_are_read(install: Install, source: str, message: str) -> None:
    install("p_broken", source)
    install("p_good", GOOD.format(name="good_farm"), good_farm=file("good_farm"))
    system = System(Settings())
    (problem,) = problems(system).values()
    assert message in problem
    (package,) = [each for each in system.packages if each.problem]
    assert (package.provider, package.remedy) == ("p_broken 1.0", "repair or uninstall p_broken 1.0")
    assert package.issue.makes_partial
    assert "p_broken 1.0" in package.issue.reason
    assert {"good_farm", "uniswap_v2", "erc4626"} <= system.families.keys()
    assert isinstance(builtin := system.families["erc4626"], Family)
    assert builtin.unwrap is not None
    assert [each.key for _, each in system.registry.of(FARM, ["ethereum"])] == ["good_farm"]


def test_systems_share_the_protocols_until_a_file_of_a_package_changes(install: Install, tmp_path: Path) -> None:
    install("p_good", GOOD.format(name="good_farm"), good_farm=file("good_farm"))
    first = System(Settings()).registry
    assert System(Settings()).registry is first
    (tmp_path / "p_good" / "good_farm.toml").write_text(file("good_farm", address=MOVED))
    changed_registry = System(Settings()).registry
    assert [key for address in (FARM, MOVED) for key, _ in first.of(address, ["ethereum"])] == ["ethereum"]
    assert [each.key for _, each in changed_registry.of(MOVED, ["ethereum"])] == ["good_farm"]
    assert changed_registry.of(FARM, ["ethereum"]) == []


def test_a_family_of_another_kind_of_chain_than_a_file_s_is_told_at_load(install: Install, tmp_path: Path) -> None:
    source = "from chainfolio.protocols import ProtocolFamily\nFAMILY = ProtocolFamily('farm', kind='moonchain')\n"
    install("p_moon", source)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "farm.toml").write_text(file("farm"))
    with pytest.raises(BadSettings) as caught:
        _ = System(Settings(protocols=str(tmp_path / "own"))).registry
    assert "farm.toml: contracts.ethereum: farm reads chains of the kind moonchain" in str(caught.value)
    assert "ethereum is of the kind evm" in str(caught.value)


def test_names_of_our_families_are_those_of_their_modules() -> None:
    builtin = [each for each in families.installed() if each.provider == "chainfolio"]
    assert families.builtin_names() == {family.name for package in builtin for family in package.families}


def test_families_of_other_kinds_are_left_out_and_called_neither_missing_nor_free(install: Install) -> None:
    install("p_taker", GOOD.format(name="orca_whirlpool"))
    system = System(Settings(), kinds=frozenset({"evm"}))
    assert {family.kind for family in system.families.values()} == {"evm"}
    assert problems(system) == {"p_taker 1.0": "its family `orca_whirlpool` has the name of Chainfolio's own"}
    assert system.unread == ()
    kamino = [each for each in system.registry.protocols if "kamino_lending" in each.families]
    assert kamino
    full_system = System(Settings())
    ethereum = system.registry.rows("ethereum", "evm", system.families)
    assert ethereum == full_system.registry.rows("ethereum", "evm", full_system.families)


def test_of_two_packages_with_one_name_neither_is_believed(install: Install) -> None:
    for name in ("p_one", "p_two"):
        install(name, GOOD.format(name="twin"))
    system = System(Settings())
    assert problems(system).keys() == {"p_one 1.0", "p_two 1.0"}
    assert "twin" not in system.families


def test_a_package_s_file_stands_in_for_none_of_ours_and_the_operator_s_for_it(
    install: Install, tmp_path: Path
) -> None:
    install("p_taker", GOOD.format(name="taker"), lido=file("lido"))
    install("p_maker", GOOD.format(name="maker"), maker=file("maker"))
    operator_folder = tmp_path / "own"
    operator_folder.mkdir()
    (operator_folder / "maker.toml").write_text(file("maker").replace("Its", "Mine"))
    system = System(Settings(protocols=str(operator_folder)))
    assert "there is a protocol `lido` already" in problems(system)["p_taker 1.0"]
    assert "taker" not in system.families
    assert [each.name for each in system.registry.protocols if each.key == "maker"] == ["Mine"]
    assert next(each.name for each in system.registry.protocols if each.key == "lido") == "Lido"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("key = ", "its files cannot be used"),
        (file("other_key"), "is not a protocol key that the file is named after"),
        (file("farm", address="0x12"), "is no contract's EVM address"),
        (file("farm").replace("pool =", "pol ="), "contracts.ethereum.pol: no decoder reads this role"),
    ],
)
def test_a_package_with_a_file_that_cannot_be_read_is_told(install: Install, text: str, message: str) -> None:
    install("p_files", GOOD.format(name="farm"), farm=text)
    (problem,) = problems(System(Settings())).values()
    assert message in problem


def test_a_package_may_know_chains_that_are_not_known_here(install: Install) -> None:
    install("p_mars", GOOD.format(name="mars_farm"), mars_farm=file("mars_farm", chain="mars"))
    system = System(Settings())
    assert problems(system) == {}
    assert system.registry.of(FARM, ["mars", "ethereum"]) == []
    (protocol,) = [each for each in system.registry.protocols if each.key == "mars_farm"]
    assert protocol.contracts == {"mars": {}}  # of no chain that is read, and not of every chain either
