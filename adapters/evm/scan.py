"""State at one block: any number of reads in as few requests as the node allows, all pinned to the block's hash.

Three routes, tried in this order and remembered per endpoint: the scanner put in place by state override (any block,
nothing deployed, one call for thousands of reads); Multicall3 after its birth; single calls in a JSON-RPC batch. Calls
that would change state before they answer are refused by the first and would be seen by others in the second. One
bad token cannot spoil the others: gas and answer size are capped per read; what cannot be read is Unknown, never 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from adapters.evm.call import decode, encode, signature
from adapters.evm.endpoint import Answer, Endpoint
from adapters.evm.node import Node, hex_of
from adapters.evm.refusals import OutOfGas, Reverting
from adapters.evm.shared import Asked, Shared
from adapters.evm.wire import Request, data, quantity, typed
from chainfolio.asking import Reverted, Unknown
from chainfolio.blocks import Block
from chainfolio.calls import Call, NativeBalance, Read
from chainfolio.errors import (
    BadAnswer,
    HistoryUnavailable,
    NodeBehind,
    Reorged,
    SourceError,
    TooMuch,
    Unavailable,
    Unsupported,
)

SCANNER_AT = "0x00000000000000000000000000000000c4a1f011"
SCANNER = (
    "0x60003561ffff7a0100000000000000000000000000000000000000000000000000007c0100000000000000000000000000000000000000"
    "00000000000000000083049204169060069161200061ea6060208404840101915b8436861015610229578560027e01000000000000000000"
    "0000000000000000000000000000000000000000008198350491019161ffff8214908115610217575b507e01000000000000000000000000"
    "00000000000000000000000000000000000083350497889301975b6100cd57505050610057565b9091939496875a1061020c5760146c0100"
    "0000000000000000000000823504910195826001146101d957906004915a8960008088818785fa913d948386156101b8575b90501561019f"
    "575b505062ffffff8311610194575b7f0100000000000000000000000000000000000000000000000000000000000000027c010000000000"
    "0000000000000000000000000000000000000000000000830217815285821161018c575b8160008483013e0101935b949694600019019190"
    "826100c1565b859150610172565b62ffffff9250610125565b5a900310156101b0575b8938610118565b5060036101a9565b6101c3575b83"
    "610110565b3b156101d0575b386101bd565b600292506101ca565b6024917f01000020000000000000000000000000000000000000000000"
    "000000000000008252316004820152019361017d565b611fff198601612000f35b8290818a939560003701019138610097565b611fff1983"
    "01612000f3"
)
OVERRIDE, MULTICALL, SINGLES = 0, 1, 2
BY_CANONICAL_HASH, BY_HASH, BY_NUMBER = 0, 1, 2
MOST_READS, MULTICALL_READS = 4000, 400
GAS, MORE_GAS = 1_000_000, 15_000_000
KEEP = 512
MOST_ROUNDS = 24
GET_BALANCE = "getEthBalance(address)(uint256)"
AGGREGATE3 = "aggregate3((address,bool,bytes)[])((bool,bytes)[])"


@dataclass(slots=True)
class _Read:
    """One read on its way: what is sent, how much it may use, and what came back."""

    ask: Read
    gas: int = GAS
    keep: int = KEEP
    answer: Any = None
    data: bytes | None = field(init=False)

    def __post_init__(self) -> None:
        ask = self.ask
        self.data = None if isinstance(ask, NativeBalance) else encode(ask.signature, ask.args)

    @property
    def alone(self) -> bool:
        return isinstance(self.ask, Call) and self.ask.alone

    @property
    def to(self) -> str:
        return self.ask.account if isinstance(self.ask, NativeBalance) else self.ask.to


@dataclass(slots=True)
class _Entry:
    status: int
    size: int
    data: bytes = field(repr=False)


async def answer(node: Node, asks: Sequence[Read], block: Block) -> list[Any]:
    """The answers to some reads at one block, in order. Raises HistoryUnavailable, Reorged or the node's failure."""

    async def at(endpoint: Endpoint) -> list[Any]:
        return await _answers(node, endpoint, asks, block)

    return await node.agreed(
        at, key=_key, asked=lambda question: f"{_worded(asks[question])} at block {block.height} {block.hash}",
        kind="state",
    )  # fmt: skip


