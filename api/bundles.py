"""/v1/bundles: named groups of wallets from the address book."""

from __future__ import annotations

import uuid
from typing import Annotated, Final

import msgspec

from chainfolio.api.addressbook import Address, BookQuery
from chainfolio.api.context import Answer, Context
from chainfolio.api.example_addresses import ANOTHER, WALLET
from chainfolio.api.router import RouteOptions, get, write
from chainfolio.api.tenants import COMMON, DELEGATE_HEADERS, change_for_account, read_for_account
from chainfolio.api.texts import MAX_CHARS, tidy
from chainfolio.storage.state import bundles as store
from chainfolio.storage.state.address_book import canonical, distinct

Name = Annotated[
    str,
    msgspec.Meta(
        description="A name for people, unique in the account; case matters. White space around it is removed.",
        extra_json_schema={"minLength": 1, "maxLength": MAX_CHARS},
    ),
]
ID: Final = "0b5a2c1e-7d0f-4c58-9a0e-3f6f2f1d9b11"
Id = Annotated[str, msgspec.Meta(description="The bundle's id.", examples=[ID])]
FAMILY: Final[RouteOptions] = {
    "tag": "Bundles",
    "needs": "portfolio",
    "cost": 1,
    "envelope": "coded",
    "takes": DELEGATE_HEADERS,
}
NOT_FOUND: Final = ("BUNDLE_NOT_FOUND", *COMMON)


class NewBundle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bundle to create."""

    name: Annotated[Name, msgspec.Meta(examples=["Treasury"])]
    addresses: Annotated[list[Address], msgspec.Meta(min_length=1, max_length=100)]

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "name", tidy("name", self.name, min_chars=1))


class NewName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The new name of a bundle."""

    name: Annotated[Name, msgspec.Meta(examples=["Rainy days"])]

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "name", tidy("name", self.name, min_chars=1))


