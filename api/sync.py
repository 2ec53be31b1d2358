"""POST /v1/sync-transactions: start to read accounts again, without waiting for the result."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from chainfolio.api.addresses import PATTERN, read_account
from chainfolio.api.changes import change, run_after_change
from chainfolio.api.context import Answer, Context
from chainfolio.api.errors import FieldError, invalid
from chainfolio.api.example_addresses import WALLET
from chainfolio.api.failures import NO_CHAIN, completeness_headers
from chainfolio.api.fields import InvalidParameter
from chainfolio.api.router import write
from chainfolio.assets import Account
from chainfolio.engine.account_support import split_supported

SyncReply = Literal["Address is syncing", "Address already syncing"]


class SyncBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Wallets."""

    addresses: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=128, extra_json_schema={"pattern": PATTERN}, examples=[WALLET])]],
        msgspec.Meta(min_length=1, description="Wallet addresses of any kind, at most as many as in other calls."),
    ]


@write(
    "POST",
    "/v1/sync-transactions",
    tag="Service",
    summary="Read addresses again in the background",
    needs="portfolio",
    check=lambda request, body: accounts(request, body),
    fails={501: NO_CHAIN},
    answers={200: SyncReply},
    example="Address is syncing",
)
async def sync_transactions(request: Context, body: SyncBody) -> Answer:
    """Starts a new read of every address that is not already being read.

    `/v1/status` shows when it is done. The answer is a JSON string. The histories of the addresses are indexed from
    then on, for some days after the last call (30, unless the operator sets another number), up to the account's share
    of the server's capacity. The header `X-Completeness` is `partial` if an address has no configured chain, else
    `complete`; `X-Issues` lists such addresses.
    """
    owners = accounts(request, body)
    started = await request.engine.sync(owners)
    served, unserved = split_supported(owners, request.engine.kinds(), "fresh data")
    request.headers.update(completeness_headers(unserved.values()))
    status: SyncReply = "Address is syncing" if started else "Address already syncing"
    answer = await change(request, lambda _: status)
    await run_after_change(request.engine.watch(request.principal.account_id, served))
    return answer


def accounts(request: Context, body: SyncBody) -> tuple[Account, ...]:
    """Return the accounts of the body in order, without duplicates; raise a 400 Problem with all errors.

    Too many addresses are the only error then.
    """
    addresses, max_addresses = body.addresses, request.parts.settings.server.max_addresses
    if len(addresses) > max_addresses:
        reason = f"`addresses` holds {len(addresses)} addresses; at most {max_addresses} are taken in one call"
        raise invalid("body", [FieldError(reason, ["addresses"])])
    field_errors, owners = [], []
    for position, item in enumerate(addresses):
        try:
            owners.append(read_account(item))
        except InvalidParameter as refused:
            field_errors.append(FieldError(f"`addresses[{position}]` {refused}", ["addresses", str(position)]))
    if field_errors:
        raise invalid("body", field_errors)
    return tuple(dict.fromkeys(owners))