async def answer_each(node: Node, asked: Sequence[tuple[Block, Sequence[Read]]]) -> list[list[Any] | SourceError]:
    """The answers to some reads at each of several blocks, in order, all blocks in the requests that one would take.
    HistoryUnavailable or Reorged stands in the place of a block that the node cannot read at; raised where it can read
    at none, as is the node's failure."""

    async def at(endpoint: Endpoint) -> list[list[Any] | SourceError]:
        shared = Shared(endpoint)
        tasks = [asyncio.create_task(_answers(node, shared, asks, block)) for block, asks in asked]
        try:
            given = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for task in tasks:
                task.cancel()
        found: list[list[Any] | SourceError] = []
        for each in given:
            if isinstance(each, BaseException) and not isinstance(each, HistoryUnavailable | Reorged):
                raise each
            found.append(each)
        lost = [each for each in found if isinstance(each, SourceError)]
        if found and len(lost) == len(found):
            raise lost[0]
        return found

    def key(each: list[Any] | SourceError) -> Hashable | None:
        return None if isinstance(each, SourceError) else tuple(_key(answer) for answer in each)

    return await node.agreed(
        at, key=key, asked=lambda question: f"reads at block {asked[question][0].height} {asked[question][0].hash}",
        kind="states",
    )  # fmt: skip


async def _answers(node: Node, endpoint: Asked, asks: Sequence[Read], block: Block) -> list[Any]:
    """The answers of one endpoint."""
    reads = [_Read(ask) for ask in asks]
    for _ in range(MOST_ROUNDS):
        left = [read for read in reads if read.answer is None]
        if not left:
            break
        await _round(node, endpoint, [read for read in left if not read.alone] or left, block)
    for read in reads:
        if read.answer is None:
            read.answer = Unknown("the node could not finish this read")
    return [read.answer for read in reads]


def _key(answer: Any) -> Hashable | None:
    """What two equal answers share. Who could not read says nothing; nodes word a revert each in its own way."""
    if isinstance(answer, Unknown):
        return None
    return ("reverted",) if isinstance(answer, Reverted) else ("value", repr(answer))


def _worded(ask: Read) -> str:
    if isinstance(ask, NativeBalance):
        return f"the balance of {ask.account}"
    return f"{ask.signature} of {ask.to} with {ask.args!r}"


async def _round(node: Node, endpoint: Asked, reads: list[_Read], block: Block) -> None:
    """One request by the best route known; what it could not answer stays open for the next round."""
    # Others may learn the same meanwhile: what follows from it is counted from what was known before.
    route, pin = endpoint.learnt.get("route", OVERRIDE), endpoint.learnt.get("pin", BY_CANONICAL_HASH)
    multicall = node.facts.multicall3
    unborn = multicall is None or block.height < multicall.born
    if reads[0].alone or (route == MULTICALL and unborn):
        route = SINGLES
    try:
        if route == OVERRIDE:
            await _scan(endpoint, reads, block)
        elif route == MULTICALL:
            assert multicall is not None
            await _aggregate(endpoint, reads, block, multicall.address)
        else:
            await _singles(endpoint, reads, block)
    except _Pinning:
        endpoint.learn("pin", pin + 1)
    except Unsupported as refusal:
        if route == SINGLES:
            raise
        endpoint.trouble.note(refusal)
        endpoint.learn("route", route + 1)


class _Pinning(Exception):
    """The endpoint does not know this way of naming a block."""


def _at(endpoint: Asked, block: Block) -> Any:
    pin = endpoint.learnt.get("pin", BY_CANONICAL_HASH)
    by_hash = {"blockHash": block.hash}
    return {BY_CANONICAL_HASH: {**by_hash, "requireCanonical": True}, BY_HASH: by_hash}.get(pin, hex_of(block.height))


async def _call(endpoint: Asked, calls: Sequence[tuple[Any, ...]], block: Block) -> list[Answer]:
    """Some `eth_call`s at the block in one batch."""
    at = _at(endpoint, block)
    return await _pinned(endpoint, [Request("eth_call", (call[0], at, *call[1:])) for call in calls], block)


async def _pinned(endpoint: Asked, asks: list[Request], block: Block) -> list[Answer]:
    """The answers to asks at the block. Where only numbers are understood, the block's hash is checked with them."""
    if not asks:
        return []
    at = _at(endpoint, block)
    if isinstance(at, str):
        *answers, header = await endpoint.ask(
            [*asks, Request("eth_getBlockByNumber", (at, False))], height=block.height
        )
        if isinstance(header, SourceError):
            raise header
        if header == b"null":
            raise NodeBehind(endpoint.name, f"does not have block {block.height}")
        if block.hash.encode() not in header:
            raise Reorged(endpoint.name, block.height, block.hash)
        return answers
    answers = await endpoint.ask(asks, height=block.height)
    for refusal in answers:
        if isinstance(refusal, Unsupported) and _names_pinning(refusal.reason):
            raise _Pinning
        if isinstance(refusal, NodeBehind):
            raise await _why_absent(endpoint, block, refusal)
    return answers


