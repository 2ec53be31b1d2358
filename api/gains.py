"""GET /v1/gains: gains of wallets, lot by lot."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from chainfolio.api.addresses import Addresses
from chainfolio.api.context import Context
from chainfolio.api.errors import FieldError, invalid
from chainfolio.api.example_addresses import WALLET
from chainfolio.api.failures import READING
from chainfolio.api.router import get
from chainfolio.engine.gains.pnl import PnlRequest, zone_of
from chainfolio.errors import BadRequest
from chainfolio.portfolio.pnl.report import GainDocument, HoldingDocument, PnlDocument, SumsDocument

Method = Literal["fifo", "lifo", "hifo", "lofo", "average", "uk", "ca"]
_TOKEN: Final = "0x" + "70" * 20
_TRANSACTION: Final = "0x" + "1f" * 32
EXAMPLE: Final = PnlDocument(
    method="fifo",
    addresses=(WALLET,),
    open_pnl="20",
    closed_pnl="5",
    total_cost_basis="80",
    value="100",
    income="0",
    fees="0.25",
    holdings=(
        HoldingDocument(
            symbol="TOK",
            chain="ethereum",
            contract=_TOKEN,
            wallet="",
            amount="8",
            held="8",
            short="0",
            unasked="0",
            total_cost_basis="80",
            price="12.5",
            value="100",
            open_pnl="20",
            closed_pnl="5",
            reason="",
        ),
    ),
    gains=(
        GainDocument(
            time="2026-02-01T12:00:00.000000Z",
            kind="disposal",
            symbol="TOK",
            chain="ethereum",
            contract=_TOKEN,
            wallet=WALLET,
            transaction=_TRANSACTION,
            amount="2",
            proceeds="25",
            cost="20",
            gain="5",
            acquired="2026-01-01T12:00:00.000000Z",
            acquired_in="0x" + "2e" * 32,
            rule="",
            reason="",
        ),
    ),
    unknown={},
    known=SumsDocument(open_pnl="20", closed_pnl="5", total_cost_basis="80", income="0", fees="0.25"),
)


class GainsQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Wallets and rules of the calculation."""

    addresses: Addresses
    method: Annotated[
        Method,
        msgspec.Meta(
            description="Which lot is sold first; `average`, `uk` and `ca` pool them. The days of `uk` and `ca` are "
            "those of their time zone."
        ),
    ] = "fifo"
    per_wallet: Annotated[
        bool, msgspec.Meta(description="Lots by wallet, not over all wallets. Not with `uk` and `ca`.")
    ] = False
    deposits_are_disposals: Annotated[
        bool,
        msgspec.Meta(description="A deposit in a protocol sells what is deposited and buys the share."),
    ] = False
    received_at: Annotated[
        Literal["spot", "unknown"],
        msgspec.Meta(description="What others send costs its price at that time, or its cost is unknown."),
    ] = "spot"

    @property
    def request(self) -> PnlRequest:
        """The rules as the engine takes them."""
        return PnlRequest(
            self.method,
            per_wallet=self.per_wallet,
            deposits_are_disposals=self.deposits_are_disposals,
            received_at_spot=self.received_at == "spot",
            zone=zone_of(None, self.method),
        )


def check(request: Context, query: GainsQuery) -> None:
    """Raise a 400 Problem if a method pools the lots of all wallets, and lots by wallet are requested."""
    try:
        query.request.check()
    except BadRequest as error:
        raise invalid("query", [FieldError(f"`perWallet` cannot be `true`: {error.reason}", ["perWallet"])]) from error


@get(
    "/v1/gains",
    tag="Portfolio",
    summary="Gains, lot by lot",
    needs="portfolio",
    envelope="transactions",
    check=check,
    fails={
        404: "An address has more transactions than gains are computed for: 1,000, unless the operator sets another "
        "limit. `chainfolio pnl` has no such limit.",
        **READING,
    },
    example=EXAMPLE,
)
async def gains(request: Context, query: GainsQuery) -> PnlDocument:
    """Returns the gains of the wallets, which count as one owner's, in USD: what `chainfolio pnl --json` prints.

    `gains` has a row for each disposal and lot, and for each income, by time; `holdings` has the remaining lots of each
    asset with cost, value and open gain. What is not known is `N/A`, with the reason; `unknown` counts the reasons, and
    `known` has the sums without them. The wallets' whole history must be indexed, else
    the answer is 503.
    """
    return await request.engine.gains(query.addresses, query.request)
