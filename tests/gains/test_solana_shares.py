"""Shares on Solana: pools of Raydium, Jupiter's vaults, and what Marinade issues; also its tickets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from chainfolio.adapters.solana.call_rules import CallRule
from chainfolio.adapters.solana.protocols import jupiter_earn
from tests.gains.solana import (
    COIN,
    FEE,
    RENT,
    SOL,
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
    usd_value,
)

USDC = 10**6
CPMM, AMM = "CPMMoo8L3F4NbTegBCKVNunggL7H1ZpdTHKxQB5qKP1C", "675kPX9MHTjS2zt1qfr1NYHuzeLXfQM9H24wFSUt1Mp8"
EARN, MARINADE = "jup3YeL8QhtSx1e253b2FDvsMNC87fDrgQZivbrndc9", "MarBmsSgKXdrN1egZf5sqe1TMai9K1rChYNDJgjq7aD"
SHARE, POOL, TICKET = address("the share"), address("the pool"), address("the ticket")
Data = Callable[[bool], bytes]  # of a call that puts something in, or takes it out
KINDS: Mapping[str, tuple[str, Data]] = {
    "raydium_cpmm": (CPMM, lambda is_in: anchor_data("deposit" if is_in else "withdraw", bytes(24))),
    "raydium_amm": (AMM, lambda is_in: bytes([3 if is_in else 4]) + bytes(24)),
}


@pytest.fixture
def me() -> SolanaWallet:
    """A wallet that bought eleven SOL for less than they are worth now."""
    stage = Stage()
    stage.issued |= {SHARE: 6}
    for symbol in (SOL, "USDC"):
        stage.put(POOL, symbol, 10**12)
    stage.lamports[POOL] = 10**12
    wallet = SolanaWallet.new(stage, SOL=COIN // 10, USDC=5_000 * USDC)
    wallet.trade("USDC", 880 * USDC, SOL, 11 * COIN)
    return wallet


def gives(me: SolanaWallet, amounts: Mapping[str, int], shares: int) -> list[Ix]:
    """The wallet pays the pool, and gets shares."""
    payments = [pay(me.stage, me.address, POOL, symbol, raw) for symbol, raw in amounts.items()]
    return [*payments, issue(me.stage, SHARE, me.address, shares)]


def takes(me: SolanaWallet, amounts: Mapping[str, int], shares: int) -> list[Ix]:
    """The wallet destroys shares, and the pool pays."""
    payments = [pay(me.stage, POOL, me.address, symbol, raw) for symbol, raw in amounts.items()]
    return [burn(me.stage, SHARE, me.address, shares), *payments]


def call(program: str, data: bytes, inner: Sequence[Ix | Drain], **places: str) -> Ix:
    """A call with some accounts in their places, such as `at4`."""
    return Ix(program, [places.get(f"at{i}", address("other")) for i in range(14)], data, inner)


@pytest.mark.parametrize("is_routed", [False, True], ids=["called", "through a router"])
@pytest.mark.parametrize("kind", KINDS)
def test_life_of_a_share_of_a_pool(me: SolanaWallet, tmp_path: Path, kind: str, is_routed: bool) -> None:
    program, data = KINDS[kind]

    def do(is_in: bool, inner: Sequence[Ix]) -> None:
        step = call(program, data(is_in), inner)
        me.do(call(address("a router"), b"anything", [step]) if is_routed else step)

    do(True, gives(me, {SOL: 5 * COIN, "USDC": 500 * USDC}, 1_000))
    received = {SOL: 15 * COIN // 10, "USDC": 250 * USDC}
    do(False, takes(me, received, 400))
    me.withdraw({SOL: 2 * COIN, "USDC": 200 * USDC}, received)
    received = {SOL: 31 * COIN // 10, "USDC": 320 * USDC}
    do(False, takes(me, received, 600))
    me.withdraw({SOL: 3 * COIN, "USDC": 300 * USDC}, received)
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


@pytest.mark.parametrize(
    ("put", "take"),
    [("deposit", "withdraw"), ("mint", "redeem"), ("deposit_with_min_amount_out", "redeem_with_min_amount_out")],
)
def test_interest_of_jupiter_is_income(me: SolanaWallet, tmp_path: Path, put: str, take: str) -> None:
    me.do(call(EARN, anchor_data(put, bytes(8)), gives(me, {"USDC": 1_000 * USDC}, 900)))
    me.do(call(EARN, anchor_data(take, bytes(8)), takes(me, {"USDC": 505 * USDC}, 450)))
    me.ledger.earn("USDC", 5 * USDC, usd_value("USDC", 5 * USDC))
    me.do(call(EARN, anchor_data(take, bytes(8)), takes(me, {"USDC": 510 * USDC}, 450)))
    me.ledger.earn("USDC", 10 * USDC, usd_value("USDC", 10 * USDC))
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def staked(me: SolanaWallet, raw: int, shares: int, *, is_from_pool: bool = False) -> Ix:
    """SOL is staked at Marinade, which issues its token or pays it from its own pool."""
    payments = [coins(me.address, POOL, raw), issue(me.stage, SHARE, me.address, shares)]
    if is_from_pool:
        me.stage.put(POOL, SHARE, shares)
        payments = [coins(me.address, POOL, raw), pay(me.stage, POOL, me.address, SHARE, shares)]
    return call(MARINADE, anchor_data("deposit", bytes(8)), payments, at1=SHARE)


@pytest.fixture
def saver() -> SolanaWallet:
    """A wallet with SOL as coins, and none that is wrapped."""
    stage = Stage()
    stage.issued |= {SHARE: 9}
    stage.lamports |= {POOL: 10**12}
    stage.put(POOL, SOL, 10**12)
    return SolanaWallet.new(stage, SOL=20 * COIN)


@pytest.mark.parametrize("is_from_pool", [False, True], ids=["issued", "from the pool"])
def test_ticket_of_marinade_pays_what_its_shares_stood_for(
    saver: SolanaWallet, tmp_path: Path, is_from_pool: bool
) -> None:
    me = saver
    me.do(staked(me, 10 * COIN, 8 * COIN, is_from_pool=is_from_pool))
    order = [burn(me.stage, SHARE, me.address, 4 * COIN)]
    opened = create(me.address, TICKET, MARINADE, 1_500_000)
    me.do(opened, call(MARINADE, anchor_data("order_unstake", bytes(8)), order, at1=SHARE, at4=TICKET))
    claim: list[Ix | Drain] = [coins(POOL, me.address, 51 * COIN // 10), Drain(TICKET, me.address)]
    me.do(call(MARINADE, anchor_data("claim"), claim, at2=TICKET))
    me.ledger.earn(SOL, COIN // 10, usd_value(SOL, COIN // 10))
    order = [burn(me.stage, SHARE, me.address, 4 * COIN)]
    second = address("another ticket")
    me.do(
        create(me.address, second, MARINADE, 1_500_000),
        call(MARINADE, anchor_data("order_unstake", bytes(8)), order, at4=second),
    )
    me.do(
        call(MARINADE, anchor_data("claim"), [coins(POOL, me.address, 5 * COIN), Drain(second, me.address)], at2=second)
    )
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_liquidity_of_marinade_pays_its_token_too(saver: SolanaWallet, tmp_path: Path) -> None:
    me, shares = saver, address("liquidity of marinade")
    me.stage.issued[shares] = 9
    payments = [coins(me.address, POOL, 10 * COIN), issue(me.stage, shares, me.address, 10 * COIN)]
    me.do(call(MARINADE, anchor_data("add_liquidity", bytes(8)), payments, at1=shares))
    me.stage.put(POOL, "RAY", 10 * USDC)
    back = [burn(me.stage, shares, me.address, 10 * COIN), coins(POOL, me.address, 9 * COIN)]
    back.append(pay(me.stage, POOL, me.address, "RAY", 10 * USDC))  # in the place of its token, because it has a price
    me.do(call(MARINADE, anchor_data("remove_liquidity", bytes(8)), back, at1=shares))
    me.withdraw({SOL: 10 * COIN}, {SOL: 9 * COIN, "RAY": 10 * USDC})
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_shares_that_were_bought_are_sold_when_they_are_redeemed(me: SolanaWallet, tmp_path: Path) -> None:
    me.do(call(EARN, anchor_data("deposit", bytes(8)), gives(me, {"USDC": 500 * USDC}, 500)))
    market = address("market")
    me.stage.put(market, SHARE, 500)
    swap = [pay(me.stage, me.address, market, "USDC", 400 * USDC), pay(me.stage, market, me.address, SHARE, 500)]
    me.do(Ix(address("any market"), (), b"swap", swap))
    me.ledger.sell("USDC", 400 * USDC, usd_value("USDC", 400 * USDC))
    me.do(call(EARN, anchor_data("redeem", bytes(8)), takes(me, {"USDC": 1_000 * USDC}, 1_000)))
    me.ledger.buy("USDC", 500 * USDC, usd_value("USDC", 500 * USDC) + usd_value(SOL, FEE))
    me.ledger.closed += 100 - usd_value(SOL, FEE)
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_rent_of_a_token_account_comes_back(me: SolanaWallet, tmp_path: Path) -> None:
    home = me.stage.home(me.address, "9vMJfxuKxXBoEa7rM12mYLMwTacLMLDJqHozw96WQL8i")
    me.stage.lamports[home] = 0
    opened = create(me.address, home, "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA", RENT)
    me.do(opened)
    me.do(Ix("TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA", (home, me.address, me.address), bytes([9])))
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_second_report_reads_no_transaction_again(me: SolanaWallet, tmp_path: Path) -> None:
    me.do(call(EARN, anchor_data("deposit", bytes(8)), gives(me, {"USDC": 500 * USDC}, 500)))
    first, _ = read(me.stage, tmp_path, me)
    me.stage.methods.clear()
    second, _ = read(me.stage, tmp_path, me)
    assert second.holdings == first.holdings
    assert "getTransaction" not in me.stage.methods


def test_transactions_of_strangers_are_not_read(me: SolanaWallet, tmp_path: Path) -> None:
    me.do(call(EARN, anchor_data("deposit", bytes(8)), gives(me, {"USDC": 500 * USDC}, 500)))
    sender = address("somebody")
    me.stage.lamports[sender] = COIN
    me.stage.put(sender, "RAY", 10 * USDC)
    for _ in range(5):
        me.stage.send(sender, pay(me.stage, sender, me.address, "RAY", USDC))
        me.ledger.buy("RAY", USDC, usd_value("RAY", USDC))
    read(me.stage, tmp_path, me)
    all_count, of_others = len(me.stage.transactions), 7  # for the index, and for their types
    assert me.stage.methods.count("getTransaction") == all_count + of_others + 2


def test_ticket_that_a_stranger_claims_pays_the_wallet(saver: SolanaWallet, tmp_path: Path) -> None:
    me, sender = saver, address("somebody")
    me.do(staked(me, 10 * COIN, 8 * COIN))
    order = [burn(me.stage, SHARE, me.address, 8 * COIN)]
    opened = create(me.address, TICKET, MARINADE, 1_500_000)
    me.do(opened, call(MARINADE, anchor_data("order_unstake", bytes(8)), order, at1=SHARE, at4=TICKET))
    me.stage.lamports[sender] = COIN
    claim: list[Ix | Drain] = [coins(POOL, me.address, 11 * COIN), Drain(TICKET, me.address)]
    me.stage.send(sender, call(MARINADE, anchor_data("claim"), claim, at2=TICKET))
    me.ledger.earn(SOL, COIN, usd_value(SOL, COIN))
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


def test_shares_in_a_ticket_are_not_sold_again(saver: SolanaWallet, tmp_path: Path) -> None:
    me = SolanaWallet.new(saver.stage, SOL=20 * COIN, USDC=800 * USDC)
    market, shares = address("market"), 8 * COIN
    me.stage.put(market, SHARE, shares)
    me.stage.put(market, "USDC", 1_000 * USDC)
    bought = [pay(me.stage, me.address, market, "USDC", 800 * USDC), pay(me.stage, market, me.address, SHARE, shares)]
    me.do(Ix(address("any market"), (), b"swap", bought))
    me.do(
        create(me.address, TICKET, MARINADE, 1_500_000),
        call(
            MARINADE,
            anchor_data("order_unstake", bytes(8)),
            [burn(me.stage, SHARE, me.address, shares)],
            at1=SHARE,
            at4=TICKET,
        ),
    )
    me.do(staked(me, 10 * COIN, shares))
    sold = [pay(me.stage, me.address, market, SHARE, shares), pay(me.stage, market, me.address, "USDC", 1_000 * USDC)]
    me.do(Ix(address("any market"), (), b"swap", sold))
    claim: list[Ix | Drain] = [coins(POOL, me.address, 10 * COIN), Drain(TICKET, me.address)]
    me.do(call(MARINADE, anchor_data("claim"), claim, at2=TICKET))
    report, _ = read(me.stage, tmp_path, me)
    assert report.unknown == {}
    fees = 3 * usd_value(SOL, FEE)  # of the sales and the purchase, which bear them
    assert (
        abs(Fraction(report.closed_pnl) - 200) <= fees
    )  # of the bought shares: those of the stake cost what they paid


def test_results_of_an_older_table_are_read_again(
    me: SolanaWallet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me.do(call(EARN, anchor_data("deposit", bytes(8)), gives(me, {"USDC": 500 * USDC}, 500)))
    read(me.stage, tmp_path, me)
    me.stage.methods.clear()
    monkeypatch.setitem(jupiter_earn.RULES, anchor_data("a_later_function"), CallRule("share"))
    read(me.stage, tmp_path, me)
    assert "getTransaction" in me.stage.methods
