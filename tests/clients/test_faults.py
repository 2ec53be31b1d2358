"""The Python client at refusals, cut connections and strange answers, with and without an event loop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.api.fakes import ALICE
from tests.clients.calling import KINDS, Caller, raises
from tests.clients.scripted import HANG, Scripted, answer, scripted

LIMITED = '{"error":"Rate limit exceeded","message":"slow down","retryAfter":7,"retry_after":7}'
CREDITS = answer(200, "8777")
EVENT = 'id: %s\nevent: status\ndata: [{"address":"%s","portfolioLastSync":null,"transactionsLastSync":null,%s}]\n\n'
QUIET = '"syncInProgress":false,"completeness":"complete","issues":[]'
NAV = '{"nav":%s,"currency":"USD","conversionPrice":%s,"unpricedAssets":0,"completeness":"complete","issues":[]}'
TOKEN = '[{"image":"","symbol":"A","name":"A","price":%s,"balance":"0.000000000000000001",'
TOKEN += '"value":"1","percentage":"1","protocolsDetailed":[],"new":1}]'
Asking = Any  # a function that opens a client of a scripted server


@pytest.fixture(params=KINDS)
def open_caller(package: Any, request: pytest.FixtureRequest) -> Asking:
    @asynccontextmanager
    async def opened(*answers: bytes, **options: Any) -> AsyncIterator[tuple[Caller, Scripted]]:
        kind = request.param
        async with (
            scripted(answers) as server,
            Caller(package, kind, server.url, "cf_live_k", random=Random(1), **options) as caller,
        ):
            yield caller, server

    return opened


async def test_a_retry_waits_as_long_as_the_server_says(open_caller: Asking) -> None:
    busy = answer(503, '{"error":"Not Indexed","message":"later"}', Retry_After="60")
    async with open_caller(answer(429, LIMITED, Retry_After="7"), busy, CREDITS) as (caller, server):
        assert await caller.call("credits") == 8777
        assert caller.waits == [7, 60]
        assert len(server.requests) == 3


async def test_a_date_says_how_long_to_wait(open_caller: Asking) -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    past = format_datetime(datetime.now(UTC) - timedelta(seconds=30), usegmt=True)
    async with open_caller(*(answer(503, Retry_After=each) for each in (soon, past, "soon")), CREDITS) as (caller, _):
        assert await caller.call("credits") == 8777
        first, second, third = caller.waits
        assert 0 < first <= 30
        assert second == 0
        assert 0.5 <= third <= 2, "a text that is neither counts as none"


async def test_waits_without_an_order_double_and_end(open_caller: Asking, package: Any) -> None:
    async with open_caller(answer(503, "{}")) as (caller, server):
        with raises(package.errors.Unavailable):
            await caller.call("credits")
        assert len(server.requests) == 5
        bounds = [(0.25, 0.5), (0.5, 1), (1, 2), (2, 4)]
        assert all(low <= wait <= high for wait, (low, high) in zip(caller.waits, bounds, strict=True))


async def test_a_wait_beyond_the_limit_is_left_to_the_caller(open_caller: Asking, package: Any) -> None:
    async with open_caller(answer(429, LIMITED, Retry_After="61")) as (caller, server):
        with raises(package.errors.RateLimited) as errors:
            await caller.call("credits")
        assert (errors[0].retry_after_s, len(server.requests), caller.waits) == (61, 1, [])
    async with open_caller(answer(429, LIMITED, Retry_After="61"), CREDITS, retry=package.Retry(max_wait_s=61)) as (
        caller,
        _,
    ):
        assert await caller.call("credits") == 8777


@pytest.mark.parametrize("status", [400, 402, 409, 422, 500, 501, 502, 307])
async def test_other_refusals_are_not_repeated(open_caller: Asking, package: Any, status: int) -> None:
    async with open_caller(answer(status, "the log has it", Location="http://127.0.0.1:9/elsewhere")) as (
        caller,
        server,
    ):
        with pytest.raises(package.ApiError) as caught:
            await caller.call("credits")
        assert (caught.value.status, caught.value.message, caught.value.body) == (status, "the log has it", {})
        assert len(server.requests) == 1


@pytest.mark.parametrize("cut", [b"", answer(200, '{"data":', length=50)], ids=["no answer", "half an answer"])
async def test_a_change_that_is_sent_again_has_the_same_key(open_caller: Asking, cut: bytes) -> None:
    async with open_caller(cut, answer(200, '{"data":[]}')) as (caller, server):
        assert (await caller.call("add_entries", entries=[{"address": ALICE}])).data == []
        first, second = server.headers("Idempotency-Key")
        assert first == second != ""
        assert json.loads(server.requests[1].partition("\r\n\r\n")[2]) == {"entries": [{"address": ALICE}]}


@pytest.mark.parametrize("hang", [HANG, answer(200, "87", length=4) + HANG], ids=["no answer", "half an answer"])
async def test_a_server_that_is_silent_is_left(open_caller: Asking, package: Any, hang: bytes) -> None:
    async with open_caller(hang, timeout_s=0.2, retry=package.Retry(attempts=1)) as (caller, _):
        with raises(package.ConnectionFailed) as errors:
            await caller.call("credits")
        assert "Timeout" in str(errors[0])


async def test_a_connection_that_never_works_is_one_error(open_caller: Asking, package: Any) -> None:
    async with open_caller(b"", retry=package.Retry(attempts=2)) as (caller, server):
        with raises(package.ConnectionFailed) as errors:
            await caller.call("credits")
        assert str(errors[0]).startswith("GET /v1/credits: RemoteProtocolError: ")
        assert len(server.requests) == 2


async def test_a_header_that_cannot_be_sent_is_a_wrong_argument(open_caller: Asking) -> None:
    async with open_caller(CREDITS) as (caller, server):
        for value in ("Zoë", "ann\r\nX-Other: 1"):
            with raises(ValueError):
                await caller.call("addressbook", delegate_for=value)
        assert server.requests == []


async def test_deep_answers_are_errors_of_the_client(open_caller: Asking, package: Any) -> None:
    deep = '{"error":' * 200_000
    async with open_caller(answer(500, deep), answer(200, '{"data":' + "[" * 200_000)) as (caller, _):
        with raises(package.ApiError) as errors:
            await caller.call("credits")
        assert (errors[0].status, errors[0].body) == (500, {})
        with raises(package.InvalidAnswer):
            await caller.call("add_entries", entries=[{"address": ALICE}])


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.iterdir()]


async def test_a_file_that_is_cut_is_no_file(open_caller: Asking, package: Any, tmp_path: Path) -> None:
    async with open_caller(answer(200, b"a,b\n1,2\n", length=99), answer(200, b"a,b\n")) as (caller, server):

        async def save(path: Path) -> None:
            context = caller.client.export_file("holdings", ALICE, format="csv")
            if isinstance(context, AbstractAsyncContextManager):
                async with context as download:
                    await download.save(path)
                return

            def work() -> None:
                with context as download:
                    download.save(path)

            await caller.run(work)

        with raises(package.ConnectionFailed):
            await save(tmp_path / "cut.csv")
        assert contents(tmp_path) == []
        (tmp_path / "whole.csv.part").write_bytes(b"a file of the user")
        await save(tmp_path / "whole.csv")
        assert sorted(contents(tmp_path)) == [b"a file of the user", b"a,b\n"]
        assert len(server.requests) == 2, "a file that began is not asked for again"


async def first_events(caller: Caller, count: int) -> list[Any]:
    stream = caller.client.events([ALICE])
    if caller.is_async:
        events = [await anext(stream) for _ in range(count)]
        await stream.aclose()
        return events

    def work() -> list[Any]:
        events = [next(stream) for _ in range(count)]
        stream.close()
        return events

    found: list[Any] = await caller.run(work)
    return found


async def test_a_stream_that_is_cut_goes_on_after_its_last_event(open_caller: Asking) -> None:
    stream = "text/event-stream"
    first = "retry: 2000\n\n" + EVENT % ("a1", ALICE, QUIET) + 'id: b2\nevent: status\ndata: [{"addr'
    second = ":\n\n" + EVENT % ("b2", ALICE, QUIET.replace("false", "true"))
    cut = answer(200, first, length=9_999, Content_Type=stream)
    async with open_caller(cut, answer(503, "{}", Retry_After="3"), answer(200, second, Content_Type=stream)) as (
        caller,
        server,
    ):
        events = await first_events(caller, 2)
        assert [(event.id, event.event, event.data[0].sync_in_progress) for event in events] == [
            ("a1", "status", False),
            ("b2", "status", True),
        ]
        assert server.headers("Last-Event-ID") == ["", "a1", "a1"]
        assert caller.waits == [2, 3]


async def test_a_stream_of_another_kind_and_a_refused_one_end(open_caller: Asking, package: Any) -> None:
    async with open_caller(answer(200, "[]", Content_Type="application/json")) as (caller, _):
        with raises(package.InvalidAnswer):
            await first_events(caller, 1)
    async with open_caller(answer(401, '{"message":"no"}')) as (caller, server):
        with raises(package.errors.Unauthorized):
            await first_events(caller, 1)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "number",
    ["24404277.520000000000000000000000000000000000000001", "1e-30", "0", "115792089237316195423570985008687907"],
)
async def test_numbers_are_read_to_the_last_digit(open_caller: Asking, number: str) -> None:
    async with open_caller(answer(200, NAV % (number, "0.1"))) as (caller, _):
        value = await caller.call("nav", addresses=[ALICE])
        assert (value.nav, value.conversion_price) == (Decimal(number), Decimal("0.1"))
        assert type(value.nav) is Decimal


async def test_an_unknown_number_is_none_and_never_zero(open_caller: Asking) -> None:
    async with open_caller(answer(200, TOKEN % '"N/A"')) as (caller, _):
        (token,) = await caller.call("token_overview", addresses=[ALICE], date="2026-03-01")
        assert (token.price, token.balance) == (None, Decimal("1e-18"))


@pytest.mark.parametrize("price", ['"NaN"', '"Infinity"', '""', '"1,5"', "1.5", "{}"])
async def test_a_text_that_is_no_number_is_an_error(open_caller: Asking, package: Any, price: str) -> None:
    async with open_caller(answer(200, TOKEN % price)) as (caller, _):
        with raises(package.InvalidAnswer) as errors:
            await caller.call("token_overview", addresses=[ALICE], date="2026-03-01")
        assert "price" in str(errors[0])


async def test_what_a_page_lacks_is_an_issue_of_the_list(open_caller: Asking) -> None:
    page = '{"cursor":%s,"pageSize":1,"items":[],"issues":[{"adapter":"a","subject":"s","reason":"%s"}]}'
    full_page = answer(200, '{"cursor":null,"pageSize":1,"items":[]}')
    async with open_caller(
        answer(200, page % ('"x"', "no node")), answer(200, page % ("null", "no price")), full_page
    ) as (
        caller,
        _,
    ):
        pages = caller.client.approvals("ethereum", [ALICE])
        for reasons in (["no node", "no price"], []):
            items = [item async for item in pages] if caller.is_async else await caller.run(lambda: list(pages))
            assert (items, [issue.reason for issue in pages.issues]) == ([], reasons)


async def test_pages_that_lead_back_to_themselves_are_an_error(open_caller: Asking, package: Any) -> None:
    page = answer(200, '{"cursor":"x","pageSize":1,"items":[]}')
    async with open_caller(page) as (caller, server):
        with raises(package.InvalidAnswer):
            await caller.call("approvals", chain="ethereum", addresses=[ALICE])
        assert len(server.requests) == 2
