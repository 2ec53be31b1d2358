"""Nodes without past balances are not asked for an hour; a zero or a failed read does not make a node one of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from chainfolio.adapters.tron.addresses import hex_address
from chainfolio.adapters.tron.chain import TronChain
from chainfolio.adapters.tron.past import PAUSE_S
from chainfolio.transport.exchange import HttpResponse
from tests.evm.fakes import FakeClock
from tests.tron.fakes import ALICE, BOB, FakeNode, Refuse

HEIGHT = 50
PATH = "/wallet/getaccountbalance"


@dataclass
class PastNode:
    """A node with past balances, by account; `refusal` is the answer to any request for one."""

    node: FakeNode
    chain: TronChain
    clock: FakeClock
    suns: dict[str, int]
    refusal: Any = None

    async def coins(self, *accounts: str) -> dict[str, int]:
        """Return the coins of accounts at a block."""
        return dict(await self.chain.coins_at(accounts, await self.chain.block(HEIGHT)))

    @property
    def request_count(self) -> int:
        """Requests for past balances so far."""
        return self.node.paths.count(PATH)

    def answer(self, body: Any) -> Any:
        if isinstance(self.refusal, Exception):
            raise self.refusal
        sun = self.suns.get(body["account_identifier"]["address"], 0)
        return self.refusal or {"block_identifier": body["block_identifier"], "balance": sun}


@pytest.fixture
def past() -> PastNode:
    node = FakeNode()
    chain = node.chain()
    clock = chain.node.environment.clock
    assert isinstance(clock, FakeClock)
    past_node = PastNode(node, chain, clock, {hex_address(ALICE): 7})
    node.answers = {**node.answers, PATH: past_node.answer}
    return past_node


async def test_an_account_with_zero_does_not_hide_the_coins_of_another(past: PastNode) -> None:
    assert await past.coins(ALICE) == {ALICE: 7}
    assert await past.coins(BOB) == {}
    assert await past.coins(ALICE, BOB) == {ALICE: 7}


async def test_a_node_that_only_answers_zero_is_asked_again_after_an_hour(past: PastNode) -> None:
    assert [await past.coins(BOB), await past.coins(ALICE)] == [{}, {}]
    assert past.request_count == 1
    past.clock.now_s += PAUSE_S
    assert await past.coins(ALICE) == {ALICE: 7}


@pytest.mark.parametrize(
    "failure",
    [
        {"block_identifier": {"hash": "ab" * 32, "number": 99}},
        Refuse("class java.lang.IllegalArgumentException : number and hash do not match"),
        Refuse("class org.tron.core.exception.BadItemException : block num not exist"),
        Refuse("busy", 503),
    ],
    ids=["contradiction", "refusal", "behind", "unavailable"],
)
async def test_a_failed_read_of_coins_is_repeated_at_the_next_call(past: PastNode, failure: Any) -> None:
    past.refusal = failure
    assert await past.coins(ALICE) == {}
    past.refusal = None
    assert await past.coins(ALICE) == {ALICE: 7}


@pytest.mark.parametrize("status", [404, 405])
async def test_a_node_that_serves_no_past_balances_is_asked_once(past: PastNode, status: int) -> None:
    past.refusal = Refuse("no such path", status)
    assert [await past.coins(ALICE), await past.coins(ALICE)] == [{}, {}]
    assert past.request_count == 1


async def test_coins_are_of_a_node_that_has_them_if_the_first_one_answers_zero() -> None:
    class TwoNodes(FakeNode):
        """Its second URL alone has past balances."""

        asked: list[str]

        async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
            if url.endswith(PATH):
                self.asked.append(source)
                sun = 7 if source == "two.test" else 0
                identifier = json.loads(body)["block_identifier"]
                return HttpResponse(200, None, json.dumps({"block_identifier": identifier, "balance": sun}).encode())
            return await super().post(source, url, body, timeout_s)

    node = TwoNodes()
    node.asked = []
    chain = node.chain("http://one.test", "http://two.test")
    block = await chain.block(HEIGHT)
    assert [dict(await chain.coins_at([each], block)) for each in (ALICE, BOB)] == [{ALICE: 7}, {BOB: 7}]
    assert node.asked.count("one.test") <= 1
