"""HTTP reads of price sources, on a real server: what comes back, and every way in which nothing does."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from chainfolio.environment import Environment
from chainfolio.plans import Unknown
from chainfolio.pricing.http_reads import Http, HttpGet
from tests.pricing.server import Server, serving

SECRET = "k3y-of-mine"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as running:
        yield running


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    transport = Http(Environment(), timeout_s=0.3, max_body_bytes=4000, max_rps=1000)
    yield transport
    await transport.close()


async def test_a_body_comes_back_as_it_is_and_a_key_is_sent_and_not_shown(server: Server, http: Http) -> None:
    read = HttpGet(f"{server.url}/price", (("ids", "ether"),), (("X-Key", SECRET),))
    assert await http.read([read]) == [b'{"asked": {"ids": "ether"}}']
    assert server.requests[0].headers["X-Key"] == SECRET
    assert SECRET not in repr(read) + str(read.label)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/gone", "127.0.0.1 answered with status 503: it is asked again with the next answer"),
        ("/away", "127.0.0.1 answered with status 302"),
        ("/long", "127.0.0.1 answered more than 4,000 bytes"),
        ("/slow", "127.0.0.1 gave no answer within 0.3 s"),
    ],
)
async def test_what_is_no_answer_is_unknown_with_a_reason_and_spoils_no_other(
    server: Server, http: Http, path: str, reason: str
) -> None:
    bad, good = await http.read([HttpGet(f"{server.url}{path}?key={SECRET}"), HttpGet(f"{server.url}/price")])
    assert bad == Unknown(reason)
    assert good == b'{"asked": {}}'
    assert sorted(each.path for each in server.requests) == sorted([path, "/price"])  # a redirect is not followed


@pytest.mark.parametrize("url", ["ftp://host/x", "price", "http://", "http://[half"])
async def test_what_is_no_web_address_is_not_asked(http: Http, url: str) -> None:
    (result,) = await http.read([HttpGet(url)])
    assert isinstance(result, Unknown)
    assert http.requests == 0


async def test_a_host_is_asked_no_more_often_than_its_rate(server: Server) -> None:
    waited: list[float] = []

    class Clock:
        def now_us(self) -> int:
            return 0

        def monotonic_s(self) -> float:
            return 7.0

        async def sleep(self, seconds: float) -> None:
            waited.append(seconds)

    http = Http(Environment(clock=Clock()), max_rps=2)
    await http.read([HttpGet(f"{server.url}/price", (("n", str(n)),)) for n in range(4)])
    await http.close()
    assert sorted(waited) == [0.5, 1.0, 1.5]
