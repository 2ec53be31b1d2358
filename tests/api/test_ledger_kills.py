"""Servers that share a port are killed again and again: nobody pays for what never came, and nobody pays twice.

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
    found = measured(stores.url(kind), Trial(CALLS, CLIENTS, EVERY_S, HOLD_S, 7, KILLS, every_offset=False))
    assert found.calls >= CALLS
    assert found.kills >= KILLS
    assert found.in_flight > 0, "some kills met calls that were running"
    assert found.keys_charged > 0
    assert found.totals["post"][1] > CALLS // 4
    assert found.totals["void"][1] > 0
    assert (found.charged_unreceived, found.charged_twice, found.keys_charged_twice) == (0, 0, 0)
    assert found.made > 0, "changes were among the calls"
    assert found.names > 0, "and those of address books and bundles"
    assert found.torn > CALLS // 20, "and many were left in the middle of their answer"
    assert found.offsets[0] > found.torn // 2, "each time at another byte of it"
    assert (found.free, found.unmade, found.bought_twice) == (0, 0, 0)
    assert found.unsound == []
    assert found.is_sound, found
    assert found.is_billed, found
