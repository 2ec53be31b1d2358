"""/v1/addressbook: the wallets that an account has saved, with their labels."""

from __future__ import annotations

from typing import Annotated, Final, Literal, cast

import msgspec

from chainfolio.api.addresses import PATTERN
from chainfolio.api.context import Answer, Context
from chainfolio.api.example_addresses import ANOTHER, WALLET
from chainfolio.api.router import RouteOptions, get, write
from chainfolio.api.status import Moment, iso_time
from chainfolio.api.tenants import COMMON, DELEGATE_HEADERS, change_for_account, read_for_account
from chainfolio.api.texts import MAX_CHARS, tidy
from chainfolio.storage.state import address_book
from chainfolio.storage.state.database import Transaction
from chainfolio.storage.state.quotas import MAX_QUOTA

Address = Annotated[
    str,
    msgspec.Meta(
        description="A wallet: EVM `0x` + 40 hex digits in any case, Solana base58, Tron `T…`, Starknet `0x` + 64 hex "
        "digits. Stored and returned in canonical form.",
        examples=[WALLET],
        extra_json_schema={"pattern": PATTERN},
    ),
]
Label = Annotated[
    str,
    msgspec.Meta(
        description="A name for people. White space around it is removed; it may be empty.",
        extra_json_schema={"maxLength": MAX_CHARS},
    ),
]
Plan = Literal["FREE", "LITE", "PRO"]
FAMILY: Final[RouteOptions] = {
    "tag": "Address book",
    "needs": "portfolio",
    "cost": 1,
    "envelope": "coded",
    "takes": DELEGATE_HEADERS,
}


class NewEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A wallet to add to the address book."""

    address: Address
    label: Label = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "label", tidy("label", self.label))


class NewEntries(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Wallets to add to the address book. No address may be repeated."""

    entries: Annotated[list[NewEntry], msgspec.Meta(min_length=1, max_length=100)]


class BookQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Page of a list; the whole list by default."""

    limit: Annotated[int, msgspec.Meta(description="Maximum number of items.", ge=1, le=MAX_QUOTA)] = MAX_QUOTA
    offset: Annotated[int, msgspec.Meta(description="Number of items to skip.", ge=0, le=MAX_QUOTA)] = 0


class NewLabel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The new label; an empty one clears it."""

    label: Label

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "label", tidy("label", self.label))


class EntryPath(msgspec.Struct, frozen=True):
    """Address of an entry."""

    address: Annotated[Address, msgspec.Meta(examples=[ANOTHER])]


class Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A wallet in the address book.

    After a plan expires, `plan` and `expiresAt` stay and `isPaid` is false.
    """

    address: str
    label: str
    plan: Plan
    expires_at: Moment | None
    is_paid: bool


class EntryAnswer(msgspec.Struct, frozen=True):
    """One entry."""

    data: Entry


class BookAnswer(msgspec.Struct, frozen=True):
    """Entries in the order in which they were added."""

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
    """Returns the wallets saved to the account, in the order in which they were added.

    `limit` and `offset` select a page.
    """
    now_us = request.parts.environment.clock.now_us()
    return await read_for_account(
        request, lambda tx, account_id: _book(tx, account_id, now_us, query.limit, query.offset)
    )


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
    """Adds all the wallets or, on an error, none, and returns the whole address book.

    A wallet that is already saved keeps its label.
    """
    now_us, quotas = request.parts.environment.clock.now_us(), request.parts.settings.quotas
    addresses = address_book.distinct(entry.address for entry in body.entries)
    labels = {address: entry.label for address, entry in zip(addresses, body.entries, strict=True)}

    def work(tx: Transaction, account_id: str) -> BookAnswer:
        address_book.add(tx, account_id, labels, quotas, now_us)
        return _book(tx, account_id, now_us)

    return await change_for_account(request, work, repeat=lambda tx, account_id: _book(tx, account_id, now_us))


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
    """Changes the label of a wallet and returns the entry. An empty label clears it."""
    now_us, address = request.parts.environment.clock.now_us(), address_book.canonical(path.address)
    return await change_for_account(
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
    """Removes a wallet from the address book and from all bundles.

    Refused with 409 if its plan is paid, if its owner authorized it, or if a bundle would become empty or equal to
    another bundle.
    """
    now_us, address = request.parts.environment.clock.now_us(), address_book.canonical(path.address)
    return await change_for_account(request, lambda tx, id: address_book.remove(tx, id, address, now_us), 204)


def _book(tx: Transaction, account_id: str, now_us: int, limit: int = MAX_QUOTA, offset: int = 0) -> BookAnswer:
    return BookAnswer([_answer(entry, now_us) for entry in address_book.entries(tx, account_id, limit, offset)])


def _answer(entry: address_book.Entry, now_us: int) -> Entry:
    """Return the entry as the API shows it, paid or not as of `now_us`."""
    return Entry(
        address=entry.address,
        label=entry.label,
        plan=cast(Plan, entry.plan),
        expires_at=iso_time(entry.expires_us),
        is_paid=entry.is_paid(now_us),
    )
