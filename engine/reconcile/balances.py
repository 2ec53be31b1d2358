"""Balances of accounts at heights, read in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from chainfolio.blocks import Block, Span
from chainfolio.chain_blocks import newest_block_in
from chainfolio.engine.snapshots.trust import mark_untrusted
from chainfolio.errors import HistoryUnavailable, SourceError
from chainfolio.plans import Unknown
from chainfolio.portfolio.reconciliation import (
    Answer,
    BalanceKey,
    NoContract,
    Point,
)

if TYPE_CHECKING:
    from chainfolio.chains import Chain


MAX_BALANCES: Final = 4_000  # in one batch of requests
MAX_BLOCKS: Final = 200  # in one batch of requests


@dataclass(slots=True)
class BalanceReader:
    """Reads balances of one chain.

    Attributes:
        check_budget: Is called before each batch, and raises OverBudget if no request is left.
        pruned_heights: Heights whose state no endpoint has.
    """

    chain: Chain
    check_budget: Callable[[], None]
    pruned_heights: set[int] = field(default_factory=set)
    _blocks: dict[int, Block | None] = field(default_factory=dict)

    async def balances(self, points: Sequence[Point], untrusted_contracts: Set[str]) -> dict[Point, Answer]:
        """Read raw balances at heights, in batches; reads of untrusted contracts have bounded work.

        The balance is 0 before the first block of the chain, NoContract if the token's contract does not exist, and
        None if it cannot be read. Heights whose state is gone are added to `pruned_heights`.

        Raises:
            OverBudget: No request is left, according to `check_budget`.
            SourceError: The chain could not be read.
        """
        keys_by_height = _by_height(points)
        balances: dict[Point, Answer] = {}
        for heights in _batches(keys_by_height):
            self.check_budget()
            await self._load_blocks(heights)
            for height, answers in zip(
                heights, await self._read([(h, keys_by_height[h]) for h in heights], untrusted_contracts), strict=True
            ):
                balances |= {(key, height): answer for key, answer in zip(keys_by_height[height], answers, strict=True)}
        return balances

    async def _read(
        self, groups: Sequence[tuple[int, Sequence[BalanceKey]]], untrusted_contracts: Set[str]
    ) -> list[list[Answer]]:
        """Read balances at heights, in their order; None for those that cannot be read.

        They are 0 before the first block. Heights whose state is gone are added to `pruned_heights`.

        Raises:
            SourceError: The chain failed otherwise.
        """
        blocks = [self._blocks[height] for height, _ in groups]
        plans = [self.chain.balances([(key.account, key.asset) for key in keys]) for _, keys in groups]
        requests = [
            (block, mark_untrusted(next(plan), untrusted_contracts))
            for block, plan in zip(blocks, plans, strict=True)
            if block is not None
        ]
        try:
            responses = iter(await self.chain.answer_each(requests))
        except HistoryUnavailable as error:  # for all blocks
            responses = iter([error] * len(requests))
        answers: list[list[Answer]] = []
        for (height, keys), block, plan in zip(groups, blocks, plans, strict=True):
            results = [0] * len(keys) if block is None else next(responses)
            if isinstance(results, SourceError):
                if not isinstance(results, HistoryUnavailable):
                    raise results
                self.pruned_heights.add(height)
                answers.append([None] * len(keys))
            else:
                answers.append([_answer(each) for each in (results if block is None else _finish(plan, results))])
        return answers

    async def block_at(self, height: int) -> Block | None:
        """Read the newest block up to a height, and cache it; None if there is none."""
        await self._load_blocks([height])
        return self._blocks[height]

    async def _load_blocks(self, heights: Sequence[int]) -> None:
        """Load the newest block up to each height; None if there is none."""
        missing = [height for height in heights if height not in self._blocks]
        if not missing:
            return
        self._blocks |= {block.height: block for block in await self.chain.blocks(missing)}
        for height in missing:
            if height not in self._blocks:
                self._blocks[height] = await newest_block_in(self.chain, Span(0, height))


def batch_count(points: Sequence[Point]) -> int:
    """Return the number of batches that reading these balances takes."""
    return sum(1 for _ in _batches(_by_height(points)))


def _by_height(points: Sequence[Point]) -> dict[int, list[BalanceKey]]:
    keys_by_height: dict[int, list[BalanceKey]] = {}
    for key, height in points:
        keys_by_height.setdefault(height, []).append(key)
    return keys_by_height


def _batches(keys_by_height: Mapping[int, Sequence[BalanceKey]]) -> Iterator[list[int]]:
    """Yield the heights in order, in batches of at most MAX_BLOCKS heights and MAX_BALANCES balances.

    A height with more balances is a batch alone; without heights there is no batch.
    """
    part: list[int] = []
    count = 0
    for height in sorted(keys_by_height):
        if part and (count + len(keys_by_height[height]) > MAX_BALANCES or len(part) == MAX_BLOCKS):
            yield part
            part, count = [], 0
        part.append(height)
        count += len(keys_by_height[height])
    if part:
        yield part


def _finish(plan: Any, results: Sequence[Any]) -> Sequence[Any]:
    """Send the results to a plan of one round, and return its result."""
    try:
        plan.send(results)
    except StopIteration as stop:
        result: Sequence[Any] = stop.value
        return result
    raise AssertionError("balances are asked for in one round")


def _answer(result: Any) -> Answer:
    if isinstance(result, Unknown) and result.cause == "absent":
        return NoContract()
    return result if isinstance(result, int) else None
