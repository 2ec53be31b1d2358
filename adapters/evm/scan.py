"""State at one block: any number of reads in as few requests as the node allows, all pinned to the block's hash.

Three routes, tried in this order and remembered per endpoint: the scanner put in place by state override (one call for
thousands of reads); the scanner run as creation code; one `eth_call` for each read, in a JSON-RPC batch. No read can
change another one: the scanner makes static calls only, and calls of their own share no state. On every route a
contract sees the same caller and the same gas, so that one which looks at them says the same. Gas and answer size are
capped per read; what cannot be read is Unknown, never 0.

Reads that are marked as untrusted travel behind all others, in calls of their own with a `Budget`: whatever their
contracts do, they take no request, gas or round from the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from adapters.evm.call import decode, encode, signature
from adapters.evm.hexadecimal import data, quantity
from adapters.evm.node import Node, hex_of
from adapters.evm.reads import Call, NativeBalance, Read
from adapters.evm.refusals import OutOfGas, Reverting
from adapters.evm.shared import Asked, Shared
from adapters.evm.untrusted import MAX_ANSWER, MAX_CALL_READS, READ_GAS, SPLIT, Budget, call_gas
from chainfolio.blocks import Block
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
from chainfolio.plans import Reverted, Unknown
from chainfolio.untrusted import OVER
from transport.endpoint import Answer, Endpoint
from transport.http_endpoint import BodyRefused
from transport.wire import Request, typed

SENDER = "0x00000000000000000000000000000000c4a1f011"
SCANNER_AT = "0xae4850ac7168b3bf0474b3d6352217c747aeec3c"  # where the creation code, sent by SENDER, puts the scanner
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
CREATION_CODE = (
    "0x6000806102428061003b83398180f08161027d91823803809383395afa503d806000803e60dc81025a1061600082111760365760"
    "00f35b6000fdfe6102348061000e6000396000f3fe"
) + SCANNER[2:]
OVERRIDE, CREATION, SINGLES = 0, 1, 2
BY_CANONICAL_HASH, BY_HASH, BY_NUMBER = 0, 1, 2
ROUTE = "reads"  # what the route is remembered as
MAX_READS, CREATION_READS = 4000, 600
CREATION_BYTES = 45_000  # of call data: creation code of more than 49,152 bytes is refused (EIP-3860)
GAS, MORE_GAS = 1_000_000, 15_000_000
KEEP = 512
MAX_ROUNDS = 24
MAX_HEAVY = 64  # reads of one answer that are tried again with MORE_GAS
BODY_PARTS = 4  # calls of the scanner that go into one body, where there are many reads
CALL_TEXT = len(CREATION_CODE) + 1_000  # what a call of the scanner has in it beside its reads
CALL_GAS, BYTE_GAS = 21_000, 16  # what a transaction uses before its call begins


@dataclass(slots=True)
class _Read:
    """One read on its way: what is sent, how much it may use, and what came back."""

    ask: Read
    gas: int = GAS
    keep: int = KEEP
    company: int = MAX_READS  # how many reads may share its call
    answer: Any = None
    data: bytes | None = field(init=False)

    def __post_init__(self) -> None:
        ask = self.ask
        self.data = None if isinstance(ask, NativeBalance) else encode(ask.signature, ask.args)
        if self.untrusted:
            self.gas, self.company = READ_GAS, MAX_CALL_READS
        elif self.alone:
            self.gas = MORE_GAS

    @property
    def untrusted(self) -> bool:
        return isinstance(self.ask, Call) and self.ask.untrusted

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


async def answer(node: Node, queries: Sequence[Read], block: Block) -> list[Any]:
    """The answers to some reads at one block, in order. Raises HistoryUnavailable, Reorged or the node's failure."""

    async def at(endpoint: Endpoint) -> list[Any]:
        endpoint.reads.update(map(_function, queries))
        return await _answers(endpoint, queries, block)

    return await node.agreed(
        at, key=_key, asked=lambda question: f"{_worded(queries[question])} at block {block.height} {block.hash}",
        kind="state",
    )  # fmt: skip


