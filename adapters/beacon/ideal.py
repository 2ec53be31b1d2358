"""Decode ideal attestation rewards by effective balance: only needed entries of a list of 2,000."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec
from msgspec import Struct

from chainfolio.adapters.beacon.responses import IdealReward, TotalReward
from chainfolio.errors import BadAnswer

MAX_SEARCHED: Final = 8  # balances; for more, it is faster to decode the whole list
MAX_MATCHES: Final = 16  # occurrences of a balance's digits that are tried
_entry: Final = msgspec.json.Decoder(IdealReward, strict=False)
_list: Final = msgspec.json.Decoder(list[IdealReward], strict=False)


class RawAttestationRewards(Struct, frozen=True):
    """`AttestationRewards` with the list of ideal rewards as JSON."""

    ideal_rewards: msgspec.Raw
    total_rewards: list[TotalReward]


def decode_ideal_rewards(source: str, content: bytes | msgspec.Raw, balances: Collection[int] | None) -> dict[int, int]:
    """Return ideal rewards by effective balance, without balances that the list lacks.

    Args:
        source: The node, for errors.
        content: The list as JSON.
        balances: The needed effective balances in gwei, None for all in the list.

    Raises:
        BadAnswer: The list is malformed.
    """
    data, rewards = bytes(content), dict[int, int]()
    for balance in balances if balances is not None and len(balances) <= MAX_SEARCHED else ():
        if (entry := _search(data, balance)) is None:
            break
        rewards[balance] = _total(entry)
    else:
        if balances is not None and len(rewards) == len(balances):
            return rewards
    try:
        entries = _list.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(source, f"an answer of the wrong shape: {error}") from None
    totals = {each.effective_balance: _total(each) for each in entries}
    return totals if balances is None else {each: totals[each] for each in balances if each in totals}


def _total(entry: IdealReward) -> int:
    return entry.source + entry.target + entry.head


def _search(data: bytes, balance: int) -> IdealReward | None:
    """Return the entry of a balance, by its digits; None if it is not among the first MAX_MATCHES."""
    digits, at = b"%d" % balance, -1
    for _ in range(MAX_MATCHES):
        if (at := data.find(digits, at + 1)) < 0:
            return None
        try:
            entry = _entry.decode(data[data.rfind(b"{", 0, at) : data.find(b"}", at) + 1])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if entry.effective_balance == balance:
            return entry
    return None
