"""Pages continue where the previous one ended, in any process; approvals show Permit2's allowances."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

from chainfolio.api.serve import listening
from chainfolio.blocks import Block
from chainfolio.engine.results import ApprovalsPage, EventPosition, ListPosition, Permit2Allowance
from chainfolio.environment import SystemClock
from chainfolio.storage.state import State
from tests.api.fakes import ALICE, BOB, KEY, Caller, FakeEngine, FakeKeys, an_app
from tests.api.sessions import client_session

APPROVALS = f"/v1/approvals/ethereum?addresses={ALICE}"
TRANSACTIONS = f"/v1/transactions?addresses={ALICE}"
PAGED = f"{TRANSACTIONS}&limit=10&offset=0"
OTHER_KEY = "cf_live_" + "B1b2C3d4E5" * 3 + "x7Yz90"
PERMIT2, TOKEN = "0x000000000022d473030f116ddee9f6b43ac78ba3", "0x" + "70" * 20


class Shared(FakeKeys):
    """Keys of several processes over one store."""

    store: State

    async def write(self, work: Any) -> Any:
        return await self.store.write(work)

    async def read(self, work: Any) -> Any:
        return await self.store.read(work)


async def test_a_page_goes_on_where_the_one_before_ended_in_whichever_process(tmp_path: Path) -> None:
    keys = Shared({KEY: Caller(), OTHER_KEY: Caller("acc_2", "key_2")})
    keys.store = State.open(f"sqlite:///{tmp_path}/state.db", b"p" * 32, SystemClock(), Random(1))
    page_end = ListPosition(10, (7, 6, 5, "0xtx", "ethereum", ALICE))
    engines = FakeEngine(page_end=page_end), FakeEngine()
    async with (
        listening(an_app(engines[0], keys), "127.0.0.1", 0, drain_s=0.1) as first,
        listening(an_app(engines[1], keys), "127.0.0.1", 0, drain_s=0.1) as second,
        client_session() as client,
    ):

        async def after(port: int, path: str, key: str = KEY) -> ListPosition | None:
            url = f"http://127.0.0.1:{port}{path}"
            async with client.get(url, headers={"Authorization": f"Bearer {key}"}) as answer:
                assert answer.status == 200, await answer.text()
            (_, (_, request)) = engines[port == second].calls[-1]
            position: ListPosition | None = request.after
            return position

        assert await after(first, PAGED) is None
        next_page = f"{TRANSACTIONS}&limit=25&offset=10"
        assert await after(second, next_page) == page_end
        assert await after(second, f"{TRANSACTIONS}&limit=25&offset=40") == page_end
        assert await after(second, f"{TRANSACTIONS}&limit=25&offset=9") is None
        assert await after(second, PAGED) is None
        for query in (
            f"{next_page}&sort=ASC",
            f"{next_page}&hideSpam=true",
            f"{next_page}&endDate=2026-03-31",
            f"{next_page}&tokenId={2**256 - 1}",
        ):
            assert await after(second, query) is None, query
        assert await after(second, next_page, OTHER_KEY) is None
    keys.store.close()


async def test_what_permit2_lets_others_take_is_shown_with_what_is_not_known(ask: Any, engine: FakeEngine) -> None:
    position = EventPosition(9, 3, "0x" + "09" * 32)
    allowance = Permit2Allowance(
        position, 1_700_000_000_123_456, PERMIT2, TOKEN, ALICE, BOB, 2**160 - 1, 1_800_000_000, 7, 5, Decimal("2.50")
    )
    engine.page = ApprovalsPage(
        (),
        None,
        block=Block(12, "0x" + "bb" * 32, "", 0),
        labels={BOB: "Bob's"},
        permit2_allowances=(
            allowance,
            replace(allowance, raw=None, expires_s=None, balance=None, takeable=None, at_risk=None),
        ),
    )
    body = await (await ask(f"{APPROVALS}&include=permit2")).json()
    assert engine.calls[0][1][4] == ("permit2",)
    first, second = body["permit2"]
    assert first == {
        "block": "9",
        "timestamp": "2023-11-14T22:13:20.123Z",
        "hash": position.tx_hash,
        "contract": TOKEN,
        "permit2": PERMIT2,
        "from": ALICE,
        "to": BOB,
        "spenderLabel": "Bob's",
        "amount": str(2**160 - 1),
        "unlimited": True,
        "expiration": "1800000000",
        "balance": "7",
        "takeable": "5",
        "valueAtRisk": "2.5",
        "blockNumber": "12",
        "blockHash": "0x" + "bb" * 32,
    }
    assert {second[name] for name in ("amount", "expiration", "balance", "takeable", "valueAtRisk")} == {"N/A"}
    assert second["unlimited"] is False
