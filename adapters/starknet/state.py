"""Reads of contracts at the hash of a block, in as few requests as an endpoint takes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from chainfolio.adapters.starknet.felts import felt, selector
from chainfolio.adapters.starknet.node import Node
from chainfolio.adapters.starknet.refusals import NoContract, NoFunction, Refused
from chainfolio.blocks import Block
from chainfolio.errors import NodeBehind, Reorged, SourceError
from chainfolio.plans import Reverted, Unknown
from chainfolio.transport.endpoint import Answer, Endpoint
from chainfolio.transport.wire import Request, typed
from chainfolio.untrusted import MAX_SECONDS, OVER

TOGETHER: Final = 50  # untrusted calls of one request, so that those of one that never ends cost few others
SKIPPED_BLOCKS: Final = 20  # in which untrusted contracts are not asked again that gave no answer in time
NO_FUNCTION = b"no such function"
Pins = Mapping[int, str]  # the hashes of blocks that may still go, by height


@dataclass(frozen=True, slots=True)
class Call:
    """A function of a contract. Answered with felts; `Reverted` where the contract refuses or has no such function,
    `Unknown` where there is no contract. `untrusted`: nobody trusts the contract, so it is asked apart from others, and
    for a bounded time."""

    contract: str
    function: str
    args: tuple[int, ...] = ()
    untrusted: bool = field(default=False, compare=False)

    def untrusted_if(self, strangers: Set[str]) -> Call:
        """Return this read marked as untrusted if it calls one of these contracts."""
        return replace(self, untrusted=True) if self.contract in strangers else self

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """How answers name it."""
        return "starknet_call", self.contract, self.function, tuple(map(hex, self.args))

    def request(self, block: Block) -> Request:
        """The same on the wire, at a block's hash."""
        return self.at({"block_hash": hex(int(block.hash, 16))})

    def at(self, block: Mapping[str, Any]) -> Request:
        """The same on the wire, at a block as nodes name it."""
        asked = {
            "contract_address": hex(int(self.contract, 16)),
            "entry_point_selector": hex(selector(self.function)),
            "calldata": [hex(each) for each in self.args],
        }
        return Request("starknet_call", (asked, block))


def lacks(answer: Any) -> bool:
    """Whether a contract has no such function."""
    return isinstance(answer, Reverted) and answer.data == NO_FUNCTION


async def answer(node: Node, reads: Sequence[Call], block: Block) -> list[Any]:
    """What contracts answer at a block. Reorged where the block is gone."""
    trusted = [each for each in reads if not each.untrusted]
    untrusted = [each for each in reads if each.untrusted]
    if not untrusted:
        return await _trusted(node, trusted, block)
    results, found = await asyncio.gather(_trusted(node, trusted, block), _untrusted(node, untrusted, block))
    found |= zip(trusted, results, strict=True)
    return [found[each] for each in reads]


async def _trusted(node: Node, reads: Sequence[Call], block: Block) -> list[Any]:
    try:
        return await node.with_any(partial(_answer, reads, block), kind="state") if reads else []
    except NodeBehind:
        if block.height > node.finalized and (await node.block(block.height)).hash != block.hash:
            raise Reorged(node.key, block.height, block.hash) from None
        raise


async def _untrusted(node: Node, reads: Sequence[Call], block: Block) -> dict[Call, Any]:
    """Return what untrusted contracts answer, or why they are not read. Raises nothing."""
    found = {each: node.skipped.answer(each.contract, block.height) for each in reads}
    pending = [each for each, reason in found.items() if reason is None]

    async def read(part: Sequence[Call]) -> None:
        with suppress(SourceError):
            answers = await node.with_any(partial(_answer, part, block), kind="untrusted")
            found.update(zip(part, answers, strict=True))

    with suppress(TimeoutError):
        async with asyncio.timeout(MAX_SECONDS):
            parts = [pending[start : start + TOGETHER] for start in range(0, len(pending), TOGETHER)]
            await asyncio.gather(*map(read, parts))
    left = [each for each in pending if found[each] is None]
    node.skipped.skip({each.contract for each in left}, block.height, SKIPPED_BLOCKS, OVER)
    return found | dict.fromkeys(left, OVER)


async def _answer(reads: Sequence[Call], block: Block, endpoint: Endpoint) -> list[Any]:
    answers = await endpoint.ask([each.request(block) for each in reads], height=block.height)
    endpoint.reads.update(each.function for each in reads)
    pairs = zip(reads, answers, strict=True)
    return [_result(endpoint.name, answer, is_untrusted=each.untrusted) for each, answer in pairs]


def _result(source: str, given: Answer, *, is_untrusted: bool) -> Any:
    """What an answer means: it may be the contract's own refusal. Whatever else an untrusted one causes is its own."""
    try:
        return _meant(source, given)
    except NodeBehind:
        raise
    except SourceError as error:
        if not is_untrusted:
            raise
        return Unknown(error.reason, "contract")


def _meant(source: str, given: Answer) -> Any:
    match given:
        case NoContract():
            return Unknown("there is no such contract at this block", "absent")
        case NoFunction():
            return Reverted(NO_FUNCTION)
        case Refused():
            return Reverted()
        case SourceError():
            raise given
    return tuple(felt(source, each) for each in typed(source, given, list[str]))
