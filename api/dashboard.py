"""Serve the dashboard: its files at / and /dashboard/{file}, its login at /dashboard/session, and `first_run`.

These routes belong to the page and not to the API, so the OpenAPI description does not name them.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Annotated, Final

import msgspec

from chainfolio.api.admission import limited
from chainfolio.api.auth import COOKIE, HEADER, session_of, unauthorized
from chainfolio.api.context import Answer, Context
from chainfolio.api.errors import Problem
from chainfolio.api.first_run import ROUTES as FIRST_RUN
from chainfolio.api.router import Route, get, write
from chainfolio.storage.state.sessions import SESSION_US, TooManySessions

TAG: Final = "Dashboard"
MAX_KEY: Final = 512
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {"Cache-Control": "no-cache", "Content-Security-Policy": POLICY}
_KINDS: Final = {"css": "text/css", "html": "text/html", "js": "text/javascript", "svg": "image/svg+xml"}


Token = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KEY)]


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An API key that a person typed, or the token of a link that works once."""

    key: Token | None = None
    link: Token | None = None


@get("/", tag=TAG, summary="The dashboard", public=True, media="text/html")
async def dashboard_page(request: Context) -> Answer:
    """Returns the page, which loads nothing from other servers."""
    return _file("index.html")


@get("/dashboard/{file}", tag=TAG, summary="A file of the dashboard", public=True, media="text/javascript")
async def dashboard_file(request: Context) -> Answer:
    """Returns a script or style of the page."""
    return _file(request.http.match["file"])


@write("POST", "/dashboard/session", tag=TAG, summary="Log in", public=True)
async def log_in(request: Context, body: Login) -> Answer:
    """Begins a session of the account that a key or link belongs to.

    As `link`, only a link is accepted: an address that somebody sends around logs nobody in by an ordinary key.
    """
    _check_origin(request)
    given = body.key if body.link is None else body.link
    if given is None or None not in (body.key, body.link):
        raise Problem(400, "either `key` or `link` is needed")
    try:
        token = await request.parts.state.open_session(given, link=body.link is not None)
    except TooManySessions as error:
        raise limited(f"{error}; try again in {error.wait_s} s", error.wait_s) from error
    if token is None:
        raise unauthorized("this key is not valid, or this link was used or is older than ten minutes")
    request.headers["Set-Cookie"] = _cookie(request, token, SESSION_US // 1_000_000)
    return Answer(b"", 204)


@write("DELETE", "/dashboard/session", tag=TAG, summary="Log out", public=True)
async def log_out(request: Context) -> Answer:
    """Ends the session of the cookie."""
    _check_origin(request)
    if token := session_of(request.http):
        await request.parts.state.close_session(token)
    request.headers["Set-Cookie"] = _cookie(request, "", 0)
    return Answer(b"", 204)


ROUTES: Final[tuple[Route, ...]] = (dashboard_page, dashboard_file, log_in, log_out, *FIRST_RUN)


def _check_origin(request: Context) -> None:
    """Raise a 403 Problem for a request that another site may have sent."""
    headers = request.http.headers
    if HEADER not in headers or headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        raise Problem(403, f"only the dashboard's own page logs in and out: the header {HEADER} is missing")


def _cookie(request: Context, token: str, age_s: int) -> str:
    """Return the Set-Cookie header: no script reads the cookie, and no other site makes a browser send it."""
    secure = "; Secure" if request.http.headers.get("X-Forwarded-Proto") == "https" else ""
    return f"{COOKIE}={token}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}"


def _file(name: str) -> Answer:
    """Return a file of the page; raise a 404 Problem for other names."""
    answer = _files().get(name)
    if answer is None:
        raise Problem(404, "the dashboard has no such file")
    return answer


@cache
def _files() -> dict[str, Answer]:
    """Return the answers with the files of the page, by name."""
    folder = resources.files("chainfolio.dashboard") / "static"
    files = [each for part in (folder, folder / "vendor") for each in part.iterdir() if each.is_file()]
    return {
        each.name: Answer(each.read_bytes(), 200, kind, _HEADERS)
        for each in files
        if (kind := _KINDS.get(each.name.rpartition(".")[2]))
    }
