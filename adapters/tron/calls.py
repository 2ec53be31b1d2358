"""Send contract calls in batches, several of them combined in a multicall, and decode the results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final

import msgspec

from chainfolio.adapters.tron.addresses import decode_address
from chainfolio.adapters.tron.forms import HEIGHT_DIGITS
from chainfolio.adapters.tron.node import TronNode
from chainfolio.adapters.tron.reads import ContractRead
from chainfolio.adapters.tron.refusals import error_from
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer
from chainfolio.plans import Reverted, Unknown
from chainfolio.transport.wire import Request, RpcError, decode, encode, typed

MAX_BATCH: Final = 100  # calls in one HTTP request that nodes accept
AGGREGATE: Final = bytes.fromhex("82ad56cb")  # aggregate3((address,bool,bytes)[])
NO_CONTRACT = Unknown("there is no such contract", "absent")
REVERT_MESSAGES = (
    "revert",
    "REVERT",
    "OUT_OF_ENERGY",
    "Not enough energy",
    "ILLEGAL_OPERATION",
    "BAD_JUMP",
    "out of time",
)
NO_CONTRACT_MESSAGES = ("not exist", "No contract", "not a valid smart contract")

CallResult = bytes | Reverted | Unknown


class NewestBlock(msgspec.Struct):
    """The newest block as `/jsonrpc` shows it."""

    number: Annotated[str, msgspec.Meta(pattern="^0x[0-9a-f]{1,15}$")]
    hash: Annotated[str, msgspec.Meta(pattern="^0x[0-9a-f]{64}$")]
    parentHash: Annotated[str, msgspec.Meta(pattern="^0x[0-9a-f]{64}$")]
    timestamp: Annotated[str, msgspec.Meta(pattern="^0x[0-9a-f]{1,9}$")]

    def block(self, source: str) -> Block:
        """Return the block.

        Raises:
            BadAnswer: Its id does not begin with its height.
        """
        height = int(self.number, 16)
        if int(self.hash[: 2 + HEIGHT_DIGITS], 16) != height:
            raise BadAnswer(source, f"gives block {height} the id {self.hash}")
        return Block(height, self.hash[2:], self.parentHash[2:], int(self.timestamp, 16) * 1_000_000)


async def send_calls(endpoint: TronNode, calls: Sequence[tuple[str, bytes]]) -> tuple[list[bytes | RpcError], Block]:
    """Send calls in batches of MAX_BATCH, then the request of the newest block; return all results.

    The batches are sent one after the other, and may be answered at different blocks.

    Args:
        endpoint: The node.
        calls: Contract and call data of each.

    Returns:
        One JSON value or error per call, and the newest block.

    Raises:
        SourceError: A batch failed, or the newest block was not given.
    """
    requests = [
        *(
            Request("eth_call", ({"to": f"0x{decode_address(to).hex()}", "data": f"0x{data.hex()}"}, "latest"))
            for to, data in calls
        ),
        Request("eth_getBlockByNumber", ("latest", False)),
    ]
    responses: list[bytes | RpcError] = []
    for at in range(0, len(requests), MAX_BATCH):
        batch = requests[at : at + MAX_BATCH]
        responses += await endpoint.read("/jsonrpc", msgspec.Raw(encode(batch)), partial(_decode_batch, len(batch)))
    *results, newest = responses
    if isinstance(newest, RpcError):
        raise error_from(endpoint.name, newest.message)
    return results, typed(endpoint.name, newest, NewestBlock).block(endpoint.name)


def _decode_batch(count: int, source: str, content: bytes) -> list[bytes | RpcError]:
    return decode(source, content, count)


def decode_result(source: str, response: bytes | RpcError) -> CallResult:
    """Return the result of a call from its JSON value or error.

    A call that returns no bytes counts as one without a contract.

    Raises:
        BadAnswer: The result is no hexadecimal.
        SourceError: The node failed, not the call.
    """
    if isinstance(response, RpcError):
        return _decode_error(source, response)
    text = typed(source, response, str)
    try:
        return bytes.fromhex(text.removeprefix("0x")) or NO_CONTRACT
    except ValueError:
        raise BadAnswer(source, f"a call that returns {text[:60]!r}, which is no hexadecimal") from None


def _decode_error(source: str, error: RpcError) -> Reverted | Unknown:
    """Return Reverted, or Unknown without a contract, for a call that failed.

    Raises:
        SourceError: The error has another cause.
    """
    if any(each in error.message for each in NO_CONTRACT_MESSAGES):
        return NO_CONTRACT
    if error.code == 3 or any(each in error.message for each in REVERT_MESSAGES):
        return Reverted()
    raise error_from(source, error.message)


def encode_multicall(calls: Sequence[ContractRead]) -> bytes:
    """Return call data for a multicall, in which a call may fail without the others."""
    from eth_abi.abi import encode as abi_encode  # 470 ms

    arguments = [(f"0x{decode_address(call.contract).hex()}", True, call.data) for call in calls]
    return AGGREGATE + bytes(abi_encode(["(address,bool,bytes)[]"], [arguments]))


def decode_multicall(source: str, response: bytes | RpcError, count: int) -> list[CallResult]:
    """Return the results of the calls of a multicall. No bytes count as a result without a contract.

    Raises:
        BadAnswer: The multicall failed, or returned another count of results.
        SourceError: The node failed.
    """
    from eth_abi.abi import decode as abi_decode
    from eth_abi.exceptions import DecodingError

    returned = decode_result(source, response)
    if not isinstance(returned, bytes):
        raise BadAnswer(source, "the contract that makes several calls at once does not answer")
    try:
        (results,) = abi_decode(["(bool,bytes)[]"], returned)
    except (DecodingError, OverflowError) as error:
        raise BadAnswer(source, f"several calls at once returned what they cannot: {type(error).__name__}") from None
    if len(results) != count:
        raise BadAnswer(source, f"{count} calls at once returned {len(results)} answers")
    return [(data or NO_CONTRACT) if success else Reverted(data[:256]) for success, data in results]