def _names_pinning(reason: str) -> bool:
    return any(word in reason.lower() for word in ("hash", "block", "tag", "map", "object", "canonical"))


async def _why_absent(endpoint: Asked, block: Block, refusal: NodeBehind) -> SourceError:
    """A hash that is not known: is the node behind, was the block reorganised away, or its state pruned?"""
    now = await endpoint.ask([Request("eth_getBlockByNumber", (hex_of(block.height), False))])
    if not isinstance(now[0], bytes) or now[0] == b"null":
        return refusal
    if block.hash.encode() not in now[0]:
        return Reorged(endpoint.name, block.height, block.hash)
    return HistoryUnavailable(endpoint.name, block.height, refusal.reason)


async def _scan(endpoint: Asked, reads: list[_Read], block: Block) -> None:
    """The override route: every part of the reads in one batch of calls to the scanner."""
    most = endpoint.learnt.get("max_reads", MOST_READS)
    ordered = sorted(reads, key=lambda read: (read.gas, read.keep, read.data or b""))
    parts = _parts(ordered, most)
    override = {SCANNER_AT: {"code": SCANNER}}
    calls = [({"to": SCANNER_AT, "data": "0x" + _pack(part).hex()}, override) for part in parts]
    for part, reply in zip(parts, await _call(endpoint, calls, block), strict=True):
        if isinstance(reply, OutOfGas | TooMuch):
            endpoint.trouble.note(reply)
            _shrink(endpoint, part)
        elif isinstance(reply, Reverting) or type(reply) is BadAnswer:
            raise Unsupported(endpoint.name, f"cannot run the scanner at block {block.height}: {reply.reason}")
        elif isinstance(reply, SourceError):
            raise reply
        else:
            content = data(endpoint.name, typed(endpoint.name, reply, str))
            if not content and part[0].gas > GAS:  # the scanner ran before, and now has not enough gas to begin
                _give_up(part)
            elif not content:
                raise Unsupported(endpoint.name, "ignores state overrides")
            else:
                _settle(part, _unpack(endpoint.name, content, part))


def _parts(reads: list[_Read], most: int) -> list[list[_Read]]:
    """Reads that share their limits, at most `most` together."""
    parts: list[list[_Read]] = []
    for read in reads:
        last = parts[-1] if parts else None
        if last is None or len(last) >= most or (last[0].gas, last[0].keep) != (read.gas, read.keep):
            parts.append([read])
        else:
            last.append(read)
    return parts


def _pack(reads: list[_Read]) -> bytes:
    """The scanner's call data: reads with equal data in one group."""
    out = [reads[0].gas.to_bytes(4, "big") + min(reads[0].keep, 0xFFFF).to_bytes(2, "big")]
    start = 0
    while start < len(reads):
        same = reads[start].data
        end = start
        while end < len(reads) and end - start < 0xFFFF and reads[end].data == same:
            end += 1
        head = b"\xff\xff" if same is None else len(same).to_bytes(2, "big") + same
        targets = b"".join(bytes.fromhex(read.to[2:]) for read in reads[start:end])
        out.append(head + (end - start).to_bytes(2, "big") + targets)
        start = end
    return b"".join(out)


def _unpack(source: str, content: bytes, part: list[_Read]) -> list[_Entry]:
    """The scanner's answer, entry by entry; fewer than asked where its gas ran low."""
    entries: list[_Entry] = []
    at, keep = 0, min(part[0].keep, 0xFFFF)
    while at < len(content):
        status, size = content[at], int.from_bytes(content[at + 1 : at + 4], "big")
        kept = min(size, keep)
        if status > 3 or at + 4 + kept > len(content) or len(entries) == len(part):
            raise BadAnswer(source, "the scanner's answer is not one: something else runs at its address")
        entries.append(_Entry(status, size, content[at + 4 : at + 4 + kept]))
        at += 4 + kept
    return entries


