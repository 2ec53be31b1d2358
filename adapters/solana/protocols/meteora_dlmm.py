"""Meteora's DLMM: positions in bins of one price each, worth their shares of the bins, their fees and their rewards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, NamedTuple

from adapters.solana.account_layouts import BinArray, BinPair, BinPosition
from adapters.solana.account_reads import AccountRead
from adapters.solana.layouts import SYSTEM
from adapters.solana.positions import ACCOUNT, SLOT_MS, Claim, DecoderPlan, Family, Unreadable, sure
from adapters.solana.ranges import NOT_COVERED, held, summed
from chainfolio.plans import Unknown
from chainfolio.protocols import DecodedPosition, TokenAmount

BINS: Final = 70  # of an array, and of a position that was never made longer
MOST_BINS: Final = 1_400
SHARES_AT, REWARDS_AT, FEES_AT, LONGER_AT = 72, 1_192, 4_552, 8_120  # in a position
SHARE, PAID, LONGER, BIN = 16, 48, 112, 144  # bytes of a share, of what was counted of fees or rewards, of both, a bin
TWO_AND_TWO: Final = Struct("<16s16sQQ")
SPLIT: Final = 15  # the program pays a fifteenth of a reward to the bin that is traded in
ORDERS: Final = 2  # pairs of this function have limit orders and no rewards


class _Counted(NamedTuple):
    """What was counted of two tokens when the position last changed: growth for a share, and what is owed."""

    seen: tuple[int, int]
    owed: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Bin:
    """A bin, and what the position has of it."""

    number: int
    share: int
    fees: _Counted
    rewards: _Counted
    raws: tuple[int, int]
    supply: int
    fee_growth: tuple[int, int]
    reward_growth: tuple[int, int]

    def part(self, raw: int) -> int:
        """The position's part of what lies there."""
        return self.share * raw // self.supply if self.supply else 0

    def earned(self, growth: int, seen: int, owed: int) -> int:
        """What it can collect of a token."""
        if growth < seen and self.share:
            raise Unreadable("it counted more than its bins have earned")
        return owed + ((self.share >> 64) * (growth - seen) >> 64)


