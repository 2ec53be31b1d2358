"""At-block, historical, approvals, transactions and sync: parameters, refusals and answers."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, get_args

import pytest

from chainfolio import errors
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.api.cursors import InvalidCursor, seal, unseal
from chainfolio.api.serve import listening
from chainfolio.api.transactions import TYPES
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Token
from chainfolio.engine.results import (
    Allowance,
    ApprovalsPage,
    ApprovedAsset,
    EventPosition,
    Operator,
    TransactionFilter,
)
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.transactions import TransactionType
from chainfolio.settings import Settings
from tests.api.fakes import ALICE, BOB, KEY, SOL, STARKNET, TRON, Caller, FakeEngine, FakeKeys, an_approval
from tests.api.sessions import client_session

AT_BLOCK = f"/v1/portfolio/at-block?addresses={ALICE}&chainKey=ethereum&blockNumber="
APPROVALS = f"/v1/approvals/ethereum?addresses={ALICE}"
TRANSACTIONS = f"/v1/transactions?addresses={ALICE}"
PAGED = f"{TRANSACTIONS}&limit=10&offset=0"
NOT_NUMBERS = ("", "-1", "1e2", "01", "+5", "%205", "5.0", "0x5", "५", "true", "null", "9" * 79)
OTHER_KEY = "cf_live_" + "B1b2C3d4E5" * 3 + "x7Yz90"


async def assert_refused(answer: Any, message: str = "") -> None:
    """A 400 of the usual shape, whose message has these words."""
    body = await answer.json()
    assert (answer.status, body["error"]) == (400, "Validation Failed"), body
    assert message in body["message"]
    assert list(body["details"]) in (["query"], ["body"])


# --- at-block --------------------------------------------------------------------------------------------------------


async def test_a_portfolio_at_a_block_is_an_array_of_one_that_echoes_the_block(ask: Any, engine: FakeEngine) -> None:
    (body,) = await (await ask(AT_BLOCK + "17000000&includeImages=true&includeSources=true")).json()
    assert (body["address"], body["blockNumber"], body["priceAdapters"]) == (ALICE, "17000000", [])
    ((name, (accounts, chain, height, options)),) = engine.calls
    assert (name, [each.address for each in accounts], chain, height) == ("at_block", [ALICE], "ethereum", 17_000_000)
    assert options == Options(images=True, explorer_urls=False, sources=True, rates=True)


@pytest.mark.parametrize("text", [*NOT_NUMBERS, "0", "1&blockNumber=1"])
async def test_a_block_number_is_a_whole_number_from_one(ask: Any, engine: FakeEngine, text: str) -> None:
    await assert_refused(await ask(AT_BLOCK + text), "blockNumber")
    assert engine.calls == []


async def test_a_block_above_the_head_is_refused_like_any_bad_parameter(ask: Any, engine: FakeEngine) -> None:
    engine.failure = errors.BadRequest("blockNumber", "block 9 is above the head of ethereum, which is block 7")
    answer = await ask(AT_BLOCK + "9")
    await assert_refused(answer, "which is block 7")
    assert (await answer.json())["details"]["query"][0]["path"] == ["blockNumber"]


@pytest.mark.parametrize("chain", ["Ethereum", "ETHEREUM", "linea", "base", "", "ethereum%20", "1", "еthereum"])
async def test_a_chain_that_is_not_enabled_is_refused(ask: Any, engine: FakeEngine, chain: str) -> None:
    answer = await ask(f"/v1/portfolio/at-block?addresses={ALICE}&chainKey={chain}&blockNumber=5")
    await assert_refused(answer, "one of ethereum, monad")
    assert engine.calls == []


@pytest.mark.parametrize("addresses", [f"{ALICE},{BOB}", SOL, TRON, STARKNET, "", "vitalik.eth", "virtual:1"])
async def test_at_block_takes_one_evm_address(ask: Any, addresses: str) -> None:
    await assert_refused(
        await ask(f"/v1/portfolio/at-block?addresses={addresses}&chainKey=monad&blockNumber=5"), "`addresses`"
    )


@pytest.mark.parametrize("missing", ["addresses", "chainKey", "blockNumber"])
async def test_at_block_needs_all_three(ask: Any, missing: str) -> None:
    parameters = {"addresses": ALICE, "chainKey": "monad", "blockNumber": "5"}
    query = "&".join(f"{name}={value}" for name, value in parameters.items() if name != missing)
    await assert_refused(await ask(f"/v1/portfolio/at-block?{query}"), f"`{missing}` is required")


@pytest.mark.parametrize(
    "failure",
    [
        errors.HistoryUnavailable("SECRET", 5, "SECRET"),
        errors.Unavailable("SECRET", "SECRET"),
        errors.BadAnswer("SECRET", "SECRET"),
        errors.Reorged("SECRET", 5, "0xab"),
    ],
)
async def test_an_upstream_failure_at_a_block_is_a_short_plain_sentence(
    ask: Any, engine: FakeEngine, failure: Exception
) -> None:
    engine.failure = failure
    answer = await ask(AT_BLOCK + "5")
    text = await answer.text()
    assert (answer.status, answer.content_type) == (500, "text/plain")
    assert text.startswith("the portfolio at that block could not be fetched")
    assert len(text) < 120
    assert "SECRET" not in text


async def test_a_chain_without_a_node_is_not_served(ask: Any, engine: FakeEngine) -> None:
    engine.failure = errors.NotSupported("the portfolio at a block of monad")
    for path in (AT_BLOCK + "5", APPROVALS):
        answer = await ask(path)
        assert (answer.status, (await answer.json())["error"]) == (501, "Not Served")


async def test_the_operator_enables_any_chain() -> None:
    from chainfolio.api.app import make_app
    from chainfolio.environment import Environment

    settings = Settings(chains={"linea": EvmSettings(at_block=True), "base": EvmSettings()})
    app = make_app(FakeEngine(), FakeKeys(), settings, Environment())
    async with listening(app, "127.0.0.1", 0, drain_s=0.1) as port, client_session() as session:
        for chain, status in (("linea", 200), ("ethereum", 200), ("base", 400)):
            url = f"http://127.0.0.1:{port}/v1/portfolio/at-block?addresses={ALICE}&chainKey={chain}&blockNumber=5"
            assert (await session.get(url, headers={"Authorization": f"Bearer {KEY}"})).status == status
        described = await (await session.get(f"http://127.0.0.1:{port}/openapi.json")).json()
        parameters = described["paths"]["/v1/portfolio/at-block"]["get"]["parameters"]
        assert parameters[1]["schema"]["enum"] == ["ethereum", "linea", "monad"]


# --- historical ------------------------------------------------------------------------------------------------------


async def test_a_past_day_is_asked_of_the_engine(ask: Any, engine: FakeEngine) -> None:
    body = await (await ask(f"/v1/historical?addresses={BOB},{ALICE}&date=2024-02-29")).json()
    assert [each["address"] for each in body] == [BOB, ALICE]
    ((name, (_, day)),) = engine.calls
    assert (name, day) == ("historical", date(2024, 2, 29))


@pytest.mark.parametrize(
    "text",
    [
        "2024-02-30",
        "0000-01-01",
        "2023-02-29",
        "2024-13-01",
        "2024-1-1",
        "20240101",
        "2024-01-01T00:00:00Z",
        "",
        "2024-01-01Z",
        "2024-01-01+00:00",
        "２０２４-01-01",
        "2024/01/01",
        "01-01-2024",
        "2024-W01-1",
        "-2024-01-01",
        "2024-01-01%00",
        "2024-01-01%0A",
        "yesterday",
        "2024-01-01&date=2024-01-01",
    ],
)
async def test_a_date_is_a_day_of_the_calendar_in_one_form(ask: Any, engine: FakeEngine, text: str) -> None:
    answer = await ask(f"/v1/historical?addresses={ALICE}&date={text}")
    await assert_refused(answer, "`date`")
    assert "more than once" in await answer.text() or "YYYY-MM-DD" in await answer.text()
    assert engine.calls == []


async def test_today_is_a_date_and_tomorrow_is_not_yet(ask: Any) -> None:
    today = datetime.now(UTC).date()
    assert (await ask(f"/v1/historical?addresses={ALICE}&date={today - timedelta(days=1)}")).status == 200
    await assert_refused(
        await ask(f"/v1/historical?addresses={ALICE}&date={today + timedelta(days=2)}"), "in the future"
    )
    await assert_refused(await ask(f"/v1/historical?addresses={ALICE}&date=9999-12-31"), "YYYY-MM-DD")
    await assert_refused(await ask(f"/v1/historical?addresses={ALICE}"), "`date` is required")


async def test_an_address_without_a_subscription_is_forbidden_and_named(
    ask: Any, engine: FakeEngine, keys: FakeKeys
) -> None:
    keys.subscriptions = {"acc_1": {ALICE}, "acc_2": {BOB}}
    answer = await ask(f"/v1/historical?addresses={ALICE},{BOB}&date=2024-02-29")
    body = await answer.json()
    assert (answer.status, body["error"], set(body)) == (403, "Forbidden", {"error", "message"})
    assert BOB in body["message"]
    assert ALICE not in body["message"]
    assert engine.calls == []


async def test_a_day_that_every_node_has_forgotten_is_not_found(ask: Any, engine: FakeEngine) -> None:
    engine.failure = errors.HistoryUnavailable("SECRET", 5, "SECRET")
    answer = await ask(f"/v1/historical?addresses={ALICE}&date=2024-02-29")
    body = await answer.json()
    assert (answer.status, body["error"], set(body)) == (404, "Not Found", {"error", "message"})
    assert "SECRET" not in body["message"]


# --- approvals -------------------------------------------------------------------------------------------------------


async def test_an_approval_is_answered_field_by_field(ask: Any, engine: FakeEngine) -> None:
    item = an_approval(19_000_000, 2**256 - 1)
    asset = ApprovedAsset("USDC", "USD Coin", 6, Decimal("12.50"), Decimal(1), Decimal("1E+1"))
    engine.page = ApprovalsPage((item,), None, {(ALICE, item.token): asset})
    assert await (await ask(APPROVALS)).json() == {
        "cursor": None,
        "pageSize": 1,
        "items": [
            {
                "block": "19000000",
                "timestamp": "2023-11-14T22:13:20.123Z",
                "hash": item.position.tx_hash,
                "contract": item.token,
                "from": ALICE,
                "to": BOB,
                "amount": str(2**256 - 1),
                "asset": {
                    "name": "usd coin",
                    "symbol": "usdc",
                    "balance": "12.5",
                    "price": "1",
                    "value": "10",
                    "decimal": "6",
                    "chain": "ethereum",
                    "contract": item.token,
                },
            }
        ],
    }
    ((_, (accounts, chain, limit, start, include)),) = engine.calls
    assert (chain, [each.address for each in accounts], limit, start, include) == ("ethereum", [ALICE], 25, None, ())


async def test_an_untracked_token_has_no_asset(ask: Any, engine: FakeEngine) -> None:
    engine.page = ApprovalsPage((an_approval(5),), None)
    (item,) = (await (await ask(APPROVALS)).json())["items"]
    assert "asset" not in item


async def test_a_cursor_leads_to_where_its_page_ended(ask: Any, engine: FakeEngine) -> None:
    first = an_approval(9)
    engine.page = ApprovalsPage((first,), first.position)
    cursor = (await (await ask(APPROVALS + "&limit=1")).json())["cursor"]
    engine.calls.clear()
    engine.page = ApprovalsPage((an_approval(8),), None)
    body = await (await ask(f"{APPROVALS}&limit=2&cursor={cursor}")).json()
    assert (body["cursor"], body["pageSize"]) == (None, 1)
    ((_, (_, _, limit, start, _)),) = engine.calls
    assert (limit, start) == (2, first.position)


@pytest.fixture
async def cursor(ask: Any, engine: FakeEngine) -> str:
    """A cursor of Alice's approvals on Ethereum."""
    engine.page = ApprovalsPage((an_approval(9),), an_approval(9).position)
    cursor: str = (await (await ask(APPROVALS)).json())["cursor"]
    engine.calls.clear()
    return cursor


