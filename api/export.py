"""GET /v1/export/{kind}: files for spreadsheets, accountants, tax tools and ledgers.

A file is made first, in bounded memory, and then sent with its length and digest. So an error has a status, and a file
that was broken off is never taken for a whole one, whatever the version of HTTP.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import hashlib
import importlib
import io
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final, Literal, cast, get_args

import msgspec

from chainfolio.api import at_block
from chainfolio.api.addresses import Addresses
from chainfolio.api.context import Answer, Context
from chainfolio.api.dates import Day
from chainfolio.api.engine import Engine
from chainfolio.api.entitlement import missing
from chainfolio.api.failures import READING
from chainfolio.api.fields import Reader
from chainfolio.api.further_credits import reserve_more
from chainfolio.api.gains import Method
from chainfolio.api.historical import require_subscriptions
from chainfolio.api.router import get

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chainfolio.assets import Account
    from chainfolio.engine import service
    from chainfolio.engine.results import TransactionFilter, TransactionsPage
    from chainfolio.exports.dataset import Summary
    from chainfolio.exports.sources import ExportRequest

CHUNK: Final = 1 << 20
DAY_READER: Final[Reader] = next(each for each in get_args(Day) if isinstance(each, Reader))
Kind = Literal["holdings", "transactions", "gains", "income", "history", "approvals"]
Format = Literal[
    "csv", "json", "parquet", "xlsx", "pdf", "beancount", "hledger", "koinly", "cointracking", "coinledger", "rotki"
]
TYPES: Final[dict[str, tuple[str, str]]] = {
    "json": ("application/json", "json"),
    "parquet": ("application/vnd.apache.parquet", "parquet"),
    "xlsx": ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "xlsx"),
    "pdf": ("application/pdf", "pdf"),
    "beancount": ("text/plain", "beancount"),
    "hledger": ("text/plain", "hledger"),
}
CSV: Final = ("text/csv", "csv")


class ExportPath(msgspec.Struct, frozen=True):
    """What is exported."""

    kind: Annotated[Kind, msgspec.Meta(description="What is exported.", examples=["transactions"])]


class ExportQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Wallets of one owner, and the options of the kind, as those of `chainfolio export`."""

    addresses: Addresses
    format: Annotated[Format, msgspec.Meta(description="Format of the file.")] = "csv"
    chain: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None, msgspec.Meta(description="Only this chain.")
    ] = None
    block: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None,
        msgspec.Meta(description="Holdings at this block of `chain`."),
    ] = None
    start_date: Annotated[
        datetime.date | None, DAY_READER, msgspec.Meta(description="First day of transactions or history, in UTC.")
    ] = None
    end_date: Annotated[
        datetime.date | None, DAY_READER, msgspec.Meta(description="Last day of transactions or history.")
    ] = None
    year: Annotated[
        Annotated[int, msgspec.Meta(ge=2009, le=2200)] | None, msgspec.Meta(description="Tax year of gains or income.")
    ] = None
    jurisdiction: Annotated[
        Literal["none", "us", "uk", "ca", "de"], msgspec.Meta(description="Whose rules `year` follows.")
    ] = "none"
    method: Annotated[Method | None, msgspec.Meta(description="Which lot is sold first.")] = None
    currency: Annotated[
        Annotated[str, msgspec.Meta(pattern="^[A-Za-z]{3,8}$")] | None, msgspec.Meta(description="Currency of `year`.")
    ] = None

    @property
    def request(self) -> ExportRequest:
        """The options of the export."""
        request: ExportRequest = _formats().ExportRequest(
            chain=self.chain,
            block=self.block,
            first=_text(self.start_date),
            last=_text(self.end_date),
            year=self.year,
            jurisdiction=self.jurisdiction,
            method=self.method or "",
            currency=self.currency or "",
        )
        return request


def check(request: Context, path: ExportPath, query: ExportQuery) -> None:
    """Raise BadRequest if a format or an option does not fit the kind."""
    _formats().check_target(query.format, path.kind, Path(tempfile.gettempdir()) / request.request_id, query.request)
    if query.block is not None:
        at_block.check_chain(query.chain, request.parts.settings)


async def allow(request: Context, path: ExportPath, query: ExportQuery) -> None:
    """Raise a Problem if the account may not export it.

    A block needs the grant `at-block` (401), and past days a historical subscription of each address (403).
    """
    now_us = request.parts.environment.clock.now_us()
    is_refused = missing(at_block.portfolio_at_block, request.principal, now_us) if query.block is not None else None
    if is_refused is not None:
        raise is_refused
    if path.kind == "history":
        await require_subscriptions(request, query.addresses)


@get(
    "/v1/export/{kind}",
    tag="Portfolio",
    summary="Files for spreadsheets, tax tools and ledgers",
    needs="portfolio",
    check=check,
    allow=allow,
    media=", ".join(sorted({CSV[0], *(media for media, _ in TYPES.values())})),
    is_slow=True,
    fails={403: "An address has no historical subscription.", 404: "There is nothing to export.", **READING},
)
async def export_file(request: Context, path: ExportPath, query: ExportQuery) -> Answer:
    """Returns the file that `chainfolio export` writes, with its length and `Repr-Digest`.

    It costs a credit, and one more for each further page of 250 transactions. `Chainfolio-Data-Digest` is
    the SHA-256 of the rows, the same for every format. `Chainfolio-Completeness` is `partial` if something is missing.
    """
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="chainfolio-export-"))
    media, ending = TYPES.get(query.format, CSV)
    target = folder / f"{path.kind}.{ending}"
    try:
        owner = request.principal.account_id
        async with request.parts.exports.slot(owner, is_statement=query.format == "pdf"):
            engine = cast("service.Engine", PaidEngine(request.engine, request))
            made = (query.format, target)
            summary: Summary = await _formats().export(
                engine, path.kind, query.addresses, query.request, target=made, stream=io.StringIO()
            )
        file, digest = await asyncio.to_thread(_opened, target)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)  # an open file stays readable
    return Answer(b"", content_type=media, headers=_headers(summary, target.name, digest), file=file)


@dataclass(frozen=True, slots=True)
class PaidEngine:
    """The engine of an export, which reserves a credit for each further page of transactions."""

    engine: Engine
    request: Context

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    async def transactions(self, accounts: Sequence[Account], filters: TransactionFilter) -> TransactionsPage:
        """Return a page of transactions.

        Raises:
            Problem: 402 if the account has too few credits for it.
        """
        if filters.after is not None:
            await reserve_more(self.request, 1)
        return await self.engine.transactions(accounts, filters)


def _opened(path: Path) -> tuple[BinaryIO, str]:
    """Return a file, open at its beginning, and its SHA-256 as RFC 9530 writes it."""
    digest = hashlib.sha256()
    file = path.open("rb")
    while part := file.read(CHUNK):
        digest.update(part)
    file.seek(0)
    return file, f"sha-256=:{base64.b64encode(digest.digest()).decode()}:"


def _headers(summary: Summary, name: str, digest: str) -> dict[str, str]:
    return {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Repr-Digest": digest,
        "Chainfolio-Data-Digest": summary.digest,
        "Chainfolio-Completeness": summary.completeness,
        "Chainfolio-Rows": str(summary.rows),
    }


def _formats() -> Any:
    """Return the module of formats, which loads slow libraries: a server starts without them."""
    return importlib.import_module("chainfolio.exports.formats")


def _text(day: datetime.date | None) -> str | None:
    return None if day is None else day.isoformat()
