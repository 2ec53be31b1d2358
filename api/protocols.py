"""GET /v1/chains/{key}/protocols and /v1/contract-protocol: protocols of chains and contracts."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType

from chainfolio.addresses import EVM
from chainfolio.api.context import Context
from chainfolio.api.errors import FieldError, invalid
from chainfolio.api.example_addresses import AAVE_POOL
from chainfolio.api.fields import one_of, quoted
from chainfolio.api.router import get
from chainfolio.errors import NotFound
from chainfolio.indexer.registry import Protocol
from chainfolio.portfolio.pictures import pictures

_IMAGE: Final = "https://images.example/aave3.svg"


class ChainPath(msgspec.Struct, frozen=True):
    """Key of a chain."""

    key: Annotated[str, msgspec.Meta(description="Key of the chain, from `/v1/chains`.", examples=["ethereum"])]


class PageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Page of a list."""

    page: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1, description="Number of the page, from 1.")] = 1
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="Maximum number of items of a page.")] = 20


class ListedProtocol(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One protocol. `uuid` is derived from its key and never changes. `isUserProtocol` is always false."""

    uuid: str
    name: str
    key: str
    img_small: str
    img_large: str
    is_user_protocol: bool = False


class Pagination(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Position of a page in the list."""

    page: int
    limit: int
    has_more: bool


class ProtocolsPage(msgspec.Struct, frozen=True, kw_only=True):
    """Protocols of one chain, sorted by name."""

    data: list[ListedProtocol]
    pagination: Pagination


@get(
    "/v1/chains/{key}/protocols",
    tag="Service",
    summary="Protocols known on a chain",
    cost=0,
    fails={404: "This server has no such chain."},
    example={
        "data": [
            {
                "uuid": "8b49d5a3-740d-53b3-942d-653c8616c4f0",
                "name": "Aave V3",
                "key": "aave3",
                "imgSmall": _IMAGE,
                "imgLarge": _IMAGE,
                "isUserProtocol": False,
            }
        ],
        "pagination": {"page": 1, "limit": 20, "hasMore": False},
    },
)
async def chain_protocols(request: Context, path: ChainPath, query: PageQuery) -> ProtocolsPage:
    """Returns the protocols with known contracts on the chain, sorted by name.

    A page after the last one is empty. If the chain is not configured, the answer is 404.
    """
    if path.key not in _chains(request):
        raise _unknown_chain(path.key)
    protocols = request.engine.protocols().on(path.key)
    first, end = (query.page - 1) * query.limit, query.page * query.limit
    return ProtocolsPage(
        data=[_protocol_answer(protocol) for protocol in protocols[first:end]],
        pagination=Pagination(page=query.page, limit=query.limit, has_more=end < len(protocols)),
    )


def _unknown_chain(key: str) -> NotFound:
    return NotFound(f"there is no chain {quoted(key)} here: /v1/chains lists those that there are")


def _unknown_contract(contract: str) -> NotFound:
    return NotFound(f"No protocol found for contract {contract}")


def _chains(request: Context) -> set[str]:
    return {chain.key for chain in request.engine.chains()}


def _protocol_answer(protocol: Protocol) -> ListedProtocol:
    small, large = pictures(protocol.images, protocol.key, protocol.name)
    return ListedProtocol(uuid=protocol.uuid, name=protocol.name, key=protocol.key, img_small=small, img_large=large)


# --- protocol of a contract ------------------------------------------------------------------------------------------


class ContractQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Contract and optional chain."""

    contract: Annotated[
        str,
        msgspec.Meta(
            pattern=f"^{EVM.pattern}$",
            max_length=42,  # because `$` also matches before a final line break
            description="The contract's EVM address, in any case.",
            examples=[AAVE_POOL],
        ),
    ]
    chain: Annotated[
        Annotated[str, msgspec.Meta(min_length=1)] | None,
        msgspec.Meta(description="Key of the chain; all chains are searched by default."),
    ] = None


class ContractProtocol(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The protocol of a contract; `chainKey` is present if the request names no chain."""

    name: str
    key: str
    img_small: str
    img_large: str
    chain_key: str | UnsetType = UNSET


class ContractAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`protocol` if the request names a chain, else `protocols`, one per chain with the contract."""

    protocol: ContractProtocol | UnsetType = UNSET
    protocols: list[ContractProtocol] | UnsetType = UNSET


@get(
    "/v1/contract-protocol",
    tag="Service",
    summary="Which protocol a contract belongs to",
    needs="portfolio",
    cost=5,
    check=lambda request, query: check_chain(request, query),
    envelope="contract-protocol",
    fails={404: "The contract belongs to no known protocol."},
    example={"protocol": {"name": "Aave V3", "key": "aave3", "imgSmall": _IMAGE, "imgLarge": _IMAGE}},
)
async def contract_protocol(request: Context, query: ContractQuery) -> ContractAnswer:
    """Returns the protocol that a contract belongs to, from the server's registry.

    If no protocol is known, the answer is 404. A chain that is not configured is refused with 400.
    """
    contract, chains = query.contract.lower(), _chains(request)
    protocols = request.engine.protocols().of(contract, chains if query.chain is None else {query.chain})
    if not protocols:
        raise _unknown_contract(contract)
    if query.chain is not None:
        return ContractAnswer(protocol=_short(protocols[0][1]))
    return ContractAnswer(protocols=[_short(protocol, chain) for chain, protocol in protocols])


def check_chain(request: Context, query: ContractQuery) -> None:
    """Raise a 400 Problem if the query names a chain that is not configured."""
    if query.chain is not None and query.chain not in (chains := _chains(request)):
        raise invalid("query", [FieldError(f"`chain` cannot be {quoted(query.chain)}: {one_of(chains)}", ["chain"])])


def _short(protocol: Protocol, chain: str | UnsetType = UNSET) -> ContractProtocol:
    small, large = pictures(protocol.images, protocol.key, protocol.name)
    return ContractProtocol(name=protocol.name, key=protocol.key, img_small=small, img_large=large, chain_key=chain)
