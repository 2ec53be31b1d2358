"""Shares of Jupiter's Earn: bytes, addresses and amounts without interest, by Jupiter's SDK.

Interest and rewards follow the examples and rules of the program's public source.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

import pytest

from chainfolio.adapters.solana.layouts import TOKEN
from chainfolio.adapters.solana.pool_layouts import JupiterLending, JupiterReserve, JupiterRewards
from chainfolio.adapters.solana.positions import Claim
from chainfolio.adapters.solana.protocols.jupiter_earn import FAMILY, PRICE, YEAR_S, share_price, supply_price
from chainfolio.plans import Unknown, run_offline
from chainfolio.protocols import DecodedPosition, InstalledProtocol, InstalledProtocols
from tests.solana.changes import Change, key, sized, spliced, without
from tests.solana.fakes import WALLET
from tests.solana.jupiter import (
    ADMIN,
    CONTRACTS,
    EARN,
    LENDING,
    MINT,
    MODEL,
    NOW_S,
    RESERVE,
    SHARE,
    SUPPLY,
    Written,
    lending_accounts,
    stored,
)
from tests.solana.ledger import Ledger, mint
from tests.solana.ledger_node import LedgerNode, read
from tests.solana.sdk import run_job

INSTALLED: Final = InstalledProtocols((InstalledProtocol("jupiter", FAMILY, CONTRACTS, {}),))


def decoded(ledger: Any, raw: int, share: str = SHARE, contracts: Any = CONTRACTS) -> Sequence[DecodedPosition]:
    """Decode an amount of shares offline."""
    claim = Claim(WALLET, share, EARN, NOW_S, raw, contracts=contracts)
    positions: Sequence[DecodedPosition] = run_offline(FAMILY.position(claim), ledger)
    return positions


@pytest.mark.parametrize("seed", range(4))
def test_a_share_is_worth_what_jupiters_sdk_says_but_that_it_rounds_to_the_nearest(seed: int) -> None:
    chance = random.Random(seed)
    old = chance.randrange(PRICE, 2 * PRICE)
    accounts = lending_accounts(chance.randrange(PRICE, 2 * PRICE), old, old + chance.randrange(PRICE))
    raw = chance.choice((1, SUPPLY, chance.randrange(SUPPLY)))
    contents = {at: content for at, (_, content) in accounts.items()} | {MINT: b"", SHARE: b""}
    expected = run_job("jupiter_assets", mint=MINT, accounts=contents, supply=SUPPLY, raw=raw)
    [position] = decoded(stored(accounts), raw)
    [amount] = position.supplied
    assert amount.token == MINT
    assert expected - amount.raw in (0, 1)
    assert (position.position_type, position.pool, position.replaces) == ("LENDING", LENDING, (SHARE,))


def test_addresses_are_where_jupiters_sdk_says() -> None:
    assert run_job("jupiter_addresses", mint=MINT) == [SHARE, ADMIN, LENDING, RESERVE]


def reserve_of(supplied: tuple[int, int], borrowed: tuple[int, int], fee: int = 0) -> JupiterReserve:
    """Return a reserve with 60 % borrowed at 40 % a year, last updated half a year ago."""
    prices = (PRICE, PRICE)
    return JupiterReserve(MINT, 4_000, fee, 6_000, NOW_S - YEAR_S // 2, *prices, *supplied, *borrowed)


@pytest.mark.parametrize(
    ("reserve", "price"),
    [
        # The examples that the source of the program gives, and what it says of their edges.
        (reserve_of((80, 20), (50, 10), 1_000), PRICE * 11_125 // 10_000),
        (reserve_of((20, 80), (50, 10)), PRICE * 3 // 2),
        (reserve_of((80, 20), (0, 10)), PRICE),
        (reserve_of((0, 0), (50, 10)), PRICE),
        (reserve_of((0, 20), (50, 10)), PRICE),
        (reserve_of((1, 10_001), (50, 10)), PRICE),
        (reserve_of((50, 50), (30, 30)), PRICE * 112 // 100),
        (reserve_of((100, 0), (60, 0)), PRICE * 112 // 100),
        (reserve_of((100, 0), (10, 50)), PRICE * 102 // 100),
    ],
)
def test_interest_goes_to_those_who_get_any_as_the_source_has_it(reserve: JupiterReserve, price: int) -> None:
    assert abs(supply_price(reserve, NOW_S) - price) <= PRICE // 1_000  # parts are counted in hundredths of a per cent


def test_a_reserve_that_was_counted_in_this_second_or_takes_no_rate_is_as_it_says() -> None:
    reserve = reserve_of((80, 20), (50, 10))
    assert supply_price(reserve, reserve.updated_s) == PRICE
    assert supply_price(reserve._replace(borrow_rate=0), NOW_S) == PRICE


def lending_of(counted_s: int) -> JupiterLending:
    """A lending whose shares are worth twice what was put in."""
    return JupiterLending(MINT, SHARE, MODEL, PRICE, 2 * PRICE, counted_s, RESERVE)


@pytest.mark.parametrize(
    ("rewards", "counted_s", "growth"),
    [
        # 100 shares are worth 200; 20 a year are 10 %.
        (JupiterRewards(MINT, 0, 0, 0, 20, 0, 0), 5, 0),
        (JupiterRewards(MINT, 0, YEAR_S, 1, 20, 0, 0), 1, 10),
        (JupiterRewards(MINT, 200, YEAR_S, 1, 20, 0, 0), 1, 10),
        (JupiterRewards(MINT, 201, YEAR_S, 1, 20, 0, 0), 1, 0),
        (JupiterRewards(MINT, 0, YEAR_S // 2, 1, 20, 0, 0), 1, 5),
        (JupiterRewards(MINT, 0, YEAR_S, 1, 20, 0, 0), 1 + YEAR_S // 2, 5),
        (JupiterRewards(MINT, 0, YEAR_S, 1 + YEAR_S // 2, 20, 0, 0), 1, 5),
        (JupiterRewards(MINT, 0, YEAR_S, 2 + YEAR_S, 20, 0, 0), 1, 0),
        (JupiterRewards(MINT, 0, YEAR_S, 1, 1_000, 0, 0), 1, 50),
        (JupiterRewards(MINT, 0, YEAR_S // 2, 1, 20, YEAR_S, 40), 1, 15),
        (JupiterRewards(MINT, 0, YEAR_S // 2, 1, 0, YEAR_S // 4, 10), 1, 5),
        (JupiterRewards(MINT, 0, YEAR_S // 4, 1, 20, YEAR_S, 40), 1 + YEAR_S // 2, 10),
    ],
)
def test_rewards_are_paid_for_their_time_and_then_those_that_come_then(
    rewards: JupiterRewards, counted_s: int, growth: int
) -> None:
    price = share_price(lending_of(counted_s), PRICE, rewards, 100, 1 + YEAR_S)
    assert price == 2 * PRICE * (100 + growth) // 100


def test_other_tokens_are_no_shares_and_no_lending_is_looked_for() -> None:
    ledger, other_mint = Ledger(), key()
    ledger.put(other_mint, TOKEN, mint(5, 9, key()))

    def nothing_but_mints(read: Any) -> Any:
        assert read.layout == "mint"
        return ledger(read)

    assert decoded(nothing_but_mints, 5, other_mint) == []
    with pytest.raises(Exception, match="busy"):
        decoded(lambda asked: Unknown("busy"), 5)


def lending(_: Any) -> str:
    """Return the address of the lending."""
    return LENDING


def reserve(_: Any) -> str:
    """Return the address of the reserve."""
    return RESERVE


def model(_: Any) -> str:
    """Return the address of the rewards model."""
    return MODEL


def move_lending(ledger: Ledger, _: Any) -> None:
    """Move the lending to another address."""
    ledger.put(key(), *ledger.accounts.pop(LENDING))


def doubled(ledger: Ledger, _: Any) -> None:
    """Two lendings name the share."""
    ledger.put(key(), *ledger.accounts[LENDING])


def issue_less(ledger: Ledger, _: Any) -> None:
    """Issue fewer shares than the account has."""
    ledger.put(SHARE, TOKEN, mint(4, 6, ADMIN))


@pytest.fixture(scope="module")
def plain() -> Written:
    """A lending whose share is worth one and a half."""
    return lending_accounts(PRICE * 3 // 2, PRICE, PRICE)


BIG: Final = b"\xff" * 8


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without(lending), "was not found"),
        (doubled, "was not found"),
        (move_lending, "of another share"),
        (spliced(8, bytes(32), lending), "another share"),
        (sized(-1, lending), "195 bytes"),
        (sized(1, lending), "197 bytes"),
        (spliced(0, b"\0", lending), "not found"),
        (without(reserve), "there is no account"),
        (sized(-1, reserve), "191 bytes"),
        (sized(1, reserve), "193 bytes"),
        (spliced(0, b"\0", reserve), "another kind"),
        (spliced(8, bytes(32), reserve), "of another token"),
        (spliced(8, bytes(32), model), "of another token"),
        (without(model), "there is no account"),
        (sized(1, model), "90 bytes"),
        (issue_less, "less than the account has"),
        (spliced(78, BIG, reserve), "time to come"),
        (spliced(86, bytes(8), reserve), "has no price"),
        (spliced(94, bytes(8), reserve), "has no price"),
        (spliced(74, BIG[:2], reserve), "more than all interest"),
        (spliced(107, BIG, lending), "worth less than when"),
        (spliced(115, bytes(8), lending), "has no price"),
        (spliced(123, BIG, lending), "a time to come"),
        (spliced(107, bytes(8), lending), "worth less than when"),
    ],
)
def test_what_a_lending_cannot_be_is_said_and_never_zero(plain: Written, change: Change, reason: str) -> None:
    ledger = stored(plain)
    change(ledger, None)
    with pytest.raises(Exception, match=reason):
        decoded(ledger, 5)


def test_a_file_that_names_no_program_of_reserves_is_said(plain: Written) -> None:
    with pytest.raises(Exception, match="names no program as liquidity"):
        decoded(stored(plain), 5, contracts={"earn": (EARN,)})


async def test_a_wallet_with_a_share_has_a_position_in_place_of_the_token(plain: Written) -> None:
    ledger = stored(plain)
    spliced(78, bytes(8), reserve)(ledger, None)  # the node sets its clock itself
    spliced(123, bytes(8), lending)(ledger, None)
    node = LedgerNode(ledger, {WALLET: {SHARE: (10**6, 6), key(): (5, 6)}})
    states = await read(node, WALLET, installed=INSTALLED)
    [position] = states[WALLET].positions
    assert [asset.reference for asset in position.replaces] == [SHARE]
    assert [asset.reference for asset in position.supplied] == [MINT]
    assert not states[WALLET].issues


async def test_a_wallet_whose_lendings_nobody_looks_for_is_partial_and_says_so(plain: Written) -> None:
    node = LedgerNode(stored(plain), {WALLET: {SHARE: (10**6, 6)}})

    node.refuse_lists(EARN)
    states = await read(node, WALLET, installed=INSTALLED)
    assert states[WALLET].positions == ()
    [issue] = states[WALLET].issues
    assert (issue.subject, issue.makes_partial) == (SHARE, True)
