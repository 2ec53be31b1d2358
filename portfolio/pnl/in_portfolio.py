"""Adds an account's gains to its portfolio: divides the cost of lots among the holdings of each asset.

Deposits are no disposals, so the lots of an asset cover both the wallet and the protocols. Each holding gets its part
of the cost, by amount. A sum covers the same assets as the net worth, except what others sent of an untrusted token:
its cost and gain are not known, and must not hide a sum.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET

from chainfolio import amounts
from chainfolio.portfolio.document import (
    UNKNOWN,
    WALLET,
    AssetDocument,
    ChainDocument,
    IssueDocument,
    Portfolio,
    PositionDocument,
    PositionsDocument,
    ProtocolChainDocument,
    ProtocolDocument,
)
from chainfolio.portfolio.pnl.closing import (
    NO_LOTS,
    UNCLOSED,
    ClosingCheck,
    Key,
    Pool,
    account_closings,
    lots_fault,
    owed_assets,
    owned_assets,
    protocols_fault,
    unclosed_keys,
)
from chainfolio.portfolio.pnl.debts import Debt, OwedShares
from chainfolio.portfolio.pnl.entries import UNASKED, money, share
from chainfolio.portfolio.pnl.gains import Gains, RemainingLots
from chainfolio.portfolio.pnl.report import text, total
from chainfolio.portfolio.pnl.share_lots import ShareLots, share_lots, value_of_part
from chainfolio.portfolio.transactions import raw_balance

ADAPTER: Final = "pnl"

T = TypeVar("T", PositionsDocument, ProtocolChainDocument, ProtocolDocument, ChainDocument, PositionDocument)


@dataclass(frozen=True, slots=True)
class AccountGains:
    """The lots of an account and the gains of its disposals, by the keys of assets.

    `aliases` maps keys that count as another one (the wrapped native coin). `untrusted` assets make no sum unknown if
    they do not close, and `shares` of deposits need not close; `contents` has what went in for open ones. `pools` are
    open positions that exchange their tokens, and `rents` the coins that open accounts need. `debts` are loans that are
    not repaid. `reason` says why nothing is known; there are then no lots.
    """

    lots: Mapping[str, RemainingLots] = field(default_factory=dict)
    closed: Mapping[str, int | None] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    untrusted: frozenset[str] = frozenset()
    shares: frozenset[str] = frozenset()
    pools: tuple[Pool, ...] = ()
    rents: Mapping[Key, int] = field(default_factory=dict)
    debts: Mapping[str, Debt] = field(default_factory=dict)
    contents: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def positions(self) -> tuple[frozenset[str], tuple[Pool, ...], Mapping[Key, int], Mapping[str, frozenset[str]]]:
        """Shares, pools, rents and contents of shares, as `account_closings` takes them."""
        return self.shares, self.pools, self.rents, self.contents

    def key(self, asset: AssetDocument) -> str:
        """Return the key of the asset's lots."""
        return self.aliases.get(asset.chain_contract, asset.chain_contract)


def account_gains(gains: Gains, aliases: Mapping[str, str], untrusted: frozenset[str] = frozenset()) -> AccountGains:
    """Return the lots and gains of an account from all its gains, with lots kept over all its wallets.

    Income and unsolicited units are not in the closed gains. A closed gain is None if a part of it is.
    """
    closed: defaultdict[str, list[int | None]] = defaultdict(list)
    for gain in gains.gains:
        if gain.kind != "income" and gain.reason != UNASKED:
            closed[gain.asset].append(gain.gain)
    sums = {asset: total(parts) for asset, parts in closed.items()}
    return AccountGains({lots.asset: lots for lots in gains.remaining}, sums, aliases, untrusted=untrusted)


class Sum(NamedTuple):
    """A sum of costs and open gains; None if a part is not known."""

    cost: int | None = 0
    open: int | None = 0

    def __add__(self, addend: object) -> Sum:
        assert isinstance(addend, Sum), "only sums are added"
        return Sum(total((self.cost, addend.cost)), total((self.open, addend.open)))


NOTHING: Final = Sum()
NOT_KNOWN: Final = Sum(None, None)


def with_gains(document: Portfolio, gains: AccountGains, *, spam: bool = False) -> Portfolio:
    """Return the portfolio with gains and costs at every level; with `spam`, sums include spam.

    Assets whose amounts differ from those of the lots have none, and an issue says so.
    """
    if gains.reason:
        issue = IssueDocument(ADAPTER, document.address, f"gains are not known: {gains.reason}")
        return _with_issues(document, [issue])
    checked = account_closings(document, gains.lots.values(), gains.aliases, *gains.positions)
    unclosed = {asset for asset, _ in unclosed_keys(checked)}
    shares, faults = _Shares.of(document, gains, checked), _missing(checked, gains)
    debts = OwedShares.of(
        ((gains.key(asset), asset) for asset in owed_assets(document) if _is_counted(asset, spam=spam)), gains.debts
    )
    return _Tree(_without_closed(gains, unclosed), shares, debts, spam, faults).filled(document)


