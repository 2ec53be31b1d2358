"""Logs and bodies held against a header whose hash is trusted: an answer that leaves one log out is caught."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from adapters.evm import logs as columns
from adapters.evm.facts import Facts
from adapters.evm.integrity import Query
from adapters.evm.logs import Logs
from adapters.evm.node import Header
from adapters.evm.receipts import block_receipts
from adapters.evm.roots import EMPTY, HEADERS, RECEIPTS, check_receipts, check_transactions, logs_of, unproven
from chainfolio.errors import BadAnswer, Contradicted
from transport.endpoint import Endpoint
from transport.wire import typed


class _Body(msgspec.Struct):
    hash: str


class _Bodies(msgspec.Struct):
    transactions: list[_Body]


class _Place(msgspec.Struct):
    blockHash: str


async def prove_logs(facts: Facts, endpoint: Endpoint, logs: Logs, headers: Sequence[Header], query: Query) -> None:
    """Raise Contradicted where the logs of some blocks are not exactly those that their receipts hold, by the root in
    their header, of what the query asks for."""
    for header, covering in zip(headers, await logs_by_receipts(facts, endpoint, headers, by_root=True), strict=True):
        covered = _wanted(covering, query)
        told = logs.take(np.flatnonzero(logs.height == header.height))
        if (found := written(told)) != (truth := written(covered)):
            wrong = sum(one != other for one, other in zip(found, truth, strict=False))
            raise Contradicted(
                endpoint.name, f"the logs of block {header.height} {header.hash}", f"{len(found)} logs",
                f"its receipts root {header.receiptsRoot} covers {len(truth)}, {wrong} of the first differ",
            )  # fmt: skip


async def proven_receipts(
    facts: Facts, endpoint: Endpoint, headers: Sequence[Header], *, by_root: bool = True
) -> list[bytes]:
    """The receipts (a JSON list) of each of some blocks, held against the root in its header; without `by_root` only
    against the hash that they name.

    Raises:
        BadAnswer: they are those of another branch.
        Contradicted: they are not those that the root covers.
    """
    if not headers:
        return []
    receipts = await block_receipts(endpoint, headers)
    for header, given in zip(headers, receipts, strict=True):
        _same_block(endpoint.name, header, given)
        if by_root:
            check_receipts(facts, endpoint.name, given, header.hash, header.receiptsRoot)
    return receipts


async def logs_by_receipts(facts: Facts, endpoint: Endpoint, headers: Sequence[Header], *, by_root: bool) -> list[Logs]:
    """All logs of each of some blocks, as the receipts of the block hold them; checked as `proven_receipts` are.

    Raises:
        BadAnswer: a log is of another block.
    """
    every = []
    receipts = await proven_receipts(facts, endpoint, headers, by_root=by_root)
    for header, given in zip(headers, receipts, strict=True):
        logs = columns.parse(endpoint.name, logs_of(endpoint.name, given))
        if (logs.height != header.height).any() or {each.tobytes().decode() for each in logs.block_hash} - {
            header.hash
        }:
            raise BadAnswer(endpoint.name, f"a receipt of block {header.height} holds a log of another block")
        logs.time_s[:] = header.time_s
        every.append(logs)
    return every


def are_receipts_proven(facts: Facts, integrity: str) -> bool:
    """Return True if receipts are held against their root: the settings ask for it, and the chain hashes both receipts
    and headers in the usual way."""
    return integrity == "roots" and not {HEADERS, RECEIPTS} & set(facts.unproven)


def _same_block(source: str, header: Header, receipts: bytes) -> None:
    """BadAnswer, and no lie, where receipts are of another branch, or of a backend that does not have the block yet."""
    hashes = {each.blockHash.lower() for each in typed(source, receipts, list[_Place])}
    if hashes != {header.hash} and (hashes or header.receiptsRoot != f"0x{EMPTY.hex()}"):
        raise BadAnswer(source, f"block {header.height}: the receipts are not those of {header.hash}")


def prove_bodies(facts: Facts, source: str, header: Header, block: bytes, receipts: bytes) -> None:
    """Raise Contradicted where whole bodies (JSON) are not those that a header's roots cover. The header may be another
    endpoint's: its hash covers its roots, but not the list of hashes beside them, which becomes that of the bodies."""
    if unproven(facts, HEADERS):
        return
    if check_transactions(facts, source, block, header.transactionsRoot) is None:
        bodies = typed(source, block, _Bodies).transactions
        header.transactions = [msgspec.Raw(msgspec.json.encode(body.hash)) for body in bodies]
    check_receipts(facts, source, receipts, header.hash, header.receiptsRoot)


def _wanted(logs: Logs, query: Query) -> Logs:
    mask = np.zeros(len(logs), np.bool_)
    for topic in query.topics:
        mask |= logs.of(topic)
    if query.contracts:
        mask &= np.isin(logs.address.view("S42").ravel(), np.array([c.encode() for c in query.contracts], "S42"))
    return logs.take(np.flatnonzero(mask))


def written(logs: Logs) -> list[tuple[object, ...]]:
    """Each log as what can be compared: all that it says but for its block."""
    return [
        (
            int(logs.log_index[row]), int(logs.tx_index[row]), logs.address[row].tobytes(), logs.tx_hash[row].tobytes(),
            tuple(topic[row].tobytes() for topic in logs.topics[: int(logs.topic_count[row])]), logs.data(row),
        )
        for row in range(len(logs))
    ]  # fmt: skip
