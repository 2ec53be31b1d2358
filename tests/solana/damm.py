"""Pools and positions of Meteora's DAMM v2, encoded by Meteora's SDK, and the amounts it computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from chainfolio.adapters.solana.account_reads import derived
from tests.solana.ledger import Ledger
from tests.solana.sdk import Job, Small, run_jobs
from tests.solana.vendor_accounts import NOBODY

DAMM: Final = "cpamdpZCGKUy5JxQXB4dcpGPiikHawvSWAd6mEn1sGG"


def wide(number: int) -> bytes:
    """256 bits, as the program writes them."""
    return number.to_bytes(32, "little")


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward that a pool pays in addition to fees."""

    mint: str = NOBODY
    vault: str = NOBODY
    end_s: int = 0
    per_second: int = 0
    growth: int = 0
    paid_s: int = 0

    @property
    def facade(self) -> dict[str, Any]:
        """Return the fields as Meteora's SDK names them."""
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
        """Return the SDK job that encodes the account."""
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
    """A position: unlocked, vesting and permanently locked liquidity, fee checkpoints and pending fees."""

    pool: Pool
    mint: str
    liquidity: tuple[int, int, int]
    fee_checkpoints: tuple[int, int] = (0, 0)
    pending_fees: tuple[int, int] = (0, 0)
    rewards: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))
    vesting: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0)  # as the program has them
    overrides: dict[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Return the address of the position."""
        return derived(DAMM, (b"position", self.mint))

    @property
    def job(self) -> Job:
        """Return the SDK job that encodes the account."""
        cliff, period, at_cliff, per_period, released, periods = self.vesting
        fields = {
            "pool": self.pool.address,
            "nftMint": self.mint,
            "feeAPerTokenCheckpoint": wide(self.fee_checkpoints[0]),
            "feeBPerTokenCheckpoint": wide(self.fee_checkpoints[1]),
            "feeAPending": self.pending_fees[0],
            "feeBPending": self.pending_fees[1],
            "unlockedLiquidity": self.liquidity[0],
            "vestedLiquidity": self.liquidity[1],
            "permanentLockedLiquidity": self.liquidity[2],
            "metrics": {"totalClaimedAFee": 1, "totalClaimedBFee": 2},
            "rewardInfos": [
                {"rewardPerTokenCheckpoint": wide(checkpoint), "rewardPendings": pending, "totalClaimedRewards": 9}
                for checkpoint, pending in self.rewards
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
            **self.overrides,
        }
        return "damm", {"account": "position", "fields": fields}


def write(ledger: Ledger, position: Position, vaults: int = 2**64 - 1) -> None:
    """Write a position with all that belongs to it; every vault holds so much."""
    pool = position.pool
    position_content, pool_content = run_jobs([position.job, pool.job])
    ledger.put(position.address, DAMM, position_content)
    ledger.put(pool.address, DAMM, pool_content)
    for mint, vault in [
        *zip(pool.mints, pool.vaults, strict=True),
        *((each.mint, each.vault) for each in pool.rewards),
    ]:
        if vault != NOBODY:
            ledger.put_vault(vault, mint, pool.address, vaults)


def sdk_amounts(ledger: Ledger, position: Position, time_s: int, point: int) -> dict[str, list[int]]:
    """Return the amounts that Meteora's SDK computes for a written position."""
    position_content, pool_content = (ledger.accounts[each][1] for each in (position.address, position.pool.address))
    [answer] = run_jobs(
        [
            (
                "damm_worth",
                {"position": position_content, "pool": pool_content, "time": Small(time_s), "point": Small(point)},
            )
        ]
    )
    amounts: dict[str, list[int]] = answer
    return amounts
