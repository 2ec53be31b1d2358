"""Reads of contracts at the hash of a block, in as few requests as an endpoint takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from adapters.starknet.felts import felt, selector
from adapters.starknet.node import Node
from adapters.starknet.refusals import NoContract, NoFunction, Refused
from chainfolio.blocks import Block
from chainfolio.errors import NodeBehind, Reorged, SourceError
from chainfolio.plans import Reverted, Unknown
from transport.endpoint import Answer, Endpoint
from transport.wire import Request, typed

NO_FUNCTION = b"no such function"
Pins = Mapping[int, str]  # the hashes of blocks that may still go, by height


@dataclass(frozen=True, slots=True)
class Call:
    """A function of a contract. Answered with felts; `Reverted` where the contract refuses or has no such function,
    `Unknown` where there is no contract."""

    contract: str
    function: str
    args: tuple[int, ...] = ()

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
    try:
        return await node.with_any(partial(_answer, reads, block), kind="state") if reads else []
    except NodeBehind:
        if block.height > node.finalized and (await node.block(block.height)).hash != block.hash:
            raise Reorged(node.key, block.height, block.hash) from None
        raise


async def _answer(reads: Sequence[Call], block: Block, endpoint: Endpoint) -> list[Any]:
    answers = await endpoint.ask([each.request(block) for each in reads], height=block.height)
    endpoint.reads.update(each.function for each in reads)
    return [_result(endpoint.name, each) for each in answers]


def _result(source: str, given: Answer) -> Any:
    """What an answer means: it may be the contract's own refusal."""
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