async def answer_each(node: Node, asked: Sequence[tuple[Block, Sequence[Read]]]) -> list[list[Any] | SourceError]:
    """The answers to some reads at each of several blocks, in order, all blocks in the requests that one would take.
    HistoryUnavailable or Reorged stands in the place of a block that the node cannot read at; raised where it can read
    at none, as is the node's failure."""

    async def at(endpoint: Endpoint) -> list[list[Any] | SourceError]:
        shared = Shared(endpoint)
        endpoint.reads.update(_function(query) for _, queries in asked for query in queries)
        tasks = [asyncio.create_task(_answers(shared, queries, block)) for block, queries in asked]
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


async def _answers(endpoint: Asked, queries: Sequence[Read], block: Block) -> list[Any]:
    """The answers of one endpoint."""
    reads = [_Read(ask) for ask in queries]
    budget = Budget.of(sum(read.untrusted for read in reads))
    lowest = OVERRIDE
    for _ in range(MAX_ROUNDS):
        pending = [read for read in reads if read.answer is None]
        if not pending:
            break
        lowest = await _round(endpoint, _next(pending), block, lowest, budget)
        _bound(reads, budget)
    for read in reads:
        if read.answer is None:
            read.answer = OVER if read.untrusted else Unknown("the node could not finish this read")
    return [read.answer for read in reads]


def _next(pending: list[_Read]) -> list[_Read]:
    """The reads of the next round. Untrusted ones travel with others, or when no others are pending."""
    trusted = [read for read in pending if not read.untrusted]
    together = [read for read in trusted if not read.alone]
    if trusted and not together:
        return trusted
    untrusted = [read for read in pending if read.untrusted]
    return together + [read for read in untrusted if not read.alone] or untrusted


def _bound(reads: list[_Read], budget: Budget) -> None:
    """Answer the reads that may cost no more: untrusted ones beyond their budget, others beyond MAX_HEAVY."""
    heavy = 0
    budget.end_round()
    for read in reads:
        if read.untrusted:
            read.answer = budget.answer(read.to) if read.answer is None else read.answer
        elif read.gas == MORE_GAS and not read.alone:
            heavy += 1
            if read.answer is None and heavy > MAX_HEAVY:
                read.answer = Unknown(f"used up {GAS:,} gas, as too many other reads did", cause="contract")


def _key(answer: Any) -> Hashable | None:
    """What two equal answers share. Who could not read says nothing; nodes word a revert each in its own way."""
    if isinstance(answer, Unknown):
        return None
    return ("reverted",) if isinstance(answer, Reverted) else ("value", repr(answer))


def _function(ask: Read) -> str:
    """The function that a read calls, as a cost names it."""
    return "native balance" if isinstance(ask, NativeBalance) else ask.signature.partition("(")[0]


def _worded(ask: Read) -> str:
    if isinstance(ask, NativeBalance):
        return f"the balance of {ask.account}"
    return f"{ask.signature} of {ask.to} with {ask.args!r}"


async def _round(endpoint: Asked, reads: list[_Read], block: Block, lowest: int, budget: Budget) -> int:
    """One request by the best route known, not above `lowest`; what it could not answer stays open for the next round.
    The best route that is left to this block."""
    # Others may learn the same meanwhile: what follows from it is counted from what was known before.
    route, pin = (
        max(lowest, endpoint.capabilities.get(ROUTE, OVERRIDE)),
        endpoint.capabilities.get("pin", BY_CANONICAL_HASH),
    )
    try:
        if route == SINGLES or reads[0].alone:
            await _singles(endpoint, reads, block, budget)
        else:
            await _scan(endpoint, reads, block, route, budget)
    except _Pinning:
        endpoint.learn("pin", pin + 1)
    except Unsupported as refusal:
        if route == SINGLES or reads[0].alone:
            raise
        endpoint.errors.note(refusal)
        if not await _works(endpoint, route):
            endpoint.learn(ROUTE, route + 1)
        return route + 1
    return lowest


