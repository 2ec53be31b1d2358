"""What was read as rows of the tables."""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from chainfolio.adapters.beacon.answers import BlockMessage
from chainfolio.adapters.beacon.epochs import Settled
from chainfolio.adapters.beacon.spec import Spec
from chainfolio.adapters.beacon.states import NEVER, States
from chainfolio.blocks import Block
from chainfolio.table import BUCKETS, Table, bucket
from chainfolio.tables import (
    BLOCKS,
    DEPOSITS,
    PROPOSALS,
    STAKE_CHANGES,
    STAKE_REQUESTS,
    VALIDATOR_REWARDS,
    VALIDATORS,
    WITHDRAWALS,
)

Wanted = Callable[[int], bool]
PART: Final = 50_000  # rows whose letters are written at a time


def blocks(chain: str, found: Sequence[tuple[Block, BlockMessage]]) -> pa.Table:
    """The headers. The fee recipient is who gets the fees on the execution chain."""
    rows = [
        {
            "chain": chain,
            "height": block.height,
            "time": block.time,
            "hash": block.hash,
            "parent": block.parent,
            "miner": message.body.execution_payload and message.body.execution_payload.fee_recipient.lower(),
            "tx_count": 0,
        }
        for block, message in found
    ]
    return pa.Table.from_pylist(rows, BLOCKS.schema())


def proposals(chain: str, spec: Spec, found: Iterable[BlockMessage], wanted: Wanted) -> pa.Table:
    """Who proposed which block, and what it brought to the execution chain."""
    rows = []
    for each in found:
        payload, proposer = each.body.execution_payload, each.proposer_index
        has_payload = payload is not None and int(payload.block_hash, 16) != 0
        if wanted(proposer):
            rows.append(
                {
                    "chain": chain,
                    "bucket": bucket(proposer),
                    "validator": proposer,
                    "epoch": spec.epoch(each.slot),
                    "height": each.slot,
                    "execution_height": payload.block_number if payload and has_payload else None,
                    "execution_hash": payload.block_hash.lower() if payload and has_payload else None,
                    "fee_recipient": payload.fee_recipient.lower() if payload and has_payload else None,
                }
            )
    return pa.Table.from_pylist(rows, PROPOSALS.schema())


def withdrawals(chain: str, spec: Spec, found: Sequence[tuple[Block, BlockMessage]], wanted: Wanted) -> pa.Table:
    """What was paid out."""
    rows = [
        {
            "chain": chain,
            "bucket": bucket(each.validator_index),
            "validator": each.validator_index,
            "epoch": spec.epoch(block.height),
            "height": block.height,
            "time": block.time,
            "number": each.index,
            "address": each.address.lower(),
            "gwei": each.amount,
        }
        for block, message in found
        if message.body.execution_payload is not None
        for each in message.body.execution_payload.withdrawals
        if wanted(each.validator_index)
    ]
    return pa.Table.from_pylist(rows, WITHDRAWALS.schema())


def deposits(
    chain: str, spec: Spec, found: Sequence[tuple[Block, BlockMessage]], wanted: Callable[[str, str], bool]
) -> pa.Table:
    """What was paid in: of the bridge, whose numbers no block names, and by request."""
    rows = []
    for block, message in found:
        parts: list[tuple[str, int | None, str, str, int]] = [
            ("bridge", None, each.data.pubkey, each.data.withdrawal_credentials, each.data.amount)
            for each in message.body.deposits
        ]
        parts += [
            ("request", each.index, each.pubkey, each.withdrawal_credentials, each.amount)
            for each in message.body.execution_requests.deposits
        ]
        for item, (kind, number, pubkey, credentials, gwei) in enumerate(parts):
            if wanted(pubkey.lower(), credentials.lower()):
                rows.append(
                    {
                        "chain": chain,
                        "bucket": bucket(pubkey.lower()),
                        "pubkey": pubkey.lower(),
                        "epoch": spec.epoch(block.height),
                        "height": block.height,
                        "time": block.time,
                        "item": item,
                        "number": number,
                        "kind": kind,
                        "credentials": credentials.lower(),
                        "gwei": gwei,
                    }
                )
    return pa.Table.from_pylist(rows, DEPOSITS.schema())


