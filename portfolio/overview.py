"""Holdings per token over all wallets, chains and protocols: the rows of /token-overview.

A token is identified by symbol (in upper case) and name, because ether on two chains has nothing else in common.
Different tokens with the same symbol and name share a row. Unpriced assets have rows of their own and are in no sum.
Spam has no row, because it can choose any name. Borrowed assets are subtracted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Final

import msgspec

from chainfolio import amounts
from chainfolio.portfolio.document import (
    UNKNOWN,
    AssetDocument,
    Portfolio,
    PositionsDocument,
    ProtocolDocument,
    percentages,
    rounded,
)
from chainfolio.portfolio.facts import ChainFacts, ProtocolFacts
from chainfolio.portfolio.pictures import drawn, pictures, token_images

PLACES: Final = 18


class TokenShare(msgspec.Struct, frozen=True, kw_only=True):
    """Holdings of a token in one protocol; `N/A` if not known."""

    key: str
    name: str
    value: str
    balance: str
    image: str


class TokenRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One token; `percentage` is its part of the net worth.

    `price`, `value` and `percentage` are `N/A` without a price, `balance` without decimals. Numbers are negative if
    more is owed than held.
    """

    image: str
    symbol: str
    name: str
    price: str
    balance: str
    value: str
    percentage: str
    protocols_detailed: tuple[TokenShare, ...]


@dataclass(frozen=True, slots=True)
class _SignedAsset:
    """One asset with its protocol; `sign` is -1 for debt."""

    asset: AssetDocument
    protocol: ProtocolDocument
    sign: int

    def signed(self, text: str) -> Decimal | None:
        if text == UNKNOWN:
            return None
        return Decimal(text) if self.sign > 0 else Decimal(text).copy_negate()


@dataclass(frozen=True, slots=True)
class Pictures:
    """Small pictures of tokens by `chain:contract`, and of protocols by key.

    `token_urls` are the templates of the other tokens' pictures by chain.
    """

    tokens: Mapping[str, str] = field(default_factory=dict)
    protocols: Mapping[str, str] = field(default_factory=dict)
    token_urls: Mapping[str, str] = field(default_factory=dict)

    def of_token(self, asset: AssetDocument) -> str | None:
        """Return the picture of a token; None if neither `configs/` nor the settings have one."""
        images = token_images(self.token_urls.get(asset.chain_key, ""), asset.chain_key, asset.contract)
        return self.tokens.get(asset.chain_contract) or images.get("small")


NO_PICTURES: Final = Pictures()


def pictures_of(chains: Iterable[ChainFacts], protocols: Iterable[ProtocolFacts]) -> Pictures:
    """Return the picture of each token and protocol that has one: the small one, else the large one."""
    all_chains = list(chains)
    return Pictures(
        {
            f"{chain.key}:{token.shown_contract}": pictures(images, "", "")[0]
            for chain in all_chains
            for token, images in chain.tokens.items()
            if images
        },
        {protocol.key: pictures(protocol.images, "", "")[0] for protocol in protocols if protocol.images},
        {chain.key: chain.token_url for chain in all_chains},
    )


def overview(portfolios: Iterable[Portfolio], pictures: Pictures = NO_PICTURES) -> list[TokenRow]:
    """Return a row per symbol and name, the largest value first, unpriced ones apart and last.

    Debts count negative. Assets of one name whose value or balance is unknown have a row of their own. Percentages are
    of the sum of all values.
    """
    parts_by_token: defaultdict[tuple[str, str, bool, bool], list[_SignedAsset]] = defaultdict(list)
    for part in (part for portfolio in portfolios for part in _parts(portfolio)):
        asset = part.asset
        parts_by_token[asset.symbol.upper(), asset.name, asset.value == UNKNOWN, asset.balance == UNKNOWN].append(part)
    values = {key: _value(parts) for key, parts in parts_by_token.items()}
    # The keys of shares are texts: a token's place in this list.
    shares = percentages({str(i): values[key] or amounts.ZERO for i, key in enumerate(parts_by_token)})
    rows = [
        (values[key], _token_row(parts, UNKNOWN if values[key] is None else shares[str(i)], pictures))
        for i, (key, parts) in enumerate(parts_by_token.items())
    ]
    return [row for _, row in sorted(rows, key=_order)]


