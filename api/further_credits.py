"""Reserve further credits for a read, once its price is known."""

from __future__ import annotations

from chainfolio.api.context import Context
from chainfolio.api.errors import insufficient_credits
from chainfolio.storage.state.meter_transaction import AdmissionRequest


async def reserve_more(request: Context, credits: int) -> None:
    """Reserve more credits for a read whose price shows as it is made; raise a 402 Problem without enough."""
    principal, charge = request.principal, request.http.charge
    asked = AdmissionRequest(
        principal.account_id,
        principal.key_id,
        request.route.bucket,
        0,
        credits,
        request.request_id,
        None,
        rated_id=principal.rated_id,
    )
    admitted = await request.parts.state.meter.admit(asked)
    if admitted.reservation is None:
        raise insufficient_credits(credits, admitted.available or 0)
    assert charge is not None, "it reserved a credit before it began"
    charge.more.append(admitted.reservation)
