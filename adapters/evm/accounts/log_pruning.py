"""Check that a node still has the logs of old blocks.

Some nodes delete them and then answer that there are none. The bloom of a header shows that its block has logs. The
check requests all logs of a few such blocks. Nodes delete the oldest logs first, so if one block has its logs, later
blocks have theirs, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chainfolio.adapters.evm import logs as columns
from chainfolio.adapters.evm.accounts.topic_filters import headers_with_bloom
from chainfolio.adapters.evm.log_parser import parse
from chainfolio.adapters.evm.logs import Logs
from chainfolio.adapters.evm.node import Header, hex_of
from chainfolio.blocks import Span
from chainfolio.errors import HistoryUnavailable, SourceError
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed

HALVINGS = 14  # of a window: nearly all sampled blocks lie near its start
EVEN_SAMPLES = 4  # of a window without logs, if the endpoint has earlier ones
MAX_TESTED = 4  # sampled blocks whose logs are requested
MIN_EMPTY = 2  # tested blocks without logs that prove pruning; a single one may have an unusual bloom
LIGHT_GAS = 1_000_000  # blocks with less gas have few logs and are preferred
MAX_RETRIES = 3
NO_BLOOM = "0x" + "0" * 512


class PruningCheck:
    """Remembers the first height at which each endpoint is known to have logs."""

    def __init__(self) -> None:
        self._first_heights: dict[str, int] = {}

    def sample(self, endpoint: Endpoint, window: Span, logs: Logs) -> list[int]:
        """Return the heights of a window to test, most of them near its start and before its first log.

        Empty if the first block has logs. If the endpoint is known to have logs of an earlier block, only a window
        without logs is tested, at EVEN_SAMPLES heights.
        """
        first, last = window.first, int(logs.height[0]) - 1 if len(logs) else window.last
        if last < first:
            return []
        if self._first_heights.get(endpoint.name, window.last) >= first:
            return sorted({first + (last - first >> k) for k in range(HALVINGS)})
        return [] if len(logs) else sorted({first + len(window) * k // EVEN_SAMPLES for k in range(EVEN_SAMPLES)})

    async def check(self, endpoint: Endpoint, headers: Sequence[Header], accounts: Sequence[str]) -> Logs:
        """Test up to MAX_TESTED of the sampled blocks whose blooms promise logs, and return all their logs.

        Refused requests are ignored. If at least MIN_EMPTY answers are empty, these blocks are read again. If none is
        empty, the first height with logs is remembered for the endpoint.

        Raises:
            HistoryUnavailable: At least MIN_EMPTY blocks have no logs although their blooms promise some, and receipts
                do not show that they have none.
        """
        with_logs = [header for header in headers if header.logsBloom != NO_BLOOM]
        with_logs = [header for header in with_logs if int(header.gasUsed, 16) <= LIGHT_GAS] or with_logs
        candidates = [*headers_with_bloom(with_logs, accounts)[: MAX_TESTED // 2], *with_logs]
        tested = sorted({header.height: header for header in candidates[:MAX_TESTED]}.items())
        logs_by_height = await _read_logs(endpoint, [height for height, _ in tested])
        empty = [header for height, header in tested if height in logs_by_height and len(logs_by_height[height]) == 0]
        for _ in range(MAX_RETRIES):  # some nodes leave out logs at random
            if len(empty) >= MIN_EMPTY:
                retried = await _read_logs(endpoint, [header.height for header in empty])
                logs_by_height |= {height: logs for height, logs in retried.items() if len(logs)}
                empty = [header for header in empty if len(logs_by_height[header.height]) == 0]
        if len(empty) >= MIN_EMPTY and not await _have_no_logs(endpoint, empty):
            raise HistoryUnavailable(
                endpoint.name, empty[-1].height, "it gives no logs of old blocks, though their headers promise some"
            )
        heights = [height for height, logs in logs_by_height.items() if len(logs)]
        if heights and not empty:
            self._first_heights[endpoint.name] = min(self._first_heights.get(endpoint.name, heights[0]), heights[0])
        return columns.join([logs_by_height[height] for height in heights])


async def _read_logs(endpoint: Endpoint, heights: Sequence[int]) -> dict[int, Logs]:
    """Return all logs of single blocks by height; without blocks whose request was refused."""
    requests = [
        Request("eth_getLogs", ({"fromBlock": hex_of(height), "toBlock": hex_of(height)},)) for height in heights
    ]
    answers = zip(heights, await endpoint.ask(requests), strict=True)
    return {height: parse(endpoint.name, answer) for height, answer in answers if not isinstance(answer, SourceError)}


class _Receipt(msgspec.Struct):
    logs: list[msgspec.Raw]


async def _have_no_logs(endpoint: Endpoint, headers: Sequence[Header]) -> bool:
    """Return True if receipts show that blocks have no logs: blooms of some chains contain more.

    False if the receipts of a block cannot be read.
    """
    for answer in await endpoint.ask([Request("eth_getBlockReceipts", (each.hash,)) for each in headers]):
        if isinstance(answer, SourceError) or answer == b"null":
            return False
        if any(receipt.logs for receipt in typed(endpoint.name, answer, list[_Receipt])):
            return False
    return True
