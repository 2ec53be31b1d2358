"""Pairs, bins and positions of Meteora's DLMM, encoded by Meteora's SDK, and the amounts it computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from chainfolio.adapters.solana.account_reads import derived
from tests.solana.ledger import Ledger
from tests.solana.sdk import Job, Small, run_jobs
from tests.solana.vendor_accounts import NOBODY

DLMM: Final = "LBUZKhRxPF3XUpBCjp4YzTKgLccjZhTSDM9YuVaPwxo"
BINS: Final = 70
LOW: Final = 2**64


@dataclass(frozen=True, slots=True)
class Bin:
    """A bin: its two amounts, the supply of shares, and the growth of fees and rewards per share."""

    raws: tuple[int, int] = (0, 0)
    supply: int = 0
    fees: tuple[int, int] = (0, 0)
    rewards: tuple[int, int] = (0, 0)

    @property
    def facade(self) -> dict[str, Any]:
        """Return the fields as Meteora's SDK names them.

        Growths of rewards are stored in the fields of limit orders.
        """
        return {
            "amountX": self.raws[0],
            "amountY": self.raws[1],
            "price": LOW,
            "liquiditySupply": self.supply,
            "fulfilledOrderAmountX": self.rewards[0] % LOW,
            "fulfilledOrderAmountY": self.rewards[0] // LOW,
            "limitOrderFeeAskSide": self.rewards[1] % LOW,
            "limitOrderFeeBidSide": self.rewards[1] // LOW,
            "feeAmountXPerTokenStored": self.fees[0],
            "feeAmountYPerTokenStored": self.fees[1],
            "openOrderAmount": 0,
            "totalProcessingOrderAmount": 0,
            "processedOrderRemainingAmount": 0,
            "orderAge": Small(0),
            "limitOrderAskSide": Small(0),
            "padding1": bytes(3),
        }


@dataclass(frozen=True, slots=True)
class BinShare:
    """A position's share of one bin, with checkpoints and pending amounts of fees and rewards."""

    share: int = 0
    seen_fees: tuple[int, int] = (0, 0)
    fees: tuple[int, int] = (0, 0)
    seen_rewards: tuple[int, int] = (0, 0)
    rewards: tuple[int, int] = (0, 0)

    @property
    def reward_info(self) -> dict[str, Any]:
        """Return the rewards as Meteora's SDK names them."""
        return {"rewardPerTokenCompletes": list(self.seen_rewards), "rewardPendings": list(self.rewards)}

    @property
    def fee_info(self) -> dict[str, Any]:
        """Return the fees as Meteora's SDK names them."""
        return {
            "feeXPerTokenComplete": self.seen_fees[0],
            "feeYPerTokenComplete": self.seen_fees[1],
            "feeXPending": self.fees[0],
            "feeYPending": self.fees[1],
        }


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward that a pair pays in addition to fees."""

    mint: str = NOBODY
    vault: str = NOBODY
    end_s: int = 0
    per_second: int = 0
    paid_s: int = 0

    @property
    def facade(self) -> dict[str, Any]:
        """Return the fields as Meteora's SDK names them."""
        return {
            "mint": self.mint,
            "vault": self.vault,
            "funder": NOBODY,
            "rewardDuration": 1,
            "rewardDurationEnd": self.end_s,
            "rewardRate": self.per_second,
            "lastUpdateTime": self.paid_s,
            "cumulativeSecondsWithEmptyLiquidityReward": 0,
        }


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair of two mints, with its bins."""

    address: str
    mints: tuple[str, str]
    vaults: tuple[str, str]
    active: int
    bins: dict[int, Bin]
    rewards: tuple[Reward, Reward] = (Reward(), Reward())
    function: int = 1
    by_time: int = 0

    @property
    def job(self) -> Job:
        """Return the SDK job that encodes the account."""
        small = dict.fromkeys(
            (
                "baseFactor",
                "filterPeriod",
                "decayPeriod",
                "reductionFactor",
                "variableFeeControl",
                "maxVolatilityAccumulator",
                "minBinId",
                "maxBinId",
                "protocolShare",
                "baseFeePowerFactor",
                "collectFeeMode",
            ),
            Small(0),
        )
        moving = dict.fromkeys(("volatilityAccumulator", "volatilityReference", "indexReference"), Small(0))
        fields = {
            "parameters": {**small, "functionType": Small(self.function), "padding": bytes(3)},
            "vParameters": {**moving, "padding": bytes(4), "lastUpdateTimestamp": 0, "padding1": bytes(8)},
            "bumpSeed": bytes(1),
            "binStepSeed": bytes(2),
            "pairType": Small(0),
            "activeId": Small(self.active),
            "binStep": Small(10),
            "status": Small(0),
            "requireBaseFactorSeed": Small(0),
            "baseFactorSeed": bytes(2),
            "activationType": Small(self.by_time),
            "creatorPoolOnOffControl": Small(0),
            "tokenXMint": self.mints[0],
            "tokenYMint": self.mints[1],
            "reserveX": self.vaults[0],
            "reserveY": self.vaults[1],
            "protocolFee": {"amountX": 0, "amountY": 0},
            "padding1": bytes(32),
            "rewardInfos": [each.facade for each in self.rewards],
            "oracle": NOBODY,
            "binArrayBitmap": [0] * 16,
            "lastUpdatedAt": 0,
            "padding2": bytes(32),
            "preActivationSwapAddress": NOBODY,
            "baseKey": NOBODY,
            "activationPoint": 0,
            "preActivationDuration": 0,
            "padding3": bytes(8),
            "padding4": 0,
            "creator": NOBODY,
            "tokenMintXProgramFlag": Small(0),
            "tokenMintYProgramFlag": Small(0),
            "version": Small(1),
            "reserved": bytes(21),
        }
        return "dlmm", {"account": "lbPair", "fields": fields}

    def at(self, index: int) -> str:
        """Return the address of an array of bins."""
        return derived(DLMM, (b"bin_array", self.address, index.to_bytes(8, "little", signed=True)))

    @property
    def arrays(self) -> dict[str, Job]:
        """Return the SDK jobs that encode the arrays of bins, by address."""
        return {
            self.at(index): (
                "dlmm",
                {
                    "account": "binArray",
                    "fields": {
                        "index": index,
                        "version": Small(3),
                        "padding1": bytes(7),
                        "lbPair": self.address,
                        "bins": [self.bins.get(index * BINS + offset, Bin()).facade for offset in range(BINS)],
                    },
                },
            )
            for index in sorted({number // BINS for number in self.bins})
        }


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the bins of a pair, from the lowest up."""

    pair: Pair
    address: str
    owner: str
    lower: int
    shares: tuple[BinShare, ...]
    fee_owner: str = NOBODY
    locked_until: int = 0
    overrides: dict[str, Any] = field(default_factory=dict)

    @property
    def upper(self) -> int:
        """The highest bin."""
        return self.lower + len(self.shares) - 1

    @property
    def job(self) -> Job:
        """Return the SDK job that encodes the account."""
        first = [*self.shares, *[BinShare()] * BINS][:BINS]
        fields = {
            "lbPair": self.pair.address,
            "owner": self.owner,
            "liquidityShares": [each.share for each in first],
            "rewardInfos": [each.reward_info for each in first],
            "feeInfos": [each.fee_info for each in first],
            "lowerBinId": Small(self.lower),
            "upperBinId": Small(self.upper),
            "lastUpdatedAt": 0,
            "totalClaimedFeeXAmount": 1,
            "totalClaimedFeeYAmount": 2,
            "totalClaimedRewards": [3, 4],
            "operator": NOBODY,
            "lockReleasePoint": self.locked_until,
            "padding0": Small(0),
            "feeOwner": self.fee_owner,
            "version": Small(1),
            "permissionlessOperationBits": Small(0),
            "reserved": bytes(85),
            **self.overrides,
        }
        extra = [
            {"liquidityShare": each.share, "rewardInfo": each.reward_info, "feeInfo": each.fee_info}
            for each in self.shares[BINS:]
        ]
        return "dlmm", {"account": "positionV2", "fields": fields, "more": extra}


def write(ledger: Ledger, position: Position, vaults: int = 2**64 - 1) -> None:
    """Write a position with all that belongs to it; every vault holds so much."""
    pair = position.pair
    jobs = {position.address: position.job, pair.address: pair.job, **pair.arrays}
    for address, content in zip(jobs, run_jobs(list(jobs.values())), strict=True):
        ledger.put(address, DLMM, content)
    mint_vaults = [*zip(pair.mints, pair.vaults, strict=True), *((each.mint, each.vault) for each in pair.rewards)]
    for mint, vault in mint_vaults:
        if vault != NOBODY:
            ledger.put_vault(vault, mint, pair.address, vaults)


def sdk_amounts(ledger: Ledger, position: Position, time_s: int) -> list[int]:
    """Return what Meteora's SDK computes for a written position: both tokens, both fees, both rewards."""
    content = {address: each for address, (_, each) in ledger.accounts.items()}
    [answer] = run_jobs(
        [
            (
                "dlmm_worth",
                {
                    "position": content[position.address],
                    "pair": content[position.pair.address],
                    "arrays": [[at, content[at]] for at in position.pair.arrays if at in content],
                    "time": Small(time_s),
                },
            )
        ]
    )
    amounts: list[int] = answer
    return amounts
