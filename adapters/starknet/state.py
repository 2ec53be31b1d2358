"""Call contracts at the hash of a block, in as few requests as an endpoint accepts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias, cast

from chainfolio.adapters.starknet.felts import parse_felt, selector
from chainfolio.adapters.starknet.node import Node
from chainfolio.adapters.starknet.refusals import ContractError, NoContract, NoFunction
from chainfolio.blocks import Block
from chainfolio.errors import HistoryUnavailable, NodeBehind, Reorged, SourceError
from chainfolio.plans import Reverted, Unknown
from chainfolio.reads import Read, ReadLabel, Value
from chainfolio.transport.endpoint import Answer, Endpoint
from chainfolio.transport.wire import Request, typed
from chainfolio.untrusted import MAX_SECONDS, OVER

MAX_UNTRUSTED_CALLS: Final = 50  # per request, so that a call which never ends delays few others
SKIPPED_BLOCKS: Final = 20  # in which an untrusted contract is not called again after it gave no result in time
NO_FUNCTION_DATA: Final = b"no such function"
BlockHashes: TypeAlias = Mapping[int, str]  # expected hashes of blocks that are not final, by height
BlockId: TypeAlias = Mapping[str, str | int]  # how nodes name a block: `block_hash` or `block_number`
Result: TypeAlias = tuple[int, ...] | Reverted | Unknown


@dataclass(frozen=True, slots=True)
class Call(Read[Result]):
    """A call of a function of a contract.

    Its result is a tuple of felts, Reverted if the contract refuses or lacks the function, and Unknown if there is no
    contract. Calls of `untrusted` contracts have requests of their own and a time limit.
    """

    contract: str
    function: str
    args: tuple[int, ...] = ()
    untrusted: bool = field(default=False, compare=False)

    def untrusted_if(self, strangers: Set[str]) -> Call:
        """Return this read marked as untrusted if it calls one of these contracts."""
        return replace(self, untrusted=True) if self.contract in strangers else self

    @property
    def label(self) -> ReadLabel:
        """The name of the call in answers: method, contract, function, arguments."""
        return "starknet_call", self.contract, self.function, tuple(map(hex, self.args))

    def request(self, block: Block) -> Request:
        """Return the request at a block's hash."""
        return self.request_at({"block_hash": hex(int(block.hash, 16))})

    def request_at(self, block_id: BlockId) -> Request:
        """Return the request at a block."""
        parameters = {
            "contract_address": hex(int(self.contract, 16)),
            "entry_point_selector": hex(selector(self.function)),
            "calldata": [hex(each) for each in self.args],
        }
        return Request("starknet_call", (parameters, block_id))


def is_missing_function(result: Result) -> bool:
    """Return True if the contract has no such function."""
    return isinstance(result, Reverted) and result.data == NO_FUNCTION_DATA


async def answer(node: Node, reads: Sequence[Read[Value]], block: Block) -> list[Value]:
    """Return the results of calls at a block, in order. Reads of this chain are calls.

    Raises:
        Reorged: The block left the chain.
        SourceError: The trusted calls could not be sent, or one has no valid result.
    """
    calls = cast(Sequence[Call], reads)
    trusted = [each for each in calls if not each.untrusted]
    untrusted = [each for each in calls if each.untrusted]
    if not untrusted:
        return cast(list[Value], await _answer_trusted(node, trusted, block))
    trusted_results, results = await asyncio.gather(
        _answer_trusted(node, trusted, block), _answer_untrusted(node, untrusted, block)
    )
    results |= zip(trusted, trusted_results, strict=True)
    return cast(list[Value], [results[each] for each in calls])


async def _answer_trusted(node: Node, reads: Sequence[Call], block: Block) -> list[Result]:
    """Return the results of trusted calls, in order; no request is sent for none.

    Raises:
        Reorged: The block left the chain.
        SourceError: As `answer` says.
    """
    try:
        return await node.with_any(partial(_send, reads, block), kind="state") if reads else []
    except NodeBehind:
        if block.height > node.finalized and (await node.block(block.height)).hash != block.hash:
            raise Reorged(node.key, block.height, block.hash) from None
        raise


async def _answer_untrusted(node: Node, reads: Sequence[Call], block: Block) -> dict[Call, Result]:
    """Return results; Unknown for skipped contracts and failed reads. Raises no SourceError.

    Contracts without an answer after MAX_SECONDS are skipped for SKIPPED_BLOCKS from then on, but not if no node has
    the block or its state: that says nothing about them.
    """
    skipped = {each: node.skipped.answer(each.contract, block.height) for each in reads}
    pending = [each for each, reason in skipped.items() if reason is None]
    results: dict[Call, Result] = {each: reason for each, reason in skipped.items() if reason is not None}

    async def read(part: Sequence[Call]) -> None:
        with suppress(SourceError):
            try:
                part_results = await node.with_any(partial(_send, part, block), kind="untrusted")
                results.update(zip(part, part_results, strict=True))
            except (HistoryUnavailable, NodeBehind) as error:
                results.update(dict.fromkeys(part, Unknown(error.reason)))

    with suppress(TimeoutError):
        async with asyncio.timeout(MAX_SECONDS):
            starts = range(0, len(pending), MAX_UNTRUSTED_CALLS)
            await asyncio.gather(*(read(pending[start : start + MAX_UNTRUSTED_CALLS]) for start in starts))
    unanswered = [each for each in pending if each not in results]
    node.skipped.skip({each.contract for each in unanswered}, block.height, SKIPPED_BLOCKS, OVER)
    return results | dict.fromkeys(unanswered, OVER)


async def _send(reads: Sequence[Call], block: Block, endpoint: Endpoint) -> list[Result]:
    answers = await endpoint.ask([each.request(block) for each in reads], height=block.height)
    endpoint.reads.update(each.function for each in reads)
    pairs = zip(reads, answers, strict=True)
    return [_result(endpoint.name, answer, is_untrusted=each.untrusted) for each, answer in pairs]


def _result(source: str, answer: Answer, *, is_untrusted: bool) -> Result:
    """Return the result of a call; the error of an untrusted contract is Unknown.

    NodeBehind and HistoryUnavailable are errors of the node, and raised.
    """
    try:
        return _decode(source, answer)
    except (NodeBehind, HistoryUnavailable):
        raise
    except SourceError as error:
        if not is_untrusted:
            raise
        return Unknown(error.reason, "contract")


def _decode(source: str, answer: Answer) -> Result:
    """Return the felts of a call; Unknown without a contract, Reverted if it fails; raise other errors."""
    match answer:
        case NoContract():
            return Unknown("there is no such contract at this block", "absent")
        case NoFunction():
            return Reverted(NO_FUNCTION_DATA)
        case ContractError():
            return Reverted()
        case SourceError():
            raise answer
    return tuple(parse_felt(source, each) for each in typed(source, answer, list[str]))
