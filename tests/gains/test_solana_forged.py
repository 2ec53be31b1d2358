"""Strangers' changes of positions on Solana and unknown calls: no gain is wrong without an issue."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pytest
from solders.keypair import Keypair

from chainfolio.portfolio.pnl.report import PnlDocument
from tests.gains.solana import (
    COIN,
    FEE,
    MINTS,
    RENT,
    SOL,
    SYMBOLS,
    Drain,
    Ix,
    SolanaWallet,
    Stage,
    address,
    anchor_data,
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
from tests.gains.test_solana_lending import Marginfi
from tests.gains.test_solana_liquidity import USDC, Clmm, Damm, Dlmm, Pool, Whirlpool

CPMM = "CPMMoo8L3F4NbTegBCKVNunggL7H1ZpdTHKxQB5qKP1C"
OPENED = {SOL: 5 * COIN, "USDC": 500 * USDC}


@pytest.fixture
def me() -> SolanaWallet:
    """A wallet that bought eleven SOL for less than they are worth now."""
    wallet = SolanaWallet.new(Stage(), SOL=COIN // 10, USDC=5_000 * USDC)
    wallet.trade("USDC", 880 * USDC, SOL, 11 * COIN)
    return wallet


@pytest.fixture
def stranger(me: SolanaWallet) -> str:
    """A stranger's account with coins and tokens, which sends transactions."""
    address = str(Keypair().pubkey())
    me.stage.lamports[address] = 100 * COIN
    for symbol in (SOL, "USDC", "RAY"):
        me.stage.put(address, symbol, 10**12)
    return address


def other_program(call: Ix) -> Ix:
    """Return the same call of a stranger's program."""
    return Ix(address("a program of a stranger"), call.accounts, call.data, call.inner)


def is_unknown(report: PnlDocument) -> bool:
    """Return True if a report has unknown gains and an issue with the reason."""
    return bool(report.unknown) and any("position" in each.reason for each in report.issues)


def test_program_of_a_stranger_keeps_no_lots(me: SolanaWallet, tmp_path: Path) -> None:
    pool = Whirlpool(me.stage, me.address)
    me.do(*map(other_program, pool.open()))
    me.do(other_program(pool.add(1_000, OPENED)))
    report, _ = read(me.stage, tmp_path, me)
    holdings = {SYMBOLS.get(each.contract, ""): Decimal(each.amount) for each in report.holdings}
    assert holdings["USDC"] == 3_620


