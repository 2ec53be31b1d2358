"""Curve's liquidity gauges, also used by Balancer: staked shares and their rewards."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import DecoderPlan, Family, MayRefuse, ProtocolMatch, Token
from chainfolio.adapters.evm.reads import Call, balance_of
from chainfolio.protocols import DecodedPosition, TokenAmount

MAX_REWARDS = 8  # the limit of a gauge
CONTROLLER, TOKEN = "controller()(address)", "token()(address)"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode what leaving a gauge pays: the staked shares and rewards, of MAX_REWARDS tokens at most.

    None if the controller of the protocol's minter does not know the gauge, or if the protocol has no minter on this
    chain. Options `controller` and `token` are the minter's functions that return these, if they have other names.
    Older gauges do not count their rewards and reveal them only to a claim: these are reported as unknown.
    """
    gauge, account = match.contract, match.account
    (minter,) = match.contracts.get("minter", ("",))
    if not minter:
        return None
    share, staked, controller, minter_token, reward_count = yield [
        Call(gauge, "lp_token()(address)"),
        balance_of(gauge, account),
        Call(minter, match.options.get("controller", CONTROLLER)),
        Call(minter, match.options.get("token", TOKEN)),
        MayRefuse(Call(gauge, "reward_count()(uint256)")),
    ]
    gauge_type, *reward_tokens = yield [
        MayRefuse(Call(controller, "gauge_types(address)(int128)", (gauge,))),
        *(
            MayRefuse(Call(gauge, "reward_tokens(uint256)(address)", (index,)))
            for index in range(min(reward_count or 0, MAX_REWARDS))
        ),
    ]
    if gauge_type is None:
        return None
    minted, *rewards = yield [
        Call(gauge, "claimable_tokens(address)(uint256)", (account,), alone=True),
        *(Call(gauge, "claimable_reward(address,address)(uint256)", (account, token)) for token in reward_tokens),
    ]
    return DecodedPosition(
        "FARMING",
        supplied=(TokenAmount(share, staked),),
        rewards=(
            TokenAmount(minter_token, minted),
            *(TokenAmount(*reward) for reward in zip(reward_tokens, rewards, strict=True)),
        ),
        pool=gauge,
        replaces=(gauge,),
        unknown="rewards beside the minter's token" if reward_count is None else "",
    )


FAMILY = Family(
    "liquidity_gauge",
    rules=(Token(question="lp_token()(address)"),),
    position=position,
    roles=("minter",),
    options=("controller", "token"),
)
