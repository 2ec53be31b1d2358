"""Hostile assets change no trusted number and no completeness, and their work is bounded, on every kind."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainfolio.engine.snapshots.trust import MAX_REASONS
from tests.chains.dust import DustKind, counted_turns
from tests.depth import IS_DEEP
from tests.evm.dust import EVM
from tests.solana.dust import SOLANA
from tests.starknet.dust import STARKNET
from tests.tron.dust import TRON

KINDS: Final[dict[str, DustKind]] = {"evm": EVM, "solana": SOLANA, "starknet": STARKNET, "tron": TRON}
MIXES: Final = 2_500 if IS_DEEP else 15  # of each kind
PATIENCE_S: Final = 0 if IS_DEEP else 300  # 0: no bound, because the deep mixes of a kind take an hour
MAX_ASSETS: Final = 300  # of one behaviour
MAX_ISSUES: Final = 3 * (MAX_REASONS + 1)  # that floods add: balances, protocols and the kind itself have their own


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_assets_change_nothing_trusted(kind: str) -> None:
    subject = KINDS[kind]
    with counted_turns(subject.node) as clean_turns:
        clean = asyncio.run(subject.read({}))
    counts = st.integers(0, 20) | st.integers(0, MAX_ASSETS)

    @settings(max_examples=MIXES, deadline=None)
    @given(st.dictionaries(st.sampled_from(sorted(subject.behaviours)), counts))
    def changes_nothing(mix: dict[str, int]) -> None:
        with counted_turns(subject.node) as turns:
            dusty, allowed = asyncio.run(subject.read(mix)), subject.allowance(sum(mix.values()))
        assert dusty.trusted == clean.trusted
        assert dusty.is_complete == clean.is_complete
        assert dusty.issue_count <= clean.issue_count + MAX_ISSUES
        assert dusty.work.requests <= clean.work.requests + allowed.requests
        assert turns.count <= clean_turns.count + allowed.turns
        assert dusty.work.gas <= clean.work.gas + allowed.gas

    assert clean.is_complete
    changes_nothing()
