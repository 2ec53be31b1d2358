"""/v1/virtual-users: portfolios that an account defined itself, and their values."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

import msgspec

from chainfolio import contracts
from chainfolio.api.context import Context
from chainfolio.api.examples import EXAMPLE
from chainfolio.api.failures import READING
from chainfolio.api.fields import InvalidParameter, JsonObject, Reader, quoted
from chainfolio.api.portfolio import IncludeExplorerUrls, IncludeImages, IncludeSources, WaitForSync
from chainfolio.api.router import get
from chainfolio.engine.virtual_users import check_supported, unsupported_users
from chainfolio.portfolio.document import Portfolio
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.finished import finish
from chainfolio.portfolio.merge import merge_users
from chainfolio.settings import Settings
from chainfolio.storage.state import virtual_users as store

_ADDRESS = re.compile(r"virtual:([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\Z", re.ASCII)
HEX: Final = "[0-9a-fA-F]"
EXAMPLE_ADDRESS: Final = "virtual:0b5a2c1e-7d0f-4c58-9a0e-3f6f2f1d9b11"
Kind = Literal["BALANCE", "CEX", "GROUP"]


def read_ids(values: list[str], settings: Settings) -> tuple[str, ...]:
    """Return the ids in `virtual:<id>` values, comma-separated, repeated or both, without duplicates.

    Raises:
        InvalidParameter: A value is malformed, or there are too many.
    """
    ids = tuple(dict.fromkeys(_id(item) for value in values for item in value.split(",")))
    max_ids = settings.server.max_addresses
    if len(ids) > max_ids:
        raise InvalidParameter(f"holds {len(ids)} virtual users; at most {max_ids} are answered in one call")
    return ids


def _id(text: str) -> str:
    """Return the UUID of `virtual:<uuid>` in lower case; InvalidParameter for other texts."""
    scheme, mark, value = text.partition(":")
    match = _ADDRESS.match(f"{scheme}{mark}{value.lower()}")
    if not match:
        raise InvalidParameter(f"cannot hold {quoted(text)}: it is written virtual:<uuid>")
    return match[1]


def _schema(settings: Settings) -> JsonObject:
    """Return the JSON schema of a list of virtual users, with the operator's maximum of addresses."""
    return {
        "type": "array",
        "items": {"type": "string", "pattern": f"^virtual:{HEX}{{8}}(?:-{HEX}{{4}}){{3}}-{HEX}{{12}}$"},
        "minItems": 1,
        "maxItems": settings.server.max_addresses,
    }


VirtualAddresses = Annotated[
    tuple[str, ...],
    Reader(read_ids, _schema),
    msgspec.Meta(
        description="Virtual users as `virtual:<uuid>`, joined by commas (or the parameter repeated). The answer keeps "
        "their order; a repeated one counts, and costs, once.",
        examples=[[EXAMPLE_ADDRESS]],
    ),
]


class VirtualQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Virtual users and optional parts of the answer."""

    addresses: VirtualAddresses
    aggregated: Annotated[
        bool, msgspec.Meta(description="One portfolio over all of them; its `address` is the ids joined by commas.")
    ] = False
    wait_for_sync: WaitForSync = False
    include_images: IncludeImages = False
    include_explorer_urls: IncludeExplorerUrls = False
    include_sources: IncludeSources = False


class VirtualUser(msgspec.Struct, frozen=True):
    """A portfolio that the account defined: fixed balances, an exchange's, or a group of addresses."""

    address: str
    type: Kind
    label: str


@get(
    "/v1/virtual-users",
    tag="Virtual users",
    summary="All virtual users",
    needs="pro",
    cost=1,
    example=[{"address": EXAMPLE_ADDRESS, "type": "BALANCE", "label": "Cold storage"}],
)
async def virtual_users(request: Context) -> list[VirtualUser]:
    """Returns the virtual users of the account."""
    owner = _caller(request)
    stored = await request.parts.state.read(lambda tx: store.every(tx, owner))
    return [VirtualUser(f"virtual:{each.id}", each.type, each.label) for each in stored]


@get(
    "/v1/virtual-users/portfolio",
    tag="Virtual users",
    summary="Portfolios of virtual users",
    needs="pro",
    cost=1,
    units=lambda arguments: len(arguments["query"].addresses),
    allow=lambda request, query: _check_own(request, query),
    codes=("FORBIDDEN",),
    fails=READING,
    example=EXAMPLE,
)
async def virtual_users_portfolio(request: Context, query: VirtualQuery) -> list[Portfolio]:
    """Returns one portfolio per virtual user, in order, or with `aggregated` one over all of them.

    It costs 1 credit per virtual user; those without a configured chain are free. An id that does not belong to the
    account is refused with 403, whether or not it exists.
    """
    users = await _own_users(request, query)
    options = Options(
        images=query.include_images,
        explorer_urls=query.include_explorer_urls,
        sources=query.include_sources,
        rates=True,
    )
    portfolios = await request.engine.virtual(users, options, wait=query.wait_for_sync)
    return [finish(merge_users(portfolios))] if query.aggregated else portfolios


async def _own_users(request: Context, query: VirtualQuery) -> list[contracts.VirtualUser]:
    """Return the requested virtual users; a Refusal is raised if one does not belong to the account."""
    owner = _caller(request)
    return await request.parts.state.read(lambda tx: store.find_all(tx, owner, query.addresses))


async def _check_own(request: Context, query: VirtualQuery) -> None:
    """Exempt virtual users without a configured chain from the cost.

    A Refusal is raised if one does not belong to the account, NotSupported if none can be answered.
    """
    users, kinds = await _own_users(request, query), request.engine.kinds()
    chains = {chain.key for chain in request.engine.chains()}
    check_supported(users, kinds, chains)
    request.unanswerable = len(unsupported_users(users, kinds, chains))


def _caller(request: Context) -> str:
    return request.principal.account_id
