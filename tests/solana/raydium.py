"""Pools and positions of Raydium's concentrated liquidity, encoded by its SDK, and its amounts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from chainfolio.adapters.solana.account_reads import derived
from tests.solana.ledger import Ledger
from tests.solana.sdk import Job, Small, run_jobs
from tests.solana.vendor_accounts import NOBODY

CPMM: Final = "CPMMoo8L3F4NbTegBCKVNunggL7H1ZpdTHKxQB5qKP1C"
CLMM: Final = "CAMMCzo5YL8w4VFF8KVHrK22GGUsp5VTaW7grrKgrWqK"
TICKS: Final = 60


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward that a pool pays in addition to fees."""

    mint: str
    vault: str
    per_second: int
    growth: int
    open_s: int
    end_s: int
    paid_s: int

    @property
    def facade(self) -> dict[str, Any]:
        """Return the fields as Raydium's SDK names them."""
        return {
            "state": Small(2),
            "openTime": self.open_s,
            "endTime": self.end_s,
            "lastUpdateTime": self.paid_s,
            "emissionsPerSecondX64": self.per_second,
            "totalEmissioned": 0,
            "claimed": 0,
            "mint": self.mint,
            "vault": self.vault,
            "creator": NOBODY,
            "growthGlobalX64": self.growth,
        }


