"""GET /v1/approvals/{chain}: token approvals (ERC-20 and similar) that wallets gave, newest first.

On request also the remaining allowances, the operators of collectibles and the spenders of Permit2.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args

import msgspec

from chainfolio.addresses import EVM
from chainfolio.amounts import text
from chainfolio.api.addresses import Addresses
from chainfolio.api.context import Context
from chainfolio.api.cursors import MAX_CHARS, InvalidCursor, seal, unseal
from chainfolio.api.errors import FieldError, invalid
from chainfolio.api.example_addresses import PERMIT2, USDC, WALLET
from chainfolio.api.fields import InvalidParameter, JsonObject, Reader, one_of, quoted
from chainfolio.api.router import get
from chainfolio.api.status import iso_time
from chainfolio.engine.results import Allowance, ApprovalsPage, ApprovedAsset, EventPosition, Operator, Permit2Allowance
from chainfolio.portfolio.compose import issue_documents
from chainfolio.portfolio.document import UNKNOWN, IssueDocument
from chainfolio.settings import Settings

BUILTIN_CHAINS: Final = (
    "arbitrum",
    "avalanche",
    "base",
    "binance",
    "ethereum",
    "fantom",
    "gnosis",
    "linea",
    "optimism",
    "polygon",
)
Included = Literal["allowance", "operators", "permit2"]
Moment = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]


def read_included(values: list[str], settings: Settings) -> tuple[str, ...]:
    """Return the `include` items of comma-separated or repeated values, sorted.

    Raises:
        InvalidParameter: An item is unknown.
    """
    items = {item for value in values for item in value.split(",")}
    options = get_args(Included)
    for item in sorted(items - set(options)):
        raise InvalidParameter(f"cannot be {quoted(item)}: it is one of {', '.join(options)}")
    return tuple(sorted(items))


def _included_schema(_: Settings) -> JsonObject:
    return {"type": "array", "items": {"enum": list(get_args(Included))}, "minItems": 1}


def chains(settings: Settings) -> list[str]:
    """Return the keys of accepted chains: those of the interface and the configured ones."""
    return sorted({*BUILTIN_CHAINS, *settings.chains})


def read_chain(values: list[str], settings: Settings) -> str:
    """Return the chain key; case matters.

    Raises:
        InvalidParameter: The chain is unknown.
    """
    if values[0] not in chains(settings):
        raise InvalidParameter(f"cannot be {quoted(values[0])}: {one_of(chains(settings))}")
    return values[0]


def _chain_schema(settings: Settings) -> JsonObject:
    return {"type": "string", "enum": chains(settings)}


class ApprovalsPath(msgspec.Struct, frozen=True):
    """Chain of the approvals."""

    chain: Annotated[
        str,
        Reader(read_chain, _chain_schema),
        msgspec.Meta(description="Key of the chain; case matters.", examples=["ethereum"]),
    ]


class ApprovalsQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Wallets, page and optional parts of the answer."""

    addresses: Addresses
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="Maximum number of items of a page.")] = 25
    cursor: Annotated[
        str,
        msgspec.Meta(
            min_length=1, max_length=MAX_CHARS, description="`cursor` of the previous page; omit it for the first page."
        ),
    ] = ""
    include: Annotated[
        tuple[str, ...],
        Reader(read_included, _included_schema),
        msgspec.Meta(
            description="Comma-separated list of what to read from the chain in addition to the events. `allowance`: "
            "the remaining allowance and the value at risk of each approval that no later one replaced. `operators`: "
            "addresses that may move collectibles (ERC-721, ERC-1155), on the first page only. `permit2`: spenders "
            "that Permit2 lets take ERC-20 tokens, on the first page only. Each adds the names of known spenders.",
            examples=[["allowance"]],
        ),
    ] = ()


class TokenAsset(msgspec.Struct, frozen=True, kw_only=True):
    """The wallet's current balance of the token, its price and its value in USD, as decimal strings."""

    name: str
    symbol: str
    balance: str
    price: str
    value: str
    decimal: str
    chain: str
    contract: str