@pytest.mark.parametrize("path", ["/v1/approvals/base", "/v1/approvals/ethereum"])
async def test_a_cursor_is_bound_to_its_question(ask: Any, engine: FakeEngine, cursor: str, path: str) -> None:
    addresses = ALICE if "base" in path else BOB
    answer = await ask(f"{path}?addresses={addresses}&cursor={cursor}")
    assert (answer.status, set(await answer.json())) == (400, {"message"})
    assert engine.calls == []


async def test_a_cursor_is_bound_to_its_account(ask: Any, engine: FakeEngine, keys: FakeKeys, cursor: str) -> None:
    keys.keys[OTHER_KEY] = Caller(account_id="acc_2")
    path = f"{APPROVALS}&cursor={cursor}"
    assert (await ask(path, headers={"Authorization": f"Bearer {OTHER_KEY}"})).status == 400
    assert (await ask(path)).status == 200


@pytest.mark.parametrize("text", ["", "a", "null", "%00", "é", "A" * 100, "A" * 513, "====", "eyJhIjoxfQ"])
async def test_a_forged_cursor_is_refused(ask: Any, engine: FakeEngine, text: str) -> None:
    answer = await ask(f"{APPROVALS}&cursor={text}")
    assert (answer.status, set(await answer.json())) == (400, {"message"})
    assert engine.calls == []


