"""Read a chain at several blocks at once: the reads of all readers in one round become one request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chainfolio.capabilities import Capability, require_capability
from chainfolio.errors import HistoryUnavailable, SourceError
from chainfolio.reads import Read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chainfolio.blocks import Block, Span
    from chainfolio.chains import Chain

PendingRead = tuple["Block", Sequence[Read[object]], "asyncio.Future[list[object]]"]


@dataclass(slots=True)
class JointChain:
    """Delegates to a chain, and answers reads once every reader that has not ended has asked."""

    chain: Chain
    readers: int
    _waiting: list[PendingRead] = field(default_factory=list)
    _collected: dict[Any, asyncio.Task[Any]] = field(default_factory=dict)
    _sending: set[asyncio.Task[None]] = field(default_factory=set)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.chain, name)

    async def answer(self, reads: Sequence[Read[object]], block: Block) -> list[object]:
        """Return the results of reads at the block. It waits until all other readers have asked or ended.

        Raises:
            SourceError: No node answers for the block.
        """
        result: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()
        self._waiting.append((block, reads, result))
        self._send_if_all_ask()
        return await result

    async def collect_accounts(self, span: Span, accounts: Sequence[str], datasets: Sequence[str]) -> Any:
        """Return the history of accounts in a span; readers that need the same one share a request.

        Raises:
            MissingCapability: The chain has no account histories.
        """
        key = span, tuple(accounts), tuple(datasets)
        if key not in self._collected:
            chain = require_capability(self.chain, Capability.ACCOUNT_HISTORY)
            self._collected[key] = asyncio.create_task(chain.collect_accounts(span, accounts, datasets))
        return await asyncio.shield(self._collected[key])

    @contextmanager
    def reader(self) -> Iterator[None]:
        """Hold the place of one reader: after the context, the other readers no longer wait for it."""
        try:
            yield
        finally:
            self.readers -= 1
            self._send_if_all_ask()

    def _send_if_all_ask(self) -> None:
        """Start one joint request if every reader waits; callers that were cancelled are dropped first."""
        self._waiting = [each for each in self._waiting if not each[2].done()]
        if not self._waiting or len(self._waiting) < self.readers:
            return
        reads, self._waiting = self._waiting, []
        task = asyncio.create_task(self._exchange(reads))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _exchange(self, pending: list[PendingRead]) -> None:
        """Set the result of each pending read, or its error.

        Blocks that fail are read again as long as each round reads at least one block. If a round reads none, each
        pending read gets the first error. Only a cancellation is raised here.
        """
        try:
            while pending:
                responses = await self.chain.answer_each([(block, reads) for block, reads, _ in pending])
                retried = []
                for each, answers in zip(pending, responses, strict=True):
                    if isinstance(answers, SourceError):
                        retried.append(each)  # by another node, until none answers any block
                    elif not each[2].done():
                        each[2].set_result(answers)
                if len(retried) == len(pending):
                    raise next(answers for answers in responses if isinstance(answers, SourceError))
                pending = retried
        except BaseException as error:  # also a cancellation: readers must not wait for ever
            for block, _, result in pending:
                if not result.done():
                    result.set_exception(_error_at(block, error))
            if not isinstance(error, Exception):
                raise


def _error_at(block: Block, error: BaseException) -> BaseException:
    """Return the error of all blocks as the error of one of them."""
    if isinstance(error, HistoryUnavailable):
        return HistoryUnavailable(error.source, block.height, "no node has it any more")
    return error
