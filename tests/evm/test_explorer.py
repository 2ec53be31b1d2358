"""Internal transfers from an explorer: all of them, of the blocks asked for, and never silently fewer."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from chainfolio.adapters.evm import explorer
from chainfolio.adapters.evm.datasets.internal import CoinTransfer, TracedBlock
from chainfolio.adapters.evm.explorer import Explorer
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, NodeBehind, Unavailable
from chainfolio.transport.exchange import HttpResponse
from tests.evm.fakes import FakeClock
from tests.evm.test_internal import ALICE, BOB

SECRET = "k3y0123456789"
BLOCKS = [TracedBlock(height, 1, "0x" + "ab" * 32, (f"0x{height:064x}",)) for height in (3, 5)]


class Fake:
    """An explorer with some rows, whose head stands at a block."""

    def __init__(self, rows: list[dict[str, Any]], head: int = 9, max_rows: int = 10_000) -> None:
        self.rows, self.head, self.asked = rows, head, list[dict[str, str]]()
        self.max_rows = max_rows
        self.replaces: list[object] = []
        self.proxy = True

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        assert SECRET in urlsplit(url).query
        query = dict(parse_qsl(body.decode()))
        self.asked.append(query)
        return HttpResponse(
            200, None, json.dumps(self.replaces.pop(0) if self.replaces else self.answer(query)).encode()
        )

    def answer(self, query: dict[str, str]) -> Any:
        if query["module"] == "proxy" and not self.proxy:
            return {"status": "0", "message": "Unknown module", "result": None}
        if "lock" in query["action"]:
            return {"jsonrpc": "2.0", "id": 1, "result": hex(self.head)}
        if "txhash" in query:
            page = [row for row in self.rows if row["hash"] == query["txhash"]][: self.max_rows]
        else:
            span = range(int(query["startblock"]), int(query["endblock"]) + 1)
            page = [row for row in self.rows if int(row["blockNumber"]) in span]
            page = page[: min(int(query["offset"]), self.max_rows)]
        return {"status": "1" if page else "0", "message": "OK" if page else "No transactions found", "result": page}

    async def close(self) -> None:
        self.asked.clear()


def row(height: int, raw: int, **more: str) -> dict[str, str]:
    return {
        "blockNumber": str(height),
        "hash": f"0x{height:064x}",
        "from": ALICE,
        "to": BOB,
        "value": str(raw),
        "type": "call",
        "isError": "0",
        "contractAddress": "",
    } | more


def over(fake: Fake) -> Explorer:
    environment = Environment(clock=FakeClock(), random=random.Random(1))
    return Explorer(f"https://explorer.test/api?apikey={SECRET}", fake, environment)


async def test_rows_are_the_movements_of_their_blocks() -> None:
    creation = row(5, 7, type="create", to="", contractAddress=BOB)
    fake = Fake([row(3, 5), row(3, 6, isError="1"), row(3, 8, callType="delegatecall"), row(5, 0), creation])
    transfers = await over(fake).internal_transfers(BLOCKS)
    assert transfers == {BLOCKS[0]: [CoinTransfer(0, ALICE, BOB, 5)], BLOCKS[1]: [CoinTransfer(0, ALICE, BOB, 7)]}
    assert await over(Fake([])).internal_transfers(BLOCKS) == {BLOCKS[0]: [], BLOCKS[1]: []}
    assert await over(fake).internal_transfers([]) == {}


async def test_a_list_that_may_be_cut_short_is_asked_for_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorer, "MAX_ROWS", 3)
    fake = Fake([row(3, 1), row(3, 2), row(5, 3), row(5, 4)])
    transfers = await over(fake).internal_transfers(BLOCKS)
    assert [[move.raw for move in transfers[block]] for block in BLOCKS] == [[1, 2], [3, 4]]
    with pytest.raises(BadAnswer, match="no more than 3"):
        await over(Fake([row(3, 1), row(3, 2), row(3, 3)])).internal_transfers(BLOCKS)


async def test_a_shorter_list_than_requested_loses_no_transfer() -> None:
    hashes = {height: (f"0x{height:064x}", f"0x{height + 9:064x}") for height in (3, 5)}
    blocks = [TracedBlock(height, 1, "0x" + "ab" * 32, hashes[height]) for height in hashes]
    counts = {(3, 0): 700, (5, 0): 600, (5, 1): 800}
    rows = [row(height, 1, hash=hashes[height][k]) for (height, k), count in counts.items() for _ in range(count)]
    transfers = await over(Fake(rows, max_rows=1_000)).internal_transfers(blocks)
    assert Counter((block.height, each.tx_index) for block in blocks for each in transfers[block]) == counts
    full = Fake([row(3, 1)] * 1_500, max_rows=1_000)
    with pytest.raises(BadAnswer, match="no more than 1,000"):
        await over(full).internal_transfers(blocks)
    with pytest.raises(BadAnswer, match="no more than 1,000"):
        await over(full).transaction_transfers(blocks[0], 0)


async def test_an_explorer_that_lags_is_not_taken_for_an_empty_one() -> None:
    with pytest.raises(NodeBehind):
        await over(Fake([], head=4)).internal_transfers(BLOCKS)
    proxyless = Fake([], head=5)
    proxyless.proxy = False
    assert await over(proxyless).internal_transfers(BLOCKS) == {BLOCKS[0]: [], BLOCKS[1]: []}


@pytest.mark.parametrize(
    "wrong",
    [
        row(4, 1),
        row(3, 1, hash="0x" + "ff" * 32),
        row(3, 1, value="1e3"),
        row(3, 1, to="0x12"),
        row(3, 1, blockNumber="x"),
    ],
)
async def test_rows_that_cannot_be_meant_are_refused(wrong: dict[str, str]) -> None:
    fake = Fake([])
    fake.replaces = [{"result": "0x9"}, {"status": "1", "message": "OK", "result": [wrong]}]
    with pytest.raises(BadAnswer):
        await over(fake).internal_transfers(BLOCKS)


async def test_a_rate_limit_is_waited_out_and_other_words_are_refused_without_the_key() -> None:
    fake = Fake([row(3, 5)])
    limited = {"status": "0", "message": "NOTOK", "result": "Max rate limit reached"}
    fake.replaces = [{"result": "0x9"}, limited, limited]
    assert [move.raw for move in (await over(fake).internal_transfers(BLOCKS))[BLOCKS[0]]] == [5]
    fake.replaces = [limited] * 50
    with pytest.raises(Unavailable):
        await over(fake).internal_transfers(BLOCKS)
    fake.replaces = [{"result": "0x9"}, {"status": "0", "message": "NOTOK", "result": f"Invalid API Key {SECRET}"}]
    with pytest.raises(BadAnswer) as error:
        await over(fake).internal_transfers(BLOCKS)
    assert SECRET not in str(error.value)