def test_a_cursor_with_one_bit_or_one_letter_changed_is_no_cursor() -> None:
    secret, question, position = (
        b"s" * 32,
        ("approvals", "acc_1", "ethereum", ALICE),
        EventPosition(9, 3, "0x" + "ab" * 32),
    )
    cursor = seal(secret, question, position)
    assert unseal(secret, question, cursor, EventPosition) == position
    cursor_bytes = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    bits = [
        urlsafe_b64encode(cursor_bytes[:at] + bytes([cursor_bytes[at] ^ 1 << bit]) + cursor_bytes[at + 1 :])
        .decode()
        .rstrip("=")
        for at in range(len(cursor_bytes))
        for bit in range(8)
    ]
    letters = [cursor[:at] + letter + cursor[at + 1 :] for at in range(len(cursor)) for letter in "A_-=+/ \n"]
    cut = [cursor[:at] for at in range(len(cursor))] + [cursor + suffix for suffix in ("A", "=", "==", "\n")]
    for changed in {*bits, *letters, *cut} - {cursor}:
        with pytest.raises(InvalidCursor):
            unseal(secret, question, changed, EventPosition)
    for changed_question in (
        ("approvals", "acc_1", "ethereum" + ALICE),
        ("approvals", "acc_1ethereum", ALICE),
        question[:-1],
    ):
        with pytest.raises(InvalidCursor):
            unseal(secret, changed_question, cursor, EventPosition)
    with pytest.raises(InvalidCursor):
        unseal(b"t" * 32, question, cursor, EventPosition)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/approvals/ethereum",
        f"/v1/approvals/monad?addresses={ALICE}",
        f"/v1/approvals/Ethereum?addresses={ALICE}",
        f"/v1/approvals/bnb?addresses={ALICE}",
        f"/v1/approvals/ethereum%20?addresses={ALICE}",
        f"/v1/approvals/ethereum?addresses={SOL}",
        f"{APPROVALS}&include=risk",
        f"{APPROVALS}&include=",
        f"{APPROVALS}&include=allowance,,operators",
        f"{APPROVALS}&includeImages=true",
        *(f"{APPROVALS}&limit={limit}" for limit in (*NOT_NUMBERS, "0", "101", "5&limit=5")),
    ],
)
async def test_every_refusal_of_approvals_is_only_a_message(ask: Any, engine: FakeEngine, path: str) -> None:
    answer = await ask(path)
    body = await answer.json()
    assert (answer.status, set(body)) == (400, {"message"})
    assert engine.calls == []


