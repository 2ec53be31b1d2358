"""Answers of routes, and the headers that every answer has."""

from __future__ import annotations

import gzip
from decimal import Decimal
from typing import Any

import pytest
from aiohttp import ClientSession
from structlog.testing import capture_logs

from chainfolio import errors
from chainfolio.api.errors import REMEDIES, SHAPES, Problem, invalid, refusal
from chainfolio.api.nav import number
from chainfolio.api.response_headers import coding_of
from chainfolio.api.routes import ROUTES
from chainfolio.api.status import iso_time
from chainfolio.settings import Server
from tests.api.fakes import ALICE, BOB, KEY, FakeEngine
from tests.api.sessions import client_session
from tests.api.targets import TARGETS, path_of

# Every path, and the methods that it takes.
METHODS = {path_of(route): {each.method for each in ROUTES if each.path == route.path} for route in ROUTES}


def allowed(path: str) -> str:
    """Return the Allow header of a path."""
    methods = METHODS.get(path, {"GET"})
    return ", ".join(sorted({*methods, "OPTIONS", *({"HEAD"} if "GET" in methods else ())}))


# --- bodies ----------------------------------------------------------------------------------------------------------


async def test_one_portfolio_per_address_in_an_array(ask: Any) -> None:
    for path in ("/v1/portfolio", "/v1/wallet"):
        body = await (await ask(f"{path}?addresses={ALICE},{BOB}")).json()
        assert [each["address"] for each in body] == [ALICE, BOB]


async def test_a_net_asset_value_has_every_digit_as_a_number(ask: Any, engine: FakeEngine) -> None:
    engine.value_usd = Decimal("123456789012345678901234567890.000000000000000001")
    answer = await ask(f"/v1/nav?addresses={ALICE}")
    tail = '"currency":"USD","conversionPrice":1,"unpricedAssets":0,"completeness":"complete","issues":[]'
    expected = f'{{"nav":{engine.value_usd},{tail}}}'
    assert await answer.text() == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [("0", "0"), ("-0", "0"), ("1E+3", "1000"), ("1E-9", "0.000000001"), ("1.50", "1.5"), ("-2.5", "-2.5")],
)
def test_a_number_is_never_scientific(value: str, text: str) -> None:
    assert bytes(number(Decimal(value))).decode() == text


async def test_chains_are_sorted_by_name_and_complete(ask: Any) -> None:
    body = await (await ask("/v1/chains")).json()
    assert [chain["name"] for chain in body] == ["Ethereum", "OP Mainnet"]
    assert body[0]["chainId"] == 1
    assert set(body[0]) == {
        "chainId",
        "key",
        "name",
        "symbol",
        "color",
        "imgSmall",
        "imgLarge",
        "explorerTokenUrl",
        "explorerTransactionUrl",
        "explorerAddressUrl",
        "blockscoutExplorerTokenUrl",
        "blockscoutExplorerTransactionUrl",
        "blockscoutExplorerAddressUrl",
        "isPortfolioSupported",
        "isTransactionsSupported",
    }


async def test_status_says_when_and_null_where_never(ask: Any) -> None:
    assert await (await ask(f"/v1/status?addresses={ALICE}")).json() == [
        {
            "address": ALICE,
            "portfolioLastSync": "2023-11-14T22:13:20.123Z",
            "transactionsLastSync": None,
            "syncInProgress": False,
            "completeness": "complete",
            "issues": [],
        }
    ]


def test_a_moment_keeps_three_digits() -> None:
    assert iso_time(0) == "1970-01-01T00:00:00.000Z"
    assert iso_time(1_000_999) == "1970-01-01T00:00:01.000Z"


async def test_readiness_is_a_status_and_a_list(ask: Any, engine: FakeEngine) -> None:
    chain = {
        "key": "ethereum",
        "healthy": True,
        "head": 12,
        "indexed": 10,
        "lagBlocks": 2,
        "reason": None,
        "endpoints": [],
    }
    ready = await ask("/readyz")
    assert (ready.status, await ready.json()) == (
        200,
        {"ready": True, "stopping": False, "chains": [chain], "tasks": []},
    )
    engine.ready = False
    assert (await ask("/readyz")).status == 503
    assert (await ask("/healthz")).status == 200


async def test_the_process_is_healthy_when_its_engine_is_not(ask: Any, engine: FakeEngine) -> None:
    engine.failure = RuntimeError("gone")
    assert (await ask("/healthz")).status == 200
    assert (await ask("/readyz")).status == 500


async def test_equal_answers_are_equal_bytes(ask: Any) -> None:
    first, second = [await (await ask(f"/v1/portfolio?addresses={ALICE}")).read() for _ in range(2)]
    assert first == second


