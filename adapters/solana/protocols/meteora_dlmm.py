"""Meteora's DLMM: positions in bins of one price each, with their fees and rewards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from chainfolio.adapters.solana.account_reads import AccountRead
from chainfolio.adapters.solana.account_records import BinArray, BinPair, BinPosition, TokenAccount
from chainfolio.adapters.solana.call_rules import CallRule, by_name, trades
from chainfolio.adapters.solana.layouts import SYSTEM
from chainfolio.adapters.solana.positions import ACCOUNT, SLOT_MS, Claim, DecoderPlan, Family, Unreadable, require
from chainfolio.adapters.solana.ranges import NOT_COVERED, sum_by_token, vault_balance
from chainfolio.plans import Unknown
from chainfolio.protocols import DecodedPosition, TokenAmount

BINS: Final = 70  # bins of an array, and of a position that was never extended
MAX_BINS: Final = 1_400  # of a position
SHARES_AT, REWARDS_AT, FEES_AT, EXTENSION_AT = 72, 1_192, 4_552, 8_120  # offsets in a position
# Bytes of a share, of a checkpoint of fees or rewards, of all three in the extension of a position, and of a bin.
SHARE_SIZE, CHECKPOINT_SIZE, EXTENSION_SIZE, BIN_SIZE = 16, 48, 112, 144
CHECKPOINT: Final = Struct("<16s16sQQ")
REWARD_SHARE: Final = 15  # the program pays a fifteenth of a reward to the active bin
LIMIT_ORDERS: Final = 2  # the function type of pairs that have limit orders instead of rewards


class _Checkpoint(NamedTuple):
    """Growth per share of two tokens when the position last changed, and the amounts owed then."""

    growth: tuple[int, int]
    owed_raws: tuple[int, int]


class _Reward(NamedTuple):
    """A reward of a pair; `per_second` is times 2^64."""

    number: int
    mint: str
    vault: str
    end_s: int
    per_second: int
    updated_s: int


@dataclass(frozen=True, slots=True)
class _Bin:
    """A bin, with the position's share and checkpoints in it."""

    index: int
    share: int
    fees: _Checkpoint
    rewards: _Checkpoint
    reserves: tuple[int, int]
    supply: int
    fee_growth: tuple[int, int]
    reward_growth: tuple[int, int]

    def part(self, raw: int) -> int:
        """Return the position's part of an amount in the bin; 0 if the bin has no shares."""
        return self.share * raw // self.supply if self.supply else 0

    def uncollected(self, growth: int, checkpoint: int, owed_raw: int) -> int:
        """Return the uncollected raw units of a token.

        Args:
            growth: Growth of the bin.
            checkpoint: Growth when the position last changed.
            owed_raw: Counted at that time.

        Raises:
            Unreadable: The checkpoint is above the growth.
        """
        if growth < checkpoint and self.share:
            raise Unreadable("it counted more than its bins have earned")
        return owed_raw + ((self.share >> 64) * (growth - checkpoint) >> 64)