async def test_what_is_left_of_approvals_is_shown_where_asked_for(ask: Any, engine: FakeEngine) -> None:
    new, old, odd = an_approval(9, 2**256 - 1), an_approval(8), an_approval(7)
    block = Block(12, "0x" + "bb" * 32, "0x" + "aa" * 32, 1_700_000_000_000_000)
    token = Token(Asset("eip155:1", "erc20", new.token), "USDC", "USD Coin", 6)
    allowances = {
        new.position: Allowance(new, token, 2**256 - 1, True, 12_500_000, None, Decimal("12.50"), "1inch: router v6"),
        odd.position: Allowance(odd, token, 0, False, None, None, None, "1inch: router v6"),
    }
    may = Operator(
        position=old.position, time_us=old.time_us, token=old.token, owner=ALICE, spender=BOB, standard="erc1155"
    )
    single_token = replace(may, standard=None, token_id=7, movable_count=1, label="OpenSea: conduit")
    labels = {BOB: "1inch: router v6"}
    engine.page = ApprovalsPage(
        (new, old, odd), None, block=block, allowances=allowances, operators=(may, single_token), labels=labels
    )
    body = await (await ask(f"{APPROVALS}&include=operators&include=allowance")).json()
    assert engine.calls[0][1][4] == ("allowance", "operators")
    here = {"blockNumber": "12", "blockHash": block.hash}
    assert [item.get("allowance") for item in body["items"]] == [
        {"amount": str(2**256 - 1), "unlimited": True, "balance": "12500000", "valueAtRisk": "12.5", **here},
        None,
        {"amount": "0", "unlimited": False, "balance": "N/A", "valueAtRisk": "N/A", **here},
    ]
    assert {item["spenderLabel"] for item in body["items"]} == {"1inch: router v6"}
    assert body["unpricedAllowances"] == 1
    first, second = body["operators"]
    assert (first["standard"], first["held"], first["spenderLabel"], "tokenId" in first) == (
        "erc1155",
        "N/A",
        None,
        False,
    )
    assert (second["standard"], second["held"], second["tokenId"]) == ("N/A", "1", "7")
    assert second["spenderLabel"] == "OpenSea: conduit"


