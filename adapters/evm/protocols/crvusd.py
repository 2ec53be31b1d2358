"""Curve's loans, whose collateral is sold on the way down and bought back on the way up: crvUSD, lending markets."""

from __future__ import annotations

from chainfolio.calls import Call
from chainfolio.protocols import Counterparty, Decoding, Family, Found, Met, Part

# Collateral, what of it was sold by now (in the borrowed token), debt to this block, number of price bands.
USER_STATE = "user_state(address)(uint256,uint256,uint256,uint256)"


def position(met: Met) -> Decoding:
    """The loan of an account at one controller. Those that mint (`controller`) all lend the file's `stablecoin`;
    those of lending markets (`lend_controller`) say what they lend."""
    mints = met.contract in met.contracts.get("controller", ())
    (held, sold, debt, _), collateral, *told = yield [
        Call(met.contract, USER_STATE, (met.account,)),
        Call(met.contract, "collateral_token()(address)"),
        *([] if mints else [Call(met.contract, "borrowed_token()(address)")]),
    ]
    lent = met.contracts["stablecoin"][0] if mints else told[0]
    return Found(
        "LENDING",
        supplied=(Part(collateral, held), Part(lent, sold)),
        borrowed=(Part(lent, debt),),
        pool=met.contract,
    )


FAMILY = Family(
    "crvusd",
    rules=(Counterparty("controller"), Counterparty("lend_controller")),
    position=position,
    roles=("stablecoin",),
)
