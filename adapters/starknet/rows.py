"""Rows of blocks, transactions, movements and approvals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from chainfolio.adapters.starknet.datasets import NATIVE, TOKENS
from chainfolio.adapters.starknet.events import ALLOWS, ENDS, MOVES, UNSURE, allowed, moved
from chainfolio.adapters.starknet.facts import Facts
from chainfolio.adapters.starknet.felts import Padded
from chainfolio.adapters.starknet.forms import Done, Event, Whole
from chainfolio.adapters.starknet.transactions import NOBODY, charged, nonce, parties, version
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer
from chainfolio.tables import APPROVALS, BLOCKS, TRANSACTIONS, TRANSFERS

PAID: Final = (
    "height",
    "time",
    "tx_index",
    "hash",
    "sender",
    "recipient",
    "created",
    "nonce",
    "type",
    "status",
    "fee",
    "input",
)
MOVEMENT: Final = (
    "height",
    "time",
    "tx_index",
    "log_index",
    "tx_hash",
    "token",
    "standard",
    "sender",
    "recipient",
    "raw",
    "token_id",
    "operator",
    "item",
)
APPROVAL: Final = (
    "height",
    "time",
    "tx_index",
    "log_index",
    "tx_hash",
    "token",
    "standard",
    "owner",
    "spender",
    "raw",
    "token_id",
    "approved",
)
NO_RAW: Final = bytes(32)
LONGEST: Final = 8  # felts of an event that moves one thing: longer ones are rare, and without bound
CALL: Final = 4  # felts of what an account was asked to do that say whom it calls first
NO_LOG: Final = -1  # place of a movement that no event shows
Row = tuple[Any, ...]
Said = tuple[int, Event]  # an event that may be of a token, and its place in the block


@dataclass(frozen=True, slots=True)
class Read:
    """A block with the rows of what was done in it: of transactions, of movements as MOVEMENT names them, of approvals
    as APPROVAL does. `named` are the transactions whose events name, in their keys, accounts that were looked for."""

    block: Block
    paid: list[Row]
    movements: list[Row]
    approvals: list[Row]
    named: frozenset[str] = frozenset()

    @property
    def unsure(self) -> set[str]:
        """The contracts of which their events do not say whether they are tokens or collections."""
        return {row[5] for row in (*self.movements, *self.approvals) if row[6] == UNSURE}


def read(source: str, height: int, whole: Whole, facts: Facts) -> Read:
    """The rows of a block."""
    block, forms = whole.block(source, height), Padded(source)
    whole.check_counts(source)
    spoken = _spoken(forms, whole.transactions)
    found, sequencer, time = Read(block, [], [], []), forms[whole.sequencer_address], block.time
    for tx_index, (done, said) in enumerate(zip(whole.transactions, spoken, strict=True)):
        fee, unit = charged(forms.numbers, done.transaction, done.receipt)
        is_native = unit == facts.fee_unit
        row = _paid(forms, (height, time, tx_index), done, fee if is_native else 0)
        found.paid.append(row)
        before = len(found.movements)
        _say(found, forms, row, said)
        if fee:
            _settle_fee(found.movements, before, row, (facts.fee_token(unit), sequencer, fee), is_native)
    if len({row[3] for row in found.paid}) != len(found.paid):
        raise BadAnswer(source, f"block {height} has a transaction twice")
    return found


def _spoken(forms: Padded, done: Sequence[Done]) -> list[list[Said]]:
    """The events that may be of tokens, by transactions. The felts that rows are made of are learnt."""
    spoken, words, log_index = [], list[str](), 0
    for each in done:
        events, body = each.receipt.events, each.transaction
        said = [(at, it) for at, it in enumerate(events, log_index) if it.keys and it.keys[0][-8:].lower() in ENDS]
        words += (each.receipt.transaction_hash, body.sender_address or "0x0", *body.calldata[:CALL])
        for _, event in said:
            if len(event.keys) + len(event.data) <= LONGEST:
                words.append(event.from_address)
                words += event.keys
                words += event.data
        spoken.append(said)
        log_index += len(events)
    forms.learn(words)
    return spoken


def _paid(forms: Padded, place: tuple[int, datetime, int], done: Done, fee: int) -> Row:
    """The row of a transaction."""
    body, receipt, numbers = done.transaction, done.receipt, forms.numbers
    hashed = forms[receipt.transaction_hash]
    if body.transaction_hash is not None and forms[body.transaction_hash] != hashed:
        raise BadAnswer(forms.source, f"a transaction with the receipt of another one, {hashed}")
    sender, recipient, created, called = parties(forms, body, receipt)
    return (
        *place,
        hashed,
        sender,
        recipient,
        created,
        nonce(numbers, body),
        version(numbers, body),
        int(not receipt.failed),
        fee.to_bytes(32, "big"),
        called,
    )


def _say(found: Read, forms: Padded, row: Row, said: Sequence[Said]) -> None:
    """Adds what the events of a transaction moved, and what they allowed."""
    height, time, tx_index, tx_hash = row[:4]
    for at, event in said:
        name, token = forms[event.keys[0]], forms[event.from_address]
        if name in MOVES:
            for each in moved(forms, name, event):
                found.movements.append((height, time, tx_index, at, tx_hash, token, *each))
        elif name in ALLOWS and (given := allowed(forms, name, event)) is not None:
            found.approvals.append((height, time, tx_index, at, tx_hash, token, *given))


def _settle_fee(movements: list[Row], before: int, row: Row, payment: tuple[str, str, int], is_native: bool) -> None:
    """Make the fee of a transaction count once: in its row if it is of the native coin, else as a movement.

    Args:
        movements: those of the block; the transaction's own begin at `before`. Changed in place.
        row: the transaction; its sender pays.
        payment: the token, the sequencer (zero if the node does not name it) and the amount.
        is_native: the row of the transaction has the fee.
    """
    token, sequencer, fee = payment
    newest_first = range(len(movements) - 1, before - 1, -1)
    shown = next((at for at in newest_first if _is_payment(movements[at], row[4], payment)), None)
    if is_native and shown is not None:
        del movements[shown]
    elif not is_native and shown is None:  # fees had no event at first (mainnet block 2800)
        paid = (*row[:3], NO_LOG, row[3], token, "erc20", row[4], sequencer, fee, None, None, 0)
        movements.insert(before, paid)


def _is_payment(movement: Row, payer: str, payment: tuple[str, str, int]) -> bool:
    """Return True if a movement is the event of a fee: of its token and amount, from who pays to the sequencer."""
    token, sequencer, fee = payment
    contract, sender, recipient, raw = movement[5], *movement[7:10]
    return (contract, sender, raw) == (token, payer, fee) and sequencer in (recipient, NOBODY)


def tables(
    chain: str,
    blocks: Sequence[Read],
    datasets: Collection[str],
    contracts: Collection[str],
    coin: str,
    collections: Mapping[str, bool],
) -> dict[str, pa.Table]:
    """The rows of blocks in the tables that some datasets fill. `collections` says of the contracts whose events do not
    whether they are collections."""
    found = {}
    if "blocks" in datasets:
        rows: list[Row] = [(b.block.height, b.block.time, b.block.hash, b.block.parent, len(b.paid)) for b in blocks]
        found["blocks"] = BLOCKS.filled(chain, ("height", "time", "hash", "parent", "tx_count"), rows)
    if "transactions" in datasets:
        rows = [row for each in blocks for row in each.paid]
        found["transactions"] = TRANSACTIONS.filled(chain, PAID, rows, raw=NO_RAW)
    standards = {*(NATIVE if "native" in datasets else ()), *(TOKENS if "transfers" in datasets else ())}
    if standards:
        wanted = (row for each in blocks for row in each.movements if "transfers" in datasets or row[5] == coin)
        rows = [_settled(row, coin, collections) for row in wanted]
        rows = [row for row in rows if row[6] in standards and not (contracts and row[5] and row[5] not in contracts)]
        found["transfers"] = TRANSFERS.filled(chain, MOVEMENT, rows)
    if "approvals" in datasets:
        rows = [_sure(row, coin, collections) for each in blocks for row in each.approvals]
        rows = [row for row in rows if not contracts or row[5] in contracts]
        found["approvals"] = APPROVALS.filled(chain, APPROVAL, rows)
    return found


def _settled(row: Row, coin: str, collections: Mapping[str, bool]) -> Row:
    """A movement whose standard is sure: of the native coin, of a token, of a collectible by its number."""
    token, standard, raw, number = row[5], row[6], row[9], row[10]
    if token == coin:
        token, standard = None, NATIVE[0]
    elif standard == UNSURE:
        standard = "erc20"
        if collections[token]:
            standard, raw, number = "erc721", 1, raw
    return *row[:5], token, standard, *row[7:9], _bytes(raw), _bytes(number), *row[11:]


def _sure(row: Row, coin: str, collections: Mapping[str, bool]) -> Row:
    """An approval whose standard is sure: of an amount, or of a collectible by its number."""
    token, standard, raw, number = row[5], row[6], row[9], row[10]
    if standard == UNSURE:
        standard = "erc20"
        if token != coin and collections[token]:
            standard, raw, number = "erc721", None, raw
    return *row[:6], standard, *row[7:9], _bytes(raw), _bytes(number), *row[11:]


def _bytes(number: int | None) -> bytes | None:
    return None if number is None else number.to_bytes(32, "big")