async def test_a_cursor_is_bound_to_what_was_included(ask: Any, engine: FakeEngine, cursor: str) -> None:
    answer = await ask(f"{APPROVALS}&include=allowance&cursor={cursor}")
    assert (answer.status, set(await answer.json())) == (400, {"message"})
    assert engine.calls == []


@pytest.mark.parametrize("limit", [1, 25, 100])
async def test_the_limits_of_approvals_are_taken(ask: Any, limit: int) -> None:
    assert (await ask(f"{APPROVALS}&limit={limit}")).status == 200


async def test_failures_of_approvals_have_their_own_bodies(ask: Any, engine: FakeEngine) -> None:
    engine.failure = errors.Unavailable("SECRET", "SECRET")
    answer = await ask(APPROVALS)
    assert (answer.status, set(await answer.json())) == (502, {"message"})
    engine.failure = errors.NotIndexed("ethereum", "approvals", 0, 9)
    answer = await ask(APPROVALS)
    assert (answer.status, (await answer.json())["error"]) == (503, "Not Indexed")
    engine.failure = errors.BadRequest("cursor", "the chain has changed since that page")
    answer = await ask(APPROVALS)
    assert (answer.status, set(await answer.json())) == (400, {"message"})
    answer = await ask(APPROVALS, headers={"Authorization": "Bearer x"})
    assert (answer.status, set(await answer.json())) == (401, {"error", "message"})


# --- transactions ----------------------------------------------------------------------------------------------------


async def test_transactions_are_an_object_with_a_list(ask: Any, engine: FakeEngine) -> None:
    assert await (await ask(PAGED)).json() == {"transactions": [], "completeness": "complete", "issues": []}
    ((_, (accounts, request)),) = engine.calls
    assert [each.address for each in accounts] == [ALICE]
    assert request == TransactionFilter(limit=10, offset=0)


async def test_every_filter_reaches_the_engine(ask: Any, engine: FakeEngine) -> None:
    query = (
        "&sort=ASC&initialSearchText=usd%20coin&interactingAddresses=" + BOB.upper().replace("X", "x") + f",{SOL}"
        "&networks=ethereum,optimism&networks=ethereum&txTypes=SWAP,APPROVAL&protocols=aave3,uniswap_v3"
        "&hideSpam=true&hideDust=true&startDate=2026-03-01T12:30:00.5%2B02:00&endDate=2026-03-31&tokenId=115"
    )
    assert (await ask(PAGED + query)).status == 200
    ((_, (_, request)),) = engine.calls
    assert request == TransactionFilter(
        limit=10,
        offset=0,
        newest_first=False,
        search="usd coin",
        counterparties=(BOB, SOL),
        networks=("ethereum", "optimism"),
        types=("SWAP", "APPROVAL"),
        protocols=("aave3", "uniswap_v3"),
        hide_spam=True,
        hide_dust=True,
        since_us=us(2026, 3, 1, 10, 30) + 500_000,
        until_us=us(2026, 4, 1) - 1,
        token_id=115,
    )


