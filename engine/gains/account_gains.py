"""The gains that portfolios and transactions show: those of accounts whose whole history is indexed, computed anew
when it grows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from chainfolio.engine.gains.pnl import PnlRequest, found
from chainfolio.engine.rows import rows_of
from chainfolio.engine.shared_work import SharedWork
from chainfolio.engine.snapshots.snapshotter import LIVE_LAG_S
from chainfolio.engine.transactions.activities import missing
from chainfolio.errors import ChainfolioError, NotFound
from chainfolio.messages import public
from chainfolio.portfolio.document import IssueDocument
from chainfolio.portfolio.pnl.in_portfolio import ADAPTER, AccountGains, account_gains
from chainfolio.portfolio.pnl.in_transactions import TransactionGains, transaction_gains, with_gains
from chainfolio.tables import ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from chainfolio.engine.answers import TransactionsPage
    from chainfolio.engine.service import Engine
    from chainfolio.indexer.wiring import System

MAX_KEPT: Final = 2_000  # accounts
MAX_ROWS: Final = 500_000  # of all their transactions
TOO_MANY: Final = "it has more than {most:,} transactions: chainfolio pnl {address} computes them"
NOT_INDEXED: Final = "not all that it did on {chain} is indexed: chainfolio watch {address} --chain {chain} reads it"
NO_GAINS: Final = TransactionGains(reason="nobody asked")
Mark = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Known:
    """The gains of one account as portfolios show them, and those of each of its transactions."""

    in_portfolio: AccountGains
    in_transactions: TransactionGains


@dataclass(slots=True)
class GainsBook:
    """What is known of the gains of accounts, each kept as long as its history stays the same. `noted` is told of
    failures that nobody waits for."""

    noted: Callable[[BaseException], None]
    _kept: dict[str, tuple[Mark, Known]] = field(default_factory=dict)
    _rows: int = 0
    _work: SharedWork[Known] = field(init=False)

    def __post_init__(self) -> None:
        self._work = SharedWork(self.noted)

    async def of(self, engine: Engine, account: Account, heights: Mapping[str, int]) -> Known | None:
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
                    return _unknown(NOT_INDEXED.format(chain=chain.key, address=account.address))
            mark = await asyncio.to_thread(_mark, engine.system, chains, account.address, settings.max_transactions)
        except NotFound:
            return _unknown(TOO_MANY.format(most=settings.max_transactions, address=account.address))
        except ChainfolioError as error:
            return _unknown(public(error.message))
        kept = self._kept.get(account.address)
        if kept is not None and kept[0] == mark:
            return kept[1]
        work = partial(self._computed, engine, account, _wanted(settings.method, chains), mark)
        return (await self._work.results([(f"{account.address} {hash(mark)}", work)]))[0]

    async def _computed(self, engine: Engine, account: Account, wanted: PnlRequest, mark: Mark) -> Known:
        """The gains of one account, which are kept; or why they are not known, which is not."""
        try:
            said = await found(engine, [account], wanted)
        except ChainfolioError as error:
            return _unknown(public(error.message))
        rows = transaction_gains(said.entries, said.gains.gains, said.same)
        known = Known(account_gains(said.gains, said.same), rows)
        self._forget(account.address)  # so that the oldest come first
        self._kept[account.address] = mark, known
        self._rows += rows.size
        while len(self._kept) > 1 and (len(self._kept) > MAX_KEPT or self._rows > MAX_ROWS):
            self._forget(next(iter(self._kept)))
        return known

    def _forget(self, address: str) -> None:
        if (kept := self._kept.pop(address, None)) is not None:
            self._rows -= kept[1].in_transactions.size


def _unknown(reason: str) -> Known:
    return Known(AccountGains(reason=reason), TransactionGains(reason=reason))


def _wanted(method: str, chains: Sequence[Chain]) -> PnlRequest:
    return PnlRequest(method, networks=tuple(chain.key for chain in chains))


def _is_indexed(system: System, chain: Chain, account: str, heights: Mapping[str, int]) -> bool:
    """Whether all that says what an account did is indexed, from the first block to the one that was read."""
    datasets = [each.name for each in chain.datasets.values() if each.in_activity and not each.loss]
    head = heights.get(chain.key)
    if head is None or not datasets:
        return False
    return not missing(system.tail, chain.key, [account], datasets, head, chain.info.blocks_in(LIVE_LAG_S))[1]


def _mark(system: System, chains: Sequence[Chain], account: str, most: int) -> Mark:
    """By history how many transactions an account has, and a digest of its rows. NotFound where it has more than
    `most`: then its rows are not read."""
    found = []
    for chain in chains:
        for table in (ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS):
            columns = [*(name for name in table.key if name != "chain"), "tx_hash"]
            rows = rows_of(system.lake, system.tail, chain.key, table, [account], columns, max_transactions=most)
            found.append((rows["tx_hash"].n_unique(), int(rows.sort(columns).hash_rows().sum())))
    return tuple(found)


async def with_known_gains(
    engine: Engine, book: GainsBook, page: TransactionsPage, accounts: Sequence[Account], heads: Mapping[str, int]
) -> TransactionsPage:
    """A page with what each transaction cost and gained; an issue says where that is not known. `heads` are those of
    the chains by which it was read."""
    document = page.document
    shown = {record.user.address for record in document.transactions}
    known = await asyncio.gather(
        *(_in_transactions(engine, book, account, heads) for account in accounts if account.address in shown)
    )
    gains = {address: each for address, each in known if each is not None}
    issues = {
        IssueDocument(ADAPTER, address, f"gains are not known: {each.reason}"): None
        for address, each in gains.items()
        if each.reason
    }
    filled = [with_gains(each, gains.get(each.user.address, NO_GAINS)) for each in document.transactions]
    for _, faults in filled:
        issues |= {IssueDocument(ADAPTER, key, f"its gain is not known: {why}"): None for key, why in faults.items()}
    filled_page = msgspec.structs.replace(
        document,
        transactions=tuple(record for record, _ in filled),
        issues=(*document.issues, *sorted(issues, key=_by_subject)),
    )
    return replace(page, document=filled_page)


async def _in_transactions(
    engine: Engine, book: GainsBook, account: Account, heads: Mapping[str, int]
) -> tuple[str, TransactionGains | None]:
    chains = [chain for chain in engine.system.chains if chain.kind == account.kind and chain.key not in heads]
    try:
        others = {chain.key: (await engine.heads.latest(chain)).block.height for chain in chains}
    except ChainfolioError as error:
        return account.address, TransactionGains(reason=public(error.message))
    silent = [
        chain.key for chain in engine.system.chains if chain.kind == account.kind and engine.heads.is_silent(chain.key)
    ]
    if silent:
        return account.address, TransactionGains(reason=f"the node of {', '.join(silent)} does not answer")
    known = await book.of(engine, account, {**heads, **others})
    return account.address, None if known is None else known.in_transactions


def _by_subject(issue: IssueDocument) -> tuple[str, str]:
    return issue.subject, issue.reason
