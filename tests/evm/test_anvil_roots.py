"""`integrity = "roots"` on a real node: an omitted or altered log inside a block is detected."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.evm.chain import EvmChain, build
from chainfolio.adapters.evm.datasets.registry import DATASETS
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.blocks import Span
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, Contradiction
from chainfolio.transport.exchange import HttpResponse
from chainfolio.transport.http import HttpTransport
from tests.evm.anvil import LOCAL, Local
from tests.evm.fakes import errors_of

pytestmark = pytest.mark.node
LIAR, HONEST = "http://liar.test", "http://honest.test"
Lie = Callable[[Any], Any]


@dataclass
class Lying:
    """One real node behind two addresses; at one of them the results of a method are changed."""

    url: str
    method: str = ""
    lie: Lie = lambda result: result
    methods: list[str] = field(default_factory=list)
    _real: HttpTransport = field(default_factory=HttpTransport)

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        posted = await self._real.post(source, self.url, body, timeout_s)
        reads, replies = json.loads(body), json.loads(posted.body)
        for ask, reply in zip(*(x if isinstance(x, list) else [x] for x in (reads, replies)), strict=True):
            self.methods.append(ask["method"])
            if url == LIAR and ask["method"] == self.method:
                reply["result"] = self.lie(reply["result"])
        return replace(posted, body=json.dumps(replies, separators=(",", ":")).encode())

    async def close(self) -> None:
        await self._real.close()


def chain(local: Local, lying: Lying, *urls: str, **settings: Any) -> EvmChain:
    evm_settings = EvmSettings(rpc=list(urls), facts=str(LOCAL), **{"integrity": "roots", "sample": 1, **settings})
    return build("local", evm_settings, Environment(), configs=Path(), transport=lying)


async def tables(local: Local, lying: Lying, *urls: str, **settings: Any) -> tuple[dict[str, Any], EvmChain]:
    reader = chain(local, lying, *urls, **settings)
    try:
        await reader.heads()
        fetched = await reader.collect(Span(0, local.node.height), list(DATASETS))
        return {name: rows.to_pylist() for name, rows in fetched.tables.items()}, reader
    finally:
        await reader.close()


def crowded(logs: list[dict[str, Any]]) -> int:
    """The place of a log that is not alone in its block: its leaving is seen by no bloom."""
    heights = [log["blockNumber"] for log in logs]
    return next(k for k, height in enumerate(heights) if heights.count(height) > 2)


def without_one(logs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    k = crowded(logs)
    return [*logs[:k], *logs[k + 1 :]]


def with_another_amount(logs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    k = crowded(logs)
    return [*logs[:k], {**logs[k], "data": "0x" + "13" * (len(logs[k]["data"]) // 2 - 1)}, *logs[k + 1 :]]


@pytest.mark.slow("the same root for another change", only=["with_another_amount"])
@pytest.mark.parametrize("lie", [without_one, with_another_amount])
async def test_a_log_that_is_left_out_or_altered_inside_a_block_is_caught_by_the_receipts_root(
    local: Local, lie: Lie
) -> None:
    truth, _ = await tables(local, Lying(local.node.url), HONEST)
    lying = Lying(local.node.url, "eth_getLogs", lie)
    rows, reader = await tables(local, lying, LIAR, HONEST)
    assert rows == truth
    evidence = reader.node.endpoints[0].health.evidence
    assert evidence is not None
    assert evidence.asked.startswith("the logs of block ")
    assert "its receipts root 0x" in evidence.truth
    missed, _ = await tables(local, Lying(local.node.url, "eth_getLogs", lie), LIAR, HONEST, integrity="bloom")
    assert missed != truth, "a bloom cannot see that"


async def test_a_single_liar_is_refused_again_and_again_and_never_believed(local: Local) -> None:
    for _ in range(2):
        with pytest.raises(Contradiction, match="its receipts root"):
            await tables(local, Lying(local.node.url, "eth_getLogs", without_one), LIAR)


@pytest.mark.slow("other fields of the same hashes", only=["*-change1", "*-change2", "*-change4"])
@pytest.mark.parametrize(
    ("method", "change"),
    [
        ("eth_getBlockByNumber", {"gasUsed": "0x12345"}),
        ("eth_getBlockByNumber", {"miner": "0x" + "ba" * 20}),
        ("eth_getBlockByNumber", {"logsBloom": "0x" + "ff" * 256}),
        ("eth_getBlockByNumber", {"transactions": []}),
        ("eth_getBlockByNumber", {"transactions": ["0x" + "ba" * 32] * 40}),
        ("eth_getBlockReceipts", {"status": "0x0"}),
        ("eth_getBlockReceipts", {"gasUsed": "0x1"}),
    ],
)
async def test_headers_bodies_and_receipts_are_proven(local: Local, method: str, change: dict[str, Any]) -> None:
    def lie(result: Any) -> Any:
        if isinstance(result, list):
            return [{**result[0], **change}, *result[1:]] if result else result
        return {**result, **change} if int(result["number"], 16) == local.node.height - 2 else result

    truth, _ = await tables(local, Lying(local.node.url), HONEST)
    rows, reader = await tables(local, Lying(local.node.url, method, lie), LIAR, HONEST)
    assert rows == truth
    assert reader.node.endpoints[0].health.evidence or errors_of(reader.node)["liar.test"]


async def test_no_more_is_asked_than_the_sample(local: Local) -> None:
    """Full blocks are read only for bodies, and receipts for proofs of one block in `sample`."""

    async def receipts(sample: int) -> int:
        lying = Lying(local.node.url)
        reader = chain(local, lying, HONEST, sample=sample)
        await reader.collect(Span(0, local.node.height), ["transfers"])
        await reader.close()
        return lying.methods.count("eth_getBlockReceipts")

    assert await receipts(1) == local.node.height + 1
    assert await receipts(10**9) == 0


async def test_a_chain_that_hashes_in_its_own_way_is_read_without_proof(local: Local, tmp_path: Path) -> None:
    facts = tmp_path / "local.toml"
    facts.write_text(LOCAL.read_text() + '\nunproven = ["headers", "transactions", "receipts"]\n')
    lying = Lying(local.node.url)
    settings = EvmSettings(rpc=[HONEST], facts=str(facts), integrity="roots", sample=1)
    reader = build("local", settings, Environment(), configs=Path(), transport=lying)
    assert (await reader.collect(Span(0, local.node.height), ["transfers"])).event_count
    assert "eth_getBlockReceipts" not in lying.methods
    await reader.close()


async def test_a_header_that_names_no_roots_cannot_prove_anything(local: Local) -> None:
    def lie(result: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in result.items() if name != "receiptsRoot"}

    with pytest.raises(BadAnswer, match="without `receiptsRoot`"):
        await tables(local, Lying(local.node.url, "eth_getBlockByNumber", lie), LIAR)
