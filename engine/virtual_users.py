"""Virtual users: portfolios of entered balances, or groups of accounts.

A BALANCE lies in the `wallet`, and its value is also in `manualBalanceNetworth`. The holdings of a CEX lie in the
protocol `cex`, named by the user's label, as `SPOT`. Holdings without a chain lie on the chain `offchain`. A GROUP has
the portfolios of its accounts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

import msgspec

from chainfolio import amounts
from chainfolio.assets import SHOWN_NATIVE, Account, Asset, account
from chainfolio.blocks import Block
from chainfolio.contracts import Holding, Issue, Price, QuotedTokens, Token, VirtualHolding, VirtualUser
from chainfolio.engine.account_support import no_chain_reason
from chainfolio.errors import NotSupported
from chainfolio.portfolio.compose import clean, portfolio
from chainfolio.portfolio.document import WALLET, Portfolio
from chainfolio.portfolio.facts import ChainFacts, Options, ProtocolFacts
from chainfolio.portfolio.valuation import Valuation, ValuedHolding, market_value

OFFCHAIN: Final = "offchain"
NO_CHAIN: Final = "No chain {} is configured"
CEX: Final = "cex"
POSITION_KINDS: Final = {"BALANCE": (WALLET, "WALLET"), "CEX": (CEX, "SPOT")}
NO_ADDRESS: Final = ""  # has no page in explorers
CERTAIN: Final = Decimal(1)


@dataclass(frozen=True, slots=True)
class DocumentContext:
    """Facts and options that a document needs."""

    chains: Mapping[str, ChainFacts]
    protocols: Mapping[str, ProtocolFacts]
    options: Options
    now_us: int


def _contract(holding: VirtualHolding) -> str:
    """Return the contract of a holding's token, as documents show it."""
    return account(holding.contract).address if holding.contract else SHOWN_NATIVE


def read_group(user: VirtualUser) -> tuple[Account, ...]:
    """Return the accounts of a group, each once; empty for users of another type."""
    return tuple(dict.fromkeys(account(text) for text in user.accounts)) if user.type == "GROUP" else ()


def contracts_to_price(users: Iterable[VirtualUser]) -> dict[str, list[str]]:
    """Return the contracts to price, by chain; empty for a chain with holdings of its native coin only."""
    contracts: defaultdict[str, set[str]] = defaultdict(set)
    for user in users:
        for holding in user.holdings:
            if holding.chain:
                contracts[holding.chain] |= {_contract(holding)}
    return {chain: sorted(contracts[chain] - {SHOWN_NATIVE}) for chain in sorted(contracts)}


