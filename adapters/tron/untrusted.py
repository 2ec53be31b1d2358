"""Calls of contracts that nobody trusts: in requests of their own, and few that use up what a node lets a call use.

A node of Tron decides by itself how much energy and time a call may use, and a call of the contract that makes several
at once fails with the first of them that uses all. Such a call is split until the contract is alone that does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from adapters.tron.calls import Asked, aggregated, parts, posted, refusal, result
from adapters.tron.node import TronNode
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer, SourceError
from chainfolio.untrusted import BURNT, MAX_SECONDS, OVER, Skipped
from transport.wire import RpcError

MAX_FAILED: Final = 16  # calls of one round that may end without an answer, and one more for each MAX_TOGETHER reads
MAX_TOGETHER: Final = 200  # reads in one call of the contract that makes several
MIN_SENT: Final = 4  # calls of one request, if there are so many: fewer would take too many requests
SPLIT: Final = 15  # how many calls the reads of such a call go into
BURNT_BLOCKS: Final = 1_200  # an hour: for so long a contract is not read that used up what a call may use
OVER_BLOCKS: Final = 20  # a minute: and for so long one that was not read because of others
BURNING: Final = ("OUT_OF_ENERGY", "Not enough energy", "OUT_OF_TIME", "out of time", "timeout")


@dataclass(slots=True)
class UntrustedCalls:
    """The untrusted calls of one round. `results` has an answer of each once they were read; `blocks` are the newest
    ones behind the requests that this took."""

    calls: Sequence[Asked]
    height: int
    multicall: str
    skipped: Skipped
    results: dict[Asked, Any] = field(default_factory=dict)
    blocks: set[Block] = field(default_factory=set)
    _split: set[Asked] = field(default_factory=set)  # those of calls that used up what a call may use

    async def read(self, endpoint: TronNode) -> None:
        """Read all calls, or say of them why they are not read. Raises nothing."""
        self.blocks.clear()
        self.results = {
            call: reason
            for call in self.calls
            if (reason := self.skipped.answer(call.contract, self.height)) is not None
        }
        pending = [call for call in self.calls if call not in self.results]
        if not pending:
            return
        try:
            async with asyncio.timeout(MAX_SECONDS):
                await self._read(endpoint, pending)
        except SourceError as error:
            endpoint.errors.note(error)
        except TimeoutError:
            pass  # what was not answered by then is given up
        left = [call for call in pending if call not in self.results]
        self.results |= dict.fromkeys(left, OVER)
        self.skipped.skip({call.contract for call in left}, self.height, OVER_BLOCKS, OVER)

    def is_at(self, block: Block) -> bool:
        """Return True if everything was read at a block."""
        return self.blocks <= {block}

    async def _read(self, endpoint: TronNode, pending: Sequence[Asked]) -> None:
        together = [call for call in pending if self.multicall and not call.alone]
        groups: list[Sequence[Asked]] = [
            together[at : at + MAX_TOGETHER] for at in range(0, len(together), MAX_TOGETHER)
        ]
        groups += [[call] for call in pending if not self.multicall or call.alone]
        room = MAX_FAILED + -(-len(pending) // MAX_TOGETHER)
        while groups and room > 0:
            size = max(room, MIN_SENT)
            now, groups = groups[:size], groups[size:]
            answers, newest = await posted(endpoint, [self._sent(group) for group in now])
            self.blocks.add(newest)
            for group, answer in zip(now, answers, strict=True):
                if not self._settle(endpoint.name, group, answer):
                    room -= 1
                    groups += self._parted(group)

    def _parted(self, group: Sequence[Asked]) -> list[Sequence[Asked]]:
        if len(group) == 1:
            return []
        self._split.update(group)
        size = -(-len(group) // SPLIT)
        return [group[at : at + size] for at in range(0, len(group), size)]

    def _sent(self, group: Sequence[Asked]) -> tuple[str, bytes]:
        if len(group) > 1:
            return self.multicall, aggregated(group)
        return group[0].contract, group[0].data

    def _settle(self, source: str, group: Sequence[Asked], answer: bytes | RpcError) -> bool:
        """Keep what a call answered. False if it used up what a call may use: then only a lone one has its answer."""
        if len(group) > 1:
            try:
                self.results |= zip(group, parts(source, answer, len(group)), strict=True)
            except BadAnswer:
                return False
            return True
        [call] = group
        if isinstance(answer, RpcError) and (call in self._split or any(each in answer.message for each in BURNING)):
            self.results[call] = BURNT
            self.skipped.skip([call.contract], self.height, BURNT_BLOCKS, BURNT)
            return False
        self.results[call] = refusal(source, answer) if isinstance(answer, RpcError) else result(source, answer)
        return True
