"""Accounts and assets have one canonical form each; what is none of them is refused in words."""

from __future__ import annotations

import importlib.metadata
import re

import base58
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio import addresses
from chainfolio.addresses import STARKNET_PRIME
from chainfolio.assets import ZERO_ADDRESS, Account, Asset, account, asset, evm_address
from chainfolio.errors import BadRequest

VITALIK = "0xd8dA6BF26964aF9D7eEd9e03E53415D37aA96045"
TRON = "TNPeeaaFB7K9cmo4uQpcU32zGK8G1NYqeL"
SYSTEM_PROGRAM = "1" * 32


def in_any_case(text: str) -> st.SearchStrategy[str]:
    return st.tuples(*(st.sampled_from((letter, letter.upper())) for letter in text)).map("".join)


evm_written = st.binary(min_size=20, max_size=20).flatmap(lambda data: in_any_case(data.hex())).map("0x{}".format)
solana_written = st.binary(min_size=32, max_size=32).map(lambda data: base58.b58encode(data).decode())
tron_written = st.binary(min_size=20, max_size=20).map(lambda data: base58.b58encode_check(b"\x41" + data).decode())
tron_hex_written = st.binary(min_size=20, max_size=20).map(lambda data: "41" + data.hex())
starknet_written = st.integers(16**40, STARKNET_PRIME - 1).map(hex) | st.integers(1, STARKNET_PRIME - 1).map(
    "0x{:064X}".format
)
any_written = evm_written | solana_written | tron_written | tron_hex_written | starknet_written


@given(any_written)
def test_the_canonical_form_of_a_canonical_form_is_itself(text: str) -> None:
    canonical = account(text)
    assert account(str(canonical)) == canonical
    assert account(canonical.address) == canonical


@given(evm_written)
def test_an_evm_address_is_lower_case_whatever_its_letters_were(text: str) -> None:
    assert account(text) == Account("evm", text.lower())
    assert evm_address(text) == text.lower()
    assert account("0X" + text[2:]) == account(text)


@given(solana_written)
def test_a_solana_address_is_written_as_it_was(text: str) -> None:
    assert account(text) == Account("solana", text)


@given(tron_hex_written)
def test_a_tron_address_in_hex_is_answered_in_base58check(text: str) -> None:
    canonical = account(text)
    assert canonical.kind == "tron"
    assert canonical.address.startswith("T")
    assert len(canonical.address) == 34
    assert base58.b58decode_check(canonical.address).hex() == text
    assert account(canonical.address) == canonical


@given(st.integers(1, STARKNET_PRIME - 1))
def test_a_starknet_address_is_padded_to_64_digits(value: int) -> None:
    assert account(f"0x{value:064x}") == Account("starknet", f"0x{value:064x}")


def test_a_short_starknet_address_and_an_evm_address_are_told_apart_by_their_length() -> None:
    assert account("0x" + "1" * 41) == Account("starknet", "0x" + "0" * 23 + "1" * 41)
    assert account("0x" + "1" * 40).kind == "evm"
    assert account("0x" + "1".zfill(64)).kind == "starknet"


def test_a_wrong_eip55_checksum_is_accepted() -> None:
    assert account(VITALIK) == account(VITALIK.replace("dA6BF", "Da6bf"))


def test_addresses_nobody_owns_are_addresses() -> None:
    assert account(ZERO_ADDRESS).kind == "evm"
    assert account(SYSTEM_PROGRAM) == Account("solana", SYSTEM_PROGRAM)


@given(tron_written, st.integers(1, 33), st.sampled_from(base58.BITCOIN_ALPHABET.decode()))
def test_one_wrong_character_in_a_tron_address_is_found(text: str, at: int, letter: str) -> None:
    wrong = text[:at] + letter + text[at + 1 :]
    if wrong != text:
        with pytest.raises(BadRequest, match=r"checksum is wrong|neither a Solana nor a Tron"):
            account(wrong)


MALFORMED = {
    "nothing": "",
    "white space": "   ",
    "a space before": f" {VITALIK}",
    "a space behind": f"{VITALIK} ",
    "a new line behind": f"{VITALIK}\n",
    "a tab inside": VITALIK[:20] + "\t" + VITALIK[20:],
    "NUL behind": f"{VITALIK}\0",
    "without 0x": VITALIK[2:],
    "0x alone": "0x",
    "39 digits": VITALIK[:-1],
    "no hex digit": "0x" + "g" * 40,
    "a full-width digit": "0x" + "１" + "1" * 39,
    "a Cyrillic letter": VITALIK.replace("a", "а"),
    "65 digits": "0x" + "1" * 65,
    "a felt of zero": "0x" + "0" * 64,
    "the Starknet prime": hex(STARKNET_PRIME),
    "above the Starknet prime": "0x" + "f" * 64,
    "an ENS name": "vitalik.eth",
    "ICAP": "XE7338O073KYGTWWZN0F2WZ0R8PX5ZPPZS",
    "percent-encoded": "0x%64" + VITALIK[4:],
    "double-encoded": "%2530x" + VITALIK[2:],
    "two with a comma": f"{VITALIK},{VITALIK}",
    "a path": f"{VITALIK}/../x",
    "a query": f"{VITALIK}?x=1",
    "a virtual one": "virtual:..",
    "Bitcoin": "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa",
    "Bitcoin bech32": "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4",
    "base58 with an O": "O" * 32,
    "base58 of 31 bytes": base58.b58encode(b"\1" * 31).decode(),
    "base58 of 33 bytes": base58.b58encode(b"\1" * 33).decode(),
    "Tron with a wrong checksum": TRON[:-1] + "M",
    "Tron hex too short": "41" + "a" * 39,
    "Tron hex with 0x": "0x41" + "a" * 39 + "z",
    "CAIP-10": f"eip155:1:{VITALIK}",
    "very long": "a" * 1_000_000,
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadRequest) as error:
        account(text)
    assert error.value.field == "address"
    assert len(error.value.message) < 200


