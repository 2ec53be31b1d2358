"""Activities as the records that /transactions answers with, and what their assets were worth at their block."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
from msgspec import UNSET

from chainfolio import amounts
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.contracts import Price, Token, TransactionDetails
from portfolio.activity import COLLECTIBLE, Activity, Functions, Movement, signs, type_of
from portfolio.compose import clean
from portfolio.document import UNKNOWN
from portfolio.facts import ChainFacts, ProtocolFacts
from portfolio.poisoning import Counterparties, flags, poisoning
from portfolio.spam import is_phishing
from portfolio.transactions import (
    UNKNOWN_PROTOCOL,
    Named,
    Nft,
    TransactionAssetDocument,
    TransactionDocument,
    TransactionUser,
)

DIGITS: Final = amounts.MAX_DECIMALS + 80  # of the longest amount there can be
_ALIAS: Final = re.compile(r"[ _-]?v(?=\d+\Z)")


@dataclass(frozen=True, slots=True)
class RenderContext:
    """What the records of one chain need to know beside its activities.

    `tokens` are by contract, those of `listed` are beyond suspicion; `protocol_of` says whose a contract is;
    `counterparties` are whom each account dealt with; `also_at` is where the chain shows its native coin as a token;
    `spam` are accounts with tokens that their portfolios take for spam."""

    chain: ChainFacts
    native: Token
    tokens: Mapping[str, Token]
    listed: frozenset[str] = frozenset()
    protocol_of: Callable[[str], ProtocolFacts | None] = field(default=lambda contract: None)
    functions: Functions = field(default_factory=Functions)
    counterparties: Mapping[str, Counterparties] = field(default_factory=dict)
    also_at: str | None = None
    spam: Collection[tuple[str, str]] = frozenset()


def record(activity: Activity, context: RenderContext) -> TransactionDocument:
    """One transaction of one wallet. What it says of itself (`details`) is known by now."""
    details = activity.details
    assert details is not None, f"{activity.tx_hash} was not looked up"
    activity = replace(activity, movements=_once(activity.movements, context.also_at))
    called = context.protocol_of(details.recipient) if details.recipient else None
    function = context.functions.names.get(details.selector, "")
    baits = {
        move.token for move in activity.movements if move.token and _is_suspect(context, activity.account, move.token)
    }
    looks = poisoning(activity, context.counterparties.get(activity.account), context.listed)
    found = signs(
        activity, function, baits, called=context.functions.types.get(details.selector, ""), listed=context.listed,
        imitated=looks.only,
    )  # fmt: skip
    shown = [(move.direction, _asset(activity, move, context)) for move in activity.movements]
    link = context.chain.explorer.get("transaction", "")
    return TransactionDocument(
        hash=activity.tx_hash,
        timestamp=str(activity.time_us // 1_000_000),
        block_number=activity.height,
        chain=Named(key=context.chain.key, name=context.chain.name),
        sender=details.sender,
        recipient=details.recipient or details.created or "",
        type=type_of(found, function, called.transactions if called else ()),
        value=_native(details.raw, context),
        value_fiat=UNKNOWN,
        fees=_native(details.fee, context),
        fees_fiat=UNKNOWN,
        native_asset_fees=_fee(details, context),
        assets_in=tuple(asset for direction, asset in shown if direction == "in"),
        assets_out=tuple(asset for direction, asset in shown if direction == "out"),
        user=TransactionUser(address=activity.account),
        protocol=_protocol(called or _met(activity, context)),
        function_name=function[:1].upper() + function[1:],
        flags=flags(activity, looks, found, baits),
        explorer_url=link.replace("{hash}", activity.tx_hash) if link else UNSET,
    )


def _once(movements: tuple[Movement, ...], also_at: str | None) -> tuple[Movement, ...]:
    """Movements without those of the native coin that the chain tells a second time, as a token's."""
    if also_at is None:
        return movements
    native = {(move.direction, move.raw) for move in movements if move.token is None}
    return tuple(move for move in movements if move.token != also_at or (move.direction, move.raw) not in native)


def _met(activity: Activity, context: RenderContext) -> ProtocolFacts | None:
    """The protocol on the other side of a movement or an approval, where all that have one agree."""
    others = [move.counterparty for move in activity.movements] + [each.spender for each in activity.permissions]
    found = {facts.key: facts for other in others if (facts := context.protocol_of(other))}
    return next(iter(found.values())) if len(found) == 1 else None


def _protocol(facts: ProtocolFacts | None) -> Named:
    return Named(key=facts.key, name=facts.name) if facts else UNKNOWN_PROTOCOL