def us(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> int:
    """A moment in microseconds since 1970."""
    instant = datetime(year, month, day, hour, minute, tzinfo=UTC)
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("start", "end", "since", "until_us"),
    [
        ("2026-03-01", "2026-03-01", us(2026, 3, 1), us(2026, 3, 2) - 1),
        ("2026-03-01T00:00Z", "2026-03-01T23:59:59.999999Z", us(2026, 3, 1), us(2026, 3, 2) - 1),
        ("2026-03-01T00:00:00-01:00", "2026-03-01T23:30:00-01:00", us(2026, 3, 1, 1), us(2026, 3, 3) - 1),
        ("0001-01-01", "9999-12-31", us(1, 1, 1), us(9999, 12, 31) + 86_400_000_000 - 1),
    ],
)
async def test_a_start_is_exact_and_an_end_is_the_end_of_its_day(
    ask: Any, engine: FakeEngine, start: str, end: str, since: int, until_us: int
) -> None:
    assert (await ask(f"{PAGED}&startDate={start}&endDate={end}")).status == 200
    ((_, (_, request)),) = engine.calls
    assert (request.since_us, request.until_us) == (since, until_us)


@pytest.mark.parametrize("name", ["startDate", "endDate"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-02-30",
        "2026-3-1",
        "2026-03-01T00:00:00",
        "2026-03-01T24:00:00Z",
        "2026-03-01T12:00:60Z",
        "2026-03-01%2000:00:00Z",
        "2026-03-01T12:00:00+02:00",
        "1772366400",
        "0000-01-01",
        "2026-03-01T1:00Z",
        "0001-01-01T00:00:00%2B01:00",
        "2026-03-01T00:00:00.1234567Z",
        "2026-03-01T00:00:00z",
        "２026-03-01",
        "2026-03-01T00:00:00%2B25:00",
    ],
)
async def test_a_moment_has_one_form(ask: Any, engine: FakeEngine, name: str, text: str) -> None:
    await assert_refused(await ask(f"{PAGED}&{name}={text}"), f"`{name}`")
    assert engine.calls == []


@pytest.mark.parametrize(
    "query",
    [
        *(f"limit={text}&offset=0" for text in (*NOT_NUMBERS, "0", "251", "10&limit=10", str(2**31), str(2**63))),
        *(f"limit=10&offset={text}" for text in (*NOT_NUMBERS, str(2**63), "0&offset=0")),
        "limit=10",
        "offset=0",
        *(f"limit=10&offset=0&sort={text}" for text in ("desc", "", "DESC;DROP", "asc", "DESC,ASC", "ASC&sort=ASC")),
        *(
            f"limit=10&offset=0&txTypes={text}"
            for text in ("", "swap", "SEND", "SWAP,", ",SWAP", "SWAP,%20LEND", "SWAP;LEND")
        ),
        *(f"limit=10&offset=0&networks={text}" for text in ("", "Ethereum", "eth%20", "a,,b", "a%27--", "a" * 65)),
        *(f"limit=10&offset=0&protocols={text}" for text in ("", "aave3,", "%3Cb%3E", "%00", "a" * 65)),
        *(f"limit=10&offset=0&interactingAddresses={text}" for text in ("", "0x12", f"{ALICE},", "vitalik.eth")),
        *(f"limit=10&offset=0&hideSpam={text}" for text in ("", "tRue", "1", "yes", "true&hideSpam=true")),
        *(f"limit=10&offset=0&hideDust={text}" for text in ("", "falsE", "0", "no")),
        *(f"limit=10&offset=0&tokenId={text}" for text in (*NOT_NUMBERS, str(2**256), "1&tokenId=1")),
        f"limit=10&offset=0&initialSearchText={'a' * 257}",
        "limit=10&offset=0&startDate=2026-03-02&endDate=2026-03-01",
        "limit=10&offset=0&networks=" + ",".join(f"n{number}" for number in range(51)),
        "limit=10&offset=0&chain=ethereum",
        "limit=10&offset=0&type=SWAP",
        "limit=10&offset=0&start_date=2026-03-01",
    ],
)
async def test_a_filter_that_cannot_be_meant_is_refused(ask: Any, engine: FakeEngine, query: str) -> None:
    await assert_refused(await ask(f"{TRANSACTIONS}&{query}"))
    assert engine.calls == []


def test_there_are_thirty_five_types() -> None:
    assert len(set(get_args(TransactionType))) == len(TYPES) == 35


async def test_without_a_source_transactions_are_not_served(ask: Any, engine: FakeEngine) -> None:
    engine.failure = errors.NotSupported("the transactions of an account")
    answer = await ask(PAGED)
    assert (answer.status, (await answer.json())["error"]) == (501, "Not Served")


