"""Calls are encoded and decoded by the ABI, and bytes that it does not allow are Unknown."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from eth_abi.abi import decode as abi_decode
from eth_abi.abi import encode as abi_encode
from eth_abi.exceptions import DecodingError, EncodingError
from hypothesis import given
from hypothesis import strategies as st
from sha3 import keccak_256

from chainfolio.adapters.evm import words
from chainfolio.adapters.evm.call import decode, encode, signature
from chainfolio.adapters.evm.reads import Call
from chainfolio.plans import Unknown

ADDRESS = st.integers(0, 2**160 - 1).map(lambda number: f"0x{number:040x}")
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "uint256": st.integers(0, 2**256 - 1),
    "uint8": st.integers(0, 255),
    "int256": st.integers(-(2**255), 2**255 - 1),
    "address": ADDRESS,
    "bool": st.booleans(),
    "bytes32": st.binary(min_size=32, max_size=32),
    "bytes": st.binary(max_size=70),
    "string": st.text(st.characters(codec="utf-8"), max_size=20),
    "uint256[]": st.lists(st.integers(0, 2**256 - 1), max_size=4).map(tuple),
    "(address,uint128)": st.tuples(ADDRESS, st.integers(0, 2**128 - 1)),
    "(bool,bytes)[]": st.lists(st.tuples(st.booleans(), st.binary(max_size=40)), max_size=3).map(tuple),
}
TYPES = st.lists(st.sampled_from(sorted(VALUES)), max_size=4)


def call(outputs: str) -> Call:
    return Call("0x" + "00" * 20, f"f()({outputs})")


@given(TYPES, st.data())
def test_arguments_are_encoded_as_the_abi_says(types: list[str], draw: st.DataObject) -> None:
    args = tuple(draw.draw(VALUES[kind]) for kind in types)
    name = f"f({','.join(types)})"
    assert encode(f"{name}()", args) == keccak_256(name.encode()).digest()[:4] + abi_encode(types, args)


@given(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4), st.data())
def test_what_is_returned_is_decoded_as_the_abi_says(types: list[str], draw: st.DataObject) -> None:
    values = tuple(draw.draw(VALUES[kind]) for kind in types)
    decoded = decode(call(",".join(types)), abi_encode(types, values))
    assert decoded == (values[0] if len(values) == 1 else values)


@given(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3), st.binary(max_size=400))
def test_any_bytes_at_all_are_a_value_or_unknown(types: list[str], returned: bytes) -> None:
    decoded = decode(call(",".join(types)), returned)
    if len(returned) < 32 * len(types):
        assert isinstance(decoded, Unknown)


@given(st.binary(min_size=32, max_size=400))
def test_only_the_first_word_is_a_number(returned: bytes) -> None:
    assert decode(call("uint256"), returned) == int.from_bytes(returned[:32], "big")


@pytest.mark.parametrize("size", [0, 1, 31])
def test_fewer_bytes_than_a_word_are_no_number(size: int) -> None:
    assert isinstance(decode(call("uint256"), b"\xff" * size), Unknown)


@pytest.mark.parametrize(
    ("outputs", "returned"),
    [
        ("bool", (2).to_bytes(32, "big")),
        ("address", b"\xff" * 32),
        ("uint8", (256).to_bytes(32, "big")),
        ("string", (2**255).to_bytes(32, "big") + (5).to_bytes(32, "big")),
        ("string", (32).to_bytes(32, "big") + (2**256 - 1).to_bytes(32, "big")),
        ("string", (32).to_bytes(32, "big") + (4).to_bytes(32, "big") + b"\xff\xfe\xc3\x28".ljust(32, b"\0")),
        ("uint256[]", (32).to_bytes(32, "big") + (2**200).to_bytes(32, "big")),
    ],
)
def test_what_a_type_cannot_hold_is_unknown(outputs: str, returned: bytes) -> None:
    assert isinstance(decode(call(outputs), returned), Unknown)


@given(st.binary(max_size=50))
def test_a_star_hands_over_what_came(returned: bytes) -> None:
    assert decode(call("*"), returned) == returned


def test_a_signature_is_cut_at_its_outer_brackets() -> None:
    parsed = signature("aggregate3((address,bool,bytes)[])((bool,bytes)[],uint256)")
    assert (parsed.inputs, parsed.outputs) == (("(address,bool,bytes)[]",), ("(bool,bytes)[]", "uint256"))


@pytest.mark.parametrize(
    "text",
    ["0x12", "0x" + "11" * 19, "0x" + "11" * 21, "1" * 42, "0x" + "11 " * 19 + "11", ""],
    ids=["one-byte", "short", "long", "no-prefix", "blanks", "empty"],
)
def test_a_text_that_is_no_address_makes_no_call_data(text: str) -> None:
    with pytest.raises(EncodingError):
        encode("balanceOf(address)(uint256)", (text,))
    address = "0x" + "1a" * 20
    for spelling in (address, bytes.fromhex(address[2:])):
        assert encode("balanceOf(address)(uint256)", (spelling,))[4:] == bytes(12) + b"\x1a" * 20


@pytest.mark.parametrize("text", ["balanceOf(address)", "f()(", "f(()()", "f()uint256"])
def test_a_malformed_signature_is_a_bug(text: str) -> None:
    with pytest.raises(AssertionError):
        signature(text)


# --- values of one word -----------------------------------------------------------------------------------------------

SIMPLE = ["uint8", "uint112", "uint160", "uint256", "int24", "int56", "int256", "bool", "address"]
EDGES = [0, 1, 2, 2**7, 2**8, 2**23, 2**24, 2**112, 2**160, 2**255, 2**256 - 1, 2**256 - 2**23, 2**256 - 2**24]
WORDS = st.one_of(st.sampled_from(EDGES), st.integers(0, 2**256 - 1)).map(lambda number: number.to_bytes(32, "big"))


@given(st.lists(st.tuples(st.sampled_from(SIMPLE), WORDS), min_size=1, max_size=4))
def test_words_are_read_as_eth_abi_reads_them_and_what_it_refuses_is_left_to_it(parts: list[tuple[str, bytes]]) -> None:
    types, data = tuple(kind for kind, _ in parts), b"".join(word for _, word in parts)
    try:
        expected: tuple[Any, ...] | None = abi_decode(types, data)
    except DecodingError:
        expected = None
    decoded = words.decode_words(types, data)
    assert decoded == expected
    assert [type(each) for each in decoded or ()] == [type(each) for each in expected or ()]


ODD = [-1, -(2**23), -(2**23) - 1, True, False, "0x" + "ab" * 20, "0x" + "AB" * 20, "x"]
VALUED = st.one_of(st.sampled_from([*EDGES, *ODD]), st.integers(-(2**256), 2**256))


@given(st.lists(st.tuples(st.sampled_from(SIMPLE), VALUED), min_size=1, max_size=3))
def test_words_are_written_as_eth_abi_writes_them(parts: list[tuple[str, Any]]) -> None:
    types, values = tuple(kind for kind, _ in parts), tuple(value for _, value in parts)
    try:
        expected: bytes | None = abi_encode(types, values)
    except EncodingError:
        expected = None
    encoded = words.encode_words(types, values)
    assert encoded in (expected, None)
    assert (
        encoded is not None
        or expected is None
        or any(isinstance(each, str) and each.lower() != each for each in values)
    )


LISTED = ["address[]", "int56[]", "uint160[]", "bool[]", "bytes32[]", "uint256", "bytes32"]
WORD_OF_A_LIST = st.one_of(
    st.sampled_from([0, 1, 2, 3, 31, 32, 64, 96, 128, 2**56, 2**160, 2**255, 2**256 - 1]), st.integers(0, 2**160)
).map(lambda number: number.to_bytes(32, "big"))


@given(
    st.lists(st.sampled_from(LISTED), min_size=1, max_size=3),
    st.lists(WORD_OF_A_LIST, max_size=12),
    st.binary(max_size=5),
)
def test_lists_are_read_as_eth_abi_reads_them_whatever_they_point_to(
    types: list[str], parts: list[bytes], tail: bytes
) -> None:
    data = b"".join(parts) + tail
    decoded = words.decode_words(tuple(types), data)
    if decoded is not None:
        assert decoded == abi_decode(types, data)


@given(
    st.lists(ADDRESS, max_size=3),
    st.lists(st.integers(-(2**55), 2**55 - 1), max_size=3),
    st.lists(st.binary(min_size=32, max_size=32), max_size=2),
    st.integers(0, 2**256 - 1),
)
def test_lists_are_written_as_eth_abi_writes_them_and_read_again(
    addresses: list[str], ticks: list[int], numbers: list[bytes], number: int
) -> None:
    types = ("address[]", "uint256", "int56[]", "bytes32[]")
    values = tuple(addresses), number, tuple(ticks), tuple(numbers)
    data = words.encode_words(types, values)
    assert data == abi_encode(types, values)
    assert words.decode_words(types, data) == values
    for short in range(0, len(data), 32):
        assert words.decode_words(types, data[:short]) is None


@pytest.mark.parametrize("value", ["0x12", [1], ["0x" + "AB" * 20], [None], None])
def test_a_list_of_others_is_left_to_eth_abi(value: Any) -> None:
    assert words.encode_words(("address[]",), (value,)) is None


@pytest.mark.parametrize(
    "types", [("string",), ("uint256[][]",), ("bytes4",), ("(uint8,uint8)",), ("uint8[2]",), ("uint7",), ("uint264",)]
)
def test_what_is_not_one_number_is_left_to_eth_abi(types: tuple[str, ...]) -> None:
    assert words.kinds(types) is None


def test_pools_and_feeds_are_read_without_the_import_of_eth_abi() -> None:
    program = """
import sys
from chainfolio.adapters.evm.call import decode, encode
from chainfolio.adapters.evm.reads import Call
of = "0x" + "00" * 20
assert encode("getPool(address,address,uint24)(address)", (of, of, 3000))
round_ = Call(of, "latestRoundData()(uint80,int256,uint256,uint256,uint80)")
assert decode(round_, bytes(160)) == (0,) * 5
mean = encode("observe(uint32[])(int56[],uint160[])", ((600, 0),))
two = b"".join(each.to_bytes(32, "big") for each in (64, 160, 2, 7, 9, 2, 1, 1))
assert decode(Call(of, "observe(uint32[])(int56[],uint160[])"), two) == ((7, 9), (1, 1))
assert encode("getSlot0(bytes32)(uint160,int24)", (bytes(32),))
assert "eth_abi" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