def _settle(reads: list[_Read], entries: list[_Entry]) -> None:
    """Give each read its answer, or larger limits for another try."""
    for read, entry in zip(reads, entries, strict=False):
        if entry.status == 3 and read.gas < MORE_GAS:
            read.gas = MORE_GAS
        elif entry.size > read.keep and entry.status == 1 and not _is_raw(read.ask) and read.keep < 0xFFFF:
            read.keep = 0xFFFF
        else:
            read.answer = _value(read.ask, entry)


def _is_raw(ask: Read) -> bool:
    return isinstance(ask, Call) and signature(ask.signature).is_raw


def _value(ask: Read, entry: _Entry) -> Any:
    if entry.status == 0:
        return Reverted(entry.data)
    if entry.status == 2:
        return Unknown("there is no contract at that address at this block", cause="absent")
    if entry.status == 3:
        return Unknown(f"used up {MORE_GAS:,} gas without an answer", cause="contract")
    if isinstance(ask, NativeBalance):
        return int.from_bytes(entry.data, "big")
    if entry.size > len(entry.data) and not _is_raw(ask):
        return Unknown(f"returned {entry.size} bytes, more than is read", cause="contract")
    return decode(ask, entry.data)


def _shrink(endpoint: Asked, reads: list[_Read]) -> None:
    """The node could not even begin: ask for less at once, in the end for less gas, in the end not at all."""
    if len(reads) > 1:
        endpoint.learn("max_reads", max(1, len(reads) // 2))
    elif reads[0].gas > 50_000:
        reads[0].gas //= 4
    else:
        _give_up(reads)


def _give_up(reads: list[_Read]) -> None:
    for read in reads:
        read.answer = Unknown("the node's gas allowance is too small for this read")


async def _aggregate(endpoint: Asked, reads: list[_Read], block: Block, address: str) -> None:
    """Multicall3: what fails inside it is asked again alone, for there a neighbour may have burnt its gas."""
    first = reads[:MULTICALL_READS]
    calls = tuple(
        (address, True, encode(GET_BALANCE, (read.to,))) if read.data is None else (read.to, True, read.data)
        for read in first
    )
    request = {"to": address, "data": "0x" + encode(AGGREGATE3, (calls,)).hex()}
    reply = (await _call(endpoint, [(request,)], block))[0]
    if isinstance(reply, BadAnswer) and not isinstance(reply, Unsupported):
        await _singles(endpoint, first, block)  # one that answers too much can sink them all
        return
    if isinstance(reply, SourceError):
        raise reply
    results = decode(Call(address, AGGREGATE3), data(endpoint.name, typed(endpoint.name, reply, str)))
    if isinstance(results, Unknown) or len(results) != len(first):
        raise Unsupported(endpoint.name, "there is no Multicall3 where it should be")
    failed = []
    for read, (done, content) in zip(first, results, strict=True):
        if not done or not content:
            failed.append(read)
        else:
            read.answer = _value(read.ask, _Entry(1, len(content), content))
    if failed:
        await _singles(endpoint, failed, block)


async def _singles(endpoint: Asked, reads: list[_Read], block: Block) -> None:
    """One `eth_call` or `eth_getBalance` a read, in a batch."""
    at = _at(endpoint, block)
    plain = [read for read in reads if read.data is not None]
    calls = [({"to": read.to, "data": "0x" + (read.data or b"").hex(), "gas": hex(MORE_GAS)},) for read in plain]
    for read, reply in zip(plain, await _call(endpoint, calls, block), strict=True):
        read.answer = _single(endpoint.name, read.ask, reply)
    natives = [read for read in reads if read.data is None]
    asks = [Request("eth_getBalance", (read.to, at)) for read in natives]
    for read, reply in zip(natives, await _pinned(endpoint, asks, block), strict=True):
        if isinstance(reply, Unsupported) and not isinstance(at, str):
            raise _Pinning
        if isinstance(reply, SourceError):
            raise reply
        read.answer = quantity(endpoint.name, typed(endpoint.name, reply, str))


def _single(source: str, ask: Read, reply: Answer) -> Any:
    if isinstance(reply, Reverting):
        return Reverted(reply.data)
    if isinstance(reply, OutOfGas | TooMuch):
        return Unknown(reply.reason)
    if isinstance(reply, Unavailable | HistoryUnavailable | NodeBehind | Unsupported):
        raise reply
    if isinstance(reply, SourceError):
        return Unknown(reply.reason)
    content = data(source, typed(source, reply, str))
    if not content:
        return Unknown(
            "returned nothing: no contract at that address at this block, or an empty answer", cause="absent"
        )
    return _value(ask, _Entry(1, len(content), content))
