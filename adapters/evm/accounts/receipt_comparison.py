"""Compare `eth_getLogs` answers with receipts to find the logs that an endpoint left out.

An endpoint is only accused by receipts that it gave itself, never by those of another endpoint. With
`integrity = "roots"` these are all receipts of blocks that concern the accounts, and of one block in `sample` (at most
about MAX_SAMPLED of a window) whose bloom allows a log of theirs; the receipts root in the header proves them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from chainfolio.adapters.evm import logs as columns
from chainfolio.adapters.evm.accounts.receipt_logs import (
    ReceiptLogs,
    at_heights,
    logs_naming,
    logs_not_in,
    merge_logs,
    unchecked_logs,
)
from chainfolio.adapters.evm.accounts.topic_filters import headers_with_bloom
from chainfolio.adapters.evm.logs import Logs
from chainfolio.adapters.evm.node import Header, Node
from chainfolio.adapters.evm.proven import are_receipts_proven, logs_by_receipts
from chainfolio.adapters.evm.spans import Chunk, LeftOut, OmittedLogs
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer, Contradiction, SourceError
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request

MAX_HEADERS, MAX_BLOCKS = 1_000, 20  # of one request: headers, blocks with all receipts
MAX_SAMPLED = 10_000  # further blocks of a window
REMEDY = 'add an endpoint, or set integrity = "roots"'


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """The result of comparing an endpoint's logs with receipts.

    Attributes:
        truth: Logs of receipts that the answer must have; all logs of `proven` blocks.
        proven: Heights whose receipts are complete and proven.
        error: What the endpoint did wrong; None if nothing.
        left_out: A log to report, if the answer may lack more, or if receipts contradict each other.
    """

    truth: Logs
    proven: frozenset[int] = frozenset()
    error: BadAnswer | None = None
    left_out: LeftOut | None = None

    def apply(self, source: str, logs: Logs) -> Logs:
        """Return logs with those of receipts added, and without logs that proven blocks do not have."""
        unproven = logs.take(np.flatnonzero(np.isin(logs.height, sorted(self.proven), invert=True)))
        return merge_logs(source, [self.truth, unproven])


class _ReceiptCheck(NamedTuple):
    """Logs by the receipts of an endpoint: they have them, it gives no receipts, or they do not have them."""

    confirmed: Logs
    unknown: Logs
    denied: Logs


class ReceiptComparer:
    """Compares the answers of a chain's endpoints.

    Args:
        node: The chain's endpoints.
        known_events: The events to ask for if an endpoint refuses filters without events.
        integrity: The setting of the chain.
        sample: With proofs, one in `sample` further blocks is proven, at most about MAX_SAMPLED of a window unless 1.
    """

    def __init__(self, node: Node, known_events: Sequence[str], *, integrity: str, sample: int) -> None:
        self.node, self.known_events, self.sample = node, known_events, sample
        self.is_proving = are_receipts_proven(node.facts, integrity)

    async def compare(
        self, endpoint: Endpoint, chunk: Chunk, receipts: ReceiptLogs, accounts: Sequence[str], *, any_event: bool
    ) -> Comparison:
        """Compare a chunk with receipts.

        The result has the right logs, what was left out, and an error of the endpoint, which is not raised.
        Logs that only receipts of other endpoints have are looked up in receipts of this endpoint.

        Args:
            endpoint: The endpoint of the chunk.
            chunk: Its logs.
            receipts: The receipts that were read of the chunk's blocks; other blocks are ignored.
            accounts: Addresses in lower case.
            any_event: True if the endpoint was asked for all events.

        Raises:
            BadAnswer: Receipts that the endpoint gives contradict each other, or its header.
        """
        receipts = receipts.in_span(chunk.span)
        own_receipts = receipts.from_source(endpoint.name)
        if self.is_proving:
            own_receipts = own_receipts.updated(await self._proven(endpoint, chunk, receipts, own_receipts, accounts))
        foreign = at_heights(receipts.logs, receipts.sources.keys() - own_receipts.sources.keys())
        events = () if any_event else self.known_events
        missing, disputed = (
            logs_not_in(logs_naming(each, accounts, events), chunk.logs) for each in (own_receipts.logs, foreign)
        )
        invented = logs_not_in(at_heights(chunk.logs, own_receipts.proven), own_receipts.logs)
        confirmed, unknown, denied = await self._check_with_own_receipts(endpoint, disputed)
        left_out = columns.join([missing, confirmed])
        truth = columns.join([logs_naming(own_receipts.logs, accounts, events), confirmed, unknown])
        return Comparison(
            truth,
            own_receipts.proven,
            self._error(endpoint, own_receipts, left_out, invented),
            self._left_out(endpoint, receipts, columns.join([left_out, unknown]), denied),
        )

    async def _proven(
        self,
        endpoint: Endpoint,
        chunk: Chunk,
        receipts: ReceiptLogs,
        own_receipts: ReceiptLogs,
        accounts: Sequence[str],
    ) -> ReceiptLogs:
        """Read proven receipts of relevant blocks, and of a sample of other blocks.

        Relevant are blocks with logs in `chunk` or with receipts of the accounts. Blocks that `own_receipts` proves
        already are left out, and sampled ones whose bloom denies the accounts. Only logs that name the accounts are
        returned.
        """
        relevant = {*chunk.logs.height.tolist(), *receipts.sources} - own_receipts.proven
        sampled = sampled_heights(chunk.span, self.sample, self.node.environment.random)
        heights = sorted({*relevant, *sampled} - own_receipts.proven)
        chunk_headers = {header.height: header for header in chunk.headers}
        parts, proven = list[Logs](), set[int]()
        for start in range(0, len(heights), MAX_HEADERS):
            part = heights[start : start + MAX_HEADERS]
            missing = [height for height in part if height not in chunk_headers]
            read = {header.height: header for header in await self.node.headers_at(endpoint, missing)}
            headers = [chunk_headers.get(height) or read[height] for height in part]
            allowed = {header.height for header in headers_with_bloom(headers, accounts)}
            selected = [header for header in headers if header.height in relevant | allowed]
            parts += [logs_naming(logs, accounts) for logs in await self._logs_by_receipts(endpoint, selected)]
            proven |= {header.height for header in selected}
        return ReceiptLogs(columns.join(parts), dict.fromkeys(proven, endpoint.name), frozenset(proven))

    async def _logs_by_receipts(self, endpoint: Endpoint, headers: Sequence[Header]) -> list[Logs]:
        """Return all logs of each block, from proven receipts."""
        logs: list[Logs] = []
        for start in range(0, len(headers), MAX_BLOCKS):
            part = headers[start : start + MAX_BLOCKS]
            logs += await logs_by_receipts(self.node.facts, endpoint, part, by_root=True)
        return logs

    async def _check_with_own_receipts(self, endpoint: Endpoint, logs: Logs) -> _ReceiptCheck:
        """Compare logs from another endpoint's receipts with the receipts of this endpoint.

        Returns:
            The logs that it confirms, those whose receipt it does not give, and those that it denies.
        """
        if len(logs) == 0:
            return _ReceiptCheck(logs, logs, logs)
        hashes = sorted({each.tobytes().decode() for each in logs.tx_hash})
        answers = await endpoint.ask([Request("eth_getTransactionReceipt", (each,)) for each in hashes])
        logs_by_hash = {
            tx_hash: unchecked_logs(endpoint.name, answer)
            for tx_hash, answer in zip(hashes, answers, strict=True)
            if not isinstance(answer, SourceError) and answer != b"null"
        }
        has_receipt = np.array([each.tobytes().decode() in logs_by_hash for each in logs.tx_hash])
        answered, unknown = logs.take(np.flatnonzero(has_receipt)), logs.take(np.flatnonzero(~has_receipt))
        denied = logs_not_in(answered, columns.join(list(logs_by_hash.values())))
        return _ReceiptCheck(logs_not_in(answered, denied), unknown, denied)

    def _error(self, endpoint: Endpoint, own_receipts: ReceiptLogs, left_out: Logs, invented: Logs) -> BadAnswer | None:
        """Return what an endpoint did wrong, by receipts that it gave itself; None if nothing."""
        proven = at_heights(left_out, own_receipts.proven)
        if len(invented) or len(proven):
            height = int((invented if len(invented) else proven).height[0])
            question = f"the logs of block {height} that name some accounts"
            answer = f"left out {describe(proven)}" if len(proven) else f"invented or altered {describe(invented)}"
            return Contradiction(
                endpoint.name, question, answer, f"{len(at_heights(own_receipts.logs, [height]))} by its receipts root"
            )
        if len(left_out):
            return OmittedLogs(endpoint.name, f"left out {describe(left_out)}, which its receipt holds")
        return None

    def _left_out(self, endpoint: Endpoint, receipts: ReceiptLogs, missing: Logs, denied: Logs) -> LeftOut | None:
        """Return a log to report if the answer stays uncertain; None if it is complete."""
        logs, is_complete = (denied if len(denied) else missing), self.is_proving and self.sample == 1
        if len(logs) == 0 or (not len(denied) and (is_complete or self.node.quorum > 1)):
            return None
        height, contract = int(logs.height[0]), logs.address[0].tobytes().decode()
        if len(denied):
            conflict = f"{receipts.sources[height]} and {endpoint.name} contradict each other about {describe(denied)}"
            return LeftOut(height, contract, f"{conflict}, which only the receipt of the first holds: {REMEDY}")
        omission = f"{endpoint.name} left out {describe(logs)}, which was taken from the receipt"
        return LeftOut(
            height, contract, f"{omission}; what it leaves out of transactions of others is not noticed: {REMEDY}"
        )


def sampled_heights(span: Span, sample: int, source: random.Random) -> list[int]:
    """Return random heights of a span in order, one in `sample`.

    If `sample` is 1, these are all heights, else about MAX_SAMPLED at most.
    """
    if sample == 1:
        return list(range(span.first, span.last + 1))
    # The distances of heights that are drawn independently are geometric: one random number for each drawn height.
    log_of_miss = math.log1p(-1 / max(sample, len(span) / MAX_SAMPLED))
    heights: list[int] = []
    height = span.first - 1
    while True:
        height += 1 + int(math.log(1 - source.random()) / log_of_miss)
        if height > span.last:
            return heights
        heights.append(height)


def describe(logs: Logs) -> str:
    """Return the first of some logs as text, and the number of others."""
    name = f"log {int(logs.log_index[0])} of transaction {logs.tx_hash[0].tobytes().decode()}"
    other_count = len(logs) - 1
    return f"{name} in block {int(logs.height[0])}{f' and {other_count:,} more' if other_count else ''}"