class NewMember(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A wallet to add to a bundle."""

    address: Annotated[Address, msgspec.Meta(examples=[ANOTHER])]


class BundlePath(msgspec.Struct, frozen=True, rename="camel"):
    """Id of a bundle."""

    bundle_id: Id


class MemberPath(msgspec.Struct, frozen=True, rename="camel"):
    """Id of a bundle and address of a member."""

    bundle_id: Id
    address: Address


class Bundle(msgspec.Struct, frozen=True):
    """A named group of wallets, in the order in which they were added. It is never empty."""

    id: str
    name: str
    addresses: list[str]


class BundleAnswer(msgspec.Struct, frozen=True):
    """One bundle."""

    data: Bundle


class BundlesAnswer(msgspec.Struct, frozen=True):
    """Bundles in the order in which they were created."""

    data: list[Bundle]


EXAMPLE: Final = {
    "id": ID,
    "name": "Treasury",
    "addresses": [WALLET],
}
ONE: Final[RouteOptions] = {"answers": {200: BundleAnswer}, "example": {"data": EXAMPLE}, **FAMILY}


@get("/v1/bundles", summary="All bundles", codes=COMMON, example={"data": [EXAMPLE]}, **FAMILY)
async def bundles(request: Context, query: BookQuery) -> BundlesAnswer:
    """Returns the bundles of the account, in the order in which they were created.

    `limit` and `offset` select a page.
    """
    stored = await read_for_account(request, store.every)
    return BundlesAnswer([_bundle(each) for each in stored[query.offset : query.offset + query.limit]])


@write(
    "POST",
    "/v1/bundles",
    summary="Create a bundle",
    codes=(
        "VALIDATION_ERROR",
        *COMMON,
        "BUNDLE_NAME_TAKEN",
        "BUNDLE_MEMBERS_ALREADY_BUNDLED",
        "BUNDLE_SIZE_LIMIT_EXCEEDED",
        "BUNDLE_ADDRESS_NOT_IN_ADDRESS_BOOK",
        "BUNDLE_QUOTA_REACHED",
    ),
    check=lambda request, body: distinct(body.addresses),
    **ONE,
)
async def create_bundle(request: Context, body: NewBundle) -> Answer:
    """Creates a bundle and returns it.

    Every address must be in the address book. No two bundles may have the same name or exactly the same members.
    """
    id = str(uuid.UUID(int=request.parts.environment.random.getrandbits(128), version=4))
    quotas, addresses = request.parts.settings.quotas, distinct(body.addresses)
    return await change_for_account(
        request, lambda tx, account_id: _answer(store.create(tx, account_id, id, body.name, addresses, quotas))
    )


@get("/v1/bundles/{bundleId}", summary="One bundle", codes=NOT_FOUND, **ONE)
async def bundle(request: Context, path: BundlePath) -> BundleAnswer:
    """Returns a bundle by its id."""
    return _answer(await read_for_account(request, lambda tx, account_id: store.find(tx, account_id, path.bundle_id)))


@write("PATCH", "/v1/bundles/{bundleId}", summary="Rename a bundle", codes=(*NOT_FOUND, "BUNDLE_NAME_TAKEN"), **ONE)
async def rename_bundle(request: Context, path: BundlePath, body: NewName) -> Answer:
    """Changes the name of a bundle and returns the bundle.

    Its current name is accepted and changes nothing.
    """
    return await change_for_account(request, lambda tx, id: _answer(store.rename(tx, id, path.bundle_id, body.name)))


@write("DELETE", "/v1/bundles/{bundleId}", summary="Delete a bundle", codes=NOT_FOUND, answers={204: Answer}, **FAMILY)
async def delete_bundle(request: Context, path: BundlePath) -> Answer:
    """Deletes a bundle. Its addresses stay in the address book."""
    return await change_for_account(request, lambda tx, id: store.delete(tx, id, path.bundle_id), 204)


@write(
    "POST",
    "/v1/bundles/{bundleId}/addresses",
    summary="Add a member",
    codes=(
        "VALIDATION_ERROR",
        *NOT_FOUND,
        "BUNDLE_MEMBERS_ALREADY_BUNDLED",
        "BUNDLE_SIZE_LIMIT_EXCEEDED",
        "BUNDLE_ADDRESS_NOT_IN_ADDRESS_BOOK",
    ),
    check=lambda request, path, body: canonical(body.address),
    **ONE,
)
async def add_member(request: Context, path: BundlePath, body: NewMember) -> Answer:
    """Adds an address of the address book to the bundle and returns the bundle.

    An address that is already in it changes nothing.
    """
    quotas, address = request.parts.settings.quotas, canonical(body.address)
    return await change_for_account(
        request, lambda tx, id: _answer(store.add_member(tx, id, path.bundle_id, address, quotas))
    )


@write(
    "DELETE",
    "/v1/bundles/{bundleId}/addresses/{address}",
    summary="Remove a member",
    codes=(
        "VALIDATION_ERROR",
        *NOT_FOUND,
        "ADDRESSBOOK_ENTRY_NOT_FOUND",
        "BUNDLE_MEMBERS_ALREADY_BUNDLED",
        "BUNDLE_EMPTY",
    ),
    check=lambda request, path: canonical(path.address),
    **ONE,
)
async def remove_member(request: Context, path: MemberPath) -> Answer:
    """Removes an address from the bundle and returns the bundle.

    The address stays in the address book. The last address of a bundle cannot be removed.
    """
    address = canonical(path.address)
    return await change_for_account(
        request, lambda tx, id: _answer(store.remove_member(tx, id, path.bundle_id, address))
    )


def _answer(bundle: store.Bundle) -> BundleAnswer:
    return BundleAnswer(_bundle(bundle))


def _bundle(bundle: store.Bundle) -> Bundle:
    return Bundle(bundle.id, bundle.name, list(bundle.addresses))
