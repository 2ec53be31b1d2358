"""A native balance that cannot be read is an issue of its account, whatever the node answers."""

from __future__ import annotations

import pytest

from chainfolio.assets import Asset
from chainfolio.contracts import Token
from chainfolio.engine.snapshots.reading import natives_of
from chainfolio.plans import Reverted, Unknown
from chainfolio.positions import AccountState

ALICE = "0x" + "a1" * 20
COIN = Token(Asset("eip155:1", "slip44", "60"), "ETH", "Ether", 18)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(Reverted(b"no"), "the contract refuses"), (Unknown("it is too short"), "it is too short")],
)
def test_a_native_balance_that_is_refused_is_an_issue_and_no_failure(answer: Reverted | Unknown, reason: str) -> None:
    holdings, (issue,) = natives_of({ALICE: AccountState(answer, {}, (), ())}, COIN)
    assert holdings == []
    assert (issue.account, issue.makes_partial) == (ALICE, True)
    assert issue.reason == f"the native balance could not be read: {reason}"
