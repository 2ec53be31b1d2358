"""Decoders from published interfaces: arithmetic and refusals, on answers that the interfaces allow.

This is no proof of what the protocols answer: these families are marked as unproven.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chainfolio.adapters.evm.positions.rules import Family, ProtocolMatch, ReadError
from chainfolio.adapters.evm.protocols import (
    aura,
    balancer_v3,
    curve_crypto_pool,
    etherfi_withdrawals,
    fluid_vault,
    gmx_stake,
    hedgey,
    masterchef_v3,
    sablier,
    staked_aave,
    yearn_v2,
)
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.plans import Reverted
from chainfolio.protocols import AnnotatedShare, DecodedPosition, TokenAmount, UnlistedShare
from chainfolio.tick_math import sqrt_price
from tests.protocols.scripted import Says, decode

ME, OTHER, POOL, HOST, ONE, TWO, SIX = ("0x" + letter * 40 for letter in "1234567")
NOW, WEEK = 1_700_000_000, 604_800
NFT = ProtocolMatch(ME, POOL, id=7, time_s=NOW)
UNPROVEN = (
    aura,
    balancer_v3,
    curve_crypto_pool,
    etherfi_withdrawals,
    fluid_vault,
    gmx_stake,
    hedgey,
    masterchef_v3,
    sablier,
    staked_aave,
    yearn_v2,
)


@pytest.mark.parametrize("module", UNPROVEN, ids=lambda module: module.FAMILY.name)
def test_a_family_from_an_interface_is_marked_as_unproven(module: Any) -> None:
    family: Family = module.FAMILY
    assert (family.is_proven, family.problem) == (False, "")


REQUEST: Says = {
    (POOL, "ownerOf"): ME,
    (POOL, "getRequest"): (100, 90, True, 0),
    (POOL, "isFinalized"): True,
    (POOL, "getClaimableAmount"): 99,
}


def test_a_finalized_request_of_etherfi_pays_what_can_be_claimed_and_others_at_most_what_was_asked() -> None:
    finalized = decode(etherfi_withdrawals.position, NFT, says=REQUEST)
    assert finalized.supplied == (TokenAmount(ZERO_ADDRESS, 99),)
    waiting = decode(etherfi_withdrawals.position, NFT, says={**REQUEST, (POOL, "isFinalized"): False})
    assert waiting.supplied == (TokenAmount(ZERO_ADDRESS, 100),)
    for key, answer in (("ownerOf", OTHER), ("ownerOf", Reverted()), ("getRequest", (100, 90, False, 0))):
        assert decode(etherfi_withdrawals.position, NFT, says={**REQUEST, (POOL, key): answer}) is None


PLAN: Says = {
    (POOL, "ownerOf"): ME,
    (POOL, "plans"): (ONE, 1000, NOW - 3 * WEEK, NOW - 2 * WEEK, 100, WEEK),
    (POOL, "planBalanceOf"): (300, 700, NOW),
}


def test_a_plan_of_hedgey_is_what_is_locked_and_what_can_be_redeemed() -> None:
    plan = decode(hedgey.position, NFT, says=PLAN)
    assert (plan.supplied, plan.rewards) == ((TokenAmount(ONE, 700),), (TokenAmount(ONE, 300),))
    assert plan.unlock_s == NOW + 7 * WEEK
    assert decode(hedgey.position, NFT, says={**PLAN, (POOL, "ownerOf"): OTHER}) is None
    assert decode(hedgey.position, NFT, says={**PLAN, (POOL, "plans"): (ZERO_ADDRESS, 0, 0, 0, 0, 0)}) is None
    partial_plan = decode(hedgey.position, NFT, says={**PLAN, (POOL, "planBalanceOf"): Reverted()})
    assert (partial_plan.supplied, partial_plan.unknown) == ((TokenAmount(ONE, 1000),), "what can be redeemed")
    lying = decode(hedgey.position, NFT, says={**PLAN, (POOL, "planBalanceOf"): (10**30, 0, NOW)})
    assert sum(part.raw for part in (*lying.supplied, *lying.rewards)) == 1000


STREAM: Says = {
    (POOL, "ownerOf"): ME,
    (POOL, "getEndTime"): NOW + WEEK,
    (POOL, "isCancelable"): True,
    (POOL, "getUnderlyingToken"): ONE,
    (POOL, "getDepositedAmount"): 1000,
    (POOL, "getWithdrawnAmount"): 100,
    (POOL, "getRefundedAmount"): 200,
    (POOL, "withdrawableAmountOf"): 300,
}


def test_a_stream_of_sablier_is_what_is_to_come_and_what_can_be_withdrawn() -> None:
    stream = decode(sablier.position, NFT, says=STREAM)
    assert (stream.supplied, stream.rewards) == ((TokenAmount(ONE, 400),), (TokenAmount(ONE, 300),))
    assert "cancel" in stream.remark
    older = {key: answer for key, answer in STREAM.items() if key[1] != "getUnderlyingToken"}
    assert decode(sablier.position, NFT, says={**older, (POOL, "getAsset"): ONE}).supplied == stream.supplied
    assert decode(sablier.position, NFT, says={**STREAM, (POOL, "ownerOf"): OTHER}) is None
    assert decode(sablier.position, NFT, says={**STREAM, (POOL, "getRefundedAmount"): 900}) is None
    with pytest.raises(ReadError, match="getDepositedAmount"):
        decode(sablier.position, NFT, says={**STREAM, (POOL, "getDepositedAmount"): Reverted()})


def test_a_share_of_yearn_is_its_price_in_the_vaults_token() -> None:
    says: Says = {
        (POOL, "token"): ONE,
        (POOL, "pricePerShare"): 1_250_000,
        (POOL, "decimals"): 6,
        (POOL, "totalSupply"): 800,
    }
    match = ProtocolMatch(ME, POOL)
    assert decode(yearn_v2.unwrap, match, 400, says=says) == (TokenAmount(ONE, 500),)
    assert decode(yearn_v2.unwrap, replace(match, is_fork=True), 400, says=says) == UnlistedShare(
        (TokenAmount(ONE, 500),)
    )
    assert decode(yearn_v2.unwrap, match, 801, says=says) is None
    assert decode(yearn_v2.unwrap, match, 400, says={**says, (POOL, "decimals"): 255}) is None


def test_staked_aave_pays_less_after_a_slashing_and_says_when_its_cooldown_ends() -> None:
    says: Says = {
        (POOL, "STAKED_TOKEN"): ONE,
        (POOL, "REWARD_TOKEN"): TWO,
        (POOL, "balanceOf"): 100,
        (POOL, "getTotalRewardsBalance"): 5,
        (POOL, "stakersCooldowns"): (NOW, 100),
        (POOL, "getCooldownSeconds"): WEEK,
        (POOL, "previewRedeem", 100): 70,
    }
    stake = decode(staked_aave.position, ProtocolMatch(ME, POOL), says=says)
    assert (stake.supplied, stake.rewards) == ((TokenAmount(ONE, 70),), (TokenAmount(TWO, 5),))
    assert stake.unlock_s == NOW + WEEK
    idle = decode(staked_aave.position, ProtocolMatch(ME, POOL), says={**says, (POOL, "stakersCooldowns"): (0, 0)})
    assert idle.unlock_s == 0


def test_staked_gmx_is_counted_once_although_it_lies_in_two_trackers() -> None:
    says: Says = {
        (HOST, "gmx"): ONE,
        (HOST, "esGmx"): TWO,
        (HOST, "feeGmxTracker"): SIX,
        (POOL, "rewardToken"): TWO,
        (POOL, "depositBalances", ME, ONE): 100,
        (POOL, "depositBalances", ME, TWO): 30,
        (POOL, "claimable"): 4,
        (SIX, "rewardToken"): OTHER,
        (SIX, "claimable"): 9,
        (SIX, "depositBalances"): 130,
    }
    match = ProtocolMatch(ME, POOL, contracts={"staked_gmx": (POOL,), "reward_router": (HOST,)})
    stake = decode(gmx_stake.position, match, says=says)
    assert stake.supplied == (TokenAmount(ONE, 100), TokenAmount(TWO, 30))
    assert stake.rewards == (TokenAmount(TWO, 4), TokenAmount(OTHER, 9))
    partial_stake = decode(gmx_stake.position, match, says={**says, (SIX, "claimable"): Reverted()})
    assert (partial_stake.supplied, partial_stake.unknown) == (stake.supplied, "its part of the fees")


def test_a_share_of_balancer_v3_is_its_part_of_the_pools_balances_that_no_block_moved() -> None:
    def info(*balances: int) -> Any:
        return (ONE, TWO), ((0, ZERO_ADDRESS, False),) * 2, balances, balances

    says: Says = {(HOST, "getPoolTokenInfo"): info(1000, 3000), (HOST, "totalSupply"): 200}
    match = ProtocolMatch(ME, POOL, answer=HOST)
    parts = TokenAmount(ONE, 500), TokenAmount(TWO, 1500)
    assert decode(balancer_v3.unwrap, match, 100, says=says) == UnlistedShare(parts)
    assert decode(balancer_v3.unwrap, match, 201, says=says) is None
    assert decode(balancer_v3.unwrap, match, 100, says={**says, (HOST, "getPoolTokenInfo"): Reverted()}) is None
    moved_answers = {
        **says,
        (1, HOST, "getPoolTokenInfo"): info(2000, 1500),
        (2, HOST, "getPoolTokenInfo"): info(2000, 1500),
    }
    share = decode(balancer_v3.unwrap, match, 100, says=moved_answers)
    assert isinstance(share, AnnotatedShare)
    assert share.parts == UnlistedShare((TokenAmount(ONE, 1000), TokenAmount(TWO, 750)))


def test_a_share_of_a_crypto_pool_is_its_part_of_two_or_three_coins() -> None:
    says: Says = {
        (HOST, "get_coins"): (ONE, TWO, SIX),
        **{(POOL, "balances", index): raw for index, raw in enumerate((100, 200, 300))},
        (POOL, "totalSupply"): 10,
    }
    match = ProtocolMatch(ME, POOL, answer=HOST)
    parts = tuple(map(TokenAmount, (ONE, TWO, SIX), (10, 20, 30)))
    assert decode(curve_crypto_pool.unwrap, match, 1, says=says) == parts
    assert decode(curve_crypto_pool.unwrap, match, 11, says=says) is None
    unknown = {**says, (HOST, "get_coins"): (ZERO_ADDRESS,) * 3}
    assert decode(curve_crypto_pool.unwrap, match, 1, says=unknown) is None


def test_aura_says_that_what_a_claim_mints_is_unknown() -> None:
    says: Says = {
        (POOL, "stakingToken"): ONE,
        (POOL, "balanceOf"): 100,
        (POOL, "earned"): 7,
        (POOL, "rewardToken"): TWO,
        (POOL, "extraRewardsLength"): 0,
    }
    match = ProtocolMatch(ME, POOL, contracts={"reward_pool": (POOL,), "booster": (HOST,)})
    (position,) = decode(aura.position, match, says=says)
    assert (position.supplied, position.rewards) == ((TokenAmount(ONE, 100),), (TokenAmount(TWO, 7),))
    assert position.unknown == aura.MINTED


def test_an_nft_in_the_farm_keeps_its_amounts_and_fees_and_earns_cake(monkeypatch: pytest.MonkeyPatch) -> None:
    record = (0, ZERO_ADDRESS, ONE, TWO, 500, -10, 10, 10**18, 0, 0, 3, 4)
    says: Says = {
        (HOST, "CAKE"): SIX,
        (HOST, "nonfungiblePositionManager"): OTHER,
        (HOST, "balanceOf"): 2,
        (HOST, "tokenOfOwnerByIndex", ME, 0): 7,
        (HOST, "tokenOfOwnerByIndex", ME, 1): 8,
        (HOST, "userPositionInfos", 7): (10**18, 10**18, -10, 10, 0, 0, ME),
        (HOST, "userPositionInfos", 8): (10**18, 10**18, -10, 10, 0, 0, OTHER),
        (HOST, "pendingCake"): 55,
        (OTHER, "factory"): ONE,
        (OTHER, "positions"): record,
        (ONE, "getPool"): POOL,
        (POOL, "slot0"): (sqrt_price(0), 0),
        (POOL, "feeGrowthGlobal0X128"): 0,
        (POOL, "feeGrowthGlobal1X128"): 0,
        (POOL, "ticks"): (0, 0, 0, 0),
    }
    match = ProtocolMatch(ME, HOST, contracts={"nft_farm": (HOST,)})
    positions: list[DecodedPosition] = decode(masterchef_v3.position, match, says=says)
    assert [each.name for each in positions] == ["Position 7"]  # the other one is not the account's
    assert all(part.raw > 0 for part in positions[0].supplied)
    assert positions[0].rewards == (TokenAmount(ONE, 3), TokenAmount(TWO, 4), TokenAmount(SIX, 55))
    (without_cake,) = decode(masterchef_v3.position, match, says={**says, (HOST, "pendingCake"): Reverted()})
    assert without_cake.unknown == "its CAKE"
    monkeypatch.setattr(masterchef_v3, "MAX_NFTS", 1)
    first, others = decode(masterchef_v3.position, match, says=says)
    assert (first.name, first.unknown) == ("Position 7", "")
    assert others.unknown == "its NFTs in the farm beyond the first 1 of 2"


def test_a_position_of_fluid_has_the_tokens_of_either_release_of_its_vault() -> None:
    native, token1, token2 = int(fluid_vault.NATIVE, 16), int(ONE, 16), int(TWO, 16)
    older = (1, 2, 3, 4, native, token2, 18, 6, 7, 8, 9, 10)
    newer = (1, 2, 3, 4, 5, 6, token1, token1, native, 0, token2, 0)
    smart = (1, 2, 3, 4, 5, 6, token1, token1, native, token1, token2, 0)
    says: Says = {
        (ONE, "getPositionsForNftIds"): ((7, ME, 100, 60),),
        (TWO, "vaultByNftId"): HOST,
        (HOST, "constantsView"): older,
    }
    match = replace(NFT, contracts={"positions_resolver": (ONE,), "vault_resolver": (TWO,)})
    position = decode(fluid_vault.position, match, says=says)
    assert (position.supplied, position.borrowed) == ((TokenAmount(ZERO_ADDRESS, 100),), (TokenAmount(TWO, 60),))
    assert decode(fluid_vault.position, match, says={**says, (HOST, "constantsView"): newer}) == position
    with pytest.raises(ReadError, match="two tokens"):
        decode(fluid_vault.position, match, says={**says, (HOST, "constantsView"): smart})
    for row in ((7, OTHER, 100, 60), (7, ME, 0, 0)):
        assert decode(fluid_vault.position, match, says={**says, (ONE, "getPositionsForNftIds"): (row,)}) is None
    refusal = {**says, (ONE, "getPositionsForNftIds"): Reverted()}
    assert decode(fluid_vault.position, match, says=refusal) is None
