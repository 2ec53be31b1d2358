"""Parts of positions that belong to lots of their shares, such as shares that others sent.

A portfolio shows a position in place of its shares. Lots of a share have their own cost, or none that is known. So what
they stand for is no part of what was deposited, and must not make the gain of a deposited asset unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Final

from msgspec import UNSET

from chainfolio import amounts
from chainfolio.portfolio.document import UNKNOWN, AssetDocument, Portfolio, PositionDocument
from chainfolio.portfolio.pnl.containers import divided
from chainfolio.portfolio.pnl.entries import decimal, money, share
from chainfolio.portfolio.pnl.gains import RemainingLots
from chainfolio.portfolio.transactions import raw_balance

MAX_GROWTH: Final = Fraction(3, 2)  # of a balance without a transfer; more may be a deposit that is not indexed
NO_CONTENTS: Final[Mapping[str, Collection[str]]] = {}
ROUNDING: Final = 2  # units that a balance may grow beyond that

Key = tuple[str, str]  # asset; wallet, if lots are kept per wallet


@dataclass(frozen=True, slots=True)
class ShareLots:
    """The lots of shares that positions of portfolios are shown for.

    Attributes:
        held: How much of a share the lots have, by share. If more is there that nothing explains, all of it.
        lots: The lots of these shares.
        assets: The assets of positions, with the share and their part for its lots, by the identity of the document.
    """

    held: dict[Key, int] = field(default_factory=dict)
    lots: dict[Key, RemainingLots] = field(default_factory=dict)
    assets: dict[int, tuple[AssetDocument, Key, int]] = field(default_factory=dict)

    def raw(self, asset: AssetDocument) -> int:
        """Return the part of a position's asset that belongs to lots of a share, in its smallest unit."""
        return self.assets[id(asset)][2] if id(asset) in self.assets else 0

    def parts(self) -> Iterator[tuple[str, Decimal]]:
        """Yield the shares with the values in USD of all their parts that have a price."""
        for asset, key, raw in self.assets.values():
            if (value_usd := value_of_part(asset, raw)) is not None:
                yield key[0], value_usd

    def without_parts(self, max_values: Mapping[str, Decimal], aliases: Mapping[str, str]) -> dict[str, Decimal]:
        """Return what markets could pay for assets at most, by key, without what they pay for parts of shares."""
        result = dict(max_values)
        for asset, _, raw in self.assets.values():
            key = aliases.get(asset.chain_contract, asset.chain_contract)
            if key in result and (value_usd := value_of_part(asset, raw)) is not None:
                result[key] = max(amounts.EXACT.subtract(result[key], value_usd), amounts.ZERO)
        return result

    def lots_of(self, asset: AssetDocument) -> RemainingLots:
        """Return the lots that have a part of an asset."""
        return self.lots[self.assets[id(asset)][1]]

    def value(self, asset: AssetDocument) -> int | None:
        """Return the value of a part, without units of the share that others sent; None if it has no price."""
        _, key, raw = self.assets[id(asset)]
        lots = self.lots[key]
        known_raw = share(raw, lots.quantity, lots.quantity + lots.unasked)
        value_usd = value_of_part(asset, known_raw) if known_raw else amounts.ZERO
        return None if value_usd is None else money(value_usd)

    def cost(self, asset: AssetDocument) -> int | None:
        """Return the cost of a part, an equal one for each asset of the share; None if it is not known."""
        _, key, _ = self.assets[id(asset)]
        cost, ids = self.lots[key].cost, [each for each, (_, of_asset, _) in self.assets.items() if of_asset == key]
        return None if cost is None else divided(cost, dict.fromkeys(map(str, ids), 1))[ids.index(id(asset))].value

    def values(self) -> dict[Key, int | None]:
        """Return the value of all parts of each share; None if one has no price."""
        values: dict[Key, int | None] = {}
        for asset, key, _ in self.assets.values():
            value, before = self.value(asset), values.get(key, 0)
            values[key] = None if value is None or before is None else before + value
        return values


NO_SHARES: Final = ShareLots()


