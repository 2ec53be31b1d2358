"""A kind of chain from any installed package is found by its name, and owns its settings."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chainfolio import kinds
from chainfolio.adapters.evm.kind import KIND
from chainfolio.adapters.evm.reads import Call
from chainfolio.errors import BadSettings, NotSupported
from chainfolio.kinds import ENTRY_POINT_GROUP, builtin_kinds, contract_calls, decoder_kit, installed_kinds, kind_of
from chainfolio.settings_file import load

ROOT = Path(__file__).parents[2]
TOY = """
from typing import Annotated, ClassVar
from chainfolio.chain_settings import ChainSettings, doc
from chainfolio.errors import BadSettings

class ToySettings(ChainSettings, forbid_unknown_fields=True, frozen=True):
    "A toy."
    ENDPOINTS: ClassVar = "nodes"
    SECRETS: ClassVar = ("nodes",)
    PATHS: ClassVar = ("book",)
    nodes: Annotated[list[str], doc("nodes")] = []
    speed: Annotated[int, doc("speed")] = 1
    book: Annotated[str, doc("a file")] = ""

    def check(self, section):
        ChainSettings.check(self, section)
        if self.speed < 1:
            raise BadSettings(f"{section}.speed", "is at least 1")

class Kind:
    name = "toy"
    settings = ToySettings
    datasets = {}
    def build(self, key, settings, environment, *, configs, memory):
        return key, settings, memory
    def identities(self, settings):
        return [(each, each) for each in settings.nodes]

KIND = Kind()
"""
Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a module where it is found as one of an installed package is."""
    monkeypatch.syspath_prepend(str(tmp_path))
    put_there = []

    def put(name: str, source: str) -> None:
        put_there.append(f"k_{name}")
        (tmp_path / f"k_{name}.py").write_text(source)
        info = tmp_path / f"k_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: k_{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{name} = k_{name}:KIND\n")
        kind_of.cache_clear()

    yield put
    kind_of.cache_clear()
    for name in put_there:
        sys.modules.pop(name, None)


def error_message(tmp_path: Path, text: str) -> str:
    file = tmp_path / "given.toml"
    file.write_text(text)
    with pytest.raises(BadSettings) as caught:
        load(file, {})
    return str(caught.value)


def test_ours_are_registered_like_those_of_anybody_and_found_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][ENTRY_POINT_GROUP]
    assert entries == {name: f"chainfolio.adapters.{name}.kind:KIND" for name in builtin_kinds()}
    kind_of.cache_clear()
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: pytest.fail("looked through all packages"))
    assert kind_of("evm") is KIND


def test_a_kind_of_another_package_is_found_and_decodes_its_own_keys(install: Install, tmp_path: Path) -> None:
    install("toy", TOY)
    file = tmp_path / "given.toml"
    file.write_text('[chains.x]\nadapter = "toy"\nnodes = ["http://a/key"]\nspeed = 3\nspan = 7\nbook = "book.txt"')
    settings = load(
        file, {"CHAINFOLIO_CHAINS__X__NODES": "http://b/s3cret,http://c", "CHAINFOLIO_CHAINS__X__SPEED": "4"}
    )
    chain = settings.chains["x"]
    assert (chain.span, getattr(chain, "speed", None), chain.endpoints) == (7, 4, ["http://b/s3cret", "http://c"])
    assert getattr(chain, "book", None) == str(tmp_path / "book.txt")
    assert "s3cret" not in repr(settings)
    assert chain.at("http://d").endpoints == ["http://d"]
    assert "toy" in installed_kinds()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("speedy = 1", "unknown key `speedy` in [chains.x]; did you mean `speed`?"),
        ("rpc = []", "unknown key `rpc` in [chains.x]"),
        ("speed = 0", "chains.x.speed: is at least 1"),
        ("span = 0", "chains.x: span, concurrency and worker_processes are at least 1"),
        ('speed = "fast"', "`chains.x.speed`"),
    ],
)
def test_what_is_wrong_in_its_section_is_told_by_its_kind(
    install: Install, tmp_path: Path, text: str, message: str
) -> None:
    install("toy", TOY)
    assert message in error_message(tmp_path, f'[chains.x]\nadapter = "toy"\n{text}')


