"""Conversions of Tron's addresses, and hashes. Internally an address is hex that begins with 41."""

import hashlib
import re
from functools import lru_cache

import base58
from eth_keys.datatypes import Signature
from eth_keys.exceptions import BadSignature
from sha3 import keccak_256

HEX = re.compile(r"41[0-9a-f]{40}")


class BadAddress(ValueError):
    """Text that is no address in the spelling that was asked for."""


def base58check(address: str) -> str:
    """Return an address in base58, `T…`."""
    return base58.b58encode_check(bytes.fromhex(address)).decode()


def inner(text: object, visible: bool = False) -> str:
    """Return an address in internal form, from base58 if `visible`, else from hex; BadAddress if invalid."""
    try:
        address = base58.b58decode_check(text).hex() if visible and isinstance(text, str) else str(text).lower()
    except ValueError as error:
        raise BadAddress(f"INVALID base58 String, {text}") from error
    if not HEX.fullmatch(address):
        raise BadAddress(f"INVALID hex String, {text}")
    return address


def evm_address(address: str) -> str:
    """Return the address in the virtual machine: 20 bytes in hex with 0x."""
    return "0x" + address[2:]


def tron(address: str) -> str:
    """Return the internal form of an address of the virtual machine."""
    return "41" + address.removeprefix("0x").lower()


def sha256(content: bytes) -> bytes:
    """Return the hash that identifies transactions and blocks."""
    return hashlib.sha256(content).digest()


def contract_address(transaction: str, owner: str) -> str:
    """Return the address of the contract that a transaction creates."""
    digest: str = keccak_256(bytes.fromhex(transaction + owner)).hexdigest()
    return "41" + digest[24:]


@lru_cache(100_000)
def signer(transaction: str, signature: str) -> str | None:
    """Return the address that made a signature; None if the signature is not valid."""
    raw = bytes.fromhex(signature)
    if len(raw) != 65:
        return None
    try:
        key = Signature(raw[:64] + bytes([raw[64] % 27])).recover_public_key_from_msg_hash(bytes.fromhex(transaction))
    except BadSignature:
        return None
    return tron(key.to_address())
