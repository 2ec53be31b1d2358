"""Transfers and approvals of tokens, decoded from the events of their contracts.

New contracts put the parties into an event's keys, old ones into its data. An amount is one felt, or 256 bits in two
felts. Old collections emit the same `Transfer` and `Approval` as old tokens: only a call of the contract can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from chainfolio.adapters.starknet.felts import FormattedFelts, format_felt, selector, u256
from chainfolio.adapters.starknet.forms import Event

TRANSFER: Final = format_felt(selector("Transfer"))
TRANSFER_SINGLE: Final = format_felt(selector("TransferSingle"))
TRANSFER_BATCH: Final = format_felt(selector("TransferBatch"))
APPROVAL: Final = format_felt(selector("Approval"))
APPROVAL_FOR_ALL: Final = format_felt(selector("ApprovalForAll"))
TRANSFER_EVENTS: Final = frozenset([TRANSFER, TRANSFER_SINGLE, TRANSFER_BATCH])
APPROVAL_EVENTS: Final = frozenset([APPROVAL, APPROVAL_FOR_ALL])
# The last eight lower-case digits of these names, which are the same with and without leading zeros.
NAME_SUFFIXES: Final = frozenset(name[-8:] for name in TRANSFER_EVENTS | APPROVAL_EVENTS)
AMBIGUOUS: Final = "transfer"  # the standard of an event that a token or a collection may have emitted
PartyEvent = tuple[str, str, str, int]  # standard, both parties, amount or token id


class Movement(NamedTuple):
    """A transfer by one event. If `standard` is AMBIGUOUS, `raw` is an amount or a token id.

    `item` counts the transfers of one event.
    """

    standard: str
    sender: str
    recipient: str
    raw: int
    token_id: int | None = None
    operator: str | None = None
    item: int = 0


class ApprovalEvent(NamedTuple):
    """An approval by one event. If `standard` is AMBIGUOUS, `raw` is an amount or a token id."""

    standard: str
    owner: str
    spender: str
    raw: int | None = None
    token_id: int | None = None
    approved: bool | None = None


def decode_transfers(felts: FormattedFelts, name: str, event: Event) -> Iterable[Movement]:
    """Return the transfers of an event; none if it does not have the layout of a token's event.

    `name` is its formatted first key, one of TRANSFER_EVENTS. An invalid felt raises BadAnswer.
    """
    if name == TRANSFER:
        if (decoded := _decode_parties(felts, event)) is None:
            return ()
        standard, sender, recipient, raw = decoded
        if standard == "erc721":
            return (Movement(standard, sender, recipient, 1, raw),)
        return (Movement(standard, sender, recipient, raw),)
    return (_decode_single if name == TRANSFER_SINGLE else _decode_batch)(felts, event.keys[1:], event.data)


def decode_approval(felts: FormattedFelts, name: str, event: Event) -> ApprovalEvent | None:
    """Return the approval of an event; None if it does not have the layout of a token's event.

    `name` is its formatted first key, one of APPROVAL_EVENTS. An invalid felt raises BadAnswer.
    """
    if name == APPROVAL_FOR_ALL:
        keys, data = event.keys[1:], event.data
        fields = (*keys, *data)
        if (len(keys), len(data)) not in ((0, 3), (2, 1), (3, 0)) or (approved := felts.numbers[fields[2]]) > 1:
            return None
        return ApprovalEvent("operator", felts[fields[0]], felts[fields[1]], approved=approved == 1)
    decoded = _decode_parties(felts, event)
    if decoded is None:
        return None
    standard, owner, spender, raw = decoded
    return ApprovalEvent(standard, owner, spender, *((None, raw) if standard == "erc721" else (raw,)))


def _decode_parties(felts: FormattedFelts, event: Event) -> PartyEvent | None:
    """Decode `Transfer` or `Approval`: standard, two parties, and an amount or a token id.

    If all fields are in the data, the standard is AMBIGUOUS. None for other layouts and amounts that are no u256.
    """
    key_count, fields, numbers = len(event.keys), event.keys + event.data, felts.numbers
    if len(fields) == 5 and key_count in (1, 3, 5):
        _, sender, recipient, low, high = fields
        raw = u256(numbers[low], numbers[high])
        standard = AMBIGUOUS if key_count == 1 else "erc20" if key_count == 3 else "erc721"
        return None if raw is None else (standard, felts[sender], felts[recipient], raw)
    if len(fields) == 4 and key_count in (1, 3):
        return "erc20", felts[fields[1]], felts[fields[2]], numbers[fields[3]]
    return None


def _decode_single(felts: FormattedFelts, keys: Sequence[str], data: Sequence[str]) -> Iterator[Movement]:
    """Decode operator, sender and recipient, one token id and one amount."""
    if len(keys) + len(data) == 7 and len(keys) in (0, 3):
        operator, sender, recipient, *values = *keys, *data
        yield from _decode_items(felts, (operator, sender, recipient), values[:2], values[2:])


def _decode_batch(felts: FormattedFelts, keys: Sequence[str], data: Sequence[str]) -> Iterator[Movement]:
    """Decode operator, sender, recipient, a list of token ids and one of amounts, each after its length."""
    if len(keys) in (0, 3) and len(keys) + len(data) >= 5:
        operator, sender, recipient, *lists = *keys, *data
        count = felts.numbers[lists[0]]
        if len(lists) == 2 + 4 * count and felts.numbers[lists[1 + 2 * count]] == count:
            ids, amounts = lists[1 : 1 + 2 * count], lists[2 + 2 * count :]
            yield from _decode_items(felts, (operator, sender, recipient), ids, amounts)


def _decode_items(
    felts: FormattedFelts, parties: tuple[str, str, str], ids: Sequence[str], amounts: Sequence[str]
) -> Iterator[Movement]:
    """Yield the ERC-1155 movements of one event; items whose id or amount is malformed are left out."""
    operator, sender, recipient = (felts[each] for each in parties)
    halves = [felts.numbers[each] for each in (*ids, *amounts)]
    values = [u256(halves[at], halves[at + 1]) for at in range(0, len(halves), 2)]
    count = len(values) // 2
    for item, (token_id, raw) in enumerate(zip(values[:count], values[count:], strict=True)):
        if token_id is not None and raw is not None:
            yield Movement("erc1155", sender, recipient, raw, token_id, operator, item)
