"""What attesting could have brought, by effective balance: of two thousand entries that nodes list, only some are
decoded."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec
from msgspec import Struct

from chainfolio.adapters.beacon.answers import IdealReward, TotalReward
from chainfolio.errors import BadAnswer

FEW: Final = 8  # balances, above which the whole list is decoded sooner
TRIES: Final = 16  # places with the digits of a balance that are looked at
_one: Final = msgspec.json.Decoder(IdealReward, strict=False)
_all: Final = msgspec.json.Decoder(list[IdealReward], strict=False)


class ToldRewards(Struct, frozen=True):
    """As `AttestationRewards`, with the list of what could have been as it was written."""

    ideal_rewards: msgspec.Raw
    total_rewards: list[TotalReward]


def ideal_of(source: str, listed: bytes | msgspec.Raw, known: Collection[int] | None) -> dict[int, int]:
    """What attesting could have brought validators with some effective balances, None for all that are listed; without
    those that are not."""
    written, found = bytes(listed), dict[int, int]()
    for balance in known if known is not None and len(known) <= FEW else ():
        if (one := _found(written, balance)) is None:
            break
        found[balance] = one.source + one.target + one.head
    else:
        if known is not None and len(found) == len(known):
            return found
    try:
        every = _all.decode(written)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(source, f"an answer of the wrong shape: {error}") from None
    sums = {each.effective_balance: each.source + each.target + each.head for each in every}
    return sums if known is None else {each: sums[each] for each in known if each in sums}


def _found(written: bytes, balance: int) -> IdealReward | None:
    """The entry of a balance: what stands in braces around its digits, and says that it is of that balance."""
    digits, at = b"%d" % balance, -1
    for _ in range(TRIES):
        if (at := written.find(digits, at + 1)) < 0:
            return None
        try:
            one = _one.decode(written[written.rfind(b"{", 0, at) : written.find(b"}", at) + 1])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if one.effective_balance == balance:
            return one
    return None