class AllowanceLeft(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The remaining allowance at one block.

    `amount` and `balance` are in base units, `valueAtRisk` is the value in USD of the smaller of the two. `N/A` means
    unknown, not zero.
    """

    amount: str
    unlimited: bool
    balance: str
    value_at_risk: str
    block_number: str
    block_hash: str


class TokenApproval(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"owner": "from", "spender": "to", "spender_label": "spenderLabel"},
):
    """One approval.

    `amount` is in base units; 2^256-1 is unlimited. `asset` is absent if the token is not tracked, or its balance or
    price is currently unknown. With `include`: `spenderLabel` is null if the spender is unknown, `allowance` is absent
    if a later approval replaced this one.
    """

    block: str
    timestamp: Moment
    hash: str
    contract: str
    owner: str
    spender: str
    amount: str
    asset: TokenAsset | msgspec.UnsetType = msgspec.UNSET
    spender_label: str | msgspec.UnsetType | None = msgspec.UNSET
    allowance: AllowanceLeft | msgspec.UnsetType = msgspec.UNSET


class CollectibleOperator(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={
        "owner": "from",
        "spender": "to",
        "spender_label": "spenderLabel",
        "token_id": "tokenId",
        "block_number": "blockNumber",
        "block_hash": "blockHash",
    },
):
    """An address that may move collectibles at one block: the whole collection, or the one with `tokenId`.

    `standard` is erc721 or erc1155; `held` is the number of collectibles it could move (for ERC-1155: of ids). Both are
    `N/A` if unknown.
    """

    block: str
    timestamp: Moment
    hash: str
    contract: str
    owner: str
    spender: str
    spender_label: str | None
    standard: str
    token_id: str | msgspec.UnsetType = msgspec.UNSET
    held: str
    block_number: str
    block_hash: str


class PermittedSpender(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={
        "owner": "from",
        "spender": "to",
        "spender_label": "spenderLabel",
        "value_at_risk": "valueAtRisk",
        "block_number": "blockNumber",
        "block_hash": "blockHash",
    },
):
    """A spender that Permit2 lets take a token at one block.

    Used, revoked and expired permits are left out. `amount`, `balance` and `takeable` are in base units; `takeable` is
    the least of the amount, the balance and the token's allowance for Permit2, `valueAtRisk` its value in USD.
    `expiration` is in Unix seconds and included. `N/A` means unknown, not zero.
    """

    block: str
    timestamp: Moment
    hash: str
    contract: str
    permit2: str
    owner: str
    spender: str
    spender_label: str | None
    amount: str
    unlimited: bool
    expiration: str
    balance: str
    takeable: str
    value_at_risk: str
    block_number: str
    block_hash: str


class Approvals(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One page. `cursor` is null on the last one.

    `unpricedAllowances` counts the allowances of this page whose value at risk is unknown. `issues` is present if the
    chain's node does not answer: it names the last block of the stored data, and what is left out.
    """

    cursor: str | None
    page_size: int
    items: tuple[TokenApproval, ...]
    unpriced_allowances: int | msgspec.UnsetType = msgspec.UNSET
    operators: tuple[CollectibleOperator, ...] | msgspec.UnsetType = msgspec.UNSET
    permit2: tuple[PermittedSpender, ...] | msgspec.UnsetType = msgspec.UNSET
    issues: tuple[IssueDocument, ...] | msgspec.UnsetType = msgspec.UNSET


@get(
    "/v1/approvals/{chain}",
    tag="Portfolio",
    summary="Token approvals on one chain",
    needs="portfolio",
    envelope="approvals",
    check=lambda request, path, query: check(request, path, query),
    fails={
        501: "The chain, or a part named in `include`, is not available on this server.",
        502: "The chain's node does not answer, and nothing of the chain is stored.",
        503: "Temporarily unavailable: the blocks of this page are not indexed, or the store does not answer.",
    },
    example={
        "cursor": None,
        "pageSize": 1,
        "items": [
            {
                "block": "19000000",
                "timestamp": "2024-01-13T18:06:11.000Z",
                "hash": "0x" + "5c" * 32,
                "contract": USDC,
                "from": WALLET,
                "to": PERMIT2,
                "amount": str(2**256 - 1),
                "asset": {
                    "name": "usd coin",
                    "symbol": "usdc",
                    "balance": "12.5",
                    "price": "1",
                    "value": "12.5",
                    "decimal": "6",
                    "chain": "ethereum",
                    "contract": USDC,
                },
            }
        ],
    },
)
async def approvals(request: Context, path: ApprovalsPath, query: ApprovalsQuery) -> Approvals:
    """Returns ERC-20 `Approval` events, newest first.

    A cursor is valid for the same chain, addresses and account only; new blocks do not change later pages. Blocks that
    are not indexed are an error, never an empty page. If the chain's node does not answer, the page has the stored
    approvals, `issues` name their last block, and `asset` and the parts named in `include` are left out.
    """
    question = _question(request, path, query)
    start = cursor_place(request, path, query)
    page = await request.engine.approvals(path.chain, query.addresses, query.limit, start, query.include)
    cursor = None if page.next_position is None else seal(request.parts.secret, question, page.next_position)
    items = _items(page, path.chain)
    unknown = sum(each.at_risk is None for each in page.allowances.values())
    return Approvals(
        cursor=cursor,
        page_size=len(items),
        items=items,
        unpriced_allowances=unknown if page.block is not None and "allowance" in query.include else msgspec.UNSET,
        operators=msgspec.UNSET if page.operators is None else _operators(page),
        permit2=msgspec.UNSET
        if page.permit2_allowances is None
        else tuple(_permitted(page, each) for each in page.permit2_allowances),
        issues=issue_documents(page.issues) or msgspec.UNSET,
    )


def _question(request: Context, path: ApprovalsPath, query: ApprovalsQuery) -> tuple[str, ...]:
    """Return what identifies the list that a cursor belongs to."""
    owners = sorted(account.address for account in query.addresses)
    return ("approvals", request.principal.account_id, path.chain, *owners, *query.include)


def check(request: Context, path: ApprovalsPath, query: ApprovalsQuery) -> None:
    """Raise a 400 Problem for addresses of another kind than the chain's, and for a wrong cursor."""
    chains = request.parts.settings.chains
    kind = chains[path.chain].adapter if path.chain in chains else EVM.kind
    for each in query.addresses:
        if each.kind != kind:
            reason = f"`addresses` is malformed: {each} is no address of {path.chain}"
            raise invalid("query", [FieldError(reason, ["addresses"])])
    cursor_place(request, path, query)


def cursor_place(request: Context, path: ApprovalsPath, query: ApprovalsQuery) -> EventPosition | None:
    """Return where the page begins, None for the first; raise a 400 Problem for a wrong cursor."""
    if not query.cursor:
        return None
    try:
        return unseal(request.parts.secret, _question(request, path, query), query.cursor, EventPosition)
    except InvalidCursor:
        reason = "`cursor` was not given out for this chain and these addresses: begin again without it"
        raise invalid("query", [FieldError(reason, ["cursor"])]) from None


def _items(page: ApprovalsPage, chain: str) -> tuple[TokenApproval, ...]:
    """Return the items of a page; labels and allowances only if the page was read at a block."""
    return tuple(
        TokenApproval(
            block=str(item.position.height),
            timestamp=_iso_time(item.time_us),
            hash=item.position.tx_hash,
            contract=item.token,
            owner=item.owner,
            spender=item.spender,
            amount=str(item.raw),
            asset=_asset(page.assets.get((item.owner, item.token)), item.token, chain),
            spender_label=msgspec.UNSET if page.block is None else page.labels.get(item.spender),
            allowance=_allowance(page, page.allowances.get(item.position)),
        )
        for item in page.items
    )


def _iso_time(time_us: int) -> str:
    at = iso_time(time_us)
    assert at is not None, "a mined block has a time"
    return at


def _allowance(page: ApprovalsPage, allowance: Allowance | None) -> AllowanceLeft | msgspec.UnsetType:
    """Return what is left of an approval, N/A where unknown; UNSET if it was not read."""
    if allowance is None or page.block is None:
        return msgspec.UNSET
    return AllowanceLeft(
        amount=_decimal_or_null(allowance.raw),
        unlimited=allowance.unlimited,
        balance=_decimal_or_null(allowance.balance),
        value_at_risk=UNKNOWN if allowance.at_risk is None else text(allowance.at_risk),
        block_number=str(page.block.height),
        block_hash=page.block.hash,
    )


def _decimal_or_null(number: int | None) -> str:
    return UNKNOWN if number is None else str(number)


def _operators(page: ApprovalsPage) -> tuple[CollectibleOperator, ...]:
    return tuple(_operator(page, each) for each in page.operators or ())


def _operator(page: ApprovalsPage, operator: Operator) -> CollectibleOperator:
    """Return an operator of collectibles as the API shows it; N/A for an unknown standard or count."""
    assert page.block is not None, "what is read from the chain is of a block"
    return CollectibleOperator(
        block=str(operator.position.height),
        timestamp=_iso_time(operator.time_us),
        hash=operator.position.tx_hash,
        contract=operator.token,
        owner=operator.owner,
        spender=operator.spender,
        spender_label=operator.label,
        standard=operator.standard or UNKNOWN,
        token_id=msgspec.UNSET if operator.token_id is None else str(operator.token_id),
        held=_decimal_or_null(operator.movable_count),
        block_number=str(page.block.height),
        block_hash=page.block.hash,
    )


def _permitted(page: ApprovalsPage, permitted: Permit2Allowance) -> PermittedSpender:
    """Return a spender of Permit2 as the API shows it; N/A for what could not be read."""
    assert page.block is not None, "what is read from the chain is of a block"
    return PermittedSpender(
        block=str(permitted.position.height),
        timestamp=_iso_time(permitted.time_us),
        hash=permitted.position.tx_hash,
        contract=permitted.token,
        permit2=permitted.contract,
        owner=permitted.owner,
        spender=permitted.spender,
        spender_label=page.labels.get(permitted.spender),
        amount=_decimal_or_null(permitted.raw),
        unlimited=permitted.unlimited,
        expiration=UNKNOWN if permitted.expires_s is None else str(permitted.expires_s),
        balance=_decimal_or_null(permitted.balance),
        takeable=_decimal_or_null(permitted.takeable),
        value_at_risk=UNKNOWN if permitted.at_risk is None else text(permitted.at_risk),
        block_number=str(page.block.height),
        block_hash=page.block.hash,
    )


def _asset(asset: ApprovedAsset | None, contract: str, chain: str) -> TokenAsset | msgspec.UnsetType:
    """Return the token of an approval with its balance and value; UNSET if it was not read."""
    if asset is None:
        return msgspec.UNSET
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
