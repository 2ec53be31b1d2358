"""Read state at one block: many reads in as few requests as the node allows, at the block's hash.

There are three routes, tried in this order and remembered per endpoint: the scanner contract placed by state override
(one call for thousands of reads); the scanner run as creation code; one `eth_call` for each read, in a JSON-RPC batch.
Reads cannot change each other: the scanner makes static calls only, and separate calls share no state. On every route,
a contract sees the same caller and the same gas, so that the route does not change its result. Gas and answer size are
capped per read; a read without a result is Unknown, never 0.

Reads marked as untrusted are sent after all others, in separate calls with a `Budget`: their contracts take no request,
gas or round from the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from chainfolio.adapters.evm.call import decode, encode, signature
from chainfolio.adapters.evm.hexadecimal import data, quantity
from chainfolio.adapters.evm.node import Node, hex_of
from chainfolio.adapters.evm.reads import AbiValue, Call, NativeBalance, Read
from chainfolio.adapters.evm.refusals import CallReverted, OutOfGas
from chainfolio.adapters.evm.shared import SharedEndpoint, StateEndpoint
from chainfolio.adapters.evm.untrusted import MAX_ANSWER, MAX_CALL_READS, READ_GAS, SPLIT, Budget, call_gas
from chainfolio.blocks import Block
from chainfolio.errors import (
    BadAnswer,
    HistoryUnavailable,
    NodeBehind,
    Reorged,
    ResponseTooLarge,
    SourceError,
    Unavailable,
    UnsupportedMethod,
)
from chainfolio.plans import Reverted, Unknown
from chainfolio.transport.endpoint import Answer, Endpoint
from chainfolio.transport.http_endpoint import BodyRefused
from chainfolio.transport.wire import Request, typed
from chainfolio.untrusted import OVER

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
BlockParameter = str | dict[str, str | bool]  # a height, or a hash and if it has to be canonical
CallParameters = tuple[dict[str, str], *tuple[dict[str, dict[str, str]], ...]]  # the call, then a state override
OVERRIDE, CREATION, SINGLES = 0, 1, 2
BY_CANONICAL_HASH, BY_HASH, BY_NUMBER = 0, 1, 2
ROUTE = "reads"  # key of the capability that stores an endpoint's route
MAX_READS, CREATION_READS = 4000, 600
CREATION_BYTES = 45_000  # of call data: creation code of more than 49,152 bytes is refused (EIP-3860)
GAS, MORE_GAS = 1_000_000, 15_000_000
KEEP_BYTES = 512
MAX_ROUNDS = 24
MAX_HEAVY = 64  # reads of one answer that are retried with MORE_GAS
BODY_PARTS = 4  # scanner calls in one HTTP body, if there are many reads
CALL_TEXT = len(CREATION_CODE) + 1_000  # size of a scanner call without its reads
CALL_GAS, BYTE_GAS = 21_000, 16  # gas of a transaction before its call begins, and for each byte of call data


@dataclass(slots=True)
class _Read:
    """One pending read: its call data, its limits, and its result.

    `keep`: bytes of the answer that are returned. `max_reads`: how many reads may share its call.
    """

    query: Read
    gas: int = GAS
    keep: int = KEEP_BYTES
    max_reads: int = MAX_READS  # how many reads may share its call
    result: AbiValue = None
    data: bytes | None = field(init=False)

    def __post_init__(self) -> None:
        self.data = None if isinstance(self.query, NativeBalance) else encode(self.query.signature, self.query.args)
        if self.untrusted:
            self.gas, self.max_reads = READ_GAS, MAX_CALL_READS
        elif self.alone:
            self.gas = MORE_GAS

    @property
    def untrusted(self) -> bool:
        return isinstance(self.query, Call) and self.query.untrusted

    @property
    def alone(self) -> bool:
        return isinstance(self.query, Call) and self.query.alone

    @property
    def to(self) -> str:
        return self.query.account if isinstance(self.query, NativeBalance) else self.query.to


@dataclass(slots=True)
class _Entry:
    """One entry of the scanner's answer: status, size of the return data, and the returned part of it."""

    status: int
    size: int
    data: bytes = field(repr=False)


