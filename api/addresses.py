"""The `addresses` parameter: comma-joined, repeated or both, each in its canonical form, in order, answered once."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from api.fields import Reader, Refused
from chainfolio.assets import Account, account
from chainfolio.errors import BadRequest
from chainfolio.settings import Settings


def read_accounts(values: list[str], settings: Settings) -> tuple[Account, ...]:
    """The accounts behind the values, each once; Refused names what is not an address."""
    written = [item for value in values for item in value.split(",")]
    if not all(written):
        raise Refused("has an empty item: addresses are joined by single commas")
    accounts = tuple(dict.fromkeys(_account(item) for item in written))
    most = settings.server.max_addresses
    if len(accounts) > most:
        raise Refused(f"holds {len(accounts)} addresses; at most {most} are answered in one call")
    return accounts


def _account(written: str) -> Account:
    try:
        return account(written)
    except BadRequest as error:
        raise Refused(f"is malformed: {error.reason}" + (f" ({error.cure})" if error.cure else "")) from None


def _schema(settings: Settings) -> dict[str, Any]:
    return {
        "type": "array",
        "items": {"type": "string", "minLength": 1, "maxLength": 128},
        "minItems": 1,
        "maxItems": settings.server.max_addresses,
    }


Addresses = Annotated[
    tuple[Account, ...],
    Reader(read_accounts, _schema),
    msgspec.Meta(
        description="Wallet addresses, joined by commas (or the parameter repeated): EVM `0x` + 40 hex digits in any "
        "case, Solana base58, Tron `T…`, Starknet `0x` + 64 hex digits. Order is kept; an address given twice is "
        "answered once.",
        examples=[["0xd8da6bf26964af9d7eed9e03e53415d37aa96045"]],
    ),
]
