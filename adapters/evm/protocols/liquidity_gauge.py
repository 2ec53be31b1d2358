"""Curve's liquidity gauges, as Balancer has them too: shares that are staked, the minter's token, and other rewards."""

from __future__ import annotations

from adapters.evm.positions.rules import DecoderPlan, Family, MayRefuse, ProtocolMatch, Token
from adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount

MAX_REWARDS = 8  # as many as a gauge can have
CONTROLLER, TOKEN = "controller()(address)", "token()(address)"


def position(match: ProtocolMatch) -> DecoderPlan:
    """What leaving a gauge gives: shares of what it is for, and all that could be claimed there now.

    None where the controller of the protocol's minter does not know the gauge. How the minter is asked for its
    controller and its token are options of these names. Older gauges do not count their rewards, and tell them only
    to those who claim: they are unknown then.
    """
    gauge, account = match.contract, match.account
    (minter,) = match.contracts.get("minter", ("",))
    if not minter:
        return None  # the protocol has no gauges on this chain
    share, staked, controller, token, count = yield [
        Call(gauge, "lp_token()(address)"),
        Call(gauge, "balanceOf(address)(uint256)", (account,)),
        Call(minter, match.options.get("controller", CONTROLLER)),
        Call(minter, match.options.get("token", TOKEN)),
        MayRefuse(Call(gauge, "reward_count()(uint256)")),
    ]
    known, *others = yield [
        MayRefuse(Call(controller, "gauge_types(address)(int128)", (gauge,))),
        *(
            MayRefuse(Call(gauge, "reward_tokens(uint256)(address)", (at,)))
            for at in range(min(count or 0, MAX_REWARDS))
        ),
    ]
    if known is None:
        return None
    minted, *earned = yield [
        Call(gauge, "claimable_tokens(address)(uint256)", (account,), alone=True),
        *(Call(gauge, "claimable_reward(address,address)(uint256)", (account, other)) for other in others),
    ]
    return DecodedPosition(
        "FARMING",
        supplied=(TokenAmount(share, staked),),
        rewards=(
            TokenAmount(token, minted),
            *(TokenAmount(other, raw) for other, raw in zip(others, earned, strict=True)),
        ),
        pool=gauge,
        replaces=(gauge,),
        unknown="rewards beside the minter's token" if count is None else "",
    )


FAMILY = Family(
    "liquidity_gauge",
    rules=(Token(question="lp_token()(address)"),),
    position=position,
    roles=("minter",),
    options=("controller", "token"),
)