async def test_an_address_with_too_many_transactions_is_not_indexed(ask: Any, engine: FakeEngine) -> None:
    engine.failure = errors.NotFound(f"{ALICE} has more than 100,000 transactions", remedy="raise the ceiling")
    answer = await ask(PAGED)
    body = await answer.json()
    assert (answer.status, body["error"]) == (404, "Address not indexed")
    assert body["message"] == f"{ALICE} has more than 100,000 transactions"


async def test_transactions_that_nobody_indexed_are_not_an_empty_list(ask: Any, engine: FakeEngine) -> None:
    engine.failure = errors.NotIndexed("ethereum", "transfers", 0, 99)
    answer = await ask(PAGED)
    assert (answer.status, (await answer.json())["error"], answer.headers["Retry-After"]) == (503, "Not Indexed", "60")


# --- sync ------------------------------------------------------------------------------------------------------------


async def test_sync_answers_a_bare_string(ask: Any, engine: FakeEngine) -> None:
    for engine.syncing, message in ((False, "Address is syncing"), (True, "Address already syncing")):
        answer = await ask("/v1/sync-transactions", "POST", json={"addresses": [ALICE, TRON, ALICE]})
        assert (answer.status, await answer.text()) == (200, f'"{message}"')
    (_, (accounts,)), (_, (_, watched)), *_ = engine.calls
    assert [name for name, _ in engine.calls] == ["sync", "watch"] * 2
    assert [each.address for each in accounts] == [each.address for each in watched] == [ALICE, TRON]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{}",
        "[]",
        "null",
        '"a"',
        '{"addresses":[]}',
        '{"addresses":null}',
        '{"addresses":"0x12"}',
        '{"addresses":[1]}',
        '{"addresses":[""]}',
        '{"addresses":["0x12"]}',
        '{"addresses":[["a"]]}',
        f'{{"addresses":["{ALICE},{BOB}"]}}',
        f'{{"addresses":["{ALICE}"],"plan":"PRO"}}',
        f'{{"addresses":["{ALICE}",null]}}',
        f'{{"addresses":[{",".join([chr(34) + ALICE + chr(34)] * 11)}]}}',
        f'\ufeff{{"addresses":["{ALICE}"]}}',
        '{"addresses":["\\ud800"]}',
        f'{{"addresses":["{ALICE}"]}}x',
    ],
)
async def test_a_body_that_does_not_fit_is_refused(ask: Any, engine: FakeEngine, body: str) -> None:
    headers = {"Content-Type": "application/json"}
    await assert_refused(await ask("/v1/sync-transactions", "POST", data=body.encode(), headers=headers))
    assert engine.calls == []


async def test_a_bad_address_in_a_body_is_told_with_its_place(ask: Any) -> None:
    answer = await ask("/v1/sync-transactions", "POST", json={"addresses": [ALICE, "0x12"]})
    assert [field_error["path"] for field_error in (await answer.json())["details"]["body"]] == [["addresses", "1"]]


@pytest.mark.parametrize("kind", ["", "text/plain", "application/json; charset=utf-7", "multipart/form-data"])
async def test_a_body_of_another_kind_is_415(ask: Any, kind: str) -> None:
    answer = await ask("/v1/sync-transactions", "POST", data=b"{}", headers={"Content-Type": kind})
    assert answer.status == 415


async def test_sync_is_only_posted(ask: Any) -> None:
    answer = await ask("/v1/sync-transactions")
    assert (answer.status, answer.headers["Allow"]) == (405, "OPTIONS, POST")


# --- who may ---------------------------------------------------------------------------------------------------------


def test_each_route_says_what_it_needs() -> None:
    from chainfolio.api.routes import ROUTES

    requirements = {route.path: (route.needs, route.bucket, route.envelope, route.cost) for route in ROUTES}
    assert requirements["/v1/portfolio/at-block"] == ("at-block", "at-block", "at-block", 1)
    assert requirements["/v1/historical"] == ("portfolio", "all", "historical", 1)
    assert requirements["/v1/approvals/{chain}"] == ("portfolio", "all", "approvals", 1)
    assert requirements["/v1/transactions"] == ("portfolio", "all", "transactions", 1)
    assert requirements["/v1/sync-transactions"] == ("portfolio", "all", "whole", 1)
