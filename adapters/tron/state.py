"""What accounts and contracts say at the newest block, all of one round at one block.

No node can be asked for an older state, and none says with an account at which block it is. So the newest block is
asked for behind everything else: where it is the one that was the newest before, all between was of that block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from adapters.tron.addresses import in_hex, raw
from adapters.tron.forms import HALF, Number, Wallet
from adapters.tron.node import HEADER, Node, TronNode, is_empty
from adapters.tron.reads import AbiRead, AssetRead, Call, Told, WalletRead
from adapters.tron.refusals import meaning
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer, NodeBehind, Unavailable
from chainfolio.plans import Reverted, Unknown
from transport.wire import Request, RpcError, decode, encode, typed

TRIES: Final = 6
AT_ONCE: Final = 100  # calls in one request, as nodes take them
TOGETHER: Final = 200  # calls in one of the contract that makes several
AGGREGATE: Final = bytes.fromhex("82ad56cb")  # aggregate3((address,bool,bytes)[])
NO_CONTRACT = Unknown("there is no such contract", "absent")
REFUSALS = ("revert", "REVERT", "OUT_OF_ENERGY", "Not enough energy", "ILLEGAL_OPERATION", "BAD_JUMP", "out of time")
ABSENT = ("not exist", "No contract", "not a valid smart contract")


Asked = Call | AbiRead


class Reward(msgspec.Struct):
    """What an account could withdraw now."""

    reward: Number = 0


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


class Asset(msgspec.Struct):
    """A token of the chain; texts are in hexadecimal."""

    id: str
    name: str = ""
    abbr: str = ""
    precision: Number = 0


async def answer(node: Node, reads: Sequence[Any], block: Block, multicall: str) -> list[Any]:
    """The results of some reads, no older than a block."""
    return await node.with_any(partial(_answer, reads, block, multicall), kind="state") if reads else []


async def _answer(reads: Sequence[Any], block: Block, multicall: str, endpoint: TronNode) -> list[Any]:
    wallets = [each for each in reads if isinstance(each, WalletRead)]
    calls = [each for each in reads if isinstance(each, Call | AbiRead)]
    assets = [each for each in reads if isinstance(each, AssetRead)]
    found: dict[Any, Any] = dict(
        zip(assets, await asyncio.gather(*(_asset(endpoint, each.number) for each in assets)), strict=True)
    )
    found |= await _at_one_block(endpoint, wallets, calls, block, multicall)
    endpoint.reads.update(each.function for each in calls)
    return [found[each] for each in reads]


async def _at_one_block(
    endpoint: TronNode, wallets: Sequence[WalletRead], calls: Sequence[Asked], block: Block, multicall: str
) -> dict[Any, Any]:
    """Accounts and calls, read again while the chain goes on in between."""
    for _ in range(TRIES if wallets else 1):
        told = await asyncio.gather(*(_wallet(endpoint, each.account) for each in wallets))
        results, newest = await _called(endpoint, calls, multicall)
        if not wallets:
            return dict(zip(calls, results, strict=True))
        if newest.height < block.height:
            raise NodeBehind(endpoint.name, f"is at block {newest.height}, and block {block.height} is not there yet")
        if newest == block:
            of = {each: Told(block, *one) for each, one in zip(wallets, told, strict=True)}
            return {**of, **dict(zip(calls, results, strict=True))}
        block = newest
    raise Unavailable(endpoint.name, "its chain goes on faster than it answers")


async def _wallet(endpoint: TronNode, account: str) -> tuple[Wallet, int]:
    """An account, and what it could withdraw: only who votes earns."""
    asked = {"address": in_hex(account)}
    wallet = await endpoint.told("/wallet/getaccount", asked, Wallet)
    wallet.check(endpoint.name, account)
    if not wallet.votes:
        return wallet, wallet.allowance
    reward = await endpoint.told("/wallet/getReward", asked, Reward)
    return wallet, reward.reward


async def _asset(endpoint: TronNode, number: str) -> Any:
    def read(source: str, content: bytes) -> Any:
        if is_empty(content):
            return Unknown("the chain has no token of this number", "absent")
        told = typed(source, content, Asset)
        if told.id != number:
            raise BadAnswer(source, f"gives token {told.id[:40]} for {number}")
        return _text(told.abbr), _text(told.name), told.precision

    return await endpoint.read("/wallet/getassetissuebyid", {"value": number}, read)


def _text(written: str) -> str:
    """A text in hexadecimal; as it is where it is none, for some nodes write it so."""
    try:
        return bytes.fromhex(written).decode()
    except ValueError:
        return written


async def _called(endpoint: TronNode, calls: Sequence[Asked], multicall: str) -> tuple[list[Any], Block]:
    """What contracts answer, in few requests, and the newest block behind that."""
    source = endpoint.name
    if not calls:
        return [], await endpoint.header(HEADER)
    several = [each for each in calls if not each.alone] if multicall and len(calls) > 1 else []
    single = [each for each in calls if not several or each.alone]
    pieces = [several[at : at + TOGETHER] for at in range(0, len(several), TOGETHER)]
    asked = [*((multicall, _aggregated(piece)) for piece in pieces), *((each.contract, each.data) for each in single)]
    answers, newest = await _posted(endpoint, asked)
    given: dict[Any, Any] = {}
    for piece, answer in zip(pieces, answers, strict=False):
        given |= zip(piece, _parts(source, answer, len(piece)), strict=True)
    given |= zip(single, (_result(source, each) for each in answers[len(pieces) :]), strict=True)
    return [each.value(given[each]) for each in calls], newest


async def _posted(endpoint: TronNode, asked: Sequence[tuple[str, bytes]]) -> tuple[list[bytes | RpcError], Block]:
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


async def newest(endpoint: TronNode) -> Block:
    """The newest block as contracts see it; whatever `/jsonrpc` raises where it is not served."""
    return (await _posted(endpoint, []))[1]


def _decoded(count: int, source: str, content: bytes) -> list[bytes | RpcError]:
    return decode(source, content, count)


def _result(source: str, given: bytes | RpcError) -> Any:
    """What an answer means: it may be the contract's own refusal."""
    if isinstance(given, RpcError):
        return _refusal(source, given)
    returned = _bytes(source, typed(source, given, str))
    return returned or NO_CONTRACT


def _refusal(source: str, said: RpcError) -> Any:
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


def _aggregated(calls: Sequence[Asked]) -> bytes:
    from eth_abi.abi import encode as abi_encode

    listed = [(f"0x{raw(each.contract).hex()}", True, each.data) for each in calls]
    return AGGREGATE + bytes(abi_encode(["(address,bool,bytes)[]"], [listed]))


def _parts(source: str, given: bytes | RpcError, count: int) -> list[Any]:
    """The answers in that of the contract that makes several calls."""
    from eth_abi.abi import decode as abi_decode
    from eth_abi.exceptions import DecodingError

    returned = _result(source, given)
    if not isinstance(returned, bytes):
        raise BadAnswer(source, "the contract that makes several calls at once does not answer")
    try:
        (parts,) = abi_decode(["(bool,bytes)[]"], returned)
    except (DecodingError, OverflowError) as error:
        raise BadAnswer(source, f"several calls at once returned what they cannot: {type(error).__name__}") from None
    if len(parts) != count:
        raise BadAnswer(source, f"{count} calls at once returned {len(parts)} answers")
    return [(data or NO_CONTRACT) if done else Reverted(data[:256]) for done, data in parts]
