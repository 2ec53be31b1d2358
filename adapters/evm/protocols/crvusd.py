"""Curve's loans with soft liquidation of collateral as its price falls: crvUSD, lending markets."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Family, ProtocolMatch
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

# Collateral, sold collateral (in the borrowed token), debt with interest, number of price bands.
USER_STATE = "user_state(address)(uint256,uint256,uint256,uint256)"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode the loan of an account at one controller, of zeros without a loan.

    Collateral that was sold softly is supplied too. Controllers that mint (role `controller`) lend the file's
    `stablecoin`; those of lending markets (`lend_controller`) name the token that they lend.
    """
    is_minting = match.is_listed("controller")
    (collateral, sold, debt, _), collateral_token, *lent_tokens = yield [
        Call(match.contract, USER_STATE, (match.account,)),
        Call(match.contract, "collateral_token()(address)"),
        *([] if is_minting else [Call(match.contract, "borrowed_token()(address)")]),
    ]
    lent_token = match.contracts["stablecoin"][0] if is_minting else lent_tokens[0]
    return DecodedPosition(
        "LENDING",
        supplied=(TokenAmount(collateral_token, collateral), TokenAmount(lent_token, sold)),
        borrowed=(TokenAmount(lent_token, debt),),
        pool=match.contract,
    )


FAMILY = Family(
    "crvusd",
    rules=(Counterparty("controller"), Counterparty("lend_controller")),
    position=position,
    roles=("stablecoin",),
    calls=(
        TypedCalls("OPENVAULT", "gain", ("create_loan", "create_loan_extended")),
        TypedCalls("BORROW", "gain", ("borrow_more",)),
        TypedCalls("REPAYVAULT", "loss", ("repay",)),
        TypedCalls("LEND", "loss", ("add_collateral",)),
        TypedCalls("WITHDRAW", "gain", ("remove_collateral",)),
    ),
)
