"""Amounts that came to accounts and left them since 00:00 UTC of a block's day, by the index."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from chainfolio import amounts
from chainfolio.addresses import rules_of
from chainfolio.assets import Asset
from chainfolio.blocks import Block, Span
from chainfolio.engine.rows import ChainIndex, rows_of
from chainfolio.engine.snapshots.account_rows import AccountRows
from chainfolio.engine.snapshots.sent_transactions import FEE_COLUMNS, sent_transactions
from chainfolio.indexer.scopes import indexed_for_all
from chainfolio.portfolio.ledger import drop_native_duplicates
from chainfolio.tables import ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS, BLOCKS, REWARD, TRANSACTIONS

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.chain_results import ChainInfo
    from chainfolio.chains import Chain
    from chainfolio.datasets import Dataset
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

HISTORIES: Final = (ACCOUNT_TRANSFERS, ACCOUNT_TRANSACTIONS)  # what moved, and what was paid for it
DAY_US: Final = 86_400_000_000
ACCOUNT_TRANSACTION: Final = ("account", "height", "tx_index")
TRANSFER_KEY: Final = (*ACCOUNT_TRANSACTION, "log_index", "item", "direction")
TRANSFER_COLUMNS: Final = (*TRANSFER_KEY, "standard", "counterparty", "token", "token_id", "raw")
FLOW_COLUMNS: Final = ("account", "direction", "raw", "token")


@dataclass(slots=True)
class Flows:
    """Raw amounts by asset. `outgoing` includes fees."""

    incoming: dict[Asset, int] = field(default_factory=dict)
    outgoing: dict[Asset, int] = field(default_factory=dict)

    def add(self, direction: str, asset: Asset, raw: int) -> None:
        """Add one movement; `direction` is `in` or `out`."""
        side = self.incoming if direction == "in" else self.outgoing
        side[asset] = side.get(asset, 0) + raw

    def net(self, asset: Asset) -> int:
        """Return incoming minus outgoing."""
        return self.incoming.get(asset, 0) - self.outgoing.get(asset, 0)

    @property
    def assets(self) -> set[Asset]:
        """Return all assets that moved."""
        return {*self.incoming, *self.outgoing}


def flows_of_day(account_rows: AccountRows, chain: Chain, block: Block) -> tuple[dict[str, Flows], str]:
    """Return the flows of the block's day by account, from midnight (UTC) up to and including the block.

    The second value is the reason if the flows are unknown, else "". Flows are unknown and empty if the index lost a
    part of the day while the rows were read. Every account has an entry otherwise. Transfers of the native coin that
    the chain also logs as token transfers count once. Fees of sent transactions are outgoing flows.

    Args:
        account_rows: Rows up to the block, read when `day_gap` was empty.
    """
    import polars as pl

    accounts, (lake, tail, _) = account_rows.accounts, account_rows.index
    today = pl.col("time") >= midnight(block)
    flows = {account: Flows() for account in accounts}
    transfers = account_rows.of(ACCOUNT_TRANSFERS, accounts, TRANSFER_COLUMNS, today)
    add_transfers(flows, transfers, chain.info, rules_of(chain.kind).burn_addresses)
    is_sent = today & (pl.col("sender") == pl.col("account"))
    add_fees(flows, account_rows.of(ACCOUNT_TRANSACTIONS, accounts, FEE_COLUMNS, is_sent), chain.info.native.asset)
    # Once more: what has left the chain meanwhile may have been read in part.
    gap = day_gap(lake, tail, chain, accounts, block)
    return ({}, gap) if gap else (flows, "")


def day_gap(lake: Lake, tail: Tail, chain: Chain, accounts: Sequence[str], block: Block) -> str:
    """Return what the index lacks of the block's day, as text; "" if nothing is missing."""
    return _index_gap(lake, tail, chain, accounts, block, midnight(block))


def flows_in_span(
    lake: Lake,
    tail: Tail,
    chain: Chain,
    accounts: Sequence[str],
    span: Span,
    row_filter: pl.Expr | None = None,
    *,
    with_rewards: bool = False,
) -> dict[str, Flows]:
    """Return what accounts moved and paid in fees in a span of heights; every account has an entry.

    Args:
      row_filter: An additional filter on the rows of transfers and of sent transactions.
      with_rewards: Include staking rewards that stayed in the stake and changed no balance.
    """
    import polars as pl

    index, flows = ChainIndex(lake, tail, chain.key), {account: Flows() for account in accounts}
    transfers = rows_of(index, ACCOUNT_TRANSFERS, accounts, TRANSFER_COLUMNS, span=span, where=row_filter)
    if not with_rewards:
        transfers = transfers.filter(pl.col("standard") != REWARD)
    add_transfers(flows, transfers, chain.info, rules_of(chain.kind).burn_addresses)
    add_fees(flows, sent_transactions(*index, accounts, FEE_COLUMNS, span, row_filter), chain.info.native.asset)
    return flows


