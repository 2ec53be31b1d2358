"""What strangers send changes no trusted number and no completeness, and its work is bounded, on every kind."""

from __future__ import annotations

import asyncio
import os
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chains.dust import DustKind
from tests.evm.dust import EVM

KINDS: Final[dict[str, DustKind]] = {"evm": EVM}
MIXES: Final = 10_000 if os.environ.get("CHAINFOLIO_TESTS") == "deep" else 15
MAX_ASSETS: Final = 300  # of one behaviour
MAX_ISSUES: Final = 12  # that floods of hostile assets add


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_assets_change_nothing_trusted(kind: str) -> None:
    subject = KINDS[kind]
    clean = asyncio.run(subject.read({}))
    counts = st.integers(0, 20) | st.integers(0, MAX_ASSETS)

    @settings(max_examples=MIXES, deadline=None)
    @given(st.dictionaries(st.sampled_from(sorted(subject.behaviours)), counts))
    def changes_nothing(mix: dict[str, int]) -> None:
        dusty, allowed = asyncio.run(subject.read(mix)), subject.allowance(sum(mix.values()))
        assert dusty.trusted == clean.trusted
        assert dusty.is_complete == clean.is_complete
        assert dusty.issue_count <= clean.issue_count + MAX_ISSUES * len(mix)
        assert dusty.work.requests <= clean.work.requests + allowed.requests
        assert dusty.work.gas <= clean.work.gas + allowed.gas

    assert clean.is_complete
    changes_nothing()
