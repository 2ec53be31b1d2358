"""The cut-off of a period: an instant in a time zone, and the last block of each chain before it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time
from typing import TYPE_CHECKING, Final

from chainfolio.block_search import block_before
from chainfolio.engine.gains.pnl import zone_of
from chainfolio.engine.requests.days import parse_day
from chainfolio.errors import BadRequest, NodeBehind

if TYPE_CHECKING:
    from datetime import tzinfo

    from chainfolio.blocks import Block
    from chainfolio.chains import Chain

EXAMPLE: Final = 'for example --at "17:00 Europe/Zurich"'
_AT: Final = re.compile(r"(\d\d):(\d\d)(?::(\d\d))? (\S+)")


def parse_cutoff(text: str) -> tuple[time, tzinfo]:
    """Return time of day and zone of `HH:MM ZONE`.

    Raises:
        BadRequest: The text has another form, or there is no such time or zone.
    """
    match = _AT.fullmatch(text)
    if match is None:
        raise BadRequest("at", f"{text[:40]!r} is no time with a zone", remedy=EXAMPLE)
    try:
        hour = time(int(match[1]), int(match[2]), int(match[3] or 0))
    except ValueError:
        raise BadRequest("at", f"{text[:40]!r} is no time of a day", remedy=EXAMPLE) from None
    return hour, zone_of(match[4], "")


def instant_us(name: str, day: str, at: str) -> int:
    """Return the instant of a cut-off on a day, in microseconds since 1970.

    Args:
        name: The field of the day, for errors.
        day: YYYY-MM-DD.
        at: As of `parse_cutoff`.

    Raises:
        BadRequest: The day or cut-off is malformed; or clocks were changed so that the zone has this time of that day
            twice, or not at all.
    """
    hour, zone = parse_cutoff(at)
    naive = datetime.combine(parse_day(name, day), hour)
    first, second = (naive.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first != second:
        exists = first.astimezone(zone).replace(tzinfo=None) == naive
        problem = "exists twice" if exists else "does not exist"
        remedy = "take another hour, or UTC"
        raise BadRequest(name, f"{day} {at} {problem}, because clocks change in that night", remedy=remedy)
    return int(first.timestamp()) * 1_000_000


async def block_at_cutoff(chain: Chain, name: str, moment_us: int, now_us: int) -> Block:
    """Return the last block of a chain before an instant.

    Args:
        name: The field of the instant, for errors.
        now_us: The time now.

    Raises:
        BadRequest: The instant is in the future, or before the chain began.
        NodeBehind: The chain has not reached the instant, or its block is not final yet.
        SourceError: The chain could not be read.
    """
    if moment_us > now_us:
        raise BadRequest(name, "the cut-off is in the future")
    block = await block_before(chain, moment_us)
    if block is None:
        remedy = "a later day, or leave the chain out: --chain KEY names the others"
        raise BadRequest(name, f"{chain.key} began after the cut-off", remedy=remedy)
    if not chain.is_final(block.height):
        raise NodeBehind(chain.key, f"block {block.height}, the last one before the cut-off, is not final yet")
    return block
