"""Whether a node has the logs of old blocks at all. Some have deleted them, and answer that there are none.

The bloom of a header says whether its block has logs. Of a few blocks that have some, all logs are asked for, as those
of the accounts are. Nodes delete the oldest: where the logs of one block are there, later ones are, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from adapters.evm import logs as columns
from adapters.evm.accounts.naming import promised
from adapters.evm.logs import Logs
from adapters.evm.node import Header, hex_of
from chainfolio.blocks import Span
from chainfolio.errors import HistoryUnavailable, SourceError
from transport.endpoint import Endpoint
from transport.wire import Request, typed

HALVES = 14  # how often a window is halved for blocks that are looked at: nearly all lie at its beginning
FEW = 4  # of a window without any log, where earlier ones are there
ASKED = 4  # blocks whose logs are asked for
ENOUGH = 2  # of them without logs: one alone may be that of a chain with blooms of its own
LIGHT_GAS = 1_000_000  # blocks that used no more have few logs: they are asked for where there are some
AGAIN = 3  # how often they are asked once more
NO_BLOOM = "0x" + "0" * 512


class Depths:
    """From which block on each endpoint is known to have logs."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def sample(self, endpoint: Endpoint, window: Span, logs: Logs) -> list[int]:
        """The blocks of a window to look at: none where logs of it, or of earlier blocks, were given."""
        first, last = window.first, int(logs.height[0]) - 1 if len(logs) else window.last
        if last < first:
            return []
        if self._known.get(endpoint.name, window.last) >= first:
            return sorted({first + (last - first >> k) for k in range(HALVES)})
        return [] if len(logs) else sorted({first + len(window) * k // FEW for k in range(FEW)})

    async def check(self, endpoint: Endpoint, headers: Sequence[Header], accounts: Sequence[str]) -> Logs:
        """All logs of some of these blocks. HistoryUnavailable where blooms promise logs, and the node has none."""
        filled = [header for header in headers if header.logsBloom != NO_BLOOM]
        filled = [header for header in filled if int(header.gasUsed, 16) <= LIGHT_GAS] or filled
        first = [*promised(filled, accounts)[: ASKED // 2], *filled]
        chosen = sorted({header.height: header for header in first[:ASKED]}.items())
        found = await _logs(endpoint, [height for height, _ in chosen])
        empty = [header for height, header in chosen if height in found and len(found[height]) == 0]
        for _ in range(AGAIN):  # some nodes leave out now this, now that
            if len(empty) >= ENOUGH:
                more = await _logs(endpoint, [header.height for header in empty])
                found |= {height: logs for height, logs in more.items() if len(logs)}
                empty = [header for header in empty if len(found[header.height]) == 0]
        if len(empty) >= ENOUGH and not await _have_none(endpoint, empty):
            raise HistoryUnavailable(
                endpoint.name, empty[-1].height, "it gives no logs of old blocks, though their headers promise some"
            )
        given = [height for height, logs in found.items() if len(logs)]
        if given and not empty:
            self._known[endpoint.name] = min(self._known.get(endpoint.name, given[0]), given[0])
        return columns.join([found[height] for height in given])


async def _logs(endpoint: Endpoint, heights: Sequence[int]) -> dict[int, Logs]:
    """All logs of single blocks; without those of which a node takes no such question, for that shows nothing."""
    reads = [Request("eth_getLogs", ({"fromBlock": hex_of(height), "toBlock": hex_of(height)},)) for height in heights]
    answers = zip(heights, await endpoint.ask(reads), strict=True)
    return {
        height: columns.parse(endpoint.name, answer)
        for height, answer in answers
        if not isinstance(answer, SourceError)
    }


class _Receipt(msgspec.Struct):
    logs: list[msgspec.Raw]


async def _have_none(endpoint: Endpoint, headers: Sequence[Header]) -> bool:
    """Whether receipts show that blocks have no logs, whatever their blooms say: on some chains these say more."""
    for answer in await endpoint.ask([Request("eth_getBlockReceipts", (each.hash,)) for each in headers]):
        if isinstance(answer, SourceError) or answer == b"null":
            return False
        if any(receipt.logs for receipt in typed(endpoint.name, answer, list[_Receipt])):
            return False
    return True
