"""Books of a period, read through the engine: balances, movements, prices and entries."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from chainfolio import amounts
from chainfolio.blocks import Span
from chainfolio.capabilities import Capability
from chainfolio.engine.gains.pnl import (
    PnlRequest,
    all_records,
    closing_facts,
    current_holdings,
    gains_until,
    zone_of,
)
from chainfolio.engine.gains.tax_year import RATE_S, hourly_rates
from chainfolio.engine.named_accounts import chains_of
from chainfolio.engine.prices.navs import check_fiat
from chainfolio.engine.reconcile.evidence import datasets_of
from chainfolio.engine.reconcile.reconciler import Reconciler
from chainfolio.engine.results import TransactionFilter
from chainfolio.engine.rows import ChainIndex, rows_of
from chainfolio.engine.snapshots.sent_transactions import FEE_COLUMNS, sent_transactions
from chainfolio.errors import BadRequest, NotIndexed
from chainfolio.exports.close.accounting import CLOSING, OPENING, Method
from chainfolio.exports.close.cutoff import block_at_cutoff, instant_us, parse_cutoff
from chainfolio.exports.close.evidence import ONE_SOURCE, read_evidence
from chainfolio.exports.close.valued import (
    ChainEnd,
    HoldingRow,
    held_rows,
    position_assets,
    price_stops,
    without_faults_of_strangers,
)
from chainfolio.indexer.scopes import indexed_for
from chainfolio.portfolio.causes import OF_DATASETS
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.document import IssueDocument, Portfolio
from chainfolio.portfolio.ledger import drop_native_duplicates
from chainfolio.portfolio.pnl.closing import CurrentHoldings
from chainfolio.portfolio.pnl.income import TransactionKey
from chainfolio.portfolio.reconciliation import ASSET_COLUMNS, MOVED, SIDES, BalanceKey, running_totals
from chainfolio.portfolio.valuation import valuate
from chainfolio.tables import ACCOUNT_TRANSFERS, REWARD

if TYPE_CHECKING:
    from chainfolio.assets import Account, Asset
    from chainfolio.blocks import Block
    from chainfolio.chains import Chain
    from chainfolio.engine.service import Engine
    from chainfolio.exports.close.policy import Policy
    from chainfolio.portfolio.pnl.entries import AssetFacts, Entry
    from chainfolio.portfolio.transactions import TransactionDocument

MAX_STOPS: Final = 20  # prices that one error names


@dataclass(frozen=True, slots=True)
class CloseRequest:
    """A period to close: the last block before `at` on the first day, to that of the last day.

    `chains` are keys; empty for all chains of the accounts whose nodes serve past states.
    """

    accounts: tuple[Account, ...]
    first: str
    last: str
    at: str
    currency: str
    policy: Policy
    chains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Movement:
    """A change of a balance: `in`, `out`, or the `fee` of a transaction that the account sent."""

    account: str
    chain: str
    height: int
    position: tuple[int, int, int]  # in the block: transaction, log, item
    transaction: str
    direction: str
    counterparty: str
    asset: Asset
    raw: int

    @property
    def change(self) -> int:
        """The change of the balance, negative if it fell."""
        return self.raw if self.direction == "in" else -self.raw


@dataclass(frozen=True, slots=True)
class BalanceRow:
    """Raw balances of an account at both ends, None if unread, and the sum of the movements between."""

    chain: str
    key: BalanceKey
    opening: int | None
    closing: int | None
    moved: int
    classes: tuple[str, str] = (ONE_SOURCE, ONE_SOURCE)  # of the evidence at both ends

    @property
    def unexplained(self) -> int | None:
        """The part of the change that no movement explains; None if an end could not be read."""
        return None if self.opening is None or self.closing is None else self.closing - self.opening - self.moved


@dataclass(frozen=True, slots=True)
class Books:
    """Facts from which the tables of a close are made.

    Attributes:
        ends: Each chain at each end of the period.
        entries: The input of the gains, in the currency of the close.
        facts: How assets are shown, by key.
        aliases: Keys of assets that count as another one.
        types: The types of transactions.
        current: The closing identity of each asset.
    """

    request: CloseRequest
    method: Method
    opening_us: int
    closing_us: int
    ends: Sequence[ChainEnd]
    balances: Sequence[BalanceRow]
    movements: Sequence[Movement]
    transactions: Sequence[TransactionDocument]
    entries: Sequence[Entry]
    facts: Mapping[str, AssetFacts]
    aliases: Mapping[str, str]
    types: Mapping[TransactionKey, str]
    current: CurrentHoldings
    holdings: Sequence[HoldingRow]
    issues: Sequence[IssueDocument] = field(default_factory=tuple)


async def read_books(engine: Engine, request: CloseRequest) -> Books:
    """Read the books of a period.

    Raises:
        BadRequest: A cut-off, currency or account does not fit, or prices break a limit of the policy.
        MissingCapability: The nodes of a named chain serve no past states.
        NodeBehind: A chain has not finalised an end of the period.
        NotIndexed: The index of a chain is not whole up to the closing.
        NotSupported: There is no rate of the currency.
        SourceError: A node could not be read.
    """
    period = _instants(request)
    check_fiat(request.currency, engine.system.settings.rates)
    now_us = engine.system.environment.clock.now_us()
    chains = chains_of(engine.system, request.accounts, request.chains, Capability.PAST_BALANCES)
    blocks = {chain.key: await _blocks(chain, period, now_us) for chain in chains}
    for chain in chains:
        await asyncio.to_thread(_check_index, engine, chain, request.accounts, blocks[chain.key])
    options = _pnl_request(request, [chain.key for chain in chains])
    records = await all_records(engine, request.accounts, options)
    times_s = {each.time_us // 1_000_000 for each in records.transactions}
    rates = await hourly_rates(engine.rates, request.currency, {*times_s, *(each // 1_000_000 - 1 for each in period)})
    ends, balances, movements, trusted = await _read_chains(engine, request, chains, blocks, rates)
    holdings = [row for end in ends for row in held_rows(end)]
    _stop(request, [fault for end in ends for fault in price_stops(end, holdings, request.policy, trusted)])
    heights = {key: closing.height for key, (_, closing) in blocks.items()}
    result = gains_until(
        engine, request.accounts, options, records, heights, lambda time_us: rates[time_us // 1_000_000 // RATE_S]
    )
    documents = _documents(engine, [end for end in ends if end.name == CLOSING])
    current = current_holdings(engine, documents, result, options, {}, heights)
    window = TransactionFilter(
        10**9, 0, newest_first=False, networks=options.networks, since_us=period[0], until_us=period[1] - 1
    )
    page, _ = await engine.records(request.accounts, window)
    issues = (
        *(issue for end in ends for issue in end.evidence.issues),
        *(issue for each in documents for issue in each.issues),
        *result.issues,
    )
    return Books(
        request,
        Method(options.method, options.per_wallet, options.zone),
        *period,
        ends,
        balances,
        movements,
        page.document.transactions,
        result.entries,
        {**closing_facts(current.closings), **result.facts},
        result.aliases,
        {(*each.key, each.wallet): str(each.type) for each in records.transactions},
        current,
        holdings,
        tuple(dict.fromkeys(issues)),
    )


async def _blocks(chain: Chain, period: tuple[int, int], now_us: int) -> list[Block]:
    """Return the blocks of a chain at both instants; errors as of `block_at_cutoff`."""
    return [
        await block_at_cutoff(chain, name, moment_us, now_us)
        for name, moment_us in zip(("from", "to"), period, strict=True)
    ]


def _instants(request: CloseRequest) -> tuple[int, int]:
    opening_us = instant_us("from", request.first, request.at)
    closing_us = instant_us("to", request.last, request.at)
    if opening_us >= closing_us:
        raise BadRequest("from", f"{request.first} is not before {request.last}")
    return opening_us, closing_us


def _pnl_request(request: CloseRequest, keys: Sequence[str]) -> PnlRequest:
    """Return the options of the gains. Days are those of the cut-off's zone, or of the method's own rules."""
    method = request.policy.method
    zone = zone_of(None, method) if method in ("uk", "ca") else parse_cutoff(request.at)[1]
    return PnlRequest(method, per_wallet=request.policy.lots == "wallet", zone=zone, networks=tuple(keys))


def _check_index(engine: Engine, chain: Chain, accounts: Sequence[Account], ends: Sequence[Block]) -> None:
    """Raise NotIndexed unless the usual movements of the accounts are indexed between both ends."""
    span = Span(ends[0].height + 1, max(ends[0].height + 1, ends[1].height))
    datasets = {each.name: each for native in (False, True) for each in datasets_of(chain, native=native)}
    for name, dataset in datasets.items():
        if not dataset.is_default or name in OF_DATASETS:
            continue
        for account in (each for each in accounts if each.kind == chain.kind):
            if not indexed_for(engine.system.tail, chain.key, name, account.address).covers(span):
                raise NotIndexed(chain.key, name, span.first, span.last)


async def _read_chains(
    engine: Engine,
    request: CloseRequest,
    chains: Sequence[Chain],
    blocks: Mapping[str, Sequence[Block]],
    rates: Mapping[int, Decimal],
) -> tuple[list[ChainEnd], list[BalanceRow], list[Movement], set[Asset]]:
    """Return each chain at each end, balances and movements, and the assets that an account trusts."""
    ends: list[ChainEnd] = []
    balances: list[BalanceRow] = []
    movements: list[Movement] = []
    trusted: set[Asset] = set()
    for chain in chains:
        accounts = [each.address for each in request.accounts if each.kind == chain.kind]
        of_chain = []
        for name, day, block in zip((OPENING, CLOSING), (request.first, request.last), blocks[chain.key], strict=True):
            instant_s = instant_us("", day, request.at) // 1_000_000
            snapshot = await engine.snapshotter(chain).take(accounts, block, past=True)
            rate = rates[(instant_s - 1) // RATE_S]
            of_chain.append(ChainEnd(name, day, chain, snapshot, rate, request.policy.overrides(day)))
        moved = await asyncio.to_thread(_movements, engine, chain, accounts, blocks[chain.key])
        rows, trusted_here = await _balances(engine, chain, accounts, of_chain, moved)
        of_chain = [await _with_evidence(engine, end, rows) for end in of_chain]
        opening, closing = (end.evidence for end in of_chain)
        ends += [without_faults_of_strangers(end, request.policy, trusted_here) for end in of_chain]
        balances += [replace(row, classes=(opening.class_of(row.key), closing.class_of(row.key))) for row in rows]
        movements += moved
        trusted |= trusted_here
    return sorted(ends, key=lambda each: (each.name != OPENING, each.chain.key)), balances, movements, trusted


async def _with_evidence(engine: Engine, end: ChainEnd, rows: Sequence[BalanceRow]) -> ChainEnd:
    """Return an end with the evidence of the balances that were read there."""
    raws = {row.key: row.opening if end.name == OPENING else row.closing for row in rows}
    balances = {key: raw for key, raw in raws.items() if raw is not None}
    return replace(end, evidence=await read_evidence(engine, end.chain, end.block, balances))


async def _balances(
    engine: Engine, chain: Chain, accounts: Sequence[str], ends: Sequence[ChainEnd], movements: Sequence[Movement]
) -> tuple[list[BalanceRow], set[Asset]]:
    """Read the balances of all held or moved assets at both ends, and return the trusted assets too."""
    first, last = (end.block.height for end in ends)
    reconciler = Reconciler(
        chain, engine.system.lake, engine.system.tail, checkpoints=1, trust_of=engine.snapshotter(chain).trust
    )
    scope = await reconciler.prepare(accounts, first + 1, max(first + 1, last))
    held = {BalanceKey(each.account, each.token.asset) for end in ends for each in end.snapshot.holdings if each.raw}
    native = chain.info.native.asset
    keys = sorted({*scope.totals, *held, *(BalanceKey(account, native) for account in accounts)})
    points = [(key, height) for height in sorted({first, last}) for key in keys]
    all_moves = running_totals(scope.transfers, scope.fees, chain.info)
    answers = await reconciler.reader.balances(points, reconciler.untrusted_contracts)
    moved: dict[BalanceKey, int] = {}
    for each in movements:
        key = BalanceKey(each.account, each.asset)
        moved[key] = moved.get(key, 0) + each.change

    def balance(key: BalanceKey, height: int) -> int | None:
        answer = answers[key, height]
        if answer is None or isinstance(answer, int):
            return answer
        heights = all_moves[key].heights if key in all_moves else ()
        return None if heights and heights[0] <= height else 0  # before it moves first, its contract may not exist

    rows = [BalanceRow(chain.key, key, balance(key, first), balance(key, last), moved.get(key, 0)) for key in keys]
    is_trusted = reconciler.trust.is_trusted
    positions = [each for end in ends for each in end.snapshot.positions]
    parts = {(each.account, token) for each in positions for token in position_assets(each)}
    return rows, {asset for who, asset in {*keys, *parts} if is_trusted(who, asset.collection)}


def _movements(engine: Engine, chain: Chain, accounts: Sequence[str], ends: Sequence[Block]) -> list[Movement]:
    """Return all changes of balances between both ends that the index has, in their order."""
    import polars as pl

    first, last = ends[0].height + 1, ends[1].height
    if first > last:
        return []
    index, info = ChainIndex(engine.system.lake, engine.system.tail, chain.key), chain.info
    columns = (*MOVED, "counterparty", "tx_hash", *ASSET_COLUMNS, "raw")
    transfers = rows_of(index, ACCOUNT_TRANSFERS, accounts, columns, span=Span(first, last))
    transfers = drop_native_duplicates(transfers, info).filter(pl.col("standard") != REWARD).select(columns)
    movements = []
    for row in transfers.iter_rows(named=True):
        number = None if row["token_id"] is None else int.from_bytes(row["token_id"], "big")
        movements.append(
            Movement(
                row["account"],
                chain.key,
                row["height"],
                (row["tx_index"], row["log_index"], row["item"]),
                row["tx_hash"],
                row["direction"],
                row["counterparty"],
                info.asset(row["standard"], row["token"], number),
                amounts.raw_from_bytes(row["raw"]),
            )
        )
        assert row["direction"] in SIDES
    fees = sent_transactions(*index, accounts, (*FEE_COLUMNS, "tx_hash"), Span(first, last))
    for account, height, tx_index, fee, tx_hash in fees.iter_rows():
        if raw := amounts.raw_from_bytes(fee):
            place = tx_index, -1, -1
            movements.append(Movement(account, chain.key, height, place, tx_hash, "fee", "", info.native.asset, raw))
    return sorted(movements, key=lambda each: (each.height, each.position, each.account, each.direction))


def _documents(engine: Engine, ends: Sequence[ChainEnd]) -> list[Portfolio]:
    """Return the portfolio of each account on each chain, as gains are compared with them."""
    documents = []
    for end in ends:
        parts = valuate([end.snapshot]).by_account()
        for account in end.snapshot.accounts:
            facts, protocols = engine.facts(), engine.protocols().facts
            height = end.block.height
            documents.append(
                portfolio(account, parts[account], facts, updated_ms=0, protocols=protocols, block_number=height)
            )
    return documents


def _stop(request: CloseRequest, faults: Sequence[str]) -> None:
    """Raise BadRequest if prices stop the close, with an example of an override."""
    if faults:
        more = f"; and {len(faults) - MAX_STOPS} more" if len(faults) > MAX_STOPS else ""
        remedy = "an [[override]] with asset, date, price, who and reason in the policy"
        raise BadRequest("prices", "; ".join(faults[:MAX_STOPS]) + more, remedy=remedy)
