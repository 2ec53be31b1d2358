"""The gains that portfolios show: those of accounts whose whole history is indexed, computed anew when it grows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from chainfolio.errors import ChainfolioError
from chainfolio.messages import public
from chainfolio.tables import ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS
from engine.activities import missing
from engine.pnl import PnlRequest, found
from engine.rows import rows_of
from engine.snapshot import LIVE_LAG
from portfolio.pnl.in_portfolio import AccountGains, account_gains

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from engine.service import Engine
    from indexer.wiring import System

MAX_KEPT: Final = 2_000  # accounts
TOO_MANY: Final = "it has more than {most:,} transactions: chainfolio pnl {address} computes them"
NOT_INDEXED: Final = "not all that it did on {chain} is indexed: chainfolio watch {address} --chain {chain} reads it"
Mark = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class GainsBook:
    """What is known of the gains of accounts, each kept as long as its history stays the same."""

    _kept: dict[str, tuple[Mark, AccountGains]] = field(default_factory=dict)

    async def of(self, engine: Engine, account: Account, heights: Mapping[str, int]) -> AccountGains | None:
        """The gains of one account, or why they are not known, by the heights of the chains that were read; None where
        the operator wants none. Nothing is asked of a node where the index does not have the whole history, or where
        that has not grown."""
        settings = engine.system.settings.pnl
        if not settings.max_transactions:
            return None
        chains = [chain for chain in engine.system.chains if chain.kind == account.kind]
        try:
            for chain in chains:
                if not await asyncio.to_thread(_is_indexed, engine.system, chain, account.address, heights):
                    return AccountGains(reason=NOT_INDEXED.format(chain=chain.key, address=account.address))
            mark = await asyncio.to_thread(_mark, engine.system, chains, account.address)
            if max(count for count, _ in mark) > settings.max_transactions:
                return AccountGains(reason=TOO_MANY.format(most=settings.max_transactions, address=account.address))
            kept = self._kept.get(account.address)
            if kept is None or kept[0] != mark:
                known = await found(engine, [account], _wanted(settings.method, chains))
                kept = self._keep(account.address, (mark, account_gains(known.gains, known.same)))
        except ChainfolioError as error:
            return AccountGains(reason=public(error.message))
        return kept[1]

    def _keep(self, address: str, kept: tuple[Mark, AccountGains]) -> tuple[Mark, AccountGains]:
        self._kept.pop(address, None)  # so that the oldest come first
        self._kept[address] = kept
        while len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        return kept


def _wanted(method: str, chains: Sequence[Chain]) -> PnlRequest:
    return PnlRequest(method, networks=tuple(chain.key for chain in chains))


def _is_indexed(system: System, chain: Chain, account: str, heights: Mapping[str, int]) -> bool:
    """Whether all that says what an account did is indexed, from the first block to the one that was read."""
    datasets = [each.name for each in chain.datasets.values() if each.in_activity and not each.loss]
    head = heights.get(chain.key)
    if head is None or not datasets:
        return False
    return not missing(system.tail, chain.key, [account], datasets, head, LIVE_LAG)[1]


def _mark(system: System, chains: Sequence[Chain], account: str) -> Mark:
    """By history how many rows an account has, and a digest of them."""
    found = []
    for chain in chains:
        for table in (ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS):
            columns = [*(name for name in table.key if name != "chain"), "tx_hash"]
            rows = rows_of(system.lake, system.tail, chain.key, table, [account], columns)
            found.append((rows["tx_hash"].n_unique(), int(rows.sort(columns).hash_rows().sum())))
    return tuple(found)