@pytest.mark.parametrize("text", [*MALFORMED.values(), TRON, SYSTEM_PROGRAM, "0x" + "1" * 41])
def test_only_an_evm_address_is_an_evm_address(text: str) -> None:
    with pytest.raises(BadRequest, match="is not an EVM address"):
        evm_address(text)


@given(st.text(max_size=80))
def test_any_text_is_an_account_or_refused(text: str) -> None:
    try:
        canonical = account(text)
    except BadRequest:
        return
    assert account(str(canonical)) == canonical


def test_an_account_on_a_chain_has_a_caip_10_name() -> None:
    assert account(VITALIK).on("eip155:1") == f"eip155:1:{VITALIK.lower()}"
    assert account(TRON).on("tron:728126428") == f"tron:728126428:{TRON}"


@given(any_written)
def test_every_spelling_has_the_form_that_its_kind_says_it_has(text: str) -> None:
    rules = addresses.rules_of(account(text).kind)
    assert re.fullmatch(rules.pattern, text)
    assert rules.canonical(text) == account(text).address


class Entry:
    """An entry point of a package that is installed beside ours."""

    def __init__(self, name: str, loaded: object) -> None:
        self.name, self.loaded = name, loaded

    def load(self) -> object:
        if isinstance(self.loaded, Exception):
            raise self.loaded
        return self.loaded


def test_addresses_of_an_installed_kind_are_read_and_a_broken_package_hides_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def canonical(text: str) -> str | None:
        return text.upper() if text.lower().startswith("toy:") else None

    toy = addresses.AddressRules("toy", "Toy", "toy: + a name", "[tT][oO][yY]:.+", canonical, frozenset(["TOY:"]))
    entries = [Entry("broken", ImportError("x")), Entry("evm", None), Entry("bare", object())]
    entries.append(Entry("toy", type("Kind", (), {"addresses": toy})))
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries)
    for cached in (addresses.installed, addresses.burn_addresses, account):
        cached.cache_clear()
    try:
        assert account("toy:me") == Account("toy", "TOY:ME")
        assert (addresses.rules_of("toy"), "TOY:" in addresses.burn_addresses()) == (toy, True)
        with pytest.raises(BadRequest, match=r"Starknet 0x \+ 64 hex digits, Toy toy: \+ a name"):
            account("nothing")
    finally:
        monkeypatch.undo()
        for cached in (addresses.installed, addresses.burn_addresses, account):
            cached.cache_clear()
    with pytest.raises(BadRequest, match="no kind of chain `toy` is installed"):
        addresses.rules_of("toy")


# --- assets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("eip155:1/slip44:60", None),
        (f"eip155:1/erc20:{VITALIK}", f"eip155:1/erc20:{VITALIK.lower()}"),
        (f"eip155:1/erc721:{VITALIK}/771769", f"eip155:1/erc721:{VITALIK.lower()}/771769"),
        ("solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp/token:EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v", None),
        ("tron:728126428/trc20:TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t", None),
    ],
)
def test_an_asset_has_one_canonical_text(text: str, canonical: str | None) -> None:
    parsed = asset(text)
    assert str(parsed) == (canonical or text)
    assert asset(str(parsed)) == parsed


def test_the_native_coin_is_shown_with_the_zero_address() -> None:
    ether = asset("eip155:1/slip44:60")
    assert (ether.is_native, ether.shown_contract) == (True, ZERO_ADDRESS)
    token = Asset("eip155:1", "erc20", VITALIK.lower())
    assert (token.is_native, token.shown_contract) == (False, VITALIK.lower())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ether",
        "eip155:1",
        "eip155:1/",
        "eip155/erc20:0x1",
        "eip155:1/erc20",
        "EIP155:1/slip44:60",
        "eip155:1/slip44:60 ",
        "eip155:1/slip44:60\n",
        "eip155:1/slip44:60/",
        "eip155:1/slip44:6 0",
        "eip155:" + "1" * 33 + "/slip44:60",
        f"eip155:1/erc20:{VITALIK[:-1]}",
        f"eip155:1/erc20:{TRON}",
        f"eip155:1/erc721:{VITALIK}/{'1' * 79}",
    ],
)
def test_what_is_no_asset_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        asset(text)
