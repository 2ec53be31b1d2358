"""Pools and positions of Orca, encoded by Orca's coder, and the amounts that its SDK computes."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from chainfolio.adapters.solana.account_reads import derived
from tests.solana.ledger import Ledger
from tests.solana.sdk import Job, Small, run_jobs
from tests.solana.vendor_accounts import NOBODY

PROGRAM: Final = "whirLbMiicVdio4qvUfM5KAg6Ct8VwpYzGff3uctyCc"
CONFIG: Final = "2LecshUwdy9xi7meFgHtFJQNSKk4KdTrcpvaB56dP2NQ"
TICKS: Final = 88


@dataclass(frozen=True, slots=True)
class Tick:
    """The state of a tick in a pool."""

    used: bool
    beyond: tuple[int, int]
    rewards: tuple[int, int, int] = (0, 0, 0)

    @property
    def facade(self) -> dict[str, Any]:
        """Return the fields as Orca's SDK names them."""
        return {
            "initialized": self.used,
            "liquidityNet": 0,
            "liquidityGross": 5 if self.used else 0,
            "feeGrowthOutsideA": self.beyond[0],
            "feeGrowthOutsideB": self.beyond[1],
            "rewardGrowthsOutside": list(self.rewards),
        }


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of two mints; `rewards` are mint, vault, pay a second and growth."""

    mints: tuple[str, str]
    vaults: tuple[str, str]
    spacing: int
    root: int
    tick: int
    liquidity: int = 10**15
    growth: tuple[int, int] = (0, 0)
    paid_s: int = 0
    rewards: tuple[tuple[str, str, int, int], ...] = ()
    config: str = CONFIG

    @property
    def address(self) -> str:
        """Return the address of the pool."""
        return derived(PROGRAM, (b"whirlpool", self.config, *self.mints, struct.pack("<H", self.spacing)))

    @property
    def facade(self) -> dict[str, Any]:
        """Return the fields as Orca's SDK names them."""
        reward_slots = [*self.rewards, *[(NOBODY, NOBODY, 0, 0)] * (3 - len(self.rewards))]
        return {
            "whirlpoolsConfig": self.config,
            "whirlpoolBump": b"\xff",
            "tickSpacing": Small(self.spacing),
            "feeTierIndexSeed": struct.pack("<H", self.spacing),
            "feeRate": Small(3000),
            "protocolFeeRate": Small(300),
            "liquidity": self.liquidity,
            "sqrtPrice": self.root,
            "tickCurrentIndex": Small(self.tick),
            "protocolFeeOwedA": 1,
            "protocolFeeOwedB": 2,
            "tokenMintA": self.mints[0],
            "tokenVaultA": self.vaults[0],
            "feeGrowthGlobalA": self.growth[0],
            "tokenMintB": self.mints[1],
            "tokenVaultB": self.vaults[1],
            "feeGrowthGlobalB": self.growth[1],
            "rewardLastUpdatedTimestamp": self.paid_s,
            "rewardInfos": [
                {
                    "mint": mint,
                    "vault": vault,
                    "extension": bytes(32),
                    "emissionsPerSecondX64": rate,
                    "growthGlobalX64": growth,
                }
                for mint, vault, rate, growth in reward_slots
            ],
        }

    @property
    def job(self) -> Job:
        """Return the SDK job that encodes the account."""
        return "orca", {"encoder": "getWhirlpoolEncoder", "fields": self.facade}


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a pool, with its two ticks."""

    pool: Pool
    mint: str
    liquidity: int
    lower: int
    upper: int
    ticks: tuple[Tick, Tick]
    fee_checkpoints: tuple[int, int] = (0, 0)
    pending_fees: tuple[int, int] = (0, 0)
    rewards: tuple[tuple[int, int], ...] = ((0, 0), (0, 0), (0, 0))
    dynamic: bool = False
    seeds: tuple[str | bytes, ...] = field(default=())

    @property
    def address(self) -> str:
        """Return the address of the position."""
        return derived(PROGRAM, self.seeds or (b"position", self.mint))

    @property
    def facade(self) -> dict[str, Any]:
        """Return the fields as Orca's SDK names them."""
        return {
            "whirlpool": self.pool.address,
            "positionMint": self.mint,
            "liquidity": self.liquidity,
            "tickLowerIndex": Small(self.lower),
            "tickUpperIndex": Small(self.upper),
            "feeGrowthCheckpointA": self.fee_checkpoints[0],
            "feeOwedA": self.pending_fees[0],
            "feeGrowthCheckpointB": self.fee_checkpoints[1],
            "feeOwedB": self.pending_fees[1],
            "rewardInfos": [
                {"growthInsideCheckpoint": checkpoint, "amountOwed": pending} for checkpoint, pending in self.rewards
            ],
        }

    def _start(self, tick: int) -> int:
        return tick // (TICKS * self.pool.spacing) * TICKS * self.pool.spacing

    @property
    def jobs(self) -> dict[str, Job]:
        """Return the SDK jobs that encode the position and its arrays of ticks, by address."""
        arrays: dict[int, dict[int, Tick]] = {}
        for at, tick in zip((self.lower, self.upper), self.ticks, strict=True):
            start = self._start(at)
            arrays.setdefault(start, {})[(at - start) // self.pool.spacing] = tick
        tick_arrays = {
            derived(PROGRAM, (b"tick_array", self.pool.address, str(start).encode())): self._array(start, ticks)
            for start, ticks in arrays.items()
        }
        return {**tick_arrays, self.address: ("orca", {"encoder": "getPositionEncoder", "fields": self.facade})}

    def _array(self, start: int, ticks: Mapping[int, Tick]) -> Job:
        unused = Tick(False, (0, 0))
        every = [ticks.get(number, unused).facade for number in range(TICKS)]
        fields: dict[str, Any] = {"startTickIndex": Small(start), "whirlpool": self.pool.address}
        if not self.dynamic:
            return "orca", {"encoder": "getFixedTickArrayEncoder", "fields": fields | {"ticks": every}}
        tags = [
            {"__kind": "Initialized", "fields": [{key: each[key] for key in each if key != "initialized"}]}
            if each["initialized"]
            else {"__kind": "Uninitialized"}
            for each in every
        ]
        bitmap = sum(1 << number for number, tick in ticks.items() if tick.used)
        return "orca", {
            "encoder": "getDynamicTickArrayEncoder",
            "fields": fields | {"tickBitmap": bitmap, "ticks": tags},
        }

    def sdk_jobs(self, time_s: int) -> list[Job]:
        """Return the jobs that compute amounts on closing, fees and rewards by Orca's SDK."""
        ticks = [each.facade for each in self.ticks]
        closing = [self.liquidity, Small(0), self.pool.root, Small(self.lower), Small(self.upper)]
        return [
            ("orca_core", {"of": "decreaseLiquidityQuote", "arguments": closing}),
            ("orca_core", {"of": "collectFeesQuote", "arguments": [self.pool.facade, self.facade, *ticks]}),
            (
                "orca_core",
                {"of": "collectRewardsQuote", "arguments": [self.pool.facade, self.facade, *ticks, time_s]},
            ),
        ]


def write(ledger: Ledger, *positions: Position, vaults: int = 2**63) -> None:
    """Write positions with all that belongs to them; every vault holds so much."""
    jobs: dict[str, Job] = {}
    for each in positions:
        jobs |= {each.pool.address: each.pool.job, **each.jobs}
        mint_vaults = [
            *zip(each.pool.mints, each.pool.vaults, strict=True),
            *(reward[:2] for reward in each.pool.rewards),
        ]
        for mint, vault in mint_vaults:
            ledger.put_vault(vault, mint, each.pool.address, vaults)
    for address, content in zip(jobs, run_jobs(list(jobs.values())), strict=True):
        ledger.put(address, PROGRAM, content)
