"""Ethena's cooldown, replayed from sUSDe's own answers."""

from __future__ import annotations

import pytest

from chainfolio.adapters.evm.positions.interactions import ContractInteractions, NamedEvent
from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.outcomes import Outcome
from chainfolio.indexer.families import families
from chainfolio.localchain.evm import topic_of, words
from chainfolio.plans import Reverted
from chainfolio.protocols import InstalledProtocol
from tests.protocols.published import Overrides, RecordedState, amounts, needs_contracts, positions

pytestmark = needs_contracts
STAKED, VESTED, COOLING, COOLING_MORE, OVER, CLAIMED = range(6)


def cooldowns(index: int, account: str, overrides: Overrides | None = None) -> list[Outcome]:
    state = RecordedState("ethena", index)
    owner, silo = topic_of(state.roles[account]), topic_of(state.roles["silo"])
    row = InstalledProtocol("published", families()["cooldown"], {"vault": (state.roles["sUSDe"],)}, {})
    (withdraw,) = Protocols([row]).events
    event = NamedEvent(3, (owner, silo, owner), bytes.fromhex(words(["uint256", "uint256"], 1, 1)))
    return state.outcomes(
        "cooldown", {"vault": ["sUSDe"]}, account, ContractInteractions(events={withdraw: (event,)}), overrides
    )


@pytest.mark.parametrize(
    ("index", "waiting"),
    [
        (VESTED, 0),
        (COOLING, 549_999_999_999_999_999_999),
        (COOLING_MORE, 559_999_999_999_999_999_999),
        (OVER, 559_999_999_999_999_999_999),
        (CLAIMED, 0),
    ],
    ids=["vested", "cooling", "cooling-more", "over", "claimed"],
)
def test_what_cools_down_is_what_unstake_pays(index: int, waiting: int) -> None:
    state = RecordedState("ethena", index)
    withdrawals = positions(cooldowns(index, "alice"))
    assert amounts(withdrawals, "supplied") == ({state.roles["USDe"]: waiting} if waiting else {})
    assert [each.unlock_s for each in withdrawals] == ([1_803_122_985] if waiting else [])


def test_an_account_that_cools_nothing_down_has_no_position() -> None:
    assert positions(cooldowns(COOLING, "bob")) == []


def test_a_refusing_vault_is_an_issue_and_not_zero() -> None:
    (outcome,) = cooldowns(COOLING, "alice", {("sUSDe", "cooldowns"): Reverted()})
    assert not outcome.positions
    assert len(outcome.issues) == 1
