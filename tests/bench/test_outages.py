"""`bench.outages`: its audit counts wrong charges; killed processes lose no row and charge nothing wrong."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from bench.balancer import Call, Record, charges
from bench.outages import FOLLOWED, QUEUED, STORE, Services, Trial, measured
from chainfolio.environment import SystemClock
from chainfolio.localchain.node import LocalNode
from chainfolio.storage.state import State
from chainfolio.storage.state.meter_transaction import AdmissionRequest
from tests.storage.s3_server import S3
from tests.storage.stores import NO_POSTGRES, own_server


async def test_charges_that_do_not_fit_the_answers_are_counted(tmp_path: Path) -> None:
    state = State.open(f"sqlite:///{tmp_path}/state.db", bytes(32), SystemClock(), random.Random(1))
    account, token = state.create_account("ann", "PRO", 100, ["portfolio"])
    caller = await state.caller(token)
    assert caller is not None
    record = Record([Call("portfolio", 1, status=status) for status in (200, 200, 0, 200, 503, 200)])

    async def reserve(number: int, end: str, cost: int = 1) -> None:
        request = AdmissionRequest(account.id, caller.key_id, "all", 100, cost, f"call-{number}")
        admission = await state.meter.admit(request)
        assert admission.reservation is not None
        if end:
            await state.meter.settle_reservation(admission.reservation, end)

    for number, end in ((0, "post"), (2, "post"), (3, "post"), (3, "post"), (4, "void"), (5, "")):
        await reserve(number, end)
    audit = await charges(state.database, record, limit_s=0)
    assert (audit.paid, audit.unpaid, audit.unanswered, audit.twice, audit.held) == (3, 2, 1, 1, 1)
    assert audit.wrong == 3
    record.calls[0].cost = 2
    assert (await charges(state.database, record, limit_s=0)).wrong_amounts == 1
    await state.meter.close()
    state.close()


@pytest.mark.node
@pytest.mark.slow("starts, kills and starts again whole servers and workers")
@pytest.mark.timeout(600)
async def test_kills_of_all_processes_lose_no_row_and_charge_nothing_wrong(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    with own_server() as postgres, LocalNode() as node, LocalNode(chain_id=31338) as queued_node:
        if postgres is None:
            pytest.skip(NO_POSTGRES)
        services = Services({FOLLOWED: node, QUEUED: queued_node}, postgres, s3)
        report = await measured(services, tmp_path, Trial(kills=8, clients=4, away_s=5, seed=1))
    assert report.kills.total() >= 8
    assert report.kills[STORE] >= 1
    assert (report.missing, report.doubled, report.wrong) == (Counter(), Counter(), Counter()), "each count is 0"
    assert report.rows > 1000
    assert report.charges.paid > 0
    assert report.charges.wrong == 0, report.charges
