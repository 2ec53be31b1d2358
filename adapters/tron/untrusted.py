"""Calls of untrusted contracts: sent in separate requests, with a limit on failures.

A Tron node decides how much energy and time a call may use, and a multicall fails if one of its calls exhausts them.
Such a multicall is split until the exhausting contract is alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from chainfolio.adapters.tron.calls import decode_multicall, decode_result, encode_multicall, send_calls
from chainfolio.adapters.tron.node import TronNode
from chainfolio.adapters.tron.reads import ContractRead
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer, SourceError
from chainfolio.transport.wire import RpcError
from chainfolio.untrusted import BURNT, MAX_SECONDS, OVER, SkippedContracts

MAX_FAILED: Final = 16  # calls of one round that may fail, and one more for each MULTICALL_SIZE reads
MAX_REQUESTS: Final = 3  # that follow one another in one round: multicalls, their parts, single calls
MULTICALL_SIZE: Final = 200  # reads in one multicall
MIN_SENT: Final = 4  # calls in one request, if there are as many: fewer would take too many requests
SPLIT: Final = 15  # number of calls that a failed multicall is split into
BURNT_BLOCKS: Final = 1_200  # an hour: a contract that exhausted the node's limits is skipped for so long
OVER_BLOCKS: Final = 20  # a minute: a contract that was not read because of others is skipped for so long
EXHAUSTED_MESSAGES: Final = ("OUT_OF_ENERGY", "Not enough energy", "OUT_OF_TIME", "out of time", "timeout")


@dataclass(slots=True)
class UntrustedCalls:
    """The untrusted calls of one round.

    Attributes:
        calls: The calls.
        height: The block at which `skipped` is consulted.
        multicall: Contract that makes several calls at once; empty if there is none.
        skipped: The untrusted contracts of the chain that are not read for a number of blocks.
        results: One per call after `read`.
        blocks: The newest blocks after each request of the last `read`.
    """

    calls: Sequence[ContractRead]
    height: int
    multicall: str
    skipped: SkippedContracts
    results: dict[ContractRead, object] = field(default_factory=dict)
    blocks: set[Block] = field(default_factory=set)
    _split: set[ContractRead] = field(default_factory=set)  # calls of failed multicalls

    async def read(self, endpoint: TronNode) -> None:
        """Read all calls into `results`, with the reason for those that are not read.

        Contracts without an answer within MAX_SECONDS are skipped for the next blocks. No error of the node is raised;
        it is noted at the endpoint.
        """
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
            pass  # the calls without a result are given up
        unread = [call for call in pending if call not in self.results]
        self.results |= dict.fromkeys(unread, OVER)
        self.skipped.skip({call.contract for call in unread}, self.height, OVER_BLOCKS, OVER)

    def is_at(self, block: Block) -> bool:
        """Return True if everything was read at a block."""
        return self.blocks <= {block}

    async def _read(self, endpoint: TronNode, pending: Sequence[ContractRead]) -> None:
        """Read calls in multicalls and store their results; split multicalls that fail.

        The parts of a failed multicall are sent first, so that each reading isolates some exhausting contracts, which
        are then skipped. The first group depends on the height: over several readings, each group is sent.
        The blocks of the batches are added to `blocks`. After too many failures, the remaining calls have no result.
        """
        combined = [call for call in pending if self.multicall and not call.alone]
        groups: list[Sequence[ContractRead]] = [
            combined[at : at + MULTICALL_SIZE] for at in range(0, len(combined), MULTICALL_SIZE)
        ]
        groups += [[call] for call in pending if not self.multicall or call.alone]
        start = crc32(b"%d" % self.height) % max(len(groups), 1)
        groups = groups[start:] + groups[:start]
        max_failures = MAX_FAILED + -(-len(pending) // MULTICALL_SIZE)
        for _ in range(MAX_REQUESTS):
            if not groups or max_failures <= 0:
                break
            size = max(max_failures, MIN_SENT)
            batch, groups = groups[:size], groups[size:]
            responses, newest = await send_calls(endpoint, [self._encode(group) for group in batch])
            self.blocks.add(newest)
            parts: list[Sequence[ContractRead]] = []
            for group, response in zip(batch, responses, strict=True):
                if not self._store(endpoint.name, group, response):
                    max_failures -= 1
                    parts += self._split_group(group)
            groups = parts + groups

    def _split_group(self, group: Sequence[ContractRead]) -> list[Sequence[ContractRead]]:
        """Return the parts of a failed multicall; none for a single call."""
        if len(group) == 1:
            return []
        self._split.update(group)
        size = -(-len(group) // SPLIT)
        return [group[at : at + size] for at in range(0, len(group), size)]

    def _encode(self, group: Sequence[ContractRead]) -> tuple[str, bytes]:
        """Return the contract and the call data for a group."""
        if len(group) > 1:
            return self.multicall, encode_multicall(group)
        return group[0].contract, group[0].data

    def _store(self, source: str, group: Sequence[ContractRead], response: bytes | RpcError) -> bool:
        """Store the results of a group. Return False if it exhausted the node's limits.

        A single call that did so has a result, the reason, and its contract is skipped for the next blocks; the calls
        of a multicall have none.
        """
        if len(group) > 1:
            try:
                self.results |= zip(group, decode_multicall(source, response, len(group)), strict=True)
            except BadAnswer:
                return False
            return True
        [call] = group
        if isinstance(response, RpcError) and (
            call in self._split or any(each in response.message for each in EXHAUSTED_MESSAGES)
        ):
            self.results[call] = BURNT
            self.skipped.skip([call.contract], self.height, BURNT_BLOCKS, BURNT)
            return False
        self.results[call] = decode_result(source, response)
        return True
