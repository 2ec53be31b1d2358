"""Pools compared with the block before: a moved pool is shown as it was, and moving one gains nothing."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.adapters.evm.positions.price_guard import MAX_MOVE, UNMOVED, Reserves, reserves
from chainfolio.adapters.evm.positions.rules import AtEarlierBlock, MayRefuse, ProtocolMatch, ReadError, run_decoder
from chainfolio.adapters.evm.protocols import balancer_v2, uniswap_v2, uniswap_v3, uniswap_v4
from chainfolio.adapters.evm.protocols.ticks import LiquidityState, amounts
from chainfolio.adapters.evm.protocols.uniswap_v3 import NOT_COVERED
from chainfolio.adapters.evm.reads import Call
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.plans import Reverted, Unknown, run_offline
from chainfolio.protocols import AnnotatedShare, TokenAmount, UnlistedShare
from chainfolio.reads import AtParent
from chainfolio.tick_math import sqrt_price
from tests.protocols.scripted import NO_CODE, decode

ME, PAIR, FACTORY, A, B, MANAGER, POOL, VIEW, C = ("0x" + letter * 40 for letter in "123456789")
GONE = Unknown("the state is gone", "gone")
Said = dict[tuple[Any, ...], Any]


# --- shares of a pair ---


def pair(held0: int, held1: int, supply: int, blocks: int = 0) -> Said:
    """Return the answers of a pair now, or some blocks before."""
    answers = {(A, "balanceOf"): held0, (B, "balanceOf"): held1, (PAIR, "totalSupply"): supply}
    if blocks:
        return {(blocks, *key): value for key, value in answers.items()}
    return answers | {
        (PAIR, "getReserves"): (held0, held1),
        (PAIR, "kLast"): 0,
        (FACTORY, "getPair"): PAIR,
        (FACTORY, "feeTo"): ZERO_ADDRESS,
    }


def share(raw: int, *states: Said, is_fork: bool = False) -> Any:
    says = {key: value for state in states for key, value in state.items()}
    return decode(uniswap_v2.unwrap, ProtocolMatch(ME, PAIR, FACTORY, (A, B), is_fork=is_fork), raw, says=says)


def both(raw0: int, raw1: int) -> tuple[TokenAmount, TokenAmount]:
    return TokenAmount(A, raw0), TokenAmount(B, raw1)


STATE = 1_000, 4_000, 100


def test_a_share_of_a_pair_that_was_moved_is_its_part_of_what_was_there_before() -> None:
    underlying = share(10, pair(2_000, 2_000, 100), pair(*STATE, blocks=1), pair(*STATE, blocks=2))
    assert underlying.parts == both(100, 400)
    assert "moved by 300 % within the block" in underlying.remark


def test_a_fork_is_still_one_that_nobody_vouches_for() -> None:
    underlying = share(10, pair(2_000, 2_000, 100), pair(*STATE, blocks=1), pair(*STATE, blocks=2), is_fork=True)
    assert isinstance(underlying, AnnotatedShare)
    assert underlying.parts == UnlistedShare(both(100, 400))


def test_a_pair_that_only_its_parent_had_moved_is_what_it_is() -> None:
    assert share(10, pair(*STATE), pair(2_000, 2_000, 100, blocks=1), pair(1_001, 3_996, 100, blocks=2)) == both(
        100, 400
    )


@pytest.mark.parametrize(
    "before",
    [
        (1_020, 3_922, 100),  # by less than five percent
        (500, 2_000, 50),  # liquidity was added
        (2_000, 8_000, 200),  # liquidity was removed
        (1_000, 2_000, 100),  # a gift, which is the holders'
        (2_000, 8_000, 100),  # a loss of both, which is no trade
        (1_000, 8_000, 100),  # a loss of one
        (0, 4_000, 100),
        (1_000, 4_000, 0),  # there was nothing
    ],
)
def test_what_is_no_trade_or_a_small_one_leaves_what_leaving_pays_to_the_unit(before: tuple[int, int, int]) -> None:
    assert share(10, pair(*STATE), pair(*before, blocks=1)) == both(100, 400)


def test_who_joins_a_pair_that_was_moved_in_the_same_block_gets_nothing_of_what_was_there_before() -> None:
    """A token of mine is sold into my pair; then shares are made where they cost next to nothing."""
    moved_state = 10**9, 10**3, 10**6  # before: a unit of mine, a dollar, a share
    underlying = share(10**6 - 1, pair(*moved_state), pair(1, 1, 1, blocks=1), pair(1, 1, 1, blocks=2))
    assert underlying.parts[1].raw <= 10**3 + 1


def test_what_a_protocol_s_fee_takes_is_not_given_back_by_a_move() -> None:
    pair_answers = pair(2_000, 2_000, 100) | {(PAIR, "kLast"): 1_000 * 1_000, (FACTORY, "feeTo"): POOL}
    underlying = share(10, pair_answers, pair(*STATE, blocks=1), pair(*STATE, blocks=2))
    assert all(part.raw < total for part, total in zip(underlying.parts, (100, 400), strict=True))


@pytest.mark.parametrize("key", [(1, A, "balanceOf"), (1, PAIR, "totalSupply")])
def test_a_block_before_that_cannot_be_read_is_said_and_what_leaving_pays_counts(key: tuple[Any, ...]) -> None:
    underlying = share(10, pair(2_000, 2_000, 100), pair(*STATE, blocks=1), {key: GONE})
    reason = "its pool could not be compared with the block before, so who moved it counts: the state is gone"
    assert underlying == AnnotatedShare(both(200, 200), reason)


@pytest.mark.parametrize("answer", [NO_CODE, Reverted()])
def test_a_pair_that_is_new_in_the_block_is_what_leaving_pays(answer: Any) -> None:
    assert share(10, pair(*STATE), {(1, PAIR, "totalSupply"): answer}) == both(100, 400)


def test_a_block_before_the_parent_that_cannot_be_read_leaves_the_parent() -> None:
    underlying = share(10, pair(2_000, 2_000, 100), pair(*STATE, blocks=1), {(2, A, "balanceOf"): GONE})
    assert underlying.parts == both(100, 400)


RAW = st.integers(1, 1 << 112)


@given(RAW, RAW, RAW, RAW, RAW, RAW)
def test_the_part_of_all_shares_is_never_more_than_there_was_or_is(
    now0: int, now1: int, supply: int, then0: int, then1: int, before: int
) -> None:
    now, then = Reserves((now0, now1), supply), Reserves((then0, then1), before)
    shared = now.amounts_at(then)
    assert all(part <= old + new for part, old, new in zip(shared, then.amounts, now.amounts, strict=True))
    assert now.amounts_at(now) == now.amounts
    assert now.price_ratio(then) == then.price_ratio(now) >= UNMOVED


@pytest.mark.parametrize("is_fork", [False, True])
@pytest.mark.parametrize("before", [(A, C), (C, B), (A,), (A, B, C)])
def test_a_pool_that_changed_its_tokens_is_what_leaving_pays(before: tuple[str, ...], is_fork: bool) -> None:
    """Else many units of one token, before, would be as many of another."""
    tokens, now = (A, B), (10**3, 10**9)
    says: Said = {
        (PAIR, "getPoolId"): b"1" * 32,
        (FACTORY, "getProtocolFeesCollector"): POOL,
        (FACTORY, "getPool"): (PAIR, 2),
        (POOL, "getSwapFeePercentage"): 0,
        (PAIR, "totalSupply"): 100,
        (FACTORY, "getPoolTokens"): (tokens, now, 7),
        (PAIR, "queryExit"): (10, [10**2, 10**8]),
        (A, "balanceOf"): 10**30,
        (B, "balanceOf"): 10**30,
        (1, FACTORY, "getPoolTokens"): (before, (10**18,) * len(before), 6),
    }
    underlying = decode(balancer_v2.unwrap, ProtocolMatch(ME, PAIR, FACTORY, is_fork=is_fork), 10, says=says)
    assert underlying == UnlistedShare(both(10**2, 10**8))
    honest = says | {(blocks, FACTORY, "getPoolTokens"): (tokens, (10**6, 10**6), 6) for blocks in (1, 2)}
    moved_share = decode(balancer_v2.unwrap, ProtocolMatch(ME, PAIR, FACTORY, is_fork=is_fork), 10, says=honest)
    assert moved_share.parts == UnlistedShare(both(10**5, 10**5))


def test_a_fork_s_vault_that_claims_to_have_had_more_has_what_it_had() -> None:
    says: Said = {
        (PAIR, "getPoolId"): b"1" * 32,
        (FACTORY, "getProtocolFeesCollector"): POOL,
        (FACTORY, "getPool"): (PAIR, 2),
        (POOL, "getSwapFeePercentage"): 0,
        (PAIR, "totalSupply"): 100,
        (FACTORY, "getPoolTokens"): ((A, B), (10**3, 10**9), 7),
        (PAIR, "queryExit"): (10, [10**2, 10**8]),
        (A, "balanceOf"): 10**3,
        (B, "balanceOf"): 10**9,
        (1, FACTORY, "getPoolTokens"): ((A, B), (10**40, 10**6), 6),
        (2, FACTORY, "getPoolTokens"): ((A, B), (10**40, 10**6), 5),
    }
    underlying = decode(balancer_v2.unwrap, ProtocolMatch(ME, PAIR, FACTORY, is_fork=True), 10, says=says)
    assert underlying == UnlistedShare(both(10**2, 10**8))  # it had a thousand, as it has now


def test_pools_of_other_tokens_are_not_compared() -> None:
    assert Reserves((1, 2), 6, (A, B)).price_ratio(Reserves((2, 1), 6, (A, C))) == UNMOVED
    assert Reserves((1, 2, 3), 6).price_ratio(Reserves((3, 2), 6)) == UNMOVED
    assert reserves(7) is None
    assert reserves(1, 0, 5) is None


# --- liquidity between ticks ---


LOWER, UPPER, LIQUIDITY = -6_000, 6_000, 10**18
FACTOR = Fraction(4)


def root(tick: int) -> int:
    return sqrt_price(tick)


def position_answers(liquidity: int, tick: int, blocks: int = 0) -> Said:
    """Return the answers of a manager and a pool about a position without fees."""
    stored = (0, ZERO_ADDRESS, A, B, 3000, LOWER, UPPER, liquidity, 0, 0, 0, 0)
    answers: Said = {
        (POOL, "slot0"): (root(tick), tick),
        (MANAGER, "positions"): stored,
        (A, "balanceOf"): 10**18,
        (B, "balanceOf"): 10**18,
    }
    if blocks:
        return {(blocks, *key): value for key, value in answers.items()}
    return answers | {
        (MANAGER, "ownerOf"): ME,
        (MANAGER, "factory"): FACTORY,
        (FACTORY, "getPool"): POOL,
        (POOL, "feeGrowthGlobal0X128"): 0,
        (POOL, "feeGrowthGlobal1X128"): 0,
        (POOL, "ticks"): (0, 0, 0, 0),
        (POOL, "positions"): (liquidity, 0, 0, 0, 0),
    }


def position(*states: Said, unnamed: bool = False) -> Any:
    says = {key: value for state in states for key, value in state.items()}
    match = ProtocolMatch(ME, MANAGER, id=7)
    if unnamed:
        match = ProtocolMatch(ME, MANAGER, answer=FACTORY, ids=(7,))
    return decode(uniswap_v3.position, match, says=says)


def raws(position: Any) -> tuple[int, ...]:
    return tuple(part.raw for part in position.supplied)


@pytest.mark.parametrize("unnamed", [False, True])
def test_a_position_in_a_pool_that_was_moved_is_shown_at_the_price_before(unnamed: bool) -> None:
    result = position(
        position_answers(LIQUIDITY, 7_000),
        position_answers(LIQUIDITY, 0, 1),
        position_answers(LIQUIDITY, 0, 2),
        unnamed=unnamed,
    )
    result = result[0] if unnamed else result
    assert raws(result) == amounts(LIQUIDITY, root(0), LOWER, UPPER)
    assert "within the block" in result.remark


def test_one_that_only_its_parent_had_moved_is_what_it_is() -> None:
    result = position(
        position_answers(LIQUIDITY, 0), position_answers(LIQUIDITY, 7_000, 1), position_answers(LIQUIDITY, 10, 2)
    )
    assert raws(result) == amounts(LIQUIDITY, root(0), LOWER, UPPER)
    assert result.remark == ""


def test_liquidity_that_came_in_the_block_is_what_it_is_at_the_price_of_the_block() -> None:
    """Else who puts worthless tokens into a pool that he moved would have had dollars in it before."""
    new = position(
        position_answers(LIQUIDITY, 7_000), position_answers(LIQUIDITY, 0, 1), {(1, MANAGER, "positions"): Reverted()}
    )
    assert (raws(new), new.remark) == (amounts(LIQUIDITY, root(7_000), LOWER, UPPER), "")
    grown = position(
        position_answers(LIQUIDITY, 7_000),
        position_answers(LIQUIDITY // 4, 0, 1),
        position_answers(LIQUIDITY // 4, 0, 2),
    )
    old, added = (
        amounts(LIQUIDITY // 4, root(0), LOWER, UPPER),
        amounts(LIQUIDITY - LIQUIDITY // 4, root(7_000), LOWER, UPPER),
    )
    assert raws(grown) == (old[0] + added[0], old[1] + added[1])
    assert "within the block" in grown.remark
    less = position(
        position_answers(LIQUIDITY // 4, 7_000), position_answers(LIQUIDITY, 0, 1), position_answers(LIQUIDITY, 0, 2)
    )
    assert raws(less) == amounts(LIQUIDITY // 4, root(0), LOWER, UPPER)


def test_a_pool_that_nobody_read_counts_as_it_was_only_if_it_had_that_then() -> None:
    poor = {(1, A, "balanceOf"): 10}
    (result,) = position(
        position_answers(LIQUIDITY, 7_000),
        position_answers(LIQUIDITY, 0, 1),
        position_answers(LIQUIDITY, 0, 2),
        poor,
        unnamed=True,
    )
    assert (raws(result), result.remark) == (amounts(LIQUIDITY, root(7_000), LOWER, UPPER), "")
    (result,) = position(
        position_answers(LIQUIDITY, 7_000) | {(B, "balanceOf"): 10},
        position_answers(LIQUIDITY, 0, 1),
        position_answers(LIQUIDITY, 0, 2),
        unnamed=True,
    )
    assert result.unverified == NOT_COVERED


def test_a_manager_that_nobody_read_had_in_the_pool_what_the_pool_kept_for_it_then() -> None:
    """A hostile manager dates liquidity of this block back, to when others had dollars in the pool."""
    pool_position = {(1, POOL, "positions"): (0, 0, 0, 0, 0)}
    (result,) = position(
        position_answers(LIQUIDITY, 7_000),
        position_answers(LIQUIDITY, 0, 1),
        position_answers(LIQUIDITY, 0, 2),
        pool_position,
        unnamed=True,
    )
    assert (raws(result), result.remark) == (amounts(LIQUIDITY, root(7_000), LOWER, UPPER), "")


def test_a_position_in_uniswap_v4_is_shown_at_the_price_before() -> None:
    packed = (UPPER % (1 << 24)) << 32 | (LOWER % (1 << 24)) << 8
    says: Said = {
        (MANAGER, "ownerOf"): ME,
        (MANAGER, "getPoolAndPositionInfo"): ((A, B, 3000, 60, ZERO_ADDRESS), packed),
        (VIEW, "getSlot0"): (root(7_000), 7_000),
        (1, VIEW, "getSlot0"): (root(0), 0),
        (2, VIEW, "getSlot0"): (root(0), 0),
        (VIEW, "getPositionInfo"): (LIQUIDITY, 0, 0),
        (VIEW, "getFeeGrowthInside"): (0, 0),
    }
    match = ProtocolMatch(ME, MANAGER, id=7, contracts={"state_view": (VIEW,), "pool_manager": (POOL,)})
    liquidity_position = decode(uniswap_v4.position, match, says=says)
    assert raws(liquidity_position) == amounts(LIQUIDITY, root(0), LOWER, UPPER)
    assert "within the block" in liquidity_position.remark
    new = decode(uniswap_v4.position, match, says=says | {(1, VIEW, "getPositionInfo"): (0, 0, 0)})
    assert (raws(new), new.remark) == (amounts(LIQUIDITY, root(7_000), LOWER, UPPER), "")


def test_a_price_of_nothing_is_compared_with_nothing() -> None:
    assert LiquidityState(0, 1).price_ratio(LiquidityState(5, 1)) == 1
    assert LiquidityState(isqrt(4 << 192), 1).price_ratio(LiquidityState(1 << 96, 1)) == FACTOR > MAX_MOVE


# --- the ask ---


def test_before_is_the_read_at_the_parent_and_two_blocks_before_at_its_parent() -> None:
    call = Call(A, "totalSupply()(uint256)")
    reads: list[Any] = []

    def decoder() -> Any:
        return (yield [AtEarlierBlock(call), AtEarlierBlock(call, 2), MayRefuse(call)])

    answers = {AtParent(call): Unknown("it burns", "contract"), AtParent(AtParent(call)): Unknown("timed out"), call: 7}

    def answer(read: Any) -> Any:
        reads.append(read)
        return answers[read]

    assert run_offline(run_decoder(decoder), answer) == [None, Unknown("timed out"), 7]
    assert reads == list(answers)


@pytest.mark.parametrize("result", [Reverted(), Unknown("none", "absent"), Unknown("too short", "contract")])
def test_a_call_that_a_contract_does_not_answer_is_refused(result: Any) -> None:
    def decoder() -> Any:
        return (yield [MayRefuse(Call(A, "totalSupply()(uint256)"))])

    assert run_offline(run_decoder(decoder), lambda read: result) == [None]


def test_a_call_with_a_number_beyond_its_type_is_unknown_and_not_refused() -> None:
    def decoder() -> Any:
        return (yield [MayRefuse(Call(A, "convertToAssets(uint256)(uint256)", (2**256,)))])

    with pytest.raises(ReadError, match="did not say convertToAssets: no uint256"):
        run_offline(run_decoder(decoder), lambda read: Unknown("no uint256", "argument"))