def position(claim: Claim) -> DecoderPlan:
    """What closing the position gives."""
    [said] = yield [AccountRead(claim.program, "dlmm_position", (claim.subject,))]
    if isinstance(said, Unknown) and said.cause == "absent":
        return []
    stored: BinPosition = sure(said)
    width = stored.upper - stored.lower + 1
    if stored.owner != claim.account:
        raise Unreadable(f"it is a position of {stored.owner}")
    if not 0 < width <= MOST_BINS or len(stored.content) < LONGER_AT + LONGER * max(0, width - BINS):
        raise Unreadable("it lies in no bins, or in more than it has room for")
    [whole] = yield [AccountRead(claim.program, "dlmm_pair", (stored.pair,))]
    pair: BinPair = sure(whole)
    indexes = range(stored.lower // BINS, stored.upper // BINS + 1)
    rewards = _rewards(pair)
    vaults = [pair.vault_a, pair.vault_b, *(vault for _, _, vault, *_ in rewards)]
    answers = yield [
        *(
            AccountRead(
                claim.program, "dlmm_bins", (b"bin_array", stored.pair, each.to_bytes(8, "little", signed=True))
            )
            for each in indexes
        ),
        *(AccountRead("", "token_account", (each,)) for each in vaults),
    ]
    arrays = dict(zip(indexes, (_array(each) for each in answers[: len(indexes)]), strict=True))
    if any(each and (each.number, each.pair) != (index, stored.pair) for index, each in arrays.items()):
        raise Unreadable("its bins are those of another pair")
    bins = list(_bins(stored, {index: each.content for index, each in arrays.items() if each}))
    return [_worth(claim, stored, pair, bins, [sure(each) for each in answers[len(indexes) :]])]


def _written(index: int) -> bytes:
    return index.to_bytes(8, "little", signed=True)


def _array(said: Any) -> BinArray | None:
    """An array of bins; None where there is none yet, so that all of its bins are empty."""
    if isinstance(said, Unknown) and said.cause == "absent":
        return None
    found: BinArray = sure(said)
    return found


def _bins(stored: BinPosition, arrays: Mapping[int, bytes]) -> Iterator[_Bin]:
    """The bins that the position has a share of, or that it is owed something from."""
    for place, number in enumerate(range(stored.lower, stored.upper + 1)):
        share, rewards, fees = _own(stored.content, place)
        if share or any((*fees.owed, *rewards.owed)):
            content, at = arrays.get(number // BINS, bytes(BINS * BIN)), number % BINS * BIN
            yield _Bin(
                number, share, fees, rewards, (_whole(content, at, 8), _whole(content, at + 8, 8)),
                _whole(content, at + 32, 16), (_whole(content, at + 80, 16), _whole(content, at + 96, 16)),
                (_whole(content, at + 48, 16), _whole(content, at + 64, 16)),
            )  # fmt: skip


def _own(content: bytes, place: int) -> tuple[int, _Counted, _Counted]:
    """The share of a bin, and what was counted of rewards and of fees."""
    if place < BINS:
        return (
            _whole(content, SHARES_AT + place * SHARE, SHARE), _counted(content, REWARDS_AT + place * PAID),
            _counted(content, FEES_AT + place * PAID),
        )  # fmt: skip
    at = LONGER_AT + (place - BINS) * LONGER
    return _whole(content, at, SHARE), _counted(content, at + SHARE), _counted(content, at + SHARE + PAID)


def _counted(content: bytes, at: int) -> _Counted:
    first, second, *owed = TWO_AND_TWO.unpack_from(content, at)
    return _Counted((int.from_bytes(first, "little"), int.from_bytes(second, "little")), (owed[0], owed[1]))


def _whole(content: bytes, at: int, size: int) -> int:
    return int.from_bytes(content[at : at + size], "little")


def _rewards(pair: BinPair) -> list[tuple[int, str, str, int, int, int]]:
    """Number, mint, vault, end, pay a second and up to when that is counted, of each reward that there is."""
    every = [
        (0, pair.reward_mint_0, pair.reward_vault_0, pair.end_0, pair.per_second_0, pair.paid_0),
        (1, pair.reward_mint_1, pair.reward_vault_1, pair.end_1, pair.per_second_1, pair.paid_1),
    ]
    return [each for each in every if each[1] != SYSTEM] if pair.function != ORDERS else []


def _worth(
    claim: Claim, stored: BinPosition, pair: BinPair, bins: Sequence[_Bin], vaults: Sequence[Any]
) -> DecodedPosition:
    mints = (pair.mint_a, pair.mint_b)
    raws = [sum(each.part(each.raws[side]) for each in bins) for side in (0, 1)]
    fees = [
        sum(each.earned(each.fee_growth[side], each.fees.seen[side], each.fees.owed[side]) for each in bins)
        for side in (0, 1)
    ]
    ours = stored.fee_owner in (SYSTEM, claim.account)
    paid = [TokenAmount(mint, fee) for mint, fee in zip(mints, fees, strict=True) if ours]
    for (number, mint, _, end_s, per_second, paid_s), vault in zip(_rewards(pair), vaults[2:], strict=True):
        seconds = max(0, min(claim.time_s, end_s) - paid_s)
        owed = sum(_rewarded(each, number, per_second * seconds if each.number == pair.active else 0) for each in bins)
        paid.append(TokenAmount(mint, min(owed, held(vault, mint))))
    covered = all(
        held(vault, mint) >= raw + fee for vault, mint, raw, fee in zip(vaults, mints, raws, fees, strict=False)
    )
    return DecodedPosition(
        "LIQUIDITYPOOL", supplied=tuple(TokenAmount(mint, raw) for mint, raw in zip(mints, raws, strict=True)),
        rewards=summed(paid), pool=stored.pair, unlock_s=_unlock_s(stored, pair, claim),
        unverified="" if covered else NOT_COVERED,
    )  # fmt: skip


def _rewarded(each: _Bin, number: int, fresh: int) -> int:
    """What a bin earned of a reward, with what was paid since it was last counted (times 2^64, for all shares)."""
    liquidity = each.supply >> 64
    growth = each.reward_growth[number] + (fresh // SPLIT // liquidity if liquidity else 0)
    return each.earned(growth, each.rewards.seen[number], each.rewards.owed[number])


def _unlock_s(stored: BinPosition, pair: BinPair, claim: Claim) -> int:
    """Until when the position is locked; 0 where it is not."""
    if pair.by_time:
        return stored.locked_until if stored.locked_until > claim.time_s else 0
    left = stored.locked_until - claim.slot
    return claim.time_s + left * SLOT_MS // 1000 if left > 0 else 0


FAMILY = Family("meteora_dlmm", position=position, role="dlmm", stands=ACCOUNT, owned=("dlmm_position", 40))