async def answer(node: Node, queries: Sequence[Read], block: Block) -> list[AbiValue]:
    """Return the results of some reads at one block, in order.

    Raises:
        HistoryUnavailable: The node no longer has the block's state.
        Reorged: The block is no longer in the chain.
        SourceError: The node failed.
    """

    async def at(endpoint: Endpoint) -> list[AbiValue]:
        endpoint.reads.update(map(_function, queries))
        return await _answers(endpoint, queries, block)

    return await node.agreed(
        at,
        key=_key,
        describe=lambda question: f"{_description(queries[question])} at block {block.height} {block.hash}",
        kind="state",
    )


async def answer_each(
    node: Node, queries_by_block: Sequence[tuple[Block, Sequence[Read]]]
) -> list[list[AbiValue] | SourceError]:
    """Return the results of some reads at each of several blocks, in the requests that one would take.

    HistoryUnavailable or Reorged takes the place of a block that the node cannot read.

    Raises:
        SourceError: The node failed, or cannot read any of the blocks.
    """

    async def at(endpoint: Endpoint) -> list[list[AbiValue] | SourceError]:
        shared = SharedEndpoint(endpoint)
        endpoint.reads.update(_function(query) for _, queries in queries_by_block for query in queries)
        tasks = [asyncio.create_task(_answers(shared, queries, block)) for block, queries in queries_by_block]
        try:
            results = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for task in tasks:
                task.cancel()
        checked: list[list[AbiValue] | SourceError] = []
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, HistoryUnavailable | Reorged):
                raise result
            checked.append(result)
        errors = [result for result in checked if isinstance(result, SourceError)]
        if checked and len(errors) == len(checked):
            raise errors[0]
        return checked

    def key(block_results: list[AbiValue] | SourceError) -> Hashable | None:
        return None if isinstance(block_results, SourceError) else tuple(_key(answer) for answer in block_results)

    return await node.agreed(
        at,
        key=key,
        describe=lambda question: (
            f"reads at block {queries_by_block[question][0].height} {queries_by_block[question][0].hash}"
        ),
        kind="states",
    )


async def _answers(endpoint: StateEndpoint, queries: Sequence[Read], block: Block) -> list[AbiValue]:
    """Return the results of one endpoint."""
    reads = [_Read(query) for query in queries]
    budget = Budget.of(sum(read.untrusted for read in reads))
    lowest = OVERRIDE
    for _ in range(MAX_ROUNDS):
        pending = [read for read in reads if read.result is None]
        if not pending:
            break
        lowest = await _round(endpoint, _next_reads(pending), block, lowest, budget)
        _limit_costs(reads, budget)
    for read in reads:
        if read.result is None:
            read.result = OVER if read.untrusted else Unknown("the node could not finish this read")
    return [read.result for read in reads]


def _next_reads(pending: list[_Read]) -> list[_Read]:
    """Return the reads of the next round; untrusted ones join others, or wait until no others are pending."""
    trusted = [read for read in pending if not read.untrusted]
    batchable = [read for read in trusted if not read.alone]
    if trusted and not batchable:
        return trusted
    untrusted = [read for read in pending if read.untrusted]
    return batchable + [read for read in untrusted if not read.alone] or untrusted


def _limit_costs(reads: list[_Read], budget: Budget) -> None:
    """Set the results of reads that may cost no more: untrusted ones over budget, others over MAX_HEAVY."""
    heavy = 0
    budget.end_round()
    for read in reads:
        if read.untrusted:
            read.result = budget.answer(read.to) if read.result is None else read.result
        elif read.gas == MORE_GAS and not read.alone:
            heavy += 1
            if read.result is None and heavy > MAX_HEAVY:
                read.result = Unknown(f"used up {GAS:,} gas, as too many other reads did", cause="contract")


