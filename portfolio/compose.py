"""Composes the document of one address from a valuation.

All its sums are computed here, so that they agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from msgspec import UNSET, UnsetType

from chainfolio import amounts
from chainfolio.contracts import EpochReward, Issue
from chainfolio.messages import public
from chainfolio.portfolio.document import (
    UNKNOWN,
    WALLET,
    AssetDocument,
    CallDocument,
    ChainDocument,
    EarningDocument,
    IssueDocument,
    Portfolio,
    PositionDocument,
    PositionsDocument,
    PositionSources,
    ProtocolChainDocument,
    ProtocolDocument,
    Sources,
    SpamDocument,
    percentages,
)
from chainfolio.portfolio.facts import ChainFacts, Options, ProtocolFacts, asset_page, named_pictures, token_pictures
from chainfolio.portfolio.valuation import Valuation, ValuedHolding, ValuedPosition
from chainfolio.reads import ReadResult

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NAMES: Final = {"WALLET": "wallet", "LIQUIDITYPOOL": "Liquidity Pool", "LEVERAGED FARMING": "Leveraged Farming"}
NO_OPTIONS: Final = Options()


@dataclass(slots=True)
class _Bucket:
    """The holdings of one protocol on one chain under one position type."""

    loose: list[ValuedHolding] = field(default_factory=list)
    nested: list[ValuedPosition] = field(default_factory=list)

    @property
    def value_usd(self) -> Decimal:
        loose = [valued.value_usd for valued in self.loose if valued.value_usd is not None and valued.is_counted]
        return amounts.total([*loose, *(position.value_usd for position in self.nested)])


@dataclass(frozen=True, slots=True)
class _Style:
    """The account, protocol and options that the documents of one protocol share."""

    account: str
    protocol: ProtocolFacts
    options: Options

    def link(self, facts: ChainFacts, address: str) -> str | UnsetType:
        """Return the explorer's page of an address; UNSET if there is none, or links are not requested."""
        page = facts.explorer.get("address", "")
        return page.replace("{address}", address) if self.options.explorer_urls and page and address else UNSET


# protocol -> chain -> position type
_Tree = defaultdict[str, defaultdict[str, defaultdict[str, _Bucket]]]


def portfolio(
    address: str,
    valuation: Valuation,
    chains: Mapping[str, ChainFacts],
    *,
    updated_ms: int,
    options: Options = NO_OPTIONS,
    protocols: Mapping[str, ProtocolFacts] | None = None,
    block_number: int | None = None,
) -> Portfolio:
    """Return the portfolio of one address.

    Args:
        address: The account.
        valuation: A valuation that includes the account.
        chains: Facts by the chain of the snapshots.
        updated_ms: Time of the answer.
        options: The optional parts.
        protocols: Facts by protocol key; an unknown protocol has its key as name.
        block_number: The requested block, which the answer repeats; it then names no price adapters. None: now.
    """
    account_valuation = valuation.for_account(address).with_spam() if options.spam else valuation.for_account(address)
    tree = _tree(account_valuation)
    value_usd = {
        chain: amounts.total([bucket.value_usd for kinds in tree.values() for bucket in kinds[chain].values()])
        for chain in sorted({*account_valuation.scope[address], *(key for kinds in tree.values() for key in kinds)})
    }
    names = {key: (protocols or {}).get(key) or ProtocolFacts(key, "Wallet" if key == WALLET else key) for key in tree}
    summed = [valued for valued in account_valuation.all_holdings if valued.value_usd is not None and valued.is_counted]
    cash = [valued.value_usd for valued in summed if valued.value_usd is not None and _is_cash(valued)]
    adapters = {clean(valued.price.source) for valued in summed if valued.price}
    fees, fees_fiat = _fees(account_valuation, address)
    income, expense = _daily(account_valuation, address)
    return Portfolio(
        address=address,
        networth=amounts.text(amounts.total(list(value_usd.values()))),
        last_updated=str(updated_ms),
        asset_by_protocols={
            key: _protocol(names[key], tree[key], chains, _Style(address, names[key], options)) for key in sorted(tree)
        },
        chains=_chains(value_usd, chains, options, account_valuation.heights),
        completeness="partial"
        if any(issue.makes_partial for issue in account_valuation.unread[address])
        else "complete",
        issues=_issues(account_valuation, address),
        unpriced_assets=sum(valued.value_usd is None for valued in account_valuation.all_holdings),
        spam_assets=sum(valued.spam is not None for valued in account_valuation.all_holdings),
        price_adapters=() if block_number is not None else tuple(sorted(adapters)),
        cash_balance=amounts.text(amounts.total(cash)),
        daily_income=income,
        daily_expense=expense,
        fees=fees,
        fees_fiat=fees_fiat,
        block_number=UNSET if block_number is None else str(block_number),
    )