def midnight(block: Block) -> datetime:
    """Return 00:00 UTC of the block's day."""
    return Block(0, "", "", block.time_us - block.time_us % DAY_US).time


def balance_datasets(datasets: Iterable[Dataset]) -> tuple[str, ...]:
    """Return the names of the datasets that determine balances: those with movements and with fees."""
    histories = {history.name for history in HISTORIES}
    return tuple(each.name for each in datasets if each.history in histories and not each.reward_protocol)


def _index_gap(lake: Lake, tail: Tail, chain: Chain, accounts: Sequence[str], block: Block, day_start: datetime) -> str:
    """Return what is not indexed of the block's day up to the block, as text; "" if nothing is missing.

    It also is a gap if the index has another block at this height, or if the chain has no dataset of a history.
    """
    tail_blocks = {each.height: each for each in tail.blocks(chain.key)}
    if tail_blocks.get(block.height, block).hash != block.hash:
        return f"the index has another block {block.height}"
    filled = {each.history for each in chain.datasets.values()}
    if unfilled := [f"`{history.name}`" for history in HISTORIES if history.name not in filled]:
        return f"no dataset of {chain.key} fills {' and '.join(unfilled)}"
    missing, begins = list[str](), dict[str, int]()
    reward_protocol = [each.name for each in chain.datasets.values() if each.reward_protocol]
    position_datasets = [each for each in reward_protocol if indexed_for_all(tail, chain.key, each, accounts)]
    for dataset in (*balance_datasets(chain.datasets.values()), *position_datasets):
        *_, newest = None, *(indexed_for_all(tail, chain.key, dataset, accounts) & [Span(0, block.height)])
        if newest is None or newest.last < block.height:
            missing.append(f"`{dataset}` is not indexed from block {newest.last + 1 if newest else 0} on")
        else:
            begins[dataset] = newest.first
    if missing:
        return ", ".join(missing)
    first = max(begins.values())
    if first == 0 or _starts_before_day(lake, tail, chain.key, first - 1, block, day_start):
        return ""
    late = ", ".join(f"`{dataset}`" for dataset in begins if begins[dataset] == first)
    return f"the day may have begun before block {first}, from which on {late} are indexed"


def _starts_before_day(lake: Lake, tail: Tail, chain: str, first: int, block: Block, day_start: datetime) -> bool:
    """Return True if an indexed block at `first` or later is older than the day: the whole day follows it."""
    import polars as pl

    anchor = tail.anchor(chain)
    blocks = (*tail.blocks(chain), *([anchor] if anchor else []))
    if any(first <= each.height <= block.height and each.time < day_start for each in blocks):
        return True
    span = Span(first, max(first, block.height))
    before = pl.col("height").is_between(first, block.height) & (pl.col("time") < day_start)
    return any(
        lake.scan(table, chain=chain, heights=[span]).filter(before).select("height").head(1).collect().height
        for table in (BLOCKS, TRANSACTIONS)
    )


def add_transfers(
    flows: dict[str, Flows], transfers: pl.DataFrame, info: ChainInfo, burn_accounts: Collection[str]
) -> None:
    """Add fungible transfers between accounts and others to `flows`, which has an entry for each account.

    Tokens of the accounts that mint and burn are skipped, and transfers from an account to itself. Native movements
    that are repeated as token movements count once.
    """
    import polars as pl

    native = pl.col("token").is_null()
    is_burn_account = pl.col("account").is_in(burn_accounts) & ~native
    rows = transfers.filter(pl.col("token_id").is_null(), pl.col("account") != pl.col("counterparty"))
    for account, direction, raw, token in (
        drop_native_duplicates(rows.filter(~is_burn_account), info).select(*FLOW_COLUMNS).iter_rows()
    ):
        asset = info.native.asset if token is None else info.token_asset(token)
        flows[account].add(direction, asset, amounts.raw_from_bytes(raw))


def add_fees(flows: dict[str, Flows], fees: pl.DataFrame, native: Asset) -> None:
    """Add the transaction fees that accounts paid to `flows`."""
    for account, fee in fees.select("account", "fee").iter_rows():
        flows[account].add("out", native, amounts.raw_from_bytes(fee))
