"""Answers of `eth_getLogs` compared with receipts: which logs an endpoint left out of them, by its own word.

An endpoint is compared with receipts that it gave itself: what another one says accuses nobody. With
`integrity = "roots"`, these are all receipts of the blocks that have something of the accounts, and of one block in
`sample` whose bloom allows something; they are proven by the receipts root, under the hash of the header.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adapters.evm import logs as columns
from adapters.evm.accounts.naming import promised
from adapters.evm.accounts.receipt_logs import ReceiptLogs, absent, at_heights, listed, naming, once
from adapters.evm.logs import Logs
from adapters.evm.node import Header, Node
from adapters.evm.proven import are_receipts_proven, logs_by_receipts
from adapters.evm.spans import Chunk, LeftOut, Omitted
from chainfolio.errors import BadAnswer, Contradicted, SourceError
from transport.endpoint import Endpoint
from transport.wire import Request

HEADERS_AT_ONCE, RECEIPTS_AT_ONCE = 1_000, 20  # blocks
MORE = 'add an endpoint, or set integrity = "roots"'


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """What receipts say of the logs that an endpoint gave.

    `truth`: logs of receipts that its answer must have, all of them of `proven` blocks. `error`: what the endpoint did
    wrong; None if nothing. `left_out`: what people have to know if the answer may lack more, or receipts contradict.
    """

    truth: Logs
    proven: frozenset[int] = frozenset()
    error: BadAnswer | None = None
    left_out: LeftOut | None = None

    def applied(self, source: str, logs: Logs) -> Logs:
        """Return logs with what the receipts hold, and without what they do not hold of proven blocks."""
        others = logs.take(np.flatnonzero(np.isin(logs.height, sorted(self.proven), invert=True)))
        return once(source, [self.truth, others])


class Witness:
    """Compares the answers of a chain's endpoints. `known`: the events that an endpoint is asked for by name if it
    takes no question without."""

    def __init__(self, node: Node, known: Sequence[str], *, integrity: str, sample: int) -> None:
        self.node, self.known, self.sample = node, known, sample
        self.is_proving = are_receipts_proven(node.facts, integrity)

    async def compared(
        self, endpoint: Endpoint, chunk: Chunk, receipts: ReceiptLogs, accounts: Sequence[str], *, is_open: bool
    ) -> Comparison:
        """Compare a chunk that an endpoint gave. `receipts`: those that were read of the chunk's blocks, and perhaps of
        others; `is_open`: whether the endpoint was asked for all events.

        Raises:
            BadAnswer: receipts that the endpoint gives contradict each other, or its header.
        """
        receipts = receipts.within(chunk.span)
        own = receipts.of(endpoint.name)
        if self.is_proving:
            own = own.replaced(await self._proven(endpoint, chunk, receipts, own, accounts))
        others = at_heights(receipts.logs, receipts.sources.keys() - own.sources.keys())
        events = () if is_open else self.known
        lacking, open_ = (absent(naming(each, accounts, events), chunk.logs) for each in (own.logs, others))
        invented = absent(at_heights(chunk.logs, own.proven), own.logs)
        confirmed, unknown, denied = await self._by_own_receipts(endpoint, open_)
        left_out = columns.join([lacking, confirmed])
        truth = columns.join([naming(own.logs, accounts, events), confirmed, unknown])
        return Comparison(
            truth, own.proven, self._error(endpoint, own, left_out, invented),
            self._left_out(endpoint, receipts, columns.join([left_out, unknown]), denied),
        )  # fmt: skip

    async def _proven(
        self, endpoint: Endpoint, chunk: Chunk, receipts: ReceiptLogs, own: ReceiptLogs, accounts: Sequence[str]
    ) -> ReceiptLogs:
        """The logs of blocks that have something of the accounts, and of some others, by receipts of an endpoint that
        are proven; without the blocks whose receipts it gave so already."""
        certain = {*chunk.logs.height.tolist(), *receipts.sources} - own.proven
        chance = self.node.seams.random
        some = [h for h in range(chunk.span.first, chunk.span.last + 1) if chance.randrange(self.sample) == 0]
        every = sorted({*certain, *some} - own.proven)
        given = {header.height: header for header in chunk.headers}
        parts, heights = list[Logs](), set[int]()
        for start in range(0, len(every), HEADERS_AT_ONCE):
            part = every[start : start + HEADERS_AT_ONCE]
            missing = [height for height in part if height not in given]
            read = {header.height: header for header in await self.node.headers_at(endpoint, missing)}
            headers = [given.get(height) or read[height] for height in part]
            allowed = {header.height for header in promised(headers, accounts)}
            chosen = [header for header in headers if header.height in certain | allowed]
            parts += [naming(logs, accounts) for logs in await self._logs_of(endpoint, chosen)]
            heights |= {header.height for header in chosen}
        return ReceiptLogs(columns.join(parts), dict.fromkeys(heights, endpoint.name), frozenset(heights))

    async def _logs_of(self, endpoint: Endpoint, headers: Sequence[Header]) -> list[Logs]:
        """All logs of some blocks, by their receipts."""
        found: list[Logs] = []
        for start in range(0, len(headers), RECEIPTS_AT_ONCE):
            part = headers[start : start + RECEIPTS_AT_ONCE]
            found += await logs_by_receipts(self.node.facts, endpoint, part, by_root=True)
        return found

    async def _by_own_receipts(self, endpoint: Endpoint, logs: Logs) -> tuple[Logs, Logs, Logs]:
        """Logs that another endpoint's receipts hold, by receipts of this one: those that these hold too, those of
        which it gives no receipts, and those that its receipts do not hold."""
        if len(logs) == 0:
            return logs, logs, logs
        hashes = sorted({each.tobytes().decode() for each in logs.tx_hash})
        answers = await endpoint.ask([Request("eth_getTransactionReceipt", (each,)) for each in hashes])
        given = {
            tx_hash: listed(endpoint.name, answer)
            for tx_hash, answer in zip(hashes, answers, strict=True)
            if not isinstance(answer, SourceError) and answer != b"null"
        }
        is_given = np.array([each.tobytes().decode() in given for each in logs.tx_hash])
        answered, unknown = logs.take(np.flatnonzero(is_given)), logs.take(np.flatnonzero(~is_given))
        denied = absent(answered, columns.join(list(given.values())))
        return absent(answered, denied), unknown, denied

    def _error(self, endpoint: Endpoint, own: ReceiptLogs, left_out: Logs, invented: Logs) -> BadAnswer | None:
        """What an endpoint did wrong, by receipts that it gave; None if nothing."""
        proven = at_heights(left_out, own.proven)
        if len(invented) or len(proven):
            height = int((invented if len(invented) else proven).height[0])
            asked = f"the logs of block {height} that name some accounts"
            did = f"left out {shown(proven)}" if len(proven) else f"invented or altered {shown(invented)}"
            return Contradicted(
                endpoint.name, asked, did, f"{len(at_heights(own.logs, [height]))} by its receipts root"
            )
        if len(left_out):
            return Omitted(endpoint.name, f"left out {shown(left_out)}, which its receipt holds")
        return None

    def _left_out(self, endpoint: Endpoint, receipts: ReceiptLogs, lacking: Logs, denied: Logs) -> LeftOut | None:
        """What is not certain of an answer that lacked logs, or whose receipts deny what others hold; None if it is."""
        logs, is_whole = (denied if len(denied) else lacking), self.is_proving and self.sample == 1
        if len(logs) == 0 or (not len(denied) and (is_whole or self.node.quorum > 1)):
            return None
        height, contract = int(logs.height[0]), logs.address[0].tobytes().decode()
        if len(denied):
            who = f"{receipts.sources[height]} and {endpoint.name} contradict each other about {shown(denied)}"
            return LeftOut(height, contract, f"{who}, which only the receipt of the first holds: {MORE}")
        did = f"{endpoint.name} left out {shown(logs)}, which was taken from the receipt"
        return LeftOut(height, contract, f"{did}; what it leaves out of transactions of others is not noticed: {MORE}")


def shown(logs: Logs) -> str:
    """Name the first of some logs, and how many more there are."""
    name, more = f"log {int(logs.log_index[0])} of transaction {logs.tx_hash[0].tobytes().decode()}", len(logs) - 1
    return f"{name} in block {int(logs.height[0])}{f' and {more:,} more' if more else ''}"
