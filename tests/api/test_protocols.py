"""The protocols of a chain, page by page, and the protocol of a contract."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.api.protocols import chain_protocols, contract_protocol
from chainfolio.portfolio.pictures import drawn
from tests.api.fakes import POOL, PROTOCOLS, FakeEngine

LIDO = "0x" + "5e" * 20
PATH = "/v1/chains/optimism/protocols"
SPARE = dict.fromkeys(("imgSmall", "imgLarge"), drawn("aave3", "Aave V3"))


def test_what_they_cost_and_need() -> None:
    assert (chain_protocols.cost, chain_protocols.needs, chain_protocols.envelope) == (0, "", "whole")
    assert (contract_protocol.cost, contract_protocol.needs) == (5, "portfolio")
    assert contract_protocol.envelope == "contract-protocol"


async def test_protocols_are_listed_by_name_with_pictures(ask: Any) -> None:
    body = await (await ask("/v1/chains/ethereum/protocols")).json()
    aave, lido = PROTOCOLS.on("ethereum")
    picture = "https://images.example/l.svg"
    assert body == {
        "data": [
            {"uuid": aave.uuid, "name": "Aave V3", "key": "aave3", **SPARE, "isUserProtocol": False},
            {
                "uuid": lido.uuid,
                "name": "Lido",
                "key": "lido",
                "imgSmall": picture,
                "imgLarge": picture,
                "isUserProtocol": False,
            },
        ],
        "pagination": {"page": 1, "limit": 20, "hasMore": False},
    }


@pytest.mark.parametrize(
    ("query", "count", "page", "limit", "has_more"),
    [
        ("", 20, 1, 20, True),
        ("page=2", 20, 2, 20, True),
        ("page=3", 1, 3, 20, False),
        ("page=4", 0, 4, 20, False),
        ("limit=41", 41, 1, 41, False),
        ("limit=100", 41, 1, 100, False),
        ("page=41&limit=1", 1, 41, 1, False),
        ("page=40&limit=1", 1, 40, 1, True),
        (f"page={2**31 - 1}&limit=100", 0, 2**31 - 1, 100, False),
    ],
)
async def test_pages_follow_one_another(
    ask: Any, query: str, count: int, page: int, limit: int, has_more: bool
) -> None:
    body = await (await ask(f"{PATH}?{query}")).json()
    assert len(body["data"]) == count
    assert body["pagination"] == {"page": page, "limit": limit, "hasMore": has_more}


async def test_all_pages_together_are_all_protocols_once(ask: Any) -> None:
    pages = [(await (await ask(f"{PATH}?page={page}&limit=7")).json())["data"] for page in range(1, 7)]
    assert [each["key"] for page in pages for each in page] == [each.key for each in PROTOCOLS.on("optimism")]


@pytest.mark.parametrize(
    "query",
    [f"page={bad}" for bad in ("0", "-1", "01", "+1", "1.0", "1e1", "", "x", "%201", str(2**31), "9" * 400)]
    + [f"limit={bad}" for bad in ("0", "-1", "101", "", "all", "2^3")]
    + ["page=1&page=2", "offset=0", "Page=1"],
)
async def test_a_page_that_is_none_is_refused(ask: Any, query: str) -> None:
    answer = await ask(f"{PATH}?{query}")
    assert (answer.status, (await answer.json())["error"]) == (400, "Validation Failed")


@pytest.mark.parametrize("key", ["base", "Ethereum", "ETHEREUM", "ethereum%20", "1", "eip155:1", "..%2Fx", "%00", "ٱ"])
async def test_an_unknown_chain_is_404(ask: Any, key: str) -> None:
    answer = await ask(f"/v1/chains/{key}/protocols")
    body = await answer.json()
    assert (answer.status, body["error"]) == (404, "Not Found")


async def test_a_contract_on_a_chain_has_one_protocol(ask: Any) -> None:
    answer = await ask(f"/v1/contract-protocol?contract={POOL}&chain=optimism")
    assert answer.status == 200
    assert await answer.json() == {"protocol": {"name": "Aave V3", "key": "aave3", **SPARE}}


async def test_a_contract_is_looked_for_on_every_configured_chain(ask: Any) -> None:
    body = await (await ask(f"/v1/contract-protocol?contract={POOL.upper().replace('X', 'x')}")).json()
    each = {"name": "Aave V3", "key": "aave3", **SPARE}
    assert body == {"protocols": [{**each, "chainKey": "ethereum"}, {**each, "chainKey": "optimism"}]}


@pytest.mark.parametrize("query", [f"contract={'0x' + 'ee' * 20}", f"contract={LIDO.upper()}&chain=optimism"])
async def test_a_contract_of_nobody_is_404_in_the_words_of_the_family(ask: Any, query: str) -> None:
    answer = await ask(f"/v1/contract-protocol?{query}")
    contract = query.removeprefix("contract=").partition("&")[0].lower()
    assert (answer.status, await answer.json()) == (404, {"message": f"No protocol found for contract {contract}"})


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("", "contract"),
        *(
            (f"contract={bad}", "contract")
            for bad in (
                "",
                "0x",
                "lido",
                LIDO[:-1],
                LIDO + "0",
                LIDO[2:],
                LIDO + "%0A",
                "%20" + LIDO,
                LIDO + "," + POOL,
                LIDO[:-1] + "g",
                LIDO[:-1] + "٣",
                LIDO + "%00",
                "0x" + "0" * 64,
            )
        ),
        (f"contract={LIDO}&contract={LIDO}", "contract"),
        (f"contract={LIDO}&chain=", "chain"),
        (f"contract={LIDO}&chain=base", "chain"),
        (f"contract={LIDO}&chain=Ethereum", "chain"),
        (f"contract={LIDO}&chain=ethereum&chain=ethereum", "chain"),
        (f"contract={LIDO}&chainKey=ethereum", "chainKey"),
        (f"contract={LIDO}&addresses={LIDO}", "addresses"),
    ],
)
async def test_a_contract_that_cannot_be_meant_is_refused(ask: Any, query: str, name: str) -> None:
    answer = await ask(f"/v1/contract-protocol?{query}")
    body = await answer.json()
    assert (answer.status, body["error"]) == (400, "Validation Failed")
    assert [field_error["path"] for field_error in body["details"]["query"]] == [[name]]


async def test_failures_are_a_message(ask: Any, engine: FakeEngine) -> None:
    engine.failure = RuntimeError("boom")
    answer = await ask(f"/v1/contract-protocol?contract={LIDO}")
    assert (answer.status, set(await answer.json())) == (500, {"message"})