def _native(raw: int, context: RenderContext) -> str:
    assert context.native.decimals is not None, "a native coin has decimals"
    return amounts.text(amounts.amount(raw, context.native.decimals))


def _is_suspect(context: RenderContext, account: str, contract: str) -> bool:
    token = context.tokens.get(contract)
    if token is None or contract in context.listed:
        return False
    return (account, contract) in context.spam or is_phishing(contract, token.symbol, token.name)


def _asset(activity: Activity, move: Movement, context: RenderContext) -> TransactionAssetDocument:
    came = move.direction == "in"
    token = context.native if move.token is None else context.tokens.get(move.token)
    # Collectibles are counted one by one: their contracts give no decimals, and need none.
    decimals = 0 if move.standard in COLLECTIBLE else token.decimals if token else None
    contract = move.token or ZERO_ADDRESS
    return TransactionAssetDocument(
        symbol=clean(token.symbol).lower() if token else "",
        name=clean(token.name).lower() if token else "",
        balance=UNKNOWN if decimals is None else amounts.text(amounts.amount(move.raw, decimals)),
        price=UNKNOWN,
        value=UNKNOWN,
        contract=contract,
        chain_contract=f"{context.chain.key}:{contract}",
        chain_key=context.chain.key,
        decimal=UNKNOWN if decimals is None else str(decimals),
        sender=move.counterparty if came else activity.account,
        recipient=activity.account if came else move.counterparty,
        is_asset_in=came,
        nft=UNSET if move.token_id is None else Nft(token_id=str(move.token_id)),
    )


def _fee(details: TransactionDetails, context: RenderContext) -> TransactionAssetDocument:
    """What the sender paid, as an asset; it goes to nobody in particular."""
    return TransactionAssetDocument(
        symbol=clean(context.native.symbol).lower(),
        name=clean(context.native.name).lower(),
        balance=_native(details.fee, context),
        price=UNKNOWN,
        value=UNKNOWN,
        contract=ZERO_ADDRESS,
        chain_contract=f"{context.chain.key}:{ZERO_ADDRESS}",
        chain_key=context.chain.key,
        decimal=str(context.native.decimals),
        sender=details.sender,
        recipient="",
        is_asset_in=False,
        is_native_asset_fees=True,
    )


def priced(document: TransactionDocument, prices: Mapping[str, Price]) -> TransactionDocument:
    """A record with prices by contract (the zero address for the native coin) in it, those of its own block. What has
    no price stays as it is; collectibles have none."""

    def value_usd(asset: TransactionAssetDocument) -> TransactionAssetDocument:
        price = prices.get(asset.contract)
        if price is None or asset.nft is not UNSET:
            return asset
        return msgspec.structs.replace(
            asset, price=amounts.text(price.usd), value=_value_usd(asset.balance, price), price_source=price.source
        )

    coin = prices.get(ZERO_ADDRESS)
    return msgspec.structs.replace(
        document,
        value_fiat=_value_usd(document.value, coin),
        fees_fiat=_value_usd(document.fees, coin),
        native_asset_fees=value_usd(document.native_asset_fees),
        assets_in=tuple(value_usd(asset) for asset in document.assets_in),
        assets_out=tuple(value_usd(asset) for asset in document.assets_out),
    )


def _value_usd(amount: str, price: Price | None) -> str:
    if price is None or amount == UNKNOWN:
        return UNKNOWN
    return amounts.text(amounts.value_of(amounts.parse(amount, max_digits=DIGITS), price.usd))


def contracts_of(document: TransactionDocument) -> set[str]:
    """The contracts whose prices `priced` can use."""
    moved = (*document.assets_in, *document.assets_out)
    return {ZERO_ADDRESS, *(asset.contract for asset in moved if asset.nft is UNSET)}


def mentions(activity: Activity, tokens: Mapping[str, Token], native: Token, text: str) -> bool:
    """Whether a text is part of the symbol, the name or the contract of a token that moved or was approved."""
    contracts = {move.token for move in activity.movements} | {each.token for each in activity.permissions}
    wanted = text.casefold()
    for contract in contracts:
        token = native if contract is None else tokens.get(contract)
        words = [contract or ZERO_ADDRESS, *((token.symbol, token.name) if token else ())]
        if any(wanted in word.casefold() for word in words):
            return True
    return False


def protocol_key(written: str) -> str:
    """The key of a protocol from a spelling with its version set apart: aave_v3, uniswap-v3, Uniswap V3."""
    return _ALIAS.sub("", written.lower())
