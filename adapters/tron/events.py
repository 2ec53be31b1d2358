"""Movements of tokens by the events of their contracts, and of coins by what contracts call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from adapters.tron.addresses import ZERO, of_hex, shown
from adapters.tron.datasets import INTERNAL
from adapters.tron.forms import Internal, Log
from chainfolio.errors import BadAnswer

TRANSFER: Final = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
SINGLE: Final = "c3d58168c5ae7397731d063d5bbf3d657854427343f4c083240f7aacaa2d0f62"
BATCH: Final = "4a39dc06d4c0dbc64b70af90fd698a233a518aa5d07e595d983b8c0526c8f7fb"
DEPOSIT: Final = "e1fffcc4923d04b559f4d29a8bfc6cda04eb5b0d3c460751c2402c5c5cc9109c"
WITHDRAWAL: Final = "7fcf532c15f0a6db0bd6d0e038bea71d30d808c7d98cb3bf7268a95bf5081b65"
APPROVAL: Final = "8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925"
FOR_ALL: Final = "17307eab39ab6107e8899845ad3d59bd9653f200f220920489ca2b5937696c31"
TOLD: Final = frozenset([TRANSFER, SINGLE, BATCH, DEPOSIT, WITHDRAWAL, APPROVAL, FOR_ALL])  # events that make rows
WORD: Final = 64  # digits
CALLS: Final = frozenset(["call", "create", "suicide", "selfdestruct", ""])
TAKES: Final = ("freezeBalanceV2For", "freezeFor")
GIVES: Final = ("unfreezeFor", "withdrawExpireUnfreeze", "withdrawReward", "cancelAllUnfreezeV2")
NOTHING: Final = ("unfreezeBalanceV2For", "delegateResourceOf", "unDelegateResourceOf", "voteWitness")


class Moved(NamedTuple):
    """What one event or one call moved. `token` is a contract, a number, or None for the native coin."""

    standard: str
    token: str | None
    sender: str
    recipient: str
    raw: int
    token_id: int | None = None
    operator: str | None = None
    item: int = 0


def moved(source: str, log: Log, wrapped: str | None) -> Sequence[Moved]:
    """What an event moved; nothing where it has another shape than the events of tokens have."""
    name = log.topics[0] if log.topics else ""
    if name == TRANSFER:
        return _transfer(source, log)
    if name in (SINGLE, BATCH):
        return _editions(source, log)
    if name in (DEPOSIT, WITHDRAWAL) and wrapped is not None:
        return _wrap(source, log, wrapped)
    return ()


def _transfer(source: str, log: Log) -> Sequence[Moved]:
    match len(log.topics), len(log.data):
        case 3, 64:  # one word
            standard, raw, token_id = "trc20", _word(source, log.data, 0), None
        case 4, 0:
            standard, raw, token_id = "trc721", 1, _word(source, log.topics[3], 0)
        case _:
            return ()
    sender, recipient = (_address(source, each) for each in log.topics[1:3])
    if sender is None or recipient is None:
        return ()
    return (Moved(standard, of_hex(source, log.address), sender, recipient, raw, token_id),)


def approved(source: str, log: Log) -> Sequence[Any]:
    """Whom an event lets take what: token, standard, owner, spender, number, amount, whether it is so. Nothing where it
    lets nobody."""
    name = log.topics[0] if log.topics else ""
    if name not in (APPROVAL, FOR_ALL) or len(log.topics) < 3:
        return ()
    owner, spender = (_address(source, each) for each in log.topics[1:3])
    if owner is None or spender is None:
        return ()
    shape, token = (len(log.topics), len(log.data)), of_hex(source, log.address)
    if name == APPROVAL and shape == (3, WORD):
        return token, "erc20", owner, spender, None, _word(source, log.data, 0).to_bytes(32, "big"), None
    if name == APPROVAL and shape == (4, 0):
        return token, "erc721", owner, spender, _word(source, log.topics[3], 0).to_bytes(32, "big"), None, None
    if name == FOR_ALL and shape == (3, WORD) and (said := _word(source, log.data, 0)) < 2:
        return token, "operator", owner, spender, None, None, bool(said)
    return ()


def _wrap(source: str, log: Log, wrapped: str) -> Sequence[Moved]:
    """Deposits and withdrawals of the wrapped coin, which writes no Transfer for them."""
    if len(log.topics) != 2 or len(log.data) != WORD or of_hex(source, log.address) != wrapped:
        return ()
    who, raw = _address(source, log.topics[1]), _word(source, log.data, 0)
    if who is None:
        return ()
    if log.topics[0] == DEPOSIT:
        return (Moved("wrap", wrapped, ZERO, who, raw),)
    return (Moved("unwrap", wrapped, who, ZERO, raw),)


def _editions(source: str, log: Log) -> Sequence[Moved]:
    """Of one edition, its number and how many; of several, a list of numbers and one of as many amounts."""
    if len(log.topics) != 4:
        return ()
    operator, sender, recipient = (_address(source, each) for each in log.topics[1:])
    if operator is None or sender is None or recipient is None:
        return ()
    if log.topics[0] == SINGLE:
        pairs = _pairs(_words(source, log.data), 0, 1, 1) if len(log.data) == 2 * WORD else ()
    else:
        pairs = _listed(_words(source, log.data))
    token = of_hex(source, log.address)
    return tuple(
        Moved("trc1155", token, sender, recipient, raw, token_id, operator, item)
        for item, (token_id, raw) in enumerate(pairs)
    )


def _listed(words: Sequence[int]) -> Sequence[tuple[int, int]]:
    """The two lists of a batch, each behind its length, where they lie one behind the other as compilers write them."""
    if len(words) < 4 or words[0] != 64:
        return ()
    count = words[2]
    if len(words) != 4 + 2 * count or words[1] != 32 * (3 + count) or words[3 + count] != count:
        return ()
    return _pairs(words, 3, 4 + count, count)


def _pairs(words: Sequence[int], numbers: int, amounts: int, count: int) -> Sequence[tuple[int, int]]:
    return [(words[numbers + at], words[amounts + at]) for at in range(count)]


def _words(source: str, data: str) -> list[int]:
    return [_word(source, data, at) for at in range(len(data) // WORD)]


def _word(source: str, data: str, at: int) -> int:
    try:
        return int.from_bytes(bytes.fromhex(data[WORD * at : WORD * (at + 1)]), "big")
    except ValueError:
        raise BadAnswer(source, f"an event with {data[:60]!r}, which is no hexadecimal") from None


def _address(source: str, topic: str) -> str | None:
    """The address in a topic; None where it holds something else. Some contracts put the chain's prefix before it."""
    try:
        data = bytes.fromhex(topic)
    except ValueError:
        raise BadAnswer(source, f"an event with {topic[:70]!r}, which is no hexadecimal") from None
    if len(data) != 32:
        raise BadAnswer(source, f"an event with {topic[:70]!r}, which is no word")
    return shown(data[12:]) if data[:11] == bytes(11) and data[11] in (0, 0x41) else None


def inside(source: str, call: Internal) -> Iterator[Moved]:
    """What a call of a contract moved. KeyError with its kind where nobody knows what such a call moves."""
    worth = [each for each in call.callValueInfo if each.callValue]
    kind = call.kind(source) if worth else ""
    if not worth or call.rejected or kind.startswith(NOTHING):
        return
    caller = of_hex(source, call.caller_address)
    to = of_hex(source, call.transferTo_address) if call.transferTo_address else ZERO
    if kind in CALLS:
        ends = caller, to
    elif kind.startswith(TAKES):
        ends = caller, ZERO
    elif kind.startswith(GIVES):
        ends = ZERO, to
    else:
        raise KeyError(kind)
    for each in worth:
        if each.tokenId and not each.tokenId.isdecimal():
            raise BadAnswer(source, f"a call that moves {each.tokenId[:40]!r}, which is no token")
        yield Moved("trc10" if each.tokenId else INTERNAL, each.tokenId or None, *ends, each.callValue)
