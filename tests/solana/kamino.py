"""Reserves, markets and obligations of Kamino's lending, encoded by Kamino's SDK, and its amounts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.solana.ledger import Ledger
from tests.solana.sdk import Job, Small, run_jobs
from tests.solana.vendor_accounts import NOBODY

KLEND: Final = "KLend2g3cP87fffoy8q1mQqGKjrxjC8boSyAYavgmjD"
ONE: Final = 2**60
SLOT: Final = 380_000_000
BASIS_AT: Final = 4_865  # whether rates are for seconds: the SDK does not know of it yet
CURVE: Final = ((0, 10), (5_000, 300), (8_000, 900), (9_000, 4_000), *((10_000, 20_000),) * 7)


def big(value: int) -> dict[str, Any]:
    """A number of 256 bits as Kamino has it."""
    return {"value": [value >> 64 * each & 2**64 - 1 for each in range(4)]}


@dataclass(frozen=True, slots=True)
class Reserve:
    """One asset of a market. Amounts with `sf` are times 2^60."""

    address: str
    market: str
    mint: str
    vault: str
    available: int = 10**12
    lent_sf: int = 3 * 10**12 * ONE
    growth: int = ONE
    fees_sf: tuple[int, int, int] = (0, 0, 0)
    shares: int = 35 * 10**11
    slot: int = SLOT
    time_s: int = 0
    by_time: int = 0
    host_bps: int = 0
    taken_percent: int = 15
    curve: tuple[tuple[int, int], ...] = CURVE
    rewards: tuple[int, int] = (0, 0)  # for each slot, and left
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def job(self) -> Job:
        """Return the SDK job that encodes the account."""
        protocol, referrer, pending = self.fees_sf
        fields = {
            "version": 1,
            "lastUpdate": {"slot": self.slot, "stale": Small(1), "placeholder": self._stamp},
            "lendingMarket": self.market,
            "liquidity": {
                "mintPubkey": self.mint,
                "supplyVault": self.vault,
                "totalAvailableAmount": self.available,
                "borrowedAmountSf": self.lent_sf,
                "mintDecimals": 6,
                "cumulativeBorrowRateBsf": big(self.growth),
                "accumulatedProtocolFeesSf": protocol,
                "accumulatedReferrerFeesSf": referrer,
                "pendingReferrerFeesSf": pending,
                "rewardsAmountAvailable": self.rewards[1],
            },
            "collateral": {"mintTotalSupply": self.shares},
            "config": {
                "hostFixedInterestRateBps": Small(self.host_bps),
                "protocolTakeRatePct": Small(self.taken_percent),
                "rewardsAmountPerSlot": self.rewards[0],
                "reserved1": [Small(self.by_time)],
                "loanToValuePct": Small(70),
                "liquidationThresholdPct": Small(75),
                "borrowFactorPct": 100,
                "borrowRateCurve": {
                    "points": [
                        {"utilizationRateBps": Small(used), "borrowRateBps": Small(rate)} for used, rate in self.curve
                    ]
                },
            },
            **self.overrides,
        }
        return "kamino", {"account": "Reserve", "fields": fields}

    @property
    def _stamp(self) -> list[Small]:
        """Return the time of the last update in seconds, as four bytes after two zero bytes."""
        return [Small(each) for each in (0, 0, *self.time_s.to_bytes(4, "little"))]


@dataclass(frozen=True, slots=True)
class Obligation:
    """Deposits in shares, and debts times 2^60 with the cumulative borrow rate at the last update."""

    address: str
    market: str
    owner: str
    deposits: tuple[tuple[Reserve, int], ...] = ()
    debts: tuple[tuple[Reserve, int, int], ...] = ()

    @property
    def reserves(self) -> dict[str, Reserve]:
        """Every reserve that it names."""
        return {
            each.address: each
            for each in (*(reserve for reserve, _ in self.deposits), *(reserve for reserve, _, _ in self.debts))
        }

    @property
    def job(self) -> Job:
        """Return the SDK job that encodes the account."""
        fields = {
            "lendingMarket": self.market,
            "owner": self.owner,
            "deposits": [{"depositReserve": each.address, "depositedAmount": shares} for each, shares in self.deposits],
            "borrows": [
                {"borrowReserve": each.address, "borrowedAmountSf": raw, "cumulativeBorrowRateBsf": big(rate)}
                for each, raw, rate in self.debts
            ],
        }
        return "kamino", {"account": "Obligation", "fields": fields}


MARKET_JOB: Final[Job] = ("kamino", {"account": "LendingMarket", "fields": {"version": 1}})
REWARDS_AT: Final = 3_358  # offset in a market of the bound of rewards, a field that the SDK lacks


def write(ledger: Ledger, *obligations: Obligation, rewards_bps: int = 0, vaults: int = 2**62) -> None:
    """Write obligations with all that belongs to them; every vault holds so much."""
    reserves = {at: each for obligation in obligations for at, each in obligation.reserves.items()}
    jobs = {each.address: each.job for each in obligations} | {at: each.job for at, each in reserves.items()}
    *contents, market = run_jobs([*jobs.values(), MARKET_JOB], "kamino")
    for address, content in zip(jobs, contents, strict=True):
        ledger.put(address, KLEND, content)
    market = market[:REWARDS_AT] + rewards_bps.to_bytes(2, "little") + market[REWARDS_AT + 2 :]
    for each in obligations:
        ledger.put(each.market, KLEND, market)
    for reserve in reserves.values():
        ledger.put_vault(reserve.vault, reserve.mint, NOBODY, vaults)


def sdk_amounts(ledger: Ledger, *queries: tuple[Obligation, int]) -> list[tuple[dict[str, int], dict[str, int]]]:
    """Return the deposits and debts by reserve that Kamino's SDK computes for obligations at slots."""
    content = {address: each for address, (_, each) in ledger.accounts.items()}
    jobs: list[Job] = [
        (
            "kamino_worth",
            {
                "obligation": content[each.address],
                "slot": slot,
                "reserves": [[at, content[at]] for at in each.reserves],
            },
        )
        for each, slot in queries
    ]
    return [(supplied, debts) for supplied, debts in run_jobs(jobs, "kamino")]