def requests(
    chain: str, spec: Spec, found: Sequence[tuple[Block, BlockMessage]], wanted: Callable[[str, str], bool]
) -> pa.Table:
    """What the execution chain asked for."""
    rows = []
    for block, message in found:
        asked = message.body.execution_requests
        parts: list[tuple[str, str, str, str | None, int | None]] = [
            ("withdrawal" if each.amount else "exit", each.validator_pubkey, each.source_address, None, each.amount)
            for each in asked.withdrawals
        ]
        parts += [
            ("consolidation", each.source_pubkey, each.source_address, each.target_pubkey.lower(), None)
            for each in asked.consolidations
        ]
        for item, (kind, pubkey, address, target, gwei) in enumerate(parts):
            if wanted(pubkey.lower(), f"0x01{'0' * 22}{address[2:].lower()}"):
                rows.append(
                    {
                        "chain": chain,
                        "bucket": bucket(pubkey.lower()),
                        "pubkey": pubkey.lower(),
                        "epoch": spec.epoch(block.height),
                        "height": block.height,
                        "time": block.time,
                        "item": item,
                        "kind": kind,
                        "address": address.lower(),
                        "target": target,
                        "gwei": gwei,
                    }
                )
    return pa.Table.from_pylist(rows, STAKE_REQUESTS.schema())


def rewards(chain: str, found: Sequence[Settled]) -> pa.Table:
    """The rewards of some epochs, column by column."""
    counts = [len(each.columns["validator"]) for each in found]
    columns = {name: _one(counts, [each.columns[name] for each in found]) for name in found[0].columns}
    return _made(VALIDATOR_REWARDS, chain, {**columns, "bucket": columns["validator"] % BUCKETS})


def _one(counts: Sequence[int], parts: Sequence[Any]) -> Any:
    """Parts of a column as one, each of so many rows: values, values beside which of them are there, or None of whom
    nothing is known."""
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(each, np.ndarray) for each in parts):
        return np.concatenate(parts)
    values, is_there = zip(*map(_beside, counts, parts), strict=True)
    return np.concatenate(values), np.concatenate(is_there)


def _beside(count: int, part: Any) -> tuple[Any, Any]:
    if part is None:
        return np.zeros(count, np.int64), np.zeros(count, np.bool_)
    return part if isinstance(part, tuple) else (part, np.ones(count, np.bool_))


def registry(chain: str, epoch: int, height: int, now: States, places: Any) -> pa.Table:
    """Validators of a state, at some places of it."""
    index = now.index[places]
    columns = {
        "bucket": index % BUCKETS,
        "validator": index,
        "epoch": np.full(len(index), epoch),
        "height": np.full(len(index), height),
        "pubkey": _hex(now.pubkey[places]),
        "credentials": _hex(now.credentials[places]),
        "effective": now.effective_balance[places],
        "slashed": now.slashed[places],
        "eligible": _epochs(now.activation_eligibility_epoch[places]),
        "activated": _epochs(now.activation_epoch[places]),
        "exited": _epochs(now.exit_epoch[places]),
        "withdrawable": _epochs(now.withdrawable_epoch[places]),
    }
    return _made(VALIDATORS, chain, columns)


def changes(chain: str, found: Sequence[Settled]) -> pa.Table:
    """What changed balances beside rewards and withdrawals in some epochs."""
    rows = []
    for epoch in found:
        counts: dict[int, int] = {}
        for each in epoch.changes:
            item = counts[each.validator] = counts.get(each.validator, -1) + 1
            rows.append(
                {
                    "chain": chain,
                    "bucket": bucket(each.validator),
                    "validator": each.validator,
                    "epoch": epoch.number,
                    "height": epoch.height,
                    "item": item,
                    "slot": each.slot,
                    "kind": each.kind,
                    "gwei": each.gwei,
                    "other": each.other,
                }
            )
    return pa.Table.from_pylist(rows, STAKE_CHANGES.schema())


def together(parts: Sequence[pa.Table], table: Table) -> pa.Table:
    """Some rows of a table as one."""
    return pa.concat_tables(parts) if parts else table.schema().empty_table()


def _hex(values: Any) -> pa.Array:
    """Bytes of one length as texts."""
    count, size = len(values), values.dtype.itemsize
    written = np.empty((count, 1 + size), "V2")  # two letters for each byte
    written[:, 0] = np.void(b"0x")
    for first in range(0, count, PART):
        part = values[first : first + PART]
        written[first : first + PART, 1:] = np.frombuffer(hexlify(part.tobytes()), "V2").reshape(len(part), size)
    ends = np.arange(count + 1, dtype=np.int32) * (2 + 2 * size)
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(written))


def _epochs(values: Any) -> tuple[Any, Any]:
    return values, values != NEVER


def _made(table: Table, chain: str, columns: dict[str, Any]) -> pa.Table:
    schema, count = table.schema(), len(columns["validator"])
    arrays = []
    for each in schema:
        if each.name == "chain":
            arrays.append(pa.repeat(pa.scalar(chain), count))
            continue
        values = columns[each.name]
        if values is None:
            arrays.append(pa.nulls(count, each.type))
        elif isinstance(values, tuple):
            arrays.append(pa.array(values[0], mask=~values[1]).cast(each.type))
        else:
            arrays.append((values if isinstance(values, pa.Array) else pa.array(values)).cast(each.type))
    return pa.Table.from_arrays(arrays, schema=schema)