def value_of_part(asset: AssetDocument, raw: int) -> Decimal | None:
    """Return the value of a part of an asset in USD; None for spam, or without a price."""
    if UNKNOWN in (asset.value, asset.price, asset.decimal) or asset.spam is not UNSET:
        return None
    decimals, price, value_usd = int(asset.decimal), Decimal(asset.price), Decimal(asset.value)
    whole = raw_balance(asset)
    if raw >= whole:
        return value_usd
    if amounts.value_of(amounts.amount(whole, decimals), price) <= value_usd:
        return amounts.value_of(amounts.amount(raw, decimals), price)
    return decimal(share(money(value_usd), raw, whole))  # its market limits the value of the whole


def share_lots(
    portfolios: Sequence[Portfolio],
    remaining: Iterable[RemainingLots],
    contents: Mapping[str, Collection[str]],
    aliases: Mapping[str, str],
    *,
    per_wallet: bool = False,
) -> ShareLots:
    """Return the lots of shares with what they stand for in the positions of portfolios.

    Growth without a transfer belongs to deposits, or to the lots if nothing was deposited for the share. If a share
    without a deposit grew by more than a half, a deposit may be missing: then the growth belongs to neither.

    Args:
        portfolios: Portfolios with positions.
        remaining: All lots.
        contents: The assets that went into positions, by their open shares.
        aliases: Keys of assets that count as another one.
        per_wallet: Lots are kept per wallet.
    """
    balances, lots = defaultdict[Key, int](int), {(each.asset, each.wallet): each for each in remaining}
    positions = [(document.address, position) for document in portfolios for position in positions_of(document)]
    shown = {
        (address, asset): int(raw)
        for address, position in positions
        for asset, raw in position_shares(position).items()
    }
    for (address, asset), raw in shown.items():
        balances[asset, address if per_wallet else ""] += raw
    result, fractions = ShareLots(), dict[Key, Fraction]()
    for key in balances.keys() & lots.keys():
        of_share, balance = lots[key], balances[key]
        count = of_share.quantity + of_share.unasked - of_share.short - of_share.deposited
        if count > 0:
            has_deposit = key[0] in contents and (not per_wallet or _has_deposit(contents[key[0]], key[1], lots))
            is_alone = not has_deposit and balance <= count * MAX_GROWTH + ROUNDING
            fractions[key] = Fraction(1) if is_alone else Fraction(min(count, balance), balance)
            result.held[key] = min(count, balance) if is_alone or has_deposit else balance
            result.lots[key] = of_share
    given = {key for key, part in fractions.items() if part == 1 and not lots[key].quantity}
    for address, position in positions if fractions else ():
        wallet = address if per_wallet else ""
        for part in position.supply_assets:
            asset_key = aliases.get(part.chain_contract, part.chain_contract)
            candidates = _shares_of(position, asset_key, contents, aliases)
            is_certain = len(candidates) == 1 or given.issuperset((each, wallet) for each in candidates)
            key = candidates[0] if candidates and is_certain else "", wallet
            if key in fractions:
                result.assets[id(part)] = part, key, int(raw_balance(part) * fractions[key])
    return result


def _has_deposit(contents: Collection[str], wallet: str, lots: Mapping[Key, RemainingLots]) -> bool:
    """Return True if a wallet deposited what went into a position, or if what went in is not known."""
    own = [lots[asset, wallet] for asset in contents if (asset, wallet) in lots]
    return not contents or any(each.deposited for each in own)


def positions_of(document: Portfolio) -> Iterator[PositionDocument]:
    """Yield all positions of a portfolio."""
    for protocol in document.asset_by_protocols.values():
        for chain in protocol.chains.values():
            for positions in chain.protocol_positions.values():
                yield from positions.protocol_positions


def position_shares(position: PositionDocument) -> Mapping[str, str]:
    """Return the raw amounts of the shares of a position; empty if it has none."""
    return {} if position.shares is UNSET else position.shares


def _shares_of(
    position: PositionDocument, asset: str, contents: Mapping[str, Collection[str]], aliases: Mapping[str, str]
) -> list[str]:
    """Return the shares that may stand for an asset of a position.

    These are the only share, those for which the asset was deposited, else all for which nothing was deposited that the
    position holds. So a share whose deposit was exchanged on the way may stand for any other asset.
    """
    shares = list(position_shares(position))
    deposited = [each for each in shares if asset in contents.get(each, ())]
    shown = {aliases.get(each.chain_contract, each.chain_contract) for each in position.supply_assets}
    others = [each for each in shares if shown.isdisjoint(contents.get(each, ()))]
    return shares if len(shares) == 1 else deposited or others
