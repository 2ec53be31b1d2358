"""Composes the records of /transactions from activities, with the values of assets at their block."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from chainfolio import amounts
from chainfolio.assets import Asset
from chainfolio.contracts import Price, Token, TransactionDetails
from chainfolio.portfolio.activity import (
    TRANSFERS,
    Activity,
    AddressFacts,
    Functions,
    Movement,
    Rule,
    signs,
    type_of,
)
from chainfolio.portfolio.collector import garbage_collection_paused
from chainfolio.portfolio.compose import clean
from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.facts import ChainFacts, Options, ProtocolFacts, asset_page, named_pictures, token_pictures
from chainfolio.portfolio.poisoning import Counterparties, flags, poisoning
from chainfolio.portfolio.spam import is_phishing
from chainfolio.portfolio.transactions import (
    UNKNOWN_PROTOCOL,
    NamedEntity,
    Nft,
    TransactionAssetDocument,
    TransactionDocument,
    TransactionUser,
)
from chainfolio.portfolio.valuation import market_value
from chainfolio.tables import REWARD

DIGITS: Final = amounts.MAX_DECIMALS + 80  # of the longest amount there can be
_ALIAS: Final = re.compile(r"[ _-]?v(?=\d+\Z)")


class ShownToken(NamedTuple):
    """Texts and pictures of a token, a collection or the native coin.

    `page` is its contract, empty for the native coin.

    Texts are empty, and decimals None, if it was not described.
    """

    symbol: str
    name: str
    decimals: int | None
    contract: str
    chain_contract: str
    page: str
    img_small: str | UnsetType
    img_large: str | UnsetType


@dataclass(frozen=True, slots=True)
class RenderContext:
    """The facts about one chain that its transaction records need.

    Attributes:
        trusted: Tokens that are beyond suspicion.
        protocol_of: Returns the protocol of a contract, or None.
        counterparties: The known counterparties of each account.
        also_at: The token as which the chain shows its native coin a second time.
        spam: Accounts with the tokens that their portfolios judge to be spam.
        burn_addresses: Addresses that mint and burn.
        validators: The protocol that pays withdrawals of validators.
        stakes: The protocol that pays rewards of stake.
        fee_collectors: Addresses that take fees as token movements.
        options: The pictures and links to show.
        is_trusted_contract: Returns True for contracts whose movements count also if others sent the transaction, in
            addition to `trusted`.
    """

    chain: ChainFacts
    native: Token
    tokens: Mapping[Asset, Token]
    trusted: frozenset[Asset] = frozenset()
    protocol_of: Callable[[str], ProtocolFacts | None] = field(default=lambda contract: None)
    functions: Functions = field(default_factory=Functions)
    counterparties: Mapping[str, Counterparties] = field(default_factory=dict)
    also_at: Asset | None = None
    spam: Collection[tuple[str, Asset]] = frozenset()
    burn_addresses: Collection[str] = frozenset()
    validators: ProtocolFacts | None = None
    stakes: ProtocolFacts | None = None
    fee_collectors: Collection[str] = frozenset()
    options: Options = field(default_factory=Options)
    is_trusted_contract: Callable[[str], bool] = field(default=lambda contract: False)
    _shown: dict[Asset, ShownToken] = field(init=False, default_factory=dict, compare=False)

    def shown(self, asset: Asset) -> ShownToken:
        """Return how a token, a collection or the native coin is shown; its texts are made once."""
        if (shown := self._shown.get(asset)) is None:
            token = self.native if asset.is_native else self.tokens.get(asset)
            symbol, name, decimals = (token.symbol, token.name, token.decimals) if token else ("", "", None)
            contract = asset.shown_contract
            shown = self._shown[asset] = ShownToken(
                clean(symbol).lower(),
                clean(name).lower(),
                decimals,
                contract,
                f"{self.chain.key}:{contract}",
                "" if asset.is_native else contract,
                *token_pictures(self.chain, asset, symbol, self.options),
            )
        return shown


@garbage_collection_paused()
def records_of(activities: Iterable[Activity], context: RenderContext) -> list[TransactionDocument]:
    """Return the records of activities, as of `record`."""
    return [record(activity, context) for activity in activities]


def record(activity: Activity, context: RenderContext) -> TransactionDocument:
    """Return the record of one transaction of one wallet, still without prices.

    Its `details` must be known.
    """
    details = activity.details
    assert details is not None, f"{activity.tx_hash} was not looked up"
    if context.also_at is not None:
        activity = replace(activity, movements=_without_duplicates(activity.movements, context.also_at))
    called_protocol = context.protocol_of(details.recipient) if details.recipient else None
    selector = details.selector or b""  # by which no function is found
    function = context.functions.names.get(selector, "")
    tokens = {move.asset.collection for move in activity.movements if not move.asset.is_native}
    spam = {asset for asset in tokens if _is_suspect(context, activity.account, asset)}
    poison = poisoning(activity, context.counterparties.get(activity.account), context.trusted)
    counterparty_protocol = _counterparty_protocol(activity, context)
    activity_signs = signs(
        activity,
        function,
        AddressFacts(spam, context.trusted, context.burn_addresses, context.fee_collectors),
        called=context.functions.types.get(selector, ""),
        imitated=poison.only,
    )
    assets = [(move.direction, _asset(activity, move, context)) for move in activity.movements]
    link = context.chain.explorer.get("transaction", "")
    small, large = named_pictures(context.chain, context.options)
    return TransactionDocument(
        hash=activity.tx_hash,
        timestamp=str(activity.time_us // 1_000_000),
        block_number=activity.height,
        chain=NamedEntity(key=context.chain.key, name=context.chain.name, img_small=small, img_large=large),
        sender=details.sender,
        recipient=details.recipient or details.created or "",
        type=type_of(
            activity_signs,
            function,
            _protocol_rules(activity, context, function, called_protocol, counterparty_protocol),
        ),
        value=_native(details.raw, context),
        value_fiat=UNKNOWN,
        fees=_native(details.fee, context),
        fees_fiat=UNKNOWN,
        native_asset_fees=_fee(details, context),
        assets_in=tuple(asset for direction, asset in assets if direction == "in"),
        assets_out=tuple(asset for direction, asset in assets if direction == "out"),
        user=TransactionUser(address=activity.account),
        protocol=_protocol(
            _paying_protocol(activity, context) or called_protocol or counterparty_protocol, context.options
        ),
        function_name=function[:1].upper() + function[1:],
        flags=flags(activity, poison, activity_signs, spam),
        explorer_url=link.replace("{hash}", activity.tx_hash) if link and not activity.is_of_protocol else UNSET,
    )


def _protocol_rules(
    activity: Activity,
    context: RenderContext,
    function: str,
    called: ProtocolFacts | None,
    counterparty: ProtocolFacts | None,
) -> list[Rule]:
    """Return the rules of the called protocol that can apply, then those of the counterparties' protocol.

    If a token is called, who gets it acts. If a router or a wallet contract is called, the assets show who acts: only
    trusted ones, if the account did not send the transaction.
    """
    assert activity.details is not None, "the record looked them up"
    others = {*context.burn_addresses, *context.fee_collectors}
    is_sender = activity.details.sender == activity.account

    def is_trusted(asset: Asset) -> bool:
        return is_sender or asset in context.trusted or context.is_trusted_contract(asset.shown_contract)

    of_called = called.transactions if called else ()
    of_others = counterparty.transactions if counterparty and counterparty is not called else ()
    of_counterparty = [rule for rule in of_others if function in TRANSFERS or not rule.functions]
    return [
        rule
        for rule in (*of_called, *of_counterparty)
        if rule.functions or rule.is_of_movements(activity.movements, others, is_trusted)
    ]


def _without_duplicates(movements: tuple[Movement, ...], also_at: Asset) -> tuple[Movement, ...]:
    """Return the movements without those of `also_at` that repeat a native movement.

    `also_at` is the token as which the chain shows its native coin a second time.
    """
    native = {(move.direction, move.raw) for move in movements if move.asset.is_native}
    return tuple(move for move in movements if move.asset != also_at or (move.direction, move.raw) not in native)


def _paying_protocol(activity: Activity, context: RenderContext) -> ProtocolFacts | None:
    """Return the protocol whose coins the chain itself paid; None if a transaction moved them."""
    if not activity.is_of_protocol:
        return None
    return context.stakes if activity.movements[0].standard == REWARD else context.validators


def _counterparty_protocol(activity: Activity, context: RenderContext) -> ProtocolFacts | None:
    """Return the protocol of the counterparties and spenders; None if they have none, or several.

    Those without a protocol are ignored.
    """
    counterparties = [move.counterparty for move in activity.movements] + [
        each.spender for each in activity.permissions
    ]
    protocols = {facts.key: facts for counterparty in counterparties if (facts := context.protocol_of(counterparty))}
    return next(iter(protocols.values())) if len(protocols) == 1 else None


def _protocol(facts: ProtocolFacts | None, options: Options) -> NamedEntity:
    small, large = named_pictures(facts or ProtocolFacts(UNKNOWN_PROTOCOL.key, UNKNOWN_PROTOCOL.name), options)
    document = NamedEntity(key=facts.key, name=facts.name) if facts else UNKNOWN_PROTOCOL
    return msgspec.structs.replace(document, img_small=small, img_large=large)


def _native(raw: int, context: RenderContext) -> str:
    assert context.native.decimals is not None, "a native coin has decimals"
    return amounts.text(amounts.amount(raw, context.native.decimals))


def _is_suspect(context: RenderContext, account: str, asset: Asset) -> bool:
    token = context.tokens.get(asset)
    if token is None or asset in context.trusted:
        return False
    return (account, asset) in context.spam or is_phishing(asset, token.symbol, token.name)


def _asset(activity: Activity, move: Movement, context: RenderContext) -> TransactionAssetDocument:
    """Return the document of a moved asset; its balance is unknown if its decimals are."""
    is_incoming, shown = move.direction == "in", context.shown(move.asset.collection)
    # Collectibles are counted one by one: their contracts give no decimals, and need none.
    decimals = 0 if move.asset.is_collectible else shown.decimals
    return TransactionAssetDocument(
        symbol=shown.symbol,
        name=shown.name,
        balance=UNKNOWN if decimals is None else amounts.text(amounts.amount(move.raw, decimals)),
        price=UNKNOWN,
        value=UNKNOWN,
        contract=shown.contract,
        address=shown.contract,
        chain_contract=shown.chain_contract,
        chain_key=context.chain.key,
        decimal=UNKNOWN if decimals is None else str(decimals),
        sender=move.counterparty if is_incoming else activity.account,
        recipient=activity.account if is_incoming else move.counterparty,
        is_asset_in=is_incoming,
        stays_staked=True if move.standard == REWARD else UNSET,
        nft=Nft(token_id=move.asset.token_id) if move.asset.is_collectible else UNSET,
        img_small=shown.img_small,
        img_large=shown.img_large,
        explorer_url=asset_page(context.chain, shown.page, activity.account, context.options),
    )


def _fee(details: TransactionDetails, context: RenderContext) -> TransactionAssetDocument:
    """Return the sender's fee as an asset without a recipient."""
    shown = context.shown(context.native.asset)
    return TransactionAssetDocument(
        symbol=shown.symbol,
        name=shown.name,
        balance=_native(details.fee, context),
        price=UNKNOWN,
        value=UNKNOWN,
        contract=shown.contract,
        address=shown.contract,
        chain_contract=shown.chain_contract,
        chain_key=context.chain.key,
        decimal=str(shown.decimals),
        sender=details.sender,
        recipient="",
        is_asset_in=False,
        is_native_asset_fees=True,
        img_small=shown.img_small,
        img_large=shown.img_large,
        explorer_url=asset_page(context.chain, "", details.sender, context.options),
    )