def unsupported_users(
    users: Iterable[VirtualUser], kinds: Collection[str], chains: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return the reasons why virtual users cannot be read, by address; readable users are left out.

    A user is readable if one account or balance is. Users without accounts and balances count as readable.

    Args:
        kinds: The kinds of the configured chains; accounts of other kinds are not readable.
        chains: The keys of the configured chains; balances on other chains are not readable.
    """
    reasons = {}
    for user in users:
        user_reasons = [no_chain_reason(member.kind) for member in read_group(user) if member.kind not in kinds]
        user_reasons += [
            NO_CHAIN.format(each.chain) for each in user.holdings if each.chain and each.chain not in chains
        ]
        if user_reasons and len(user_reasons) == len(read_group(user)) + len(user.holdings):
            reasons[user.address] = tuple(dict.fromkeys(user_reasons))
    return reasons


def check_supported(users: Sequence[VirtualUser], kinds: Collection[str], chains: Collection[str]) -> None:
    """Raise NotSupported if no virtual user can be read, see `unsupported_users`."""
    by_address = unsupported_users(users, kinds, chains)
    if by_address and len(by_address) == len(users):
        reasons = dict.fromkeys(reason for texts in by_address.values() for reason in texts)
        remedy = "the operator adds such a chain to the settings"
        raise NotSupported(f"the portfolio of {', '.join(by_address)}", "; ".join(reasons), remedy=remedy)


def document(user: VirtualUser, quoted: Mapping[str, QuotedTokens], context: DocumentContext) -> Portfolio:
    """Return the portfolio of a BALANCE or a CEX.

    A holding on a chain without quotes is an issue, and in no sum. Amounts of 0 are left out. Daily income, expense and
    fees are "0"; only the net worth of a BALANCE counts as entered by hand.
    """
    parts: list[ValuedHolding] = []
    issues: list[Issue] = []
    for holding, amount in _distinct(user.holdings):
        if holding.chain and holding.chain not in quoted:
            subject = f"{holding.chain}:{_contract(holding)}"
            issues.append(Issue("virtual", subject, NO_CHAIN.format(holding.chain)))
        elif amount:
            on_chain = quoted.get(holding.chain)
            parts.append(
                _on_chain(user, holding, amount, on_chain) if on_chain else _off(user, holding, amount, context)
            )
    issues += _issues(parts, quoted)
    scope = tuple(sorted({part.chain for part in parts}))
    valuation = Valuation(tuple(parts), scope={NO_ADDRESS: scope}, unread={NO_ADDRESS: tuple(issues)})
    result = portfolio(
        NO_ADDRESS,
        valuation,
        {**context.chains, OFFCHAIN: ChainFacts(OFFCHAIN, "Off chain", 0)},
        updated_ms=context.now_us // 1000,
        options=replace(context.options, sources=False),
        protocols={**context.protocols, CEX: ProtocolFacts(CEX, clean(user.label) or "Exchange")},
    )
    manual = result.networth if user.type == "BALANCE" else "0"
    # Balances that a user entered have no transactions.
    zeros = dict.fromkeys(("daily_income", "daily_expense", "fees", "fees_fiat"), "0")
    return msgspec.structs.replace(result, address=user.address, manual_balance_networth=manual, **zeros)


def _distinct(holdings: Iterable[VirtualHolding]) -> list[tuple[VirtualHolding, Decimal]]:
    """Return each distinct holding once (its `amount` empty), with the sum of its amounts."""
    amounts_by_holding: defaultdict[VirtualHolding, list[Decimal]] = defaultdict(list)
    for holding in holdings:
        contract = _contract(holding) if holding.chain else ""
        amounts_by_holding[replace(holding, amount="", contract=contract)].append(amounts.parse(holding.amount))
    return [(holding, amounts.total(parts)) for holding, parts in amounts_by_holding.items()]


def _on_chain(user: VirtualUser, holding: VirtualHolding, amount: Decimal, quoted: QuotedTokens) -> ValuedHolding:
    token = next(token for asset, token in quoted.tokens.items() if asset.shown_contract == holding.contract)
    part = _valued(user, token, holding.chain, quoted.block, amount, quoted.prices.get(token.asset))
    return replace(part, is_pegged=token.asset in quoted.pegged)


def _off(user: VirtualUser, holding: VirtualHolding, amount: Decimal, context: DocumentContext) -> ValuedHolding:
    """Return a holding that is on no chain, at the price that its user gave, or without one."""
    token = Token(Asset(OFFCHAIN, "symbol", holding.symbol), holding.symbol, holding.name or holding.symbol, None)
    price = None
    if holding.usd is not None:
        price = Price(token.asset, amounts.parse(holding.usd), "fixed", context.now_us, CERTAIN)
    return _valued(user, token, OFFCHAIN, Block(0, "", "", context.now_us), amount, price)


def _valued(
    user: VirtualUser, token: Token, chain: str, block: Block, amount: Decimal, price: Price | None
) -> ValuedHolding:
    """Return a valued holding with the entered amount, all its digits included: it has no raw amount."""
    protocol, position = POSITION_KINDS[user.type]
    holding = Holding(NO_ADDRESS, token, 0, protocol, position)
    if price is None:
        return ValuedHolding(holding, chain, block, amount, None, None)
    value_usd, full_usd = market_value(amount, price), amounts.value_of(amount, price.usd)
    beyond_usd = full_usd if full_usd > value_usd else None
    return ValuedHolding(holding, chain, block, amount, price, value_usd, uncapped_usd=beyond_usd)


def _issues(parts: Sequence[ValuedHolding], quoted: Mapping[str, QuotedTokens]) -> list[Issue]:
    """Return the issues of these holdings' chains, and the reasons for missing prices of their assets."""
    assets = {str(part.holding.token.asset) for part in parts}
    chains = sorted({part.chain for part in parts} & quoted.keys())
    return [
        issue for chain in chains for issue in quoted[chain].issues if issue.makes_partial or issue.subject in assets
    ]
