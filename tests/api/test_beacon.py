"""Validators: what is asked, what is answered, and how this family words its refusals."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chainfolio.api.beacon import ROUTES
from chainfolio.engine.validators.results import Range, ValidatorDeposit, Window, no_beacon_chain
from chainfolio.errors import NotSupported
from tests.api.beacon import CREDENTIALS, DEPOSIT, OWNER, PUBKEY
from tests.api.fakes import FakeEngine

BASE = "/v1/beacon/validators"
RANGE = "rangeType=epoch&rangeFrom=10&rangeTo=20&granularity=day"
YEAR_S, YEAR_EPOCHS = 31_536_000, 82_125
RESOURCES = {"details": "", "rewards": f"?{RANGE}", "withdrawals": "", "deposits": ""}
each = pytest.mark.parametrize("resource", RESOURCES)


def test_every_route_needs_the_enterprise_grant_and_costs_one() -> None:
    assert {(route.needs, route.envelope, route.cost, route.bucket) for route in ROUTES} == {
        ("enterprise", "beacon", 1, "all")
    }
    assert {route.path for route in ROUTES} == {
        f"{BASE}/{resource}/{key}/{{{key}}}" for resource in RESOURCES for key in ("index", "pubkey")
    }


async def test_details_are_answered_field_by_field(ask: Any) -> None:
    for path in ("index/7", f"pubkey/{PUBKEY}"):
        answer = await ask(f"{BASE}/details/{path}")
        assert answer.status == 200
        assert await answer.json() == {
            "validator": {"index": 7, "pubkey": PUBKEY, "slashed": False, "status": "active_ongoing"},
            "lifecycle": {
                "activationEpoch": 200,
                "activationTimestamp": 1606900823,
                "exitEpoch": None,
                "withdrawableEpoch": None,
            },
            "balance": {"actual": "32004512345000000000", "effective": "32000000000000000000"},
            "withdrawalCredentials": {"prefix": 1, "credential": CREDENTIALS, "address": OWNER},
        }


async def test_rewards_are_a_page_of_numbers_and_strings(ask: Any) -> None:
    answer = await ask(f"{BASE}/rewards/index/7?{RANGE}&offset=10")
    assert '"consensusEfficiency":0.987654321987654321' in await answer.text()
    body = await answer.json()
    (row,) = body.pop("data")
    assert body == {"offset": 10, "limit": 10, "totalRows": 21, "pages": 3}
    assert row == {
        "epochStart": 1,
        "epochEnd": 2,
        "timestampStart": 3,
        "timestampEnd": 4,
        "dateStart": "2024-12-07",
        "dateEnd": "2024-12-08",
        "consensusReward": "-5",
        "consensusPotentialReward": "6",
        "consensusEfficiency": 0.987654321987654321,
        "executionReward": "7",
        "endEffectiveBalance": "8",
        "attestationsIncluded": 9,
        "attestationsMissed": 10,
        "syncParticipations": 11,
        "syncMissed": 12,
        "proposedBlocks": 13,
        "missedBlocks": 14,
        "mevBlocks": 15,
    }


async def test_withdrawals_and_deposits_are_pages(ask: Any) -> None:
    assert await (await ask(f"{BASE}/withdrawals/index/7?limit=10")).json() == {
        "data": [{"slot": 1, "epoch": 2, "timestamp": 3, "index": 4, "amount": "5", "address": OWNER}],
        "offset": 0,
        "limit": 10,
        "totalRows": 20,
        "pages": 2,
    }
    assert await (await ask(f"{BASE}/deposits/pubkey/{PUBKEY}")).json() == {
        "data": [],
        "offset": 0,
        "limit": 10,
        "totalRows": 0,
        "pages": 0,
    }
    assert msgspec.to_builtins(DEPOSIT) == {
        "slot": 1,
        "epoch": 2,
        "timestamp": 3,
        "depositIndex": 4,
        "amount": "5",
        "withdrawalCredentials": CREDENTIALS,
        "withdrawalAddress": None,
    }
    assert ValidatorDeposit.__struct_fields__[-1] == "withdrawal_address"


async def test_what_is_asked_reaches_the_engine(ask: Any, engine: FakeEngine) -> None:
    await ask(f"{BASE}/rewards/pubkey/{PUBKEY.upper().replace('X', 'x')}?{RANGE}&offset=3&limit=2")
    await ask(f"{BASE}/deposits/index/7?offset=5")
    assert engine.calls == [
        ("rewards", (PUBKEY, Range("epoch", 10, 20, "day"), Window(3, 2))),
        ("deposits", (7, Window(5, 10))),
    ]


# --- parameters ------------------------------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("index", ["0", "1", "2147483648", str(2**63 - 1)])
async def test_an_index_is_a_whole_number(ask: Any, engine: FakeEngine, resource: str, index: str) -> None:
    answer = await ask(f"{BASE}/{resource}/index/{index}{RESOURCES[resource]}")
    assert answer.status == 404
    assert engine.calls[0][1][0] == int(index)


@each
@pytest.mark.parametrize(
    "index",
    [
        "-1",
        "-0",
        "+5",
        "01",
        "5.0",
        "1e2",
        "0x7",
        "%205",
        "5%20",
        "5%00",
        "5%0A",
        str(2**63),
        "9" * 400,
        "x",
        "٣",
        "true",
        "null",
        "7;8",
        "7,8",
        PUBKEY,
    ],
)
async def test_an_index_that_is_none_is_refused(ask: Any, engine: FakeEngine, resource: str, index: str) -> None:
    answer = await ask(f"{BASE}/{resource}/index/{index}{RESOURCES[resource]}")
    body = await answer.json()
    assert (answer.status, body["error"]) == (400, "Validation Failed")
    assert [field_error["path"] for field_error in body["details"]["path"]] == [["index"]]
    assert engine.calls == []


@each
@pytest.mark.parametrize(
    "pubkey",
    [
        "7",
        PUBKEY[2:],
        PUBKEY[:-1],
        PUBKEY + "0",
        PUBKEY[:-1] + "g",
        PUBKEY + "%0A",
        "%20" + PUBKEY,
        PUBKEY.replace("0x", "0X"),
        PUBKEY[:-1] + "٣",
        PUBKEY + "%00",
        "0x",
    ],
)
async def test_a_pubkey_that_is_none_is_refused(ask: Any, engine: FakeEngine, resource: str, pubkey: str) -> None:
    answer = await ask(f"{BASE}/{resource}/pubkey/{pubkey}{RESOURCES[resource]}")
    body = await answer.json()
    assert (answer.status, body["error"]) == (400, "Validation Failed")
    assert [field_error["path"] for field_error in body["details"]["path"]] == [["pubkey"]]
    assert engine.calls == []


@pytest.mark.parametrize("resource", ["rewards", "withdrawals", "deposits"])
@pytest.mark.parametrize(
    ("window", "status"),
    [
        ("offset=0&limit=1", 200),
        ("limit=10", 200),
        (f"offset={2**63 - 1}", 200),
        *((f"limit={bad}", 400) for bad in ("0", "-1", "11", "250", "1e1", "01", "+5", "%205", "5.0", "", "x")),
        *((f"offset={bad}", 400) for bad in ("-1", "-0", "1.0", str(2**63), "9" * 400, "", "null")),
        ("limit=1&limit=1", 400),
        ("page=1", 400),
        ("Limit=1", 400),
    ],
)
async def test_a_window_is_small_and_not_negative(ask: Any, resource: str, window: str, status: int) -> None:
    query = "&".join(filter(None, [RESOURCES[resource].lstrip("?"), window]))
    assert (await ask(f"{BASE}/{resource}/index/7?{query}")).status == status


async def test_details_take_no_query(ask: Any) -> None:
    assert (await ask(f"{BASE}/details/index/7?limit=1")).status == 400


@pytest.mark.parametrize("missing", ["rangeType", "rangeFrom", "rangeTo", "granularity"])
async def test_a_range_is_required_whole(ask: Any, missing: str) -> None:
    query = "&".join(part for part in RANGE.split("&") if not part.startswith(missing))
    body = await (await ask(f"{BASE}/rewards/index/7?{query}")).json()
    assert body["details"] == {"query": [{"message": f"`{missing}` is required", "path": [missing]}]}


@pytest.mark.parametrize(
    "wrong",
    [
        "rangeType=Epoch",
        "rangeType=slot",
        "rangeType=",
        "granularity=hour",
        "granularity=DAY",
        "granularity=year",
        "rangeFrom=-1",
        "rangeFrom=1e3",
        "rangeFrom=2024-01-01",
        "rangeTo=",
        "rangeTo=x",
        f"rangeTo={2**63}",
    ],
)
async def test_a_range_is_read_strictly(ask: Any, engine: FakeEngine, wrong: str) -> None:
    name = wrong.partition("=")[0]
    query = "&".join([wrong, *(part for part in RANGE.split("&") if not part.startswith(name))])
    answer = await ask(f"{BASE}/rewards/index/7?{query}")
    body = await answer.json()
    assert (answer.status, body["error"]) == (400, "Validation Failed")
    assert [field_error["path"] for field_error in body["details"]["query"]] == [[name]]
    assert engine.calls == []


@pytest.mark.parametrize("granularity", ["epoch", "day", "week", "month"])
@pytest.mark.parametrize(
    ("kind", "first", "last", "message"),
    [
        ("epoch", 5, 5, None),
        ("epoch", 0, YEAR_EPOCHS, None),
        ("epoch", 0, YEAR_EPOCHS + 1, "the range is longer than 82125 epochs; ask for it in parts"),
        ("timestamp", 1_700_000_000, 1_700_000_000 + YEAR_S, None),
        ("timestamp", 0, YEAR_S + 1, "the range is longer than 31536000 seconds; ask for it in parts"),
        ("epoch", 6, 5, "rangeFrom 6 is after rangeTo 5"),
        ("timestamp", 1, 0, "rangeFrom 1 is after rangeTo 0"),
    ],
)
async def test_a_range_has_an_order_and_a_longest_span(
    ask: Any, engine: FakeEngine, granularity: str, kind: str, first: int, last: int, message: str | None
) -> None:
    query = f"rangeType={kind}&rangeFrom={first}&rangeTo={last}&granularity={granularity}"
    answer = await ask(f"{BASE}/rewards/index/7?{query}")
    if message is None:
        assert answer.status == 200
    else:
        assert (answer.status, await answer.json(), engine.calls) == (400, {"error": message}, [])


# --- refusals --------------------------------------------------------------------------------------------------------


@each
async def test_an_unknown_validator_is_404_in_the_words_of_the_family(ask: Any, resource: str) -> None:
    stranger = "0x" + "0c" * 48
    for key, value in (("index", "12345"), ("pubkey", stranger)):
        answer = await ask(f"{BASE}/{resource}/{key}/{value}{RESOURCES[resource]}")
        assert (answer.status, await answer.json()) == (404, {"error": f"Validator not found for {key} {value}"})


@each
async def test_a_server_without_a_beacon_chain_says_so(ask: Any, engine: FakeEngine, resource: str) -> None:
    engine.failure = no_beacon_chain()
    answer = await ask(f"{BASE}/{resource}/index/7{RESOURCES[resource]}")
    body = await answer.json()
    assert (answer.status, body["error"], set(body)) == (501, "Not Served", {"error", "message"})


@pytest.mark.parametrize("wrong", ["rangeFrom=5&rangeTo=4", "rangeFrom=0&rangeTo=82126"])
async def test_a_range_is_refused_before_the_beacon_chain_is_missed(
    ask: Any, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    def missing(engine: FakeEngine) -> None:
        raise no_beacon_chain()

    monkeypatch.setattr(FakeEngine, "validators", missing)
    for validator in ("index/7", f"pubkey/{PUBKEY}"):
        answer = await ask(f"{BASE}/rewards/{validator}?rangeType=epoch&{wrong}&granularity=day")
        assert (answer.status, list(await answer.json())) == (400, ["error"])


async def test_a_failure_of_ours_is_plain_text(ask: Any, engine: FakeEngine) -> None:
    engine.failure = RuntimeError("boom")
    answer = await ask(f"{BASE}/details/index/7")
    assert (answer.status, answer.content_type) == (500, "text/plain")
    assert "boom" not in await answer.text()


def test_the_engine_of_today_has_no_beacon_chain() -> None:
    from chainfolio.engine.service import Engine
    from chainfolio.indexer.wiring import System
    from chainfolio.settings import Settings

    with pytest.raises(NotSupported, match="validators"):
        Engine(System(Settings())).validators()


async def test_the_description_tells_both_kinds_of_400(ask: Any) -> None:
    described = await (await ask("/openapi.json")).json()
    answers = described["paths"][f"{BASE}/rewards/index/{{index}}"]["get"]["responses"]
    content = answers["400"]["content"]["application/json"]
    assert [kind["$ref"].rpartition("/")[2] for kind in content["schema"]["anyOf"]] == ["ValidationFailure", "Reason"]
    assert answers["404"]["content"]["application/json"]["example"] == {"error": "not found"}
