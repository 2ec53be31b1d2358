"""Read every log that names some accounts, of any event, with three filters for all accounts.

Final blocks are read in windows. Blocks that are not final are read by their headers: if a bloom allows a log of the
accounts, the block's logs are requested by its hash. Every answer is compared with the receipts of the accounts' own
transactions, and with `integrity = "roots"` with all receipts of the blocks that concern the accounts (see
`receipt_comparison`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from chainfolio.adapters.evm import logs as columns
from chainfolio.adapters.evm.accounts.header_cache import HeaderCache
from chainfolio.adapters.evm.accounts.log_pruning import PruningCheck
from chainfolio.adapters.evm.accounts.receipt_comparison import Comparison, ReceiptComparer, describe
from chainfolio.adapters.evm.accounts.receipt_logs import NO_RECEIPTS, ReceiptLogs, logs_naming, merge_logs
from chainfolio.adapters.evm.accounts.topic_filters import TopicFilter, headers_with_bloom, names_account, topic_filters
from chainfolio.adapters.evm.accounts.windows import Windows
from chainfolio.adapters.evm.integrity import check_headers, check_links, explains
from chainfolio.adapters.evm.log_parser import parse
from chainfolio.adapters.evm.logs import Logs
from chainfolio.adapters.evm.node import Header, Node, hex_of
from chainfolio.adapters.evm.spans import Chunk, OmittedLogs, chunk_key
from chainfolio.blocks import Block, Span
from chainfolio.errors import BadAnswer, Contradiction, SourceError, Unavailable, UnsupportedMethod
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request

INCOMPLETE = "short_answers"  # capability: 1 if the endpoint left logs out without saying so
ANY_EVENT = "any_event"  # capability: 0 if the endpoint refuses filters without events
MAX_SAMPLES, SAMPLE_DIVISOR = 16, 200  # parts of a window that are read again, and how much smaller they are
MIN_BATCH = 48  # calls of a batch that fits all samples
STABLE_READS = 6  # reads without new logs after which an incomplete endpoint is believed
MAX_REPEATS = 100  # reads of the same window


class AccountLogs:
    """Reads logs by the accounts that they name.

    Args:
        node: The chain's endpoints.
        known_events: The events to ask for if an endpoint refuses filters without events.
        integrity: The setting of the chain.
        sample: With proofs, one in `sample` further blocks is proven.
        headers: Receives the headers that were read.
    """

    def __init__(
        self,
        node: Node,
        known_events: Sequence[str],
        *,
        integrity: str = "bloom",
        sample: int = 100,
        headers: HeaderCache | None = None,
    ) -> None:
        """Prepare reads. `integrity` and `sample` say how logs are compared with blooms and receipts."""
        self.node, self.known_events, self.integrity = node, tuple(known_events), integrity
        self.comparer = ReceiptComparer(node, self.known_events, integrity=integrity, sample=sample)
        self.headers = HeaderCache() if headers is None else headers
        self.windows: Windows[Logs] = Windows("max_span", "logs")
        self.pruning = PruningCheck()

    async def read(self, span: Span, accounts: Sequence[str], receipts: ReceiptLogs = NO_RECEIPTS) -> Chunk:
        """Read the logs of final blocks.

        Args:
            span: The blocks to read.
            accounts: Addresses in lower case.
            receipts: Logs of receipts, which the answers must have.

        Returns:
            The next window of the span (with a quorum, all of it), with the header of its last block.

        Raises:
            OmittedLogs: Every endpoint leaves out logs.
            HistoryUnavailable: No endpoint has the logs of these blocks.
            SourceError: No endpoint answers.
        """

        async def at(endpoint: Endpoint) -> list[Chunk]:
            if self.node.quorum > 1:  # endpoints that are compared must read the same window
                window, logs = span, await self._read_span(endpoint, span, accounts)
            else:
                window, logs = await self._read_window(endpoint, span, accounts)
            complete = await self._complete(endpoint, window, logs, accounts)
            try:
                chunk = await self._check_window(endpoint, window, complete, accounts)
            except OmittedLogs:
                if self._has_complete_endpoint():
                    raise
                complete = await self._read_until_stable(endpoint, window, complete, accounts)
                chunk = await self._check_window(endpoint, window, complete, accounts)
            was_incomplete = _is_incomplete(endpoint)
            comparison = await self._compare(endpoint, chunk, receipts, accounts)
            if comparison.error is not None and self.node.quorum < 2 and not was_incomplete:
                stable = await self._read_until_stable(endpoint, window, chunk.logs, accounts)
                checked = await self._check_window(endpoint, window, stable, accounts)
                chunk.logs = comparison.apply(endpoint.name, checked.logs)
            chunk.restored = len(chunk.logs) - len(logs)
            return [chunk]

        return await self._agreed(at, span)

    async def read_window(self, span: Span, accounts: Sequence[str]) -> tuple[Span, Logs]:
        """Read the next window of final blocks from one endpoint, without checks, for an estimate."""
        return await self.node.with_any(
            lambda endpoint: self._read_window(endpoint, span, accounts), kind="account logs"
        )

    def piece_count(self, window: Span) -> int:
        """Return how many pieces the endpoint with the widest limit needs for a window."""
        return min(-(-len(window) // self.windows.piece_size(each, window)) for each in self.node.endpoints)

    async def read_linked(
        self,
        span: Span,
        accounts: Sequence[str],
        before: Block | None,
        headers: Sequence[Header] = (),
        receipts: ReceiptLogs = NO_RECEIPTS,
    ) -> Chunk:
        """Read the logs of blocks that are not final.

        A block whose bloom denies the accounts costs only its header.

        Args:
            span: The blocks to read, all of them.
            accounts: Addresses in lower case.
            before: The block that the first one must follow; None if it is unknown.
            headers: The headers of the span, if they were already read.
            receipts: Logs of receipts, which the answers must have.

        Raises:
            Reorged: The blocks do not follow each other, or `before`.
            SourceError: No endpoint answers completely.
        """

        async def at(endpoint: Endpoint) -> list[Chunk]:
            chain = list(headers) or await self.node.headers_at(endpoint, range(span.first, span.last + 1))
            check_links(endpoint.name, chain, before)
            candidates = chain if self.integrity == "off" else headers_with_bloom(chain, accounts)
            logs = await self._read_by_hash(endpoint, [header.hash for header in candidates], accounts)
            if self.integrity != "off":
                logs = await self._add_omitted(endpoint, candidates, logs, accounts)
            check_headers(endpoint.name, logs, chain, final=False, with_blooms=self.integrity != "off")
            chunk = Chunk(span, logs, chain)
            comparison = await self._compare(endpoint, chunk, receipts, accounts)
            if comparison.error is not None and self.node.quorum < 2:
                complete = await self._add_omitted(endpoint, candidates, chunk.logs, accounts)
                check_headers(endpoint.name, complete, chain, final=False, with_blooms=self.integrity != "off")
                chunk.logs = comparison.apply(endpoint.name, complete)
            return [chunk]

        return await self._agreed(at, span)

    async def _agreed(self, at: Callable[[Endpoint], Awaitable[list[Chunk]]], span: Span) -> Chunk:
        """Return the logs of a span on which the node's endpoints agree."""
        is_final = self.node.is_final(span.last)
        chunks = await self.node.agreed(
            at,
            key=chunk_key,
            describe=lambda _: f"the logs of blocks {span.first}..{span.last} that name some accounts",
            is_final=lambda _: is_final,
            kind="account logs",
        )
        return chunks[0]

    def accuse(self, source: str, missing: Logs) -> None:
        """Mark an endpoint as incomplete, because of logs in receipts that it gave itself."""
        for endpoint in self.node.endpoints:
            if endpoint.name == source and not _is_incomplete(endpoint):
                endpoint.learn(INCOMPLETE, 1)
                endpoint.errors.note(OmittedLogs(source, f"left out {describe(missing)}, which its receipt holds"))

    @property
    def events(self) -> tuple[str, ...]:
        """The events that answers have; empty for all events."""
        any_event = all(endpoint.capabilities.get(ANY_EVENT, 1) for endpoint in self.node.endpoints)
        return () if any_event else self.known_events

    def _has_complete_endpoint(self, other_than: Endpoint | None = None) -> bool:
        return any(not _is_incomplete(each) for each in self.node.ranked() if each is not other_than)

    # --- one window --------------------------------------------------------------------------------------------------

    async def _read_window(self, endpoint: Endpoint, span: Span, accounts: Sequence[str]) -> tuple[Span, Logs]:
        """Read the next window of a span."""
        window, pieces = await self.windows.read(
            endpoint, span, lambda spans: self._read_pieces(endpoint, spans, accounts)
        )
        return window, columns.join([merge_logs(endpoint.name, answers) for answers in pieces])

    async def _read_span(self, endpoint: Endpoint, span: Span, accounts: Sequence[str]) -> Logs:
        """Read a whole span, window by window."""
        window, logs = await self._read_window(endpoint, span, accounts)
        parts = [logs]
        while window.last < span.last:
            window, logs = await self._read_window(endpoint, Span(window.last + 1, span.last), accounts)
            parts.append(logs)
        return columns.join(parts)

    async def _read_pieces(
        self, endpoint: Endpoint, pieces: Sequence[Span], accounts: Sequence[str]
    ) -> list[list[Logs | SourceError]]:
        """Return the answers to the filters for each piece, or errors in their place.

        If the endpoint demands it, which is remembered, they are of known events only.
        """
        any_event = endpoint.capabilities.get(ANY_EVENT, 1)
        answers = await self._request(endpoint, pieces, self._filters(endpoint, accounts))
        if any_event and _is_filter_refused(answers):
            refusals = answers
            answers = await self._request(endpoint, pieces, topic_filters(accounts, self.known_events))
            if _is_filter_refused(answers):
                return refusals
            endpoint.learn(ANY_EVENT, 0)
        return answers

    def _filters(self, endpoint: Endpoint, accounts: Sequence[str]) -> list[TopicFilter]:
        any_event = endpoint.capabilities.get(ANY_EVENT, 1)
        return topic_filters(accounts, () if any_event else self.known_events)

    async def _request(
        self, endpoint: Endpoint, pieces: Sequence[Span], filters: Sequence[TopicFilter]
    ) -> list[list[Logs | SourceError]]:
        """Return by piece the logs of each filter; the error in the place of those that failed.

        Raises BadAnswer for a log outside of its piece, or that does not match its filter.
        """
        requests = [
            Request(
                "eth_getLogs", ({"fromBlock": hex_of(piece.first), "toBlock": hex_of(piece.last), **each.params()},)
            )
            for piece in pieces
            for each in filters
        ]
        answers = iter(await endpoint.ask(requests, height=pieces[0].first))
        results: list[list[Logs | SourceError]] = []
        for piece in pieces:
            results.append([])
            for each in filters:
                answer = next(answers)
                if isinstance(answer, SourceError):
                    results[-1].append(answer)
                    continue
                logs = await asyncio.to_thread(parse, endpoint.name, answer)
                results[-1].append(each.check(endpoint.name, _check_span(endpoint.name, piece, logs)))
        return results

    # --- incomplete answers ------------------------------------------------------------------------------------------

    async def _complete(self, endpoint: Endpoint, window: Span, logs: Logs, accounts: Sequence[str]) -> Logs:
        """Return the logs if the endpoint gives the same ones for small parts of the window.

        Otherwise read from the endpoint until nothing new comes, if all endpoints are incomplete.

        Raises:
            OmittedLogs: The endpoint gives different logs, and another endpoint may be complete.
        """
        if self.integrity == "off" or self.node.quorum > 1:
            return logs
        if not _is_incomplete(endpoint):
            parts = self._sample(endpoint, window, logs)
            for part, answers in zip(parts, await self._read_pieces(endpoint, parts, accounts), strict=True):
                if any(isinstance(each, SourceError) for each in answers):
                    continue  # the endpoint answered the same question before: a refusal now proves nothing
                reread = merge_logs(endpoint.name, [each for each in answers if not isinstance(each, SourceError)])
                if _positions(reread) != {position for position in _positions(logs) if position[0] in part}:
                    endpoint.learn(INCOMPLETE, 1)
                    break
            else:
                return logs
        if self._has_complete_endpoint():
            raise OmittedLogs(
                endpoint.name, f"gives other logs of blocks {window.first}..{window.last} when asked again"
            )
        return await self._read_until_stable(endpoint, window, logs, accounts)

    def _sample(self, endpoint: Endpoint, window: Span, logs: Logs) -> list[Span]:
        """Return at least one small part of a window: some end with a log of the answer, some are random."""
        count = MAX_SAMPLES if endpoint.capabilities.get("max_batch", MIN_BATCH) >= MIN_BATCH else 1
        random, width = self.node.environment.random, max(1, len(window) // SAMPLE_DIVISOR)
        heights = sorted({int(height) for height in logs.height})
        ends = [heights[-1], *(random.choice(heights) for _ in range(count - 1))] if heights else []
        random_count = count // 4 if heights else max(1, count // 4)
        ends += [random.randint(window.first, window.last) for _ in range(random_count)]
        return [Span(max(window.first, end - width + 1), end) for end in sorted(set(ends))]

    async def _read_until_stable(self, endpoint: Endpoint, window: Span, logs: Logs, accounts: Sequence[str]) -> Logs:
        """Read a window again until `STABLE_READS` reads in a row bring no new logs, and return all logs.

        Raises:
            OmittedLogs: New logs still come after `MAX_REPEATS` reads.
        """
        stable_count = 0
        for _ in range(MAX_REPEATS):
            if stable_count == STABLE_READS:
                return logs
            merged = merge_logs(endpoint.name, [logs, await self._read_span(endpoint, window, accounts)])
            stable_count = 0 if len(merged) > len(logs) else stable_count + 1
            logs = merged
        raise OmittedLogs(endpoint.name, f"gives new logs of blocks {window.first}..{window.last} whenever it is asked")

    async def _compare(
        self, endpoint: Endpoint, chunk: Chunk, receipts: ReceiptLogs, accounts: Sequence[str]
    ) -> Comparison:
        """Compare a chunk with receipts, correct it in place, and mark an incomplete endpoint.

        Raises:
            OmittedLogs: The endpoint left out logs that its receipts have, and another endpoint may be complete.
            Contradiction: A receipts root proves it.
        """
        any_event = bool(endpoint.capabilities.get(ANY_EVENT, 1))
        comparison = await self.comparer.compare(endpoint, chunk, receipts, accounts, any_event=any_event)
        if comparison.error is not None:
            is_new = not _is_incomplete(endpoint) or isinstance(comparison.error, Contradiction)
            endpoint.learn(INCOMPLETE, 1)
            has_alternative = self.node.quorum < 2 and self._has_complete_endpoint(other_than=endpoint)
            has_others = any(each is not endpoint for each in self.node.ranked())
            if has_alternative or (has_others and isinstance(comparison.error, Contradiction)):
                raise comparison.error
            if is_new:
                endpoint.errors.note(comparison.error)
        chunk.left_out, chunk.source = comparison.left_out, endpoint.name
        chunk.logs = comparison.apply(endpoint.name, chunk.logs)
        return comparison

    # --- checks ------------------------------------------------------------------------------------------------------

    async def _check_window(self, endpoint: Endpoint, window: Span, logs: Logs, accounts: Sequence[str]) -> Chunk:
        """Check logs against the headers of their blocks, and the endpoint against some headers without logs.

        Returns:
            The logs with the header of the window's last block.

        Raises:
            BadAnswer: A log contradicts its header.
            OmittedLogs: The endpoint has logs of the accounts that it left out; it is marked as incomplete.
            HistoryUnavailable: The endpoint has deleted the logs of these blocks.
        """
        heights = sorted({*map(int, logs.height), window.last})
        if self.integrity == "off" and bool((logs.time_s >= 0).all()):
            heights = heights[-1:]
        sampled = [] if self.integrity == "off" else self.pruning.sample(endpoint, window, logs)
        all_headers = await self.node.headers_at(endpoint, sorted({*heights, *sampled}))
        headers = [header for header in all_headers if header.height in heights]
        if sampled:
            sampled_headers = [header for header in all_headers if header.height in sampled]
            sampled_logs = logs_naming(await self.pruning.check(endpoint, sampled_headers, accounts), accounts)
            if _positions(sampled_logs) - _positions(logs):
                endpoint.learn(INCOMPLETE, 1)
                raise OmittedLogs(endpoint.name, f"leaves out logs of blocks {window.first}..{window.last} that it has")
        if len(heights) > 1 or len(logs):
            check_headers(endpoint.name, logs, headers, final=True, with_blooms=self.integrity != "off")
            self.headers.add(headers)
        return Chunk(window, logs, headers[-1:])

    async def _read_by_hash(self, endpoint: Endpoint, hashes: Sequence[str], accounts: Sequence[str]) -> Logs:
        """Read the logs of blocks by hash, merged.

        Raises Unavailable if the node refuses a block, BadAnswer for logs of other blocks or accounts.
        """
        filters = self._filters(endpoint, accounts)
        requests = [
            Request("eth_getLogs", ({"blockHash": block_hash, **each.params()},))
            for block_hash in hashes
            for each in filters
        ]
        results = []
        for request, answer in zip(requests, await endpoint.ask(requests), strict=True):
            if isinstance(answer, SourceError):
                raise Unavailable(endpoint.name, f"cannot give the logs of a block by its hash: {answer.reason}")
            logs = parse(endpoint.name, answer)
            if len(logs) and _block_hashes(logs) != {request.params[0]["blockHash"]}:
                raise BadAnswer(endpoint.name, "logs of another block than was asked for")
            if not names_account(logs, accounts).all():
                raise BadAnswer(endpoint.name, "logs that name other accounts than were asked for")
            results.append(logs)
        return merge_logs(endpoint.name, results)

    async def _add_omitted(
        self, endpoint: Endpoint, headers: Sequence[Header], logs: Logs, accounts: Sequence[str]
    ) -> Logs:
        """Add logs of single blocks that the endpoint left out.

        All logs of each block that names the accounts are read, until they explain the block's bloom. For an incomplete
        endpoint these are all blocks whose bloom allows the accounts, and they are always read `STABLE_READS` times. An
        endpoint that left out a log is marked as incomplete.

        Raises:
            OmittedLogs: The logs of a block never explain its bloom, and another endpoint may be complete.
            BadAnswer: The endpoint gives logs of another block.
        """
        was_incomplete, log_heights = _is_incomplete(endpoint), {int(height) for height in logs.height}
        pending, parts = [header for header in headers if was_incomplete or header.height in log_heights], [logs]
        has_omitted, unexplained = False, list[Header]()
        for _ in range(STABLE_READS):
            if not pending:
                break
            requests = [Request("eth_getLogs", ({"blockHash": header.hash},)) for header in pending]
            unexplained = []
            for header, answer in zip(pending, await endpoint.ask(requests), strict=True):
                if isinstance(answer, SourceError):
                    continue  # a refusal proves nothing
                block_logs = parse(endpoint.name, answer)
                if _block_hashes(block_logs) - {header.hash}:
                    raise BadAnswer(endpoint.name, "logs of another block than was asked for")
                parts.append(logs_naming(block_logs, accounts))
                if not explains(block_logs, header):
                    unexplained.append(header)
            has_omitted = has_omitted or bool(unexplained)
            pending = pending if was_incomplete else unexplained  # equal logs leave the bloom unchanged
        merged = merge_logs(endpoint.name, parts)
        if has_omitted or len(merged) > len(logs):
            endpoint.learn(INCOMPLETE, 1)
        if unexplained and self._has_complete_endpoint(other_than=endpoint):
            raise OmittedLogs(
                endpoint.name, f"leaves out logs of block {unexplained[0].height}, which its bloom promises"
            )
        if _is_incomplete(endpoint) and not was_incomplete:
            return await self._add_omitted(endpoint, headers, merged, accounts)
        return merged


def _is_incomplete(endpoint: Endpoint) -> bool:
    return bool(endpoint.capabilities.get(INCOMPLETE))


def _is_filter_refused(answers: Sequence[Sequence[Logs | SourceError]]) -> bool:
    return any(type(each) in (UnsupportedMethod, BadAnswer) for results in answers for each in results)


def _positions(logs: Logs) -> set[tuple[int, int]]:
    return set(zip(logs.height.tolist(), logs.log_index.tolist(), strict=True))


def _block_hashes(logs: Logs) -> set[str]:
    return {each.tobytes().decode() for each in logs.block_hash}


def _check_span(source: str, piece: Span, logs: Logs) -> Logs:
    if len(logs) and (int(logs.height[0]) not in piece or int(logs.height[-1]) not in piece):
        raise BadAnswer(source, "logs from outside the span that was asked for")
    return logs
