"""Parameters of a query: all others are refused with their place, before any work."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.api.serve import listening
from chainfolio.contracts import CURRENCIES
from chainfolio.portfolio.facts import Options
from chainfolio.settings import Server
from tests.api.fakes import ALICE, BOB, KEY, SOL, STARKNET, TRON, FakeEngine, FakeKeys, an_app
from tests.api.sessions import client_session

ELEVEN = ",".join("0x" + f"{number:02x}" * 20 for number in range(11))


def accounts(engine: FakeEngine) -> list[str]:
    (_, (accounts, *_)), *_ = engine.calls
    return [account.address for account in accounts]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (f"addresses={ALICE}", [ALICE]),
        (f"addresses={ALICE},{BOB}", [ALICE, BOB]),
        (f"addresses={ALICE}%2C{BOB}", [ALICE, BOB]),
        (f"addresses={BOB}&addresses={ALICE}", [BOB, ALICE]),
        (f"addresses={BOB},{SOL}&addresses={ALICE}", [BOB, SOL, ALICE]),
        (f"addresses={ALICE},{ALICE.upper().replace('X', 'x')},{ALICE}", [ALICE]),
        (f"addresses={SOL},{TRON},{STARKNET},{ALICE}", [SOL, TRON, STARKNET, ALICE]),
        (f"addresses=0x{'beef':0>41},{STARKNET}", [STARKNET]),
        ("addresses=" + ",".join([ALICE, ALICE.upper().replace("0X", "0x")] * 40), [ALICE]),
        ("addresses=" + ELEVEN.rsplit(",", 1)[0], ELEVEN.split(",")[:10]),
    ],
)
async def test_addresses_come_in_every_style_in_order_and_once(
    ask: Any, engine: FakeEngine, query: str, expected: list[str]
) -> None:
    answer = await ask(f"/v1/portfolio?{query}")
    assert answer.status == 200
    assert accounts(engine) == expected
    assert [each["address"] for each in await answer.json()] == expected


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "`addresses` is required"),
        ("addresses=", "`addresses` has an empty item"),
        (f"addresses={ALICE},", "`addresses` has an empty item"),
        (f"addresses=,{ALICE}", "`addresses` has an empty item"),
        (f"addresses={ALICE},,{BOB}", "`addresses` has an empty item"),
        (f"addresses={ALICE}&addresses=", "`addresses` has an empty item"),
        (f"addresses={ELEVEN}", "`addresses` holds 11 addresses; at most 10"),
        (f"addresses={ELEVEN.replace(',', '&addresses=')}", "`addresses` holds 11 addresses; at most 10"),
        ("addresses=0x12", "`addresses` is malformed: '0x12' is not an address"),
        (f"addresses=%20{ALICE}", f"`addresses` is malformed: ' {ALICE}'"),
        (f"addresses={ALICE}%0A", "`addresses` is malformed"),
        (f"addresses={ALICE}%00", "`addresses` is malformed"),
        (f"addresses={ALICE};{BOB}", "`addresses` is malformed"),
        ("addresses=vitalik.eth", "`addresses` is malformed: 'vitalik.eth'"),
        ("addresses=virtual:1", "`addresses` is malformed"),
        (f"addresses={TRON[:-1]}u", "checksum"),
        ("addresses=0x" + "f" * 64, "outside the field"),
        ("addresses=%FF%FE", "`addresses` is malformed"),
        ("addresses=0x" + "٣" * 40, "`addresses` is malformed"),
        (f"addresses[]={ALICE}", "unknown parameter 'addresses[]'; did you mean `addresses`?"),
        (f"address={ALICE}", "unknown parameter 'address'; did you mean `addresses`?"),
        (f"addresses={ALICE}&Addresses={ALICE}", "unknown parameter 'Addresses'"),
        (f"addresses={ALICE}&chain=ethereum", "unknown parameter 'chain'"),
        (f"addresses={ALICE}&wait_for_sync=true", "did you mean `waitForSync`?"),
        (f"addresses={ALICE}&=", "unknown parameter ''"),
        (f"addresses={ALICE}&%3Cscript%3E=1", "unknown parameter '<script>'"),
    ],
)
async def test_a_query_that_does_not_fit_is_told_what_is_wrong_and_where(
    ask: Any, engine: FakeEngine, query: str, message: str
) -> None:
    answer = await ask(f"/v1/portfolio?{query}")
    body = await answer.json()
    assert answer.status == 400
    assert body["error"] == "Validation Failed"
    assert set(body) == {"error", "message", "details"}
    assert message in body["message"]
    assert all(set(field_error) == {"message", "path"} for field_error in body["details"]["query"])
    assert engine.calls == []


async def test_everything_that_is_wrong_is_told_at_once(ask: Any) -> None:
    body = await (await ask("/v1/nav?currency=usd&waitForSync=yes&foo=1")).json()
    assert body["details"] == {
        "query": [
            {"message": "unknown parameter 'foo'", "path": ["foo"]},
            {"message": "`addresses` is required", "path": ["addresses"]},
            {"message": "`waitForSync` cannot be 'yes': it is `true` or `false`", "path": ["waitForSync"]},
            {
                "message": "`currency` cannot be 'usd': it is one of AED, BNB, CAD, CHF, ETH, EUR, EURC, SGD, SOL, "
                "USD, cbBTC",
                "path": ["currency"],
            },
        ]
    }


async def test_a_flood_of_unknown_parameters_gets_a_short_answer(ask: Any) -> None:
    answer = await ask("/v1/chains?" + "&".join(f"x{number}" for number in range(1500)))
    assert answer.status == 400
    assert len((await answer.json())["details"]["query"]) == 20


@pytest.mark.parametrize("flag", ["waitForSync", "includeImages", "includeExplorerUrls", "includeSources"])
@pytest.mark.parametrize(
    ("text", "status"),
    [
        *((text, 200) for text in ("true", "false", "True", "False", "TRUE", "FALSE")),
        *((text, 400) for text in ("tRUE", "falsE", "T", "1", "0", "yes", "", "null", "%20true", "true%20", "yes%00")),
    ],
)
async def test_a_boolean_is_true_or_false_in_three_spellings(ask: Any, flag: str, text: str, status: int) -> None:
    assert (await ask(f"/v1/portfolio?addresses={ALICE}&{flag}={text}")).status == status


@pytest.mark.parametrize("text", ["true", "false", "True"])
async def test_collectibles_are_asked_of_the_engine(ask: Any, engine: FakeEngine, text: str) -> None:
    assert (await ask(f"/v1/portfolio?addresses={ALICE}&includeNFTs={text}")).status == 200
    (_, (_, options, *_)), *_ = engine.calls
    assert options == Options(nfts=text != "false", nft_metadata=text != "false", rates=True)


@pytest.mark.parametrize("second", ["true", "false"])
async def test_a_parameter_that_is_no_list_is_given_once(ask: Any, second: str) -> None:
    answer = await ask(f"/v1/portfolio?addresses={ALICE}&waitForSync=true&waitForSync={second}")
    assert answer.status == 400
    assert "`waitForSync` is given more than once" in await answer.text()


@pytest.mark.parametrize("currency", ["usd", "USD%20", "CBBTC", "GBP", "", "USD,EUR", "ＵＳＤ"])
async def test_a_currency_is_one_of_the_list_in_its_case(ask: Any, currency: str) -> None:
    assert (await ask(f"/v1/nav?addresses={ALICE}&currency={currency}")).status == 400


async def test_a_currency_of_the_settings_is_taken_and_described(engine: FakeEngine, keys: FakeKeys) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    app = an_app(engine, keys, rates={"GBP": "0.79", "JPY": "151.3"})
    async with listening(app, "127.0.0.1", 0, drain_s=0.1) as port, client_session(headers=headers) as session:
        url, query = f"http://127.0.0.1:{port}", f"addresses={ALICE}"
        for path in (f"/v1/nav?{query}", f"/v1/performance?{query}&startDate=2024-02-28&endDate=2024-03-01"):
            answer = await session.get(f"{url}{path}&currency=JPY")
            assert (answer.status, (await answer.json())["currency"]) == (200, "JPY")
            text = await (await session.get(f"{url}{path}&currency=CNY")).text()
            assert "GBP, JPY, SGD" in text
        described = await (await session.get(f"{url}/openapi.json")).json()
    (schema,) = [
        each["schema"] for each in described["paths"]["/v1/nav"]["get"]["parameters"] if each["name"] == "currency"
    ]
    assert schema == {"type": "string", "enum": [*CURRENCIES, "GBP", "JPY"], "default": "USD"}


@pytest.mark.parametrize("path", ["/v1/chains", "/healthz", "/docs"])
async def test_a_route_without_parameters_takes_none(ask: Any, path: str) -> None:
    assert (await ask(f"{path}?page=1")).status == 400


class TestAnotherCap:
    @pytest.fixture
    def server(self) -> Server:
        return Server(max_addresses=1)

    async def test_the_number_of_addresses_is_a_setting(self, ask: Any) -> None:
        assert (await ask(f"/v1/wallet?addresses={ALICE}")).status == 200
        assert (await ask(f"/v1/wallet?addresses={ALICE},{BOB}")).status == 400
        described = await (await ask("/openapi.json")).json()
        assert described["paths"]["/v1/wallet"]["get"]["parameters"][0]["schema"]["maxItems"] == 1


async def test_options_reach_the_engine(ask: Any, engine: FakeEngine) -> None:
    await ask(f"/v1/portfolio?addresses={ALICE}&includeImages=true&includeSources=true&waitForSync=true")
    (_, (_, options, wait, wallet_only)), *_ = engine.calls
    assert options == Options(images=True, explorer_urls=False, sources=True, rates=True)
    assert (wait, wallet_only) == (True, False)


async def test_pictures_and_links_of_wallets_and_transactions_reach_the_engine(ask: Any, engine: FakeEngine) -> None:
    query = "&includeImages=true&includeExplorerUrls=true"
    for path in ("/v1/wallet?", "/v1/transactions?limit=10&offset=0&"):
        assert (await ask(f"{path}addresses={ALICE}{query}")).status == 200
    (_, (_, options, *_)), (_, (_, request)) = engine.calls
    assert options == Options(images=True, explorer_urls=True, rates=True)
    assert request.options == Options(images=True, explorer_urls=True)


async def test_the_wallet_is_always_read_live(ask: Any, engine: FakeEngine) -> None:
    await ask(f"/v1/wallet?addresses={ALICE}")
    (_, (_, _, wait, wallet_only)), *_ = engine.calls
    assert (wait, wallet_only) == (True, True)
