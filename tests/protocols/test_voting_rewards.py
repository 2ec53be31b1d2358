"""Fees and incentives of votes, replayed from the answers of Aerodrome's own contracts."""

from __future__ import annotations

import pytest

from chainfolio.adapters.evm.positions.interactions import ContractInteractions, NamedEvent
from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.outcomes import Outcome
from chainfolio.indexer.families import families
from chainfolio.localchain.evm import topic_of
from chainfolio.plans import Reverted
from chainfolio.protocols import InstalledProtocol
from tests.protocols.published import ETHER, Overrides, RecordedState, amounts, needs_contracts, positions

pytestmark = needs_contracts
POOL, FEES, INCENTIVES = "volatile pool WETH/USDC", "fees for voters", "incentives for voters"
CONTRACTS = {"voter": ["voter"], "voting_escrow": ["voting escrow"]}
VOTED, A_WEEK_ON, TAKEN = 1, 2, 3
CLAIMED_FEES = 112_499_999_999_999_999
ETH = 10**18


def votes(index: int, account: str, *numbers: int, overrides: Overrides | None = None) -> list[Outcome]:
    """Run the family for an account that voted for the pool with these locks."""
    state = RecordedState("aerodrome", index)
    roles = state.roles
    row = InstalledProtocol("published", families()["voting_rewards"], {"voter": (roles["voter"],)}, {})
    (voted,) = Protocols([row]).events
    events = tuple(
        NamedEvent(1, (topic_of(roles[account]), topic_of(roles[POOL]), f"0x{number:064x}"), bytes(96))
        for number in numbers
    )
    reward_tokens = {FEES: (roles["WETH"], roles["USDC"]), INCENTIVES: (roles["DAI"],)}
    answers: Overrides = {
        ("voter", "gaugeToFees"): roles[FEES],
        ("voter", "gaugeToBribe"): roles[INCENTIVES],
        **{
            (payer, "rewards"): lambda at, tokens=tokens: tokens[at] if at < len(tokens) else Reverted()
            for payer, tokens in reward_tokens.items()
        },
        **(overrides or {}),
    }
    return state.outcomes("voting_rewards", CONTRACTS, account, ContractInteractions(events={voted: events}), answers)


@pytest.mark.parametrize(
    ("index", "fees", "incentives"),
    [(VOTED, 0, 0), (A_WEEK_ON, CLAIMED_FEES, 70 * ETH), (TAKEN, 0, 70 * ETH)],
    ids=["voted", "a-week-on", "fees-taken"],
)
def test_votes_earn_fees_and_incentives_of_epochs_that_are_over(index: int, fees: int, incentives: int) -> None:
    roles = RecordedState("aerodrome", index).roles
    (position,) = positions(votes(index, "alice", 1))
    assert position.name == "Votes of lock 1"
    assert amounts([position], "rewards") == {
        token: raw for token, raw in ((roles["WETH"], fees), (roles["USDC"], fees), (roles["DAI"], incentives)) if raw
    }


def test_two_votes_with_one_lock_are_counted_once() -> None:
    single, repeated = positions(votes(A_WEEK_ON, "alice", 1)), positions(votes(A_WEEK_ON, "alice", 1, 1))
    assert single == repeated


def test_each_lock_has_its_own_rewards() -> None:
    first, second = positions(votes(A_WEEK_ON, "alice", 1, 2))
    assert amounts([first], "rewards")
    assert amounts([second], "rewards") == {}


def test_votes_of_a_lock_that_was_given_away_are_nobody_s() -> None:
    assert positions(votes(A_WEEK_ON, "bob", 1)) == []


def test_a_pool_without_a_gauge_pays_nothing() -> None:
    assert positions(votes(A_WEEK_ON, "alice", 1, overrides={("voter", "gauges"): ETHER})) == []


def test_rewards_that_a_contract_refuses_are_an_issue_and_not_zero() -> None:
    (outcome,) = votes(A_WEEK_ON, "alice", 1, overrides={(FEES, "earned"): Reverted()})
    assert not outcome.positions
    assert len(outcome.issues) == 1


def test_a_contract_with_more_tokens_than_are_read_is_marked() -> None:
    weth = RecordedState("aerodrome", A_WEEK_ON).roles["WETH"]
    (position,) = positions(votes(A_WEEK_ON, "alice", 1, overrides={(FEES, "rewards"): weth}))
    assert "more than" in position.unknown