def _chains(
    value_usd: dict[str, Decimal],
    chains: Mapping[str, ChainFacts],
    options: Options,
    heights: Mapping[str, tuple[int, int | None]],
) -> dict[str, ChainDocument]:
    """Return the chains with their shares of the whole value, by the key that users know."""
    shares = percentages(value_usd)
    return {
        chains[key].key: _chain(chains[key], value_usd[key], shares[key], options, heights.get(key))
        for key in value_usd
    }


def _issues(valuation: Valuation, address: str) -> tuple[IssueDocument, ...]:
    """Return the issues of one account and those of all accounts, for its document.

    Each chain whose `dailyIncome` and `dailyExpense` are unknown has one more.
    """
    return issue_documents(
        (
            *valuation.unread[address],
            *valuation.unclear_issues,
            *valuation.capped_issues,
            *_unknown_days(valuation, address),
        )
    )


def _fees(valuation: Valuation, address: str) -> tuple[str, str]:
    """Return all fees paid, in the native coin's smallest unit and in USD.

    Both are unknown if the fees of a chain are; the first also if several coins would be summed, the second if a fee
    has no price.
    """
    chains = set(valuation.scope[address])
    if {fee.chain for fee in valuation.fees} != chains or (valuation.unread[address] and not chains):
        return UNKNOWN, UNKNOWN
    nonzero_fees = [fee for fee in valuation.fees if fee.holding.raw]
    coins = {(fee.holding.token.symbol, fee.holding.token.decimals) for fee in nonzero_fees}
    values_usd = [fee.value_usd for fee in nonzero_fees if fee.value_usd is not None]
    return (
        str(sum(fee.holding.raw for fee in nonzero_fees)) if len(coins) <= 1 else UNKNOWN,
        amounts.text(amounts.total(values_usd)) if len(values_usd) == len(nonzero_fees) else UNKNOWN,
    )


def _is_cash(valued: ValuedHolding) -> bool:
    """Return True if the holding is outside of positions and pegged to a fixed sum."""
    return valued.is_pegged and valued.holding.protocol == WALLET


def _daily(valuation: Valuation, address: str) -> tuple[str, str]:
    """Return income and expense since 00:00 UTC in USD as text; both unknown if those of a chain are."""
    chains = set(valuation.scope[address])
    if {day.chain for day in valuation.days} != chains or (valuation.unread[address] and not chains):
        return UNKNOWN, UNKNOWN
    income, expense = (
        amounts.total([day.income for day in valuation.days]),
        amounts.total([day.expense for day in valuation.days]),
    )
    return amounts.text(income), amounts.text(expense)


def _unknown_days(valuation: Valuation, address: str) -> list[Issue]:
    """Return an issue per chain whose income and expense of today are unknown; it makes nothing partial."""
    return [
        Issue(
            "daily",
            chain,
            f"dailyIncome and dailyExpense are not known: {valuation.no_days[chain]}",
            makes_partial=False,
        )
        for chain in valuation.scope[address]
        if chain in valuation.no_days
    ]


def _tree(valuation: Valuation) -> _Tree:
    """Group holdings and positions by protocol, chain and type; the wallet is there even if empty."""
    tree: _Tree = defaultdict(lambda: defaultdict(lambda: defaultdict(_Bucket)))
    tree[WALLET]  # always there, also of an empty wallet
    for valued in valuation.holdings:
        tree[valued.holding.protocol][valued.chain][valued.holding.position].loose.append(valued)
    for position in valuation.positions:
        tree[position.protocol][position.chain][position.type].nested.append(position)
    return tree


def _protocol(
    protocol: ProtocolFacts,
    by_chain: Mapping[str, Mapping[str, _Bucket]],
    chains: Mapping[str, ChainFacts],
    style: _Style,
) -> ProtocolDocument:
    """Return the document of a protocol; chains on which it has nothing are left out."""
    by_type = {chain: kinds for chain, kinds in by_chain.items() if kinds}
    value_usd = amounts.total([bucket.value_usd for kinds in by_type.values() for bucket in kinds.values()])
    small, large = named_pictures(protocol, style.options)
    return ProtocolDocument(
        name=protocol.name,
        key=protocol.key,
        value=amounts.text(value_usd),
        chains={chains[chain].key: _protocol_chain(chains[chain], by_type[chain], style) for chain in sorted(by_type)},
        img_small=small,
        img_large=large,
    )


