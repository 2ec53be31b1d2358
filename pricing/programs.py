"""Shared parts of sources that read accounts of Solana programs: reads, and parsing of addresses."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import base58

from chainfolio.addresses import SOLANA
from chainfolio.assets import Asset
from chainfolio.errors import BadRequest, BadSettings
from chainfolio.kinds import contract_calls
from chainfolio.price_sources import Section, parse_asset
from chainfolio.reads import ContractRead

KIND: Final = "solana"  # of the chains that have these programs
MAX_CLOCK_SKEW_S: Final = 30  # a validator's clock may be behind the clocks of those who observe prices

Record: TypeAlias = Any  # result of an account read: the fields of its layout, or `Unknown`


def account_read(program: str, layout: str, *address: str | bytes) -> ContractRead:
    """Return the read of a program's account, given its address or the seeds of its address."""
    return contract_calls(KIND)(program, layout, address)


def derive_address(program: str, *seeds: str | bytes) -> str:
    """Return the address that a program derives from seeds."""
    _, address, _, _ = account_read(program, "token_account", *seeds).label
    return str(address)


def address_bytes(address: str) -> bytes:
    """Return the bytes of an address; programs order mints by them."""
    return base58.b58decode(address)


def parse_address(section: Section, key: str, location: str) -> str:
    """Return the address that a section has as `key`; raise BadSettings if it is missing or malformed."""
    text = section.get(key)
    try:
        if isinstance(text, str) and SOLANA.canonical(text) == text:
            return text
    except BadRequest:
        pass
    raise BadSettings(location, f"{key} is {text!r:.60}, not an address", remedy="base58, 32 bytes")


def parse_token(text: str, location: str) -> Asset:
    """Parse a fungible token of Solana; raise BadSettings for any other asset."""
    token = parse_asset(text, location)
    if not token.chain.startswith(f"{KIND}:") or token.kind != "token" or token.token_id:
        raise BadSettings(location, f"{text!r:.90} is not a token of Solana", remedy="solana:…/token:<mint>")
    return token
