"""Status of a verified number: a difference outweighs a proof, and a proof an equal reading."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from chainfolio.adapters.evm.facts import load
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.assets import Account, Asset
from chainfolio.blocks import Block
from chainfolio.chain_results import EndpointHealth
from chainfolio.contracts import Issue, Snapshot, Token
from chainfolio.engine.verification import (
    STATUSES,
    Check,
    EndpointValue,
    Fault,
    Verification,
    _check,
    _checks,
    _Reading,
    _TransientTokenBook,
    verify,
)
from chainfolio.errors import BadRequest
from chainfolio.proofs import ProofResult
from chainfolio.storage.lake import Lake
from chainfolio.tables import TOKENS

TOKEN, ETHER = "eip155:1/erc20:0x" + "11" * 20, "eip155:1/slip44:60"
PROVEN, OTHER, NONE, BROKEN = (
    ProofResult("proven", "Solidity mapping at slot 0", 5),
    ProofResult("contradicted", "the state root proves 4", 4),
    ProofResult("unprovable", "zero is what any empty place holds"),
    ProofResult("broken", "the proof does not lead"),
)


def readings_of(*values: str | None) -> tuple[EndpointValue, ...]:
    return tuple(EndpointValue(f"{k}.test", value) for k, value in enumerate(values))


@pytest.mark.parametrize(
    ("value", "readings", "finding", "status"),
    [
        ("5", readings_of(), PROVEN, "proven"),
        ("5", readings_of("5"), PROVEN, "proven"),
        ("5", readings_of("4"), PROVEN, "differs"),
        ("5", readings_of("5", "4"), PROVEN, "differs"),
        ("5", readings_of("5"), NONE, "equal"),
        ("5", readings_of("5", None), NONE, "equal"),
        ("5", readings_of(None), PROVEN, "proven"),
        ("5", readings_of(None), NONE, "unread"),
        ("5", readings_of(), NONE, "unprovable"),
        ("5", readings_of(), BROKEN, "unprovable"),
        ("5", readings_of("5"), BROKEN, "equal"),
        ("5", readings_of(), OTHER, "differs"),
        ("5", readings_of("5"), None, "equal"),
        ("5", readings_of("4"), None, "differs"),
        ("5", readings_of(), None, "unprovable"),
        (None, readings_of("5"), PROVEN, "unread"),
        (None, readings_of(), None, "unread"),
    ],
)
def test_how_a_number_ends(
    value: str | None, readings: tuple[EndpointValue, ...], finding: ProofResult | None, status: str
) -> None:
    row = _check("balance", TOKEN, "T", value, readings, finding)
    assert row.status == status
    assert row.reason or status in ("proven", "equal")


def test_an_odd_token_is_not_called_a_lie_where_two_agree_but_a_native_coin_is_what_the_root_says() -> None:
    assert _check("balance", TOKEN, "T", "5", readings_of("5"), OTHER).status == "equal"
    assert _check("balance", ETHER, "ETH", "5", readings_of("5"), OTHER).status == "differs"


def test_what_nobody_could_read_is_there_as_unread() -> None:
    facts = load(Path(__file__).parents[2] / "configs" / "chains" / "local.toml")
    chain: Any = SimpleNamespace(info=facts.info, health=lambda: [EndpointHealth("one.test")])
    issue = Issue("balance", TOKEN, "the contract refuses", makes_partial=False)
    empty = Snapshot("local", Block(1, "0x01", "0x00", 0), ("0xaa",), (), (), (issue,))
    rows = _checks(_Reading(chain, empty), [], (), None)
    assert [(row.number, row.symbol or row.asset, row.status) for row in rows] == [
        ("block", "", "unprovable"),
        ("balance", "ETH", "unread"),
        ("balance", TOKEN, "unread"),
    ]


def verification(*statuses: str, faults: tuple[Fault, ...] = ()) -> Verification:
    row = {"number": "balance", "asset": TOKEN, "symbol": "T", "value": "5"}
    rows = tuple(msgspec.convert({**row, "status": status}, Check) for status in statuses)
    counts = {status: statuses.count(status) for status in STATUSES}
    return Verification("0x", "x", 1, "0x", "one.test", (), None, counts, rows, faults, (), ())


@pytest.mark.parametrize(
    ("statuses", "faults", "differs", "complete"),
    [
        (("proven", "equal"), (), False, True),
        (("proven", "unprovable"), (), False, False),
        (("proven", "unread"), (), False, False),
        (("proven", "differs", "unread"), (), True, False),
        (("proven",), (Fault("one.test", "BadProof", "no"),), True, False),
        ((), (), False, True),
    ],
)
def test_what_a_verification_comes_to(
    statuses: tuple[str, ...], faults: tuple[Fault, ...], differs: bool, complete: bool
) -> None:
    result = verification(*statuses, faults=faults)
    assert (result.differs, result.complete) == (differs, complete)


def test_descriptions_of_other_endpoints_are_neither_stored_nor_cached(tmp_path: Path) -> None:
    lake, asset, block = Lake(str(tmp_path)), Asset("eip155:1", "erc20", "0x" + "11" * 20), Block(1, "0x01", "0x00", 0)
    book = _TransientTokenBook("ethereum", lake, {})
    book.add({asset: Token(asset, "T", "T", 6)}, block)
    assert not lake.exists(TOKENS)
    assert book.described_at([asset], block) == {}


@pytest.mark.parametrize("against", [(), ("http://other.test",)], ids=["alone", "with another endpoint"])
async def test_a_chain_without_endpoints_is_refused_with_the_setting_to_add(against: tuple[str, ...]) -> None:
    chain: Any = SimpleNamespace(key="local", kind="evm", settings=EvmSettings())
    unused: Any = None
    with pytest.raises(BadRequest, match="no endpoint of local is configured") as error:
        await verify(chain, unused, unused, Account("evm", "0x" + "11" * 20), None, against)
    assert error.value.remedy == "set chains.local.rpc in the settings"
