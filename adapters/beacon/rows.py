"""Rows of the tables from blocks and settled epochs."""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from chainfolio.adapters.beacon.block_responses import BlockMessage
from chainfolio.adapters.beacon.epochs import SettledEpoch
from chainfolio.adapters.beacon.spec import Spec
from chainfolio.adapters.beacon.validator_table import NEVER, Array, Column, ValidatorTable
from chainfolio.blocks import Block
from chainfolio.staking_tables import (
    DEPOSITS,
    PROPOSALS,
    STAKE_CHANGES,
    STAKE_REQUESTS,
    VALIDATOR_REWARDS,
    VALIDATORS,
    WITHDRAWALS,
)
from chainfolio.table import BUCKETS, Table, bucket
from chainfolio.tables import BLOCKS

IndexFilter = Callable[[int], bool]
KeyFilter = Callable[[str, str], bool]  # public key and withdrawal credentials
HEX_ROWS: Final = 50_000  # rows that are encoded at a time


def blocks(chain: str, pairs: Sequence[tuple[Block, BlockMessage]]) -> pa.Table:
    """Return the rows of blocks.

    `miner` is the fee recipient on the execution chain, None before the merge. `tx_count` is 0.
    """
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
        for block, message in pairs
    ]
    return pa.Table.from_pylist(rows, BLOCKS.schema())


def proposals(chain: str, spec: Spec, messages: Iterable[BlockMessage], includes: IndexFilter) -> pa.Table:
    """Return a row per block with an included proposer: the proposer, and its execution block.

    The execution block is None before the merge.
    """
    rows = []
    for each in messages:
        payload, proposer = each.body.execution_payload, each.proposer_index
        has_payload = payload is not None and int(payload.block_hash, 16) != 0
        if includes(proposer):
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


def withdrawals(chain: str, spec: Spec, pairs: Sequence[tuple[Block, BlockMessage]], includes: IndexFilter) -> pa.Table:
    """Return a row per withdrawal of an included validator, in gwei."""
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
        for block, message in pairs
        if message.body.execution_payload is not None
        for each in message.body.execution_payload.withdrawals
        if includes(each.validator_index)
    ]
    return pa.Table.from_pylist(rows, WITHDRAWALS.schema())


def deposits(chain: str, spec: Spec, pairs: Sequence[tuple[Block, BlockMessage]], includes: KeyFilter) -> pa.Table:
    """Return the included deposits of blocks: by the bridge, whose number no block gives, and by request.

    The latter are those of EIP-6110. `includes` gets public key and credentials in lower case. `item` counts all
    deposits of the block, bridge first.
    """
    rows = []
    for block, message in pairs:
        parts: list[tuple[str, int | None, str, str, int]] = [
            ("bridge", None, each.data.pubkey, each.data.withdrawal_credentials, each.data.amount)
            for each in message.body.deposits
        ]
        parts += [
            ("request", each.index, each.pubkey, each.withdrawal_credentials, each.amount)
            for each in message.body.execution_requests.deposits
        ]
        for item, (kind, number, pubkey, credentials, gwei) in enumerate(parts):
            if includes(pubkey.lower(), credentials.lower()):
                position = _position(chain, spec, block, pubkey, item)
                details = {"number": number, "kind": kind, "credentials": credentials.lower(), "gwei": gwei}
                rows.append({**position, **details})
    return pa.Table.from_pylist(rows, DEPOSITS.schema())


def _position(chain: str, spec: Spec, block: Block, pubkey: str, item: int) -> dict[str, object]:
    """Return the columns that say where an item of a block stands, and the validator that it is about."""
    return {
        "chain": chain,
        "bucket": bucket(pubkey.lower()),
        "pubkey": pubkey.lower(),
        "epoch": spec.epoch(block.height),
        "height": block.height,
        "time": block.time,
        "item": item,
    }


