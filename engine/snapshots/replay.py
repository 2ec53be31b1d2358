"""Balances at past blocks of chains whose nodes keep no old state: current ones minus later movements.

Indexed rows contain the movements; blocks newer than the index are read as the history of the accounts. If the index
reaches back to the first block, the sum of all earlier movements must give the same balance; an issue reports a
difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from chainfolio.addresses import rules_of
from chainfolio.assets import Asset, asset
from chainfolio.blocks import Block, Span, Spans
from chainfolio.capabilities import Capability, find_capability, require_capability
from chainfolio.contracts import Issue
from chainfolio.engine.snapshots.day_flows import (
    TRANSFER_COLUMNS,
    Flows,
    add_fees,
    add_transfers,
    balance_datasets,
    flows_in_span,
)
from chainfolio.engine.snapshots.sent_transactions import FEE_COLUMNS
from chainfolio.errors import HistoryUnavailable
from chainfolio.indexer.scopes import indexed_for_all
from chainfolio.plans import Unknown
from chainfolio.tables import ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS

if TYPE_CHECKING:
    import pyarrow as pa

    from chainfolio.chain_results import SpanTables
    from chainfolio.chains import Chain
    from chainfolio.positions import AccountState
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

ADAPTER: Final = "replay"
NO_ROWS: Final = "its nodes keep no past balances, and movements are not indexed for blocks"
REMEDY: Final = "chainfolio watch ADDRESS reads them"
COINS_FROM_NODE: Final = "a node tells this balance of the block itself; those of tokens are replayed"
NO_POSITIONS: Final = "what lay in positions{} at a past block is not known: their accounts keep no history here"


def has_past(chain: Chain) -> bool:
    """Return True if balances at past blocks are available, from nodes or by replay of movements."""
    return Capability.PAST_BALANCES in chain.capabilities or replays(chain)


def replays(chain: Chain) -> bool:
    """Return True if balances at past blocks are computed from movements, because nodes keep no old state."""
    return Capability.PAST_BALANCES not in chain.capabilities and Capability.ACCOUNT_HISTORY in chain.capabilities


@dataclass(frozen=True, slots=True)
class Replay:
    """Computes the state of accounts at a past block.

    `lag` is the maximum number of unindexed blocks behind the head that are read from the node.
    """

    chain: Chain
    lake: Lake
    tail: Tail
    lag: int  # blocks behind the head that are read from the node, where they are not indexed

    async def states(self, states: Mapping[str, AccountState], block: Block) -> dict[str, AccountState]:
        """Return the state of accounts at `block`, computed from their state at a later block.

        States that are not later are returned unchanged. A native balance that a node reports for the block replaces
        the computed one. Positions are dropped, except those that the chain can read at past blocks. Issues name what
        the replayed states lack.

        Raises:
            HistoryUnavailable: Movements since the block are not indexed.
            SourceError: Movements that are newer than the index could not be read.
        """
        accounts = list(states)
        now = max((state.block.height for state in states.values() if state.block), default=block.height)
        if now <= block.height:
            return dict(states)
        indexed, unindexed = await asyncio.to_thread(self._indexed_and_missing, accounts, Span(block.height + 1, now))
        recent_tables = await self._collect_recent(unindexed, accounts) if unindexed else []
        flows_since = await asyncio.to_thread(self._indexed_flows, accounts, Span(block.height + 1, now), unindexed)
        for each in recent_tables:
            self._add(flows_since, each, accounts)
        is_complete = indexed.covers(Span(0, block.height))
        flows_before = await asyncio.to_thread(self._flows, accounts, Span(0, block.height)) if is_complete else {}
        first = next((span.first for span in indexed if block.height in span), block.height + 1)
        unexplained = await asyncio.to_thread(self._unexplained, accounts, block.height)
        replayed_states = {
            each: self._state(each, state, flows_since[each], flows_before.get(each)) for each, state in states.items()
        }
        coins = await self._coins({account: state for account, (state, _) in replayed_states.items()}, block)
        reader = find_capability(self.chain, Capability.PAST_POSITIONS)
        past_positions = await reader.positions_at(accounts, block) if reader is not None else {}
        results = {}
        for account, state in states.items():
            replayed, issues = replayed_states[account]
            if account in past_positions:
                replayed, issues = (
                    replace(replayed, positions=tuple(past_positions[account][0])),
                    [*issues, *past_positions[account][1]],
                )
            if account in coins:
                replayed, issues = self._with_coins(account, replayed, coins[account], issues)
            issues += self._limits(account, state, None if is_complete else first, unexplained.get(account))
            results[account] = replace(replayed, issues=(*state.issues, *issues), block=block)
        return results

    async def _coins(self, states: Mapping[str, AccountState], block: Block) -> Mapping[str, int]:
        """Return the native balances that nodes report for the block itself, for accounts that may have any."""
        accounts = [account for account, state in states.items() if state.native != 0]
        reader = find_capability(self.chain, Capability.PAST_COINS)
        return await reader.coins_at(accounts, block) if accounts and reader is not None else {}

    def _with_coins(
        self, account: str, state: AccountState, raw: int, issues: list[Issue]
    ) -> tuple[AccountState, list[Issue]]:
        """Replace the native balance by `raw`, which a node reports for the block, and add an issue about it.

        If movements give the same balance, the issue only names the source and does not make the answer partial.
        Otherwise it replaces the issues about the native coin.
        """
        native = self.chain.info.native.asset
        if state.native == raw:
            return state, [
                *issues,
                Issue(ADAPTER, native.reference, COINS_FROM_NODE, makes_partial=False, account=account),
            ]
        reason = f"a node tells {raw} of this block, which counts; movements come to {_format_balance(state.native)}"
        other_issues = [each for each in issues if each.subject != native.reference]
        return replace(state, native=raw), [*other_issues, Issue(ADAPTER, native.reference, reason, account=account)]

    def _indexed_and_missing(self, accounts: Sequence[str], span: Span) -> tuple[Spans, Span | None]:
        """Return the heights with all balance datasets, and the part of `span` to read from the node.

        Raises:
          HistoryUnavailable: More than `lag` blocks are not indexed, or blocks before the newest ones.
        """
        datasets = balance_datasets(self.chain.datasets.values())
        indexed = reduce(
            Spans.__and__, (indexed_for_all(self.tail, self.chain.key, each, accounts) for each in datasets)
        )
        missing = list(Spans([span]) - indexed)
        if missing and (missing[0].last < span.last or len(missing[0]) > self.lag):
            reason = f"{NO_ROWS} {missing[0].first} to {missing[0].last} ({REMEDY})"
            raise HistoryUnavailable(self.chain.key, span.first - 1, reason)
        return indexed, missing[0] if missing else None

    async def _collect_recent(self, span: Span, accounts: Sequence[str]) -> list[SpanTables]:
        """Read the account histories of blocks that are newer than the index, in pieces that cover the span.

        Raises:
            HistoryUnavailable: No node has them.
            SourceError: They could not be read.
        """
        if not self.chain.is_final(span.last):
            await self.chain.heads()
        reader, pieces = require_capability(self.chain, Capability.ACCOUNT_HISTORY), list[Any]()
        datasets = balance_datasets(self.chain.datasets.values())
        first = span.first
        while first <= span.last:
            pieces.append(await reader.collect_accounts(Span(first, span.last), accounts, datasets))
            pieces[-1].require_datasets(self.chain.key, datasets)
            first = pieces[-1].span.last + 1
        return pieces

    def _flows(self, accounts: Sequence[str], span: Span) -> dict[str, Flows]:
        return flows_in_span(self.lake, self.tail, self.chain, accounts, span)

    def _indexed_flows(self, accounts: Sequence[str], span: Span, missing: Span | None) -> dict[str, Flows]:
        """Return the flows of the completely indexed blocks of `span`.

        Rows of other blocks may exist already; those blocks are read from the node as a whole.
        """
        if missing is None:
            return self._flows(accounts, span)
        if missing.first == span.first:
            return {account: Flows() for account in accounts}
        return self._flows(accounts, Span(span.first, missing.first - 1))

    def _add(self, flows: dict[str, Flows], piece: SpanTables, accounts: Sequence[str]) -> None:
        """Add the movements and fees of one piece of recent history to `flows`."""
        import polars as pl

        from chainfolio.portfolio.ledger import by_account

        def account_rows_of(table: Any, rows: pa.Table, columns: Sequence[str]) -> pl.DataFrame:
            account_rows = by_account(table, pl.LazyFrame(rows)).filter(pl.col("account").is_in(accounts))
            return account_rows.select(columns).collect()

        transfers = account_rows_of(ACCOUNT_TRANSFERS, piece.tables["transfers"], TRANSFER_COLUMNS)
        add_transfers(flows, transfers, self.chain.info, rules_of(self.chain.kind).burn_addresses)
        fees = account_rows_of(ACCOUNT_TRANSACTIONS, piece.tables["transactions"], (*FEE_COLUMNS, "sender"))
        add_fees(flows, fees.filter(pl.col("sender") == pl.col("account")), self.chain.info.native.asset)

    def _unexplained(self, accounts: Sequence[str], height: int) -> dict[str, tuple[Asset, ...]]:
        """Return, by account, the assets with unexplained movements above a height.

        The assets of an account are empty if one of its movements names none.
        """
        assets_by_account: dict[str, tuple[Asset, ...]] = {}
        for account in accounts:
            rows = [row for row in self.tail.unexplained_changes(self.chain.key, account) if row[0] > height]
            if rows:
                is_named = all(raw for _, _, raw, _ in rows)
                assets_by_account[account] = tuple(sorted({asset(name) for _, name, _, _ in rows})) if is_named else ()
        return assets_by_account

    def _state(
        self, account: str, state: AccountState, flows_since: Flows, flows_before: Flows | None
    ) -> tuple[AccountState, list[Issue]]:
        """Return the balances of an account before `flows_since`, without positions.

        A balance below zero becomes Unknown; one that is not a number stays. Issues report balances that differ from
        the sum of all flows in `flows_before`; None skips this check.
        """
        native, issues = self.chain.info.native.asset, list[Issue]()
        now = {each: raw for each, raw in state.balances.items() if each != native} | {native: state.native}
        assets = {*now, *flows_since.assets, *(flows_before.assets if flows_before else ())}
        balances: dict[Asset, Any] = {}
        for each in sorted(assets):
            raw = now.get(each, 0)
            if isinstance(raw, int):
                raw -= flows_since.net(each)
                if raw < 0:
                    raw = Unknown("more of it came since than there is")
                elif flows_before is not None and flows_before.net(each) != raw:
                    reason = f"movements up to this block add up to {flows_before.net(each)}, those since leave {raw}"
                    issues.append(Issue(ADAPTER, each.reference, reason, account=account, assets=(each,)))
            balances[each] = raw
        return replace(state, native=balances.pop(native), balances=balances, positions=()), issues

    def _limits(
        self, account: str, state: AccountState, first: int | None, unexplained: tuple[Asset, ...] | None
    ) -> list[Issue]:
        """Return issues about everything that the replayed state does not contain.

        Args:
          first: The first block from which balances are exact; None if they always are.
          unexplained: Assets that moved without rows; None if nothing did.
        """
        key = self.chain.key
        reader = find_capability(self.chain, Capability.PAST_POSITIONS)
        known_protocols = sorted(reader.past_positions) if reader is not None else []
        lost_positions = [each for each in state.positions if each.protocol not in known_protocols]
        are_grounded = all(each.required_assets and not each.has_trusted_assets for each in lost_positions)
        assets = (
            tuple(sorted({token for each in lost_positions for token in each.required_assets})) if are_grounded else ()
        )
        exception = f", but in those of {', '.join(known_protocols)}," if known_protocols else ""
        issues = [Issue(ADAPTER, key, NO_POSITIONS.format(exception), bool(lost_positions), account, assets=assets)]
        if first is not None:
            reason = f"balances are replayed from those of now; they are exact from block {first} on"
            issues.append(Issue(ADAPTER, key, reason, makes_partial=False, account=account))
        if unexplained is not None:
            reason = "movements since this block are not explained by rows: chainfolio status lists them"
            issues.append(Issue(ADAPTER, key, reason, account=account, assets=unexplained))
        return issues


def _format_balance(raw: Any) -> str:
    return raw.reason if isinstance(raw, Unknown) else str(raw)