def _key(answer: AbiValue) -> Hashable | None:
    """Return a result for comparison; None for Unknown. Reverts are equal: nodes word them differently."""
    if isinstance(answer, Unknown):
        return None
    return ("reverted",) if isinstance(answer, Reverted) else ("value", repr(answer))


def _function(query: Read) -> str:
    """Return the function that a read calls, as costs name it."""
    return "native balance" if isinstance(query, NativeBalance) else query.signature.partition("(")[0]


def _description(query: Read) -> str:
    if isinstance(query, NativeBalance):
        return f"the balance of {query.account}"
    return f"{query.signature} of {query.to} with {query.args!r}"


async def _round(endpoint: StateEndpoint, reads: list[_Read], block: Block, lowest: int, budget: Budget) -> int:
    """Send one round by the best known route, at least `lowest`; return the best route for this block.

    Reads without a result stay pending for the next round.
    """
    # Concurrent rounds may change the capabilities meanwhile: the next value is counted from the one used here.
    route, pin = (
        max(lowest, endpoint.capabilities.get(ROUTE, OVERRIDE)),
        endpoint.capabilities.get("pin", BY_CANONICAL_HASH),
    )
    try:
        if route == SINGLES or reads[0].alone:
            await _singles(endpoint, reads, block, budget)
        else:
            await _scan(endpoint, reads, block, route, budget)
    except _PinNotSupported:
        endpoint.learn("pin", pin + 1)
    except UnsupportedMethod as refusal:
        if route == SINGLES or reads[0].alone:
            raise
        endpoint.errors.note(refusal)
        if not await _works(endpoint, route):
            endpoint.learn(ROUTE, route + 1)
        return route + 1
    return lowest


async def _works(endpoint: StateEndpoint, route: int) -> bool:
    """Return True if a route works at the newest block, so that only an older block's rules lack it."""
    probe = [_Read(NativeBalance(SENDER))]
    call = _scanner_call(route, probe)
    reply = (await endpoint.ask([Request("eth_call", (call[0], "latest", *call[1:]))]))[0]
    try:
        return len(_scanner_entries(endpoint.name, reply, probe, route)) == 1
    except SourceError:
        return False


class _PinNotSupported(Exception):
    """The endpoint does not know this way of naming a block."""


def _at(endpoint: StateEndpoint, block: Block) -> BlockParameter:
    pin = endpoint.capabilities.get("pin", BY_CANONICAL_HASH)
    by_hash: dict[str, str | bool] = {"blockHash": block.hash}
    if pin == BY_CANONICAL_HASH:
        return {**by_hash, "requireCanonical": True}
    return by_hash if pin == BY_HASH else hex_of(block.height)


async def _call(endpoint: StateEndpoint, calls: Sequence[CallParameters], block: Block) -> list[Answer]:
    """Send `eth_call`s at the block in one batch."""
    at = _at(endpoint, block)
    return await _pinned(endpoint, [Request("eth_call", (call[0], at, *call[1:])) for call in calls], block)


async def _pinned(endpoint: StateEndpoint, queries: list[Request], block: Block) -> list[Answer]:
    """Send reads at the block; if only heights are understood, the block's hash is checked with them."""
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
        if isinstance(refusal, UnsupportedMethod) and _names_pinning(refusal.reason):
            raise _PinNotSupported
        if isinstance(refusal, NodeBehind):
            raise await _why_absent(endpoint, block, refusal)
    return answers


def _names_pinning(reason: str) -> bool:
    return any(hint in reason.lower() for hint in ("hash", "block", "tag", "map", "object", "canonical"))


async def _why_absent(endpoint: StateEndpoint, block: Block, refusal: NodeBehind) -> SourceError:
    """Return why a block hash is unknown: the node is behind, a reorganisation, or pruned state."""
    headers = await endpoint.ask([Request("eth_getBlockByNumber", (hex_of(block.height), False))])
    if not isinstance(headers[0], bytes) or headers[0] == b"null":
        return refusal
    if block.hash.encode() not in headers[0]:
        return Reorged(endpoint.name, block.height, block.hash)
    return HistoryUnavailable(endpoint.name, block.height, refusal.reason)


