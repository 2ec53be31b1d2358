"""Webhooks go to public addresses, or to those that the operator allows; no receiver can hold one up."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.errors import BadRequest, BadSettings
from chainfolio.transport.reachable import Forbidden, Reachable, check_url
from tests.alerts.receivers import desk, receiver

PRIVATE = (
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "fe80::1",
    "fec0::1",
    "feff::1",
    "fe80::1%eth0",
    "fc00::1",
    "ff02::1",
    "2001:db8::1",
    "2001:0:7f00:1::",
    "no address",
)


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_not_connected_to(address: str) -> None:
    assert not Reachable([]).allows(address)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with pytest.raises(Forbidden):
        Reachable([]).new_socket((family, socket.SOCK_STREAM, 6, "", (address, 443)))


def test_public_and_allowed_addresses_are_connected_to() -> None:
    assert all(Reachable([]).allows(each) for each in ("1.1.1.1", "2606:4700::1111", "64:ff9b::101:101"))
    reachable = Reachable(["10.1.0.0/16", "fd00::/8", "192.168.1.7", "Hooks.internal"])
    assert all(reachable.allows(each) for each in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::7", "192.168.1.7"))
    assert not any(reachable.allows(each) for each in ("10.2.0.1", "192.168.1.8", "fe80::1"))
    assert reachable.names("hooks.INTERNAL.")
    assert not reachable.names("evil-hooks.internal")


@pytest.mark.parametrize("entry", ["10.0.0.0/33", "http://x", "a b", "10.0.0.1/8"])
def test_a_host_that_is_none_is_refused(entry: str) -> None:
    with pytest.raises(BadSettings, match="allow_hosts"):
        Reachable([entry])


@given(st.ip_addresses())
def test_no_private_address_is_ever_allowed(address: Any) -> None:
    if address.is_private or address.is_loopback or address.is_link_local or address.is_multicast:
        assert address.is_global or not Reachable([]).allows(str(address))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://x/",
        "http://",
        "http:///x",
        "file:/etc/passwd",
        "http://u:p@x/",
        "http://x/#f",
        "http://x:99999/",
        "http://a b/",
        "http://x/\n",
        "http://x/" + "y" * 2000,
    ],
)
def test_a_url_of_no_webhook_is_refused(url: str) -> None:
    with pytest.raises(BadRequest):
        check_url(url)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]"]
)
async def test_no_spelling_of_this_machine_is_reached(tmp_path: Path, host: str) -> None:
    async with receiver() as receiving, desk(tmp_path, ()) as at:
        rule = at.rule(receiving.url.replace("127.0.0.1", host))
        at.add_events(rule)
        await at.deliverer.run_once()
        assert receiving.requests == []
        (event,) = at.deliveries_of(rule)
        assert (event.state, event.attempts) == ("pending", 1)
        # The client itself refuses numbers that are no address of four parts in decimals.
        assert event.error in ("the host has a private address", "failed (InvalidUrlClientError)")


async def test_a_name_that_resolves_to_this_machine_the_second_time_is_not_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with receiver() as receiving, desk(tmp_path, ("192.0.2.0/24",)) as at:
        answers = iter(["192.0.2.1", *["127.0.0.1"] * 9])
        hosts = []

        async def resolve(host: str, port: int, **_: object) -> list[Any]:
            hosts.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        rule = at.rule(receiving.url.replace("127.0.0.1", "rebinding.example"))
        at.add_events(rule)
        for timeout_s in (0.5, 20):  # nothing answers at the first address
            at.deliverer.sender.timeout_s = timeout_s
            await at.deliverer.run_once()
            at.clock.now_s += 3600
        assert hosts == ["rebinding.example"] * 2
        assert receiving.requests == []
        assert at.deliveries_of(rule)[0].error == "the host has a private address"


async def test_a_named_host_is_reached_at_any_address(tmp_path: Path) -> None:
    async with receiver() as receiving, desk(tmp_path, ("localhost",)) as at:
        rule = at.rule(receiving.url.replace("127.0.0.1", "localhost"))
        at.add_events(rule)
        await at.deliverer.run_once()
        assert len(receiving.requests) == 1


async def hanging(_: web.BaseRequest) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


async def endless(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"x" * 65536)


async def dripping(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"x")
        await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("conduct", "state", "error"),
    [(hanging, "pending", "no answer within 2 s"), (dripping, "done", ""), (endless, "done", "")],
    ids=["hangs", "drips", "endless"],
)
async def test_a_receiver_holds_nothing_up(tmp_path: Path, conduct: Any, state: str, error: str) -> None:
    async with (
        receiver(conduct) as receiving,
        receiver() as other_receiver,
        desk(tmp_path, timeout_s=2 if error else 30) as at,
    ):
        rule, second = at.rule(receiving.url), at.rule(other_receiver.url)
        at.add_events(rule)
        at.add_events(second, 3)
        async with asyncio.timeout(20):
            await at.deliverer.run_once()
        (event,) = at.deliveries_of(rule)
        assert (event.state, event.error) == (state, error)
        assert len(other_receiver.requests) == 3


@pytest.mark.parametrize("status", [301, 302, 307, 400, 404, 429, 500, 503])
async def test_no_other_status_than_2xx_is_a_delivery_and_no_redirect_is_followed(tmp_path: Path, status: int) -> None:
    async with receiver() as target:

        async def answers(_: web.BaseRequest) -> web.StreamResponse:
            return web.Response(status=status, headers={"Location": target.url, "Retry-After": "1e99"})

        async with receiver(answers) as receiving, desk(tmp_path) as at:
            rule = at.rule(receiving.url)
            at.add_events(rule)
            await at.deliverer.run_once()
            (event,) = at.deliveries_of(rule)
            assert (event.state, event.status, event.error) == ("pending", status, f"answered {status}")
            assert target.requests == []
