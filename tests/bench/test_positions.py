"""The number of round trips of a portfolio with positions."""

from __future__ import annotations

from argparse import Namespace

import pytest

from bench.positions import ROUND_TRIPS, run

pytestmark = pytest.mark.node


def test_a_process_that_has_just_begun_needs_no_more_than_six_round_trips() -> None:
    trips, _ = run(Namespace(tokens=20, positions=10, repeat=1))
    assert trips.met, trips.value
    steady, first = (int(number) for number in trips.value.replace(",", "").split() if number.isdigit())
    assert steady <= first <= ROUND_TRIPS
