"""Pools and positions of Meteora's DAMM v2, written by the interface in Meteora's SDK; and what its arithmetic says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from chainfolio.adapters.solana.account_reads import derived
from tests.solana.ledger import Ledger
from tests.solana.sdk import Job, Small, done
from tests.solana.vendor_accounts import NOBODY

DAMM: Final = "cpamdpZCGKUy5JxQXB4dcpGPiikHawvSWAd6mEn1sGG"


def wide(number: int) -> bytes:
    """256 bits, as the program writes them."""
    return number.to_bytes(32, "little")


@dataclass(frozen=True, slots=True)
class Reward:
    """What a pool pays beside fees."""

    mint: str = NOBODY
    vault: str = NOBODY
    end_s: int = 0
    per_second: int = 0
    growth: int = 0
    paid_s: int = 0

    @property
    def facade(self) -> dict[str, Any]:
        """As Meteora's SDK has it."""
        return {
            "initialized": Small(self.mint != NOBODY),
            "rewardTokenFlag": Small(0),
            "padding0": bytes(6),
            "deadLiquidityRewardCheckpoint": 0,
            "mint": self.mint,
            "vault": self.vault,
            "funder": NOBODY,
            "rewardDuration": 1,
            "rewardDurationEnd": self.end_s,
            "rewardRate": self.per_second,
            "rewardPerTokenStored": wide(self.growth),
            "lastUpdateTime": self.paid_s,
            "cumulativeSecondsWithEmptyLiquidityReward": 0,
        }


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of two mints. Prices are their roots times 2^64."""

    address: str
    mints: tuple[str, str]
    vaults: tuple[str, str]
    liquidity: int
    prices: tuple[int, int, int]  # the lowest, that of now, the highest
    growth: tuple[int, int] = (0, 0)
    rewards: tuple[Reward, Reward] = (Reward(), Reward())
    mode: int = 0
    raws: tuple[int, int] = (0, 0)
    by_time: int = 1

    @property
    def job(self) -> Job:
        """What makes its bytes."""
        fees = {
            "baseFee": {"baseFeeInfo": {"data": bytes(32)}, "padding1": 0},
            "protocolFeePercent": Small(20),
            "padding0": Small(0),
            "referralFeePercent": Small(20),
            "padding1": bytes(3),
            "compoundingFeeBps": Small(0),
            "dynamicFee": {
                "initialized": Small(0),
                "padding": bytes(7),
                "maxVolatilityAccumulator": Small(1),
                "variableFeeControl": Small(2),
                "binStep": Small(3),
                "filterPeriod": Small(4),
                "decayPeriod": Small(5),
                "reductionFactor": Small(6),
                "lastUpdateTimestamp": 7,
                "binStepU128": 8,
                "sqrtPriceReference": 9,
                "volatilityAccumulator": 10,
                "volatilityReference": 11,
            },
            "initSqrtPrice": 12,
        }
        metrics = dict.fromkeys(("totalLpAFee", "totalLpBFee", "totalProtocolAFee", "totalProtocolBFee"), 3)
        fields = {
            "poolFees": fees,
            "tokenAMint": self.mints[0],
            "tokenBMint": self.mints[1],
            "tokenAVault": self.vaults[0],
            "tokenBVault": self.vaults[1],
            "whitelistedVault": NOBODY,
            "padding0": bytes(32),
            "liquidity": self.liquidity,
            "padding1": 0,
            "protocolAFee": 5,
            "protocolBFee": 6,
            "deadLiquidityFeeCheckpoint": 0,
            "padding2": bytes(8),
            "sqrtMinPrice": self.prices[0],
            "sqrtMaxPrice": self.prices[2],
            "sqrtPrice": self.prices[1],
            "activationPoint": 1,
            "activationType": Small(self.by_time),
            "poolStatus": Small(0),
            "tokenAFlag": Small(0),
            "tokenBFlag": Small(0),
            "collectFeeMode": Small(self.mode),
            "poolType": Small(0),
            "feeVersion": Small(1),
            "padding3": Small(0),
            "feeAPerLiquidity": wide(self.growth[0]),
            "feeBPerLiquidity": wide(self.growth[1]),
            "permanentLockLiquidity": 7,
            "metrics": {**metrics, "padding0": [0, 0], "totalPosition": 8, "padding": 0},
            "creator": NOBODY,
            "tokenAAmount": self.raws[0],
            "tokenBAmount": self.raws[1],
            "layoutVersion": Small(1),
            "padding4": bytes(7),
            "padding5": [0, 0, 0],
            "rewardInfos": [each.facade for each in self.rewards],
        }
        return "damm", {"account": "pool", "fields": fields}


@dataclass(frozen=True, slots=True)
class Position:
    """A position: liquidity that is free, that is not yet, and that never will be; what was counted and is owed."""

    pool: Pool
    mint: str
    liquidity: tuple[int, int, int]
    seen: tuple[int, int] = (0, 0)
    owed: tuple[int, int] = (0, 0)
    rewards: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))
    vesting: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0)  # as the program has them
    other: dict[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Where it lies."""
        return derived(DAMM, (b"position", self.mint))

    @property
    def job(self) -> Job:
        """What makes its bytes."""
        cliff, period, at_cliff, per_period, released, periods = self.vesting
        fields = {
            "pool": self.pool.address,
            "nftMint": self.mint,
            "feeAPerTokenCheckpoint": wide(self.seen[0]),
            "feeBPerTokenCheckpoint": wide(self.seen[1]),
            "feeAPending": self.owed[0],
            "feeBPending": self.owed[1],
            "unlockedLiquidity": self.liquidity[0],
            "vestedLiquidity": self.liquidity[1],
            "permanentLockedLiquidity": self.liquidity[2],
            "metrics": {"totalClaimedAFee": 1, "totalClaimedBFee": 2},
            "rewardInfos": [
                {"rewardPerTokenCheckpoint": wide(seen), "rewardPendings": owed, "totalClaimedRewards": 9}
                for seen, owed in self.rewards
            ],
            "innerVesting": {
                "cliffPoint": cliff,
                "periodFrequency": period,
                "cliffUnlockLiquidity": at_cliff,
                "liquidityPerPeriod": per_period,
                "totalReleasedLiquidity": released,
                "numberOfPeriod": Small(periods),
                "padding": bytes(14),
            },
            "delegatePermission": Small(0),
            "padding": bytes(12),
            **self.other,
        }
        return "damm", {"account": "position", "fields": fields}


def write(ledger: Ledger, position: Position, vaults: int = 2**64 - 1) -> None:
    """Write a position with all that belongs to it; every vault holds so much."""
    pool = position.pool
    own, whole = done([position.job, pool.job])
    ledger.put(position.address, DAMM, own)
    ledger.put(pool.address, DAMM, whole)
    for mint, vault in [
        *zip(pool.mints, pool.vaults, strict=True),
        *((each.mint, each.vault) for each in pool.rewards),
    ]:
        if vault != NOBODY:
            ledger.put_vault(vault, mint, pool.address, vaults)


def said(ledger: Ledger, position: Position, time_s: int, point: int) -> dict[str, list[int]]:
    """What Meteora's SDK says of what was written."""
    own, whole = (ledger.accounts[each][1] for each in (position.address, position.pool.address))
    [found] = done([("damm_worth", {"position": own, "pool": whole, "time": Small(time_s), "point": Small(point)})])
    worth: dict[str, list[int]] = found
    return worth
