"""/v1/addressbook: the wallets that an account knows, by the names it gave them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, cast

import msgspec

from chainfolio.api.addresses import PATTERN
from chainfolio.api.context import Answer, Context
from chainfolio.api.example_addresses import ANOTHER, WALLET
from chainfolio.api.router import get, write
from chainfolio.api.status import Moment, iso_time
from chainfolio.api.tenants import COMMON, TAKES, keep, look
from chainfolio.api.texts import MAX_CHARS, tidy
from chainfolio.storage.state import address_book
from chainfolio.storage.state.database import Transaction
from chainfolio.storage.state.quotas import MAX_QUOTA

Address = Annotated[
    str,
    msgspec.Meta(
        description="A wallet: EVM `0x` + 40 hex digits in any case, Solana base58, Tron `T…`, Starknet `0x` + 64 hex "
        "digits. It is kept, and answered, in one form.",
        examples=[WALLET],
        extra_json_schema={"pattern": PATTERN},
    ),
]
Label = Annotated[
    str,
    msgspec.Meta(
        description="A name for people; trimmed, and empty where there is none.",
        extra_json_schema={"maxLength": MAX_CHARS},
    ),
]
Plan = Literal["FREE", "LITE", "PRO"]
FAMILY: Final[dict[str, Any]] = {
    "tag": "Address book",
    "needs": "portfolio",
    "cost": 1,
    "envelope": "coded",
    "takes": TAKES,
}


class NewEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A wallet to be known."""

    address: Address
    label: Label = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "label", tidy("label", self.label))


class NewEntries(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Wallets to be known, each once."""

    entries: Annotated[list[NewEntry], msgspec.Meta(min_length=1, max_length=100)]


class BookQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a list; without either, all of it."""

    limit: Annotated[int, msgspec.Meta(description="How many at most.", ge=1, le=MAX_QUOTA)] = MAX_QUOTA
    offset: Annotated[int, msgspec.Meta(description="How many are left out before.", ge=0, le=MAX_QUOTA)] = 0


class NewLabel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another name; an empty one clears it."""

    label: Label

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "label", tidy("label", self.label))


class EntryPath(msgspec.Struct, frozen=True):
    """Which entry."""

    address: Annotated[Address, msgspec.Meta(examples=[ANOTHER])]


class Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A wallet in the address book. A plan that has lapsed stays, with its end; only `isPaid` is then false."""

    address: str
    label: str
    plan: Plan
    expires_at: Moment | None
    is_paid: bool


class EntryAnswer(msgspec.Struct, frozen=True):
    """One entry."""

    data: Entry


class BookAnswer(msgspec.Struct, frozen=True):
    """Every entry, in the order in which they were added."""

    data: list[Entry]


EXAMPLE: Final = {
    "address": WALLET,
    "label": "Treasury",
    "plan": "PRO",
    "expiresAt": "2027-01-01T00:00:00.000Z",
    "isPaid": True,
}


@get("/v1/addressbook", summary="The address book", codes=COMMON, example={"data": [EXAMPLE]}, **FAMILY)
async def addressbook(request: Context, query: BookQuery) -> BookAnswer:
    """Every wallet saved to the account, or with `limit` and `offset` a part of them."""
    now_us = request.parts.environment.clock.now_us()
    return await look(request, lambda tx, account_id: _book(tx, account_id, now_us, query.limit, query.offset))


@write(
    "POST",
    "/v1/addressbook",
    summary="Add wallets",
    codes=("VALIDATION_ERROR", *COMMON, "ADDRESSBOOK_QUOTA_REACHED"),
    check=lambda request, body: address_book.distinct(entry.address for entry in body.entries),
    answers={200: BookAnswer},
    example={"data": [EXAMPLE]},
    **FAMILY,
)
async def add_entries(request: Context, body: NewEntries) -> Answer:
    """Adds all of them or none, and answers the whole address book. A wallet that is in it already keeps its label."""
    now_us, quotas = request.parts.environment.clock.now_us(), request.parts.settings.quotas
    addresses = address_book.distinct(entry.address for entry in body.entries)
    labels = {address: entry.label for address, entry in zip(addresses, body.entries, strict=True)}

    def work(tx: Transaction, account_id: str) -> BookAnswer:
        address_book.add(tx, account_id, labels, quotas, now_us)
        return _book(tx, account_id, now_us)

    return await keep(request, work, repeat=lambda tx, account_id: _book(tx, account_id, now_us))


@write(
    "PATCH",
    "/v1/addressbook/{address}",
    summary="Rename a wallet",
    codes=("VALIDATION_ERROR", "ADDRESSBOOK_ENTRY_NOT_FOUND", *COMMON),
    check=lambda request, path, body: address_book.canonical(path.address),
    answers={200: EntryAnswer},
    example={"data": EXAMPLE},
    **FAMILY,
)
async def rename_entry(request: Context, path: EntryPath, body: NewLabel) -> Answer:
    """Gives it another label; an empty one clears it."""
    now_us, address = request.parts.environment.clock.now_us(), address_book.canonical(path.address)
    return await keep(
        request, lambda tx, id: EntryAnswer(_answer(address_book.rename(tx, id, address, body.label), now_us))
    )


@write(
    "DELETE",
    "/v1/addressbook/{address}",
    summary="Remove a wallet",
    codes=("VALIDATION_ERROR", "ADDRESSBOOK_ENTRY_NOT_FOUND", *COMMON, "ADDRESSBOOK_ENTRY_NOT_DELETABLE"),
    check=lambda request, path: address_book.canonical(path.address),
    answers={204: Answer},
    **FAMILY,
)
async def remove_entry(request: Context, path: EntryPath) -> Answer:
    """It leaves the bundles that it is in. Refused while its plan is paid for, where its owner authorized it, and where
    a bundle would be left empty or equal to another one."""
    now_us, address = request.parts.environment.clock.now_us(), address_book.canonical(path.address)
    return await keep(request, lambda tx, id: address_book.remove(tx, id, address, now_us), 204)


def _book(tx: Transaction, account_id: str, now_us: int, limit: int = MAX_QUOTA, offset: int = 0) -> BookAnswer:
    return BookAnswer([_answer(entry, now_us) for entry in address_book.entries(tx, account_id, limit, offset)])


def _answer(entry: address_book.Entry, now_us: int) -> Entry:
    return Entry(
        address=entry.address,
        label=entry.label,
        plan=cast(Plan, entry.plan),
        expires_at=iso_time(entry.expires_us),
        is_paid=entry.is_paid(now_us),
    )
