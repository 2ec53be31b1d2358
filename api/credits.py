"""GET /v1/credits: the credits that the account has left."""

from __future__ import annotations

from chainfolio.api.context import Context
from chainfolio.api.router import get
from chainfolio.storage.state import ledger


@get("/v1/credits", tag="Service", summary="Credits left", cost=0, example=1234)
async def credits(request: Context) -> int:
    """Returns a JSON number: the credits that can be spent now.

    Credits reserved by running calls are not included.
    """
    account_id = request.principal.account_id
    return await request.parts.state.read(lambda tx: ledger.available(tx, account_id))