def _protocol_chain(facts: ChainFacts, kinds: Mapping[str, _Bucket], style: _Style) -> ProtocolChainDocument:
    """Return the document of a protocol's positions on one chain, by type."""
    small, large = named_pictures(facts, style.options)
    return ProtocolChainDocument(
        name=facts.name,
        key=facts.key,
        value=amounts.text(amounts.total([bucket.value_usd for bucket in kinds.values()])),
        protocol_positions={kind: _positions(kind, kinds[kind], facts, style) for kind in sorted(kinds)},
        img_small=small,
        img_large=large,
    )


def _positions(kind: str, bucket: _Bucket, facts: ChainFacts, style: _Style) -> PositionsDocument:
    """Return the document of one type: loose assets, then positions by falling value; no sums are changed."""
    nested = sorted(bucket.nested, key=_position_key)
    small, large = named_pictures(style.protocol, style.options)
    return PositionsDocument(
        name=NAMES.get(kind, kind.capitalize()),
        total_value=amounts.text(bucket.value_usd),
        assets=_assets(bucket.loose, facts, style.options),
        protocol_positions=tuple(_position(position, facts, style) for position in nested),
        img_small=small,
        img_large=large,
        explorer_url=style.link(facts, style.account),
    )


def _position(position: ValuedPosition, facts: ChainFacts, style: _Style) -> PositionDocument:
    """Return the document of a position; with sources only if the options want them."""
    small, large = named_pictures(style.protocol, style.options)
    options = style.options
    return PositionDocument(
        name=clean(position.name),
        value=amounts.text(position.value_usd),
        unlock_at=str(position.unlock_s),
        health_rate=UNSET if position.health is None else amounts.text(position.health),
        vault_address=position.vault,
        pool_address=position.pool,
        supply_assets=_assets(position.supplied, facts, options),
        borrow_assets=_assets(position.borrowed, facts, options),
        reward_assets=_assets(position.rewards, facts, options),
        img_small=small,
        img_large=large,
        explorer_url=style.link(facts, position.vault or position.pool),
        sources=_position_sources(position) if options.sources else UNSET,
        earned=tuple(map(_earning, position.earned)) or UNSET,
        shares={f"{facts.key}:{clean(share.shown_contract)}": str(raw) for share, raw in position.shares} or UNSET,
    )


def _earning(reward: EpochReward) -> EarningDocument:
    """Return the document of an epoch's reward; numbers that were not read are unknown."""

    def text_or_unknown(number: int | None) -> str:
        return UNKNOWN if number is None else str(number)

    amount = UNKNOWN if reward.raw is None else amounts.text(amounts.amount(reward.raw, reward.decimals))
    return EarningDocument(
        str(reward.epoch),
        amount,
        text_or_unknown(reward.height),
        text_or_unknown(reward.time_s),
        text_or_unknown(reward.commission),
    )


def _assets(parts: Iterable[ValuedHolding], facts: ChainFacts, options: Options) -> tuple[AssetDocument, ...]:
    return tuple(_asset(valued, facts, options) for valued in sorted(parts, key=_asset_key))


_AssetKey = tuple[bool, bool, Decimal, str, str, int, str, str]


def _asset_key(valued: ValuedHolding) -> _AssetKey:
    """Return the sort key of assets: by value from the largest, then unpriced ones, then spam.

    Ties are ordered by contract. The remaining fields make the order unique.
    """
    token = valued.holding.token
    value_usd = amounts.ZERO if valued.value_usd is None else valued.value_usd.copy_negate()
    contract = token.asset.shown_contract
    last = valued.spam is not None, valued.value_usd is None
    return *last, value_usd, contract, str(token.asset), valued.holding.raw, token.symbol, token.name


def _position_key(position: ValuedPosition) -> tuple[Decimal, str, int, list[list[_AssetKey]]]:
    """Return the sort key: falling value, then name, unlock time and assets."""
    parts = (position.supplied, position.borrowed, position.rewards)
    return (
        position.value_usd.copy_negate(),
        position.name,
        position.unlock_s,
        [sorted(map(_asset_key, p)) for p in parts],
    )


