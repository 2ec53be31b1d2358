"""Recorded transactions of Ethereum read for single accounts: the rows equal those of all logs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, cast

from chainfolio.adapters.evm.chain import EvmChain
from chainfolio.adapters.evm.datasets.decoding import decode
from chainfolio.adapters.evm.facts import load
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.blocks import Span
from tests.evm.fakes import FakeChain, FakeNode, wired
from tests.evm.recorded import lines, logs_in, needs_recordings
from tests.evm.scoped import merged_rows, scoped

pytestmark = needs_recordings
ETHEREUM = Path(__file__).parents[2] / "configs" / "chains" / "ethereum.toml"
OF_LOGS = ("transfers", "approvals", "events")


class Headers(dict[int, Any]):
    """Headers by height; a block that was not recorded has no logs."""

    def __missing__(self, height: int) -> Any:
        like = self[min(self)]
        number, name = hex(height), f"0x{height:064x}"
        return {**like, "number": number, "hash": name, "logsBloom": "0x" + "00" * 256, "transactions": []}


class Recorded(FakeChain):
    """A chain of recorded headers and logs by height."""

    def __init__(self, exchanges: list[Any]) -> None:
        super().__init__()
        full = [each["result"] for each in exchanges if each["method"] == "eth_getBlockByNumber"]
        receipts = [each["result"] for each in exchanges if each["method"] == "eth_getTransactionReceipt"]
        heights = {int(block["number"], 16): block for block in full}
        logs: dict[int, list[Any]] = {height: [] for height in heights}
        for receipt in sorted(receipts, key=lambda each: int(each["transactionIndex"], 16)):
            logs[int(receipt["blockNumber"], 16)] += receipt["logs"]
        self.span = Span(min(heights), max(heights))
        hashes = {height: [tx["hash"] for tx in block["transactions"]] for height, block in heights.items()}
        self.headers = cast(Any, Headers({h: {**b, "transactions": hashes[h]} for h, b in heights.items()}))
        self.logs = cast(Any, logs)

    @property
    def head(self) -> int:
        return self.span.last

    def filled(self, span: range) -> list[int]:
        return [height for height in sorted(cast(dict[int, Any], self.logs)) if height in span]

    def height_of(self, tag: Any) -> int | None:
        return int(tag, 16) if isinstance(tag, str) else super().height_of(tag)


async def test_the_busiest_accounts_have_the_rows_of_all_recorded_logs() -> None:
    recorded = Recorded(lines("tx_cases/ethereum.rpc.jsonl.gz"))
    over = wired(FakeNode(FakeChain()), checked=True)
    next(iter(over.transport.nodes.values())).chain = recorded
    over.node.facts, over.node.finalized = load(ETHEREUM), recorded.span.last
    chain = EvmChain(over.node.facts, over.node, EvmSettings(rpc=["http://one.test"]))
    counts: Counter[str] = Counter()
    rows: dict[str, list[Any]] = {"transfers": [], "approvals": [], "logs": []}
    for height, logs in sorted(cast(dict[int, Any], recorded.logs).items()):
        block_logs = logs_in([{"logs": logs}], int(recorded.headers[height]["timestamp"], 16))
        for name, table in decode(chain.facts, block_logs, ["transfers", "approvals"]).items():
            rows[name] += table.to_pylist()
    counts.update(side for row in rows["transfers"] for side in {row["sender"], row["recipient"]})
    busiest = [account for account, _ in counts.most_common(12) if account != "0x" + "0" * 40]
    scoped_rows = merged_rows(await scoped(chain, recorded.span, busiest, OF_LOGS))
    expected = [
        row
        for row in rows["transfers"]
        if {row["sender"], row["recipient"], row["operator"]} & set(busiest) and row["layout"] in (None, "batch")
    ]
    assert len(expected) > 100
    assert [row for row in scoped_rows["transfers"] if row["layout"] in (None, "batch")] == expected
    topics = {"0x" + account[2:].rjust(64, "0") for account in busiest}
    assert scoped_rows["logs"] == [
        row for row in rows["logs"] if topics & {row["topic1"], row["topic2"], row["topic3"]}
    ]
    assert scoped_rows["approvals"] == [
        row for row in rows["approvals"] if {row["owner"], row["spender"]} & set(busiest)
    ]
    assert over.node.requests <= 30
