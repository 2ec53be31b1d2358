"""Rewards of stake accounts in past epochs: all accounts of an epoch in one request.

A node derives them from the first blocks of the next epoch, which paid them. A node that no longer has these blocks
cannot tell. A null for an account means that the account was paid nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Annotated, Final

import msgspec

from chainfolio.adapters.solana.forms import U64
from chainfolio.adapters.solana.node import MAX_TIME_S, Node, ask_each
from chainfolio.adapters.solana.reads import Reward, RewardRead
from chainfolio.errors import (
    BadAnswer,
    HistoryUnavailable,
    NoBlock,
    NodeBehind,
    SourceError,
    Unavailable,
    UnsupportedMethod,
)
from chainfolio.plans import Unknown
from chainfolio.transport.endpoint import Answer, Endpoint
from chainfolio.transport.wire import Request, typed

PAGE: Final = 100  # accounts per request
NO_REWARD_BLOCK: Final = "the node does not have the block that paid them"
MAX_CACHED: Final = 100_000  # rewards


class NoRewardBlock(Unavailable):
    """A node does not have the block that paid the rewards of an epoch: no longer, or not yet."""


class RewardsNotServed(Unavailable):
    """A node does not serve rewards of stake accounts."""


class InflationReward(msgspec.Struct):
    """A reward as `getInflationReward` returns it."""

    epoch: U64
    effectiveSlot: U64
    amount: U64
    postBalance: U64
    commission: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None


async def read_rewards(node: Node, reads: Sequence[RewardRead]) -> dict[RewardRead, Reward | Unknown | None]:
    """Return the reward of each read: None if nothing was paid, Unknown if no endpoint can tell.

    Rewards in blocks that were final before the read are cached in `node.reward_cache`.
    """
    cache, finalized = node.reward_cache, node.finalized
    missing = sorted({read for read in reads if read not in cache}, key=lambda read: (read.epoch, read.stake))
    pages = [
        reads_of_epoch[first : first + PAGE]
        for _, group in groupby(missing, key=lambda read: read.epoch)
        for reads_of_epoch in [list(group)]
        for first in range(0, len(reads_of_epoch), PAGE)
    ]
    results: dict[RewardRead, Reward | Unknown | None] = {read: cache[read] for read in reads if read in cache}
    for page in await asyncio.gather(*(_read_page(node, page) for page in pages)):
        results |= page
    if len(cache) > MAX_CACHED:
        cache.clear()
    cache |= {
        read: reward
        for read, reward in results.items()
        if isinstance(reward, Reward) and reward.time_s is not None and reward.slot <= finalized
    }
    return results


async def _read_page(node: Node, reads: Sequence[RewardRead]) -> dict[RewardRead, Reward | Unknown | None]:
    """Read at most `PAGE` rewards of one epoch; None if nothing was paid, Unknown if it fails."""
    try:
        return {**await read_epoch_rewards(node, reads)}
    except SourceError as error:
        return dict.fromkeys(reads, Unknown(error.reason))


async def read_epoch_rewards(node: Node, reads: Sequence[RewardRead]) -> dict[RewardRead, Reward | None]:
    """Read at most `PAGE` rewards of one epoch; None if nothing was paid.

    Raises:
        NoRewardBlock: No endpoint has the block that paid them.
        RewardsNotServed: No endpoint serves rewards.
    """
    rewards = await node.with_any(partial(_request_rewards, node, reads), kind="rewards")
    return dict(zip(reads, rewards, strict=True))


async def _request_rewards(node: Node, reads: Sequence[RewardRead], endpoint: Endpoint) -> list[Reward | None]:
    """Read rewards of one epoch from one endpoint; None for a stake without one.

    Raises BadAnswer for another number of rewards, or an impossible one.
    """
    epoch = reads[0].epoch
    options = {"epoch": epoch, "commitment": node.commitment}
    (answer,) = await endpoint.ask([Request("getInflationReward", ([read.stake for read in reads], options))])
    rewards = typed(endpoint.name, _reward_block(endpoint.name, answer), list[InflationReward | None])
    if len(rewards) != len(reads):
        raise BadAnswer(endpoint.name, f"{len(rewards)} rewards in answer to {len(reads)}")
    for each in rewards:
        if each and each.amount and (each.epoch != epoch or each.amount > each.postBalance):
            raise BadAnswer(endpoint.name, f"a reward of epoch {each.epoch} that cannot be, in answer to {epoch}")
    slots = sorted({each.effectiveSlot for each in rewards if each and each.amount})
    times = dict(zip(slots, await _block_times(endpoint, slots), strict=True))
    return [
        Reward(each.amount, each.effectiveSlot, times[each.effectiveSlot], each.commission)
        if each and each.amount
        else None
        for each in rewards
    ]


def _reward_block(source: str, answer: Answer) -> bytes:
    """Return an answer, or raise what its error means for rewards.

    Raises:
        NoRewardBlock: The node lacks the block, or the history of it. It is not behind.
        RewardsNotServed: The node lacks the method; another endpoint may have it.
        SourceError: Any other error of the answer.
    """
    if isinstance(answer, NodeBehind | NoBlock | HistoryUnavailable):
        raise NoRewardBlock(source, NO_REWARD_BLOCK)
    if isinstance(answer, UnsupportedMethod):
        raise RewardsNotServed(source, answer.reason)
    if isinstance(answer, SourceError):
        raise answer
    return answer


async def _block_times(endpoint: Endpoint, slots: Sequence[int]) -> list[int | None]:
    """Read the times of blocks in Unix seconds; None if the node does not have a time."""
    answers = await ask_each(endpoint, [Request("getBlockTime", (slot,)) for slot in slots])
    times: list[int | None] = [
        None if isinstance(each, SourceError) else typed(endpoint.name, each, int | None)  # type: ignore[arg-type]
        for each in answers
    ]
    return [each if each is not None and 0 <= each < MAX_TIME_S else None for each in times]
