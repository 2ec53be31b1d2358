"""GET /v1/approvals/{chain}: whom wallets allowed to spend their ERC-20 tokens, as mined, the newest first."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from api.addresses import EvmAddresses
from api.context import Context
from api.cursors import MAX_CHARS, Forged, seal, unseal
from api.errors import Flaw, invalid
from api.router import get
from api.status import moment
from chainfolio.amounts import text
from indexer.answers import Approval, ApprovedAsset, Place

ApprovalChain = Literal[
    "arbitrum", "avalanche", "base", "binance", "ethereum", "fantom", "gnosis", "linea", "optimism", "polygon"
]
Moment = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]


class ApprovalsPath(msgspec.Struct, frozen=True):
    """On which chain."""

    chain: Annotated[ApprovalChain, msgspec.Meta(description="Key of the chain; case matters.")]


class ApprovalsQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whose approvals, how many, from where on."""

    addresses: EvmAddresses
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="The most items of one page.")] = 25
    cursor: Annotated[
        str,
        msgspec.Meta(
            min_length=1, max_length=MAX_CHARS, description="`cursor` of the page before; none for the first page."
        ),
    ] = ""


class TokenAsset(msgspec.Struct, frozen=True, kw_only=True):
    """What the wallet holds of the token now; the strings are amounts and USD."""

    name: str
    symbol: str
    balance: str
    price: str
    value: str
    decimal: str
    chain: str
    contract: str


class TokenApproval(msgspec.Struct, frozen=True, kw_only=True, rename={"owner": "from", "spender": "to"}):
    """One approval. `amount` is raw, 2^256-1 is unlimited; `asset` is absent where the token is not tracked or its
    balance or price is not known at the moment."""

    block: str
    timestamp: Moment
    hash: str
    contract: str
    owner: str
    spender: str
    amount: str
    asset: TokenAsset | msgspec.UnsetType = msgspec.UNSET


class Approvals(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One page. `cursor` is null on the last one."""

    cursor: str | None
    page_size: int
    items: tuple[TokenApproval, ...]


@get(
    "/v1/approvals/{chain}",
    tag="Portfolio",
    summary="Token approvals on one chain",
    needs="portfolio",
    envelope="approvals",
    fails={
        501: "This server does not know that chain.",
        502: "The node of that chain does not answer.",
        503: "Not now: the blocks of this page are not indexed, or the store cannot answer. `cure` says what the "
        "operator can do.",
    },
    example={
        "cursor": None,
        "pageSize": 1,
        "items": [
            {
                "block": "19000000",
                "timestamp": "2024-01-13T18:06:11.000Z",
                "hash": "0x" + "5c" * 32,
                "contract": "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48",
                "from": "0xd8da6bf26964af9d7eed9e03e53415d37aa96045",
                "to": "0x000000000022d473030f116ddee9f6b43ac78ba3",
                "amount": str(2**256 - 1),
                "asset": {
                    "name": "usd coin",
                    "symbol": "usdc",
                    "balance": "12.5",
                    "price": "1",
                    "value": "12.5",
                    "decimal": "6",
                    "chain": "ethereum",
                    "contract": "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48",
                },
            }
        ],
    },
)
async def approvals(request: Context, path: ApprovalsPath, query: ApprovalsQuery) -> Approvals:
    """ERC-20 `Approval` events as mined, the newest first. A cursor is bound to its chain, its addresses and your
    account; blocks that come meanwhile change no later page. Blocks that are not indexed are an error, never empty."""
    owners = sorted(account.address for account in query.addresses)
    question = ("approvals", request.principal.account_id, path.chain, *owners)
    start = _place(request.parts.secret, question, query.cursor) if query.cursor else None
    page = await request.engine.approvals(path.chain, query.addresses, query.limit, start)
    more = None if page.more is None else seal(request.parts.secret, question, page.more)
    items = tuple(_shown(item, page.assets.get((item.owner, item.token)), path.chain) for item in page.items)
    return Approvals(cursor=more, page_size=len(items), items=items)


def _place(secret: bytes, question: tuple[str, ...], cursor: str) -> Place:
    try:
        return unseal(secret, question, cursor, Place)
    except Forged:
        words = "`cursor` was not given out for this chain and these addresses: begin again without it"
        raise invalid("query", [Flaw(words, ["cursor"])]) from None


def _shown(item: Approval, asset: ApprovedAsset | None, chain: str) -> TokenApproval:
    at = moment(item.time_us)
    assert at is not None, "a mined block has a time"
    return TokenApproval(
        block=str(item.place.height),
        timestamp=at,
        hash=item.place.tx_hash,
        contract=item.token,
        owner=item.owner,
        spender=item.spender,
        amount=str(item.raw),
        asset=msgspec.UNSET if asset is None else _asset(asset, item.token, chain),
    )


def _asset(asset: ApprovedAsset, contract: str, chain: str) -> TokenAsset:
    return TokenAsset(
        name=asset.name.lower(),
        symbol=asset.symbol.lower(),
        balance=text(asset.balance),
        price=text(asset.price),
        value=text(asset.value),
        decimal=str(asset.decimals),
        chain=chain,
        contract=contract,
    )