# --- failures --------------------------------------------------------------------------------------------------------

SECRET = "https://node.example/v2/SECRET"
FAILURES = [
    (errors.BadRequest("currency", "has no rate"), 400, "Validation Failed", "has no rate", None),
    (errors.BadSettings("prices", SECRET), 503, "Service Unavailable", "not set up", None),
    (errors.NotIndexed("ethereum", "transfers", 1, 9), 503, "Not Indexed", "transfers of ethereum", "60"),
    (errors.Unavailable(SECRET, SECRET), 503, "Service Unavailable", "does not answer", "5"),
    (errors.Unavailable("node", "429", retry_after_s=17.2), 503, "Service Unavailable", "does not answer", "17"),
    (errors.NodeBehind(SECRET, SECRET), 503, "Service Unavailable", "has not come that far", "5"),
    (errors.Reorged(SECRET, 7, "0xab"), 503, "Service Unavailable", "reorganised", "1"),
    (errors.BadAnswer(SECRET, SECRET), 502, "Bad Gateway", "cannot be used", None),
    (errors.WrongChain(SECRET, SECRET), 502, "Bad Gateway", "cannot be used", None),
    (errors.HistoryUnavailable(SECRET, 5, SECRET), 502, "History Unavailable", "no state", None),
    (errors.Locked(SECRET, SECRET), 503, "Service Unavailable", "busy", "1"),
    (errors.StorageFull(SECRET), 503, "Service Unavailable", "space", "60"),
    (errors.StoreError(SECRET, SECRET), 503, "Service Unavailable", "store", "30"),
    (errors.DeepReorg("ethereum", 5, "0xa", "0xb"), 503, "Chain Halted", "finalised block 5", "60"),
    (errors.MissingDependency("no source of EUR rates"), 503, "Service Unavailable", "EUR", None),
    (RuntimeError(SECRET), 500, "Internal Server Error", "incident", None),
    (KeyError(SECRET), 500, "Internal Server Error", "incident", None),
]


@pytest.mark.parametrize(
    ("failure", "status", "error", "message", "retry_after"), FAILURES, ids=lambda value: repr(value)[:24]
)
async def test_each_error_has_its_status_and_keeps_its_secrets(
    ask: Any, engine: FakeEngine, failure: Exception, status: int, error: str, message: str, retry_after: str | None
) -> None:
    engine.failure = failure
    with capture_logs() as lines:
        answer = await ask(f"/v1/portfolio?addresses={ALICE}")
    body = await answer.json()
    assert (answer.status, body["error"]) == (status, error)
    assert message in body["message"]
    assert answer.headers.get("Retry-After") == retry_after
    assert "SECRET" not in await answer.text()
    (log_line,) = [line for line in lines if line["event"] == "failed"] or [{}]
    assert bool(log_line) is (status >= 500)
    assert log_line.get("exc_info") == (failure if status == 500 else None)


def test_every_error_of_ours_has_a_cure() -> None:
    def below(kind: type[errors.ChainfolioError]) -> set[type[errors.ChainfolioError]]:
        return {kind}.union(*(below(each) for each in kind.__subclasses__() if each.__module__ == "chainfolio.errors"))

    assert [
        kind
        for kind in below(errors.ChainfolioError) - {errors.ChainfolioError, errors.BadRequest}
        if not any(issubclass(kind, remedy.kind) for remedy in REMEDIES)
    ] == []


def test_no_cure_is_hidden_behind_a_wider_one() -> None:
    kinds = [remedy.kind for remedy in REMEDIES]
    assert [later for at, later in enumerate(kinds) if any(issubclass(later, earlier) for earlier in kinds[:at])] == []


