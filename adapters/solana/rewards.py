"""What stake accounts earned in epochs that are over: all accounts of an epoch in one request.

A node says it by the block that paid the rewards of an epoch, the first ones of the next. One that has dropped that
block does not know; none that answers nothing for an account says that the account earned nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Annotated, Final

import msgspec

from adapters.solana.forms import U64
from adapters.solana.node import MAX_TIME_S, Node, ask_each
from adapters.solana.reads import Reward, RewardRead
from chainfolio.errors import BadAnswer, HistoryUnavailable, NoBlock, NodeBehind, SourceError, Unavailable, Unsupported
from chainfolio.plans import Unknown
from transport.endpoint import Answer, Endpoint
from transport.wire import Request, typed

PAGE: Final = 100  # accounts that one request may name
DROPPED: Final = "the node does not have the block that paid them"


class Dropped(Unavailable):
    """A node does not have the block that paid an epoch: not any more, or not yet."""


class NotServed(Unavailable):
    """A node does not tell what stake accounts earned."""


KEPT: Final = 100_000  # rewards that are remembered


class Paid(msgspec.Struct):
    """A reward as `getInflationReward` tells it."""

    epoch: U64
    effectiveSlot: U64
    amount: U64
    postBalance: U64
    commission: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None


async def rewards(node: Node, reads: Sequence[RewardRead]) -> dict[RewardRead, Reward | Unknown | None]:
    """What each account earned in its epoch. Those that are in final blocks are asked for once."""
    missing = sorted({each for each in reads if each not in node.kept}, key=lambda each: (each.epoch, each.stake))
    pages = [
        several[first : first + PAGE]
        for _, group in groupby(missing, key=lambda each: each.epoch)
        for several in [list(group)]
        for first in range(0, len(several), PAGE)
    ]
    found: dict[RewardRead, Reward | Unknown | None] = {each: node.kept[each] for each in reads if each in node.kept}
    for page in await asyncio.gather(*(_page(node, each) for each in pages)):
        found |= page
    if len(node.kept) > KEPT:
        node.kept.clear()
    node.kept |= {
        read: paid
        for read, paid in found.items()
        if isinstance(paid, Reward) and paid.time_s is not None and paid.slot <= node.finalized
    }
    return found


async def _page(node: Node, reads: Sequence[RewardRead]) -> dict[RewardRead, Reward | Unknown | None]:
    """Some accounts of one epoch; Unknown where no endpoint knows."""
    try:
        return {**await of_epoch(node, reads)}
    except SourceError as error:
        return dict.fromkeys(reads, Unknown(error.reason))


async def of_epoch(node: Node, reads: Sequence[RewardRead]) -> dict[RewardRead, Reward | None]:
    """What some accounts, at most `PAGE`, earned in one epoch. Dropped or NotServed where no endpoint tells it."""
    found = await node.with_any(partial(_asked, node, reads), kind="rewards")
    return dict(zip(reads, found, strict=True))


async def _asked(node: Node, reads: Sequence[RewardRead], endpoint: Endpoint) -> list[Reward | None]:
    """The same by one endpoint."""
    epoch = reads[0].epoch
    options = {"epoch": epoch, "commitment": node.commitment}
    (answer,) = await endpoint.ask([Request("getInflationReward", ([each.stake for each in reads], options))])
    several = typed(endpoint.name, _told(endpoint.name, answer), list[Paid | None])
    if len(several) != len(reads):
        raise BadAnswer(endpoint.name, f"{len(several)} rewards in answer to {len(reads)}")
    for each in several:
        if each and each.amount and (each.epoch != epoch or each.amount > each.postBalance):
            raise BadAnswer(endpoint.name, f"a reward of epoch {each.epoch} that cannot be, in answer to {epoch}")
    slots = sorted({each.effectiveSlot for each in several if each and each.amount})
    times = dict(zip(slots, await _times(endpoint, slots), strict=True))
    return [
        Reward(each.amount, each.effectiveSlot, times[each.effectiveSlot], each.commission)
        if each and each.amount else None
        for each in several
    ]  # fmt: skip


def _told(source: str, answer: Answer) -> bytes:
    """An answer. A node that lacks the block that paid an epoch is not behind: the epoch is over."""
    if isinstance(answer, NodeBehind | NoBlock | HistoryUnavailable):
        raise Dropped(source, DROPPED)
    if isinstance(answer, Unsupported):  # perhaps another one serves it
        raise NotServed(source, answer.reason)
    if isinstance(answer, SourceError):
        raise answer
    return answer


async def _times(endpoint: Endpoint, slots: Sequence[int]) -> list[int | None]:
    """When the blocks of some slots were made; None where the node does not say."""
    answers = await ask_each(endpoint, [Request("getBlockTime", (slot,)) for slot in slots])
    times: list[int | None] = [
        None if isinstance(each, SourceError) else typed(endpoint.name, each, int | None)  # type: ignore[arg-type]
        for each in answers
    ]
    return [each if each is not None and 0 <= each < MAX_TIME_S else None for each in times]
