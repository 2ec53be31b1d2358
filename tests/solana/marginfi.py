"""Groups, banks and accounts of MarginFi, encoded by MarginFi's SDK, and the amounts that it computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tests.solana.ledger import Ledger
from tests.solana.sdk import Job, Small, run_jobs
from tests.solana.vendor_accounts import NOBODY

PROGRAM: Final = "MFv2hWf31Z9kbCa1snEPYctwafyhdvnV7FZnsebVacA"
ONE: Final = 2**48
ALL: Final = 2**32 - 1
NOW_S: Final = 1_760_000_000
CURVE: Final = ((ALL // 2, ALL // 200), (ALL // 10 * 9, ALL // 50))  # 5 % a year at a half, 20 % at nine tenths


def wide(value: int) -> dict[str, Any]:
    """A number times 2^48 as MarginFi has it."""
    return {"value": value.to_bytes(16, "little", signed=True)}


@dataclass(frozen=True, slots=True)
class Bank:
    """One asset of a group. Shares, what one is worth, and parts of rates are times 2^48."""

    address: str
    group: str
    mint: str
    vault: str
    values: tuple[int, int] = (ONE, ONE)
    shares: tuple[int, int] = (10**12 * ONE, 75 * 10**10 * ONE)
    time_s: int = NOW_S
    fees: tuple[int, int, int, int] = (0, 0, 0, 0)  # of insurance and of the group: fixed, and a part of the rate
    ends: tuple[int, int] = (0, ALL // 10)
    points: tuple[tuple[int, int], ...] = CURVE
    curve: int = 1
    kind: int = 0

    @property
    def job(self) -> Job:
        """Return the SDK job that encodes the account."""
        names = ("insurance_fee_fixed_apr", "insurance_ir_fee", "protocol_fixed_fee_apr", "protocol_ir_fee")
        rates = {
            **{name: wide(fee) for name, fee in zip(names, self.fees, strict=True)},
            "zero_util_rate": Small(self.ends[0]),
            "hundred_util_rate": Small(self.ends[1]),
            "points": [{"util": Small(used), "rate": Small(rate)} for used, rate in self.points],
            "curve_type": Small(self.curve),
        }
        fields = {
            "mint": self.mint,
            "mint_decimals": Small(6),
            "group": self.group,
            "liquidity_vault": self.vault,
            "asset_share_value": wide(self.values[0]),
            "liability_share_value": wide(self.values[1]),
            "total_asset_shares": wide(self.shares[0]),
            "total_liability_shares": wide(self.shares[1]),
            "last_update": self.time_s,
            "config": {"interest_rate_config": rates, "asset_tag": Small(self.kind)},
        }
        return "marginfi", {"account": "Bank", "size": Small(1_864), "fields": fields}


@dataclass(frozen=True, slots=True)
class Account:
    """Assets and debts of an owner in banks, in shares times 2^48."""

    address: str
    group: str
    owner: str
    assets: tuple[tuple[Bank, int], ...] = ()
    debts: tuple[tuple[Bank, int], ...] = ()
    program: tuple[int, int, int] = (0, 0, 0)  # of its group: flags, what the program takes, fixed and a part

    @property
    def banks(self) -> dict[str, Bank]:
        """Every bank that it names."""
        return {each.address: each for each, _ in (*self.assets, *self.debts)}

    @property
    def job(self) -> Job:
        """Return the SDK job that encodes the account."""
        balances = [
            *({"active": Small(1), "bank_pk": each.address, "asset_shares": wide(raw)} for each, raw in self.assets),
            *({"active": Small(1), "bank_pk": each.address, "liability_shares": wide(raw)} for each, raw in self.debts),
        ]
        fields = {"group": self.group, "authority": self.owner, "lending_account": {"balances": balances}}
        return "marginfi", {"account": "MarginfiAccount", "size": Small(2_312), "fields": fields}

    @property
    def group_job(self) -> Job:
        """Return the SDK job that encodes the account of the group."""
        flags, fixed, part = self.program
        fees = {"program_fee_fixed": wide(fixed), "program_fee_rate": wide(part)}
        fields = {"group_flags": flags, "fee_state_cache": fees}
        return "marginfi", {"account": "MarginfiGroup", "size": Small(1_064), "fields": fields}


def write(ledger: Ledger, *accounts: Account, vaults: int = 2**62) -> None:
    """Write accounts with all that belongs to them; every vault holds so much."""
    banks = {at: each for account in accounts for at, each in account.banks.items()}
    jobs = {each.address: each.job for each in accounts} | {each.group: each.group_job for each in accounts}
    jobs |= {at: each.job for at, each in banks.items()}
    for address, content in zip(jobs, run_jobs(list(jobs.values()), "marginfi"), strict=True):
        ledger.put(address, PROGRAM, content)
    for each in banks.values():
        ledger.put_vault(each.vault, each.mint, NOBODY, vaults)


def sdk_amounts(ledger: Ledger, *queries: tuple[Account, int]) -> list[tuple[dict[str, int], dict[str, int]]]:
    """Return the assets and debts by bank that MarginFi's SDK computes for accounts at times."""
    content = {address: each for address, (_, each) in ledger.accounts.items()}
    jobs: list[Job] = [
        (
            "marginfi_worth",
            {
                "account": content[each.address],
                "time": Small(time_s),
                "banks": [[at, content[at]] for at in each.banks],
            },
        )
        for each, time_s in queries
    ]
    return [(assets, debts) for assets, debts in run_jobs(jobs, "marginfi")]
