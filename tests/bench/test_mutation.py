"""The measure of mutations: which are chosen, how a change is named, and which share is noticed."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest

from bench.mutation import AREAS, AreaResult, Mutation, change_of, reasons, sampled

DIFF = """--- storage/state/ledger.py
+++ storage/state/ledger.py
@@ -1,3 +1,3 @@
 def post(tx):
-    return 1
+    return 2
"""


def mutations(counts: Sequence[int]) -> list[Mutation]:
    return [
        Mutation(f"{area}.x_work__mutmut_{number}", area, None)
        for area, count in zip(AREAS, counts, strict=True)
        for number in range(count)
    ]


def test_a_sample_has_as_many_of_each_area_and_is_the_same_again() -> None:
    every = mutations((30, 3, 0, 10, 11))
    chosen = sampled(every, 10)
    counts = {area: sum(mutation.area == area for mutation in chosen) for area in AREAS}
    assert list(counts.values()) == [10, 3, 0, 10, 10]
    assert sampled(every[::-1], 10) == chosen
    assert len(set(chosen)) == len(chosen)


def test_a_change_is_named_by_its_lines() -> None:
    assert change_of(DIFF) == "- return 1\n+ return 2"


@pytest.mark.parametrize(
    ("tested", "equivalent", "survivors", "share"),
    [
        pytest.param(100, 0, 8, Fraction(92, 100), id="some-survive"),
        pytest.param(100, 20, 8, Fraction(9, 10), id="equivalent-ones-do-not-count"),
        pytest.param(0, 0, 0, Fraction(1), id="none"),
    ],
)
def test_the_share_is_of_mutations_that_change_behaviour(
    tested: int, equivalent: int, survivors: int, share: Fraction
) -> None:
    assert AreaResult("pricing", tested, equivalent, [""] * survivors).share == share


def test_every_listed_survivor_has_a_reason() -> None:
    assert all(reason.strip() for reason in reasons().values())