def test_rewards_of_a_strangers_position_are_received(me: SolanaWallet, tmp_path: Path, stranger: str) -> None:
    own_pool, foreign_pool = Whirlpool(me.stage, me.address), Whirlpool(me.stage, stranger)
    me.do(*own_pool.open())  # so that transactions with this program are read
    me.stage.send(stranger, *foreign_pool.open(), foreign_pool.add(1_000, OPENED))
    inner = [pay(me.stage, foreign_pool.pool, me.address, "USDC", 7 * USDC)]
    me.stage.send(stranger, foreign_pool.call("collect_fees_v2", {3: foreign_pool.home}, inner=inner))
    me.ledger.buy("USDC", 7 * USDC, usd_value("USDC", 7 * USDC))
    me.do(own_pool.close())
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_loan_of_a_stranger_that_is_paid_to_the_wallet_is_received(
    me: SolanaWallet, tmp_path: Path, stranger: str
) -> None:
    lender = Marginfi(me.stage, stranger, str(Keypair().pubkey()))
    bank = address("a bank")
    me.stage.put(bank, "USDC", 100 * USDC)
    accounts = [lender.position if i == 1 else address("other") for i in range(8)]
    inner = [pay(me.stage, bank, me.address, "USDC", 100 * USDC)]
    me.stage.send(stranger, Ix(lender.program, accounts, anchor_data("lending_account_borrow", bytes(8)), inner))
    me.ledger.buy("USDC", 100 * USDC, usd_value("USDC", 100 * USDC))
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_unknown_call_of_a_stranger_does_not_make_gains_unknown(
    me: SolanaWallet, tmp_path: Path, stranger: str
) -> None:
    inner = [pay(me.stage, stranger, me.address, "USDC", USDC)]
    me.stage.send(stranger, Ix(Whirlpool.program, [address("other")] * 8, anchor_data("no_such_function"), inner))
    me.ledger.buy("USDC", USDC, usd_value("USDC", USDC))
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_position_that_a_stranger_opened_for_the_wallet_has_no_known_gain(
    me: SolanaWallet, tmp_path: Path, stranger: str
) -> None:
    pool = Clmm(me.stage, me.address)
    born = [issue(me.stage, pool.nft, me.address, 1), pay(me.stage, stranger, pool.pool, SOL, COIN)]
    account_at = {0: stranger, 1: me.address, 2: pool.nft, 3: pool.home, 8: pool.position}
    me.stage.send(stranger, pool.call("open_position_with_token22_nft", account_at, bytes(16), u128(500), inner=born))
    me.do(pool.add(1_000, OPENED))
    me.do(pool.remove(1_000, 1_000, {SOL: 6 * COIN, "USDC": 500 * USDC}))
    report, _ = read(me.stage, tmp_path, me)
    assert is_unknown(report)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            lambda pool: pool.call("reposition", {3: pool.home}, inner=pool.gives({SOL: COIN})), id="no table"
        ),
        pytest.param(lambda pool: pool.remove(2_000, 1_000, {SOL: COIN}), id="more than went in"),
    ],
)
def test_changes_that_are_not_understood_have_no_known_gain(me: SolanaWallet, tmp_path: Path, change: object) -> None:
    pool = Whirlpool(me.stage, me.address)
    me.do(*pool.open(), pool.add(1_000, OPENED))
    assert callable(change)
    me.do(change(pool))
    report, _ = read(me.stage, tmp_path, me)
    assert is_unknown(report)


def test_part_of_some_bins_has_no_known_gain(me: SolanaWallet, tmp_path: Path) -> None:
    pool = Dlmm(me.stage, me.address)
    me.do(*pool.open(), pool.add(1_000, OPENED))
    pool.bins = (-5, 3)
    me.do(pool.remove(500, 1_000, {SOL: COIN}))
    report, _ = read(me.stage, tmp_path, me)
    assert is_unknown(report)


