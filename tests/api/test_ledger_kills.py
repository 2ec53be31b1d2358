"""Servers that share a port are killed repeatedly: no call is paid without an answer, or twice.

`python -m bench.ledger` is the same with a million calls.
"""

from __future__ import annotations

import pytest

from bench.ledger import Trial, measured
from tests.storage.stores import KINDS, Stores

CALLS, CLIENTS, KILLS, EVERY_S, HOLD_S = 2000, 16, 3, 1.2, 3


@pytest.mark.slow("the same kills over a second store", only=["postgresql"])
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_pays_for_what_never_came_and_nobody_pays_twice(kind: str, stores: Stores) -> None:
    outcome = measured(stores.url(kind), Trial(CALLS, CLIENTS, EVERY_S, HOLD_S, 7, KILLS, every_offset=False))
    assert outcome.calls >= CALLS
    assert outcome.kills >= KILLS
    assert outcome.in_flight > 0, "some kills met calls that were running"
    assert outcome.keys_charged > 0
    assert outcome.totals["post"][1] > CALLS // 4
    assert outcome.totals["void"][1] > 0
    assert (outcome.charged_unreceived, outcome.charged_twice, outcome.keys_charged_twice) == (0, 0, 0)
    assert outcome.made > 0, "changes were among the calls"
    assert outcome.names > 0, "and those of address books and bundles"
    assert outcome.torn > CALLS // 20, "and many were left in the middle of their answer"
    assert outcome.offsets[0] > outcome.torn // 2, "each time at another byte of it"
    assert (outcome.free, outcome.unmade, outcome.bought_twice) == (0, 0, 0)
    assert outcome.unsound == []
    assert outcome.is_sound, outcome
    assert outcome.is_billed, outcome