def _without_closed(gains: AccountGains, unclosed: Collection[str]) -> AccountGains:
    """Return the gains, with unknown closed gains of assets that do not close, without untrusted ones."""
    closed = {
        asset: None if asset in unclosed else gain
        for asset, gain in gains.closed.items()
        if asset not in unclosed or asset not in gains.untrusted
    }
    return replace(gains, closed=closed)


def _missing(checked: Mapping[Key, ClosingCheck], gains: AccountGains) -> dict[str, str]:
    """Return why the gain of trusted assets is not known that should be held, and are not."""
    return {
        asset: UNCLOSED
        for (asset, _), closing in checked.items()
        if not closing.is_closed and not closing.held.raw and asset not in gains.untrusted
    }


def _with_issues(document: Portfolio, issues: Iterable[IssueDocument]) -> Portfolio:
    rows = {(each.adapter, each.subject, each.reason): each for each in (*document.issues, *issues)}
    return msgspec.structs.replace(document, issues=tuple(rows[key] for key in sorted(rows)))


@dataclass(slots=True)
class _Shares:
    """Divides the cost of each asset's lots among its holdings.

    Holdings in the wallet get the cost of their units, those in protocols the cost of all deposited units.
    """

    lots: Mapping[str, RemainingLots]
    of_shares: ShareLots
    unassigned: dict[
        tuple[str, bool], tuple[int, int | None]
    ]  # by key and inside: the amount without a part, the cost left
    faults: dict[str, str]

    @classmethod
    def of(cls, document: Portfolio, gains: AccountGains, checked: Mapping[Key, ClosingCheck]) -> _Shares:
        """Divide the costs among wallet and protocols by the amounts in a portfolio.

        They are None, with a fault, for assets whose lots and amounts differ.
        """
        amounts_by_place: defaultdict[tuple[str, bool], int] = defaultdict(int)
        decimals: dict[str, int] = {}
        of_shares = share_lots([document], gains.lots.values(), gains.contents, gains.aliases)
        for asset, is_inside in owned_assets(document):
            if of_shares.raw(asset) == raw_balance(asset) != 0:
                continue
            amounts_by_place[gains.key(asset), is_inside] += raw_balance(asset) - of_shares.raw(asset)
            if asset.decimal != UNKNOWN:
                decimals[gains.key(asset)] = int(asset.decimal)
        unassigned, faults = dict[tuple[str, bool], tuple[int, int | None]](), {}
        for key in sorted({key for key, _ in amounts_by_place}):
            in_wallet, in_protocols = amounts_by_place[key, False], amounts_by_place[key, True]
            lots, closing = gains.lots.get(key), checked.get((key, ""))
            if closing is not None and closing.is_from_pool:
                unassigned[key, False], unassigned[key, True] = (0, 0), (in_protocols, 0)
                continue
            fault = lots_fault(lots, in_wallet, decimals.get(key, 0))
            if fault or lots is None or lots.cost is None:
                faults[key], unassigned[key, False], unassigned[key, True] = (
                    fault,
                    (in_wallet, None),
                    (in_protocols, None),
                )
                continue
            if lots.unasked:
                faults[key] = UNASKED
            of_loose = share(lots.cost, in_wallet, lots.quantity + lots.unasked) if in_wallet else 0
            unassigned[key, False], unassigned[key, True] = (
                (in_wallet, of_loose),
                (
                    in_protocols + gains.rents.get((key, ""), 0),
                    lots.cost - of_loose,
                ),
            )
            inside_fault = protocols_fault(in_protocols, lots.deposited) if closing is None else closing.protocols_fault
            if in_protocols and inside_fault:
                faults[key], unassigned[key, True] = inside_fault, (in_protocols, None)
        return cls(gains.lots, of_shares, unassigned, faults)

    def known_raw(self, key: str, raw: int) -> int:
        """Return how much of `raw` units of an asset has a cost; the rest was sent by others."""
        lots = self.lots.get(key)
        if lots is None or not lots.unasked:
            return raw
        return share(raw, lots.quantity, lots.quantity + lots.unasked)

    def take(self, key: str, raw: int, *, in_protocols: bool) -> int | None:
        """Take the cost of `raw` units out of what remains; None if it is not known, 0 for no units."""
        if not raw and (key, in_protocols) not in self.unassigned:
            return 0
        total, cost = self.unassigned[key, in_protocols]
        part = None if cost is None else share(cost, raw, total) if raw else 0
        self.unassigned[key, in_protocols] = total - raw, None if cost is None or part is None else cost - part
        return part


