"""Curve's loans, whose collateral is sold on the way down and bought back on the way up: crvUSD, lending markets."""

from __future__ import annotations

from adapters.evm.positions.rules import Counterparty, DecoderPlan, Family, ProtocolMatch
from adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount

# Collateral, what of it was sold by now (in the borrowed token), debt to this block, number of price bands.
USER_STATE = "user_state(address)(uint256,uint256,uint256,uint256)"


def position(match: ProtocolMatch) -> DecoderPlan:
    """The loan of an account at one controller. Those that mint (`controller`) all lend the file's `stablecoin`;
    those of lending markets (`lend_controller`) say what they lend."""
    mints = match.contract in match.contracts.get("controller", ())
    (held, sold, debt, _), collateral, *told = yield [
        Call(match.contract, USER_STATE, (match.account,)),
        Call(match.contract, "collateral_token()(address)"),
        *([] if mints else [Call(match.contract, "borrowed_token()(address)")]),
    ]
    lent = match.contracts["stablecoin"][0] if mints else told[0]
    return DecodedPosition(
        "LENDING",
        supplied=(TokenAmount(collateral, held), TokenAmount(lent, sold)),
        borrowed=(TokenAmount(lent, debt),),
        pool=match.contract,
    )


FAMILY = Family(
    "crvusd",
    rules=(Counterparty("controller"), Counterparty("lend_controller")),
    position=position,
    roles=("stablecoin",),
)
