"""Files over HTTP: complete or refused with a status, and paid by the page."""

from __future__ import annotations

import asyncio
import base64
import csv
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from aiohttp import ClientSession
from msgspec import structs

from chainfolio.api.export_slots import MAX_EXPORTS, MAX_PER_ACCOUNT, MAX_WAITING, ExportSlots
from chainfolio.assets import Account
from chainfolio.engine.results import ListPosition, TransactionFilter, TransactionsPage
from chainfolio.errors import Unavailable
from chainfolio.portfolio.transactions import Transactions
from tests.api.conftest import Ask
from tests.api.fakes import ALICE, KEY, FakeEngine, FakeKeys
from tests.exports.samples import HOSTILE, asset, transaction

PATH = f"/v1/export/transactions?addresses={ALICE}"
PAGE = 250


@dataclass
class PagedEngine(FakeEngine):
    """An engine with some pages of transactions."""

    pages: int = 3

    async def transactions(self, accounts: Sequence[Account], request: TransactionFilter) -> TransactionsPage:
        await self._record_call("transactions", accounts, request)
        number = request.offset // PAGE
        transfer = structs.replace(asset("1.5"), symbol=HOSTILE)
        rows = tuple(transaction(transfer, number=number * PAGE + each) for each in range(PAGE))
        end = ListPosition(request.offset + PAGE, (0, 0, 0, "", "", ""))
        return TransactionsPage(Transactions(rows), end if number + 1 < self.pages else None)


@pytest.fixture
def engine() -> FakeEngine:
    return PagedEngine()


def digest_of(body: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"


async def test_a_file_has_its_length_and_digest_and_costs_a_credit_for_each_page(ask: Ask, keys: FakeKeys) -> None:
    answer = await ask(PATH)
    body = await answer.read()
    assert (answer.status, answer.headers["Content-Type"].partition(";")[0]) == (200, "text/csv")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="transactions.csv"'
    assert int(answer.headers["Content-Length"]) == len(body)
    assert answer.headers["Repr-Digest"] == digest_of(body)
    assert answer.headers["Chainfolio-Completeness"] == "complete"
    rows = [*csv.DictReader(body.decode().splitlines())]
    assert len(rows) == int(answer.headers["Chainfolio-Rows"]) == 3 * PAGE
    assert not any(cell and cell[0] in "=+@" for row in rows for cell in row.values())
    assert [kind for _, kind in keys.meter.settled] == ["post"] * 3
    as_json = await ask(f"{PATH}&format=json")
    assert as_json.headers["Chainfolio-Data-Digest"] == answer.headers["Chainfolio-Data-Digest"]


async def test_http_1_0_gets_the_length_too(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {PATH} HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    assert len(body) == int(headers["Content-Length"])
    assert headers["Repr-Digest"] == digest_of(body)


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_a_client_that_leaves_pays_nothing(port: int, keys: FakeKeys, engine: PagedEngine) -> None:
    engine.pages = 60
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.abort()
    async with asyncio.timeout(20):
        while len(keys.meter.settled) < 60:  # noqa: ASYNC110 (the server sets no event)
            await asyncio.sleep(0.02)
    assert {kind for _, kind in keys.meter.settled} == {"void"}


async def test_an_export_without_credits_for_the_next_page_is_402_and_free(
    ask: Ask, keys: FakeKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit, count = keys.meter.admit, 0

    async def poor(request: Any) -> Any:
        nonlocal count
        count += 1
        admitted = await admit(request)
        return admitted if count < 3 else structs.replace(admitted, reservation=None, available=0)

    monkeypatch.setattr(keys.meter, "admit", poor)
    answer = await ask(PATH)
    assert answer.status == 402
    assert {kind for _, kind in keys.meter.settled} == {"void"}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/v1/export/nothing?addresses={ALICE}", 400),
        (f"{PATH}&format=exe", 400),
        (f"/v1/export/holdings?addresses={ALICE}&format=koinly", 400),
        (f"{PATH}&block=5", 400),
        (f"{PATH}&startDate=2026-13-01", 400),
        (f"{PATH}&startDate=2026-01-02&endDate=2026-01-01", 400),
        (f"/v1/export/approvals?addresses={ALICE}", 501),
    ],
)
async def test_what_is_wrong_has_a_status_and_costs_nothing(ask: Ask, keys: FakeKeys, path: str, status: int) -> None:
    assert (await ask(path)).status == status
    assert "post" not in {kind for _, kind in keys.meter.settled}


async def test_head_gets_the_head_alone(client: ClientSession, ask: Ask) -> None:
    answer = await ask(PATH, "HEAD")
    assert (answer.status, await answer.read()) == (200, b"")
    assert "Repr-Digest" in answer.headers


async def test_statements_are_made_one_at_a_time_and_too_many_exports_are_refused() -> None:
    slots, running, peak = ExportSlots(), 0, 0
    release = asyncio.Event()

    async def export(is_statement: bool, account: int) -> None:
        nonlocal running, peak
        async with slots.slot(f"acc_{account}", is_statement=is_statement):
            running += 1
            peak = max(peak, running)
            await release.wait()
            running -= 1

    statements = [asyncio.create_task(export(True, 1)) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert peak == 1
    files = [asyncio.create_task(export(False, 2 + each)) for each in range(MAX_EXPORTS + MAX_WAITING - 3)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert peak == MAX_EXPORTS
    with pytest.raises(Unavailable):
        await export(False, 99)
    release.set()
    await asyncio.gather(*statements, *files)
    async with slots.slot("acc_1", is_statement=True):
        assert running == 0


async def test_an_account_cannot_take_all_places() -> None:
    slots, release = ExportSlots(), asyncio.Event()

    async def export(account: str) -> None:
        async with slots.slot(account, is_statement=False):
            await release.wait()

    tasks = [asyncio.create_task(export("acc_1")) for _ in range(MAX_PER_ACCOUNT)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        async with asyncio.timeout(5):  # a place that is given would be waited for
            await export("acc_1")
    other_task = asyncio.create_task(export("acc_2"))
    release.set()
    await asyncio.gather(*tasks, other_task)
    await export("acc_1")


async def test_holdings_at_a_block_need_what_the_route_of_them_needs(ask: Ask, keys: FakeKeys) -> None:
    path = f"/v1/export/holdings?addresses={ALICE}&block=5&chain"
    assert (await ask(f"{path}=nowhere")).status == 400
    assert (await ask(f"{path}=ethereum")).status == 501, "no chain is configured"
    keys.keys[KEY] = replace(keys.keys[KEY], grants=frozenset({"portfolio"}))
    response = await ask(f"{path}=ethereum")
    assert response.status == 401, await response.text()
    assert "Portfolio at Block" in (await response.json())["message"]
