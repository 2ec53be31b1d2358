"""What sources that read accounts of Solana's programs have in common: their reads, and how sections name addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from chainfolio.addresses import SOLANA
from chainfolio.assets import Asset
from chainfolio.errors import BadRequest, BadSettings
from chainfolio.kinds import contract_calls
from chainfolio.reads import Read
from pricing.fixed import canonical

KIND: Final = "solana"  # of the chains on which programs lie
AHEAD_S: Final = 30  # a validator's clock may be behind the clocks of those who observe prices


def account(program: str, layout: str, *at: str | bytes) -> Read:
    """A read of an account of a program: its address, or the seeds that it is derived from."""
    read: Read = contract_calls(KIND)(program, layout, at)
    return read


def derived(program: str, *seeds: str | bytes) -> str:
    """The address that a program derives from seeds."""
    _, address, _, _ = account(program, "token_account", *seeds).shown
    return str(address)


def key_of(address: str) -> bytes:
    """The bytes of an address: programs order mints by them."""
    import base58

    return base58.b58decode(address)


def address_of(section: Mapping[str, Any], key: str, where: str) -> str:
    """An address that a section has to name."""
    written = section.get(key)
    try:
        if isinstance(written, str) and SOLANA.canonical(written) == written:
            return written
    except BadRequest:
        pass
    raise BadSettings(where, f"{key} is {written!r:.60}, not an address", remedy="base58, 32 bytes")


def token_of(written: str, where: str) -> Asset:
    """A token of Solana that a line is about; BadSettings for anything else."""
    found = canonical(written, where)
    if not found.chain.startswith(f"{KIND}:") or found.kind != "token" or found.token_id:
        raise BadSettings(where, f"{written!r:.90} is not a token of Solana", remedy="solana:…/token:<mint>")
    return found
