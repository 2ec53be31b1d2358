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

from chainfolio.adapters.evm.hexadecimal import data, quantity
from chainfolio.adapters.evm.node import Node, hex_of
from chainfolio.adapters.evm.reads import AbiValue, NativeBalance, Read
from chainfolio.adapters.evm.refusals import CallReverted, OutOfGas
from chainfolio.adapters.evm.scanner import (
    BYTE_GAS,
    CALL_GAS,
    CALL_TEXT,
    CREATION_BYTES,
    CREATION_READS,
    GAS,
    KEEP_BYTES,
    MAX_READS,
    MORE_GAS,
    OVERRIDE,
    SCANNER_AT,
    SENDER,
    SINGLES,
    BlockParameter,
    CallParameters,
    PendingRead,
    ScannerEntry,
    give_up,
    group_reads,
    is_raw,
    out_of_gas,
    scanner_call,
    scanner_entries,
    shrink,
    split_reads,
    store_results,
    value_of,
)
from chainfolio.adapters.evm.shared import SharedEndpoint, StateEndpoint
from chainfolio.adapters.evm.untrusted import BURNT, BURNT_BLOCKS, MAX_ANSWER, READ_GAS, SPLIT, Budget, call_gas
from chainfolio.blocks import Block
from chainfolio.errors import (
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
from chainfolio.untrusted import OVER, SkippedContracts

BY_CANONICAL_HASH, BY_HASH, BY_NUMBER = 0, 1, 2
ROUTE = "reads"  # key of the capability that stores an endpoint's route
MAX_ROUNDS = 24
MAX_HEAVY = 64  # reads of one answer that are retried with MORE_GAS
BODY_PARTS = 4  # scanner calls in one HTTP body, if there are many reads


async def answer(node: Node, queries: Sequence[Read], block: Block) -> list[AbiValue]:
    """Return the results of some reads at one block, in order.

    A read that the contract refuses gives Reverted; an impossible or too expensive one, or one that cannot be encoded,
    gives Unknown.

    Raises:
        HistoryUnavailable: The node no longer has the block's state.
        Reorged: The block is no longer in the chain.
        SourceError: The node failed.
    """

    async def at(endpoint: Endpoint) -> list[AbiValue]:
        endpoint.reads.update(map(_function, queries))
        return await _answers(endpoint, queries, block, node.skipped)

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
        tasks = [
            asyncio.create_task(_answers(shared, queries, block, node.skipped)) for block, queries in queries_by_block
        ]
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


async def _answers(
    endpoint: StateEndpoint, queries: Sequence[Read], block: Block, skipped: SkippedContracts
) -> list[AbiValue]:
    """Return the results of one endpoint, in order; Unknown for reads not finished in MAX_ROUNDS.

    Untrusted contracts that used up their gas are added to `skipped`, and then not read for BURNT_BLOCKS blocks.
    """
    reads = [PendingRead(query) for query in queries]
    for read in reads:
        if read.untrusted and read.result is None:
            read.result = skipped.answer(read.to, block.height)
    budget = Budget.of(sum(read.untrusted for read in reads))
    lowest = OVERRIDE
    for _ in range(MAX_ROUNDS):
        pending = [read for read in reads if read.result is None]
        if not pending:
            break
        lowest = await _round(endpoint, _next_reads(pending), block, lowest, budget)
        _limit_costs(reads, budget)
    skipped.skip(budget.burnt, block.height, BURNT_BLOCKS, BURNT)
    for read in reads:
        if read.result is None:
            read.result = OVER if read.untrusted else Unknown("the node could not finish this read")
    return [read.result for read in reads]


def _next_reads(pending: list[PendingRead]) -> list[PendingRead]:
    """Return the reads of the next round; untrusted ones join others, or wait until no others are pending."""
    trusted = [read for read in pending if not read.untrusted]
    batchable = [read for read in trusted if not read.alone]
    if trusted and not batchable:
        return trusted
    untrusted = [read for read in pending if read.untrusted]
    return batchable + [read for read in untrusted if not read.alone] or untrusted


def _limit_costs(reads: list[PendingRead], budget: Budget) -> None:
    """Set the results of reads that may cost no more: untrusted ones over budget, others over MAX_HEAVY."""
    heavy = 0
    budget.end_round()
    for read in reads:
        if read.untrusted:
            read.result = budget.refusal(read.to, is_alone=read.alone) if read.result is None else read.result
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


async def _round(endpoint: StateEndpoint, reads: list[PendingRead], block: Block, lowest: int, budget: Budget) -> int:
    """Send one round by the best known route, at least `lowest`; return the best route for this block.

    Reads without a result stay pending for the next round. The endpoint's route and form of block are remembered.
    Raises UnsupportedMethod if single calls are refused.
    """
    # Concurrent rounds may change the capabilities meanwhile: the next value is counted from the one used here.
    route, pin = (
        max(lowest, endpoint.capabilities.get(ROUTE, OVERRIDE)),
        endpoint.capabilities.get("pin", BY_CANONICAL_HASH),
    )
    try:
        if route == SINGLES or reads[0].alone:
            await _send_singles(endpoint, reads, block, budget)
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
    probe = [PendingRead(NativeBalance(SENDER))]
    call = scanner_call(route, probe)
    reply = (await endpoint.ask([Request("eth_call", (call[0], "latest", *call[1:]))]))[0]
    try:
        return len(scanner_entries(endpoint.name, reply, probe, route)) == 1
    except SourceError:
        return False


class _PinNotSupported(Exception):
    """The endpoint does not know this way of naming a block."""


def _at(endpoint: StateEndpoint, block: Block) -> BlockParameter:
    """Return the parameter that names a block in the endpoint's form: by hash, or else by height."""
    pin = endpoint.capabilities.get("pin", BY_CANONICAL_HASH)
    by_hash: dict[str, str | bool] = {"blockHash": block.hash}
    if pin == BY_CANONICAL_HASH:
        return {**by_hash, "requireCanonical": True}
    return by_hash if pin == BY_HASH else hex_of(block.height)


async def _call(endpoint: StateEndpoint, calls: Sequence[CallParameters], block: Block) -> list[Answer]:
    """Send `eth_call`s at the block in one batch."""
    at = _at(endpoint, block)
    return await _ask_at_block(endpoint, [Request("eth_call", (call[0], at, *call[1:])) for call in calls], block)


async def _ask_at_block(endpoint: StateEndpoint, queries: list[Request], block: Block) -> list[Answer]:
    """Send reads at the block; if only heights are understood, the block's hash is checked with them.

    Raises NodeBehind if the node lacks the block, Reorged if it has another one, _PinNotSupported if it refuses hashes.
    """
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


async def _scan(endpoint: StateEndpoint, reads: list[PendingRead], block: Block, route: int, budget: Budget) -> None:
    """Read by the scanner, several batches in one HTTP body, and store results in `reads`.

    Reads of refused batches stay pending, and smaller batches are remembered.
    Raises UnsupportedMethod if the scanner does not run.
    """
    room = max((endpoint.max_body // BODY_PARTS - CALL_TEXT) // 2, 1)  # a byte is two hex digits
    max_count, max_bytes = (MAX_READS, room) if route == OVERRIDE else (CREATION_READS, min(CREATION_BYTES, room))
    ordered = sorted(reads, key=lambda read: (read.untrusted, read.gas, read.keep, -read.max_reads, read.data or b""))
    parts = _affordable(
        group_reads(ordered, min(max_count, endpoint.capabilities.get("max_reads", max_count)), max_bytes), budget
    )
    calls = [scanner_call(route, part) for part in parts]
    is_mixed = not parts[0][0].untrusted
    for part, reply in zip(parts, await _call(endpoint, calls, block), strict=True):
        if part[0].untrusted:
            _store_untrusted_results(endpoint, reply, part, route, budget, is_mixed)
            continue
        if isinstance(reply, OutOfGas | ResponseTooLarge):
            endpoint.errors.note(reply)
            if not _can_shrink(endpoint, reply, part):
                shrink(endpoint, part)
            continue
        entries = scanner_entries(endpoint.name, reply, part, route)
        if entries:
            store_results(part, entries)
        elif part[0].gas > GAS:  # the scanner ran before, but cannot begin with so much gas per read
            give_up(part)
        else:
            raise UnsupportedMethod(endpoint.name, f"does not run the scanner at block {block.height}")


def _affordable(parts: list[list[PendingRead]], budget: Budget) -> list[list[PendingRead]]:
    """Return the parts that the budget pays for, and all trusted ones; if there are none, the first part."""
    affordable, gas = [], budget.gas
    for part in parts:
        gas -= call_gas(len(part)) if part[0].untrusted else 0
        if gas >= 0 or not part[0].untrusted:
            affordable.append(part)
    return affordable or parts[:1]


def _store_untrusted_results(
    endpoint: StateEndpoint, reply: Answer, part: list[PendingRead], route: int, budget: Budget, is_mixed: bool
) -> None:
    """Set the results of a call of untrusted reads, charge its gas, and split the reads that got no entry.

    The contract of a read that ran out of gas is added to `budget.burnt`. A result that was cut off is read again, up
    to MAX_ANSWER bytes. A refused HTTP body costs nothing. The refusal of a route is raised unless `is_mixed`: then
    other calls of the batch show if the route works.
    """
    entries: list[ScannerEntry] = []
    if isinstance(reply, OutOfGas | ResponseTooLarge):
        endpoint.errors.note(reply)
        if isinstance(reply, BodyRefused):
            return  # nothing was run; the limit of the body is remembered
    else:
        try:
            entries = scanner_entries(endpoint.name, reply, part, route)
        except SourceError as refusal:
            if not is_mixed:
                raise
            endpoint.errors.note(refusal)
    budget.charge(call_gas(len(part)))
    for read, entry in zip(part, entries, strict=False):
        if entry.status == 3:
            budget.burnt.add(read.to)
        elif entry.size > read.keep and entry.status == 1 and not is_raw(read.query) and read.keep < MAX_ANSWER:
            read.keep = MAX_ANSWER
        else:
            read.result = value_of(read.query, entry)
    split_reads(part[len(entries) :], SPLIT)


def _can_shrink(endpoint: StateEndpoint, refusal: SourceError, part: list[PendingRead]) -> bool:
    """Return True if the HTTP body was too large and the next one will be smaller."""
    return isinstance(refusal, BodyRefused) and len(part) > 1 and refusal.sent_bytes > endpoint.max_body


async def _send_singles(endpoint: StateEndpoint, reads: list[PendingRead], block: Block, budget: Budget) -> None:
    """Send one request a read, in one batch of calls and one of native balances, and set the results.

    Untrusted reads are sent as far as the budget pays for them, at least one. A call that runs out of gas stays
    pending: a trusted one gets MORE_GAS once, an untrusted one is charged and its contract added to `budget.burnt`.
    """
    at = _at(endpoint, block)
    trusted = [read for read in reads if not read.untrusted and read.data is not None]
    calls = trusted + [read for read in reads if read.untrusted][: max(1, budget.gas // READ_GAS)]
    for read, reply in zip(calls, await _call(endpoint, [_single_call(read) for read in calls], block), strict=True):
        if isinstance(reply, OutOfGas) and read.untrusted:
            budget.charge(READ_GAS, is_single=True)
            budget.burnt.add(read.to)
        elif isinstance(reply, OutOfGas) and read.gas < MORE_GAS:
            read.gas = MORE_GAS
        else:
            read.result = _single_result(endpoint.name, read.query, reply)
    natives = [read for read in reads if read.data is None]
    queries = [Request("eth_getBalance", (read.to, at)) for read in natives]
    for read, reply in zip(natives, await _ask_at_block(endpoint, queries, block), strict=True):
        if isinstance(reply, UnsupportedMethod) and not isinstance(at, str):
            raise _PinNotSupported
        if isinstance(reply, SourceError):
            read.result = _unknown_or_raise(reply)
        else:
            read.result = quantity(endpoint.name, typed(endpoint.name, reply, str))


def _single_call(read: PendingRead) -> tuple[dict[str, str]]:
    """Return the parameters of a call with the scanner's address and gas: contracts see both alike."""
    call_data = read.data or b""
    gas = read.gas + CALL_GAS + BYTE_GAS * len(call_data)
    return ({"from": SCANNER_AT, "to": read.to, "data": "0x" + call_data.hex(), "gas": hex(gas)},)


def _single_result(source: str, query: Read, reply: Answer) -> AbiValue:
    """Return the value of one read; Reverted or Unknown if the contract has none.

    Errors of the node are raised, except those that become Unknown.
    """
    if isinstance(reply, CallReverted):
        return Reverted(reply.data[:KEEP_BYTES])
    if isinstance(reply, OutOfGas):
        return out_of_gas()
    if isinstance(reply, SourceError):
        return _unknown_or_raise(reply)
    content = data(source, typed(source, reply, str))
    if not content:
        return Unknown(
            "returned nothing: no contract at that address at this block, or an empty answer", cause="absent"
        )
    return value_of(query, ScannerEntry(1, len(content), content))


def _unknown_or_raise(reply: SourceError) -> Unknown:
    """Return Unknown for a read that the node refused alone; raise an error that concerns all reads."""
    if isinstance(reply, Unavailable | HistoryUnavailable | NodeBehind | UnsupportedMethod):
        raise reply
    return Unknown(reply.reason)
