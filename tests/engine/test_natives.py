"""A native balance that cannot be read is an issue of its account, whatever the node answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainfolio.plans import Reverted, Unknown
from chainfolio.positions import AccountState
from chainfolio.settings import Chain, Settings
from engine.wiring import snapshotter_of
from indexer.wiring import System

ALICE = "0x" + "a1" * 20


@pytest.mark.parametrize(
    ("answer", "why"),
    [(Reverted(b"no"), "the contract refuses"), (Unknown("it is too short"), "it is too short")],
)
async def test_a_native_balance_that_is_refused_is_an_issue_and_no_failure(
    tmp_path: Path, answer: Reverted | Unknown, why: str
) -> None:
    system = System(Settings(data=str(tmp_path), chains={"ethereum": Chain(rpc=["http://127.0.0.1:1"])}))
    snapshotter = snapshotter_of(system, system.chain("ethereum"))
    known, (issue,) = snapshotter._natives({ALICE: AccountState(answer, {}, (), ())})
    assert known == []
    assert (issue.account, issue.makes_partial) == (ALICE, True)
    assert issue.reason == f"the native balance could not be read: {why}"
    await system.close()
