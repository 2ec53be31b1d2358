"""Calls of contracts on the wire: `eth_call` in batches, several calls in one, and what the answers mean."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from adapters.tron.addresses import raw
from adapters.tron.forms import HALF
from adapters.tron.node import TronNode
from adapters.tron.reads import AbiRead, Call
from adapters.tron.refusals import meaning
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer
from chainfolio.plans import Reverted, Unknown
from transport.wire import Request, RpcError, decode, encode, typed

AT_ONCE: Final = 100  # calls in one request, as nodes take them
AGGREGATE: Final = bytes.fromhex("82ad56cb")  # aggregate3((address,bool,bytes)[])
NO_CONTRACT = Unknown("there is no such contract", "absent")
REFUSALS = ("revert", "REVERT", "OUT_OF_ENERGY", "Not enough energy", "ILLEGAL_OPERATION", "BAD_JUMP", "out of time")
ABSENT = ("not exist", "No contract", "not a valid smart contract")

Asked = Call | AbiRead


class Newest(msgspec.Struct):
    """The newest block as `/jsonrpc` has it."""

    number: Annotated[str, msgspec.Meta(pattern="^0x[0-9a-f]{1,15}$")]
    hash: Annotated[str, msgspec.Meta(pattern="^0x[0-9a-f]{64}$")]
    parentHash: Annotated[str, msgspec.Meta(pattern="^0x[0-9a-f]{64}$")]
    timestamp: Annotated[str, msgspec.Meta(pattern="^0x[0-9a-f]{1,9}$")]

    def block(self, source: str) -> Block:
        """As everything else knows a block; BadAnswer where its id does not begin with its height."""
        height = int(self.number, 16)
        if int(self.hash[: 2 + HALF], 16) != height:
            raise BadAnswer(source, f"gives block {height} the id {self.hash}")
        return Block(height, self.hash[2:], self.parentHash[2:], int(self.timestamp, 16) * 1_000_000)


async def posted(endpoint: TronNode, asked: Sequence[tuple[str, bytes]]) -> tuple[list[bytes | RpcError], Block]:
    """What `eth_call` answers, in as few batches as nodes take, and the newest block: the last question of all."""
    questions = [
        *(
            Request("eth_call", ({"to": f"0x{raw(to).hex()}", "data": f"0x{data.hex()}"}, "latest"))
            for to, data in asked
        ),
        Request("eth_getBlockByNumber", ("latest", False)),
    ]
    found: list[bytes | RpcError] = []
    for at in range(0, len(questions), AT_ONCE):
        part = questions[at : at + AT_ONCE]
        found += await endpoint.read("/jsonrpc", msgspec.Raw(encode(part)), partial(_decoded, len(part)))
    *answers, newest = found
    if isinstance(newest, RpcError):
        raise meaning(endpoint.name, newest.message)
    return answers, typed(endpoint.name, newest, Newest).block(endpoint.name)


def _decoded(count: int, source: str, content: bytes) -> list[bytes | RpcError]:
    return decode(source, content, count)


def result(source: str, given: bytes | RpcError) -> Any:
    """What an answer means: it may be the contract's own refusal."""
    if isinstance(given, RpcError):
        return refusal(source, given)
    returned = _bytes(source, typed(source, given, str))
    return returned or NO_CONTRACT


def refusal(source: str, said: RpcError) -> Any:
    if any(each in said.message for each in ABSENT):
        return NO_CONTRACT
    if said.code == 3 or any(each in said.message for each in REFUSALS):
        return Reverted()
    raise meaning(source, said.message)


def _bytes(source: str, written: str) -> bytes:
    try:
        return bytes.fromhex(written.removeprefix("0x"))
    except ValueError:
        raise BadAnswer(source, f"a call that returns {written[:60]!r}, which is no hexadecimal") from None


def aggregated(calls: Sequence[Asked]) -> bytes:
    from eth_abi.abi import encode as abi_encode

    listed = [(f"0x{raw(each.contract).hex()}", True, each.data) for each in calls]
    return AGGREGATE + bytes(abi_encode(["(address,bool,bytes)[]"], [listed]))


def parts(source: str, given: bytes | RpcError, count: int) -> list[Any]:
    """The answers in that of the contract that makes several calls."""
    from eth_abi.abi import decode as abi_decode
    from eth_abi.exceptions import DecodingError

    returned = result(source, given)
    if not isinstance(returned, bytes):
        raise BadAnswer(source, "the contract that makes several calls at once does not answer")
    try:
        (parts,) = abi_decode(["(bool,bytes)[]"], returned)
    except (DecodingError, OverflowError) as error:
        raise BadAnswer(source, f"several calls at once returned what they cannot: {type(error).__name__}") from None
    if len(parts) != count:
        raise BadAnswer(source, f"{count} calls at once returned {len(parts)} answers")
    return [(data or NO_CONTRACT) if done else Reverted(data[:256]) for done, data in parts]