def _asset(valued: ValuedHolding, facts: ChainFacts, options: Options) -> AssetDocument:
    """Return the document of a holding; amount, price and value are `N/A` if unknown."""
    token, price = valued.holding.token, valued.price
    contract = clean(token.asset.shown_contract)
    small, large = token_pictures(facts, token.asset, token.symbol, options)
    return AssetDocument(
        symbol=clean(token.symbol).lower(),
        name=clean(token.name).lower(),
        contract=contract,
        chain_key=facts.key,
        chain_contract=f"{facts.key}:{contract}",
        balance=UNKNOWN if valued.amount is None else amounts.text(valued.amount),
        price=UNKNOWN if price is None else amounts.text(price.usd),
        value=UNKNOWN if valued.value_usd is None else amounts.text(valued.value_usd),
        decimal=UNKNOWN if valued.amount is None or token.decimals is None else str(token.decimals),
        price_source=UNKNOWN if price is None else clean(price.source),
        img_small=small,
        img_large=large,
        explorer_url=asset_page(facts, "" if token.asset.is_native else contract, valued.holding.account, options),
        sources=_sources(valued, facts) if options.sources else UNSET,
        spam=UNSET if valued.spam is None else SpamDocument(valued.spam.score, valued.spam.reasons),
    )


def _sources(valued: ValuedHolding, facts: ChainFacts) -> Sources:
    """Return the block, the price and the reads from which a holding's value was computed."""
    price = valued.price
    return Sources(
        block_number=str(valued.block.height),
        block_hash=valued.block.hash,
        raw=str(valued.holding.raw),
        price_source=None if price is None else clean(price.source),
        price_time=None if price is None else iso(price.time_us),
        confidence=None if price is None else amounts.text(price.confidence),
        detail=clean(price.detail) if price is not None and price.detail else None,
        calls=_calls(valued, facts),
    )


def _position_sources(position: ValuedPosition) -> PositionSources | UnsetType:
    if position.block is None:
        return UNSET
    calls = tuple(call_document("position", call) for call in position.calls)
    return PositionSources(str(position.block.height), position.block.hash, calls)


def _calls(valued: ValuedHolding, facts: ChainFacts) -> tuple[CallDocument, ...]:
    """Return the reads behind an asset's numbers.

    Reads of wallet balances are rebuilt, because they are not stored.
    """
    holding = valued.holding
    reads = facts.wallet_reads(holding) if facts.wallet_reads is not None and holding.protocol == WALLET else ()
    prices = valued.price.calls if valued.price is not None else ()
    numbered = [*reads, *(("price", call) for call in prices)]
    return tuple(call_document(number, call) for number, call in numbered)


def call_document(number: str, call: ReadResult) -> CallDocument:
    """Return the document of a read and its result, behind the number of a name."""
    result = call.result if isinstance(call.result, tuple) else (call.result,)
    results = tuple(map(_as_text, result))
    method, to, function, arguments = call.read.label
    return CallDocument(number, method, to, function, tuple(map(_as_text, arguments)), results)


def _as_text(value: object) -> str:
    """Return an argument or a result as text: numbers in decimal, bytes in hex."""
    return f"0x{value.hex()}" if isinstance(value, bytes) else clean(str(value))


def _chain(
    facts: ChainFacts, value_usd: Decimal, share: str, options: Options, heights: tuple[int, int | None] | None
) -> ChainDocument:
    """Return the document of a chain; without heights if `heights` is None."""
    small, large = named_pictures(facts, options)
    height, head = heights or (None, None)
    return ChainDocument(
        name=facts.name,
        key=facts.key,
        chain_id=facts.chain_id,
        value=amounts.text(value_usd),
        value_percentile=share,
        block_number=UNSET if height is None else str(height),
        blocks_behind=UNSET if height is None or head is None else head - height,
        img_small=small,
        img_large=large,
    )


def issue_documents(issues: Sequence[Issue]) -> tuple[IssueDocument, ...]:
    """Return distinct issues as answers show them, sorted, without texts of nodes and contracts."""
    rows = {(clean(issue.adapter), clean(issue.subject), clean(public(issue.reason)), issue.count) for issue in issues}
    return tuple(
        IssueDocument(adapter, subject, reason, count if count > 1 else UNSET)
        for adapter, subject, reason, count in sorted(rows)
    )


def clean(text: str) -> str:
    """Return a text that UTF-8 can encode: surrogate pairs joined, lone surrogates replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def iso(time_us: int) -> str:
    """Return a time in microseconds as ISO 8601 in UTC, with a final Z."""
    return (EPOCH + timedelta(microseconds=time_us)).isoformat().replace("+00:00", "Z")
