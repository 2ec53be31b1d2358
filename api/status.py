"""GET /v1/status: freshness of the stored data of each address."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec

from chainfolio.api.addresses import Addresses
from chainfolio.api.context import Context
from chainfolio.api.engine import Engine
from chainfolio.api.example_addresses import WALLET
from chainfolio.api.failures import NO_CHAIN
from chainfolio.api.router import get
from chainfolio.assets import Account
from chainfolio.engine.results import SyncStatus
from chainfolio.portfolio.document import IssueDocument

Moment = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]


class StatusQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Wallets."""

    addresses: Addresses


class AddressStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Times of the last reads of an address.

    `portfolioLastSync` is null if it was never read. `transactionsLastSync` is the time up to which its transactions
    are indexed, or the time of a later read; null if nothing is indexed. `completeness` is `partial`, with the reason
    in `issues`, if no chain for the address is configured.
    """

    address: str
    portfolio_last_sync: Moment | None
    transactions_last_sync: Moment | None
    sync_in_progress: bool
    completeness: Literal["complete", "partial"]
    issues: tuple[IssueDocument, ...]


@get(
    "/v1/status",
    tag="Service",
    summary="Freshness of the data of addresses",
    cost=0,
    fails={501: NO_CHAIN},
    example=[
        {
            "address": WALLET,
            "portfolioLastSync": "2026-03-01T12:00:00.000Z",
            "transactionsLastSync": "2026-03-01T12:00:00.000Z",
            "syncInProgress": False,
            "completeness": "complete",
            "issues": [],
        }
    ],
)
async def status(request: Context, query: StatusQuery) -> list[AddressStatus]:
    """Returns one entry per address, in order. The request starts no reads."""
    return await statuses(request.engine, query.addresses)


async def statuses(engine: Engine, accounts: Sequence[Account]) -> list[AddressStatus]:
    """Return the freshness of each account's data, in their order; starts no reads.

    Raises:
        NotSupported: No chain of the kind of any account is configured.
    """
    return [_answer(each) for each in await engine.status(accounts)]


def _answer(status: SyncStatus) -> AddressStatus:
    """Return the status as the API shows it; partial if there are issues."""
    return AddressStatus(
        address=status.address,
        portfolio_last_sync=iso_time(status.portfolio_us),
        transactions_last_sync=iso_time(status.transactions_us),
        sync_in_progress=status.in_progress,
        completeness="partial" if status.issues else "complete",
        issues=status.issues,
    )


def iso_time(time_us: int | None) -> str | None:
    """Return a time in ISO 8601, in UTC with milliseconds; None for None."""
    if time_us is None:
        return None
    at = datetime.fromtimestamp(time_us // 1_000_000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{time_us // 1000 % 1000:03d}Z"