async def _works(endpoint: Asked, route: int) -> bool:
    """Whether a route works at the newest block: where it does, only the rules of an older block are without it."""
    probe = [_Read(NativeBalance(SENDER))]
    call = _scanning(route, probe)
    reply = (await endpoint.ask([Request("eth_call", (call[0], "latest", *call[1:]))]))[0]
    try:
        return len(_scanned(endpoint.name, reply, probe, route)) == 1
    except SourceError:
        return False


class _Pinning(Exception):
    """The endpoint does not know this way of naming a block."""


def _at(endpoint: Asked, block: Block) -> Any:
    pin = endpoint.capabilities.get("pin", BY_CANONICAL_HASH)
    by_hash = {"blockHash": block.hash}
    return {BY_CANONICAL_HASH: {**by_hash, "requireCanonical": True}, BY_HASH: by_hash}.get(pin, hex_of(block.height))


async def _call(endpoint: Asked, calls: Sequence[tuple[Any, ...]], block: Block) -> list[Answer]:
    """Some `eth_call`s at the block in one batch."""
    at = _at(endpoint, block)
    return await _pinned(endpoint, [Request("eth_call", (call[0], at, *call[1:])) for call in calls], block)


async def _pinned(endpoint: Asked, queries: list[Request], block: Block) -> list[Answer]:
    """The results of reads at the block. Where only numbers are understood, the block's hash is checked with them."""
    if not queries:
        return []
    at = _at(endpoint, block)
    if isinstance(at, str):
        *answers, header = await endpoint.ask(
            [*queries, Request("eth_getBlockByNumber", (at, False))], height=block.height
        )
        if isinstance(header, SourceError):
            raise header
        if header == b"null":
            raise NodeBehind(endpoint.name, f"does not have block {block.height}")
        if block.hash.encode() not in header:
            raise Reorged(endpoint.name, block.height, block.hash)
        return answers
    answers = await endpoint.ask(queries, height=block.height)
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


