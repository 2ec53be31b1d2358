"""The gains of accounts by the index: every transaction with the prices of its block, and what is held priced now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING

from chainfolio import amounts
from chainfolio.addresses import rules_of
from chainfolio.contracts import GAIN_METHODS
from chainfolio.engine.answers import TransactionFilter
from chainfolio.errors import BadRequest
from chainfolio.portfolio.document import UNKNOWN, AssetDocument, IssueDocument, Portfolio, every_asset
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.pnl.entries import Entry
from chainfolio.portfolio.pnl.gains import Gains
from chainfolio.portfolio.pnl.methods import UK, gains_of
from chainfolio.portfolio.pnl.records import Treatment, entries_of
from chainfolio.portfolio.pnl.report import AssetFacts, PnlDocument, document

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from chainfolio.engine.service import Engine


@dataclass(frozen=True, slots=True)
class PnlRequest:
    """How gains are to be computed, on all chains or some."""

    method: str = "fifo"
    per_wallet: bool = False
    deposits_are_disposals: bool = False
    received_at_spot: bool = True
    zone: tzinfo = UTC
    networks: tuple[str, ...] = ()

    def check(self) -> None:
        """BadRequest where it cannot be done."""
        if self.method not in GAIN_METHODS:
            raise BadRequest("method", f"{self.method!r} is no method", remedy=f"one of {', '.join(GAIN_METHODS)}")
        if self.method == UK and self.per_wallet:
            raise BadRequest("per-wallet", "the rules of the United Kingdom pool all that one person holds")


@dataclass(frozen=True, slots=True)
class Found:
    """What some accounts did, their gains, how their assets are shown, which of them count as another one, and what is
    not known."""

    entries: Sequence[Entry]
    gains: Gains
    facts: Mapping[str, AssetFacts]
    same: Mapping[str, str]
    issues: tuple[IssueDocument, ...]


async def found(engine: Engine, accounts: Sequence[Account], wanted: PnlRequest) -> Found:
    """The gains of some accounts as those of one owner. NotIndexed where the index does not reach the beginning."""
    wanted.check()
    system = engine.system
    chains = [system.chain(key) for key in wanted.networks] or system.account_chains
    for account in accounts:
        if all(chain.kind != account.kind for chain in chains):
            raise BadRequest("address", f"{account} is not an account of {' or '.join(each.key for each in chains)}")
    most = system.settings.server.max_transactions * len(accounts) + 1
    asked = TransactionFilter(most, 0, newest_first=False, networks=wanted.networks)
    page, _ = await engine.records(accounts, asked)
    assert page.reached is None, "an account has no more transactions than are allowed"
    treatment = _treatment(engine, chains, wanted)
    read = entries_of(page.document.transactions, {account.address for account in accounts}, treatment)
    gains = gains_of(read.entries, wanted.method, per_wallet=wanted.per_wallet, zone=wanted.zone)
    return Found(read.entries, gains, read.facts, treatment.aliases, (*page.document.issues, *read.issues))


def zone_of(name: str | None, method: str) -> tzinfo:
    """The time zone of days, without a name that of the method; BadRequest where there is none of this name."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    written = name or ("Europe/London" if method == "uk" else "UTC")
    try:
        return ZoneInfo(written)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadRequest("zone", f"there is no time zone {written!r}", remedy="for example Europe/London") from None


async def pnl(engine: Engine, accounts: Sequence[Account], wanted: PnlRequest) -> PnlDocument:
    """The gains of some accounts as a report, what is held priced now. Errors as of `found`."""
    known = await found(engine, accounts, wanted)
    portfolios = await engine.portfolios(accounts, Options(), wait=True, wallet_only=False)
    priced = list(_priced(portfolios, known.same))
    return document(
        known.gains,
        known.facts,
        {key: Decimal(asset.price) for key, asset in priced},
        method=wanted.method,
        addresses=[account.address for account in accounts],
        issues=known.issues,
        max_values=_most(priced),
    )


def _treatment(engine: Engine, chains: Sequence[Chain], wanted: PnlRequest) -> Treatment:
    """A wrapped native coin is the native coin."""
    same = {
        f"{chain.key}:{wrapped.shown_contract}": f"{chain.key}:{chain.info.native.asset.shown_contract}"
        for chain in chains
        if (wrapped := chain.info.wrapped) is not None
    }
    nobody = frozenset(address for chain in chains for address in rules_of(chain.kind).burn_addresses)
    return Treatment(
        wanted.deposits_are_disposals, wanted.received_at_spot, same, nobody, cache(engine.is_trusted_contract)
    )


def _priced(portfolios: Sequence[Portfolio], same: Mapping[str, str]) -> Iterator[tuple[str, AssetDocument]]:
    """The assets of portfolios that have a price, by the keys of their contracts."""
    for portfolio in portfolios:
        for protocol in portfolio.asset_by_protocols.values():
            for chain in protocol.chains.values():
                for asset in every_asset(chain):
                    if UNKNOWN not in (asset.price, asset.value):
                        yield same.get(asset.chain_contract, asset.chain_contract), asset


def _most(priced: Iterable[tuple[str, AssetDocument]]) -> dict[str, Decimal]:
    """What the markets of assets could pay, by their keys, where portfolios show that it is less than what their prices
    say."""
    most: dict[str, Decimal] = {}
    for key, asset in priced:
        paid = Decimal(asset.value)
        if paid < amounts.value_of(Decimal(asset.balance), Decimal(asset.price)):
            most[key] = max(paid, most.get(key, paid))
    return most
