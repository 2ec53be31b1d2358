"""Processes of ours run on uvloop, and leave the garbage collector as they found it."""

from __future__ import annotations

import asyncio
import gc

import pytest
import uvloop

from chainfolio.loop import THRESHOLD, run_until_done


async def _loop_and_threshold() -> tuple[type, tuple[int, int, int]]:
    return type(asyncio.get_running_loop()), gc.get_threshold()


def test_work_runs_on_the_fast_loop_and_is_seldom_collected() -> None:
    before = gc.get_threshold()
    assert run_until_done(_loop_and_threshold()) == (uvloop.Loop, THRESHOLD)
    assert gc.get_threshold() == before != THRESHOLD


def test_the_collector_is_as_it_was_after_a_failure() -> None:
    async def fails() -> None:
        raise ValueError("work")

    before = gc.get_threshold()
    with pytest.raises(ValueError, match="work"):
        run_until_done(fails())
    assert gc.get_threshold() == before
