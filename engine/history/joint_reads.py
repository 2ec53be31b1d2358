"""A chain that is read at several blocks at once: what all readers ask in one round goes out as one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chainfolio.chains import Capability, require_capability
from chainfolio.errors import HistoryUnavailable, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chainfolio.blocks import Block, Span
    from chainfolio.chains import Chain

Asked = tuple["Block", Sequence[Any], "asyncio.Future[list[Any]]"]


@dataclass(slots=True)
class Together:
    """The chain, in all but when it answers reads: when every one of its `readers` that has not ended has asked."""

    chain: Chain
    readers: int
    _waiting: list[Asked] = field(default_factory=list)
    _collected: dict[Any, asyncio.Task[Any]] = field(default_factory=dict)
    _sending: set[asyncio.Task[None]] = field(default_factory=set)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.chain, name)

    async def answer(self, reads: Sequence[Any], block: Block) -> list[Any]:
        """The results of some reads, at the block."""
        mine: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((block, reads, mine))
        self._send_if_all_ask()
        return await mine

    async def collect_accounts(self, span: Span, accounts: Sequence[str], datasets: Sequence[str]) -> Any:
        """What concerns accounts in a span, where the chain tells that: asked once, whoever wants it."""
        wanted = span, tuple(accounts), tuple(datasets)
        if wanted not in self._collected:
            chain = require_capability(self.chain, Capability.ACCOUNT_HISTORY)
            self._collected[wanted] = asyncio.create_task(chain.collect_accounts(span, accounts, datasets))
        return await asyncio.shield(self._collected[wanted])

    @contextmanager
    def reader(self) -> Iterator[None]:
        """One of the readers, for as long as it reads."""
        try:
            yield
        finally:
            self.readers -= 1
            self._send_if_all_ask()

    def _send_if_all_ask(self) -> None:
        self._waiting = [each for each in self._waiting if not each[2].done()]
        if not self._waiting or len(self._waiting) < self.readers:
            return
        asked, self._waiting = self._waiting, []
        task = asyncio.create_task(self._exchange(asked))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _exchange(self, left: list[Asked]) -> None:
        try:
            while left:
                given = await self.chain.answer_each([(block, reads) for block, reads, _ in left])
                again = []
                for each, answers in zip(left, given, strict=True):
                    if isinstance(answers, SourceError):
                        again.append(each)  # another node is asked, until none answers any block
                    elif not each[2].done():
                        each[2].set_result(answers)
                if len(again) == len(left):
                    raise next(answers for answers in given if isinstance(answers, SourceError))
                left = again
        except BaseException as error:  # whatever it is, those who wait must not wait for ever
            for block, _, mine in left:
                if not mine.done():
                    mine.set_exception(_of(block, error))
            if not isinstance(error, Exception):
                raise


def _of(block: Block, error: BaseException) -> BaseException:
    """What befell all of some blocks, as an error of one of them."""
    if isinstance(error, HistoryUnavailable):
        return HistoryUnavailable(error.source, block.height, "no node has it any more")
    return error
