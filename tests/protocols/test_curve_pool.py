"""Curve's StableSwap NG pools, replayed from the answers of their own code."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.outcomes import read_underlying
from chainfolio.adapters.evm.positions.shares import Shares
from chainfolio.indexer.families import families
from chainfolio.plans import Reverted
from chainfolio.protocols import InstalledProtocol, TokenAmount, UnlistedShare
from tests.protocols.published import Overrides, RecordedState, needs_contracts

pytestmark = needs_contracts
PLAIN, META = "plain pool USDC/DAI", "metapool FRAX/(USDC/DAI)"
OPENED, TRADED, TAKEN = 0, 1, 2
ETH = 10**18


def unwrapped(index: int, token: str, raw: int, overrides: Overrides | None = None, is_fork: bool = False) -> Any:
    """Return what shares stand for; None if the family does not know the token."""
    state = RecordedState("curve", index)
    contracts = {"pool_factory": (state.roles["factory"],)}
    shares = Shares(Protocols([InstalledProtocol("published", families()["curve_pool"], contracts, {}, is_fork)]))
    state.run(shares.read_answers([state.roles[token]]), overrides)
    share = shares.share(state.roles["alice"], state.roles[token], {})
    return None if share is None else state.run(read_underlying(share, raw), overrides)


@pytest.mark.parametrize("index", [OPENED, TRADED, TAKEN], ids=["opened", "traded", "taken"])
@pytest.mark.parametrize(("pool", "coins"), [(PLAIN, ("USDC", "DAI")), (META, ("FRAX", PLAIN))], ids=["plain", "meta"])
def test_a_share_is_its_part_of_each_coin(index: int, pool: str, coins: tuple[str, ...]) -> None:
    state = RecordedState("curve", index)
    balances = state.value(pool, "get_balances()(uint256[])")
    supply, raw = state.value(pool, "totalSupply()(uint256)"), 3 * ETH
    expected = (
        TokenAmount(state.roles[coin], raw * balance // supply) for coin, balance in zip(coins, balances, strict=True)
    )
    assert unwrapped(index, pool, raw) == tuple(expected)


def test_leaving_paid_what_the_share_stood_for() -> None:
    """Alice took her shares of the plain pool between two moments, and nothing else happened to it."""
    before, after = RecordedState("curve", TRADED), RecordedState("curve", TAKEN)
    shares = before.value(PLAIN, "balanceOf(address)(uint256)", before.roles["alice"])
    amounts_out = [
        old - new
        for old, new in zip(*(m.value(PLAIN, "get_balances()(uint256[])") for m in (before, after)), strict=True)
    ]
    assert shares == 1500 * ETH
    assert [part.raw for part in unwrapped(TRADED, PLAIN, shares)] == amounts_out


def test_a_pool_of_a_fake_factory_is_no_share() -> None:
    assert unwrapped(TRADED, PLAIN, ETH, {("factory", "get_n_coins"): 0}) is None
    assert unwrapped(TRADED, PLAIN, ETH, {("factory", "get_n_coins"): Reverted()}) is None


def test_more_shares_than_there_are_is_no_share() -> None:
    supply = RecordedState("curve", TRADED).value(PLAIN, "totalSupply()(uint256)")
    assert unwrapped(TRADED, PLAIN, supply + 1) is None
    assert unwrapped(TRADED, PLAIN, 1, {(PLAIN, "totalSupply"): 0}) is None


def test_a_fork_counts_only_by_the_account_s_own_action() -> None:
    assert isinstance(unwrapped(TRADED, PLAIN, ETH, is_fork=True), UnlistedShare)


def test_a_token_without_coins_is_not_asked_further() -> None:
    assert unwrapped(TRADED, "DAI", ETH, {("DAI", "N_COINS"): Reverted()}) is None
