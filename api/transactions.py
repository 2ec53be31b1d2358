"""GET /v1/transactions: transactions of wallets, with filters and pages."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal, get_args

import msgspec

from chainfolio.amounts import MAX_RAW
from chainfolio.api.addresses import ADDRESS_SCHEMA, Addresses, read_account
from chainfolio.api.context import Context
from chainfolio.api.errors import FieldError, invalid
from chainfolio.api.examples import TRANSACTIONS
from chainfolio.api.failures import READING
from chainfolio.api.fields import InvalidParameter, JsonObject, Reader, one_of, quoted
from chainfolio.api.portfolio import IncludeImages
from chainfolio.api.router import get
from chainfolio.engine.results import MAX_PAGE, ListPosition, TransactionFilter
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.transactions import Transactions, TransactionType
from chainfolio.settings import Settings
from chainfolio.storage.state import bookmarks
from chainfolio.storage.state.database import UniqueViolation

MAX_ITEMS: Final = 50
TYPES: Final = get_args(TransactionType)
PAGE_PARAMETERS: Final = frozenset({"limit", "offset", "include_images", "include_explorer_urls"})
DAY: Final = timedelta(days=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MOMENT = re.compile(_DATE + r"(?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:[0-9]{2}))?\Z")
_KEY = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}\Z")
_PROTOCOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,63}\Z")
_TOKEN_ID = re.compile(r"(?:0|[1-9][0-9]{0,77})\Z")


def _items(read: Callable[[str], str]) -> Callable[[list[str], Settings], tuple[str, ...]]:
    """Return a reader of comma-separated or repeated values, in order and without duplicates.

    It raises InvalidParameter for an empty item, or for more than `MAX_ITEMS`.
    """

    def items(values: list[str], settings: Settings) -> tuple[str, ...]:
        """Read and return the items, each once; InvalidParameter if one is empty or there are too many."""
        texts = [item for value in values for item in value.split(",")]
        if not all(texts):
            raise InvalidParameter("has an empty item: values are joined by single commas")
        if len(texts) > MAX_ITEMS:
            raise InvalidParameter(f"holds {len(texts)} values; at most {MAX_ITEMS} are taken")
        return tuple(dict.fromkeys(read(item) for item in texts))

    return items


def _address(item: str) -> str:
    return read_account(item).address


def _type(item: str) -> str:
    if item not in TYPES:
        raise InvalidParameter(f"cannot hold {quoted(item)}: a type is one of {', '.join(TYPES)}")
    return item


def _like(pattern: re.Pattern[str], description: str) -> Callable[[str], str]:
    """Return a check of list items: it raises InvalidParameter if one does not match the pattern."""

    def read(item: str) -> str:
        """Return the item, or raise InvalidParameter if it does not match."""
        if not pattern.match(item):
            raise InvalidParameter(f"cannot hold {quoted(item)}: it is not {description}")
        return item

    return read


def _single(values: list[str]) -> str:
    if len(values) > 1:
        raise InvalidParameter("is given more than once")
    return values[0]


def read_start(values: list[str], settings: Settings) -> int:
    """Return a time, or the start of a UTC day, in microseconds since 1970.

    Raises:
        InvalidParameter: The text is not a day or a time with a zone, or the parameter is repeated.
    """
    return _us(_time(_single(values)))


def read_end(values: list[str], settings: Settings) -> int:
    """Return the last microsecond of the UTC day that a time lies in, since 1970.

    Raises:
        InvalidParameter: The text is not a day or a time with a zone, or the parameter is repeated.
    """
    day = _time(_single(values)).replace(hour=0, minute=0, second=0, microsecond=0)
    return _us(day) + DAY // timedelta(microseconds=1) - 1


def _us(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def _time(text: str) -> datetime:
    """Return the time (UTC) of a day, which is its begin, or of a moment.

    Raise InvalidParameter if it is neither.
    """
    form = "it is a day, YYYY-MM-DD, or a moment with its zone, 2026-03-01T12:30:00Z"
    if not _MOMENT.match(text):
        raise InvalidParameter(f"cannot be {quoted(text)}: {form}")
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InvalidParameter(f"cannot be {quoted(text)}: the calendar has no such moment ({form})") from None


def read_token_id(values: list[str], settings: Settings) -> int:
    """Return the id of a token in its collection.

    Raises:
        InvalidParameter: The text is not a whole number below 2^256, or the parameter is repeated.
    """
    text = _single(values)
    if not _TOKEN_ID.match(text) or int(text) > MAX_RAW:
        raise InvalidParameter(f"cannot be {quoted(text)}: it is a whole number below 2^256")
    return int(text)


def _list(items: JsonObject) -> Callable[[Settings], JsonObject]:
    return lambda settings: {"type": "array", "items": items, "minItems": 1, "maxItems": MAX_ITEMS}


def _text(settings: Settings) -> JsonObject:
    return {"type": "string"}


def _number(settings: Settings) -> JsonObject:
    return {"type": "string", "pattern": "^(?:0|[1-9][0-9]{0,77})$"}


Texts = tuple[str, ...]
CHAIN_KEY: Final = {"type": "string", "pattern": "^[a-z0-9][a-z0-9_.-]{0,63}$"}
PROTOCOL_KEY: Final = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9 _.-]{0,63}$"}
Start = Annotated[
    int | None,
    Reader(read_start, _text),
    msgspec.Meta(
        description="Earliest time, included: a day (`YYYY-MM-DD`, from 00:00 UTC) or a time with its zone (ISO 8601).",
        examples=["2026-03-01T00:00:00Z"],
    ),
]
End = Annotated[
    int | None,
    Reader(read_end, _text),
    msgspec.Meta(
        description="Latest time, included: a day or a time; it means the end of its UTC day.", examples=["2026-03-31"]
    ),
]


class TransactionsQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Wallets, page and filters."""

    addresses: Addresses
    limit: Annotated[
        int, msgspec.Meta(ge=1, le=MAX_PAGE, description="Maximum number of transactions of a page.", examples=[10])
    ]
    offset: Annotated[
        int, msgspec.Meta(ge=0, le=2**53 - 1, description="Number of transactions to skip.", examples=[0])
    ]
    sort: Annotated[Literal["DESC", "ASC"], msgspec.Meta(description="By time, newest or oldest first.")] = "DESC"
    initial_search_text: Annotated[
        str, msgspec.Meta(max_length=256, description="Text to find in symbols, names and contracts of tokens.")
    ] = ""
    interacting_addresses: Annotated[
        Texts,
        Reader(_items(_address), _list(ADDRESS_SCHEMA)),
        msgspec.Meta(description="Only transactions with one of these counterparties."),
    ] = ()
    networks: Annotated[
        Texts,
        Reader(_items(_like(_KEY, "the key of a chain")), _list(CHAIN_KEY)),
        msgspec.Meta(description="Only transactions on these chains, by key."),
    ] = ()
    tx_types: Annotated[
        Texts,
        Reader(_items(_type), _list({"enum": list(TYPES)})),
        msgspec.Meta(description="Only transactions of these types; case matters."),
    ] = ()
    protocols: Annotated[
        Texts,
        Reader(_items(_like(_PROTOCOL, "the key of a protocol")), _list(PROTOCOL_KEY)),
        msgspec.Meta(description="Only transactions in these protocols, by key."),
    ] = ()
    hide_spam: Annotated[bool, msgspec.Meta(description="Leave out transactions of type SPAM.")] = False
    hide_dust: Annotated[
        bool,
        msgspec.Meta(
            description="Leave out transactions of other accounts, outside of known protocols, that brought assets "
            "worth less than 0.01 USD together, and took none. Those without a price stay."
        ),
    ] = False
    start_date: Start = None
    end_date: End = None
    token_id: Annotated[
        int | None, Reader(read_token_id, _number), msgspec.Meta(description="Only transactions of this token id.")
    ] = None
    include_images: IncludeImages = False
    include_explorer_urls: Annotated[
        bool,
        msgspec.Meta(description="Links of assets to the chain's block explorer; transactions always have them."),
    ] = False


