"""Calls are encoded and decoded as the ABI says, and what the ABI does not allow is Unknown, never a number."""

from __future__ import annotations

from typing import Any

import pytest
from eth_abi.abi import encode as abi_encode
from hypothesis import given
from hypothesis import strategies as st
from sha3 import keccak_256

from adapters.evm.call import decode, encode, signature
from adapters.evm.reads import Call
from chainfolio.plans import Unknown

ADDRESS = st.integers(0, 2**160 - 1).map(lambda number: f"0x{number:040x}")
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "uint256": st.integers(0, 2**256 - 1), "uint8": st.integers(0, 255), "int256": st.integers(-(2**255), 2**255 - 1),
    "address": ADDRESS, "bool": st.booleans(), "bytes32": st.binary(min_size=32, max_size=32),
    "bytes": st.binary(max_size=70), "string": st.text(st.characters(codec="utf-8"), max_size=20),
    "uint256[]": st.lists(st.integers(0, 2**256 - 1), max_size=4).map(tuple),
    "(address,uint128)": st.tuples(ADDRESS, st.integers(0, 2**128 - 1)),
    "(bool,bytes)[]": st.lists(st.tuples(st.booleans(), st.binary(max_size=40)), max_size=3).map(tuple),
}  # fmt: skip
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
    found = decode(call(",".join(types)), abi_encode(types, values))
    assert found == (values[0] if len(values) == 1 else values)


@given(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3), st.binary(max_size=400))
def test_any_bytes_at_all_are_a_value_or_unknown(types: list[str], returned: bytes) -> None:
    found = decode(call(",".join(types)), returned)
    if len(returned) < 32 * len(types):
        assert isinstance(found, Unknown)


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


@pytest.mark.parametrize("written", ["balanceOf(address)", "f()(", "f(()()", "f()uint256"])
def test_a_malformed_signature_is_a_bug(written: str) -> None:
    with pytest.raises(AssertionError):
        signature(written)
