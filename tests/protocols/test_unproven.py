"""Families that no recording proves: shown without value until the setting `proven` names them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.outcomes import UNPROVEN, read_underlying
from chainfolio.adapters.evm.positions.shares import Shares
from chainfolio.indexer.families import families
from chainfolio.indexer.wiring import System
from chainfolio.protocols import InstalledProtocol, UnverifiedShare
from chainfolio.settings import Settings
from docs.build_protocols import proofs
from tests.protocols.published import RecordedState, amounts, exchanged, needs_contracts
from tests.protocols.scripted import outcomes


@needs_contracts
def test_an_unproven_position_is_shown_without_value_and_replaces_no_token() -> None:
    state = RecordedState("convex", 2)
    family = replace(families()["convex"], is_proven=False)
    locker = state.roles["locker"]
    row = InstalledProtocol("published", family, {"locker": (locker,)}, {})
    match = replace(exchanged(locker), sent={locker: frozenset([None])})
    (outcome,) = state.run(outcomes(Protocols([row]), state.roles["alice"], match))
    assert {position.unverified for position in outcome.positions} == {UNPROVEN}
    assert sum(amounts(outcome.positions, "supplied").values()) == 500 * 10**18
    assert not any(position.replaces for position in outcome.positions)
    assert [issue.makes_partial for issue in outcome.issues if UNPROVEN in issue.reason] == [True]


@needs_contracts
def test_an_unproven_share_stays_a_token_and_no_share_is_nothing() -> None:
    state = RecordedState("curve", 1)
    pool, factory = state.roles["plain pool USDC/DAI"], state.roles["factory"]
    row = InstalledProtocol(
        "published", replace(families()["curve_pool"], is_proven=False), {"pool_factory": (factory,)}, {}
    )
    shares = Shares(Protocols([row]))
    state.run(shares.read_answers([pool]))
    share = shares.share(state.roles["alice"], pool, {})
    assert share is not None
    assert state.run(read_underlying(share, 10**18)) == UnverifiedShare(UNPROVEN)
    assert state.run(read_underlying(share, 10**18), {("factory", "get_n_coins"): 0}) is None


def test_the_setting_names_the_families_that_a_user_has_checked(tmp_path: Path) -> None:
    unproven = sorted(name for name, family in families().items() if not family.is_proven)
    if not unproven:
        pytest.skip("all families are proven by now")
    name = unproven[0]
    assert not System(Settings(data=str(tmp_path))).families[name].is_proven
    assert System(Settings(data=str(tmp_path), proven=[name])).families[name].is_proven


# Recorded reads of real wallets prove these under the keys of their protocols.
RECORDED = {"staked_balance", "voting_escrow", "crvusd", "extrafi", "vesting_escrow"}


def test_families_are_marked_as_unproven_if_no_test_proves_them() -> None:
    unproven = {name for name, family in families().items() if not family.is_proven}
    without_proof = {name for name, family in families().items() if not proofs(name, family.kind, [name])}
    assert unproven - without_proof == set()
    assert without_proof - RECORDED - unproven == set()