@pytest.mark.parametrize(
    "failure",
    [
        errors.NotIndexed("ethereum", "transfers", 1, 9),
        errors.NotSupported("validators", remedy="OPERATOR"),
        errors.NotFound("more than are served", remedy="OPERATOR"),
        errors.BadRequest("chain", "it is not known here", remedy="OPERATOR"),
        errors.DeepReorg("ethereum", 5, "0xaa", "0xbb"),
        errors.MissingDependency("a program is missing", remedy="OPERATOR"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_the_operator_can_do_is_in_the_log_alone(
    ask: Any, engine: FakeEngine, failure: errors.ChainfolioError
) -> None:
    engine.failure = failure
    with capture_logs() as lines:
        body = await (await ask(f"/v1/wallet?addresses={ALICE}")).json()
    assert failure.remedy not in str(body)
    assert "remedy" not in body
    assert isinstance(failure, errors.BadRequest) or failure.remedy in str(lines)


async def test_an_incident_is_named_to_the_client_and_found_in_the_log(ask: Any, engine: FakeEngine) -> None:
    engine.failure = ZeroDivisionError("division by zero")
    with capture_logs() as lines:
        answer = await ask(f"/v1/portfolio?addresses={ALICE}")
    body = await answer.json()
    assert body["incident"] == answer.headers["X-Request-Id"]
    assert body["incident"] in body["message"]
    assert "division" not in await answer.text()
    assert "Traceback" not in await answer.text()
    assert [line["request_id"] for line in lines] == [body["incident"]] * 2


@pytest.mark.parametrize(
    ("envelope", "status", "body"),
    [
        ("whole", 401, '{"error":"Unauthorized","message":"m"}'),
        ("whole", 404, '{"error":"Not Found","message":"m"}'),
        ("coded", 401, '{"message":"m"}'),
        ("coded", 404, '{"error":{"code":"C","message":"m","quota":5}}'),
        ("coded", 409, '{"error":{"code":"C","message":"m","quota":5}}'),
        ("coded", 422, '{"error":{"code":"C","message":"m","quota":5}}'),
        ("coded", 500, '{"error":{"code":"C","message":"m","quota":5}}'),
        ("coded", 402, '{"error":"Insufficient credits","message":"m","quota":5}'),
        ("approvals", 400, '{"message":"m"}'),
        ("approvals", 401, '{"error":"Unauthorized","message":"m"}'),
        ("approvals", 502, '{"message":"m"}'),
        ("beacon", 401, '{"message":"m"}'),
        ("beacon", 403, '{"error":"m"}'),
        ("beacon", 404, '{"error":"m"}'),
        ("beacon", 500, "m"),
        ("at-block", 401, '{"message":"m"}'),
        ("at-block", 500, "m"),
    ],
)
def test_each_family_of_routes_has_its_bodies(envelope: str, status: int, body: str) -> None:
    extras = {"quota": 5} if envelope == "coded" else {}
    answer = refusal(envelope, Problem(status, "m", code="C", extras=extras))
    assert answer.body.decode() == body
    assert answer.content_type == ("application/json" if body.startswith("{") else "text/plain")


@pytest.mark.parametrize("envelope", SHAPES)
def test_what_does_not_fit_the_interface_is_told_alike_everywhere_but_for_approvals(envelope: str) -> None:
    body = refusal(envelope, invalid("query", [])).body
    assert body == (
        b'{"message":""}'
        if envelope == "approvals"
        else b'{"error":"Validation Failed","message":"","details":{"query":[]}}'
    )


# --- around every answer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*TARGETS, "/docs", "/openapi.json", "/", "/nowhere", "/v1/nowhere", "/v1/nav"])
async def test_every_answer_has_these(ask: Any, path: str) -> None:
    answer = await ask(path)
    assert len(answer.headers["X-Request-Id"]) == 32
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Server"] == "chainfolio"
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert answer.headers["Cache-Control"] == ("no-cache" if path in ("/", "/docs", "/openapi.json") else "no-store")


@pytest.mark.parametrize(
    ("request_id", "is_kept"),
    [
        ("abc-1.2_Z", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("", False),
        ("a b", False),
        ("a\tb", False),
        ("<x>", False),
        ("é", False),
        ("a,b", False),
    ],
)
async def test_a_sane_request_id_is_kept(ask: Any, request_id: str, is_kept: bool) -> None:
    answer = await ask("/healthz", headers={"X-Request-Id": request_id})
    assert (answer.headers["X-Request-Id"] == request_id) is is_kept


@pytest.mark.parametrize("path", ["/v1/{}", "/v1/bundles/{}", "/{}", "/v1/bundles/{}/addresses/x"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("key", [KEY, KEY[:-7], KEY[8:]])
async def test_a_key_that_was_typed_into_the_path_is_not_logged(ask: Any, path: str, method: str, key: str) -> None:
    with capture_logs() as lines:
        await ask(path.format(key), method)
    assert lines
    assert key not in repr(lines)


async def test_the_log_has_one_line_a_request_and_no_secret(ask: Any) -> None:
    with capture_logs() as lines:
        await ask(f"/v1/portfolio?addresses={ALICE}", headers={"X-Request-Id": "mine", "Cookie": "c=SECRET"})
    (line,) = lines
    assert {name: line[name] for name in ("request_id", "method", "path", "status", "account", "key")} == {
        "request_id": "mine",
        "method": "GET",
        "path": "/v1/portfolio",
        "status": 200,
        "account": "acc_1",
        "key": "key_1",
    }
    assert line["ms"] >= 0
    assert not any(secret in repr(line) for secret in (KEY, ALICE, "SECRET"))


@pytest.mark.parametrize("path", [*METHODS, "/docs", "/openapi.json", "/"])
async def test_a_preflight_is_answered_without_a_key(client: ClientSession, path: str) -> None:
    preflight = {"Origin": "https://a.example", "Access-Control-Request-Method": "GET"}
    answer = await client.options(path, headers={**preflight, "Access-Control-Request-Headers": "authorization"})
    assert (answer.status, await answer.read()) == (204, b"")
    assert answer.headers["Allow"] == allowed(path)
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert answer.headers["Access-Control-Allow-Methods"] == allowed(path)
    allowed_headers = answer.headers["Access-Control-Allow-Headers"].split(", ")
    request_headers = {name for route in ROUTES for name in route.takes}
    assert {"Authorization", "Content-Type", "Last-Event-ID", "X-Delegate-For", *request_headers} <= set(
        allowed_headers
    )


async def test_a_page_of_another_host_may_write(ask: Any) -> None:
    body = {"json": {"addresses": [ALICE]}, "headers": {"Origin": "https://a.example"}}
    answer = await ask("/v1/sync-transactions", "POST", **body)
    assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, "*")


async def test_a_browser_may_read_a_refusal(client: ClientSession) -> None:
    answer = await client.get("/v1/chains", headers={"Origin": "https://a.example"})
    assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (401, "*")
    assert answer.headers["Access-Control-Expose-Headers"] == "*"


class TestNamedOrigins:
    @pytest.fixture
    def server(self) -> Server:
        return Server(cors_origins=["https://a.example", "http://localhost:3000"])

    @pytest.mark.parametrize("origin", ["https://a.example", "http://localhost:3000"])
    async def test_pages_of_the_named_hosts_may(self, client: ClientSession, origin: str) -> None:
        preflight = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        answer = await client.options("/v1/sync-transactions", headers=preflight)
        assert (answer.headers["Access-Control-Allow-Origin"], answer.headers["Vary"]) == (origin, "Origin")
        assert answer.headers["Access-Control-Allow-Methods"] == "OPTIONS, POST"

    @pytest.mark.parametrize("origin", ["https://b.example", "http://a.example", "https://a.example.org", "null", ""])
    async def test_pages_of_others_may_not(self, client: ClientSession, origin: str) -> None:
        for method in ("OPTIONS", "GET"):
            preflight = {"Origin": origin, "Access-Control-Request-Method": "GET"}
            answer = await client.request(method, "/v1/chains", headers=preflight)
            assert not [name for name in answer.headers if name.lower().startswith("access-control")]
            assert answer.headers["Vary"] == "Origin"


class TestWithoutCors:
    @pytest.fixture
    def server(self) -> Server:
        return Server(cors=False)

    async def test_cors_can_be_turned_off(self, client: ClientSession) -> None:
        preflight = {"Origin": "https://a.example", "Access-Control-Request-Method": "GET"}
        for method in ("OPTIONS", "GET"):
            answer = await client.request(method, "/healthz", headers=preflight)
            assert not [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("path", [*TARGETS, "/docs", "/openapi.json"])
async def test_head_is_get_without_its_body(ask: Any, path: str) -> None:
    head, get = await ask(path, "HEAD"), await ask(path)
    assert (head.status, await head.read()) == (get.status, b"")
    different = {"date", "x-request-id", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit", "transfer-encoding"}
    assert {k: v for k, v in head.headers.items() if k.lower() not in different} == {
        k: v for k, v in get.headers.items() if k.lower() not in different
    }


OTHERS = ("POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND")


@pytest.mark.parametrize(
    ("path", "method"), [(path, method) for path, takes in METHODS.items() for method in OTHERS if method not in takes]
)
async def test_another_method_is_405_with_those_there_are(ask: Any, path: str, method: str) -> None:
    answer = await ask(path, method)
    assert answer.status == 405
    assert answer.headers["Allow"] == allowed(path)
    assert (await answer.json())["error"] == "Method Not Allowed"


@pytest.mark.parametrize(
    "path",
    [
        "/v1",
        "/v1/",
        "/v1/portfolio/",
        "/v1//portfolio",
        "//v1/portfolio",
        "/V1/portfolio",
        "/v1/Portfolio",
        "/portfolio",
        "/v2/portfolio",
        "/v1/portfolio;a=1",
        "/v1/portfolio%2F",
        "/v1/%2e%2e/healthz2",
        "/healthz/",
        "/docs/docs.js",
        "/static/docs.js",
        "/v1/portfolio%00",
        "/%",
        "/%ff",
        "/é",
    ],
)
async def test_an_unknown_path_is_404_in_json(ask: Any, engine: FakeEngine, path: str) -> None:
    answer = await ask(path)
    assert answer.status == 404
    assert (await answer.json())["error"] == "Not Found"
    assert engine.calls == []


async def test_options_of_an_unknown_path_is_404(client: ClientSession) -> None:
    assert (await client.options("/nowhere")).status == 404


# --- hostile heads ---------------------------------------------------------------------------------------------------


async def test_a_long_url_is_414(ask: Any) -> None:
    assert (await ask("/v1/chains?" + "a" * (8192 - 11))).status == 400
    answer = await ask("/v1/chains?" + "a" * 8192)
    assert (answer.status, (await answer.json())["error"]) == (414, "URI Too Long")


async def test_long_headers_are_431(ask: Any) -> None:
    assert (await ask("/v1/chains", headers={"X-Long": "a" * 15_000})).status == 200
    many_headers = {f"X-{number}": "a" * 1000 for number in range(17)}
    for headers in ({"X-Long": "a" * 17_000}, many_headers):
        answer = await ask("/v1/chains", headers=headers)
        assert (answer.status, (await answer.json())["error"]) == (431, "Request Header Fields Too Large")


async def test_a_thousand_headers_are_refused(ask: Any) -> None:
    assert (await ask("/v1/chains", headers={f"X-{number}": "" for number in range(1000)})).status in (400, 431)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "evil.example"},
        {"X-HTTP-Method-Override": "DELETE"},
        {"Range": "bytes=" + ",".join(f"{n}-{n}" for n in range(500))},
        {"If-None-Match": "*", "If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT"},
        {"Accept": "text/html;q=" + "0" * 5000},
        {"Accept-Encoding": ",".join(["br;q=1.0"] * 1000)},
        {"Content-Type": "application/json; charset=utf-7"},
        {"Upgrade": "h2c", "Connection": "Upgrade, HTTP2-Settings", "HTTP2-Settings": "AAMAAABkAAQAAP__"},
        {"Transfer-Encoding": "identity"},
        {"Expect": "100-continue"},
    ],
    ids=lambda value: next(iter(value)),
)
async def test_headers_that_mean_nothing_here_change_nothing(ask: Any, headers: dict[str, str]) -> None:
    answer = await ask("/v1/chains", headers=headers)
    assert answer.status in ((200, 400) if "Transfer-Encoding" in headers else (200,))
    assert "evil" not in await answer.text() + repr(answer.headers)


async def test_a_body_where_none_is_read_changes_nothing(ask: Any) -> None:
    assert (await ask("/v1/chains", data=b"x" * 100_000)).status == 200
    assert (await ask("/v1/chains", data=b"\xff", headers={"Content-Encoding": "gzip"})).status in (200, 400)


# --- compression -----------------------------------------------------------------------------------------------------


async def test_large_answers_are_compressed_for_who_takes_it(port: int) -> None:
    async with client_session(f"http://127.0.0.1:{port}", auto_decompress=False) as client:
        plain = await client.get("/openapi.json", headers={"Accept-Encoding": "identity"})
        small = await client.get("/openapi.json", headers={"Accept-Encoding": "br, gzip"})
        assert "Content-Encoding" not in plain.headers
        assert small.headers["Content-Encoding"] == "gzip"
        assert {plain.headers["Vary"], small.headers["Vary"]} == {"Accept-Encoding"}
        packed = await small.read()
        assert gzip.decompress(packed) == await plain.read()
        assert int(small.headers["Content-Length"]) == len(packed) < int(plain.headers["Content-Length"]) / 3


async def test_small_answers_are_not_compressed(client: ClientSession) -> None:
    answer = await client.get("/healthz", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in answer.headers


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        ("gzip", "gzip"),
        ("GZIP, deflate, br", "gzip"),
        ("x-gzip", "gzip"),
        ("gzip;q=0.001", "gzip"),
        ("gzip;q=0", ""),
        ("gzip; q = 0.000", ""),
        ("gzip, deflate, br, zstd", "zstd"),
        ("zstd;q=0, gzip", "gzip"),
        ("br", ""),
        ("*", ""),
        ("", ""),
        (";;,,=;q", ""),
        ("gzipped", ""),
        ("identity", ""),
        ("gzip" + "," * 10_000, "gzip"),
    ],
)
def test_who_takes_which_compression(accept: str, coding: str) -> None:
    assert coding_of(accept) == coding
