"""Compound V3, replayed from recorded answers of its market and rewards contracts."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from chainfolio.adapters.evm.positions.interactions import ContractInteractions
from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.outcomes import Outcome, read_underlying
from chainfolio.adapters.evm.positions.shares import Shares
from chainfolio.indexer.families import families
from chainfolio.plans import Reverted, run_offline
from chainfolio.protocols import InstalledProtocol, TokenAmount
from tests.protocols.published import RecordedState, amounts, exchanged, needs_contracts, positions

pytestmark = needs_contracts
CONTRACTS = {"market": ["comet"], "rewards": ["rewards"]}
OPENED, A_MONTH_LATER, REPAID = 0, 1, 2
PRICES = {"USDC feed": 10**8, "WETH feed": 2000 * 10**8, "WBTC feed": 60_000 * 10**8}


def market(index: int, account: str, is_fork: bool = False, **overrides: Any) -> list[Outcome]:
    state = RecordedState("compound_v3", index)
    prices = {state.roles[feed]: price for feed, price in PRICES.items()}
    return state.outcomes(
        "compound_v3",
        CONTRACTS,
        account,
        exchanged(state.roles["comet"], tokens=[state.roles["USDC"]]),
        {("comet", "getPrice"): prices.__getitem__, **{("comet", key): value for key, value in overrides.items()}},
        is_fork,
    )


@pytest.mark.parametrize(
    ("index", "account", "supplied", "borrowed", "reward"),
    [
        (OPENED, "alice", {"WETH": 10 * 10**18, "WBTC": 10**8}, {"USDC": 12_000_000_000}, 0),
        (OPENED, "bob", {"USDC": 10**12}, {}, 10**16),
        (
            A_MONTH_LATER,
            "alice",
            {"WETH": 10 * 10**18, "WBTC": 10**8},
            {"USDC": 12_015_267_951},
            25_920_009_999 * 10**12,
        ),
        (A_MONTH_LATER, "bob", {"USDC": 1_000_039_452_069}, {}, 25_920_020 * 10**15),
        (REPAID, "alice", {"WETH": 10 * 10**18, "WBTC": 10**8}, {}, 25_920_019_999 * 10**12),
        (REPAID, "bob", {"USDC": 500_019_726_049}, {}, 0),
    ],
)
def test_a_market_position_is_what_the_market_says_at_each_moment(
    index: int, account: str, supplied: dict[str, int], borrowed: dict[str, int], reward: int
) -> None:
    roles = RecordedState("compound_v3", index).roles
    market_positions = positions(market(index, account))
    assert amounts(market_positions, "supplied") == {roles[token]: raw for token, raw in supplied.items()}
    assert amounts(market_positions, "borrowed") == {roles[token]: raw for token, raw in borrowed.items()}
    assert amounts(market_positions, "rewards") == ({roles["COMP"]: reward} if reward else {})
    assert [each.replaces for each in market_positions] == [(roles["comet"],)]


def test_health_is_the_collateral_at_its_liquidation_factors_over_the_debt() -> None:
    (position,) = positions(market(OPENED, "alice"))
    limit = 10 * 2000 * Decimal("0.85") + 60_000 * Decimal("0.75")
    assert position.health is not None
    assert abs(position.health - limit / 12_000) < Decimal("1e-17")
    assert positions(market(OPENED, "bob"))[0].health is None
    assert positions(market(OPENED, "alice", getPrice=Reverted()))[0].health is None


def test_an_account_with_collateral_alone_is_found_by_the_event() -> None:
    state = RecordedState("compound_v3", REPAID)
    family = families()["compound_v3"]
    row = InstalledProtocol("published", family, {"market": (state.roles["comet"],)}, {})
    events = Protocols([row]).events
    assert len(events) == 3
    market_positions = positions(
        state.outcomes(
            "compound_v3", CONTRACTS, "alice", ContractInteractions(exchanged={state.roles["comet"]: frozenset()})
        )
    )
    assert len(market_positions) == 1


def test_a_refusing_market_is_an_issue_and_a_refused_reward_is_unknown() -> None:
    (outcome,) = market(OPENED, "alice", borrowBalanceOf=Reverted())
    assert not outcome.positions
    assert len(outcome.issues) == 1
    state = RecordedState("compound_v3", OPENED)
    (without,) = state.outcomes(
        "compound_v3",
        CONTRACTS,
        "bob",
        exchanged(state.roles["comet"]),
        {("rewards", "getRewardOwed"): Reverted()},
    )
    assert without.positions[0].unknown == "its rewards"
    assert amounts(without.positions, "supplied") == {state.roles["USDC"]: 10**12}


def test_a_fork_that_names_a_deposit_that_was_never_sent_is_unverified() -> None:
    assert "never sent" in positions(market(OPENED, "bob", is_fork=True))[0].unverified


def test_a_received_market_token_is_its_base_token() -> None:
    state = RecordedState("compound_v3", A_MONTH_LATER)
    comet = state.roles["comet"]
    row = InstalledProtocol("published", families()["compound_v3_base"], {"market": (comet,)}, {})
    share = Shares(Protocols([row])).share(state.roles["carol"], comet, {})
    assert share is not None
    parts = run_offline(read_underlying(share, 7), lambda read: state.value("comet", read.signature))
    assert parts == (TokenAmount(state.roles["USDC"], 7),)
