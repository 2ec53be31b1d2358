"""Balances at a past block of a chain whose nodes keep no old state: the balance of now without what moved since.

Rows of the index say what moved; what is newer than the index is read as the history of the accounts. Where the index
reaches back to the first block, the sum of all that moved before has to give the same balance: else an issue says so.
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
from chainfolio.chains import Capability, KeepsCoins, KeepsPositions, having
from chainfolio.contracts import Issue
from chainfolio.errors import HistoryUnavailable
from chainfolio.plans import Unknown
from chainfolio.tables import ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS
from engine.daily import MOVED, Daily, add_fees, add_moved, moved_in, needed
from engine.sent import PAID
from indexer.scopes import indexed_for_all

if TYPE_CHECKING:
    import pyarrow as pa

    from chainfolio.chains import Chain, Collected
    from chainfolio.positions import AccountState
    from storage.lake import Lake
    from storage.tail import Tail

ADAPTER: Final = "replay"
NO_ROWS: Final = "its nodes keep no past balances, and movements are not indexed for blocks"
REMEDY: Final = "chainfolio watch ADDRESS reads them"
TOLD: Final = "a node tells this balance of the block itself; those of tokens are replayed"
NO_POSITIONS: Final = "what lay in positions{} at a past block is not known: their accounts keep no history here"


def has_past(chain: Chain) -> bool:
    """Whether balances of past blocks can be told: by nodes, else by what moved since."""
    return Capability.PAST_BALANCES in chain.capabilities or replays(chain)


def replays(chain: Chain) -> bool:
    """Whether balances of past blocks are told by what moved since."""
    return Capability.PAST_BALANCES not in chain.capabilities and Capability.ACCOUNT_HISTORY in chain.capabilities


@dataclass(frozen=True, slots=True)
class Replay:
    """Takes accounts back to a block. HistoryUnavailable where what moved since is not indexed."""

    chain: Chain
    lake: Lake
    tail: Tail
    lag: int  # blocks behind the head that are read from the node, where they are not indexed

    async def states(self, states: Mapping[str, AccountState], block: Block) -> dict[str, AccountState]:
        """What accounts had at a block, by what they have at a later one."""
        accounts = list(states)
        now = max((state.block.height for state in states.values() if state.block), default=block.height)
        if now <= block.height:
            return dict(states)
        indexed, left = await asyncio.to_thread(self._left, accounts, Span(block.height + 1, now))
        newer = await self._collected(left, accounts) if left else []
        since = await asyncio.to_thread(self._since, accounts, Span(block.height + 1, now), left)
        for each in newer:
            self._add(since, each, accounts)
        whole = indexed.covers(Span(0, block.height))
        before = await asyncio.to_thread(self._moved, accounts, Span(0, block.height)) if whole else {}
        first = next((span.first for span in indexed if block.height in span), block.height + 1)
        unexplained = await asyncio.to_thread(self._unexplained, accounts, block.height)
        known = {each: self._state(each, state, since[each], before.get(each)) for each, state in states.items()}
        coins = await self._coins({account: state for account, (state, _) in known.items()}, block)
        keeper = _itself(self.chain)
        past = await keeper.positions_at(accounts, block) if isinstance(keeper, KeepsPositions) else {}
        found = {}
        for account, state in states.items():
            replayed, issues = known[account]
            if account in past:
                replayed, issues = replace(replayed, positions=tuple(past[account][0])), [*issues, *past[account][1]]
            if account in coins:
                replayed, issues = self._with_coins(account, replayed, coins[account], issues)
            issues += self._limits(account, state, None if whole else first, unexplained.get(account))
            found[account] = replace(replayed, issues=(*state.issues, *issues), block=block)
        return found

    async def _coins(self, states: Mapping[str, AccountState], block: Block) -> Mapping[str, int]:
        """What nodes tell of the coins of those who had some, or of whom nobody knows."""
        wanted = [account for account, state in states.items() if state.native != 0]
        keeper = _itself(self.chain)
        return await keeper.coins_at(wanted, block) if wanted and isinstance(keeper, KeepsCoins) else {}

    def _with_coins(
        self, account: str, state: AccountState, raw: int, issues: list[Issue]
    ) -> tuple[AccountState, list[Issue]]:
        """The coins as a node tells them of the block itself, which counts; and where rows come to something else."""
        native = self.chain.info.native.asset
        if state.native == raw:
            return state, [*issues, Issue(ADAPTER, native.reference, TOLD, makes_partial=False, account=account)]
        reason = f"a node tells {raw} of this block, which counts; movements come to {_shown(state.native)}"
        others = [each for each in issues if each.subject != native.reference]
        return replace(state, native=raw), [*others, Issue(ADAPTER, native.reference, reason, account=account)]

    def _left(self, accounts: Sequence[str], span: Span) -> tuple[Spans, Span | None]:
        """The heights that are indexed in all that it takes, and those of a span that have to be read now."""
        datasets = needed(self.chain.datasets.values())
        indexed = reduce(
            Spans.__and__, (indexed_for_all(self.tail, self.chain.key, each, accounts) for each in datasets)
        )
        left = list(Spans([span]) - indexed)
        if left and (left[0].last < span.last or len(left[0]) > self.lag):
            reason = f"{NO_ROWS} {left[0].first} to {left[0].last} ({REMEDY})"
            raise HistoryUnavailable(self.chain.key, span.first - 1, reason)
        return indexed, left[0] if left else None

    async def _collected(self, span: Span, accounts: Sequence[str]) -> list[Collected]:
        """What is newer than the index, piece by piece."""
        if not self.chain.is_final(span.last):
            await self.chain.heads()
        reader, pieces = having(self.chain, Capability.ACCOUNT_HISTORY), list[Any]()
        datasets = needed(self.chain.datasets.values())
        first = span.first
        while first <= span.last:
            pieces.append(await reader.collect_accounts(Span(first, span.last), accounts, datasets))
            first = pieces[-1].span.last + 1
        return pieces

    def _moved(self, accounts: Sequence[str], span: Span) -> dict[str, Daily]:
        return moved_in(self.lake, self.tail, self.chain, accounts, span)

    def _since(self, accounts: Sequence[str], span: Span, left: Span | None) -> dict[str, Daily]:
        """What moved by the rows of blocks that are indexed whole. Some rows of the others may be there, too: they are
        read with all that is left."""
        if left is None:
            return self._moved(accounts, span)
        if left.first == span.first:
            return {account: Daily() for account in accounts}
        return self._moved(accounts, Span(span.first, left.first - 1))

    def _add(self, found: dict[str, Daily], piece: Collected, accounts: Sequence[str]) -> None:
        """Take in what was read of the newest blocks."""
        import polars as pl

        from portfolio.ledger import by_account

        def own(table: Any, rows: pa.Table, columns: Sequence[str]) -> pl.DataFrame:
            named = by_account(table, pl.LazyFrame(rows)).filter(pl.col("account").is_in(accounts))
            return named.select(columns).collect()

        moved = own(ACCOUNT_TRANSFERS, piece.tables["transfers"], MOVED)
        add_moved(found, moved, self.chain.info, rules_of(self.chain.kind).nobody)
        paid = own(ACCOUNT_TRANSACTIONS, piece.tables["transactions"], (*PAID, "sender"))
        add_fees(found, paid.filter(pl.col("sender") == pl.col("account")), self.chain.info.native.asset)

    def _unexplained(self, accounts: Sequence[str], height: int) -> dict[str, tuple[Asset, ...]]:
        """Return by account the assets whose movements above a height no rows explain: none if one is not named."""
        found: dict[str, tuple[Asset, ...]] = {}
        for account in accounts:
            rows = [row for row in self.tail.unexplained(self.chain.key, account) if row[0] > height]
            if rows:
                is_named = all(raw for _, _, raw, _ in rows)
                found[account] = tuple(sorted({asset(name) for _, name, _, _ in rows})) if is_named else ()
        return found

    def _state(
        self, account: str, state: AccountState, since: Daily, before: Daily | None
    ) -> tuple[AccountState, list[Issue]]:
        """The balances of an account before something moved; Unknown where it would have been less than nothing."""
        native, issues = self.chain.info.native.asset, list[Issue]()
        now = {each: raw for each, raw in state.balances.items() if each != native} | {native: state.native}
        assets = {*now, *since.assets, *(before.assets if before else ())}
        found: dict[Asset, Any] = {}
        for each in sorted(assets):
            raw = now.get(each, 0)
            if isinstance(raw, int):
                raw -= since.net(each)
                if raw < 0:
                    raw = Unknown("more of it came since than there is")
                elif before is not None and before.net(each) != raw:
                    reason = f"movements up to this block add up to {before.net(each)}, those since leave {raw}"
                    issues.append(Issue(ADAPTER, each.reference, reason, account=account, assets=(each,)))
            found[each] = raw
        return replace(state, native=found.pop(native), balances=found, positions=()), issues

    def _limits(
        self, account: str, state: AccountState, first: int | None, unexplained: tuple[Asset, ...] | None
    ) -> list[Issue]:
        """What a replayed balance does not know. `unexplained`: assets that moved without rows, None if nothing did."""
        key = self.chain.key
        keeper = _itself(self.chain)
        told = sorted(keeper.past_positions) if isinstance(keeper, KeepsPositions) else []
        lost = [each for each in state.positions if each.protocol not in told]
        are_grounded = all(each.ground and not each.vouches for each in lost)
        assets = tuple(sorted({token for each in lost for token in each.ground})) if are_grounded else ()
        but = f", but in those of {', '.join(told)}," if told else ""
        found = [Issue(ADAPTER, key, NO_POSITIONS.format(but), bool(lost), account, assets=assets)]
        if first is not None:
            reason = f"balances are replayed from those of now; they are exact from block {first} on"
            found.append(Issue(ADAPTER, key, reason, makes_partial=False, account=account))
        if unexplained is not None:
            reason = "movements since this block are not explained by rows: chainfolio status lists them"
            found.append(Issue(ADAPTER, key, reason, account=account, assets=unexplained))
        return found


def _itself(chain: Chain) -> Chain:
    """The chain behind what passes on its members: from Python 3.12 on, `isinstance` does not see those."""
    while (behind := getattr(chain, "chain", None)) is not None:
        chain = behind
    return chain


def _shown(raw: Any) -> str:
    return raw.reason if isinstance(raw, Unknown) else str(raw)
