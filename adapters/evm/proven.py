"""Check logs and bodies against a trusted header: an answer that leaves one log out is detected."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from chainfolio.adapters.evm.facts import Facts
from chainfolio.adapters.evm.integrity import Query
from chainfolio.adapters.evm.log_parser import parse
from chainfolio.adapters.evm.logs import Logs
from chainfolio.adapters.evm.node import Header
from chainfolio.adapters.evm.receipts import block_receipts
from chainfolio.adapters.evm.roots import (
    EMPTY_LIST_ROOT,
    HEADERS,
    RECEIPTS,
    check_receipts,
    check_transactions,
    logs_of,
    unproven,
)
from chainfolio.errors import BadAnswer, Contradiction
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import typed


class _Body(msgspec.Struct):
    hash: str


class _Bodies(msgspec.Struct):
    transactions: list[_Body]


class _ReceiptBlock(msgspec.Struct):
    blockHash: str


async def prove_logs(facts: Facts, endpoint: Endpoint, logs: Logs, headers: Sequence[Header], query: Query) -> None:
    """Check that the logs of some blocks are exactly those of their receipts that the query selects.

    Raises:
        Contradiction: The receipts root of the header covers other logs.
    """
    for header, block_logs in zip(headers, await logs_by_receipts(facts, endpoint, headers, by_root=True), strict=True):
        covered = _select_logs(block_logs, query)
        answered = logs.take(np.flatnonzero(logs.height == header.height))
        if (answered_logs := comparable_logs(answered)) != (covered_logs := comparable_logs(covered)):
            different = sum(
                answered_log != covered_log
                for answered_log, covered_log in zip(answered_logs, covered_logs, strict=False)
            )
            raise Contradiction(
                endpoint.name,
                f"the logs of block {header.height} {header.hash}",
                f"{len(answered_logs)} logs",
                f"its receipts root {header.receiptsRoot} covers {len(covered_logs)}, {different} of the first differ",
            )


async def proven_receipts(
    facts: Facts, endpoint: Endpoint, headers: Sequence[Header], *, by_root: bool = True
) -> list[bytes]:
    """Return the receipts (a JSON list) of each of some blocks, checked against the root in its header.

    Without `by_root`, or if the chain's receipts cannot be hashed, only their block hashes are checked.

    Raises:
        BadAnswer: They belong to another branch.
        Contradiction: The root does not cover them.
    """
    if not headers:
        return []
    receipts = await block_receipts(endpoint, headers)
    for header, block_receipts_json in zip(headers, receipts, strict=True):
        _same_block(endpoint.name, header, block_receipts_json)
        if by_root:
            check_receipts(facts, endpoint.name, block_receipts_json, header.hash, header.receiptsRoot)
    return receipts


async def logs_by_receipts(facts: Facts, endpoint: Endpoint, headers: Sequence[Header], *, by_root: bool) -> list[Logs]:
    """Return all logs of each of some blocks, from receipts that are checked as by `proven_receipts`.

    Raises:
        BadAnswer: A log belongs to another block.
    """
    logs_by_block = []
    receipts = await proven_receipts(facts, endpoint, headers, by_root=by_root)
    for header, block_receipts_json in zip(headers, receipts, strict=True):
        logs = parse(endpoint.name, logs_of(endpoint.name, block_receipts_json))
        if (logs.height != header.height).any() or {block_hash.tobytes().decode() for block_hash in logs.block_hash} - {
            header.hash
        }:
            raise BadAnswer(endpoint.name, f"a receipt of block {header.height} holds a log of another block")
        logs.time_s[:] = header.time_s
        logs_by_block.append(logs)
    return logs_by_block


def are_receipts_proven(facts: Facts, integrity: str) -> bool:
    """Return True if receipts are checked against their root.

    The settings must ask for it, and the chain must hash receipts and headers in the usual way.
    """
    return integrity == "roots" and not {HEADERS, RECEIPTS} & set(facts.unproven)


def _same_block(source: str, header: Header, receipts: bytes) -> None:
    """Raise BadAnswer if receipts are of another branch, or of a backend that does not have the block yet."""
    hashes = {receipt.blockHash.lower() for receipt in typed(source, receipts, list[_ReceiptBlock])}
    if hashes != {header.hash} and (hashes or header.receiptsRoot != f"0x{EMPTY_LIST_ROOT.hex()}"):
        raise BadAnswer(source, f"block {header.height}: the receipts are not those of {header.hash}")


def prove_bodies(facts: Facts, source: str, header: Header, block: bytes, receipts: bytes) -> None:
    """Check that complete bodies (JSON) are those that the roots of a header cover.

    The header may come from another endpoint: its hash covers its roots, but not the list of transaction hashes. That
    list is replaced by the one of the bodies. If the chain's headers cannot be hashed, nothing is checked.

    Raises:
        Contradiction: The roots do not cover them.
    """
    if unproven(facts, HEADERS):
        return
    if check_transactions(facts, source, block, header.transactionsRoot) is None:
        bodies = typed(source, block, _Bodies).transactions
        header.transactions = [msgspec.Raw(msgspec.json.encode(body.hash)) for body in bodies]
    check_receipts(facts, source, receipts, header.hash, header.receiptsRoot)


def _select_logs(logs: Logs, query: Query) -> Logs:
    """Return the logs with one of the query's topics, and of its contracts if it names some."""
    mask = np.zeros(len(logs), np.bool_)
    for topic in query.topics:
        mask |= logs.of(topic)
    if query.contracts:
        mask &= np.isin(logs.address.view("S42").ravel(), np.array([c.encode() for c in query.contracts], "S42"))
    return logs.take(np.flatnonzero(mask))


def comparable_logs(logs: Logs) -> list[tuple[object, ...]]:
    """Return each log as a tuple of all its fields except its block and time, for comparison."""
    return [
        (
            int(logs.log_index[row]),
            int(logs.tx_index[row]),
            logs.address[row].tobytes(),
            logs.tx_hash[row].tobytes(),
            tuple(topic[row].tobytes() for topic in logs.topics[: int(logs.topic_count[row])]),
            logs.data(row),
        )
        for row in range(len(logs))
    ]
