"""Convex, replayed from recorded answers of its reward pool and locker."""

from __future__ import annotations

import pytest

from chainfolio.adapters.evm.positions.interactions import ContractInteractions, NamedEvent
from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.outcomes import Outcome
from chainfolio.adapters.evm.protocols.convex import minted
from chainfolio.indexer.families import families
from chainfolio.localchain.evm import topic_of, words
from chainfolio.plans import Reverted
from chainfolio.protocols import InstalledProtocol
from tests.protocols.published import Overrides, RecordedState, amounts, exchanged, needs_contracts, positions

pytestmark = needs_contracts
BOOSTER = "booster (companion that answers 0)"
CONTRACTS = {"booster": [BOOSTER], "locker": ["locker"], "cvx": ["CVX"]}
STAKED, HALF_A_WEEK, EXPIRED, TAKEN = 0, 1, 2, 3
CVX_SUPPLY = 50_000_000 * 10**18
ETH = 10**18


def pools(index: int, account: str, *numbers: int, overrides: Overrides | None = None) -> list[Outcome]:
    state = RecordedState("convex", index)
    roles = state.roles
    row = InstalledProtocol("published", families()["convex"], {"booster": (roles[BOOSTER],)}, {})
    (deposited,) = Protocols([row]).events
    events = tuple(
        NamedEvent(1, (topic_of(roles[account]), f"0x{number:064x}"), bytes.fromhex(words(["uint256"], 1)))
        for number in numbers
    )
    pool = (roles["cvxLP"], roles["cvxLP"], roles["CRV"], roles["reward pool"], roles["CRV"], False)
    answers = {
        (BOOSTER, "poolInfo"): lambda number: pool if not number else (*pool[:3], "0x" + "99" * 20, *pool[4:]),
        ("CVX", "totalSupply"): CVX_SUPPLY,
        ("THREE", "token"): Reverted(),
        **{
            ("0x" + "99" * 20, name): Reverted()
            for name in ("balanceOf", "earned", "rewardToken", "extraRewardsLength")
        },
        **(overrides or {}),
    }
    return state.outcomes("convex", CONTRACTS, account, ContractInteractions(events={deposited: events}), answers)


@pytest.mark.parametrize(
    ("index", "account", "staked", "crv", "three"),
    [
        (STAKED, "alice", 100 * ETH, 174_999_999_999_999_938_400, 17_499_999_999_999_888_000),
        (STAKED, "bob", 300 * ETH, 524_999_999_999_999_815_200, 52_499_999_999_999_664_000),
        (EXPIRED, "alice", 100 * ETH, 174_999_999_999_999_938_400, 17_499_999_999_999_888_000),
    ],
)
def test_a_staked_pool_share_earns_what_the_pool_says(
    index: int, account: str, staked: int, crv: int, three: int
) -> None:
    roles = RecordedState("convex", index).roles
    stakes = positions(pools(index, account, 0))
    assert amounts(stakes, "supplied") == {roles["cvxLP"]: staked}
    assert amounts(stakes, "rewards") == {
        roles["CRV"]: crv,
        roles["THREE"]: three,
        roles["CVX"]: crv // 2,  # half of all CVX is minted: each CRV mints a half
    }


def test_a_withdrawn_stake_is_no_position() -> None:
    assert positions(pools(TAKEN, "alice", 0)) == []


def test_cvx_is_minted_less_with_each_cliff_and_ends_at_its_maximum() -> None:
    assert minted(1000, 0) == 1000
    assert minted(1000, 10**23) == 999
    assert minted(1000, 99_999_999 * ETH) == 1
    assert minted(10**30, 99_999_999 * ETH) == ETH
    assert minted(1000, 10**26) == 0


def test_a_refusing_pool_is_unknown_and_hides_no_other() -> None:
    first, second = sorted(positions(pools(STAKED, "alice", 0, 7)), key=lambda position: position.unknown)
    assert amounts([first], "supplied") == {RecordedState("convex", STAKED).roles["cvxLP"]: 100 * ETH}
    assert second.unknown
    assert not second.supplied


def test_a_refused_extra_reward_is_unknown() -> None:
    (stake,) = positions(pools(STAKED, "alice", 0, overrides={("extra reward pool", "earned"): Reverted()}))
    assert stake.unknown == "one of its extra rewards"
    assert RecordedState("convex", STAKED).roles["CRV"] in amounts([stake], "rewards")


def test_a_reward_in_a_wrapper_is_the_token_that_the_wrapper_names() -> None:
    state = RecordedState("convex", STAKED)
    stakes = positions(pools(STAKED, "alice", 0, overrides={("THREE", "token"): state.roles["carol"]}))
    assert amounts(stakes, "rewards")[state.roles["carol"]] == 17_499_999_999_999_888_000


@pytest.mark.parametrize(
    ("index", "locked", "unlockable", "crv"),
    [
        (STAKED, 500 * ETH, 0, 0),
        (HALF_A_WEEK, 500 * ETH, 0, 34_999_999_999_999_776_000),
        (EXPIRED, 100 * ETH, 400 * ETH, 69_999_999_999_999_552_000),
    ],
    ids=["locked", "half-a-week", "expired"],
)
def test_locked_cvx_includes_what_can_be_unlocked_once(index: int, locked: int, unlockable: int, crv: int) -> None:
    state = RecordedState("convex", index)
    outcomes = state.outcomes("convex", CONTRACTS, "alice", exchanged(state.roles["locker"]))
    locked_part, unlockable_part = positions(outcomes)
    cvx = state.value("locker", "stakingToken()(address)")
    assert amounts([locked_part], "supplied") == {cvx: locked}
    assert amounts([unlockable_part], "supplied") == ({cvx: unlockable} if unlockable else {})
    assert amounts([locked_part, unlockable_part], "rewards") == ({state.roles["CRV"]: crv} if crv else {})


def test_a_refusing_locker_is_an_issue_and_not_zero() -> None:
    state = RecordedState("convex", STAKED)
    overrides = {("locker", "lockedBalances"): Reverted()}
    (outcome,) = state.outcomes("convex", CONTRACTS, "alice", exchanged(state.roles["locker"]), overrides)
    assert not outcome.positions
    assert len(outcome.issues) == 1
