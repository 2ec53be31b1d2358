"""What came to accounts since 00:00 UTC of a block's day and what left them, by the index."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from chainfolio import amounts
from chainfolio.addresses import rules_of
from chainfolio.assets import Asset
from chainfolio.blocks import Block, Span
from chainfolio.tables import ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS, BLOCKS, REWARD, TRANSACTIONS
from engine.rows import rows_of
from engine.sent import PAID, sent
from indexer.scopes import indexed_for_all
from portfolio.ledger import told_once

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.chains import Chain, ChainInfo
    from chainfolio.datasets import Dataset
    from storage.lake import Lake
    from storage.tail import Tail

HISTORIES: Final = (ACCOUNT_TRANSFERS, ACCOUNT_TRANSACTIONS)  # what moved, and what was paid for it
DAY_US: Final = 86_400_000_000
PLACE: Final = ("account", "height", "tx_index")
KEY: Final = (*PLACE, "log_index", "item", "direction")
MOVED: Final = (*KEY, "standard", "counterparty", "token", "token_id", "raw")
SHOWN: Final = ("account", "direction", "raw", "token")


@dataclass(slots=True)
class Daily:
    """Raw amounts by asset; what left has the fees in it."""

    came: dict[Asset, int] = field(default_factory=dict)
    left: dict[Asset, int] = field(default_factory=dict)

    def add(self, direction: str, asset: Asset, raw: int) -> None:
        """Take in one movement, `in` or `out`."""
        side = self.came if direction == "in" else self.left
        side[asset] = side.get(asset, 0) + raw

    def net(self, asset: Asset) -> int:
        """What came less what left."""
        return self.came.get(asset, 0) - self.left.get(asset, 0)

    @property
    def assets(self) -> set[Asset]:
        """Everything that moved."""
        return {*self.came, *self.left}


def daily(lake: Lake, tail: Tail, chain: Chain, accounts: Sequence[str], block: Block) -> tuple[dict[str, Daily], str]:
    """What moved between accounts and others by account, with the block's own; no account is absent from it.

    Empty, with the reason, where the day is not indexed up to this block in all that it takes, or where the index has
    another block at its height. What the chain tells of its native coin a second time, as of a token, counts once.
    """
    import polars as pl

    since = midnight(block)
    if lacking := _lacking(lake, tail, chain, accounts, block, since):
        return {}, lacking
    today = pl.col("time") >= since
    found = moved_in(lake, tail, chain, accounts, Span(0, block.height), today, with_rewards=True)
    # Once more: what has left the chain meanwhile may have been read in part.
    lacking = _lacking(lake, tail, chain, accounts, block, since)
    return ({}, lacking) if lacking else (found, "")


def moved_in(
    lake: Lake,
    tail: Tail,
    chain: Chain,
    accounts: Sequence[str],
    span: Span,
    where: pl.Expr | None = None,
    *,
    with_rewards: bool = False,
) -> dict[str, Daily]:
    """What moved between accounts and others in a span, by account and by the index; no account is absent from it.
    `with_rewards`: also what their stakes earned and kept, which changed no balance of theirs."""
    import polars as pl

    index, found = (lake, tail, chain.key), {account: Daily() for account in accounts}
    moved = rows_of(*index, ACCOUNT_TRANSFERS, accounts, MOVED, span=span, where=where)
    if not with_rewards:
        moved = moved.filter(pl.col("standard") != REWARD)
    add_moved(found, moved, chain.info, rules_of(chain.kind).nobody)
    add_fees(found, sent(*index, accounts, PAID, span, where), chain.info.native.asset)
    return found


def midnight(block: Block) -> datetime:
    """00:00 UTC of a block's day."""
    return Block(0, "", "", block.time_us - block.time_us % DAY_US).time


def needed(datasets: Iterable[Dataset]) -> tuple[str, ...]:
    """The datasets of a chain without which balances do not follow from one another: all that say what moved and what
    was paid for it."""
    histories = {history.name for history in HISTORIES}
    return tuple(each.name for each in datasets if each.history in histories and not each.of_positions)


def _lacking(lake: Lake, tail: Tail, chain: Chain, accounts: Sequence[str], block: Block, since: datetime) -> str:
    """Which datasets the index of some accounts lacks, and from which block on, to have this block and all earlier
    blocks of its day; empty where it has them."""
    kept = {each.height: each for each in tail.blocks(chain.key)}
    if kept.get(block.height, block).hash != block.hash:
        return f"the index has another block {block.height}"
    filled = {each.history for each in chain.datasets.values()}
    if unfilled := [f"`{history.name}`" for history in HISTORIES if history.name not in filled]:
        return f"no dataset of {chain.key} fills {' and '.join(unfilled)}"
    missing, begins = list[str](), dict[str, int]()
    of_positions = [each.name for each in chain.datasets.values() if each.of_positions]
    known = [each for each in of_positions if indexed_for_all(tail, chain.key, each, accounts)]
    for dataset in (*needed(chain.datasets.values()), *known):
        *_, newest = None, *(indexed_for_all(tail, chain.key, dataset, accounts) & [Span(0, block.height)])
        if newest is None or newest.last < block.height:
            missing.append(f"`{dataset}` is not indexed from block {newest.last + 1 if newest else 0} on")
        else:
            begins[dataset] = newest.first
    if missing:
        return ", ".join(missing)
    first = max(begins.values())
    if first == 0 or _began(lake, tail, chain.key, first - 1, block, since):
        return ""
    late = ", ".join(f"`{dataset}`" for dataset in begins if begins[dataset] == first)
    return f"the day may have begun before block {first}, from which on {late} are indexed"


def _began(lake: Lake, tail: Tail, chain: str, first: int, block: Block, since: datetime) -> bool:
    """Whether a block from this height on is known to be from before the day: so all of the day comes after it."""
    import polars as pl

    anchor = tail.anchor(chain)
    known = (*tail.blocks(chain), *([anchor] if anchor else []))
    if any(first <= each.height <= block.height and each.time < since for each in known):
        return True
    near = Span(first, max(first, block.height))
    before = pl.col("height").is_between(first, block.height) & (pl.col("time") < since)
    return any(
        lake.scan(table, chain=chain, heights=[near]).filter(before).select("height").head(1).collect().height
        for table in (BLOCKS, TRANSACTIONS)
    )


def add_moved(found: dict[str, Daily], moved: pl.DataFrame, info: ChainInfo, nobody: Collection[str]) -> None:
    """Take in the coins and fungible tokens that went between an account and somebody else. Who mints and burns has
    neither."""
    import polars as pl

    native = pl.col("token").is_null()
    nobodys = pl.col("account").is_in(nobody) & ~native
    rows = moved.filter(pl.col("token_id").is_null(), pl.col("account") != pl.col("counterparty"))
    for account, direction, raw, token in told_once(rows.filter(~nobodys), info).select(*SHOWN).iter_rows():
        asset = info.native.asset if token is None else info.token_asset(token)
        found[account].add(direction, asset, amounts.raw_from_bytes(raw))


def add_fees(found: dict[str, Daily], fees: pl.DataFrame, native: Asset) -> None:
    """Take in what accounts paid for transactions."""
    for account, fee in fees.select("account", "fee").iter_rows():
        found[account].add("out", native, amounts.raw_from_bytes(fee))
