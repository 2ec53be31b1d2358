"""Movements and approvals of tokens, by the events of their contracts.

Parties stand in the keys where a contract is young, in the data where it is old; amounts are of 256 bits in two felts,
or one felt. An old collection says `Transfer` and `Approval` exactly as an old token does: only the contract knows what
it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from adapters.starknet.felts import Padded, felt, padded, selector, u256
from adapters.starknet.forms import Event

TRANSFER: Final = padded(selector("Transfer"))
SINGLE: Final = padded(selector("TransferSingle"))
BATCH: Final = padded(selector("TransferBatch"))
APPROVAL: Final = padded(selector("Approval"))
FOR_ALL: Final = padded(selector("ApprovalForAll"))
MOVES: Final = frozenset([TRANSFER, SINGLE, BATCH])
ALLOWS: Final = frozenset([APPROVAL, FOR_ALL])
NAMES: Final = MOVES | ALLOWS
ENDS: Final = frozenset(name[-8:] for name in NAMES)  # of a name in any spelling, in lower case
UNSURE: Final = "transfer"


class Moved(NamedTuple):
    """What one event moved. Where `standard` is UNSURE, `raw` is an amount or the number of a collectible."""

    standard: str
    sender: str
    recipient: str
    raw: int
    token_id: int | None = None
    operator: str | None = None
    item: int = 0


class Allowed(NamedTuple):
    """What one event allowed. Where `standard` is UNSURE, `raw` is an amount or the number of a collectible."""

    standard: str
    owner: str
    spender: str
    raw: int | None = None
    token_id: int | None = None
    approved: bool | None = None


def name_of(forms: Padded, event: Event) -> str:
    """The name of an event of tokens; empty for any other."""
    if not event.keys or event.keys[0][-8:].lower() not in ENDS:
        return ""
    name = forms[event.keys[0]]
    return name if name in NAMES else ""


def moved(forms: Padded, name: str, event: Event) -> Sequence[Moved]:
    """What an event of that name moved; nothing where it has another shape than the events of tokens have."""
    if name == TRANSFER:
        found = _transfer(forms, event.keys[1:], event.data)
        return (found,) if found else ()
    return tuple((_single if name == SINGLE else _batch)(forms, event.keys[1:], event.data))


def allowed(forms: Padded, name: str, event: Event) -> Allowed | None:
    """What an event of that name allowed; None where it has another shape than the events of tokens have."""
    keys, data = event.keys[1:], event.data
    if name == FOR_ALL:
        said = (*keys, *data)
        if (len(keys), len(data)) not in ((0, 3), (2, 1), (3, 0)) or (yes := felt(forms.source, said[2])) > 1:
            return None
        return Allowed("operator", forms[said[0]], forms[said[1]], approved=yes == 1)
    found = _pair(forms, keys, data)
    if found is None:
        return None
    standard, owner, spender, raw = found
    return Allowed(standard, owner, spender, *((None, raw) if standard == "erc721" else (raw,)))


def _transfer(forms: Padded, keys: Sequence[str], data: Sequence[str]) -> Moved | None:
    found = _pair(forms, keys, data)
    if found is None:
        return None
    standard, sender, recipient, raw = found
    return Moved(standard, sender, recipient, *((1, raw) if standard == "erc721" else (raw,)))


def _pair(forms: Padded, keys: Sequence[str], data: Sequence[str]) -> tuple[str, str, str, int] | None:
    """The standard, two parties, and an amount or the number of a collectible."""
    said, in_keys = [*keys, *data], len(keys)
    if len(said) == 4 and in_keys in (0, 2, 4):
        raw = u256(felt(forms.source, said[2]), felt(forms.source, said[3]))
        standard = UNSURE if not in_keys else "erc20" if data else "erc721"
        return None if raw is None else (standard, forms[said[0]], forms[said[1]], raw)
    if len(said) == 3 and in_keys in (0, 2):
        return "erc20", forms[said[0]], forms[said[1]], felt(forms.source, said[2])
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
        count = felt(forms.source, rest[0])
        if len(rest) == 2 + 4 * count and felt(forms.source, rest[1 + 2 * count]) == count:
            yield from _editions(
                forms, (operator, sender, recipient), rest[1 : 1 + 2 * count], rest[2 + 2 * count :]
            )  # fmt: skip


def _editions(
    forms: Padded, parties: tuple[str, str, str], numbers: Sequence[str], amounts: Sequence[str]
) -> Iterator[Moved]:
    operator, sender, recipient = (forms[each] for each in parties)
    halves = [felt(forms.source, each) for each in (*numbers, *amounts)]
    values = [u256(halves[at], halves[at + 1]) for at in range(0, len(halves), 2)]
    count = len(values) // 2
    for item, (number, raw) in enumerate(zip(values[:count], values[count:], strict=True)):
        if number is not None and raw is not None:
            yield Moved("erc1155", sender, recipient, raw, number, operator, item)
