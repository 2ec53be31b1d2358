"""GET /v1/approvals/{chain}: whom wallets allowed to spend their tokens (ERC-20 and alike), as mined, the newest first;
and, where asked for, what is left of that."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from chainfolio.addresses import EVM
from chainfolio.amounts import text
from chainfolio.api.addresses import Addresses
from chainfolio.api.context import Context
from chainfolio.api.cursors import MAX_CHARS, Forged, seal, unseal
from chainfolio.api.errors import FieldError, invalid
from chainfolio.api.example_addresses import PERMIT2, USDC, WALLET
from chainfolio.api.fields import Reader, Refused, one_of, quoted
from chainfolio.api.router import get
from chainfolio.api.status import iso_time
from chainfolio.engine.answers import Allowance, ApprovalsPage, ApprovedAsset, EventPosition, Operator, Permit2Allowance
from chainfolio.portfolio.compose import issue_documents
from chainfolio.portfolio.document import UNKNOWN, IssueDocument
from chainfolio.settings import Settings

TEN: Final = (
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
    """What to include, comma-joined or repeated, in one order whatever was written; Refused names what is unknown."""
    items = {item for value in values for item in value.split(",")}
    options = get_args(Included)
    for item in sorted(items - set(options)):
        raise Refused(f"cannot be {quoted(item)}: it is one of {', '.join(options)}")
    return tuple(sorted(items))


def _included_schema(_: Settings) -> dict[str, Any]:
    return {"type": "array", "items": {"enum": list(get_args(Included))}, "minItems": 1}


def chains(settings: Settings) -> list[str]:
    """The chains whose approvals may be asked for: those of the interface, and those of this server."""
    return sorted({*TEN, *settings.chains})


def read_chain(values: list[str], settings: Settings) -> str:
    """The key of one of the chains, exactly as it is written."""
    if values[0] not in chains(settings):
        raise Refused(f"cannot be {quoted(values[0])}: {one_of(chains(settings))}")
    return values[0]


def _chain_schema(settings: Settings) -> dict[str, Any]:
    return {"type": "string", "enum": chains(settings)}


class ApprovalsPath(msgspec.Struct, frozen=True):
    """On which chain."""

    chain: Annotated[
        str,
        Reader(read_chain, _chain_schema),
        msgspec.Meta(description="Key of the chain; case matters.", examples=["ethereum"]),
    ]


class ApprovalsQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whose approvals, how many, from where on."""

    addresses: Addresses
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="The most items of one page.")] = 25
    cursor: Annotated[
        str,
        msgspec.Meta(
            min_length=1, max_length=MAX_CHARS, description="`cursor` of the page before; none for the first page."
        ),
    ] = ""
    include: Annotated[
        tuple[str, ...],
        Reader(read_included, _included_schema),
        msgspec.Meta(
            description="What to read from the chain beside the events, joined by commas. `allowance`: what is "
            "left of each approval that no later one replaced, and what it puts at risk. `operators`: who may move "
            "collectibles (ERC-721, ERC-1155), on the first page. `permit2`: whom Permit2 lets take ERC-20 tokens, on "
            "the first page. Each names the spenders that are known.",
            examples=[["allowance"]],
        ),
    ] = ()


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


class AllowanceLeft(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is left of an approval at one block. `amount` and `balance` are raw, `valueAtRisk` is the USD of the smaller
    of the two; each is `N/A` where it is not known, which is not zero."""

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
    """One approval. `amount` is raw, 2^256-1 is unlimited; `asset` is absent where the token is not tracked or its
    balance or price is not known at the moment. With `include`: `spenderLabel` is null where nobody knows the spender,
    `allowance` is absent where a later approval replaced this one."""

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
    """Who may move collectibles at one block: all of a collection, or the one with `tokenId`. `standard` is erc721 or
    erc1155; `held` is how many could be moved (ids, of ERC-1155). Both are `N/A` where they are not known."""

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
    """Whom Permit2 lets take a token at one block; what was used up or taken back, or has expired, is left out.
    `amount`, `balance` and `takeable` are raw; `takeable` is the least of the amount, the balance and what the token
    lets Permit2 take, `valueAtRisk` the USD of it. `expiration` is the last moment, in Unix seconds. `N/A` is not
    known, which is not zero."""

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
    """One page. `cursor` is null on the last one. `unpricedAllowances` counts the allowances of this page whose value
    at risk is not known. `issues` is there if the node of the chain does not answer: it says up to which block the page
    goes, and what is left out."""

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
        501: "This server does not know that chain, or not what is to be included.",
        502: "The node of that chain does not answer, and nothing of the chain is stored.",
        503: "Not now: the blocks of this page are not indexed, or the store cannot answer.",
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
    """ERC-20 `Approval` events as mined, the newest first. A cursor is bound to its chain, its addresses and your
    account; blocks that come meanwhile change no later page. Blocks that are not indexed are an error, never empty. If
    the node does not answer, the page has what is stored, and `issues` say up to which block; `asset` and what
    `include` asks for are left out."""
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
    """What the pages of one list have in common."""
    owners = sorted(account.address for account in query.addresses)
    return ("approvals", request.principal.account_id, path.chain, *owners, *query.include)


def check(request: Context, path: ApprovalsPath, query: ApprovalsQuery) -> None:
    """400 for addresses of another kind than the chain's, and for a cursor of another list."""
    chains = request.parts.settings.chains
    kind = chains[path.chain].adapter if path.chain in chains else EVM.kind
    for each in query.addresses:
        if each.kind != kind:
            reason = f"`addresses` is malformed: {each} is no address of {path.chain}"
            raise invalid("query", [FieldError(reason, ["addresses"])])
    cursor_place(request, path, query)


def cursor_place(request: Context, path: ApprovalsPath, query: ApprovalsQuery) -> EventPosition | None:
    """Where the page begins, None for the first one; 400 for a cursor of another list."""
    if not query.cursor:
        return None
    try:
        return unseal(request.parts.secret, _question(request, path, query), query.cursor, EventPosition)
    except Forged:
        reason = "`cursor` was not given out for this chain and these addresses: begin again without it"
        raise invalid("query", [FieldError(reason, ["cursor"])]) from None


def _items(page: ApprovalsPage, chain: str) -> tuple[TokenApproval, ...]:
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
