"""Compares an account's movements with its balances, and finds the blocks where they differ.

The *excess* of an asset at a height is its balance on chain less the sum of its movements so far. In a complete index
it is the same at all heights: the balance before the first of them. A change of the excess is a difference. `search`
reads balances at a few heights, then only between heights whose excess differs, several at a time, until these are
neighbours. It is a plan: it does no I/O.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from chainfolio.portfolio.ledger import LIMB, LIMBS, summed
from chainfolio.tables import REWARD

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.assets import Asset
    from chainfolio.chain_results import ChainInfo

SPLIT_PARTS: Final = 8  # parts into which one round cuts two heights that differ
MIN_CHECKPOINTS: Final = 4  # checkpoints of an asset that hardly moves
MAX_CHANGES: Final = 16  # of one asset that are looked for, from the lowest block on
SIDES: Final = {"in": 1, "out": -1}
MOVED: Final = ("account", "height", "tx_index", "log_index", "item", "direction")
ASSET_COLUMNS: Final = ("standard", "token", "token_id")


class BalanceKey(NamedTuple):
    """An account and one of its assets."""

    account: str
    asset: Asset


@dataclass(frozen=True, slots=True)
class RunningTotals:
    """The sum of the movements of an asset after each height at which some are."""

    heights: tuple[int, ...] = ()
    sums: tuple[int, ...] = ()

    def at(self, height: int) -> int:
        """Return the sum of all movements up to a height, included; 0 before the first."""
        count = bisect_right(self.heights, height)
        return self.sums[count - 1] if count else 0

    def change_at(self, height: int) -> int:
        """Return the sum of the movements at a height; 0 if there are none."""
        return self.at(height) - self.at(height - 1)

    def has(self, height: int) -> bool:
        """Return True if the asset moved at a height, even if the amounts were zero or cancelled out."""
        count = bisect_right(self.heights, height)
        return count > 0 and self.heights[count - 1] == height


class NoContract:
    """In the place of a balance: there is no contract at that block."""


Answer = int | NoContract | None  # None: it cannot be read
Point = tuple[BalanceKey, int]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the excess by `amount` between the heights `after` and `height`.

    The block of the change is known if they are neighbours.
    """

    after: int
    height: int
    amount: int
    balance_before: int  # balances on chain, at both
    balance_after: int

    @property
    def is_found(self) -> bool:
        """True if the block of the change is known, and not only its range."""
        return self.height == self.after + 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of one asset.

    Attributes:
        opening: The excess at the first height; None if it could not be read.
        balance: The balance at the last height; None if it could not be read.
        changes: The differences, at most `MAX_CHANGES`.
        unread: Heights from the first movement on at which the balance could not be read.
        has_more: There are more changes than that.
    """

    opening: int | None
    balance: int | None
    changes: tuple[Change, ...] = ()
    unread: tuple[int, ...] = ()
    has_more: bool = False


def spread_heights(first: int, last: int, count: int) -> list[int]:
    """Return evenly spread heights from the first to the last, both included, in at most `count` steps."""
    steps = max(1, min(count, last - first))
    return sorted({first + (last - first) * step // steps for step in range(steps + 1)})


def checkpoints(key: BalanceKey, totals: RunningTotals, steps: Sequence[int]) -> list[int]:
    """Return the heights of `steps` at which an asset is compared: all of them for the native coin.

    A token that never moved has all, too. Any other token has the first, the last, and heights since its first
    movement, more of them the more it moves, because most tokens are sent once, as spam.
    """
    if key.asset.is_native or not totals.heights:
        return [*steps]
    after_first = [height for height in steps[1:-1] if height >= totals.heights[0]]
    step = max(1, -(-len(after_first) // max(MIN_CHECKPOINTS, 2 * len(totals.heights))))
    return sorted({steps[0], *after_first[::-step], steps[-1]})


def running_totals(transfers: pl.DataFrame, fees: pl.DataFrame, info: ChainInfo) -> dict[BalanceKey, RunningTotals]:
    """Return the running totals of each asset of the accounts, and of native coins that paid fees.

    Rewards that stay in their stake are left out, because they changed no balance.

    Args:
        transfers: Rows of `account_transfers`, without native duplicates.
        fees: Account, height and fee of the transactions that accounts sent.
        info: The chain.
    """
    import polars as pl

    native = pl.lit(None, pl.String)
    side = pl.col("direction").replace_strict(SIDES, return_dtype=pl.Int128)
    fee_rows = fees.select(
        "account",
        "height",
        native.alias("standard"),
        native.alias("token"),
        pl.lit(None, pl.Binary).alias("token_id"),
        pl.col("fee").alias("raw"),
        pl.lit(-1, pl.Int128).alias("sign"),
    )
    # The standard only names assets with a number: wrapping moves the same token as a transfer.
    standard_if_numbered = pl.when(pl.col("token_id").is_not_null()).then(pl.col("standard"))
    transfer_rows = transfers.filter(pl.col("standard") != REWARD).with_columns(
        standard_if_numbered.alias("standard"), side.alias("sign")
    )
    steps = (
        pl.concat([transfer_rows.select(fee_rows.columns), fee_rows])
        .group_by("account", *ASSET_COLUMNS, "height")
        .agg(*(summed(index) for index in range(len(LIMBS))))
        .sort("account", *ASSET_COLUMNS, "height")
    )
    moves_by_key: dict[BalanceKey, tuple[list[int], list[int]]] = {}
    assets: dict[tuple[str | None, str | None, bytes | None], Asset] = {}
    for account, standard, token, token_id, height, *limbs in steps.iter_rows():
        identity = standard, token, token_id
        if identity not in assets:
            number = None if token_id is None else int.from_bytes(token_id, "big")
            assets[identity] = info.asset(standard or "", token, number)
        heights, moves = moves_by_key.setdefault(BalanceKey(account, assets[identity]), ([], []))
        heights.append(height)
        moves.append(reduce(lambda total, limb: total * LIMB + limb, limbs, 0))
    return {
        key: RunningTotals(tuple(heights), tuple(accumulate(moves))) for key, (heights, moves) in moves_by_key.items()
    }


Search = Generator[Sequence[Point], Mapping[Point, Answer], dict[BalanceKey, Comparison]]


def search(
    totals: Mapping[BalanceKey, RunningTotals], steps: Sequence[int], *, is_from_genesis: bool = False
) -> Search:
    """Compare every asset at its checkpoints, and search for the blocks where its excess changes.

    Yields the balances to read in each round, and is sent them by key and height; None for unreadable ones.

    Args:
        totals: The running totals of each asset.
        steps: The heights to compare, in order.
        is_from_genesis: Nothing was held before the first height. An asset that cannot be read there has an excess of
            zero.

    Returns:
        A comparison for each asset.
    """
    searches = {
        key: _AssetSearch(course, is_from_genesis, checkpoints(key, course, steps)) for key, course in totals.items()
    }
    reads = [(key, height) for key, asset_search in searches.items() for height in asset_search.heights]
    has_begun = False
    while reads:
        answers = yield reads
        for key, height in reads:
            searches[key].take(height, answers[key, height])
        for asset_search in () if has_begun else searches.values():
            asset_search.begin()
        has_begun = True
        reads = [(key, height) for key, asset_search in searches.items() for height in asset_search.next()]
    return {key: asset_search.comparison() for key, asset_search in searches.items()}


@dataclass(slots=True)
class _AssetSearch:
    """The search state of one asset. `open` are pairs of heights between which its excess changes."""

    course: RunningTotals
    is_start: bool
    heights: Sequence[int]
    balances: dict[int, int] = field(default_factory=dict)
    unread: set[int] = field(default_factory=set)
    open: list[tuple[int, int]] = field(default_factory=list)
    closed: set[tuple[int, int]] = field(default_factory=set)
    has_more: bool = False

    def take(self, height: int, answer: Answer) -> None:
        """Store one balance; None, and no contract after the asset first moved, make the height unread.

        Before an asset first moves, its contract may not exist: that is 0.
        """
        if isinstance(answer, NoContract):
            answer = 0 if not self._has_moved(height) else None
        if answer is None:
            self.unread.add(height)
        else:
            self.balances[height] = answer

    def begin(self) -> None:
        """Start the search between the checkpoints, after these were read."""
        first = self.heights[0]
        if self.is_start and first in self.unread:
            self.balances[first] = self.course.at(first)
        self._keep(self._parts([height for height in self.heights if height in self.balances]))

    def next(self) -> list[int]:
        """Narrow the open pairs by the balances read, and return the heights to read next; [] at the end."""
        heights: list[int] = []
        open_pairs: list[tuple[int, int]] = []
        for low, high in self.open:
            middle = self._between(low, high)
            read_heights = [height for height in middle if height in self.balances]
            if read_heights:  # read in the round before
                open_pairs += self._parts([low, *read_heights, high])
            else:
                open_pairs.append((low, high))
        self._keep(open_pairs)
        for low, high in self.open:
            if (low, high) in self.closed:
                continue
            fresh = [height for height in self._between(low, high) if height not in self.unread]
            if not fresh:
                self.closed.add((low, high))
            heights += fresh
        return heights

    def comparison(self) -> Comparison:
        """Return the first excess, the last balance, the changes found, and unread heights with movements.

        Excess and balance are None if they could not be read.
        """
        first, last = self.heights[0], self.heights[-1]
        unread = sorted(height for height in self.unread if self._has_moved(height))
        changes = [
            Change(low, high, self._excess(high) - self._excess(low), self.balances[low], self.balances[high])
            for low, high in self.open
        ]
        opening = None if first in self.unread or first not in self.balances else self._excess(first)
        return Comparison(opening, self.balances.get(last), tuple(changes), tuple(unread), self.has_more)

    def _has_moved(self, height: int) -> bool:
        return bool(self.course.heights) and self.course.heights[0] <= height

    def _excess(self, height: int) -> int:
        return self.balances[height] - self.course.at(height)

    def _parts(self, heights: Sequence[int]) -> list[tuple[int, int]]:
        return [(low, high) for low, high in pairwise(heights) if self._excess(low) != self._excess(high)]

    def _keep(self, pairs: list[tuple[int, int]]) -> None:
        self.has_more |= len(pairs) > MAX_CHANGES
        self.open = pairs[:MAX_CHANGES]

    @staticmethod
    def _between(low: int, high: int) -> list[int]:
        return [height for height in spread_heights(low, high, SPLIT_PARTS) if low < height < high]
