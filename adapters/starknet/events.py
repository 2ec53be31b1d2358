"""Movements and approvals of tokens, by the events of their contracts.

Parties stand in the keys where a contract is young, in the data where it is old; amounts are of 256 bits in two felts,
or one felt. An old collection says `Transfer` and `Approval` exactly as an old token does: only the contract knows what
it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from chainfolio.adapters.starknet.felts import Padded, padded, selector, u256
from chainfolio.adapters.starknet.forms import Event

TRANSFER: Final = padded(selector("Transfer"))
SINGLE: Final = padded(selector("TransferSingle"))
BATCH: Final = padded(selector("TransferBatch"))
APPROVAL: Final = padded(selector("Approval"))
FOR_ALL: Final = padded(selector("ApprovalForAll"))
MOVES: Final = frozenset([TRANSFER, SINGLE, BATCH])
ALLOWS: Final = frozenset([APPROVAL, FOR_ALL])
ENDS: Final = frozenset(name[-8:] for name in MOVES | ALLOWS)  # of a name in any spelling, in lower case
UNSURE: Final = "transfer"
Pair = tuple[str, str, str, int]  # a standard, two parties, an amount or the number of a collectible
# What was moved: the standard, from whom, to whom, how much, the number of a collectible, the operator, the place in a
# batch. Where the standard is UNSURE, how much is an amount or the number of a collectible.
Moved = tuple[str, str, str, int, int | None, str | None, int]


class Allowed(NamedTuple):
    """What one event allowed. Where `standard` is UNSURE, `raw` is an amount or the number of a collectible."""

    standard: str
    owner: str
    spender: str
    raw: int | None = None
    token_id: int | None = None
    approved: bool | None = None


def moved(forms: Padded, name: str, event: Event) -> Iterable[Moved]:
    """What an event of that name moved; nothing where it has another shape than the events of tokens have."""
    if name == TRANSFER:
        if (found := _pair(forms, event)) is None:
            return ()
        standard, sender, recipient, raw = found
        if standard == "erc721":
            return ((standard, sender, recipient, 1, raw, None, 0),)
        return ((standard, sender, recipient, raw, None, None, 0),)
    return (_single if name == SINGLE else _batch)(forms, event.keys[1:], event.data)


def allowed(forms: Padded, name: str, event: Event) -> Allowed | None:
    """What an event of that name allowed; None where it has another shape than the events of tokens have."""
    if name == FOR_ALL:
        keys, data = event.keys[1:], event.data
        said = (*keys, *data)
        if (len(keys), len(data)) not in ((0, 3), (2, 1), (3, 0)) or (yes := forms.numbers[said[2]]) > 1:
            return None
        return Allowed("operator", forms[said[0]], forms[said[1]], approved=yes == 1)
    found = _pair(forms, event)
    if found is None:
        return None
    standard, owner, spender, raw = found
    return Allowed(standard, owner, spender, *((None, raw) if standard == "erc721" else (raw,)))


def _pair(forms: Padded, event: Event) -> Pair | None:
    """What the events of two parties say behind their name."""
    in_keys, said, numbers = len(event.keys), event.keys + event.data, forms.numbers
    if len(said) == 5 and in_keys in (1, 3, 5):
        _, one, other, low, high = said
        raw = u256(numbers[low], numbers[high])
        standard = UNSURE if in_keys == 1 else "erc20" if in_keys == 3 else "erc721"
        return None if raw is None else (standard, forms[one], forms[other], raw)
    if len(said) == 4 and in_keys in (1, 3):
        return "erc20", forms[said[1]], forms[said[2]], numbers[said[3]]
    return None


def _single(forms: Padded, keys: Sequence[str], data: Sequence[str]) -> Iterator[Moved]:
    """The operator, from, to; an id and an amount."""
    if len(keys) + len(data) == 7 and len(keys) in (0, 3):
        operator, sender, recipient, *rest = *keys, *data
        yield from _editions(forms, (operator, sender, recipient), rest[:2], rest[2:])


def _batch(forms: Padded, keys: Sequence[str], data: Sequence[str]) -> Iterator[Moved]:
    """The operator, from, to; a list of ids and a list of as many amounts, each behind its length."""
    if len(keys) in (0, 3) and len(keys) + len(data) >= 5:
        operator, sender, recipient, *rest = *keys, *data
        count = forms.numbers[rest[0]]
        if len(rest) == 2 + 4 * count and forms.numbers[rest[1 + 2 * count]] == count:
            yield from _editions(forms, (operator, sender, recipient), rest[1 : 1 + 2 * count], rest[2 + 2 * count :])


def _editions(
    forms: Padded, parties: tuple[str, str, str], numbers: Sequence[str], amounts: Sequence[str]
) -> Iterator[Moved]:
    operator, sender, recipient = (forms[each] for each in parties)
    halves = [forms.numbers[each] for each in (*numbers, *amounts)]
    values = [u256(halves[at], halves[at + 1]) for at in range(0, len(halves), 2)]
    count = len(values) // 2
    for item, (number, raw) in enumerate(zip(values[:count], values[count:], strict=True)):
        if number is not None and raw is not None:
            yield "erc1155", sender, recipient, raw, number, operator, item
