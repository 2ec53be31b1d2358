"""Lending on Solana: deposits in accounts of a program, interest, loans and rewards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from solders.keypair import Keypair

from tests.gains.solana import (
    COIN,
    SOL,
    Drain,
    Ix,
    SolanaWallet,
    Stage,
    address,
    anchor_data,
    assert_equal,
    burn,
    create,
    issue,
    pay,
    read,
    usd_value,
)

USDC = 10**6
BANK, COLLATERAL = address("the bank"), address("collateral")


@dataclass
class Lender(ABC):
    """A lender, and an account of a wallet in its program."""

    stage: Stage
    me: str
    position: str
    program: ClassVar[str]

    def call(self, name: str, symbol: str, raw: int, *, at: int = 1) -> Ix:
        """A call that moves a token from the wallet if `raw` is negative, else to it."""
        ends = (self.me, BANK) if raw < 0 else (BANK, self.me)
        accounts = [self.position if i == at else address("other") for i in range(14)]
        return Ix(self.program, accounts, anchor_data(name, bytes(9)), [pay(self.stage, *ends, symbol, abs(raw))])

    @abstractmethod
    def open(self) -> list[Ix]:
        """Open an account."""

    @abstractmethod
    def lend(self, symbol: str, raw: int) -> Ix:
        """Deposit what is negative, or withdraw."""

    @abstractmethod
    def owe(self, symbol: str, raw: int) -> Ix:
        """Borrow, or repay what is negative."""

    @abstractmethod
    def close(self) -> Sequence[Ix]:
        """Close the account."""


class Kamino(Lender):
    program = "KLend2g3cP87fffoy8q1mQqGKjrxjC8boSyAYavgmjD"

    def open(self) -> list[Ix]:
        accounts = [self.me, self.me, self.position]
        born = [create(self.me, self.position, self.program, 24_000_000)]
        return [Ix(self.program, accounts, anchor_data("init_obligation", bytes(2)), born)]

    def lend(self, symbol: str, raw: int) -> Ix:
        deposit = "deposit_reserve_liquidity_and_obligation_collateral_v2"
        withdrawal = "withdraw_obligation_collateral_and_redeem_reserve_collateral_v2"
        return self.call(deposit if raw < 0 else withdrawal, symbol, raw)

    def owe(self, symbol: str, raw: int) -> Ix:
        return self.call(f"{'repay' if raw < 0 else 'borrow'}_obligation_liquidity_v2", symbol, raw)

    def close(self) -> Sequence[Ix]:
        accounts = [self.position if i == 1 else address("other") for i in range(14)]
        data = anchor_data("withdraw_obligation_collateral_and_redeem_reserve_collateral_v2", bytes(8))
        return [Ix(self.program, accounts, data, [Drain(self.position, self.me)])]


class Marginfi(Lender):
    program = "MFv2hWf31Z9kbCa1snEPYctwafyhdvnV7FZnsebVacA"

    def open(self) -> list[Ix]:
        born = [create(self.me, self.position, self.program, 17_000_000)]
        accounts = [address("group"), self.position, self.me]
        return [Ix(self.program, accounts, anchor_data("marginfi_account_initialize"), born)]

    def lend(self, symbol: str, raw: int) -> Ix:
        return self.call(f"lending_account_{'deposit' if raw < 0 else 'withdraw'}", symbol, raw)

    def owe(self, symbol: str, raw: int) -> Ix:
        return self.call(f"lending_account_{'repay' if raw < 0 else 'borrow'}", symbol, raw)

    def close(self) -> Sequence[Ix]:
        closed = [Drain(self.position, self.me)]
        return [Ix(self.program, [self.position, self.me, self.me], anchor_data("marginfi_account_close"), closed)]


@pytest.fixture
def me() -> SolanaWallet:
    """A wallet with SOL and USDC."""
    stage = Stage()
    for symbol in (SOL, "USDC", "RAY"):
        stage.put(BANK, symbol, 10**12)
    wallet = SolanaWallet.new(stage, SOL=COIN // 10, USDC=5_000 * USDC)
    wallet.trade("USDC", 880 * USDC, SOL, 11 * COIN)
    return wallet


@pytest.mark.parametrize("is_routed", [False, True], ids=["called", "through a router"])
@pytest.mark.parametrize("kind", [Kamino, Marginfi], ids=lambda kind: kind.__name__)
def test_life_of_a_deposit_and_a_loan(me: SolanaWallet, tmp_path: Path, kind: type[Lender], is_routed: bool) -> None:
    lender = kind(me.stage, me.address, str(Keypair().pubkey()))

    def do(*calls: Ix) -> None:
        me.do(*([Ix(address("a router"), (), b"anything", calls)] if is_routed else calls))

    do(*lender.open())
    do(lender.lend(SOL, -5 * COIN))
    do(lender.lend(SOL, -COIN))
    do(lender.owe("USDC", 200 * USDC))
    me.ledger.buy("USDC", 200 * USDC, usd_value("USDC", 200 * USDC))
    do(lender.lend(SOL, 2 * COIN))  # the deposit first
    do(lender.owe("USDC", -50 * USDC))
    me.ledger.sell("USDC", 50 * USDC, me.ledger.cost_of("USDC", 50 * USDC))  # no disposal
    do(lender.owe("USDC", -160 * USDC))  # with interest, which is a fee
    me.ledger.sell("USDC", 150 * USDC, me.ledger.cost_of("USDC", 150 * USDC))
    me.ledger.sell("USDC", 10 * USDC, usd_value("USDC", 10 * USDC))
    do(lender.lend(SOL, 42 * COIN // 10), *lender.close())
    me.ledger.earn(SOL, 2 * COIN // 10, usd_value(SOL, 2 * COIN // 10))
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_emissions_of_marginfi_are_income(me: SolanaWallet, tmp_path: Path) -> None:
    lender = Marginfi(me.stage, me.address, str(Keypair().pubkey()))
    me.do(*lender.open(), lender.lend("USDC", -100 * USDC))
    me.do(lender.call("lending_account_withdraw_emissions", "RAY", 3 * USDC))
    me.ledger.earn("RAY", 3 * USDC, usd_value("RAY", 3 * USDC))
    me.do(lender.lend("USDC", 100 * USDC), *lender.close())
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_shares_of_a_reserve_of_kamino_are_no_purchase(me: SolanaWallet, tmp_path: Path) -> None:
    me.stage.issued[COLLATERAL] = 6
    lender = Kamino(me.stage, me.address, str(Keypair().pubkey()))
    put = lender.call("deposit_reserve_liquidity", "USDC", -100 * USDC)
    me.do(Ix(put.program, put.accounts, put.data, [*put.inner, issue(me.stage, COLLATERAL, me.address, 90)]))
    take = lender.call("redeem_reserve_collateral", "USDC", 103 * USDC)
    me.do(Ix(take.program, take.accounts, take.data, [*take.inner, burn(me.stage, COLLATERAL, me.address, 90)]))
    me.ledger.earn("USDC", 3 * USDC, usd_value("USDC", 3 * USDC))
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_loan_that_repays_and_returns_collateral_in_one_call(me: SolanaWallet, tmp_path: Path) -> None:
    lender = Kamino(me.stage, me.address, str(Keypair().pubkey()))
    me.do(*lender.open(), lender.lend(SOL, -5 * COIN))
    me.do(lender.owe("USDC", 200 * USDC))
    me.ledger.buy("USDC", 200 * USDC, usd_value("USDC", 200 * USDC))
    back = lender.call("repay_and_withdraw_and_redeem", "USDC", -200 * USDC)
    collateral = pay(me.stage, BANK, me.address, SOL, 5 * COIN)
    me.do(Ix(back.program, back.accounts, back.data, [*back.inner, collateral]), *lender.close())
    me.ledger.sell("USDC", 200 * USDC, me.ledger.cost_of("USDC", 200 * USDC))
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)