def stake_requests(
    chain: str, spec: Spec, pairs: Sequence[tuple[Block, BlockMessage]], includes: KeyFilter
) -> pa.Table:
    """Return the rows of included execution requests: withdrawals and exits, then consolidations.

    An exit has 0 gwei. `includes` gets the source's public key and its address as credentials. `item` counts all
    requests of a block.
    """
    rows = []
    for block, message in pairs:
        requests = message.body.execution_requests
        parts: list[tuple[str, str, str, str | None, int | None]] = [
            ("withdrawal" if each.amount else "exit", each.validator_pubkey, each.source_address, None, each.amount)
            for each in requests.withdrawals
        ]
        parts += [
            ("consolidation", each.source_pubkey, each.source_address, each.target_pubkey.lower(), None)
            for each in requests.consolidations
        ]
        for item, (kind, pubkey, address, target, gwei) in enumerate(parts):
            if includes(pubkey.lower(), f"0x01{'0' * 22}{address[2:].lower()}"):
                position = _position(chain, spec, block, pubkey, item)
                details = {"kind": kind, "address": address.lower(), "target": target, "gwei": gwei}
                rows.append({**position, **details})
    return pa.Table.from_pylist(rows, STAKE_REQUESTS.schema())


def rewards(chain: str, epochs: Sequence[SettledEpoch]) -> pa.Table:
    """Return the rows of validator rewards of one or more epochs."""
    counts = [len(each.validators) for each in epochs]
    index = np.concatenate([each.validators for each in epochs])
    columns = {name: _join_column(counts, [each.columns[name] for each in epochs]) for name in epochs[0].columns}
    return _build_table(VALIDATOR_REWARDS, chain, index, columns)


def _join_column(counts: Sequence[int], parts: Sequence[Column]) -> Column:
    """Return the parts of a column as one; `counts` has the rows of each part."""
    if len(parts) == 1:
        return parts[0]
    arrays = [each for each in parts if isinstance(each, np.ndarray)]
    if len(arrays) == len(parts):
        return np.concatenate(arrays)
    values, is_valid = zip(*map(_with_validity, counts, parts), strict=True)
    return np.concatenate(values), np.concatenate(is_valid)


def _with_validity(count: int, part: Column) -> tuple[Array, Array]:
    if part is None:
        return np.zeros(count, np.int64), np.zeros(count, np.bool_)
    return part if isinstance(part, tuple) else (part, np.ones(count, np.bool_))


def validator_rows(chain: str, epoch: int, height: int, state: ValidatorTable, selected: Array | slice) -> pa.Table:
    """Return keys, credentials, effective balances and epochs of the selected validators of a state."""
    index = state.index[selected]
    columns = {
        "epoch": np.full(len(index), epoch),
        "height": np.full(len(index), height),
        "pubkey": _hex(state.pubkey[selected]),
        "credentials": _hex(state.credentials[selected]),
        "effective": state.effective_balance[selected],
        "slashed": state.slashed[selected],
        "eligible": _epochs(state.activation_eligibility_epoch[selected]),
        "activated": _epochs(state.activation_epoch[selected]),
        "exited": _epochs(state.exit_epoch[selected]),
        "withdrawable": _epochs(state.withdrawable_epoch[selected]),
    }
    return _build_table(VALIDATORS, chain, index, columns)


def changes(chain: str, epochs: Sequence[SettledEpoch]) -> pa.Table:
    """Return the rows of balance changes other than rewards and withdrawals.

    `item` counts the changes of one validator in one epoch, from 0.
    """
    rows = []
    for epoch in epochs:
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


def concatenate(parts: Sequence[pa.Table], table: Table) -> pa.Table:
    """Return the parts of a table as one, empty if there are none."""
    return pa.concat_tables(parts) if parts else table.schema().empty_table()


def _hex(values: Array) -> pa.Array:
    """Return bytes of one size as hex texts."""
    count, size = len(values), values.dtype.itemsize
    text = np.empty((count, 1 + size), "V2")  # two letters for each byte
    text[:, 0] = np.void(b"0x")
    for first in range(0, count, HEX_ROWS):
        part = values[first : first + HEX_ROWS]
        text[first : first + HEX_ROWS, 1:] = np.frombuffer(hexlify(part.tobytes()), "V2").reshape(len(part), size)
    ends = np.arange(count + 1, dtype=np.int32) * (2 + 2 * size)
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(text))


def _epochs(values: Array) -> tuple[Array, Array]:
    return values, values != NEVER


def _build_table(table: Table, chain: str, index: Array, columns: Mapping[str, Column | pa.Array]) -> pa.Table:
    """Return a table in its schema's columns, with the chain, `index` as the validator, and its bucket.

    A column None is null; a pair has values and a mask that is False for nulls.
    """
    schema, arrays, count = table.schema(), [], len(index)
    columns = {**columns, "validator": index, "bucket": index % BUCKETS}
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
