"""Aerodrome's pools, gauges and locks, replayed from recorded answers of its contracts."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.adapters.evm.positions.interactions import ContractInteractions
from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.outcomes import Outcome, read_underlying
from chainfolio.adapters.evm.positions.shares import Shares
from chainfolio.indexer.families import families
from chainfolio.plans import Reverted
from chainfolio.protocols import InstalledProtocol, TokenAmount, UnlistedShare
from tests.protocols.published import Overrides, RecordedState, amounts, needs_contracts, positions

pytestmark = needs_contracts
VOLATILE, STABLE, GAUGE = "volatile pool WETH/USDC", "stable pool USDC/DAI", "gauge of the volatile pool"
CONTRACTS = {"factory": ["pool factory"], "voter": ["voter"]}
ESCROW = {"voting_escrow": ["voting escrow"], "rewards_distributor": ["rewards distributor"]}
OPENED, TRADED, A_WEEK_ON, TAKEN = 0, 1, 2, 3
ETH = 10**18
NOT_SOLIDLY = ("pool factory", "isPair")  # only the first release has this function
HALF = 499_999_999_999_999_999_500
FEES = 112_499_999_999_999_999  # what a claim paid while the pool still told 0


def pools(
    index: int, *touched: str, account: str = "alice", overrides: Overrides | None = None, is_fork: bool = False
) -> list[Outcome]:
    state = RecordedState("aerodrome", index)
    tokens = frozenset(state.roles[pool] for pool in touched)
    answers = {NOT_SOLIDLY: Reverted(), **(overrides or {})}
    return state.outcomes("solidly", CONTRACTS, account, ContractInteractions(tokens=tokens), answers, is_fork=is_fork)


@pytest.mark.parametrize(
    ("index", "wallet_raw", "staked", "fees", "reward"),
    [
        (OPENED, 999_999_999_999_999_999_000, 0, 0, 0),
        (TRADED, HALF, HALF, FEES, 0),
        (A_WEEK_ON, HALF, HALF, FEES, 9_999_999_999_999_999_999_975_499),
        (TAKEN, HALF, HALF, 0, 0),
    ],
    ids=["opened", "traded", "a-week-on", "taken"],
)
def test_a_pool_has_shares_with_uncounted_fees_and_staked_shares(
    index: int, wallet_raw: int, staked: int, fees: int, reward: int
) -> None:
    roles = RecordedState("aerodrome", index).roles
    in_wallet, in_gauge = positions(pools(index, VOLATILE))
    assert amounts([in_wallet], "supplied") == {roles[VOLATILE]: wallet_raw}
    assert amounts([in_wallet], "rewards") == ({roles["WETH"]: fees, roles["USDC"]: fees} if fees else {})
    assert amounts([in_gauge], "supplied") == ({roles[VOLATILE]: staked} if staked else {})
    assert amounts([in_gauge], "rewards") == ({roles["AERO"]: reward} if reward else {})
    assert (in_wallet.replaces, in_gauge.replaces) == ((roles[VOLATILE],), ())


def unwrapped(index: int, pool: str, raw: int, overrides: Overrides | None = None, is_fork: bool = False) -> Any:
    state = RecordedState("aerodrome", index)
    role_addresses = {role: tuple(state.roles[part] for part in parts) for role, parts in CONTRACTS.items()}
    shares = Shares(Protocols([InstalledProtocol("published", families()["solidly"], role_addresses, {}, is_fork)]))
    state.run(shares.read_answers([state.roles[pool]]), overrides)
    share = shares.share(state.roles["alice"], state.roles[pool], {})
    answers = {NOT_SOLIDLY: Reverted(), **(overrides or {})}
    return None if share is None else state.run(read_underlying(share, raw), answers)


@pytest.mark.parametrize("pool", [VOLATILE, STABLE], ids=["volatile", "stable"])
def test_a_share_is_its_part_of_the_reserves(pool: str) -> None:
    for index in (OPENED, TRADED):
        state = RecordedState("aerodrome", index)
        reserve0, reserve1, _ = state.value(pool, "getReserves()(uint256,uint256,uint256)")
        supply = state.value(pool, "totalSupply()(uint256)")
        tokens = [state.value(pool, f"token{side}()(address)") for side in "01"]
        expected = [
            TokenAmount(tokens[0], HALF * reserve0 // supply),
            TokenAmount(tokens[1], HALF * reserve1 // supply),
        ]
        assert unwrapped(index, pool, HALF) == tuple(expected)


def test_a_pool_without_a_gauge_has_no_staked_part() -> None:
    assert len(positions(pools(TRADED, STABLE))) == 1


def test_a_token_that_the_factory_does_not_know_is_nothing() -> None:
    unknown = {("pool factory", "isPool"): False}
    assert positions(pools(TRADED, VOLATILE, overrides=unknown)) == []
    assert unwrapped(TRADED, VOLATILE, HALF, unknown) is None


def test_a_factory_of_the_first_release_names_its_pools_pairs() -> None:
    first = {("pool factory", "isPool"): Reverted(), NOT_SOLIDLY: True}
    assert positions(pools(TRADED, VOLATILE, overrides=first)) == positions(pools(TRADED, VOLATILE))
    assert unwrapped(TRADED, VOLATILE, HALF, first) == unwrapped(TRADED, VOLATILE, HALF)


def test_a_share_of_more_than_the_supply_is_nothing() -> None:
    assert unwrapped(TRADED, VOLATILE, 10**30) is None


def test_a_refusing_gauge_is_unknown_and_the_wallet_s_share_stays() -> None:
    in_wallet, in_gauge = positions(pools(TRADED, VOLATILE, overrides={(GAUGE, "earned"): Reverted()}))
    assert amounts([in_wallet], "supplied")
    assert not in_wallet.unknown
    assert "gauge" in in_gauge.unknown


def test_a_pool_of_an_unreviewed_fork_claims_no_fees() -> None:
    assert amounts(positions(pools(TRADED, STABLE, is_fork=True)), "rewards") == {}


def test_a_fork_s_share_is_its_part_of_the_tokens_that_lie_there_whatever_reserves_it_claims() -> None:
    roles = RecordedState("aerodrome", TRADED).roles
    supply = RecordedState("aerodrome", TRADED).value(VOLATILE, "totalSupply()(uint256)")
    lies = {
        (VOLATILE, "getReserves"): (10**40, 10**40),
        ("WETH", "balanceOf"): 8 * ETH,
        ("USDC", "balanceOf"): 4 * ETH,
    }
    share = unwrapped(TRADED, VOLATILE, supply // 4, lies, is_fork=True)
    assert share == UnlistedShare((TokenAmount(roles["WETH"], 2 * ETH), TokenAmount(roles["USDC"], ETH)))


def locks(index: int, account: str = "alice", **overrides: Any) -> list[Outcome]:
    state = RecordedState("aerodrome", index)
    answers = {"escrowType": 0, "idToManaged": 0, **overrides}
    return state.outcomes(
        "voting_nft",
        ESCROW,
        account,
        ContractInteractions(ids={state.roles["voting escrow"]: frozenset({1, 2})}),
        {("voting escrow", name): value for name, value in answers.items()},
    )


@pytest.mark.parametrize(
    ("index", "rebases"),
    [(OPENED, (0, 0)), (A_WEEK_ON, (2_372_419_558_607_569_634_794_809, 290_052_674_616_897_110_386_580))],
    ids=["opened", "a-week-on"],
)
def test_a_lock_has_its_amount_its_end_and_its_rebase(index: int, rebases: tuple[int, int]) -> None:
    aero = RecordedState("aerodrome", index).roles["AERO"]
    permanent, year = positions(locks(index))
    assert (amounts([permanent], "supplied"), permanent.unlock_s) == ({aero: 100 * ETH}, 0)
    assert (amounts([year], "supplied"), year.unlock_s) == ({aero: 50 * ETH}, 1_826_496_000)
    assert [amounts([each], "rewards").get(aero, 0) for each in (permanent, year)] == list(rebases)


def test_a_lock_that_voted_says_that_its_votes_may_earn() -> None:
    voted, unvoted = positions(locks(TRADED))
    assert "votes" in voted.unknown
    assert not unvoted.unknown


def test_a_lock_in_a_managed_lock_keeps_the_amount_that_it_put_there() -> None:
    state = RecordedState("aerodrome", OPENED)
    managed = locks(OPENED, escrowType=1, idToManaged=9, locked=(0, 0, False), weights=lambda lock, _: lock * ETH)
    nfts = positions(managed)
    assert [amounts([each], "supplied") for each in nfts] == [{state.roles["AERO"]: n * ETH} for n in (1, 2)]
    assert all("managed" in each.unknown and each.name.endswith("in managed lock 9") for each in nfts)


def test_a_burnt_or_given_lock_is_no_position() -> None:
    assert positions(locks(OPENED, account="bob")) == []
    assert positions(locks(OPENED, ownerOf=Reverted())) == []
