"""Gains that portfolios and transactions show, for accounts whose whole history is indexed.

They are cached, and computed again when the history grows.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from chainfolio.engine.gains.pnl import PnlRequest, ReportSource, blocks_of, compute_gains
from chainfolio.engine.record_source import RecordSource
from chainfolio.engine.rows import ChainIndex, rows_of
from chainfolio.engine.shared_work import SharedWork
from chainfolio.engine.snapshots.snapshotter import LIVE_LAG_S
from chainfolio.engine.transactions.activities import missing
from chainfolio.errors import ChainfolioError, NotFound
from chainfolio.messages import public
from chainfolio.portfolio.document import IssueDocument
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.pnl.closing import account_closings, unclosed_keys
from chainfolio.portfolio.pnl.debts import open_debts
from chainfolio.portfolio.pnl.in_portfolio import ADAPTER, AccountGains, account_gains
from chainfolio.portfolio.pnl.in_transactions import TransactionGains, transaction_gains, with_gains
from chainfolio.tables import ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from chainfolio.engine.results import TransactionsPage
    from chainfolio.engine.stored_heads import StoredHeads
    from chainfolio.indexer.parts import IndexedChains

MAX_ACCOUNTS: Final = 2_000
MAX_ROWS: Final = 100_000  # over all accounts; those of one account are kept whatever their number
TOO_MANY: Final = "it has more than {most:,} transactions: chainfolio pnl {address} computes them"
NOT_INDEXED: Final = "not all that it did on {chain} is indexed: chainfolio watch {address} --chain {chain} reads it"
NO_GAINS: Final = TransactionGains(reason="gains were not requested")
HistoryMark = tuple[tuple[int, int], ...]


class GainsSource(ReportSource, Protocol):
    """Reads heads of chains in addition to records and portfolios."""

    @property
    def heads(self) -> StoredHeads:
        """The newest blocks of chains."""


@dataclass(frozen=True, slots=True)
class KnownGains:
    """The gains of one account as portfolios and as transactions show them, or why they are unknown.

    `mark` is that of the history from which they were computed, and `last_blocks` has the block of the last transaction
    that moved an asset, by key.
    """

    in_portfolio: AccountGains
    in_transactions: TransactionGains
    mark: HistoryMark = ()
    last_blocks: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class GainsCache:
    """Caches the gains of accounts, each as long as its history stays the same.

    `on_failure` is called with errors of computations that no caller waits for.
    """

    on_failure: Callable[[BaseException], None]
    _entries: dict[str, tuple[HistoryMark, KnownGains]] = field(default_factory=dict)
    _unclosed: dict[str, tuple[HistoryMark, frozenset[str]]] = field(default_factory=dict)
    _rows: int = 0
    _work: SharedWork[KnownGains] = field(init=False)

    def __post_init__(self) -> None:
        self._work = SharedWork(self.on_failure)

    async def get(self, source: RecordSource, account: Account, heights: Mapping[str, int]) -> KnownGains | None:
        """Return the gains of one account, or the reason why they are unknown.

        None if `pnl.max_transactions` is 0. No node is asked unless the index has the whole history and the history has
        grown.

        Args:
            heights: The heights up to which the account's chains were read.
        """
        settings = source.system.settings.pnl
        if not settings.max_transactions:
            return None
        chains = [chain for chain in source.system.chains if chain.kind == account.kind]
        try:
            for chain in chains:
                if not await asyncio.to_thread(_is_indexed, source.system, chain, account.address, heights):
                    return _unknown(NOT_INDEXED.format(chain=chain.key, address=account.address))
            mark = await asyncio.to_thread(_mark, source.system, chains, account.address, settings.max_transactions)
        except NotFound:
            return _unknown(TOO_MANY.format(most=settings.max_transactions, address=account.address))
        except ChainfolioError as error:
            return _unknown(public(error.message))
        cached = self._entries.get(account.address)
        if cached is not None and cached[0] == mark:
            return cached[1]
        work = partial(self._compute, source, account, _request(settings.method, chains), mark)
        return (await self._work.results([(f"{account.address} {hash(mark)}", work)]))[0]

    async def _compute(
        self, source: RecordSource, account: Account, request: PnlRequest, mark: HistoryMark
    ) -> KnownGains:
        """Compute and cache the gains of one account; a failure gives its reason and is not cached.

        The oldest entries are evicted above MAX_ACCOUNTS accounts or MAX_ROWS rows; the newest stays.
        """
        try:
            result = await compute_gains(source, [account], request)
        except ChainfolioError as error:
            return _unknown(public(error.message))
        rows = transaction_gains(result.entries, result.gains.gains, result.aliases, result.shares)
        assets = {lots.asset for lots in result.gains.remaining}
        untrusted = frozenset(asset for asset in assets if not source.is_trusted_contract(asset))
        in_portfolio = account_gains(result.gains, result.aliases, untrusted)
        gains = KnownGains(
            replace(
                in_portfolio,
                shares=result.shares,
                contents=result.contents,
                pools=result.pools,
                rents=result.rents,
                debts=open_debts(result.entries),
            ),
            rows,
            mark,
            result.last_blocks,
        )
        self._evict(account.address)  # so that the new entry becomes the last one
        self._entries[account.address] = mark, gains
        self._rows += rows.size
        while len(self._entries) > 1 and (len(self._entries) > MAX_ACCOUNTS or self._rows > MAX_ROWS):
            self._evict(next(iter(self._entries)))
        return gains

    async def unclosed(self, source: ReportSource, account: Account, gains: KnownGains) -> frozenset[str]:
        """Return the assets of an account whose transactions do not add up to what its portfolio holds.

        The portfolio is read once as long as the history stays the same. Assets that moved after its block are left
        out, and compared again next time.

        Raises:
            SourceError: The portfolio could not be read.
        """
        cached = self._unclosed.get(account.address)
        if cached is not None and cached[0] == gains.mark:
            return cached[1]
        (document,) = await source.portfolios([account], Options(), wait=True, wallet_only=False)
        known = gains.in_portfolio
        checked = account_closings(document, known.lots.values(), known.aliases, *known.positions)
        assets = frozenset(asset for asset, _ in unclosed_keys(checked))
        blocks = blocks_of([document])
        newer = {asset for asset, block in gains.last_blocks.items() if block > blocks.get(asset.partition(":")[0], -1)}
        entry = self._entries.get(account.address)
        if not newer and entry is not None and entry[0] == gains.mark:  # it may have been evicted meanwhile
            self._unclosed[account.address] = gains.mark, assets
        return assets - newer

    @property
    def row_count(self) -> int:
        """Number of cached rows."""
        return self._rows

    def _evict(self, address: str) -> None:
        self._unclosed.pop(address, None)
        if (cached := self._entries.pop(address, None)) is not None:
            self._rows -= cached[1].in_transactions.size


def _unknown(reason: str) -> KnownGains:
    return KnownGains(AccountGains(reason=reason), TransactionGains(reason=reason))


def _request(method: str, chains: Sequence[Chain]) -> PnlRequest:
    return PnlRequest(method, networks=tuple(chain.key for chain in chains))


def _is_indexed(system: IndexedChains, chain: Chain, account: str, heights: Mapping[str, int]) -> bool:
    """Return True if the account's history is indexed from the first block up to its height in `heights`.

    A lag of LIVE_LAG_S is tolerated. False if the chain has no height, or no dataset with activity. Datasets whose gaps
    the settings accept do not count.
    """
    datasets = [each.name for each in chain.datasets.values() if each.in_activity and not each.loss]
    head = heights.get(chain.key)
    if head is None or not datasets:
        return False
    return not missing(system.tail, chain.key, [account], datasets, head, chain.info.blocks_in(LIVE_LAG_S))[1]


def _mark(system: IndexedChains, chains: Sequence[Chain], account: str, max_transactions: int) -> HistoryMark:
    """Return the transaction count and a digest of the rows, for each history table of each chain.

    Raises:
        NotFound: The account has more than `max_transactions`.
    """
    marks = []
    for chain in chains:
        for table in (ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS):
            columns = [*(name for name in table.key if name != "chain"), "tx_hash"]
            rows = rows_of(
                ChainIndex(system.lake, system.tail, chain.key),
                table,
                [account],
                columns,
                max_transactions=max_transactions,
            )
            marks.append((rows["tx_hash"].n_unique(), int(rows.sort(columns).hash_rows().sum())))
    return tuple(marks)


async def add_gains(
    source: GainsSource,
    cache: GainsCache,
    page: TransactionsPage,
    accounts: Sequence[Account],
    heads: Mapping[str, int],
) -> TransactionsPage:
    """Add costs and gains to each transaction of a page, and an issue if they are unknown.

    Only accounts that have a transaction on the page are computed. No error of a node is raised.

    Args:
        heads: The heads of the chains at which the page was read.
    """
    document = page.document
    addresses = {record.user.address for record in document.transactions}
    results = await asyncio.gather(
        *(_in_transactions(source, cache, account, heads) for account in accounts if account.address in addresses)
    )
    gains = {address: each for address, each in results if each is not None}
    issues = {
        IssueDocument(ADAPTER, address, f"gains are not known: {each.reason}"): None
        for address, each in gains.items()
        if each.reason
    }
    filled = [with_gains(each, gains.get(each.user.address, NO_GAINS)) for each in document.transactions]
    for _, faults in filled:
        issues |= {
            IssueDocument(ADAPTER, key, f"its gain is not known: {reason}"): None for key, reason in faults.items()
        }
    filled_page = msgspec.structs.replace(
        document,
        transactions=tuple(record for record, _ in filled),
        issues=(*document.issues, *sorted(issues, key=_by_subject)),
    )
    return replace(page, document=filled_page)


async def _in_transactions(
    source: GainsSource, cache: GainsCache, account: Account, heads: Mapping[str, int]
) -> tuple[str, TransactionGains | None]:
    """Return the address and the gains of its transactions; None if `pnl.max_transactions` is 0.

    Gains of assets whose transactions do not add up to the portfolio are marked. If a node fails or is silent, or the
    gains are unknown, the result has only the reason: a failed read is never raised.

    Args:
        heads: Heights of chains that were read; other chains of the account's kind are asked for their head.
    """
    chains = [chain for chain in source.system.chains if chain.kind == account.kind and chain.key not in heads]
    try:
        other_heights = {chain.key: (await source.heads.latest(chain)).block.height for chain in chains}
    except ChainfolioError as error:
        return account.address, TransactionGains(reason=public(error.message))
    silent = [
        chain.key for chain in source.system.chains if chain.kind == account.kind and source.heads.is_silent(chain.key)
    ]
    if silent:
        return account.address, TransactionGains(reason=f"the node of {', '.join(silent)} does not answer")
    gains = await cache.get(source, account, {**heads, **other_heights})
    if gains is None or gains.in_transactions.reason:
        return account.address, None if gains is None else gains.in_transactions
    try:
        unclosed = await cache.unclosed(source, account, gains)
    except ChainfolioError as error:
        return account.address, TransactionGains(reason=public(error.message))
    return account.address, replace(gains.in_transactions, unclosed=unclosed)


def _by_subject(issue: IssueDocument) -> tuple[str, str]:
    return issue.subject, issue.reason