@get(
    "/v1/transactions",
    tag="Portfolio",
    summary="Transaction history",
    needs="portfolio",
    envelope="transactions",
    check=lambda request, query: check(request, query),
    fails={
        404: "An address has more transactions than are served: 100,000, unless the operator sets another limit.",
        **READING,
    },
    example=TRANSACTIONS,
)
async def transactions(request: Context, query: TransactionsQuery) -> Transactions:
    """Returns the transactions of all the addresses together, one record for each wallet that took part.

    There is no total: raise `offset` by `limit` until a page is not full. A page that begins where a page of the same
    query ended in the last 15 minutes continues after its last record, even if blocks were added or replaced in
    between: no record is repeated or skipped. `offset=0` always starts again at the newest blocks.

    Transactions come from the index: token transfers and approvals; native coins that an address sent, and transactions
    that called it directly (also calls and failed calls of a contract wallet without a transfer); and internal
    transfers, if the operator indexes them. If not, `completeness` is `partial` and `issues` say what is missing.
    `fees` are what the sender paid. `flags` warn of spam and of addresses that imitate others; only `hideSpam` leaves
    out flagged transactions.
    Prices and values are those at the end of the transaction's block, read from the node. They are `N/A` if no source
    had a price then, or the node has pruned that block (see `issues`); prices of another time are never used.
    `closedPnl`, `costBasis` and `totalCostBasis` are computed by lots if the wallet's whole history is indexed; else
    they are `N/A`, and an issue of the adapter `pnl` says why. The gain of an asset whose transactions do not add up to
    what the wallet holds is `N/A`, too.
    If the node of a chain does not answer, the page has the stored transactions of that chain: an issue with the
    subject `node` names their last block, names are the stored ones, no contract is flagged as spam, and gains are
    `N/A`.
    A page that needs blocks that are not indexed is 503; a later `startDate` avoids that.
    """
    filters = _filter(query)
    question = _question(query)
    after = await _bookmark(request, question, query.offset) if query.offset else None
    page = await request.engine.transactions(query.addresses, replace(filters, after=after))
    if page.end is not None:
        await _keep(request, question, page.end)
    return page.document


