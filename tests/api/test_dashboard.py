"""The dashboard's files and login: headers of pages, and requests that a session's cookie authorises."""

from __future__ import annotations

import re
from typing import Any

import pytest
from aiohttp import ClientSession

from chainfolio.api.auth import COOKIE, HEADER
from chainfolio.storage.state.sessions import TooManySessions
from tests.api.fakes import KEY, FakeKeys

OURS = {HEADER: "1"}


async def test_the_page_and_all_that_it_names_is_served_under_a_strict_policy(client: ClientSession) -> None:
    answer = await client.get("/")
    page = await answer.text()
    policy = answer.headers["Content-Security-Policy"]
    assert (answer.status, answer.content_type) == (200, "text/html")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", page), "nothing inline"
    names = set(re.findall(r'/dashboard/([\w.]+)"', page))
    assert {"main.js", "style.css"} <= names
    for name in names:
        for source in re.findall(r'from "\./([\w.]+)"', await (await client.get(f"/dashboard/{name}")).text()):
            assert (await client.get(f"/dashboard/{source}")).content_type == "text/javascript"
    assert (await client.get("/dashboard/uplot.min.js")).status == 200


@pytest.mark.parametrize("name", ["none.js", "LICENSE", "..", "%2e%2e%2fvendor.toml", "README.md", "vendor"])
async def test_other_files_are_not_served(ask: Any, name: str) -> None:
    assert (await ask(f"/dashboard/{name}")).status == 404


async def test_a_session_answers_requests_of_our_page_only(client: ClientSession) -> None:
    answer = await client.post("/dashboard/session", json={"key": KEY}, headers=OURS)
    cookie = answer.headers["Set-Cookie"]
    assert answer.status == 204
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    cookie_header = {"Cookie": cookie.partition(";")[0]}
    assert (await client.get("/v1/credits", headers={**cookie_header, **OURS})).status == 200
    assert (await client.get("/v1/credits", headers=cookie_header)).status == 401, (
        "a browser adds the cookie to any request"
    )
    crossed = {**cookie_header, **OURS, "Sec-Fetch-Site": "same-site"}
    assert (await client.get("/v1/credits", headers=crossed)).status == 401
    both = {**cookie_header, **OURS, "Authorization": "Bearer cf_live_x"}
    assert (await client.get("/v1/credits", headers=both)).status == 401, "a key that is sent is the one that counts"


async def test_no_other_site_may_send_the_header_of_our_page(client: ClientSession) -> None:
    preflight = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    answer = await client.options("/dashboard/session", headers={**preflight, "Access-Control-Request-Headers": HEADER})
    assert HEADER.lower() not in answer.headers["Access-Control-Allow-Headers"].lower()
    assert "Access-Control-Allow-Credentials" not in answer.headers


@pytest.mark.parametrize(
    "extra_headers", [{}, {**OURS, "Sec-Fetch-Site": "cross-site"}], ids=["no header", "cross-site"]
)
@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_a_login_by_another_site_is_refused(
    client: ClientSession, method: str, extra_headers: dict[str, str]
) -> None:
    body = {"json": {"key": KEY}} if method == "POST" else {}
    answer = await client.request(method, "/dashboard/session", headers=extra_headers, **body)  # type: ignore[arg-type]
    assert answer.status == 403
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"key": "x"}, 401),
        ({"link": "x"}, 401),
        ({"link": KEY}, 401),
        ({"key": ""}, 400),
        ({"link": ""}, 400),
        ({}, 400),
        ({"key": KEY, "link": KEY}, 400),
        ({"key": "a" * 513}, 400),
        ([], 400),
    ],
)
async def test_a_wrong_key_begins_no_session(client: ClientSession, body: object, status: int) -> None:
    answer = await client.post("/dashboard/session", json=body, headers=OURS)
    assert answer.status == status
    assert "Set-Cookie" not in answer.headers


async def test_a_link_begins_a_session(client: ClientSession, keys: FakeKeys) -> None:
    keys.links.add(KEY)
    answer = await client.post("/dashboard/session", json={"link": KEY}, headers=OURS)
    assert answer.status == 204
    assert f"{COOKIE}={KEY}" in answer.headers["Set-Cookie"]


async def test_too_many_logins_are_told_to_wait(client: ClientSession, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise TooManySessions(7)

    monkeypatch.setattr(FakeKeys, "open_session", refuse)
    answer = await client.post("/dashboard/session", json={"key": KEY}, headers=OURS)
    document = await answer.json()
    assert (answer.status, answer.headers["Retry-After"], document["retryAfter"]) == (429, "7", 7)
    assert "try again in 7 s" in document["message"]
    assert "Set-Cookie" not in answer.headers


async def test_a_session_that_ended_says_so(client: ClientSession) -> None:
    answer = await client.get("/v1/credits", headers={"Cookie": f"a=b; {COOKIE}=cf_live_gone", **OURS})
    assert (answer.status, (await answer.json())["message"]) == (401, "the session has ended: log in again")


async def test_logging_out_ends_the_session_and_clears_the_cookie(client: ClientSession, keys: FakeKeys) -> None:
    answer = await client.delete("/dashboard/session", headers={"Cookie": f"{COOKIE}={KEY}", **OURS})
    assert answer.status == 204
    assert answer.headers["Set-Cookie"].startswith(f"{COOKIE}=; Path=/; Max-Age=0")
    assert KEY not in keys.keys


async def test_a_cookie_behind_https_is_secure(client: ClientSession) -> None:
    secure = {**OURS, "X-Forwarded-Proto": "https"}
    answer = await client.post("/dashboard/session", json={"key": KEY}, headers=secure)
    assert answer.headers["Set-Cookie"].endswith("; Secure")