@dataclass(slots=True)
class _Tree:
    """Fills one portfolio in, from the leaves to the root."""

    gains: AccountGains
    shares: _Shares
    debts: OwedShares
    spam: bool
    faults: dict[str, str] = field(default_factory=dict)

    def filled(self, document: Portfolio) -> Portfolio:
        """Return the portfolio with costs and gains at every level.

        An issue names each asset whose gain is not known.
        """
        protocols, sums = {}, NOTHING
        by_chain: defaultdict[str, Sum] = defaultdict(lambda: NOTHING)
        for key, protocol in document.asset_by_protocols.items():
            protocols[key], parts = self._protocol(
                self._with_sold_out(protocol, document) if key == WALLET else protocol
            )
            for chain, part in parts.items():
                by_chain[chain] += part
                sums += part
        chains = {key: _with_sums(chain, by_chain[key], self._closed(key)) for key, chain in document.chains.items()}
        closed = total(self.gains.closed.values())
        filled = msgspec.structs.replace(
            document,
            asset_by_protocols=protocols,
            chains=chains,
            open_pnl=text(sums.open),
            closed_pnl=text(closed),
            total_cost_basis=text(sums.cost),
        )
        issues = [
            IssueDocument(ADAPTER, key, f"its gain is not known: {reason}") for key, reason in self.faults.items()
        ]
        return _with_issues(filled, issues)

    def _with_sold_out(self, wallet: ProtocolDocument, document: Portfolio) -> ProtocolDocument:
        """Return the wallet with an empty entry for each chain on which it sold everything.

        The entry shows the closed gain of the chain.
        """
        sold = {key.partition(":")[0] for key in self.gains.closed}
        empty = {
            key: ProtocolChainDocument(
                chain.name,
                key,
                "0",
                {WALLET.upper(): PositionsDocument(WALLET, "0")},
                img_small=chain.img_small,
                img_large=chain.img_large,
            )
            for key, chain in document.chains.items()
            if key in sold and key not in wallet.chains
        }
        return msgspec.structs.replace(wallet, chains=dict(sorted({**wallet.chains, **empty}.items())))

    def _closed(self, chain: str) -> int | None:
        """Return the total gain of the disposals of a chain's assets."""
        return total(closed for key, closed in self.gains.closed.items() if key.partition(":")[0] == chain)

    def _protocol(self, protocol: ProtocolDocument) -> tuple[ProtocolDocument, dict[str, Sum]]:
        """Return one protocol with its gains, and its sums by chain. Closed gains belong to the wallet alone."""
        chains, sums = {}, dict[str, Sum]()
        of_wallet = protocol.key == WALLET
        for key, chain in protocol.chains.items():
            positions_by_type, sums[key] = {}, NOTHING
            closed = self._closed(key) if of_wallet else None
            for kind, positions in chain.protocol_positions.items():
                updated, part = self._positions(positions, in_protocols=not of_wallet)
                positions_by_type[kind] = _with_sums(updated, part, closed if kind == WALLET.upper() else None)
                sums[key] += part
            chains[key] = _with_sums(
                msgspec.structs.replace(chain, protocol_positions=positions_by_type), sums[key], closed
            )
        closed = total(self._closed(key) for key in protocol.chains) if of_wallet else None
        total_sum = sum(sums.values(), NOTHING)
        return _with_sums(msgspec.structs.replace(protocol, chains=chains), total_sum, closed), sums

    def _positions(self, positions: PositionsDocument, *, in_protocols: bool) -> tuple[PositionsDocument, Sum]:
        """Return positions with their gains filled in, and the sum of these."""
        loose, sums = self._assets(positions.assets, in_protocols=in_protocols)
        nested = []
        for position in positions.protocol_positions:
            updated, part = self._position(position)
            nested.append(updated)
            sums += part
        return msgspec.structs.replace(positions, assets=loose, protocol_positions=tuple(nested)), sums

    def _position(self, position: PositionDocument) -> tuple[PositionDocument, Sum]:
        """Return a position with costs and gains of its assets, rewards and debts, and their sum."""
        parts = {name: getattr(position, name) for name in ("assets", "supply_assets", "dex_assets")}
        updated, sums = {}, NOTHING
        for name, assets in parts.items():
            updated[name], part = self._assets(assets, in_protocols=True)
            sums += part
        updated["reward_assets"], part = self._rewards(position.reward_assets)
        sums += part
        updated["borrow_assets"], part = self._debts(position.borrow_assets)
        sums += part
        return _with_sums(msgspec.structs.replace(position, **updated), sums, None), sums

    def _assets(self, assets: Iterable[AssetDocument], *, in_protocols: bool) -> tuple[tuple[AssetDocument, ...], Sum]:
        """Return assets with costs and gains, and their sum; note the faults of those that count.

        Unsolicited assets without a cost are not in the sum.
        """
        filled, sums = [], NOTHING
        for asset in assets:
            part, of_share = self._asset(asset, in_protocols=in_protocols), self._share(asset)
            both = part + of_share
            filled.append(msgspec.structs.replace(asset, open_pnl=text(both.open), total_cost_basis=text(both.cost)))
            if _is_counted(asset, spam=self.spam):
                key = self.gains.key(asset)
                fault = self.shares.faults.get(key, "" if part.cost is not None else NO_LOTS)
                sums += of_share + (NOTHING if part.cost is None and fault == UNASKED else part)
                self.faults |= {key: fault} if fault else {}
        return tuple(filled), sums

    def _asset(self, asset: AssetDocument, *, in_protocols: bool) -> Sum:
        """Return cost and open gain of one asset, without the part that belongs to a share.

        Take the cost out of the shares. Each is None if it is not known; both are for spam.
        """
        if asset.spam is not UNSET:
            return NOT_KNOWN
        key, raw = self.gains.key(asset), raw_balance(asset) - self.shares.of_shares.raw(asset)
        cost = self.shares.take(key, raw, in_protocols=in_protocols)
        if cost is None or asset.value == UNKNOWN:
            return Sum(cost, None)
        value = money(Decimal(asset.value))
        if (known_raw := self.shares.known_raw(key, raw)) < raw_balance(asset):
            value = money(value_of_part(asset, known_raw) or amounts.ZERO)
        return Sum(cost, value - cost)

    def _share(self, asset: AssetDocument) -> Sum:
        """Return cost and open gain of the part of an asset that belongs to lots of a share; note their fault.

        What others sent of the share is in neither.
        """
        shares = self.shares.of_shares
        if not shares.raw(asset) or asset.spam is not UNSET:
            return NOTHING
        lots = shares.lots_of(asset)
        if fault := lots.reason or (UNASKED if lots.unasked else ""):
            self.faults[lots.asset] = fault
        if not lots.quantity:
            return NOTHING
        cost, value = shares.cost(asset), shares.value(asset)
        return Sum(cost, None if cost is None or value is None else value - cost)

    def _rewards(self, assets: Iterable[AssetDocument]) -> tuple[tuple[AssetDocument, ...], Sum]:
        """Return claimable assets with their gains, and the sum without spam; they have cost nothing so far."""
        filled, sums = [], NOTHING
        for asset in assets:
            part = Sum(0, None if asset.value == UNKNOWN else money(Decimal(asset.value)))
            filled.append(msgspec.structs.replace(asset, open_pnl=text(part.open), total_cost_basis="0"))
            if _is_counted(asset, spam=self.spam):
                sums += part
        return tuple(filled), sums

    def _debts(self, assets: Iterable[AssetDocument]) -> tuple[tuple[AssetDocument, ...], Sum]:
        """Return debts with their borrowed values and gains, and the sum, from which borrowed values are subtracted."""
        filled, sums = [], NOTHING
        for asset in assets:
            key = self.gains.key(asset)
            if not _is_counted(asset, spam=self.spam):
                filled.append(asset)
                continue
            borrowed = self.debts.take(key, raw_balance(asset))
            if borrowed is None and asset.value == "0":
                filled.append(asset)
                continue
            part = NOT_KNOWN if borrowed is None else Sum(borrowed, borrowed - money(Decimal(asset.value)))
            filled.append(msgspec.structs.replace(asset, open_pnl=text(part.open), total_cost_basis=text(part.cost)))
            sums += part if part.cost is None else Sum(-part.cost, part.open)
            self.faults |= {key: self.debts.faults[key]} if key in self.debts.faults else {}
        return tuple(filled), sums


def _is_counted(asset: AssetDocument, *, spam: bool) -> bool:
    """Return True if the net worth includes the asset; with `spam`, it includes spam."""
    return asset.value != UNKNOWN and (spam or asset.spam is UNSET)


def _with_sums(document: T, sums: Sum, closed: int | None) -> T:
    return msgspec.structs.replace(
        document, total_cost_basis=text(sums.cost), total_open_pnl=text(sums.open), total_closed_pnl=text(closed)
    )