def _order(item: tuple[Decimal | None, TokenRow]) -> tuple[bool, Decimal, str, str, bool]:
    value, row = item
    return value is None, (value or amounts.ZERO).copy_negate(), row.symbol, row.name, row.balance == UNKNOWN


def _parts(portfolio: Portfolio) -> Iterator[_SignedAsset]:
    """Yield all assets with protocol and sign, without spam."""
    for protocol in portfolio.asset_by_protocols.values():
        for chain in protocol.chains.values():
            for positions in chain.protocol_positions.values():
                parts = ((asset, sign) for asset, sign in _signed(positions) if asset.spam is msgspec.UNSET)
                yield from (_SignedAsset(asset, protocol, sign) for asset, sign in parts)


def _signed(positions: PositionsDocument) -> Iterator[tuple[AssetDocument, int]]:
    """Yield direct assets, then all of each position, rewards too, with 1, or -1 if borrowed."""
    yield from ((asset, 1) for asset in positions.assets)
    for nested in positions.protocol_positions:
        owned = (*nested.assets, *nested.supply_assets, *nested.reward_assets, *nested.dex_assets)
        yield from ((asset, 1) for asset in owned)
        yield from ((asset, -1) for asset in nested.borrow_assets)


def _token_row(parts: Sequence[_SignedAsset], share: str, pictures: Pictures) -> TokenRow:
    """Return the row of a token: its sums over protocols, and its part in each of them."""
    by_protocol: defaultdict[str, list[_SignedAsset]] = defaultdict(list)
    for part in parts:
        by_protocol[part.protocol.key].append(part)
    shares = [_share(each, pictures) for each in by_protocol.values()]
    first = parts[0].asset
    images = [image for part in parts if (image := pictures.of_token(part.asset))]
    return TokenRow(
        image=min(images, default="") or drawn(min(part.asset.chain_contract for part in parts), first.symbol),
        symbol=first.symbol.upper(),
        name=first.name,
        price=_price(parts),
        balance=_text(_balance(parts)),
        value=_text(_value(parts)),
        percentage=share,
        protocols_detailed=tuple(sorted(shares, key=_share_order)),
    )


def _share(parts: Sequence[_SignedAsset], pictures: Pictures) -> TokenShare:
    """Return a token's value and balance in one protocol."""
    key, name = parts[0].protocol.key, min(part.protocol.name for part in parts)
    return TokenShare(
        key=key,
        name=name,
        value=_text(_value(parts)),
        balance=_text(_balance(parts)),
        image=pictures.protocols.get(key) or drawn(key, name),
    )


def _share_order(share: TokenShare) -> tuple[Decimal, str]:
    return _or_zero(share.value).copy_negate(), share.key


def _value(parts: Sequence[_SignedAsset]) -> Decimal | None:
    return _net([part.signed(part.asset.value) for part in parts])


def _balance(parts: Sequence[_SignedAsset]) -> Decimal | None:
    return _net([part.signed(part.asset.balance) for part in parts])


def _net(values: Sequence[Decimal | None]) -> Decimal | None:
    """Return the sum of the known values; None if none is known."""
    known_values = [value for value in values if value is not None]
    return amounts.total(known_values) if known_values else None


def _price(parts: Sequence[_SignedAsset]) -> str:
    """Return the common price; else the mean by balance, in which debt weighs like holdings.

    Returns:
        A price in USD as text, or UNKNOWN if prices differ and the balances are zero or unknown.
    """
    prices = {part.asset.price for part in parts}
    if len(prices) == 1:
        return prices.pop()
    balance = amounts.total([_or_zero(part.asset.balance) for part in parts])
    value = amounts.total([_or_zero(part.asset.value) for part in parts])
    return amounts.text(rounded(Fraction(value) / Fraction(balance), PLACES)) if balance else UNKNOWN


def _or_zero(text: str) -> Decimal:
    """Return the number, or zero for an unknown one, so that sums leave it out."""
    return amounts.ZERO if text == UNKNOWN else Decimal(text)


def _text(value: Decimal | None) -> str:
    return UNKNOWN if value is None else amounts.text(value)