def with_prices(document: TransactionDocument, native: Asset, prices: Mapping[Asset, Price]) -> TransactionDocument:
    """Return a record with the prices of its block, including the native coin's.

    Assets without a price and collectibles stay unpriced.
    """
    by_contract = {asset.shown_contract: price for asset, price in prices.items()}

    def value_usd(asset: TransactionAssetDocument) -> TransactionAssetDocument:
        price = by_contract.get(asset.contract)
        if price is None or asset.nft is not UNSET:
            return asset
        return msgspec.structs.replace(
            asset, price=amounts.text(price.usd), value=_value_usd(asset.balance, price), price_source=price.source
        )

    native_price = prices.get(native)
    return msgspec.structs.replace(
        document,
        value_fiat=_value_usd(document.value, native_price),
        fees_fiat=_value_usd(document.fees, native_price),
        native_asset_fees=value_usd(document.native_asset_fees),
        assets_in=tuple(value_usd(asset) for asset in document.assets_in),
        assets_out=tuple(value_usd(asset) for asset in document.assets_out),
    )


def _value_usd(amount: str, price: Price | None) -> str:
    if price is None or amount == UNKNOWN:
        return UNKNOWN
    return amounts.text(market_value(amounts.parse(amount, max_digits=DIGITS), price))


def assets_of(activity: Activity, native: Asset) -> set[Asset]:
    """Return the assets whose prices the record of an activity uses."""
    return {native, *(move.asset for move in activity.movements if not move.asset.is_collectible)}


def mentions(activity: Activity, tokens: Mapping[Asset, Token], native: Token, text: str) -> bool:
    """Return True if symbol, name or contract of a moved or approved token contains `text`, in any case."""
    assets = {move.asset.collection for move in activity.movements} | {each.asset for each in activity.permissions}
    needle = text.casefold()
    for asset in assets:
        token = native if asset.is_native else tokens.get(asset)
        texts = [asset.shown_contract, *((token.symbol, token.name) if token else ())]
        if any(needle in each.casefold() for each in texts):
            return True
    return False


def protocol_key(name: str) -> str:
    """Return the key of a protocol in lower case from a spelling such as aave_v3 or Uniswap V3."""
    return _ALIAS.sub("", name.lower())