@pytest.mark.parametrize("part", [500, 1_000], ids=["a part", "all of it"])
def test_liquidity_by_amounts_is_known_if_all_is_removed(me: SolanaWallet, tmp_path: Path, part: int) -> None:
    pool = Clmm(me.stage, me.address)
    me.do(*pool.open())
    me.do(pool.add(0, OPENED))  # the program computes the liquidity
    amounts = {symbol: raw * part // 1_000 for symbol, raw in OPENED.items()}
    me.do(pool.remove(part, 1_000, amounts), *([pool.close()] if part == 1_000 else []))
    report, _ = read(me.stage, tmp_path, me)
    if part == 1_000:
        assert_equal(report, me)
    else:
        assert is_unknown(report)


def test_split_position_has_no_known_gain(me: SolanaWallet, tmp_path: Path) -> None:
    pool = Damm(me.stage, me.address)
    me.do(*pool.open(), pool.add(1_000, OPENED))
    me.do(pool.call("split_position2", {2: pool.home}, bytes(4)))
    me.do(pool.remove(500, 1_000, {SOL: COIN}))
    report, _ = read(me.stage, tmp_path, me)
    assert is_unknown(report)


@pytest.mark.parametrize("kind", [Whirlpool, Dlmm], ids=lambda kind: kind.__name__)
def test_liquidity_that_is_paid_to_a_friend_has_no_known_gain(
    me: SolanaWallet, tmp_path: Path, stranger: str, kind: type[Pool]
) -> None:
    pool = kind(me.stage, me.address)
    me.do(*pool.open(), pool.add(1_000, OPENED))
    call = pool.remove(400, 1_000, {})
    payments = [pay(me.stage, pool.pool, stranger, symbol, raw) for symbol, raw in OPENED.items()]
    me.do(Ix(call.program, call.accounts, call.data, payments))
    report, _ = read(me.stage, tmp_path, me)
    assert is_unknown(report)


def test_node_without_inner_instructions_makes_gains_unknown(me: SolanaWallet, tmp_path: Path) -> None:
    pool = Whirlpool(me.stage, me.address)
    me.do(Ix(address("a router"), (), b"anything", [*pool.open(), pool.add(1_000, OPENED)]))
    me.stage.transactions[-1]["meta"]["innerInstructions"] = None
    report, _ = read(me.stage, tmp_path, me)
    assert report.unknown


def test_inner_instructions_without_depth_belong_to_the_only_call(me: SolanaWallet, tmp_path: Path) -> None:
    pool = Whirlpool(me.stage, me.address)
    me.do(*pool.open())
    me.do(pool.add(1_000, OPENED))
    me.do(pool.remove(1_000, 1_000, OPENED), pool.close())
    me.withdraw(OPENED, OPENED)
    for entry in me.stage.transactions:
        for group in entry["meta"]["innerInstructions"]:
            for each in group["instructions"]:
                each["stackHeight"] = None
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_position_is_sold_with_what_went_in(me: SolanaWallet, tmp_path: Path, stranger: str) -> None:
    pool = Whirlpool(me.stage, me.address)
    me.do(*pool.open(), pool.add(1_000, {"USDC": 500 * USDC}))
    nft = pay(me.stage, me.address, stranger, pool.nft, 1)
    me.do(Ix(address("any market"), (), b"sale", [nft, pay(me.stage, stranger, me.address, "RAY", 150 * USDC)]))
    rent = 5_000_000  # of the account of the position, and of its mint
    me.ledger.sell(SOL, rent, usd_value(SOL, rent))
    me.ledger.sell("USDC", 500 * USDC, usd_value("RAY", 150 * USDC) - usd_value(SOL, rent))
    me.ledger.buy("RAY", 150 * USDC, usd_value("RAY", 150 * USDC) + usd_value(SOL, FEE))
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)
    me.stage.send(stranger, Whirlpool(me.stage, stranger, pool.pool, pool.position, pool.nft).close())
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_swap_between_two_calls_of_a_position_is_a_trade(me: SolanaWallet, tmp_path: Path) -> None:
    pool = Whirlpool(me.stage, me.address)
    market = address("market")
    me.stage.put(market, "RAY", 10 * USDC)
    swap: Sequence[Ix] = [
        pay(me.stage, me.address, market, "USDC", 50 * USDC),
        pay(me.stage, market, me.address, "RAY", 10 * USDC),
    ]
    me.do(*pool.open(), Ix(address("any market"), (), b"swap", swap), pool.add(1_000, {SOL: COIN, "USDC": 100 * USDC}))
    me.ledger.sell("USDC", 50 * USDC, usd_value("USDC", 50 * USDC))
    me.ledger.buy("RAY", 10 * USDC, usd_value("USDC", 50 * USDC) + usd_value(SOL, FEE))
    me.do(pool.remove(1_000, 1_000, {SOL: COIN, "USDC": 100 * USDC}), pool.close())
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_fee_for_a_new_pool_is_no_liquidity(me: SolanaWallet, tmp_path: Path) -> None:
    share, pool, treasury = address("new shares"), address("a new pool"), address("treasury")
    me.stage.issued[share] = 9
    account_at = {6: share, 10: me.stage.home(pool, MINTS["USDC"])}
    inner = [
        pay(me.stage, me.address, pool, "USDC", 100 * USDC),
        pay(me.stage, me.address, pool, "RAY", 0),
        pay(me.stage, me.address, treasury, SOL, COIN // 10),
        issue(me.stage, share, me.address, 70),
    ]
    accounts = [account_at.get(i, address("other")) for i in range(14)]
    me.do(Ix(CPMM, accounts, anchor_data("initialize", bytes(24)), inner))
    me.ledger.sell(SOL, COIN // 10, usd_value(SOL, COIN // 10))
    back = [burn(me.stage, share, me.address, 70), pay(me.stage, pool, me.address, "USDC", 100 * USDC)]
    me.do(Ix(CPMM, [address("other")] * 14, anchor_data("withdraw", bytes(24)), back))
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_lamports_of_a_stake_are_no_rent(me: SolanaWallet, tmp_path: Path) -> None:
    stake = str(Keypair().pubkey())
    me.do(coins(address("friend"), me.address, 4 * COIN))
    me.ledger.buy(SOL, 4 * COIN, usd_value(SOL, 4 * COIN))
    me.do(create(me.address, stake, "Stake11111111111111111111111111111111111111", 3 * COIN))
    report, _ = read(me.stage, tmp_path, me)
    assert not any(each.kind == "fee" and Decimal(each.amount) > 1 for each in report.gains)


def test_rent_that_others_get_is_a_cost(me: SolanaWallet, tmp_path: Path, stranger: str) -> None:
    home, token = str(Keypair().pubkey()), "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA"
    me.stage.tokens[home], me.stage.lamports[home] = (address("a mint"), me.address, 0), 0
    me.do(create(me.address, home, token, RENT))
    me.do(Ix(address("a program"), (home, stranger), b"close", [Drain(home, stranger)]))
    me.ledger.sell(SOL, RENT, usd_value(SOL, RENT))
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_position_that_was_given_away_has_no_known_gain(me: SolanaWallet, tmp_path: Path, stranger: str) -> None:
    pool = Whirlpool(me.stage, me.address)
    me.do(*pool.open(), pool.add(1_000, OPENED))
    me.do(pay(me.stage, me.address, stranger, pool.nft, 1))
    report, _ = read(me.stage, tmp_path, me)
    assert report.unknown


def test_removals_of_a_closed_position_are_one(me: SolanaWallet, tmp_path: Path) -> None:
    pool = Whirlpool(me.stage, me.address)
    me.do(*pool.open(), pool.add(1_000, OPENED))
    first, second = {SOL: 2 * COIN, "USDC": 200 * USDC}, {SOL: 3 * COIN, "USDC": 300 * USDC}
    me.do(pool.remove(400, 1_000, first), pool.remove(600, 600, second), pool.close())
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_close_that_does_nothing_leaves_a_position_open(me: SolanaWallet, tmp_path: Path) -> None:
    pool = Dlmm(me.stage, me.address)
    half_amounts = {SOL: 25 * COIN // 10, "USDC": 250 * USDC}
    me.do(*pool.open(), pool.add(1_000, OPENED))
    me.do(pool.remove(500, 1_000, half_amounts), pool.call("close_position_if_empty", {0: pool.position}))
    me.do(pool.remove(500, 500, half_amounts), pool.close())
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_parts_of_bins_with_a_close_that_does_nothing_have_no_known_gain(me: SolanaWallet, tmp_path: Path) -> None:
    pool = Dlmm(me.stage, me.address)
    me.do(*pool.open(), pool.add(1_000, OPENED))
    name, account_at = "close_position_if_empty", {0: pool.position}
    pool.bins = (-5, 2)
    me.do(pool.remove(1_000, 1_000, {"USDC": 500 * USDC}), pool.call(name, account_at))
    pool.bins = (3, 10)
    drained = [Drain(pool.position, me.address)]
    me.do(pool.remove(1_000, 1_000, {SOL: 5 * COIN}), pool.call(name, account_at, inner=drained))
    report, _ = read(me.stage, tmp_path, me)
    assert is_unknown(report)
    assert report.income == "0"


def test_liquidity_that_a_router_paid_for_is_no_income(me: SolanaWallet, tmp_path: Path, stranger: str) -> None:
    pool = Clmm(me.stage, me.address)
    payments = [pay(me.stage, me.address, stranger, symbol, raw) for symbol, raw in OPENED.items()]
    born = [issue(me.stage, pool.nft, me.address, 1)]
    born += [pay(me.stage, stranger, pool.pool, symbol, raw) for symbol, raw in OPENED.items()]
    account_at = {0: stranger, 1: me.address, 2: pool.nft, 3: pool.home, 8: pool.position}
    opened = pool.call("open_position_with_token22_nft", account_at, bytes(16), u128(1_000), inner=born)
    me.do(Ix(address("a router"), (), b"anything", [*payments, opened]))
    me.stage.lamports |= {pool.position: 1, pool.nft: 1}
    me.do(pool.remove(1_000, 1_000, OPENED), pool.close())
    report, _ = read(me.stage, tmp_path, me)
    assert is_unknown(report)
    assert (report.income, report.closed_pnl) == ("0", "N/A")


def test_liquidity_that_a_router_added_to_that_of_the_wallet_has_no_known_gain(
    me: SolanaWallet, tmp_path: Path, stranger: str
) -> None:
    pool = Dlmm(me.stage, me.address)
    me.do(*pool.open(), pool.add(1_000, {SOL: COIN, "USDC": 100 * USDC}))
    payments = [pay(me.stage, me.address, stranger, "USDC", 400 * USDC)]
    call = pool.add(1_000, {})
    added = Ix(call.program, call.accounts, call.data, [pay(me.stage, stranger, pool.pool, "USDC", 400 * USDC)])
    me.do(Ix(address("a router"), (), b"anything", [*payments, added]))
    me.do(pool.remove(1_000, 1_000, {SOL: COIN, "USDC": 500 * USDC}), pool.close())
    report, _ = read(me.stage, tmp_path, me)
    assert is_unknown(report)
    assert report.income == "0"


def test_liquidity_of_a_second_position_of_a_split_is_no_income(me: SolanaWallet, tmp_path: Path) -> None:
    pool, second = Damm(me.stage, me.address), Damm(me.stage, me.address)
    me.do(*pool.open(), pool.add(1_000, OPENED), *second.open())
    account_at = {1: pool.position, 2: pool.home, 3: second.position, 4: second.home}
    me.do(pool.call("split_position2", account_at, bytes(4)))
    me.do(second.remove(500, 500, {SOL: 25 * COIN // 10, "USDC": 250 * USDC}), second.close())
    report, _ = read(me.stage, tmp_path, me)
    assert is_unknown(report)
    assert report.income == "0"


def test_removal_by_a_call_of_no_table_makes_later_gains_unknown(me: SolanaWallet, tmp_path: Path) -> None:
    pool = Whirlpool(me.stage, me.address)
    me.do(*pool.open(), pool.add(1_000, OPENED))
    me.do(pool.call("no_such_function", {6: pool.home}, inner=pool.takes({SOL: 45 * COIN // 10, "USDC": 450 * USDC})))
    me.do(pool.remove(100, 100, {SOL: COIN // 2, "USDC": 50 * USDC}), pool.close())
    report, _ = read(me.stage, tmp_path, me)
    assert is_unknown(report)
    assert report.closed_pnl == "N/A"


@pytest.mark.parametrize(("name", "is_known"), [("lending_account_liquidate", False), ("refresh", True)])
def test_call_without_movements_makes_gains_of_a_deposit_unknown(
    me: SolanaWallet, tmp_path: Path, name: str, is_known: bool
) -> None:
    lender = Marginfi(me.stage, me.address, str(Keypair().pubkey()))
    me.stage.put(address("the bank"), SOL, 10 * COIN)
    me.do(*lender.open(), lender.lend(SOL, -COIN))
    accounts = [lender.position if i == 2 else address("other") for i in range(8)]
    me.do(Ix(lender.program, accounts, anchor_data("lending_account_pulse_health" if is_known else name, bytes(8))))
    me.do(lender.lend(SOL, 6 * COIN))
    report, _ = read(me.stage, tmp_path, me)
    assert is_unknown(report) is not is_known
    assert Decimal(report.income) == (500 if is_known else 0)


@pytest.mark.parametrize("is_whole", [True, False])
def test_removal_that_pays_a_router_too_has_no_known_gain(
    me: SolanaWallet, tmp_path: Path, stranger: str, is_whole: bool
) -> None:
    pool = Whirlpool(me.stage, me.address)
    me.do(*pool.open(), pool.add(1_000, OPENED))
    call = pool.remove(600, 1_000, {SOL: 3 * COIN} if is_whole else {})
    to_router = [pay(me.stage, pool.pool, stranger, "USDC", 300 * USDC)]
    calls = [Ix(call.program, call.accounts, call.data, [*call.inner, *to_router])]
    calls += [] if is_whole else [pool.remove(200, 1_000, {SOL: COIN})]
    me.do(Ix(address("a router"), (), b"zap", [*calls, pay(me.stage, stranger, me.address, SOL, 3 * COIN)]))
    report, _ = read(me.stage, tmp_path, me)
    assert is_unknown(report)
    assert report.closed_pnl == "N/A"


def test_shares_of_a_pool_that_pay_a_router_too_have_no_known_gain(
    me: SolanaWallet, tmp_path: Path, stranger: str
) -> None:
    share, pool = address("new shares"), address("a pool")
    me.stage.issued[share] = 9
    payments = [pay(me.stage, me.address, pool, symbol, raw) for symbol, raw in OPENED.items()]
    accounts = [address("other")] * 14
    me.do(Ix(CPMM, accounts, anchor_data("deposit", bytes(24)), [*payments, issue(me.stage, share, me.address, 70)]))
    ends = {SOL: me.address, "USDC": stranger}
    back = [pay(me.stage, pool, ends[symbol], symbol, raw) for symbol, raw in OPENED.items()]
    me.do(Ix(CPMM, accounts, anchor_data("withdraw", bytes(24)), [burn(me.stage, share, me.address, 70), *back]))
    report, _ = read(me.stage, tmp_path, me)
    assert is_unknown(report)
    assert report.closed_pnl == "N/A"


def test_calls_without_depth_make_gains_of_each_own_wallet_unknown(me: SolanaWallet, tmp_path: Path) -> None:
    second_wallet = SolanaWallet.new(me.stage, SOL=COIN, USDC=100 * USDC)
    first, second = Whirlpool(me.stage, me.address), Whirlpool(me.stage, second_wallet.address)
    me.do(*first.open())
    second_wallet.do(*second.open())
    me.do(Ix(address("a router"), (), b"anything", [first.add(1_000, OPENED), second.add(10, {"USDC": 50 * USDC})]))
    for group in me.stage.transactions[-1]["meta"]["innerInstructions"]:
        for each in group["instructions"]:
            each["stackHeight"] = None
    second_wallet.do(second.remove(10, 10, {"USDC": 50 * USDC}), second.close())
    report, _ = read(me.stage, tmp_path, me, second_wallet)
    assert is_unknown(report)
    assert report.income == "0"


def test_part_of_bins_that_were_sold_for_liquidity_has_no_known_gain(me: SolanaWallet, tmp_path: Path) -> None:
    pool = Dlmm(me.stage, me.address)
    me.do(*pool.open(), pool.add(1_000, OPENED))
    me.do(pool.remove(400, 1_000, {SOL: 2 * COIN, "USDC": 200 * USDC}))
    report, _ = read(me.stage, tmp_path, me, treat_liquidity="disposal")
    assert is_unknown(report)
    assert not any(Decimal(each.amount) for each in report.holdings if each.symbol not in ("sol", "usdc", ""))


def test_liquidity_that_two_own_wallets_get_has_no_known_gain(me: SolanaWallet, tmp_path: Path) -> None:
    second_wallet = SolanaWallet.new(me.stage, SOL=COIN, USDC=USDC)
    pool = Whirlpool(me.stage, me.address)
    me.do(*pool.open(), pool.add(1_000, OPENED))
    call = pool.remove(1_000, 1_000, {SOL: 5 * COIN})
    to_other = pay(me.stage, pool.pool, second_wallet.address, "USDC", 500 * USDC)
    me.do(Ix(call.program, call.accounts, call.data, [*call.inner, to_other]), pool.close())
    report, _ = read(me.stage, tmp_path, me, second_wallet)
    assert is_unknown(report)
    assert report.closed_pnl == "N/A"