async def _scan(endpoint: Asked, reads: list[_Read], block: Block, route: int, budget: Budget) -> None:
    """The scanner: every part of the reads in one batch of calls to it, of which several go into one body."""
    room = max((endpoint.max_body // BODY_PARTS - CALL_TEXT) // 2, 1)  # bytes are written as two digits each
    most, size = (MAX_READS, room) if route == OVERRIDE else (CREATION_READS, min(CREATION_BYTES, room))
    ordered = sorted(reads, key=lambda read: (read.untrusted, read.gas, read.keep, -read.company, read.data or b""))
    parts = _affordable(_parts(ordered, min(most, endpoint.capabilities.get("max_reads", most)), size), budget)
    calls = [_scanning(route, part) for part in parts]
    is_mixed = not parts[0][0].untrusted
    for part, reply in zip(parts, await _call(endpoint, calls, block), strict=True):
        if part[0].untrusted:
            _settle_untrusted(endpoint, reply, part, route, budget, is_mixed)
            continue
        if isinstance(reply, OutOfGas | TooMuch):
            endpoint.errors.note(reply)
            if not _smaller_now(endpoint, reply, part):
                _shrink(endpoint, part)
            continue
        entries = _scanned(endpoint.name, reply, part, route)
        if entries:
            _settle(part, entries)
        elif part[0].gas > GAS:  # the scanner ran before, and now has not enough gas to begin
            _give_up(part)
        else:
            raise Unsupported(endpoint.name, f"does not run the scanner at block {block.height}")


def _affordable(parts: list[list[_Read]], budget: Budget) -> list[list[_Read]]:
    """The parts without untrusted reads, and as many of the others as the budget pays for if each uses its gas."""
    affordable, gas = [], budget.gas
    for part in parts:
        gas -= call_gas(len(part)) if part[0].untrusted else 0
        if gas >= 0 or not part[0].untrusted:
            affordable.append(part)
    return affordable or parts[:1]


def _settle_untrusted(
    endpoint: Asked, reply: Answer, part: list[_Read], route: int, budget: Budget, is_mixed: bool
) -> None:
    """Give untrusted reads their answers. A call that fails teaches nothing about the endpoint: it costs its gas and
    is split. Raises the refusal of a route if no other call of the batch shows that it works."""
    entries: list[_Entry] = []
    if isinstance(reply, OutOfGas | TooMuch):
        endpoint.errors.note(reply)
        if isinstance(reply, BodyRefused):
            return  # nothing was run; the endpoint has learnt what fits into a body
    else:
        try:
            entries = _scanned(endpoint.name, reply, part, route)
        except SourceError as refusal:
            if not is_mixed:
                raise
            endpoint.errors.note(refusal)
    budget.charge(call_gas(len(part)), is_short=len(entries) < len(part))
    for read, entry in zip(part, entries, strict=False):
        if entry.status == 3:
            budget.burnt.add(read.to)
        elif entry.size > read.keep and entry.status == 1 and not _is_raw(read.ask) and read.keep < MAX_ANSWER:
            read.keep = MAX_ANSWER
        else:
            read.answer = _value(read.ask, entry)
    _split(part[len(entries) :], SPLIT)


def _smaller_now(endpoint: Asked, refusal: SourceError, part: list[_Read]) -> bool:
    """Whether it was the body that was too large, by what the endpoint knows now, and parts will be smaller."""
    return isinstance(refusal, BodyRefused) and len(part) > 1 and refusal.sent_bytes > endpoint.max_body


def _scanning(route: int, part: list[_Read]) -> tuple[Any, ...]:
    """The call that runs the scanner, and the override that it needs."""
    packed = _pack(part).hex()
    gas = {"gas": hex(call_gas(len(part)))} if part[0].untrusted else {}
    if route == CREATION:
        return ({"from": SENDER, "data": CREATION_CODE + packed, **gas},)
    return {"from": SENDER, "to": SCANNER_AT, "data": "0x" + packed, **gas}, {SCANNER_AT: {"code": SCANNER}}


def _scanned(source: str, reply: Answer, part: list[_Read], route: int) -> list[_Entry]:
    """What the scanner answered. Unsupported where it cannot have run."""
    if isinstance(reply, Reverting) and route == CREATION and reply.data:
        try:
            return _unpack(source, reply.data, part)
        except BadAnswer as error:
            raise Unsupported(source, f"does not run creation code: {reply.reason}") from error
    if isinstance(reply, Reverting) or type(reply) is BadAnswer:
        raise Unsupported(source, f"cannot run the scanner: {reply.reason}")
    if isinstance(reply, SourceError):
        raise reply
    return _unpack(source, data(source, typed(source, reply, str)), part)


def _parts(reads: list[_Read], most: int, size: int) -> list[list[_Read]]:
    """Reads that share their limits, at most `most` together, and of at most `size` bytes as they are packed."""
    parts: list[list[_Read]] = []
    limits, left = None, 0
    for read in reads:
        whole = len(read.data or b"") + 24
        packed = 20 if parts and read.data == parts[-1][-1].data else whole
        own = (read.untrusted, read.gas, read.keep, read.company)
        if parts and limits == own and len(parts[-1]) < min(most, read.company) and packed <= left:
            parts[-1].append(read)
            left -= packed
        else:
            parts.append([read])
            limits, left = own, size - whole
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
    """Give each read its answer, or larger limits for another try. What the gas did not suffice for is split."""
    for read, entry in zip(reads, entries, strict=False):
        if entry.status == 3 and read.gas < MORE_GAS:
            read.gas = MORE_GAS
        elif entry.size > read.keep and entry.status == 1 and not _is_raw(read.ask) and read.keep < 0xFFFF:
            read.keep = 0xFFFF
        else:
            read.answer = _value(read.ask, entry)
    _split(reads[len(entries) :], 2)


def _split(reads: list[_Read], calls: int) -> None:
    """Send these in several calls the next time, so that none waits behind those that use up the gas of a call."""
    for read in reads:
        read.company = -(-len(reads) // calls)


def _is_raw(ask: Read) -> bool:
    return isinstance(ask, Call) and signature(ask.signature).is_raw


def _value(ask: Read, entry: _Entry) -> Any:
    if isinstance(ask, NativeBalance):
        given = entry.status == 1 and len(entry.data) == 32
        return int.from_bytes(entry.data, "big") if given else Unknown("the node gave no balance")
    if entry.status == 0:
        return Reverted(entry.data)
    if entry.status == 2:
        return Unknown("there is no contract at that address at this block", cause="absent")
    if entry.status == 3:
        return _burnt()
    if entry.size > len(entry.data) and not _is_raw(ask):
        return Unknown(f"returned {entry.size} bytes, more than is read", cause="contract")
    return decode(ask, entry.data)


def _burnt() -> Unknown:
    return Unknown(f"used up {MORE_GAS:,} gas without an answer", cause="contract")


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


async def _singles(endpoint: Asked, reads: list[_Read], block: Block, budget: Budget) -> None:
    """One `eth_call` or `eth_getBalance` a read, in a batch: of untrusted reads, as many as the budget pays for."""
    at = _at(endpoint, block)
    trusted = [read for read in reads if not read.untrusted and read.data is not None]
    plain = trusted + [read for read in reads if read.untrusted][: max(1, budget.gas // READ_GAS)]
    for read, reply in zip(plain, await _call(endpoint, [_plain(read) for read in plain], block), strict=True):
        if isinstance(reply, OutOfGas) and read.untrusted:
            budget.charge(READ_GAS, is_short=False)
            budget.burnt.add(read.to)
        elif isinstance(reply, OutOfGas) and read.gas < MORE_GAS:
            read.gas = MORE_GAS
        else:
            read.answer = _single(endpoint.name, read.ask, reply)
    natives = [read for read in reads if read.data is None]
    queries = [Request("eth_getBalance", (read.to, at)) for read in natives]
    for read, reply in zip(natives, await _pinned(endpoint, queries, block), strict=True):
        if isinstance(reply, Unsupported) and not isinstance(at, str):
            raise _Pinning
        if isinstance(reply, SourceError):
            read.answer = _refused(reply)
        else:
            read.answer = quantity(endpoint.name, typed(endpoint.name, reply, str))


def _plain(read: _Read) -> tuple[dict[str, str]]:
    """A call by the scanner's address with the scanner's gas: what looks at either sees the same on every route."""
    sent = read.data or b""
    gas = read.gas + CALL_GAS + BYTE_GAS * len(sent)
    return ({"from": SCANNER_AT, "to": read.to, "data": "0x" + sent.hex(), "gas": hex(gas)},)


def _single(source: str, ask: Read, reply: Answer) -> Any:
    if isinstance(reply, Reverting):
        return Reverted(reply.data[:KEEP])
    if isinstance(reply, OutOfGas):
        return _burnt()
    if isinstance(reply, SourceError):
        return _refused(reply)
    content = data(source, typed(source, reply, str))
    if not content:
        return Unknown(
            "returned nothing: no contract at that address at this block, or an empty answer", cause="absent"
        )
    return _value(ask, _Entry(1, len(content), content))


def _refused(reply: SourceError) -> Unknown:
    """A read that the node refused by itself; raised where all of them are."""
    if isinstance(reply, Unavailable | HistoryUnavailable | NodeBehind | Unsupported):
        raise reply
    return Unknown(reply.reason)