def position(claim: Claim) -> DecoderPlan:
    """Decode a position: the amounts, fees and rewards that closing it pays.

    Returns an empty list if the position is closed.

    Raises:
        Unreadable: An account could not be read, or the position has another owner or an impossible range of bins.
    """
    [result] = yield [AccountRead(claim.program, "dlmm_position", (claim.subject,))]
    if isinstance(result, Unknown) and result.cause == "absent":
        return []
    stored: BinPosition = require(result)
    width = stored.bin_upper - stored.bin_lower + 1
    if stored.owner != claim.account:
        raise Unreadable(f"it is a position of {stored.owner}")
    if not 0 < width <= MAX_BINS or len(stored.content) < EXTENSION_AT + EXTENSION_SIZE * max(0, width - BINS):
        raise Unreadable("it lies in no bins, or in more than it has room for")
    [result] = yield [AccountRead(claim.program, "dlmm_pair", (stored.pair,))]
    pair: BinPair = require(result)
    indexes = range(stored.bin_lower // BINS, stored.bin_upper // BINS + 1)
    rewards = _rewards(pair)
    vaults = [pair.vault_a, pair.vault_b, *(reward.vault for reward in rewards)]
    results = yield [
        *(
            AccountRead(
                claim.program, "dlmm_bins", (b"bin_array", stored.pair, index.to_bytes(8, "little", signed=True))
            )
            for index in indexes
        ),
        *(AccountRead("", "token_account", (vault,)) for vault in vaults),
    ]
    arrays: dict[int, bytes] = {}
    for index, result in zip(indexes, results, strict=False):
        if isinstance(result, Unknown) and result.cause == "absent":
            continue  # the array was not created yet: its bins are empty
        array: BinArray = require(result)
        if (array.array_index, array.pair) != (index, stored.pair):
            raise Unreadable("its bins are those of another pair")
        arrays[index] = array.content
    bins = list(_bins(stored, arrays))
    return [_decode_bins(claim, stored, pair, bins, rewards, [require(each) for each in results[len(indexes) :]])]


def _bins(stored: BinPosition, arrays: Mapping[int, bytes]) -> Iterator[_Bin]:
    """Yield the bins in which the position has a share, or that owe it something."""
    for number, index in enumerate(range(stored.bin_lower, stored.bin_upper + 1)):
        share, rewards, fees = _position_part(stored.content, number)
        if share or any((*fees.owed_raws, *rewards.owed_raws)):
            content, start = arrays.get(index // BINS, bytes(BINS * BIN_SIZE)), index % BINS * BIN_SIZE
            yield _Bin(
                index,
                share,
                fees,
                rewards,
                (_unsigned(content, start, 8), _unsigned(content, start + 8, 8)),
                _unsigned(content, start + 32, 16),
                (_unsigned(content, start + 80, 16), _unsigned(content, start + 96, 16)),
                (_unsigned(content, start + 48, 16), _unsigned(content, start + 64, 16)),
            )


def _position_part(content: bytes, number: int) -> tuple[int, _Checkpoint, _Checkpoint]:
    """Return the share, the rewards and the fees of a position in its bin `number`, counted from 0."""
    if number < BINS:
        return (
            _unsigned(content, SHARES_AT + number * SHARE_SIZE, SHARE_SIZE),
            _checkpoint(content, REWARDS_AT + number * CHECKPOINT_SIZE),
            _checkpoint(content, FEES_AT + number * CHECKPOINT_SIZE),
        )
    start = EXTENSION_AT + (number - BINS) * EXTENSION_SIZE
    rewards_at = start + SHARE_SIZE
    return (
        _unsigned(content, start, SHARE_SIZE),
        _checkpoint(content, rewards_at),
        _checkpoint(content, rewards_at + CHECKPOINT_SIZE),
    )


def _checkpoint(content: bytes, offset: int) -> _Checkpoint:
    growth_a, growth_b, owed_a, owed_b = CHECKPOINT.unpack_from(content, offset)
    return _Checkpoint((int.from_bytes(growth_a, "little"), int.from_bytes(growth_b, "little")), (owed_a, owed_b))


def _unsigned(content: bytes, offset: int, size: int) -> int:
    return int.from_bytes(content[offset : offset + size], "little")


def _rewards(pair: BinPair) -> list[_Reward]:
    """Return the rewards of a pair, without unset ones; none if it has limit orders instead."""
    if pair.function_type == LIMIT_ORDERS:
        return []
    rewards = [
        _Reward(
            0,
            pair.reward_mint_0,
            pair.reward_vault_0,
            pair.reward_end_s_0,
            pair.reward_per_second_0,
            pair.reward_updated_s_0,
        ),
        _Reward(
            1,
            pair.reward_mint_1,
            pair.reward_vault_1,
            pair.reward_end_s_1,
            pair.reward_per_second_1,
            pair.reward_updated_s_1,
        ),
    ]
    return [reward for reward in rewards if reward.mint != SYSTEM]


def _decode_bins(
    claim: Claim,
    stored: BinPosition,
    pair: BinPair,
    bins: Sequence[_Bin],
    rewards: Sequence[_Reward],
    vaults: Sequence[TokenAccount],
) -> DecodedPosition:
    """Return liquidity, fees and rewards of bins; no fees if they go to another account.

    It is unverified if the vaults do not cover liquidity and fees. Rewards are paid as far as their vaults have them.
    Raises Unreadable if a vault holds another token.
    """
    mints = (pair.mint_a, pair.mint_b)
    raws = [sum(bin.part(bin.reserves[side]) for bin in bins) for side in (0, 1)]
    fees = [
        sum(bin.uncollected(bin.fee_growth[side], bin.fees.growth[side], bin.fees.owed_raws[side]) for bin in bins)
        for side in (0, 1)
    ]
    gets_fees = stored.fee_owner in (SYSTEM, claim.account)
    payable = [TokenAmount(mint, fee) for mint, fee in zip(mints, fees, strict=True) if gets_fees]
    for reward, vault in zip(rewards, vaults[2:], strict=True):
        seconds = max(0, min(claim.time_s, reward.end_s) - reward.updated_s)
        reward_raw = sum(
            _reward_owed(bin, reward.number, reward.per_second * seconds if bin.index == pair.active_bin else 0)
            for bin in bins
        )
        payable.append(TokenAmount(reward.mint, min(reward_raw, vault_balance(vault, reward.mint))))
    is_covered = all(
        vault_balance(vault, mint) >= raw + fee
        for vault, mint, raw, fee in zip(vaults, mints, raws, fees, strict=False)
    )
    return DecodedPosition(
        "LIQUIDITYPOOL",
        supplied=tuple(TokenAmount(mint, raw) for mint, raw in zip(mints, raws, strict=True)),
        rewards=sum_by_token(payable),
        pool=stored.pair,
        unlock_s=_unlock_s(stored, pair, claim),
        unverified="" if is_covered else NOT_COVERED,
    )


def _reward_owed(bin: _Bin, number: int, new_reward: int) -> int:
    """Return the uncollected raw units of a reward in a bin.

    Args:
        bin: The bin.
        number: Of the reward, 0 or 1.
        new_reward: Paid to the pair since its last update, times 2^64.
    """
    liquidity = bin.supply >> 64
    growth = bin.reward_growth[number] + (new_reward // REWARD_SHARE // liquidity if liquidity else 0)
    return bin.uncollected(growth, bin.rewards.growth[number], bin.rewards.owed_raws[number])


def _unlock_s(stored: BinPosition, pair: BinPair, claim: Claim) -> int:
    """Return the time until which the position is locked; 0 if it is not. Slots count as 400 ms."""
    if pair.locks_by_time:
        return stored.lock_release_point if stored.lock_release_point > claim.time_s else 0
    slots = stored.lock_release_point - claim.slot
    return claim.time_s + slots * SLOT_MS // 1000 if slots > 0 else 0


# Instructions of the program's interface, which its SDK has: https://github.com/MeteoraAg/dlmm-sdk
OPEN = CallRule("open", 1, 3, span=8, width=True, accounts=(1,), is_pool=True)
ADD, REMOVE = (CallRule(kind, 0, is_pool=True) for kind in ("add", "remove"))
REMOVE_ALL = REMOVE._replace(is_whole=True)
REMOVE_PART = REMOVE._replace(span=8, part=16)
CLOSE = CallRule("close", 0, accounts=(0,), is_pool=True)
RULES: Final = by_name(
    initialize_position=OPEN,
    initialize_position2=OPEN,
    initialize_position_pda=OPEN._replace(position=2, owner=4, accounts=(2,)),
    add_liquidity=ADD,
    add_liquidity2=ADD,
    add_liquidity_by_strategy=ADD,
    add_liquidity_by_strategy2=ADD,
    add_liquidity_by_strategy_one_side=ADD,
    add_liquidity_by_weight=ADD,
    add_liquidity_by_weight2=ADD,
    add_liquidity_one_side=ADD,
    add_liquidity_one_side_precise=ADD,
    add_liquidity_one_side_precise2=ADD,
    remove_liquidity=REMOVE,
    remove_liquidity2=REMOVE,
    remove_liquidity_by_range=REMOVE_PART,
    remove_liquidity_by_range2=REMOVE_PART,
    remove_all_liquidity=REMOVE_ALL,
    claim_fee=CallRule("earn", 1),
    claim_fee2=CallRule("earn", 1),
    claim_reward=CallRule("earn", 1),
    claim_reward2=CallRule("earn", 1),
    increase_position_length=CallRule("resize", 2),
    increase_position_length2=CallRule("resize", 2),
    decrease_position_length=CallRule("resize", 1),
    close_position=CLOSE,
    close_position2=CLOSE,
    close_position_if_empty=CLOSE,
    **trades("swap", "swap2", "swap_exact_out", "swap_exact_out2", "swap_with_price_impact", "swap_with_price_impact2"),
    **trades("update_fees_and_rewards", "update_fees_and_reward2", "update_position_operator"),
)

FAMILY = Family(
    "meteora_dlmm",
    position=position,
    role="dlmm",
    claim_kind=ACCOUNT,
    owner_field=("dlmm_position", 40),
    instructions=RULES,
)
