"""Every log that names some accounts, whatever the event: three questions for all accounts, in spans as wide as a node
serves.

Final blocks are read in windows. Blocks that may still go are read by their headers: one whose bloom allows a log of
these accounts is asked by its hash. Every answer is compared with the receipts of the accounts' own transactions, and
with `integrity = "roots"` with all receipts of the blocks that have something of the accounts (`witness.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import numpy as np

from adapters.evm import logs as columns
from adapters.evm.accounts.naming import Naming, names, promised, questions
from adapters.evm.accounts.pruned import Depths
from adapters.evm.accounts.receipt_logs import NO_RECEIPTS, ReceiptLogs, once
from adapters.evm.accounts.remembered import Remembered
from adapters.evm.accounts.windows import Windows
from adapters.evm.accounts.witness import Comparison, Witness, shown
from adapters.evm.integrity import blooms, check_links, explains, may_hold
from adapters.evm.logs import Logs
from adapters.evm.node import Header, Node, hex_of
from adapters.evm.spans import Chunk, Omitted, chunk_key
from chainfolio.blocks import Block, Span
from chainfolio.errors import BadAnswer, Contradicted, Reorged, SourceError, Unavailable, Unsupported
from transport.endpoint import Endpoint
from transport.wire import Request

SHORT = "short_answers"  # and whether it left logs out without saying so
SAMPLES, NARROW = 16, 200  # parts of a window that are asked again, and how much smaller than it they are
LARGE = 48  # calls of a batch that takes all of them
PATIENCE = 6
MAX_REPEATS = 100  # times that an endpoint is asked for the same window
ANY_EVENT = "any_event"  # what is learnt of an endpoint: whether it takes a question that leaves the event open


class AccountLogs:
    """Reads logs by the accounts that they name. `known` are the events that are asked for by name where a node takes
    no question without."""

    def __init__(
        self,
        node: Node,
        known: Sequence[str],
        *,
        integrity: str = "bloom",
        sample: int = 100,
        kept: Remembered | None = None,
    ) -> None:
        self.node, self.known, self.integrity = node, tuple(known), integrity
        self.witness = Witness(node, self.known, integrity=integrity, sample=sample)
        self.kept = Remembered() if kept is None else kept
        self.windows: Windows[Logs] = Windows("max_span", "logs")
        self.depths = Depths()

    async def read(self, span: Span, accounts: Sequence[str], receipts: ReceiptLogs = NO_RECEIPTS) -> Chunk:
        """The logs of final blocks, from the start of a span as far as goes at once; the header of the last block.
        `receipts`: logs that receipts of the span hold, which the answers must have."""

        async def at(endpoint: Endpoint) -> list[Chunk]:
            if self.node.quorum > 1:  # what is compared is read alike
                window, logs = span, await self._span(endpoint, span, accounts)
            else:
                window, logs = await self._window(endpoint, span, accounts)
            whole = await self._complete(endpoint, window, logs, accounts)
            try:
                chunk = await self._held(endpoint, window, whole, accounts)
            except Omitted:
                if any(not each.capabilities.get(SHORT) for each in self.node.ranked()):
                    raise
                whole = await self._patiently(endpoint, window, whole, accounts)
                chunk = await self._held(endpoint, window, whole, accounts)
            was_short = bool(endpoint.capabilities.get(SHORT))
            compared = await self._compared(endpoint, chunk, receipts, accounts)
            if compared.error is not None and self.node.quorum < 2 and not was_short:
                more = await self._patiently(endpoint, window, chunk.logs, accounts)
                chunk.logs = compared.applied(endpoint.name, (await self._held(endpoint, window, more, accounts)).logs)
            chunk.restored = len(chunk.logs) - len(logs)
            return [chunk]

        return await self._agreed(at, span)

    async def window(self, span: Span, accounts: Sequence[str]) -> tuple[Span, Logs]:
        """The logs of the next window of final blocks as one endpoint gives them, unproven: for a forecast."""
        return await self.node.with_any(lambda endpoint: self._window(endpoint, span, accounts), kind="account logs")

    def pieces(self, window: Span) -> int:
        """How many questions the endpoint that takes most of them needs for a window."""
        return min(-(-len(window) // self.windows.size(each, window)) for each in self.node.endpoints)

    async def read_linked(
        self,
        span: Span,
        accounts: Sequence[str],
        before: Block | None,
        headers: Sequence[Header] = (),
        receipts: ReceiptLogs = NO_RECEIPTS,
    ) -> Chunk:
        """The logs of blocks that may still go, with all their headers, where these were not read already. A block that
        does not name the accounts costs no more than its header. `receipts` as in `read`."""

        async def at(endpoint: Endpoint) -> list[Chunk]:
            chain = list(headers) or await self.node.headers_at(endpoint, range(span.first, span.last + 1))
            check_links(endpoint.name, chain, before)
            asked = chain if self.integrity == "off" else promised(chain, accounts)
            logs = await self._by_hash(endpoint, [header.hash for header in asked], accounts)
            if self.integrity != "off":
                logs = await self._with_omitted(endpoint, asked, logs, accounts)
            self._check(endpoint.name, logs, chain, final=False)
            chunk = Chunk(span, logs, chain)
            compared = await self._compared(endpoint, chunk, receipts, accounts)
            if compared.error is not None and self.node.quorum < 2:
                more = await self._with_omitted(endpoint, asked, chunk.logs, accounts)
                self._check(endpoint.name, more, chain, final=False)
                chunk.logs = compared.applied(endpoint.name, more)
            return [chunk]

        return await self._agreed(at, span)

    async def _agreed(self, at: Callable[[Endpoint], Awaitable[list[Chunk]]], span: Span) -> Chunk:
        is_final = self.node.is_final(span.last)
        chunks = await self.node.agreed(
            at,
            key=chunk_key,
            asked=lambda _: f"the logs of blocks {span.first}..{span.last} that name some accounts",
            final=lambda _: is_final,
            kind="account logs",
        )
        return chunks[0]

    def accuse(self, source: str, lacking: Logs) -> None:
        """Remember of an endpoint that it left out logs, by receipts that it gave itself."""
        for endpoint in self.node.endpoints:
            if endpoint.name == source and not endpoint.capabilities.get(SHORT):
                endpoint.learn(SHORT, 1)
                endpoint.errors.note(Omitted(source, f"left out {shown(lacking)}, which its receipt holds"))

    @property
    def events(self) -> tuple[str, ...]:
        """The events that answers are about; none named: all."""
        is_open = all(endpoint.capabilities.get(ANY_EVENT, 1) for endpoint in self.node.endpoints)
        return () if is_open else self.known

    # --- one window --------------------------------------------------------------------------------------------------

    async def _window(self, endpoint: Endpoint, span: Span, accounts: Sequence[str]) -> tuple[Span, Logs]:
        """The logs of the next pieces of a span."""
        window, found = await self.windows.read(endpoint, span, lambda pieces: self._ask(endpoint, pieces, accounts))
        return window, columns.join([once(endpoint.name, answers) for answers in found])

    async def _span(self, endpoint: Endpoint, span: Span, accounts: Sequence[str]) -> Logs:
        """The logs of a whole span, window by window."""
        window, logs = await self._window(endpoint, span, accounts)
        parts = [logs]
        while window.last < span.last:
            window, logs = await self._window(endpoint, Span(window.last + 1, span.last), accounts)
            parts.append(logs)
        return columns.join(parts)

    async def _ask(
        self, endpoint: Endpoint, pieces: Sequence[Span], accounts: Sequence[str]
    ) -> list[list[Logs | SourceError]]:
        """For each piece the answers to its questions; about known events alone where a node takes no open question."""
        is_open = endpoint.capabilities.get(ANY_EVENT, 1)
        answers = await self._put(endpoint, pieces, questions(accounts, () if is_open else self.known))
        if is_open and any(type(each) in (Unsupported, BadAnswer) for several in answers for each in several):
            refused, answers = answers, await self._put(endpoint, pieces, questions(accounts, self.known))
            if any(type(each) in (Unsupported, BadAnswer) for several in answers for each in several):
                return refused
            endpoint.learn(ANY_EVENT, 0)
        return answers

    async def _put(
        self, endpoint: Endpoint, pieces: Sequence[Span], asked: Sequence[Naming]
    ) -> list[list[Logs | SourceError]]:
        reads = [
            Request(
                "eth_getLogs", ({"fromBlock": hex_of(piece.first), "toBlock": hex_of(piece.last), **each.filter()},)
            )
            for piece in pieces
            for each in asked
        ]
        answers = iter(await endpoint.ask(reads, height=pieces[0].first))
        found: list[list[Logs | SourceError]] = []
        for piece in pieces:
            found.append([])
            for each in asked:
                answer = next(answers)
                if isinstance(answer, SourceError):
                    found[-1].append(answer)
                    continue
                logs = await asyncio.to_thread(columns.parse, endpoint.name, answer)
                found[-1].append(each.check(endpoint.name, _within(endpoint.name, piece, logs)))
        return found

    # --- answers that lack some logs ---------------------------------------------------------------------------------

    async def _complete(self, endpoint: Endpoint, window: Span, logs: Logs, accounts: Sequence[str]) -> Logs:
        """The logs of a window, by an endpoint that gives the same ones when it is asked once more for small parts.

        One that does not is left to others; where there are none, it is asked again until nothing new comes.
        """
        if self.integrity == "off" or self.node.quorum > 1:
            return logs
        if not endpoint.capabilities.get(SHORT):
            parts = self._sample(endpoint, window, logs)
            for part, answers in zip(parts, await self._ask(endpoint, parts, accounts), strict=True):
                if any(isinstance(each, SourceError) for each in answers):
                    continue  # the same was answered a moment ago: what cannot be asked twice shows nothing
                again = once(endpoint.name, [each for each in answers if not isinstance(each, SourceError)])
                if _places(again) != {place for place in _places(logs) if place[0] in part}:
                    endpoint.learn(SHORT, 1)
                    break
            else:
                return logs
        if any(not each.capabilities.get(SHORT) for each in self.node.ranked()):
            raise Omitted(endpoint.name, f"gives other logs of blocks {window.first}..{window.last} when asked again")
        return await self._patiently(endpoint, window, logs, accounts)

    def _sample(self, endpoint: Endpoint, window: Span, logs: Logs) -> list[Span]:
        """Return at least one small part of a window: some end with a log that was given, some are anywhere."""
        count = SAMPLES if endpoint.capabilities.get("max_batch", LARGE) >= LARGE else 1
        chance, width = self.node.seams.random, max(1, len(window) // NARROW)
        known = sorted({int(height) for height in logs.height})
        ends = [known[-1], *(chance.choice(known) for _ in range(count - 1))] if known else []
        ends += [chance.randint(window.first, window.last) for _ in range(count // 4 if known else max(1, count // 4))]
        return [Span(max(window.first, end - width + 1), end) for end in sorted(set(ends))]

    async def _patiently(self, endpoint: Endpoint, window: Span, logs: Logs, accounts: Sequence[str]) -> Logs:
        """Return all that an endpoint gives when it is asked again and again, until nothing new came for some times.

        Raises:
            Omitted: something new came each time.
        """
        calm = 0
        for _ in range(MAX_REPEATS):
            if calm == PATIENCE:
                return logs
            more = once(endpoint.name, [logs, await self._span(endpoint, window, accounts)])
            calm = 0 if len(more) > len(logs) else calm + 1
            logs = more
        raise Omitted(endpoint.name, f"gives new logs of blocks {window.first}..{window.last} whenever it is asked")

    async def _compared(
        self, endpoint: Endpoint, chunk: Chunk, receipts: ReceiptLogs, accounts: Sequence[str]
    ) -> Comparison:
        """Compare a chunk with receipts, and remember of the endpoint if it left logs out.

        Raises:
            Omitted: the endpoint left logs out, by receipts that it gave itself, and another one may give all.
            Contradicted: the same, and a receipts root shows it.
        """
        is_open = bool(endpoint.capabilities.get(ANY_EVENT, 1))
        compared = await self.witness.compared(endpoint, chunk, receipts, accounts, is_open=is_open)
        if compared.error is not None:
            is_new = not endpoint.capabilities.get(SHORT) or isinstance(compared.error, Contradicted)
            endpoint.learn(SHORT, 1)
            others = [each for each in self.node.ranked() if each is not endpoint]
            is_whole = self.node.quorum < 2 and not all(each.capabilities.get(SHORT) for each in others)
            if is_whole or (others and isinstance(compared.error, Contradicted)):
                raise compared.error
            if is_new:
                endpoint.errors.note(compared.error)
        chunk.left_out, chunk.source = compared.left_out, endpoint.name
        chunk.logs = compared.applied(endpoint.name, chunk.logs)
        return compared

    # --- checks ------------------------------------------------------------------------------------------------------

    async def _held(self, endpoint: Endpoint, window: Span, logs: Logs, accounts: Sequence[str]) -> Chunk:
        """Logs held against the headers of their blocks, and of the last block of the window; and headers of some other
        blocks against what the node says of their logs."""
        heights = sorted({*map(int, logs.height), window.last})
        if self.integrity == "off" and bool((logs.time_s >= 0).all()):
            heights = heights[-1:]
        sampled = [] if self.integrity == "off" else self.depths.sample(endpoint, window, logs)
        every = await self.node.headers_at(endpoint, sorted({*heights, *sampled}))
        headers = [header for header in every if header.height in heights]
        if sampled:
            at_some = await self.depths.check(endpoint, [each for each in every if each.height in sampled], accounts)
            if _places(at_some.take(np.flatnonzero(names(at_some, accounts)))) - _places(logs):
                endpoint.learn(SHORT, 1)
                raise Omitted(endpoint.name, f"leaves out logs of blocks {window.first}..{window.last} that it has")
        if len(heights) > 1 or len(logs):
            self._check(endpoint.name, logs, headers, final=True)
            self.kept.keep(headers)
        return Chunk(window, logs, headers[-1:])

    def _check(self, source: str, logs: Logs, headers: Sequence[Header], *, final: bool) -> None:
        """Each log carries the hash and the time of its block, whose bloom allows it. The times are filled in."""
        at = {header.height: k for k, header in enumerate(headers)}
        rows = blooms(headers)
        for k in range(len(logs)):
            header = headers[at[int(logs.height[k])]] if int(logs.height[k]) in at else None
            if header is None:
                continue  # integrity is off, and the time is told
            if logs.block_hash[k].tobytes().decode() != header.hash:
                if not final:
                    raise Reorged(source, header.height, header.hash)
                raise BadAnswer(source, f"a log of another block {header.height} than the one on its chain")
            if int(logs.time_s[k]) not in (-1, header.time_s):
                raise BadAnswer(source, "a log with another time than its block")
            logs.time_s[k] = header.time_s
            if self.integrity != "off":
                value = logs.address[k].tobytes().decode()
                if not may_hold(rows[at[header.height]][None, :], value).all():
                    raise BadAnswer(source, f"a log of {value} in a block whose bloom denies it")

    async def _by_hash(self, endpoint: Endpoint, hashes: Sequence[str], accounts: Sequence[str]) -> Logs:
        """The logs of blocks named by hash, which a node that does not have them must refuse."""
        is_open = endpoint.capabilities.get(ANY_EVENT, 1)
        asked = questions(accounts, () if is_open else self.known)
        reads = [Request("eth_getLogs", ({"blockHash": each, **q.filter()},)) for each in hashes for q in asked]
        found = []
        for read, answer in zip(reads, await endpoint.ask(reads), strict=True):
            if isinstance(answer, SourceError):
                raise Unavailable(endpoint.name, f"cannot give the logs of a block by its hash: {answer.reason}")
            logs = columns.parse(endpoint.name, answer)
            if len(logs) and {each.tobytes().decode() for each in logs.block_hash} != {read.params[0]["blockHash"]}:
                raise BadAnswer(endpoint.name, "logs of another block than was asked for")
            if not names(logs, accounts).all():
                raise BadAnswer(endpoint.name, "logs that name other accounts than were asked for")
            found.append(logs)
        return once(endpoint.name, found)

    async def _with_omitted(
        self, endpoint: Endpoint, asked: Sequence[Header], logs: Logs, accounts: Sequence[str]
    ) -> Logs:
        """The logs of single blocks, also those that were left out: blocks that name the accounts are read whole, and
        their blooms say whether that is all. From an endpoint that is known to leave logs out, so is every block that
        may name them."""
        is_short, named = bool(endpoint.capabilities.get(SHORT)), {int(height) for height in logs.height}
        left, parts = [header for header in asked if is_short or header.height in named], [logs]
        lacks, again = False, list[Header]()
        for _ in range(PATIENCE):
            if not left:
                break
            answers = await endpoint.ask([Request("eth_getLogs", ({"blockHash": each.hash},)) for each in left])
            again = []
            for header, answer in zip(left, answers, strict=True):
                if isinstance(answer, SourceError):
                    continue  # what cannot be asked twice shows nothing
                whole = columns.parse(endpoint.name, answer)
                if {each.tobytes().decode() for each in whole.block_hash} - {header.hash}:
                    raise BadAnswer(endpoint.name, "logs of another block than was asked for")
                parts.append(whole.take(np.flatnonzero(names(whole, accounts))))
                if not explains(whole, header):
                    again.append(header)
            lacks = lacks or bool(again)
            left = left if is_short else again  # a bloom does not count logs that are alike
        found = once(endpoint.name, parts)
        if lacks or len(found) > len(logs):
            endpoint.learn(SHORT, 1)
        if again and any(not each.capabilities.get(SHORT) for each in self.node.ranked() if each is not endpoint):
            raise Omitted(endpoint.name, f"leaves out logs of block {again[0].height}, which its bloom promises")
        if endpoint.capabilities.get(SHORT) and not is_short:
            return await self._with_omitted(endpoint, asked, found, accounts)
        return found


def _places(logs: Logs) -> set[tuple[int, int]]:
    return set(zip(logs.height.tolist(), logs.log_index.tolist(), strict=True))


def _within(source: str, piece: Span, logs: Logs) -> Logs:
    if len(logs) and (int(logs.height[0]) not in piece or int(logs.height[-1]) not in piece):
        raise BadAnswer(source, "logs from outside the span that was asked for")
    return logs
