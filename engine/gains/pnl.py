"""Gains by the index: transactions at the prices of their blocks, holdings at current prices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from msgspec import UNSET

from chainfolio import amounts
from chainfolio.addresses import rules_of
from chainfolio.contracts import GAIN_METHODS, TRADE_VALUES
from chainfolio.engine.gains.call_changes import call_changes
from chainfolio.engine.gains.position_changes import Changes, position_changes
from chainfolio.engine.gains.vault_changes import vault_changes
from chainfolio.engine.record_source import RecordSource
from chainfolio.engine.results import TransactionFilter
from chainfolio.errors import BadRequest
from chainfolio.portfolio.collector import garbage_collection_paused
from chainfolio.portfolio.document import UNKNOWN, AssetDocument, IssueDocument, Portfolio, every_asset
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.pnl.closing import (
    ClosingCheck,
    CurrentHoldings,
    Key,
    Pool,
    closings,
    held_assets,
    missing_share_issues,
    owned_assets,
    shown_pools,
    spam_assets,
    with_rents,
)
from chainfolio.portfolio.pnl.entries import AssetFacts, Entry
from chainfolio.portfolio.pnl.gains import Gains
from chainfolio.portfolio.pnl.methods import POOLED, gains_of
from chainfolio.portfolio.pnl.operations import loans_and_savings, with_operation_fees
from chainfolio.portfolio.pnl.own_transfers import match_transfers
from chainfolio.portfolio.pnl.pool_shares import typed_by_pools
from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.records import entries_of
from chainfolio.portfolio.pnl.report import PnlDocument, document
from chainfolio.portfolio.pnl.share_lots import share_lots
from chainfolio.portfolio.pnl.tax_year import converted
from chainfolio.portfolio.pnl.transaction_records import TransactionRecord, record_of
from chainfolio.portfolio.pnl.transfer_rows import OwnTransfer, transfer_document
from chainfolio.portfolio.pnl.vaults import typed_by_vaults

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from chainfolio.portfolio.pnl.trade_value import Strengths


NOT_CHECKED: Final = "what is held there could not be read: gains are not compared with it"
ZONES: Final = {"uk": "Europe/London", "ca": "America/Toronto"}  # of methods that match by days
NO_BLOCKS: Final[Mapping[str, int]] = {}


class ReportSource(RecordSource, Protocol):
    """Reads current portfolios in addition to records."""

    async def portfolios(
        self, accounts: Sequence[Account], options: Options, *, wait: bool, wallet_only: bool
    ) -> list[Portfolio]:
        """Return one portfolio per account, in their order."""


@dataclass(frozen=True, slots=True)
class PnlRequest:
    """Options of a computation of gains.

    Empty `networks` mean all chains, an empty `trade_value` that of the settings.
    """

    method: str = "fifo"
    per_wallet: bool = False
    deposits_are_disposals: bool = False
    received_at_spot: bool = True
    zone: tzinfo = UTC
    networks: tuple[str, ...] = ()
    trade_value: str = ""
    treat_liquidity: str = ""

    def check(self) -> None:
        """Raise if the options contradict each other.

        Raises:
            BadRequest: The method or the rule for trades is unknown, or the method cannot be used for each wallet
                separately.
        """
        if self.method not in GAIN_METHODS:
            raise BadRequest("method", f"{self.method!r} is no method", remedy=f"one of {', '.join(GAIN_METHODS)}")
        if self.trade_value not in ("", *TRADE_VALUES):
            raise BadRequest(
                "trade-value", f"{self.trade_value!r} is no rule", remedy=f"one of {', '.join(TRADE_VALUES)}"
            )
        if self.method in POOLED and self.per_wallet:
            raise BadRequest("per-wallet", f"the rules of {self.method!r} pool all that one person holds")


@dataclass(frozen=True, slots=True)
class GainsResult:
    """Gains of accounts.

    Attributes:
        facts: Names of the assets, by key.
        aliases: Keys of assets that count as another one, such as the wrapped native coin.
        issues: The reasons for unknown gains.
        first_blocks: The block of the first transaction that moved an asset, by key.
        last_blocks: The block of the last one.
        shares: Tokens that stood for deposits.
        contents: The assets that went into positions, by their open shares.
        created: Tokens that others created while deposits had no share, with the deposited assets.
        pools: The tokens of open pool positions, with the quantities that went in.
        rents: Coins that open accounts need, by asset and, if lots are kept per wallet, wallet.
        transfers: What went over chains, by time.
    """

    entries: Sequence[Entry]
    gains: Gains
    facts: Mapping[str, AssetFacts]
    aliases: Mapping[str, str]
    issues: tuple[IssueDocument, ...]
    first_blocks: Mapping[str, int] = field(default_factory=dict)
    last_blocks: Mapping[str, int] = field(default_factory=dict)
    shares: frozenset[str] = frozenset()
    pools: tuple[Pool, ...] = ()
    rents: Mapping[Key, int] = field(default_factory=dict)
    transfers: tuple[OwnTransfer, ...] = ()
    contents: Mapping[str, frozenset[str]] = field(default_factory=dict)
    created: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AccountRecords:
    """Transactions of accounts, the oldest first.

    Attributes:
        changes: Changes of positions by chain and hash; None for those that are not understood.
        issues: Why transactions may be missing, or be shown in part.
        is_complete: False if one of the issues makes the list partial.
        strengths: The strengths of the prices.
    """

    transactions: Sequence[TransactionRecord]
    changes: Changes
    issues: tuple[IssueDocument, ...]
    is_complete: bool
    strengths: Strengths


async def compute_gains(source: RecordSource, accounts: Sequence[Account], request: PnlRequest) -> GainsResult:
    """Compute the gains of accounts, as those of one owner. Nodes are asked for logs that are not stored.

    Raises:
        NotFound: An account has more than `server.max_transactions`.
        NotIndexed: The index does not reach back to the beginning.
        BadRequest: The request is inconsistent, or an account is on none of the chains.
        SourceError: A node does not give the logs of a transaction.
    """
    return gains_until(source, accounts, request, await all_records(source, accounts, request))


async def all_records(
    source: RecordSource, accounts: Sequence[Account], request: PnlRequest, since_us: int | None = None
) -> AccountRecords:
    """Return all records of accounts (since a time), with the changes of their positions.

    Changes of vaults are in the types of the records. Nodes are asked for logs that are not stored. Errors as of
    `compute_gains`.
    """
    request.check()
    chains = _chains(source, request)
    for account in accounts:
        if all(chain.kind != account.kind for chain in chains):
            raise BadRequest("address", f"{account} is not an account of {' or '.join(each.key for each in chains)}")
    max_transactions = source.system.settings.server.max_transactions * len(accounts) + 1
    record_filter = TransactionFilter(
        max_transactions, 0, newest_first=False, networks=request.networks, since_us=since_us
    )
    page, _ = await source.records(accounts, record_filter)
    assert page.end is None, "an account has no more transactions than are allowed"
    records = list(map(record_of, page.document.transactions))
    changes, vaults = await position_changes(source.system, records), await vault_changes(source.system, records)
    changes |= await call_changes(source.system, records)
    treatment = _treatment(source, chains, request, page.strengths, page.document.issues)
    own_wallets = {account.address for account in accounts}
    records = typed_by_pools(with_operation_fees(records, vaults), vaults, own_wallets, treatment)
    typed, unread = typed_by_vaults(records, loans_and_savings(vaults), own_wallets, treatment)
    changes |= dict.fromkeys(unread)
    is_complete = page.document.completeness == "complete"
    return AccountRecords(typed, changes, page.document.issues, is_complete, page.strengths)


def _chains(source: RecordSource, request: PnlRequest) -> Sequence[Chain]:
    return [source.system.chain(key) for key in request.networks] or source.system.account_chains


def gains_until(
    source: RecordSource,
    accounts: Sequence[Account],
    request: PnlRequest,
    account_records: AccountRecords,
    last_blocks: Mapping[str, int] = NO_BLOCKS,
    per_usd: Callable[[int], Decimal] | None = None,
) -> GainsResult:
    """Compute the gains of records up to the last block of each chain; no I/O.

    Args:
        last_blocks: Heights by chain; records of other chains all count.
        per_usd: Returns the units of another currency per USD at a time in microseconds; None for gains in USD.
    """
    records = [each for each in account_records.transactions if each.height <= last_blocks.get(each.chain, each.height)]
    of_records = account_records.strengths, account_records.issues
    treatment = _treatment(source, _chains(source, request), request, *of_records)
    own_wallets = {account.address for account in accounts}
    with garbage_collection_paused():
        read = entries_of(records, own_wallets, treatment, account_records.changes)
        moved, transfers = match_transfers(read.entries, records, own_wallets, treatment, read.facts)
        entries = moved if per_usd is None else list(converted(moved, per_usd))
    rents: dict[Key, int] = {}
    for (asset, wallet), raw in read.rents.items():
        rent_key = asset, wallet if request.per_wallet else ""
        rents[rent_key] = rents.get(rent_key, 0) + raw
    gains = gains_of(entries, request.method, per_wallet=request.per_wallet, zone=request.zone)
    return GainsResult(
        entries,
        gains,
        read.facts,
        treatment.aliases,
        (*account_records.issues, *read.issues),
        read.first_blocks,
        read.last_blocks,
        frozenset(read.shares),
        tuple(read.pools),
        rents,
        tuple(transfers),
        read.contents,
        read.created,
    )


def zone_of(name: str | None, method: str) -> tzinfo:
    """Return the time zone of days, by default that of the method.

    Raises:
        BadRequest: No time zone has this name.
    """
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    zone_name = name or ZONES.get(method, "UTC")
    try:
        return ZoneInfo(zone_name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadRequest("zone", f"there is no time zone {zone_name!r}", remedy="for example Europe/London") from None


async def pnl(source: ReportSource, accounts: Sequence[Account], request: PnlRequest) -> PnlDocument:
    """Return a report of gains, compared with the current portfolios and valued at current prices.

    Transactions after the blocks of the portfolios do not count.

    Assets whose transactions do not add up to what the portfolios hold have no known gain. Errors as of
    `compute_gains`.
    """
    account_records = await all_records(source, accounts, request)
    portfolios = await source.portfolios(accounts, Options(), wait=True, wallet_only=False)
    blocks = blocks_of(portfolios)
    result = gains_until(source, accounts, request, account_records, blocks)
    priced = list(_priced(portfolios, result.aliases))
    kinds = {account.kind for account in accounts}
    requested = {chain.key for chain in source.system.account_chains if chain.kind in kinds}
    unread = (requested & set(request.networks or requested)) - blocks.keys()
    current = current_holdings(source, portfolios, result, request, market_values(portfolios, result.aliases), blocks)
    report = document(
        result.gains,
        {**closing_facts(current.closings), **result.facts},
        {key: Decimal(asset.price) for key, asset in priced},
        method=request.method,
        addresses=[account.address for account in accounts],
        issues=(
            *result.issues,
            *missing_share_issues(current.closings, result.created),
            *(IssueDocument("pnl", key, NOT_CHECKED) for key in sorted(unread)),
        ),
        current=current,
    )
    transfers = tuple(transfer_document(each, result.facts) for each in result.transfers)
    is_partial = bool(unread) or not account_records.is_complete
    return msgspec.structs.replace(report, transfers=transfers, completeness="partial" if is_partial else "complete")


def blocks_of(portfolios: Sequence[Portfolio]) -> dict[str, int]:
    """Return the lowest block at which the portfolios were read, by chain.

    Chains without a block are absent.
    """
    blocks: dict[str, int] = {}
    for portfolio in portfolios:
        for key, chain in portfolio.chains.items():
            if chain.block_number is not UNSET:
                blocks[key] = min(int(chain.block_number), blocks.get(key, int(chain.block_number)))
    return blocks


def current_holdings(
    source: RecordSource,
    portfolios: Sequence[Portfolio],
    result: GainsResult,
    request: PnlRequest,
    max_values: Mapping[str, Decimal],
    blocks: Mapping[str, int],
) -> CurrentHoldings:
    """Return the closing identity of all assets on the chains that were read: lots compared with holdings.

    Spam and shares of positions are left out.

    Args:
        max_values: Values by asset that a market would pay at most.
        blocks: Heights of the portfolios by chain.
    """
    keys = set(request.networks or blocks) & blocks.keys()
    left_out = spam_assets(portfolios) | result.shares
    lots, is_per_wallet = result.gains.remaining, request.per_wallet
    shares = share_lots(portfolios, lots, result.contents, result.aliases, per_wallet=is_per_wallet)
    held = held_assets(portfolios, result.aliases, per_wallet=is_per_wallet, shares=shares)
    checked = closings(
        lots,
        with_rents(held, result.rents),
        lambda asset: asset.partition(":")[0] in keys and asset not in left_out,
        shown_pools(portfolios, result.aliases, result.pools),
    )
    is_trusted, max_values = cache(source.is_trusted_contract), shares.without_parts(max_values, result.aliases)
    return CurrentHoldings(max_values, checked, result.first_blocks, is_trusted, shares.values())


def closing_facts(checked: Mapping[Key, ClosingCheck]) -> dict[str, AssetFacts]:
    """Return how assets are shown that no transaction moved."""
    return {
        asset: AssetFacts(closing.held.symbol, closing.held.decimals or 0, *asset.partition(":")[::2])
        for (asset, _), closing in checked.items()
    }


def _treatment(
    source: RecordSource,
    chains: Sequence[Chain],
    request: PnlRequest,
    strengths: Strengths,
    issues: Iterable[IssueDocument],
) -> Treatment:
    """Return how records are treated: the wrapped native coin counts as the native coin.

    Options of the request that are empty are those of the settings. A contract whose price only a read can tell counts
    as priced if `issues` say that prices of its chain could not be read, else as unpriced.
    """
    unread = {each.adapter for each in issues if each.subject == "prices"}

    def is_priced(contract: str) -> bool:
        is_known = source.is_priced_contract(contract)
        return contract.partition(":")[0] in unread if is_known is None else is_known

    aliases = {
        f"{chain.key}:{wrapped.shown_contract}": f"{chain.key}:{chain.info.native.asset.shown_contract}"
        for chain in chains
        if (wrapped := chain.info.wrapped) is not None
    }
    burn_accounts = frozenset(address for chain in chains for address in rules_of(chain.kind).burn_addresses)
    return Treatment(
        deposits_are_disposals=request.deposits_are_disposals,
        liquidity_is_disposal=(request.treat_liquidity or source.system.settings.pnl.treat_liquidity) == "disposal",
        received_at_spot=request.received_at_spot,
        aliases=aliases,
        coins={f"{chain.key}:{chain.info.native.asset.shown_contract}": chain.info.native.symbol for chain in chains},
        burn_addresses=burn_accounts,
        gas_holders=_gas_holders(source, chains),
        is_trusted=cache(source.is_trusted_contract),
        is_priced=cache(is_priced),
        trade_value=request.trade_value or source.system.settings.pnl.trade_value,
        strengths=strengths,
    )


def _gas_holders(source: RecordSource, chains: Sequence[Chain]) -> frozenset[str]:
    """Return the entry points of all protocol files."""
    system = source.system
    rows = (row for chain in chains for row in system.registry.rows(chain.key, chain.kind, system.families))
    return frozenset(contract for row in rows for contract in row.contracts.get("entry_point", ()))


def _priced(portfolios: Sequence[Portfolio], aliases: Mapping[str, str]) -> Iterator[tuple[str, AssetDocument]]:
    """Yield the priced assets of portfolios with their keys; aliases have the key that they count as."""
    for portfolio in portfolios:
        for protocol in portfolio.asset_by_protocols.values():
            for chain in protocol.chains.values():
                for asset in every_asset(chain):
                    if UNKNOWN not in (asset.price, asset.value):
                        yield aliases.get(asset.chain_contract, asset.chain_contract), asset


def market_values(portfolios: Iterable[Portfolio], aliases: Mapping[str, str]) -> dict[str, Decimal]:
    """Return what markets could pay for all that is owned, by key, where price times balance is more.

    A portfolio values all parts of an asset together within its market. Of several portfolios, the largest such value
    counts, because there is one market for all. Assets with the same key by `aliases` have a market each.
    """
    values, limited = dict[str, list[Decimal]](), set[str]()
    for portfolio in portfolios:
        parts: dict[str, list[Decimal]] = {}
        for asset, _ in owned_assets(portfolio):
            if UNKNOWN not in (asset.price, asset.value):
                parts.setdefault(asset.chain_contract, []).append(Decimal(asset.value))
                if Decimal(asset.value) < amounts.value_of(Decimal(asset.balance), Decimal(asset.price)):
                    limited.add(asset.chain_contract)
        for contract, contract_values in parts.items():
            values.setdefault(contract, []).append(amounts.total(contract_values))
    by_key: dict[str, list[Decimal]] = {}
    for contract, totals in values.items():
        value = max(totals) if contract in limited else amounts.total(totals)
        by_key.setdefault(aliases.get(contract, contract), []).append(value)
    return {key: amounts.total(by_key[key]) for key in {aliases.get(each, each) for each in limited}}
