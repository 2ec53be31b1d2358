"""Felts: what is one, what is none, and what is packed into them."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.adapters.starknet.felts import (
    FormattedFelts,
    decode_short_string,
    decode_string,
    encode_short_string,
    format_felt,
    parse_felt,
    selector,
    u256,
)
from chainfolio.addresses import STARKNET_PRIME
from chainfolio.errors import BadAnswer

felts = st.integers(0, STARKNET_PRIME - 1)


@given(felts)
def test_every_spelling_of_a_felt_has_one_form(value: int) -> None:
    forms = FormattedFelts("node")
    spellings = (hex(value), f"0x{value:064x}", "0x" + hex(value)[2:].upper())
    assert {forms[each] for each in spellings} == {format_felt(value)}
    assert parse_felt("node", format_felt(value)) == value


@given(st.lists(felts), st.lists(felts), st.lists(felts))
def test_felts_that_are_learnt_together_are_what_each_is_alone(
    plain: list[int], wide: list[int], upper: list[int]
) -> None:
    words = [*map(hex, plain), *map(format_felt, wide), *(f"0x{each:X}" for each in upper)]
    forms = FormattedFelts("node")
    forms.preload(words)
    assert [forms[each] for each in words] == [format_felt(each) for each in (*plain, *wide, *upper)]
    assert [forms.numbers[each] for each in words] == [*plain, *wide, *upper]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0x",
        "12",
        "0X1",
        "0x_1",
        " 0x1",
        "0x1 ",
        "-0x1",
        "0xg",
        "0x" + "1" * 65,
        "\uff10x1",
        hex(STARKNET_PRIME),
        "0x1,0x2",
        "0x1,",
        ",",
        "0x9" + "0" * 62,
        "0x09" + "0" * 62,
        "0x1" + "0" * 63,
        "0x1\n",
    ],
)
def test_what_is_no_felt_is_refused(text: str) -> None:
    forms = FormattedFelts("node")
    forms.preload(["0x5", text])
    assert forms["0x5"] == format_felt(5)
    for read in (forms.__getitem__, forms.numbers.__getitem__, partial(parse_felt, "node")):
        with pytest.raises(BadAnswer, match="no felt"):
            read(text)


@pytest.mark.timeout(20)
def test_many_felts_before_one_that_is_none_take_no_time_of_their_number_to_a_power() -> None:
    forms = FormattedFelts("node")
    forms.preload([*(f"0x0{each:05x}" for each in range(10_000)), "0xg"])
    assert forms[f"0x{7:064x}"] == format_felt(7)
    with pytest.raises(BadAnswer, match="no felt"):
        forms["0xg"]


def test_halves_of_a_number_are_below_two_to_the_128th() -> None:
    assert u256(7, 1) == 2**128 + 7
    assert u256(2**128 - 1, 2**128 - 1) == 2**256 - 1
    assert u256(2**128, 0) is None
    assert u256(0, 2**128) is None


def test_selectors_are_those_of_the_chain() -> None:
    assert hex(selector("Transfer")) == "0x99cd8bde557814842a3121e8ddfd433a539b8c9f14bf31ebf108d12e6196e9"
    assert hex(selector("balanceOf")) == "0x2e4263afad30923c891518314c3c95dbe830a16874e8abc5777a9a20b54c76e"


@given(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=31))
def test_a_short_text_comes_back(text: str) -> None:
    assert decode_short_string(encode_short_string(text)) == text


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=90))
def test_a_byte_array_comes_back(text: str) -> None:
    data = text.encode()
    full_words = [data[at : at + 31] for at in range(0, len(data) - len(data) % 31, 31)]
    pending_word = data[len(full_words) * 31 :]
    said = [
        len(full_words),
        *(int.from_bytes(each, "big") for each in full_words),
        int.from_bytes(pending_word, "big"),
        len(pending_word),
    ]
    assert decode_string(said) == text


@pytest.mark.parametrize("said", [[], [2, 1], [0, 0, 31], [0, 2**40, 3], [1, 2**250, 0, 0], [5] * 200, [2**251]])
def test_what_is_no_text_is_empty(said: list[int]) -> None:
    assert decode_string(said) == ""


def test_every_small_felt_is_its_number_in_either_case() -> None:
    for each in range(5_000):
        assert (
            parse_felt("node", hex(each))
            == parse_felt("node", f"0x{each:X}")
            == parse_felt("node", f"0x{each:064x}")
            == each
        )