def check(request: Context, query: TransactionsQuery) -> None:
    """Raise a 400 Problem for a reversed period, and for a network that is not configured."""
    field_errors = []
    if query.start_date is not None and query.end_date is not None and query.start_date > query.end_date:
        field_errors.append(FieldError("`startDate` is after `endDate`", ["startDate"]))
    if query.networks:
        chains = {chain.key for chain in request.engine.chains()}
        unknown = [key for key in query.networks if key not in chains]
        field_errors += [
            FieldError(f"`networks` cannot hold {quoted(key)}: {one_of(chains)}", ["networks"]) for key in unknown
        ]
    if field_errors:
        raise invalid("query", field_errors)


def _question(query: TransactionsQuery) -> bytes:
    """Return a digest of the parameters that all pages of one list share."""
    parts = {name: getattr(query, name) for name in query.__struct_fields__ if name not in PAGE_PARAMETERS}
    parts["addresses"] = sorted(account.address for account in query.addresses)
    return hashlib.sha256(repr(sorted(parts.items())).encode()).digest()  # numbers may be wider than a format's


async def _bookmark(request: Context, question: bytes, offset: int) -> ListPosition | None:
    """Return the stored end of the page that ended at `offset`; None if none is stored or it has expired."""
    account_id, now_us = request.principal.account_id, request.parts.environment.clock.now_us()
    bookmark = await request.parts.state.read(lambda tx: bookmarks.find(tx, account_id, question, offset, now_us))
    return None if bookmark is None else msgspec.msgpack.decode(bookmark[1], type=ListPosition)


async def _keep(request: Context, question: bytes, bookmark: ListPosition) -> None:
    """Store the last record of this page, for the next page in any process."""
    account_id, now_us = request.principal.account_id, request.parts.environment.clock.now_us()
    packed = msgspec.msgpack.encode(bookmark)
    with contextlib.suppress(UniqueViolation):  # a concurrent request for the same page has stored it
        await request.parts.state.write(
            lambda tx: bookmarks.put(tx, account_id, question, bookmark.count, packed, now_us)
        )


def _filter(query: TransactionsQuery) -> TransactionFilter:
    """Return the filter of the engine for a query."""
    return TransactionFilter(
        limit=query.limit,
        offset=query.offset,
        newest_first=query.sort == "DESC",
        search=query.initial_search_text,
        counterparties=query.interacting_addresses,
        networks=query.networks,
        types=query.tx_types,
        protocols=query.protocols,
        hide_spam=query.hide_spam,
        hide_dust=query.hide_dust,
        since_us=query.start_date,
        until_us=query.end_date,
        token_id=query.token_id,
        options=Options(images=query.include_images, explorer_urls=query.include_explorer_urls),
    )
