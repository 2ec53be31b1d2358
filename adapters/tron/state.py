"""Read accounts and contracts at the newest block, with all results of one round at one block.

Nodes neither serve older states nor tell at which block an account was read. So the newest block is requested last: if
it is the one that was the newest before the round, everything in between was read at that block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

import msgspec

from chainfolio.adapters.tron.addresses import hex_address
from chainfolio.adapters.tron.calls import CallResult, decode_multicall, decode_result, encode_multicall, send_calls
from chainfolio.adapters.tron.forms import Uint63, Wallet
from chainfolio.adapters.tron.node import HEADER, Node, TronNode, is_empty
from chainfolio.adapters.tron.reads import AbiRead, AssetRead, Call, ContractRead, WalletRead, WalletState
from chainfolio.adapters.tron.untrusted import UntrustedCalls
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer, NodeBehind, Unavailable
from chainfolio.plans import Unknown
from chainfolio.reads import Read, Value
from chainfolio.transport.wire import typed
from chainfolio.untrusted import OVER

MAX_ATTEMPTS: Final = 6
MULTICALL_SIZE: Final = 200  # calls in one multicall
Results = dict[Any, object]  # by read


class Reward(msgspec.Struct):
    """The voting reward that an account can withdraw, in sun."""

    reward: Uint63 = 0


class TokenInfo(msgspec.Struct):
    """A TRC-10 token. Texts are in hexadecimal."""

    id: str
    name: str = ""
    abbr: str = ""
    precision: Uint63 = 0


async def answer(node: Node, reads: Sequence[Read[Value]], block: Block, multicall: str) -> list[Value]:
    """Return the results of reads, in order, at `block` or a newer block.

    Args:
        node: The chain's nodes.
        reads: `WalletRead`, `Call`, `AbiRead`, `AssetRead`.
        block: The oldest block that is acceptable.
        multicall: Contract that makes several calls at once; empty if there is none.

    Raises:
        NodeBehind: No endpoint has the block.
        Unavailable: Blocks follow too fast to read all accounts at one.
        SourceError: No endpoint gave the results.
    """
    return await node.with_any(partial(_answer, node, reads, block, multicall), kind="state") if reads else []


async def _answer(
    node: Node, reads: Sequence[Read[Value]], block: Block, multicall: str, endpoint: TronNode
) -> list[Value]:
    """Return the results of reads, in order; results of untrusted calls may be Unknown.

    With wallets, state is read at one block, `block` or a newer one. Without them, each call is at any such block.
    """
    await endpoint.ensure_height(block.height)
    wallets = [each for each in reads if isinstance(each, WalletRead)]
    calls = [each for each in reads if isinstance(each, Call | AbiRead)]
    trusted = [each for each in calls if not each.untrusted]
    untrusted = UntrustedCalls([each for each in calls if each.untrusted], block.height, multicall, node.skipped)
    assets = [each for each in reads if isinstance(each, AssetRead)]
    metadata = await asyncio.gather(*(_read_asset(endpoint, each.number) for each in assets))
    results: Results = dict(zip(assets, metadata, strict=True))
    results |= await _read_at_one_block(endpoint, wallets, trusted, untrusted, block, multicall)
    endpoint.reads.update(each.function for each in calls)
    return cast(list[Value], [results[each] for each in reads])


async def _read_at_one_block(
    endpoint: TronNode,
    wallets: Sequence[WalletRead],
    calls: Sequence[ContractRead],
    untrusted: UntrustedCalls,
    block: Block,
    multicall: str,
) -> Results:
    """Read accounts and calls, again if a new block came in between, at most MAX_ATTEMPTS times.

    The node must have had `block` before. Without accounts, calls are read once, and may be at several newer blocks.
    Untrusted calls that are at another block are repeated once, and then given up. Raises Unavailable after the last
    attempt, NodeBehind if the node is at an older block.
    """
    for attempt in range(MAX_ATTEMPTS if wallets else 1):
        states = await asyncio.gather(*(_read_wallet(endpoint, each.account) for each in wallets))
        (results, newest), _ = await asyncio.gather(_read_calls(endpoint, calls, multicall), untrusted.read(endpoint))
        if newest.height < block.height:
            raise NodeBehind(endpoint.name, f"is at block {newest.height}, and block {block.height} is not there yet")
        if not wallets:
            return {**untrusted.results, **dict(zip(calls, results, strict=True))}
        if newest == block and (attempt or untrusted.is_at(block)):
            wallet_states = {read: WalletState(block, *state) for read, state in zip(wallets, states, strict=True)}
            unread = dict.fromkeys(untrusted.calls, OVER)
            untrusted_results = untrusted.results if untrusted.is_at(block) else unread
            return {**wallet_states, **untrusted_results, **dict(zip(calls, results, strict=True))}
        block = newest
    raise Unavailable(endpoint.name, "its chain goes on faster than it answers")


async def _read_wallet(endpoint: TronNode, account: str) -> tuple[Wallet, int]:
    """Return an account, and the reward that it can withdraw: the stored allowance if it does not vote."""
    body = {"address": hex_address(account)}
    wallet = await endpoint.read_typed("/wallet/getaccount", body, Wallet)
    wallet.check(endpoint.name, account)
    if not wallet.votes:
        return wallet, wallet.allowance
    response = await endpoint.read_typed("/wallet/getReward", body, Reward)
    return wallet, response.reward


async def _read_asset(endpoint: TronNode, number: str) -> tuple[str, str, int] | Unknown:
    """Return symbol, name and decimals of a TRC-10 token, Unknown if there is no token of the number.

    Raises:
        BadAnswer: The node gives another token.
        SourceError: It could not be read.
    """

    def decode(source: str, content: bytes) -> tuple[str, str, int] | Unknown:
        """Raise BadAnswer if the node gives another token."""
        if is_empty(content):
            return Unknown("the chain has no token of this number", "absent")
        token = typed(source, content, TokenInfo)
        if token.id != number:
            raise BadAnswer(source, f"gives token {token.id[:40]} for {number}")
        return _decode_text(token.abbr), _decode_text(token.name), token.precision

    return await endpoint.read("/wallet/getassetissuebyid", {"value": number}, decode)


def _decode_text(text: str) -> str:
    """Decode hexadecimal text. Any other text stays as it is: some nodes do not encode it."""
    try:
        return bytes.fromhex(text).decode()
    except ValueError:
        return text


async def _read_calls(endpoint: TronNode, calls: Sequence[ContractRead], multicall: str) -> tuple[list[object], Block]:
    """Return the decoded results of calls, in order, and the newest block after them.

    Calls are sent in multicalls if the chain has that contract; the block is read without calls, too.
    """
    source = endpoint.name
    if not calls:
        return [], await endpoint.header(HEADER)
    combined = [each for each in calls if not each.alone] if multicall and len(calls) > 1 else []
    single = [each for each in calls if not combined or each.alone]
    groups = [combined[at : at + MULTICALL_SIZE] for at in range(0, len(combined), MULTICALL_SIZE)]
    requests = [
        *((multicall, encode_multicall(group)) for group in groups),
        *((each.contract, each.data) for each in single),
    ]
    responses, newest = await send_calls(endpoint, requests)
    results: dict[ContractRead, CallResult] = {}
    for group, response in zip(groups, responses, strict=False):
        results |= zip(group, decode_multicall(source, response, len(group)), strict=True)
    results |= zip(single, (decode_result(source, each) for each in responses[len(groups) :]), strict=True)
    return [each.decode(results[each]) for each in calls], newest


async def newest_block(endpoint: TronNode) -> Block:
    """Return the newest block as contract calls see it.

    Raises:
        SourceError: The node does not serve `/jsonrpc`.
    """
    return (await send_calls(endpoint, []))[1]
