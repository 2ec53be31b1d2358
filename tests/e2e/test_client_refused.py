"""Refusals of the service: keys, rights, credits, rates, parameters, and calls that are sent twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec import UNSET

from tests.e2e import shapes
from tests.e2e.client import Answer, Client, costs, free, send
from tests.e2e.running import DAVE, THE_DAY, Demo, Running

pytestmark = [pytest.mark.node, pytest.mark.xdist_group("demo")]

LIMIT, AT_BLOCK_LIMIT = 360, 100
AAVE_POOL = "0x87870bca3f3fd6335c3f4ce8392d69350b4fa4e2"
BOOK = ("/addressbook", "/bundles")
PLAIN = (
    f"/portfolio?addresses={DAVE}",
    f"/historical?addresses={DAVE}&date={THE_DAY}",
    f"/nav?addresses={DAVE}",
    f"/wallet?addresses={DAVE}",
    f"/transactions?addresses={DAVE}&limit=10&offset=0",
    f"/approvals/ethereum?addresses={DAVE}",
)
PRO = ("/virtual-users", f"/token-overview?addresses={DAVE}&date={THE_DAY}")
BEACON = (
    "/beacon/validators/details/index/1",
    "/beacon/validators/rewards/index/1?rangeType=epoch&rangeFrom=1&rangeTo=2&granularity=day",
    "/beacon/validators/withdrawals/index/1",
    "/beacon/validators/deposits/pubkey/0x" + "ab" * 48,
)
AT_BLOCK = f"/portfolio/at-block?addresses={DAVE}&chainKey=ethereum&blockNumber=40"
FREE = ("/credits", "/chains", "/chains/local/protocols", f"/status?addresses={DAVE}")
EVERY = (*BOOK, *PLAIN, *PRO, *BEACON, AT_BLOCK, *FREE, f"/contract-protocol?contract={AAVE_POOL}")


@pytest.fixture(scope="module")
def me(demo: Demo) -> Client:
    return demo.client(demo.account("refused", plan="PRO", grants=("portfolio", "at-block")).key)


@pytest.fixture(scope="module")
def poor(demo: Demo) -> Client:
    """Return a client with all rights and no credits."""
    return demo.client(demo.account("poor", plan="PRO", funds=0, grants=("portfolio", "at-block", "enterprise")).key)


@pytest.fixture(scope="module")
def customer_without_rights(demo: Demo) -> Client:
    """Credits, no rights."""
    return demo.client(demo.account("nobody").key)


# --- 401 ---


@pytest.mark.parametrize("key", [None, "", "cf_live_made_up"])
def test_no_path_is_open_without_a_key(demo: Demo, key: str | None) -> None:
    for path in EVERY:
        answer = send(demo.client(key), path)
        assert answer.status == 401, (path, answer.body)
        assert answer.headers["www-authenticate"].startswith("Bearer")
        refusal = answer.read(shapes.Refusal)
        if path in BOOK:
            assert refusal.error is UNSET
        if path.startswith("/approvals"):
            assert refusal.error is not UNSET


def test_a_key_ends_at_once_when_it_is_revoked_and_another_goes_on(demo: Demo) -> None:
    account = demo.account("rotating", grants=("portfolio",))
    created = demo.command("key", "create", "--account", account.id, "--name", "second")
    second = created["apiKey"]
    keys = demo.command("key", "list", "--account", account.id)
    (old,) = [key["keyId"] for key in keys if key["keyId"] != created["keyId"]]
    assert demo.client(second).book() == demo.client(account.key).book() == []
    demo.command("key", "revoke", old)
    assert send(demo.client(account.key), "/addressbook").status == 401
    assert demo.client(second).book() == []


def test_at_block_without_its_add_on_is_401(customer_without_rights: Client) -> None:
    answer = send(customer_without_rights, AT_BLOCK)
    assert answer.status == 401
    assert answer.read(shapes.Refusal).message


# --- 403 ---


def test_rights_that_are_missing_are_403_and_cost_nothing(demo: Demo, customer_without_rights: Client) -> None:
    for path in (*BOOK, f"/portfolio?addresses={DAVE}", f"/nav?addresses={DAVE}", f"/wallet?addresses={DAVE}"):
        assert free(customer_without_rights, path, 403, shapes.Refusal).error is not UNSET, path
    free_plan = demo.client(demo.account("free plan", grants=("portfolio",)).key)
    for path in PRO:
        assert free(free_plan, path, 403, shapes.Refusal).error is not UNSET, path
    for path in BEACON:
        free(customer_without_rights, path, 403, shapes.BeaconRefusal)


def test_validators_without_a_beacon_node_are_refused_by_type(demo: Demo) -> None:
    client = demo.client(demo.account("validator", grants=("enterprise",)).key)
    for path in BEACON:
        free(client, path, 501, shapes.Refusal)
    for path in (
        "/beacon/validators/details/index/-1",
        "/beacon/validators/details/pubkey/0x12",
        "/beacon/validators/withdrawals/index/1?limit=11",
        "/beacon/validators/rewards/index/1",
    ):
        free(client, path, 400, shapes.BeaconRefusal)


# --- 402 ---


def test_who_has_no_credits_is_told_how_many_are_needed(poor: Client) -> None:
    for path in (*BOOK, *PLAIN[:1], *PLAIN[2:5], *PRO[:1]):
        answer = send(poor, path)
        assert answer.status == 402, (path, answer.body)
        unpaid = answer.read(shapes.Unpaid)
        assert (unpaid.credits_required, unpaid.credits_available, unpaid.credits_needed) == (1, 0, 1)
    for path in FREE:
        assert send(poor, path).status == 200, path
    assert poor.credits() == 0


def test_what_is_wrong_is_said_before_what_is_not_paid(poor: Client) -> None:
    assert send(poor, "/portfolio?addresses=0x12").status == 400
    assert send(poor, "/portfolio").status == 400


def test_calls_at_the_same_time_never_spend_more_than_there_is(demo: Demo) -> None:
    client = demo.client(demo.account("crowd", funds=3, grants=("portfolio",)).key)
    with ThreadPoolExecutor(8) as crowd:
        answers = list(crowd.map(lambda _: send(client, "/addressbook").status, range(24)))
    assert set(answers) <= {200, 402}
    assert 1 <= answers.count(200) <= 3
    while send(client, "/addressbook").status == 200:
        pass
    assert client.credits() == 0


# --- 400 ---


@pytest.mark.parametrize("path", [*PLAIN[:5], *PRO, AT_BLOCK, *FREE], ids=lambda path: path.partition("?")[0])
def test_a_parameter_that_is_unknown_is_refused(me: Client, path: str) -> None:
    refusal = free(me, f"{path}{'&' if '?' in path else '?'}start_date=2023-01-01", 400, shapes.Invalid)
    assert "start_date" in refusal.details["query"][0].message


@pytest.mark.parametrize("route", ["portfolio", "wallet", "nav", "historical", "transactions"])
def test_more_than_ten_addresses_are_refused(me: Client, route: str) -> None:
    parameters = {"historical": f"&date={THE_DAY}", "transactions": "&limit=1&offset=0"}.get(route, "")
    addresses = ",".join(f"0x{number:040x}" for number in range(1, 12))
    free(me, f"/{route}?addresses={addresses}{parameters}", 400, shapes.Invalid)
    free(me, f"/{route}?addresses={parameters}", 400, shapes.Invalid)


@pytest.mark.parametrize(
    "address",
    ["0x12", "vitalik.eth", "0x" + "g" * 40, "virtual:1", "T" + "1" * 33, DAVE[2:], f"{DAVE},", "0x" + "f" * 64],
)
def test_what_is_no_address_is_refused(me: Client, address: str) -> None:
    free(me, f"/portfolio?addresses={address}", 400, shapes.Invalid)


@pytest.mark.parametrize("value", ["yes", "1", "tRue", ""])
def test_a_boolean_is_true_or_false(me: Client, value: str) -> None:
    free(me, f"/portfolio?addresses={DAVE}&includeImages={value}", 400, shapes.Invalid)


def test_paths_and_methods_that_are_none(me: Client) -> None:
    assert send(me, "/nowhere").status == 404
    wrong = send(me, "/portfolio", "POST", {})
    assert wrong.status == 405
    assert "GET" in wrong.headers["allow"]


# --- 429 ---


def limits(answer: Answer) -> tuple[int, int]:
    assert int(answer.headers["x-ratelimit-reset"]) > 1_600_000_000
    assert answer.headers["ratelimit"]
    assert answer.headers["ratelimit-policy"]
    return int(answer.headers["x-ratelimit-limit"]), int(answer.headers["x-ratelimit-remaining"])


def spend(client: Client, path: str, limit: int) -> Answer:
    """Calls until the bucket of the path is empty."""
    for _ in range(limit + 20):  # it fills again a little meanwhile
        answer = send(client, path)
        if answer.status == 429:
            return answer
    raise AssertionError(f"{limit + 20} calls and no limit")


def limited(answer: Answer) -> None:
    refusal = answer.read(shapes.Limited)
    assert refusal.retry_after == refusal.retry_after_too == int(answer.headers["retry-after"]) > 0
    assert limits(answer)[1] == 0


def test_every_route_shares_one_bucket_of_a_key(demo: Demo, me: Client) -> None:
    client = demo.client(demo.account("hasty", grants=("portfolio",)).key)
    assert limits(send(client, "/credits")) == (LIMIT, LIMIT - 1)
    assert limits(send(client, "/addressbook")) == (LIMIT, LIMIT - 2)
    assert limits(send(client, "/portfolio")) == (LIMIT, LIMIT - 3), "a refused call counts"
    limited(spend(client, "/credits", LIMIT))
    assert send(client, "/bundles").status == 429
    assert send(client, f"/portfolio?addresses={DAVE}").status == 429
    assert me.credits() > 0, "another key is not touched"


def test_at_block_has_a_bucket_of_its_own(demo: Demo) -> None:
    client = demo.client(demo.account("historian", grants=("portfolio", "at-block")).key)
    path = "/portfolio/at-block?addresses=none"
    assert limits(send(client, path)) == (AT_BLOCK_LIMIT, AT_BLOCK_LIMIT - 1)
    limited(spend(client, path, AT_BLOCK_LIMIT))
    assert limits(send(client, "/credits")) == (LIMIT, LIMIT - 1)


# --- a call that is sent twice ---


def test_a_call_that_is_sent_twice_with_its_key_is_done_and_paid_once(me: Client) -> None:
    body = {"entries": [{"address": DAVE, "label": "once"}]}
    with costs(me, 1):
        first = send(me, "/addressbook", "POST", body, Idempotency_Key="one")
        second = send(me, "/addressbook", "POST", body, Idempotency_Key="one")
    assert (first.status, first.body) == (second.status, second.body)
    other_body = {"entries": [{"address": DAVE, "label": "other"}]}
    with costs(me, 0):
        mixed = send(me, "/addressbook", "POST", other_body, Idempotency_Key="one")
    assert mixed.status == 422
    with costs(me, 1):
        assert send(me, "/addressbook", "POST", other_body, Idempotency_Key="two").status == 200


def test_the_same_key_of_two_accounts_is_two_keys(demo: Demo, me: Client) -> None:
    other_client = demo.client(demo.account("namesake", grants=("portfolio",)).key)
    for client, label in ((me, "mine"), (other_client, "other's")):
        body = {"name": label, "addresses": [DAVE]}
        client.keep((DAVE, ""))
        answer = send(client, "/bundles", "POST", body, Idempotency_Key="shared")
        assert answer.status == 200, answer.body
    assert [bundle.name for bundle in other_client.bundles()] == ["other's"]


# --- without a key ---


def test_health_and_documentation_need_no_key(demo: Demo, ethereum: Running) -> None:
    for server in (demo, ethereum):
        client = Client(server.url, None)
        for path in ("/healthz", "/readyz", "/openapi.json", "/docs"):
            assert client.ask("GET", path).status == 200, path
        document = client.get(dict[str, object], "/openapi.json")
        assert str(document["openapi"]).startswith("3.1")
