"""Names are hostile until cleaned, decimals until checked."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from eth_abi.abi import encode
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.adapters.evm.reads import Call, Read
from chainfolio.adapters.evm.tokens import decimals_of, describe, text
from chainfolio.plans import Reverted, Unknown, run_offline
from chainfolio.printable import MAX_NAME, MAX_SYMBOL, clean
from tests.evm.fakes import TOKEN, FakeChain, facts_of


def string(content: str) -> bytes:
    return encode(["string"], [content])


@given(st.text(st.characters(codec="utf-8"), max_size=300), st.integers(4, 99))
def test_a_cleaned_name_is_one_short_printable_line(name: str, longest: int) -> None:
    cleaned = clean(name, longest)
    assert len(cleaned) <= longest
    assert cleaned == cleaned.strip()
    assert not [char for char in cleaned if unicodedata.category(char)[0] == "C" or char in "\u2028\u2029"]
    assert len(cleaned.splitlines()) <= 1
    assert clean(cleaned, longest) == cleaned


@given(st.binary(max_size=300))
def test_any_bytes_at_all_are_a_name(returned: bytes) -> None:
    assert len(text(returned, MAX_NAME)) <= MAX_NAME


@given(st.text("abcXYZ019 -.$", max_size=30))
def test_an_honest_name_is_left_alone(name: str) -> None:
    assert text(string(name), MAX_NAME) == " ".join(name.split())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Nul\x00Bell\x07Line\nReturn\rTab\tDelete\x7f", "NulBellLineReturnTab Delete"),
        ("\u202eCDSU\u202c \u2066\u200b\u200f", "CDSU"),
        ("\x1b[2J\x1b[31mUSDC\x1b[0m\x1b]0;title\x07", "[2J[31mUSDC[0m]0;title"),
        ("two\u2028lines\u2029more", "twolinesmore"),
        ("USDС", "USDС"),  # a Cyrillic С: cleaning makes it safe to print, not honest
        ("=HYPERLINK(1)", "=HYPERLINK(1)"),
        ("", ""),
        ("A" * 500, "A" * 95 + "…"),
    ],
)
def test_what_is_not_to_be_seen_is_taken_away(name: str, expected: str) -> None:
    assert text(string(name), MAX_NAME) == expected


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (b"Maker".ljust(32, b"\0"), "Maker"),
        (b"M\0ker".ljust(32, b"\0"), "Mker"),
        (b"\xff\xfe\xc3\x28".ljust(32, b"\0"), "���("),
        (encode(["bytes"], [b"\xff\xfe\xc3\x28"]), "���("),
        (encode(["uint256", "uint256"], [2**255, 5]), ""),
        (encode(["uint256", "uint256"], [32, 2**256 - 1]), ""),
        (b"", ""),
        (b"\x01" * 31, ""),
        (bytes(32), ""),
        (string("cut off")[:67], "cut"),
    ],
)
def test_odd_encodings_are_read_as_far_as_they_can_be_meant(returned: bytes, expected: str) -> None:
    assert text(returned, MAX_SYMBOL) == expected


@pytest.mark.parametrize(
    ("returned", "decimals"),
    [
        (encode(["uint256"], [18]), 18),
        (encode(["uint256"], [0]), 0),
        (encode(["uint256"], [255]), 255),
        (encode(["uint256"], [256]), None),
        (encode(["uint256"], [2**256 - 1]), None),
        (b"", None),
        (b"\x12", None),
        (encode(["uint256", "uint256"], [6, 9]), 6),
        (Reverted(), None),
        (Unknown("gone"), None),
    ],
)
def test_decimals_are_never_guessed(returned: object, decimals: int | None) -> None:
    assert decimals_of(returned) == decimals


@pytest.mark.parametrize("returned", [Reverted(b"no"), Unknown("gone"), None, 7])
def test_a_contract_that_says_nothing_has_no_name(returned: object) -> None:
    assert text(returned, MAX_NAME) == ""


def test_a_token_is_described_in_one_round() -> None:
    rounds = 0

    def answer(ask: Read) -> Any:
        nonlocal rounds
        rounds += 1
        assert isinstance(ask, Call)
        return {"symbol": string("TKN"), "name": string("Token"), "decimals": encode(["uint8"], [6])}[
            ask.signature.split("(")[0]
        ]

    token = run_offline(describe(facts_of(FakeChain()), [TOKEN]), answer)[TOKEN]
    assert (token.symbol, token.name, token.decimals, rounds) == ("TKN", "Token", 6, 3)
    assert str(token.asset) == f"eip155:31337/erc20:{TOKEN}"
