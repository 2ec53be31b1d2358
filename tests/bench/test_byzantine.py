"""The benchmark of byzantine nodes in short: with a quorum all answers are right, without one some are wrong, so
seen."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.byzantine import LIES, Trial
from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import trade

RECEIPT = {"status": "0x1", "gasUsed": "0x5", "logs": [{"data": "0x12"}]}
LOG = {"data": "0x" + "12" * 32, "transactionHash": "0x1", "topics": ["0x1", "0x2"]}
ANSWERS: dict[str, Any] = {
    "eth_getBalance": "0x5",
    "eth_call": "0x" + "12" * 64,
    "eth_getLogs": [LOG, LOG],
    "eth_getBlockReceipts": [RECEIPT],
}


@pytest.mark.parametrize("method", ANSWERS)
def test_each_lie_is_one(method: str) -> None:
    chance = random.Random(5)
    lies = [LIES[method](chance, ANSWERS[method]) for _ in range(50)]
    assert sum(lie != ANSWERS[method] for lie in lies) > 40


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    with LocalNode() as node:
        deployment = deploy(node)
        trade(node, deployment, 60)
        trial = Trial(node, deployment, Path(tmp_path_factory.mktemp("byzantine")))
        asyncio.run(trial.read_truth())
        yield trial


@pytest.mark.slow("the whole benchmark; tests/evm/test_quorum.py outvotes one of three nodes")
@pytest.mark.node
async def test_of_three_one_may_lie_and_nothing_is_wrong(trial: Trial) -> None:
    outcome = await trial.run(4_000)
    assert sum(outcome.wrong.values()) == 0
    assert sum(outcome.lies.values()) > 10
    assert outcome.quarantines
    assert outcome.innocent == 0


@pytest.mark.node
async def test_whoever_trusts_one_node_without_a_look_is_lied_to(trial: Trial) -> None:
    outcome = await trial.run(4_000, quorum=1, integrity="off")
    assert sum(outcome.wrong.values()) > 10
