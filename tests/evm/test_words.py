"""ABI values of one word and lists of them, against eth-abi."""

from __future__ import annotations

from typing import Any

import pytest
from eth_abi import abi
from eth_abi.exceptions import DecodingError
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.adapters.evm.words import decode_words, encode_words, kinds

BITS = (8, 16, 24, 128, 160, 248, 256)
BOUNDS = {
    **{f"uint{bits}": (0, 2**bits - 1) for bits in BITS},
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in BITS},
}
NAMES = ("address", "bool", "bytes32", *BOUNDS)


def value_of(name: str) -> st.SearchStrategy[Any]:
    """Values of a type, those at its bounds above all."""
    if name.endswith("[]"):
        return st.lists(value_of(name[:-2]), max_size=3).map(tuple)
    if name == "address":
        return st.sampled_from([0, 1, 2**160 - 1]).map("0x{:040x}".format) | st.binary(min_size=20, max_size=20).map(
            lambda raw: f"0x{raw.hex()}"
        )
    if name == "bool":
        return st.booleans()
    if name == "bytes32":
        return st.binary(min_size=32, max_size=32)
    low, high = BOUNDS[name]
    return st.sampled_from([low, low + 1, 0, 1, high - 1, high]) | st.integers(low, high)


@st.composite
def calls(draw: st.DrawFn) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Draw types with a value each."""
    names = draw(st.lists(st.sampled_from([*NAMES, *(f"{name}[]" for name in NAMES)]), max_size=4))
    return tuple(names), tuple(draw(value_of(name)) for name in names)


@given(calls())
def test_values_are_encoded_and_decoded_as_by_eth_abi(call: tuple[tuple[str, ...], tuple[Any, ...]]) -> None:
    types, values = call
    encoded = abi.encode(types, values)
    assert encode_words(types, values) == encoded
    assert decode_words(types, encoded) == values
    assert decode_words(types, encoded + b"more") == values
    for size in {0, 31, len(encoded) - 32, len(encoded) - 1} & set(range(len(encoded))):
        assert decode_words(types, encoded[:size]) is None


WORDS = st.sampled_from([0, 1, 2, 31, 32, 33, 64, 96, 2**160 - 1, 2**160, 2**255, 2**256 - 1])


@given(st.sampled_from([*NAMES, *(f"{name}[]" for name in NAMES)]), st.lists(WORDS, max_size=4), st.binary(max_size=1))
def test_what_is_decoded_of_any_bytes_is_what_eth_abi_says(name: str, words: list[int], end: bytes) -> None:
    data = b"".join(word.to_bytes(32, "big") for word in words) + end
    decoded = decode_words(("uint256", name), data)
    if decoded is not None:
        assert decoded == abi.decode(("uint256", name), data)
    elif not name.endswith("[]"):
        with pytest.raises(DecodingError):
            abi.decode(("uint256", name), data)


def test_a_list_that_points_into_the_heads_or_beyond_the_end_is_none() -> None:
    def data(*words: int) -> bytes:
        return b"".join(word.to_bytes(32, "big") for word in words)

    types = ("uint8[]", "uint8")
    assert decode_words(types, data(64, 7, 2, 8, 9)) == ((8, 9), 7)
    assert decode_words(types, data(96, 7, 5, 1, 9)) == ((9,), 7)
    assert decode_words(types, data(64, 7, 0)) == ((), 7)
    for words in ((32, 7, 0), (63, 7, 2, 8, 9), (64, 7, 3, 8, 9), (64, 7, 1, 256), (64, 256, 0), (128, 7, 0), (0, 0)):
        assert decode_words(types, data(*words)) is None
    assert decode_words(("uint8[]",), data(32)[:31]) is None


@pytest.mark.parametrize("name", BOUNDS)
def test_a_number_beyond_its_bounds_is_none(name: str) -> None:
    low, high = BOUNDS[name]
    assert [encode_words((name,), (value,)) is None for value in (low - 1, low, high, high + 1)] == [
        *(True, False),
        *(False, True),
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("uint8", True),
        ("uint8", "1"),
        ("uint8", None),
        ("bool", 1),
        ("bool", None),
        ("bytes32", b"x" * 31),
        ("bytes32", bytearray(32)),
        ("bytes32", "x" * 32),
        ("address", f"0x{'AB' * 20}"),
        ("address", "ab" * 20),
        ("address", f"0x{'ab' * 20}\n"),
        ("address", b"x" * 20),
        ("address", 1),
        ("uint8[]", 1),
        ("uint8[]", (1, 256)),
        ("uint8[]", "1"),
        ("uint8[]", None),
    ],
)
def test_a_value_of_another_kind_is_left_to_eth_abi(name: str, value: Any) -> None:
    assert encode_words((name,), (value,)) is None
    assert encode_words(("uint8", name), (1, value)) is None


def test_as_many_values_as_types_are_encoded() -> None:
    assert encode_words(("uint8",), ()) is None
    assert encode_words(("uint8",), (1, 2)) is None
    assert encode_words((), ()) == b""
    assert decode_words((), b"") == ()
    assert encode_words(("uint8[]",), ([1],)) == abi.encode(["uint8[]"], [[1]])


@pytest.mark.parametrize(
    "name",
    [
        *("uint", "int", "uint0", "uint7", "uint08", "uint264", "int257", "uint256 ", "uint256\n", "xuint8", "uint999"),
        *("string", "bytes", "bytes31", "uint8[][]", "uint8[2]", "(uint8)", "[]", "", "address payable", "Address"),
    ],
)
def test_other_types_are_left_to_eth_abi(name: str) -> None:
    assert kinds((name,)) is None
    assert kinds(("uint8", name)) is None
    assert decode_words((name,), bytes(96)) is None
    assert encode_words((name,), (0,)) is None