@pytest.mark.parametrize("key", ["speed", "nodes"])
def test_keys_of_one_kind_are_unknown_to_another(tmp_path: Path, key: str) -> None:
    assert f"unknown key `{key}` in [chains.x]" in error_message(tmp_path, f"[chains.x]\n{key} = 1")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise RuntimeError('no luck')", "cannot be loaded: RuntimeError: no luck"),
        ("import sys; sys.exit(3)", "cannot be loaded: SystemExit: 3"),
        ("KIND = 5", "what is installed as `toy` is no kind of chain"),
    ],
)
def test_a_package_that_cannot_be_used_is_named(install: Install, tmp_path: Path, source: str, message: str) -> None:
    install("toy", source)
    problem = error_message(tmp_path, '[chains.x]\nadapter = "toy"')
    assert problem.startswith("chains.x.adapter: ")
    assert message in problem


DATASETS = """
from dataclasses import replace
from chainfolio.datasets import AccountRows, Dataset
from chainfolio.table import Table
from chainfolio.tables import ACCOUNT_EVENTS, BLOCKS, LOGS, TRANSFERS
"""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Kind.name = 'joy'", "it calls itself `joy`"),
        ("Kind.datasets = property(lambda self: 1 / 0)", "ZeroDivisionError"),
        ("Kind.datasets = {'blocks': BLOCKS}", "the dataset `blocks` is none of this name"),
        ("Kind.datasets = {'blocks': Dataset('gossip', BLOCKS)}", "the dataset `blocks` is none of this name"),
        (
            "Kind.datasets = {'x': Dataset('x', replace(TRANSFERS, columns=TRANSFERS.columns[:3]))}",
            "fills `transfers`, which is no table here or one of other columns",
        ),
        ("Kind.datasets = {'x': Dataset('x', replace(TRANSFERS, name='gossip'))}", "fills `gossip`"),
        ("Kind.datasets = {'x': Dataset('x', LOGS, history='gossip')}", "goes into `gossip`, which is no table here"),
        ("Kind.datasets = {'transfers': Dataset('transfers', LOGS)}", "than that of another kind"),
        ("Kind.datasets = {'native': Dataset('native', TRANSFERS, standards=('x',))}", "than that of another kind"),
        (
            "Kind.datasets = {'x': Dataset('x', LOGS, history='account_events', account_rows=AccountRows((), str))}",
            "says already how the rows of `account_events` are made",
        ),
    ],
)
def test_a_kind_whose_datasets_contradict_what_there_is_cannot_be_used(
    install: Install, tmp_path: Path, line: str, message: str
) -> None:
    install("toy", f"{TOY}\n{DATASETS}\n{line}\n")
    problem = error_message(tmp_path, '[chains.x]\nadapter = "toy"')
    assert problem.startswith("chains.x.adapter: the kind of chain `toy` cannot be used: ")
    assert message in problem


def test_a_kind_that_two_packages_have_is_refused_with_both(install: Install, tmp_path: Path) -> None:
    install("toy", TOY)
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\ntoy = other.kind:KIND\n")
    problem = error_message(tmp_path, '[chains.x]\nadapter = "toy"')
    assert "several packages have a kind of chain `toy`" in problem
    assert "other.kind:KIND" in problem


def test_a_kind_that_nobody_installed_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    problem = error_message(tmp_path, '[chains.x]\nadapter = "solaris"')
    names = ", ".join(sorted(installed_kinds()))
    assert builtin_kinds() <= installed_kinds()
    assert problem == f"chains.x.adapter: no kind of chain `solaris` is installed (one of {names})"
    assert kinds.BUILTIN_PACKAGE == "chainfolio.adapters"


def test_what_records_decoders_is_the_kind_s_own_and_a_kind_without_it_is_named(install: Install) -> None:
    assert decoder_kit("evm") is KIND.decoder_kit
    install("toy", TOY)
    with pytest.raises(NotSupported, match="decoders of the kind `toy`"):
        decoder_kit("toy")


def test_what_makes_calls_of_contracts_is_the_kind_s_own_and_a_kind_without_contracts_is_named(
    install: Install,
) -> None:
    assert contract_calls("evm")("0x1", "price()(uint256)") == Call("0x1", "price()(uint256)")
    install("toy", TOY)
    with pytest.raises(NotSupported, match="read of a contract on a chain of the kind `toy`"):
        contract_calls("toy")