NO_REWARD: Final = Reward(NOBODY, NOBODY, 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Tick:
    """The state of a tick in a pool."""

    beyond: tuple[int, int] = (0, 0)
    rewards: tuple[int, int, int] = (0, 0, 0)
    gross: int = 5

    def facade(self, at: int) -> dict[str, Any]:
        """Return the fields as Raydium's SDK names them."""
        return {
            "tick": Small(at),
            "liquidityNet": 0,
            "liquidityGross": self.gross,
            "feeGrowthOutsideX64A": self.beyond[0],
            "feeGrowthOutsideX64B": self.beyond[1],
            "rewardGrowthsOutsideX64": list(self.rewards),
            "orderPhase": 0,
            "ordersAmount": 0,
            "partFilledOrdersRemaining": 0,
            "unfilledRatioX64": 0,
        }


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of two mints."""

    address: str
    mints: tuple[str, str]
    vaults: tuple[str, str]
    spacing: int
    root: int
    tick: int
    liquidity: int
    growth: tuple[int, int]
    rewards: tuple[Reward, ...] = ()

    @property
    def facade(self) -> dict[str, Any]:
        """Return the fields as Raydium's SDK names them."""
        return {
            "bump": Small(255),
            "configId": NOBODY,
            "creator": NOBODY,
            "mintA": self.mints[0],
            "mintB": self.mints[1],
            "vaultA": self.vaults[0],
            "vaultB": self.vaults[1],
            "observationId": NOBODY,
            "mintDecimalsA": Small(6),
            "mintDecimalsB": Small(6),
            "tickSpacing": Small(self.spacing),
            "liquidity": self.liquidity,
            "sqrtPriceX64": self.root,
            "tickCurrent": Small(self.tick),
            "feeGrowthGlobalX64A": self.growth[0],
            "feeGrowthGlobalX64B": self.growth[1],
            "protocolFeesTokenA": 3,
            "protocolFeesTokenB": 4,
            "status": Small(0),
            "feeOn": Small(0),
            "rewardInfos": [each.facade for each in (*self.rewards, *[NO_REWARD] * (3 - len(self.rewards)))],
            "tickArrayBitmap": bytes(128),
            "fundFeesTokenA": 0,
            "fundFeesTokenB": 0,
            "startTime": 0,
            "recentEpoch": 0,
            "dynamicFeeInfo": {},
        }


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a pool, with its two ticks."""

    pool: Pool
    mint: str
    liquidity: int
    lower: int
    upper: int
    ticks: tuple[Tick, Tick]
    fee_checkpoints: tuple[int, int]
    pending_fees: tuple[int, int]
    rewards: tuple[tuple[int, int], ...] = ((0, 0), (0, 0), (0, 0))

    @property
    def address(self) -> str:
        """Return the address of the position."""
        return derived(CLMM, (b"position", self.mint))

    @property
    def facade(self) -> dict[str, Any]:
        """Return the fields as Raydium's SDK names them."""
        return {
            "bump": Small(255),
            "nftMint": self.mint,
            "poolId": self.pool.address,
            "tickLower": Small(self.lower),
            "tickUpper": Small(self.upper),
            "liquidity": self.liquidity,
            "feeGrowthInsideLastX64A": self.fee_checkpoints[0],
            "feeGrowthInsideLastX64B": self.fee_checkpoints[1],
            "tokenFeesOwedA": self.pending_fees[0],
            "tokenFeesOwedB": self.pending_fees[1],
            "rewardInfos": [
                {"growthInsideLastX64": checkpoint, "rewardAmountOwed": pending} for checkpoint, pending in self.rewards
            ],
            "recentEpoch": 0,
        }

    def start(self, tick: int) -> int:
        """The first tick of the array of one."""
        size = TICKS * self.pool.spacing
        return tick // size * size

    @property
    def jobs(self) -> dict[str, Job]:
        """Return the SDK jobs that encode the position, its pool and its arrays of ticks, by address."""
        arrays: dict[int, dict[int, Tick]] = {}
        for at, tick in zip((self.lower, self.upper), self.ticks, strict=True):
            arrays.setdefault(self.start(at), {})[at] = tick
        tick_arrays = {
            derived(CLMM, (b"tick_array", self.pool.address, start.to_bytes(4, "big", signed=True))): self._array(
                start, ticks
            )
            for start, ticks in arrays.items()
        }
        return {
            **tick_arrays,
            self.address: layout("PersonalPositionLayout", "466f967ee60f1975", self.facade),
            self.pool.address: layout("PoolInfoLayout", "f7ede3f5d7c3de46", self.pool.facade),
        }

    def _array(self, start: int, ticks: Mapping[int, Tick]) -> Job:
        every = range(start, start + TICKS * self.pool.spacing, self.pool.spacing)
        fields = {
            "poolId": self.pool.address,
            "startTickIndex": Small(start),
            "initializedTickCount": Small(2),
            "ticks": [ticks.get(at, Tick(gross=0)).facade(at) for at in every],
            "recentEpoch": 0,
        }
        return layout("TickArrayLayout", "c09b55cd31f9812a", fields)

    def sdk_jobs(self, time_s: int) -> list[Job]:
        """Return the jobs that compute amounts on closing, then fees and rewards, by Raydium's SDK."""
        ticks = [each.facade(at) for each, at in zip(self.ticks, (self.lower, self.upper), strict=True)]
        return [
            (
                "raydium_amounts",
                {
                    "root": self.pool.root,
                    "lower": Small(self.lower),
                    "upper": Small(self.upper),
                    "liquidity": self.liquidity,
                },
            ),
            (
                "raydium_earned",
                {"pool": self.pool.facade, "position": self.facade, "ticks": ticks, "time": Small(time_s)},
            ),
        ]


@dataclass(frozen=True, slots=True)
class Reserves:
    """A pool by product of two mints; fees are those of the protocol, of the fund and of who made it."""

    mints: tuple[str, str]
    vaults: tuple[str, str]
    shares: int
    fees: tuple[tuple[int, int], tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0), (0, 0))
    index: int = 0

    @property
    def config(self) -> str:
        """Return the address of the configuration."""
        return derived(CPMM, (b"amm_config", self.index.to_bytes(2, "big")))

    @property
    def address(self) -> str:
        """Return the address of the pool."""
        return derived(CPMM, (b"pool", self.config, *self.mints))

    @property
    def share(self) -> str:
        """The mint of its shares."""
        return derived(CPMM, (b"pool_lp_mint", self.address))

    @property
    def authority(self) -> str:
        """Return the authority that issues shares and owns the vaults."""
        return derived(CPMM, (b"vault_and_lp_mint_auth_seed",))

    def facade(self, **overrides: int) -> dict[str, Any]:
        """Return the fields as Raydium's SDK names them, with some replaced."""
        (protocol_a, protocol_b), (fund_a, fund_b), (creator_a, creator_b) = self.fees
        return {
            "configId": self.config,
            "poolCreator": NOBODY,
            "vaultA": self.vaults[0],
            "vaultB": self.vaults[1],
            "mintLp": self.share,
            "mintA": self.mints[0],
            "mintB": self.mints[1],
            "mintProgramA": NOBODY,
            "mintProgramB": NOBODY,
            "observationId": NOBODY,
            "bump": Small(255),
            "status": Small(0),
            "lpDecimals": Small(9),
            "mintDecimalA": Small(6),
            "mintDecimalB": Small(6),
            "lpAmount": self.shares,
            "protocolFeesMintA": protocol_a,
            "protocolFeesMintB": protocol_b,
            "fundFeesMintA": fund_a,
            "fundFeesMintB": fund_b,
            "openTime": 0,
            "epoch": 0,
            "feeOn": Small(0),
            "enableCreatorFee": True,
            "creatorFeesMintA": creator_a,
            "creatorFeesMintB": creator_b,
            **overrides,
        }

    def job(self, **overrides: int) -> Mapping[str, Any]:
        """Return the SDK job that encodes the account, with some fields replaced."""
        return layout("CpmmPoolInfoLayout", "f7ede3f5d7c3de46", self.facade(**overrides))[1]


def layout(name: str, mark: str, fields: Mapping[str, Any]) -> Job:
    """Return the job that encodes an account by a layout of the SDK."""
    return "raydium", {"layout": name, "discriminator": mark, "fields": fields}


def write(ledger: Ledger, position: Position, vaults: int = 2**63) -> None:
    """Write a position with all that belongs to it; every vault holds so much."""
    for address, content in zip(position.jobs, run_jobs(list(position.jobs.values())), strict=True):
        ledger.put(address, CLMM, content)
    pool = position.pool
    mint_vaults = [*zip(pool.mints, pool.vaults, strict=True), *((each.mint, each.vault) for each in pool.rewards)]
    for mint, vault in mint_vaults:
        ledger.put_vault(vault, mint, pool.address, vaults)
