"""Transfers and approvals of tokens from events, and transfers of coins from internal calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from chainfolio.adapters.tron.addresses import ZERO, encode_address, parse_address
from chainfolio.adapters.tron.contracts import CounterToken
from chainfolio.adapters.tron.datasets import INTERNAL
from chainfolio.adapters.tron.forms import InternalTransaction, Log
from chainfolio.errors import BadAnswer

TRANSFER: Final = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
SINGLE: Final = "c3d58168c5ae7397731d063d5bbf3d657854427343f4c083240f7aacaa2d0f62"
BATCH: Final = "4a39dc06d4c0dbc64b70af90fd698a233a518aa5d07e595d983b8c0526c8f7fb"
DEPOSIT: Final = "e1fffcc4923d04b559f4d29a8bfc6cda04eb5b0d3c460751c2402c5c5cc9109c"
WITHDRAWAL: Final = "7fcf532c15f0a6db0bd6d0e038bea71d30d808c7d98cb3bf7268a95bf5081b65"
APPROVAL: Final = "8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925"
FOR_ALL: Final = "17307eab39ab6107e8899845ad3d59bd9653f200f220920489ca2b5937696c31"
DECODED_EVENTS: Final = frozenset([TRANSFER, SINGLE, BATCH, DEPOSIT, WITHDRAWAL, APPROVAL, FOR_ALL])
WORD: Final = 64  # digits
# Kinds of internal calls, by the direction in which they move coins.
CALLS: Final = frozenset(["call", "create", "suicide", "selfdestruct", ""])
STAKES: Final = ("freezeBalanceV2For", "freezeFor")
PAYOUTS: Final = ("unfreezeFor", "withdrawExpireUnfreeze", "withdrawReward", "cancelAllUnfreezeV2")
NO_TRANSFERS: Final = ("unfreezeBalanceV2For", "delegateResourceOf", "unDelegateResourceOf", "voteWitness")


class Movement(NamedTuple):
    """A transfer by one event or one internal call.

    `token` is a contract, the number of a TRC-10 token, None for the native coin, or the other token of an exchange;
    `item` counts the transfers of one event.
    """

    standard: str
    token: str | CounterToken | None
    sender: str
    recipient: str
    raw: int
    token_id: int | None = None
    operator: str | None = None
    item: int = 0


class ApprovalEvent(NamedTuple):
    """An approval by one event: of an amount, of one collectible, or of all tokens of a contract.

    Only the last has `approved`. Numbers are 32 bytes, as tables have them.
    """

    token: str
    standard: str
    owner: str
    spender: str
    token_id: bytes | None = None
    raw: bytes | None = None
    approved: bool | None = None


def decode_transfers(source: str, log: Log, wrapped: str | None) -> Sequence[Movement]:
    """Return the transfers of an event; empty if it has another shape than the events of token standards.

    Args:
        source: The node, for errors.
        log: The event.
        wrapped: The contract of the wrapped coin, whose deposits and withdrawals count.

    Raises:
        BadAnswer: The event is no hexadecimal.
    """
    signature = log.topics[0] if log.topics else ""
    if signature == TRANSFER:
        return _decode_transfer(source, log)
    if signature in (SINGLE, BATCH):
        return _decode_trc1155(source, log)
    if signature in (DEPOSIT, WITHDRAWAL) and wrapped is not None:
        return _decode_wrap(source, log, wrapped)
    return ()


def _decode_transfer(source: str, log: Log) -> Sequence[Movement]:
    """Return the movement of a TRC-20 or TRC-721 log; none for another shape or malformed parties.

    Raises BadAnswer if the event is no hexadecimal.
    """
    match len(log.topics), len(log.data):
        case 3, 64:  # one word
            standard, raw, token_id = "trc20", _decode_word(source, log.data, 0), None
        case 4, 0:
            standard, raw, token_id = "trc721", 1, _decode_word(source, log.topics[3], 0)
        case _:
            return ()
    sender, recipient = (_decode_topic(source, topic) for topic in log.topics[1:3])
    if sender is None or recipient is None:
        return ()
    return (Movement(standard, parse_address(source, log.address), sender, recipient, raw, token_id),)


def decode_approval(source: str, log: Log) -> ApprovalEvent | None:
    """Return the approval of an event, None if it is none or has an unusual shape.

    Raises:
        BadAnswer: The event is no hexadecimal.
    """
    signature = log.topics[0] if log.topics else ""
    if signature not in (APPROVAL, FOR_ALL) or len(log.topics) < 3:
        return None
    owner, spender = (_decode_topic(source, topic) for topic in log.topics[1:3])
    if owner is None or spender is None:
        return None
    shape, token = (len(log.topics), len(log.data)), parse_address(source, log.address)
    if signature == APPROVAL and shape == (3, WORD):
        raw = _decode_word(source, log.data, 0).to_bytes(32, "big")
        return ApprovalEvent(token, "erc20", owner, spender, raw=raw)
    if signature == APPROVAL and shape == (4, 0):
        token_id = _decode_word(source, log.topics[3], 0).to_bytes(32, "big")
        return ApprovalEvent(token, "erc721", owner, spender, token_id)
    if signature == FOR_ALL and shape == (3, WORD) and (approved := _decode_word(source, log.data, 0)) < 2:
        return ApprovalEvent(token, "operator", owner, spender, approved=bool(approved))
    return None


def _decode_wrap(source: str, log: Log, wrapped: str) -> Sequence[Movement]:
    """Return a deposit into or withdrawal from the wrapped coin, which emits no Transfer for them.

    Empty for another contract or another shape. Raises BadAnswer if the event is no hexadecimal.
    """
    if len(log.topics) != 2 or len(log.data) != WORD or parse_address(source, log.address) != wrapped:
        return ()
    account, raw = _decode_topic(source, log.topics[1]), _decode_word(source, log.data, 0)
    if account is None:
        return ()
    if log.topics[0] == DEPOSIT:
        return (Movement("wrap", wrapped, ZERO, account, raw),)
    return (Movement("unwrap", wrapped, account, ZERO, raw),)


def _decode_trc1155(source: str, log: Log) -> Sequence[Movement]:
    """Return the transfers of a TransferSingle (token id, amount) or a TransferBatch (a list of each).

    Empty for another shape; `item` counts the transfers of the event. Raises BadAnswer if it is no hexadecimal.
    """
    if len(log.topics) != 4:
        return ()
    operator, sender, recipient = (_decode_topic(source, topic) for topic in log.topics[1:])
    if operator is None or sender is None or recipient is None:
        return ()
    if log.topics[0] == SINGLE:
        pairs = _pairs(_decode_words(source, log.data), 0, 1, 1) if len(log.data) == 2 * WORD else ()
    else:
        pairs = _batch_pairs(_decode_words(source, log.data))
    token = parse_address(source, log.address)
    return tuple(
        Movement("trc1155", token, sender, recipient, raw, token_id, operator, item)
        for item, (token_id, raw) in enumerate(pairs)
    )


def _batch_pairs(words: Sequence[int]) -> Sequence[tuple[int, int]]:
    """Return token ids and amounts of a batch; empty if its two lists are not laid out as usual."""
    if len(words) < 4 or words[0] != 64:
        return ()
    count = words[2]
    if len(words) != 4 + 2 * count or words[1] != 32 * (3 + count) or words[3 + count] != count:
        return ()
    return _pairs(words, 3, 4 + count, count)


def _pairs(words: Sequence[int], ids_at: int, amounts_at: int, count: int) -> Sequence[tuple[int, int]]:
    return [(words[ids_at + i], words[amounts_at + i]) for i in range(count)]


def _decode_words(source: str, data: str) -> list[int]:
    return [_decode_word(source, data, i) for i in range(len(data) // WORD)]


def _decode_word(source: str, data: str, index: int) -> int:
    try:
        return int.from_bytes(bytes.fromhex(data[WORD * index : WORD * (index + 1)]), "big")
    except ValueError:
        raise BadAnswer(source, f"an event with {data[:60]!r}, which is no hexadecimal") from None


def _decode_topic(source: str, topic: str) -> str | None:
    """Return the address in a topic, with or without the chain's prefix; None if it is something else.

    Raises BadAnswer if the topic is no word.
    """
    try:
        data = bytes.fromhex(topic)
    except ValueError:
        raise BadAnswer(source, f"an event with {topic[:70]!r}, which is no hexadecimal") from None
    if len(data) != 32:
        raise BadAnswer(source, f"an event with {topic[:70]!r}, which is no word")
    return encode_address(data[12:]) if data[:11] == bytes(11) and data[11] in (0, 0x41) else None


def decode_internal(source: str, call: InternalTransaction) -> Iterator[Movement]:
    """Yield the transfers of an internal call, one per token.

    Nothing is yielded if it was rejected or its kind moves no coins. Stakes go to ZERO, and payouts come from it.

    Raises:
        KeyError: The call moves coins, and its kind (the argument) is unknown.
        BadAnswer: An address or a token is malformed.
    """
    values = [value for value in call.callValueInfo if value.callValue]
    kind = call.kind(source) if values else ""
    if not values or call.rejected or kind.startswith(NO_TRANSFERS):
        return
    caller = parse_address(source, call.caller_address)
    to = parse_address(source, call.transferTo_address) if call.transferTo_address else ZERO
    if kind in CALLS:
        parties = caller, to
    elif kind.startswith(STAKES):
        parties = caller, ZERO
    elif kind.startswith(PAYOUTS):
        parties = ZERO, to
    else:
        raise KeyError(kind)
    for value in values:
        if value.tokenId and not value.tokenId.isdecimal():
            raise BadAnswer(source, f"a call that moves {value.tokenId[:40]!r}, which is no token")
        yield Movement("trc10" if value.tokenId else INTERNAL, value.tokenId or None, *parties, value.callValue)
