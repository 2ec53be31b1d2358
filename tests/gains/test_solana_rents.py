"""Lamports that accounts on Solana need: who pays them, who gets them back, and which are a cost."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from solders.keypair import Keypair
from solders.pubkey import Pubkey

from chainfolio.adapters.solana.layouts import SYSTEM, TOKEN
from chainfolio.portfolio.pnl.report import PnlDocument
from tests.gains.solana import (
    COIN,
    FEE,
    MINTS,
    RENT,
    SOL,
    Drain,
    Ix,
    SolanaWallet,
    Stage,
    address,
    assert_equal,
    burn,
    coins,
    create,
    issue,
    pay,
    read,
    u128,
    usd_value,
)
from tests.gains.test_solana_lending import Kamino
from tests.gains.test_solana_liquidity import USDC, Clmm, Damm, Dlmm, Pool, Whirlpool

POSITION_RENT = 57_000_000
METAPLEX = "metaqbxxUerdq28cj1RbAWkYQm3ybzjb6a8bt518x1s"
OPENED = {SOL: 5 * COIN, "USDC": 500 * USDC}


@pytest.fixture
def me() -> SolanaWallet:
    """A wallet that bought eleven SOL for less than they are worth now."""
    wallet = SolanaWallet.new(Stage(), SOL=COIN // 10, USDC=5_000 * USDC)
    wallet.trade("USDC", 880 * USDC, SOL, 11 * COIN)
    wallet.do(coins(address("friend"), wallet.address, COIN))
    wallet.ledger.buy(SOL, COIN, usd_value(SOL, COIN))
    return wallet


def opened(pool: Dlmm, payer: str, raw: int = POSITION_RENT) -> Ix:
    """Return the call that opens a position at the cost of `payer`."""
    [call] = pool.open()
    return Ix(call.program, call.accounts, call.data, [create(payer, pool.position, pool.program, raw)])


def assert_sum(report: PnlDocument, *wallets: SolanaWallet) -> None:
    """Check that nothing was gained and that the report has the coins and the cost of all wallets."""
    assert (report.unknown, report.income, report.closed_pnl) == ({}, "0", "0"), report.issues
    lamports = sum(each.ledger.quantity(SOL) for each in wallets)
    assert [Decimal(each.amount) for each in report.holdings if each.symbol == "sol"] == [Decimal(lamports) / COIN]
    assert abs(Fraction(report.total_cost_basis) - sum(each.ledger.cost for each in wallets)) < Fraction(1, 100)


def test_rent_comes_back_beside_a_sale_of_coins(me: SolanaWallet, tmp_path: Path) -> None:
    pool, market = Dlmm(me.stage, me.address), address("market")
    me.stage.put(market, "USDC", 300 * USDC)
    me.do(opened(pool, me.address))
    swap = [
        pay(me.stage, me.address, market, SOL, 3 * COIN),
        pay(me.stage, market, me.address, "USDC", 300 * USDC),
    ]
    me.stage.send(me.address, pool.close(), Ix(address("any market"), (), b"swap", swap))
    me.ledger.sell(SOL, 3 * COIN, usd_value(SOL, 3 * COIN))
    me.ledger.buy("USDC", 300 * USDC, usd_value("USDC", 300 * USDC) + usd_value(SOL, FEE))
    me.ledger.sell(SOL, FEE, usd_value(SOL, FEE))
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_rent_comes_back_beside_a_tip(me: SolanaWallet, tmp_path: Path) -> None:
    pool, tip = Dlmm(me.stage, me.address), COIN // 1_000
    me.do(opened(pool, me.address))
    me.do(pool.close(), coins(me.address, address("a validator"), tip))
    me.ledger.sell(SOL, tip, usd_value(SOL, tip))
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)
    assert max(Decimal(each.amount) for each in report.gains if each.symbol == "sol") == Decimal(tip) / COIN


def test_rent_of_no_known_recipient_has_no_known_gain(me: SolanaWallet, tmp_path: Path) -> None:
    pool = Dlmm(me.stage, me.address)
    me.do(opened(pool, me.address))
    recipients, sources = [address("one"), address("two")], [str(Keypair().pubkey()), str(Keypair().pubkey())]
    me.stage.lamports |= dict.fromkeys(sources, 2 * POSITION_RENT)
    drained = [Drain(source, recipient) for source, recipient in zip(sources, recipients, strict=True)]
    me.do(
        Ix(pool.program, (pool.position, recipients[0]), pool.close().data, [Drain(pool.position, recipients[0])]),
        Ix(address("a program"), (*recipients, *sources), b"drain", drained),
    )
    report, _ = read(me.stage, tmp_path, me)
    assert report.unknown
    assert any("who got its coins" in each.reason for each in report.issues)


def test_position_that_another_own_wallet_closes_gives_its_rent_back(me: SolanaWallet, tmp_path: Path) -> None:
    second_wallet = SolanaWallet.new(me.stage, SOL=COIN, USDC=USDC)
    pool = Whirlpool(me.stage, me.address)
    me.do(*pool.open())
    me.do(pay(me.stage, me.address, second_wallet.address, pool.nft, 1))
    second_wallet.do(Whirlpool(me.stage, second_wallet.address, pool.pool, pool.position, pool.nft).close())
    report, _ = read(me.stage, tmp_path, me, second_wallet)
    assert_sum(report, me, second_wallet)


def test_rent_for_another_own_wallet_comes_back_there(me: SolanaWallet, tmp_path: Path) -> None:
    second_wallet = SolanaWallet.new(me.stage, SOL=COIN, USDC=USDC)
    pool = Dlmm(me.stage, second_wallet.address)
    me.do(opened(pool, me.address))
    second_wallet.do(pool.close())
    home = me.stage.home(me.address, "9vMJfxuKxXBoEa7rM12mYLMwTacLMLDJqHozw96WQL8i")
    me.stage.lamports[home] = 0
    me.do(create(me.address, home, TOKEN, RENT))
    me.do(Ix(TOKEN, (home, second_wallet.address, me.address), bytes([9])))
    report, _ = read(me.stage, tmp_path, me, second_wallet)
    assert_sum(report, me, second_wallet)


def test_rent_for_a_position_of_a_stranger_is_a_cost(me: SolanaWallet, tmp_path: Path) -> None:
    stranger = str(Keypair().pubkey())
    me.stage.lamports[stranger] = COIN
    pool = Dlmm(me.stage, stranger)
    me.do(opened(pool, me.address))
    me.stage.send(stranger, pool.close())
    me.ledger.sell(SOL, POSITION_RENT, usd_value(SOL, POSITION_RENT))
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


@pytest.mark.parametrize(("name", "at"), [("initialize_pool", 6), ("initialize_pool_with_dynamic_config", 7)])
def test_rent_of_a_new_pool_of_meteora_is_a_cost(me: SolanaWallet, tmp_path: Path, name: str, at: int) -> None:
    pool, account = Damm(me.stage, me.address), str(Keypair().pubkey())
    inner = [*pool.born(), create(me.address, account, pool.program, 8_000_000), *pool.gives(OPENED)]
    account_at = {0: me.address, 1: pool.nft, 2: pool.home, at: account, at + 1: pool.position}
    me.do(pool.call(name, account_at, u128(1_000), inner=inner))
    me.ledger.sell(SOL, 8_000_000, usd_value(SOL, 8_000_000))
    me.do(pool.remove(1_000, 1_000, OPENED), pool.close())
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


@pytest.mark.parametrize("has_metadata", [False, True])
@pytest.mark.parametrize("kind", [Whirlpool, Clmm], ids=lambda kind: kind.__name__)
def test_mint_of_the_older_program_and_its_metadata_are_a_cost(
    me: SolanaWallet, tmp_path: Path, kind: type[Pool], has_metadata: bool
) -> None:
    pool, metadata, cost = kind(me.stage, me.address), str(Keypair().pubkey()), 1_461_600
    me.stage.lamports[metadata] = 0
    inner = [
        create(me.address, pool.position, pool.program, 3_000_000),
        create(me.address, pool.nft, TOKEN, cost),
        issue(me.stage, pool.nft, me.address, 1),
    ]
    if has_metadata:
        raws = 5_115_600, 10_000_000  # its lamports, and a fee
        inner.append(Ix(METAPLEX, (metadata,), b"\x21", [coins(me.address, metadata, raw) for raw in raws]))
        cost += sum(raws)
    ends: list[Ix | Drain] = [burn(me.stage, pool.nft, me.address, 1), Drain(pool.position, me.address)]
    if kind is Whirlpool:
        account_at = {0: me.address, 1: me.address, 2: pool.position, 3: pool.nft, 4: pool.home}
        me.do(pool.call(f"open_position{'_with_metadata' if has_metadata else ''}", account_at, bytes(10), inner=inner))
        me.do(pool.add(1_000, OPENED))
        closed = pool.call("close_position", {2: pool.position, 3: pool.nft, 4: pool.home}, inner=ends)
    else:
        account_at = {0: me.address, 1: me.address, 2: pool.nft, 3: pool.home, 9: pool.position}
        me.do(pool.call("open_position_v2", account_at, bytes(16), u128(1_000), inner=[*inner, *pool.gives(OPENED)]))
        closed = pool.call("close_position", {1: pool.nft, 2: pool.home, 3: pool.position}, inner=ends)
    me.ledger.sell(SOL, cost, usd_value(SOL, cost))
    half_amounts = {symbol: raw // 2 for symbol, raw in OPENED.items()}
    me.do(pool.remove(500, 1_000, half_amounts))
    me.do(pool.remove(500, 500, half_amounts), closed)
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_account_that_had_lamports_before_is_no_liquidity(me: SolanaWallet, tmp_path: Path) -> None:
    lender, before = Kamino(me.stage, me.address, str(Keypair().pubkey())), 890_880
    me.stage.lamports[lender.position] = before
    data = struct.pack("<I", 1) + bytes(Pubkey.from_string(lender.program))
    inner = [coins(me.address, lender.position, 23_000_000), Ix(SYSTEM, (lender.position,), data)]
    [call] = lender.open()
    me.do(Ix(call.program, call.accounts, call.data, inner))
    me.do(*lender.close())
    me.ledger.buy(SOL, before, usd_value(SOL, before))
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_lamports_for_more_bins_come_back(me: SolanaWallet, tmp_path: Path) -> None:
    pool = Dlmm(me.stage, me.address)
    me.do(*pool.open(), pool.add(1_000, OPENED))
    extension = [coins(me.address, pool.position, 20_000_000)]
    me.do(pool.call("increase_position_length", {0: me.address, 2: pool.position}, bytes(6), inner=extension))
    me.do(pool.call("remove_all_liquidity", {0: pool.position}, inner=pool.takes(OPENED)), pool.close())
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_account_that_is_created_again_at_once_has_one_rent(me: SolanaWallet, tmp_path: Path) -> None:
    mint = MINTS["RAY"]
    home = me.stage.home(me.address, mint)
    me.stage.lamports[home] = 0
    closed = Ix(TOKEN, (home, me.address, me.address), bytes([9]))
    initialize = Ix(TOKEN, (home, mint), bytes([18]) + bytes(Pubkey.from_string(me.address)))
    me.do(create(me.address, home, TOKEN, RENT))
    me.do(closed, create(me.address, home, TOKEN, RENT), initialize)
    me.do(closed)
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


@pytest.mark.parametrize(("went_in", "closed"), [(OPENED, "-0.5"), ({"USDC": 500 * USDC}, "499.5")])
def test_position_sold_for_coins_returns_them_beside_its_rent(
    me: SolanaWallet, tmp_path: Path, went_in: Mapping[str, int], closed: str
) -> None:
    """Ten coins pay for the position and for 0.005 coins of rent, which the new owner will get."""
    pool, buyer = Whirlpool(me.stage, me.address), rich(me.stage)
    me.do(*pool.open(), pool.add(1_000, went_in))
    me.do(sale(pool, me, buyer, coins(buyer, me.address, 10 * COIN)))
    report, _ = read(me.stage, tmp_path, me)
    assert (report.closed_pnl, report.income, report.unknown, report.unexplained) == (closed, "0", {}, ())


def test_coins_paid_for_an_empty_position_are_no_income(tmp_path: Path) -> None:
    me = SolanaWallet.new(Stage(), SOL=10 * COIN, USDC=1_000 * USDC)
    pool, buyer = Whirlpool(me.stage, me.address), rich(me.stage)
    me.do(*pool.open(), pool.add(1_000, {"USDC": 500 * USDC}))
    me.do(pool.remove(1_000, 1_000, {"USDC": 500 * USDC}))
    me.do(sale(pool, me, buyer, coins(buyer, me.address, COIN)))
    report, _ = read(me.stage, tmp_path, me)
    assert (report.income, report.unknown, report.unexplained) == ("0", {}, ())


def test_rent_of_a_sold_position_leaves_the_wallet_that_paid_it(tmp_path: Path) -> None:
    me = SolanaWallet.new(Stage(), SOL=10 * COIN, USDC=1_000 * USDC)
    other = SolanaWallet.new(me.stage, SOL=COIN, USDC=1_000 * USDC)
    pool, buyer = Whirlpool(me.stage, me.address), rich(me.stage)
    me.do(*pool.open(), pool.add(1_000, {"USDC": 500 * USDC}))
    other.do(create(other.address, address("an account of the other"), TOKEN))
    me.do(pay(me.stage, me.address, other.address, pool.nft, 1))
    other.do(sale(pool, other, buyer, pay(me.stage, buyer, other.address, "RAY", 150 * USDC)))
    report, _ = read(me.stage, tmp_path, me, other, per_wallet=True)
    sold = [(each.wallet, each.amount) for each in report.gains if each.kind == "sell" and each.symbol == "sol"]
    assert (sold, report.income) == ([(me.address, "0.005")], "0")


def rich(stage: Stage) -> str:
    """Return an account of a stranger that can pay."""
    buyer = str(Keypair().pubkey())
    stage.lamports[buyer] = 100 * COIN
    for symbol in (SOL, "RAY"):
        stage.put(buyer, symbol, 10**12)
    return buyer


def sale(pool: Whirlpool, seller: SolanaWallet, buyer: str, payment: Ix) -> Ix:
    """Return the call of a market in which a position's NFT is exchanged for a payment."""
    nft = pay(seller.stage, seller.address, buyer, pool.nft, 1)
    return Ix(address("any market"), (), b"sale", [nft, payment])
