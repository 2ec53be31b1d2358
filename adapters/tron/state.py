"""What accounts and contracts say at the newest block, all of one round at one block.

No node can be asked for an older state, and none says with an account at which block it is. So the newest block is
asked for behind everything else: where it is the one that was the newest before, all between was of that block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec

from adapters.tron.addresses import in_hex
from adapters.tron.calls import Asked, aggregated, parts, posted, result
from adapters.tron.forms import Number, Wallet
from adapters.tron.node import HEADER, Node, TronNode, is_empty
from adapters.tron.reads import AbiRead, AssetRead, Call, Told, WalletRead
from adapters.tron.untrusted import UntrustedCalls
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer, NodeBehind, Unavailable
from chainfolio.plans import Unknown
from chainfolio.untrusted import OVER
from transport.wire import typed

TRIES: Final = 6
TOGETHER: Final = 200  # calls in one of the contract that makes several


class Reward(msgspec.Struct):
    """What an account could withdraw now."""

    reward: Number = 0


class Asset(msgspec.Struct):
    """A token of the chain; texts are in hexadecimal."""

    id: str
    name: str = ""
    abbr: str = ""
    precision: Number = 0


async def answer(node: Node, reads: Sequence[Any], block: Block, multicall: str) -> list[Any]:
    """The results of some reads, no older than a block."""
    return await node.with_any(partial(_answer, node, reads, block, multicall), kind="state") if reads else []


async def _answer(node: Node, reads: Sequence[Any], block: Block, multicall: str, endpoint: TronNode) -> list[Any]:
    wallets = [each for each in reads if isinstance(each, WalletRead)]
    calls = [each for each in reads if isinstance(each, Call | AbiRead)]
    trusted = [each for each in calls if not each.untrusted]
    untrusted = UntrustedCalls([each for each in calls if each.untrusted], block.height, multicall, node.skipped)
    assets = [each for each in reads if isinstance(each, AssetRead)]
    found: dict[Any, Any] = dict(
        zip(assets, await asyncio.gather(*(_asset(endpoint, each.number) for each in assets)), strict=True)
    )
    found |= await _at_one_block(endpoint, wallets, trusted, untrusted, block, multicall)
    endpoint.reads.update(each.function for each in calls)
    return [found[each] for each in reads]


async def _at_one_block(
    endpoint: TronNode, wallets: Sequence[WalletRead], calls: Sequence[Asked], untrusted: UntrustedCalls,
    block: Block, multicall: str,
) -> dict[Any, Any]:  # fmt: skip
    """Accounts and calls, read again while the chain goes on in between. It is waited once for untrusted ones."""
    for attempt in range(TRIES if wallets else 1):
        told = await asyncio.gather(*(_wallet(endpoint, each.account) for each in wallets))
        (results, newest), _ = await asyncio.gather(_called(endpoint, calls, multicall), untrusted.read(endpoint))
        if not wallets:
            return {**untrusted.results, **dict(zip(calls, results, strict=True))}
        if newest.height < block.height:
            raise NodeBehind(endpoint.name, f"is at block {newest.height}, and block {block.height} is not there yet")
        if newest == block and (attempt or untrusted.is_at(block)):
            of = {each: Told(block, *one) for each, one in zip(wallets, told, strict=True)}
            theirs = untrusted.results if untrusted.is_at(block) else dict.fromkeys(untrusted.calls, OVER)
            return {**of, **theirs, **dict(zip(calls, results, strict=True))}
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
    asked = [*((multicall, aggregated(piece)) for piece in pieces), *((each.contract, each.data) for each in single)]
    answers, newest = await posted(endpoint, asked)
    given: dict[Any, Any] = {}
    for piece, answer in zip(pieces, answers, strict=False):
        given |= zip(piece, parts(source, answer, len(piece)), strict=True)
    given |= zip(single, (result(source, each) for each in answers[len(pieces) :]), strict=True)
    return [each.value(given[each]) for each in calls], newest


async def newest(endpoint: TronNode) -> Block:
    """The newest block as contracts see it; whatever `/jsonrpc` raises where it is not served."""
    return (await posted(endpoint, []))[1]