async def _scan(endpoint: StateEndpoint, reads: list[_Read], block: Block, route: int, budget: Budget) -> None:
    """Read by the scanner: a batch of calls, several of them in one HTTP body."""
    room = max((endpoint.max_body // BODY_PARTS - CALL_TEXT) // 2, 1)  # a byte is two hex digits
    max_count, max_bytes = (MAX_READS, room) if route == OVERRIDE else (CREATION_READS, min(CREATION_BYTES, room))
    ordered = sorted(reads, key=lambda read: (read.untrusted, read.gas, read.keep, -read.max_reads, read.data or b""))
    parts = _affordable(
        _parts(ordered, min(max_count, endpoint.capabilities.get("max_reads", max_count)), max_bytes), budget
    )
    calls = [_scanner_call(route, part) for part in parts]
    is_mixed = not parts[0][0].untrusted
    for part, reply in zip(parts, await _call(endpoint, calls, block), strict=True):
        if part[0].untrusted:
            _store_untrusted_results(endpoint, reply, part, route, budget, is_mixed)
            continue
        if isinstance(reply, OutOfGas | ResponseTooLarge):
            endpoint.errors.note(reply)
            if not _can_shrink(endpoint, reply, part):
                _shrink(endpoint, part)
            continue
        entries = _scanner_entries(endpoint.name, reply, part, route)
        if entries:
            _store_results(part, entries)
        elif part[0].gas > GAS:  # the scanner ran before, but cannot begin with so much gas per read
            _give_up(part)
        else:
            raise UnsupportedMethod(endpoint.name, f"does not run the scanner at block {block.height}")


def _affordable(parts: list[list[_Read]], budget: Budget) -> list[list[_Read]]:
    """Return the parts that the budget pays for; parts without untrusted reads always are."""
    affordable, gas = [], budget.gas
    for part in parts:
        gas -= call_gas(len(part)) if part[0].untrusted else 0
        if gas >= 0 or not part[0].untrusted:
            affordable.append(part)
    return affordable or parts[:1]


def _store_untrusted_results(
    endpoint: StateEndpoint, reply: Answer, part: list[_Read], route: int, budget: Budget, is_mixed: bool
) -> None:
    """Set the results of untrusted reads, or split a failed call, which costs its gas.

    A failure changes nothing that is remembered about the endpoint. The refusal of a route is raised if no other call
    of the batch shows that the route works.
    """
    entries: list[_Entry] = []
    if isinstance(reply, OutOfGas | ResponseTooLarge):
        endpoint.errors.note(reply)
        if isinstance(reply, BodyRefused):
            return  # nothing was run; the limit of the body is remembered
    else:
        try:
            entries = _scanner_entries(endpoint.name, reply, part, route)
        except SourceError as refusal:
            if not is_mixed:
                raise
            endpoint.errors.note(refusal)
    budget.charge(call_gas(len(part)), is_short=len(entries) < len(part))
    for read, entry in zip(part, entries, strict=False):
        if entry.status == 3:
            budget.burnt.add(read.to)
        elif entry.size > read.keep and entry.status == 1 and not _is_raw(read.query) and read.keep < MAX_ANSWER:
            read.keep = MAX_ANSWER
        else:
            read.result = _value(read.query, entry)
    _split(part[len(entries) :], SPLIT)


def _can_shrink(endpoint: StateEndpoint, refusal: SourceError, part: list[_Read]) -> bool:
    """Return True if the HTTP body was too large and the next one will be smaller."""
    return isinstance(refusal, BodyRefused) and len(part) > 1 and refusal.sent_bytes > endpoint.max_body


def _scanner_call(route: int, part: list[_Read]) -> CallParameters:
    """Return the parameters of the call that runs the scanner, with the override that it needs."""
    packed = _pack(part).hex()
    gas = {"gas": hex(call_gas(len(part)))} if part[0].untrusted else {}
    if route == CREATION:
        return ({"from": SENDER, "data": CREATION_CODE + packed, **gas},)
    return {"from": SENDER, "to": SCANNER_AT, "data": "0x" + packed, **gas}, {SCANNER_AT: {"code": SCANNER}}


def _scanner_entries(source: str, reply: Answer, part: list[_Read], route: int) -> list[_Entry]:
    """Return the scanner's entries; raise UnsupportedMethod if it cannot have run."""
    if isinstance(reply, CallReverted) and route == CREATION and reply.data:
        try:
            return _unpack(source, reply.data, part)
        except BadAnswer as error:
            raise UnsupportedMethod(source, f"does not run creation code: {reply.reason}") from error
    if isinstance(reply, CallReverted) or type(reply) is BadAnswer:
        raise UnsupportedMethod(source, f"cannot run the scanner: {reply.reason}")
    if isinstance(reply, SourceError):
        raise reply
    return _unpack(source, data(source, typed(source, reply, str)), part)


def _parts(reads: list[_Read], max_count: int, max_bytes: int) -> list[list[_Read]]:
    """Group reads with equal limits, at most `max_count` together and at most `max_bytes` packed."""
    parts: list[list[_Read]] = []
    limits, free_bytes = None, 0
    for read in reads:
        full_size = len(read.data or b"") + 24
        packed = 20 if parts and read.data == parts[-1][-1].data else full_size
        read_limits = (read.untrusted, read.gas, read.keep, read.max_reads)
        if parts and limits == read_limits and len(parts[-1]) < min(max_count, read.max_reads) and packed <= free_bytes:
            parts[-1].append(read)
            free_bytes -= packed
        else:
            parts.append([read])
            limits, free_bytes = read_limits, max_bytes - full_size
    return parts


def _pack(reads: list[_Read]) -> bytes:
    """Return the scanner's call data: reads with equal data in one group."""
    chunks = [reads[0].gas.to_bytes(4, "big") + min(reads[0].keep, 0xFFFF).to_bytes(2, "big")]
    start = 0
    while start < len(reads):
        call_data = reads[start].data
        end = start
        while end < len(reads) and end - start < 0xFFFF and reads[end].data == call_data:
            end += 1
        head = b"\xff\xff" if call_data is None else len(call_data).to_bytes(2, "big") + call_data
        targets = b"".join(bytes.fromhex(read.to[2:]) for read in reads[start:end])
        chunks.append(head + (end - start).to_bytes(2, "big") + targets)
        start = end
    return b"".join(chunks)


def _unpack(source: str, content: bytes, part: list[_Read]) -> list[_Entry]:
    """Parse the scanner's answer; it has fewer entries than reads if its gas ran low."""
    entries: list[_Entry] = []
    offset, keep = 0, min(part[0].keep, 0xFFFF)
    while offset < len(content):
        status, size = content[offset], int.from_bytes(content[offset + 1 : offset + 4], "big")
        returned_size = min(size, keep)
        if status > 3 or offset + 4 + returned_size > len(content) or len(entries) == len(part):
            raise BadAnswer(source, "the scanner's answer is not one: something else runs at its address")
        entries.append(_Entry(status, size, content[offset + 4 : offset + 4 + returned_size]))
        offset += 4 + returned_size
    return entries


def _store_results(reads: list[_Read], entries: list[_Entry]) -> None:
    """Set the result of each read, or raise its limits for another try; split reads that lacked gas."""
    for read, entry in zip(reads, entries, strict=False):
        if entry.status == 3 and read.gas < MORE_GAS:
            read.gas = MORE_GAS
        elif entry.size > read.keep and entry.status == 1 and not _is_raw(read.query) and read.keep < 0xFFFF:
            read.keep = 0xFFFF
        else:
            read.result = _value(read.query, entry)
    _split(reads[len(entries) :], 2)


def _split(reads: list[_Read], calls: int) -> None:
    """Spread reads over several calls the next time, so that none waits behind those that use up the gas."""
    for read in reads:
        read.max_reads = -(-len(reads) // calls)


def _is_raw(query: Read) -> bool:
    return isinstance(query, Call) and signature(query.signature).is_raw


def _value(query: Read, entry: _Entry) -> AbiValue:
    if isinstance(query, NativeBalance):
        is_balance = entry.status == 1 and len(entry.data) == 32
        return int.from_bytes(entry.data, "big") if is_balance else Unknown("the node gave no balance")
    if entry.status == 0:
        return Reverted(entry.data)
    if entry.status == 2:
        return Unknown("there is no contract at that address at this block", cause="absent")
    if entry.status == 3:
        return _out_of_gas()
    if entry.size > len(entry.data) and not _is_raw(query):
        return Unknown(f"returned {entry.size} bytes, more than is read", cause="contract")
    return decode(query, entry.data)


def _out_of_gas() -> Unknown:
    return Unknown(f"used up {MORE_GAS:,} gas without an answer", cause="contract")


def _shrink(endpoint: StateEndpoint, reads: list[_Read]) -> None:
    """Reduce a call that the node could not begin: fewer reads, then less gas, then give up."""
    if len(reads) > 1:
        endpoint.learn("max_reads", max(1, len(reads) // 2))
    elif reads[0].gas > 50_000:
        reads[0].gas //= 4
    else:
        _give_up(reads)


def _give_up(reads: list[_Read]) -> None:
    for read in reads:
        read.result = Unknown("the node's gas allowance is too small for this read")


async def _singles(endpoint: StateEndpoint, reads: list[_Read], block: Block, budget: Budget) -> None:
    """Send one request a read, in a batch; untrusted reads as far as the budget pays for them."""
    at = _at(endpoint, block)
    trusted = [read for read in reads if not read.untrusted and read.data is not None]
    calls = trusted + [read for read in reads if read.untrusted][: max(1, budget.gas // READ_GAS)]
    for read, reply in zip(calls, await _call(endpoint, [_single_call(read) for read in calls], block), strict=True):
        if isinstance(reply, OutOfGas) and read.untrusted:
            budget.charge(READ_GAS, is_short=False)
            budget.burnt.add(read.to)
        elif isinstance(reply, OutOfGas) and read.gas < MORE_GAS:
            read.gas = MORE_GAS
        else:
            read.result = _single_result(endpoint.name, read.query, reply)
    natives = [read for read in reads if read.data is None]
    queries = [Request("eth_getBalance", (read.to, at)) for read in natives]
    for read, reply in zip(natives, await _pinned(endpoint, queries, block), strict=True):
        if isinstance(reply, UnsupportedMethod) and not isinstance(at, str):
            raise _PinNotSupported
        if isinstance(reply, SourceError):
            read.result = _unknown_or_raise(reply)
        else:
            read.result = quantity(endpoint.name, typed(endpoint.name, reply, str))


def _single_call(read: _Read) -> tuple[dict[str, str]]:
    """Return the parameters of a call with the scanner's address and gas: contracts see both alike."""
    call_data = read.data or b""
    gas = read.gas + CALL_GAS + BYTE_GAS * len(call_data)
    return ({"from": SCANNER_AT, "to": read.to, "data": "0x" + call_data.hex(), "gas": hex(gas)},)


def _single_result(source: str, query: Read, reply: Answer) -> AbiValue:
    if isinstance(reply, CallReverted):
        return Reverted(reply.data[:KEEP_BYTES])
    if isinstance(reply, OutOfGas):
        return _out_of_gas()
    if isinstance(reply, SourceError):
        return _unknown_or_raise(reply)
    content = data(source, typed(source, reply, str))
    if not content:
        return Unknown(
            "returned nothing: no contract at that address at this block, or an empty answer", cause="absent"
        )
    return _value(query, _Entry(1, len(content), content))


def _unknown_or_raise(reply: SourceError) -> Unknown:
    """Return Unknown for a read that the node refused alone; raise an error that concerns all reads."""
    if isinstance(reply, Unavailable | HistoryUnavailable | NodeBehind | UnsupportedMethod):
        raise reply
    return Unknown(reply.reason)
