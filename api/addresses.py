"""The `addresses` parameter: comma-separated or repeated, read in canonical form without duplicates."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from chainfolio.addresses import EVM, all_rules
from chainfolio.api.example_addresses import WALLET
from chainfolio.api.fields import InvalidParameter, JsonObject, Reader, quoted
from chainfolio.assets import Account, account
from chainfolio.errors import BadRequest
from chainfolio.settings import Settings

# One alternative per kind of address; a pattern can check neither a checksum nor the byte length of base58.
PATTERN: Final = f"^(?:{'|'.join(rules.pattern for rules in all_rules())})$"
ADDRESS_SCHEMA: Final[JsonObject] = {"type": "string", "pattern": PATTERN, "maxLength": 66}


def read_accounts(values: list[str], settings: Settings) -> tuple[Account, ...]:
    """Return the accounts of all values (joined by commas, or repeated) in order, without duplicates.

    Raises:
        InvalidParameter: An item is empty or not an address, or there are more addresses than one call may have.
    """
    items = [item for value in values for item in value.split(",")]
    if not all(items):
        raise InvalidParameter("has an empty item: addresses are joined by single commas")
    accounts = tuple(dict.fromkeys(read_account(item) for item in items))
    max_addresses = settings.server.max_addresses
    if len(accounts) > max_addresses:
        raise InvalidParameter(f"holds {len(accounts)} addresses; at most {max_addresses} are answered in one call")
    return accounts


def read_evm_account(values: list[str], settings: Settings) -> tuple[Account, ...]:
    """Return exactly one EVM account, as a tuple of one.

    Raises:
        InvalidParameter: There is more than one address, or it is not an EVM address.
    """
    accounts = read_accounts(values, settings)
    if len(accounts) != 1:
        raise InvalidParameter(f"holds {len(accounts)} addresses; exactly one is answered here")
    (account,) = accounts
    if account.kind != EVM.kind:
        raise InvalidParameter(f"is malformed: {account} is not an EVM address (0x followed by 40 hex digits)")
    return accounts


def read_account(text: str) -> Account:
    """Return the account of one address.

    Raises:
        InvalidParameter: The text is a name or a malformed address; the message says which.
    """
    try:
        return account(text)
    except BadRequest as error:
        if "." in text:
            raise InvalidParameter(
                f"is malformed: {quoted(text)} is a name: only commands look up names, give its address"
            ) from None
        raise InvalidParameter(
            f"is malformed: {error.reason}" + (f" ({error.remedy})" if error.remedy else "")
        ) from None


def _schema(settings: Settings) -> JsonObject:
    """Return the JSON schema of a list of addresses, with the operator's maximum."""
    return {
        "type": "array",
        "items": ADDRESS_SCHEMA,
        "minItems": 1,
        "maxItems": settings.server.max_addresses,
    }


def _single_address(settings: Settings) -> JsonObject:
    return {"type": "string", "pattern": f"^{EVM.pattern}$"}


Addresses = Annotated[
    tuple[Account, ...],
    Reader(read_accounts, _schema),
    msgspec.Meta(
        description="Wallet addresses, joined by commas (or the parameter repeated): EVM `0x` + 40 hex digits in any "
        "case, Solana base58, Tron `T…`, Starknet `0x` + 64 hex digits. The answer keeps their order; a repeated "
        "address counts once.",
        examples=[[WALLET]],
    ),
]

EvmAddress = Annotated[
    tuple[Account, ...],
    Reader(read_evm_account, _single_address),
    msgspec.Meta(
        description="Exactly one EVM wallet address: `0x` + 40 hex digits in any case.",
        examples=[WALLET],
    ),
]
