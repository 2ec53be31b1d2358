"""Virtual users: portfolios that their owner wrote down, or made of real ones.

A BALANCE lies in the `wallet`, and its worth is in `manualBalanceNetworth` too. What a CEX holds lies in the protocol
`cex`, named by the user's label, as `SPOT`. What is on no chain lies on one called `offchain`. A GROUP is its accounts.
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
from chainfolio.engine.answerable import no_chain
from chainfolio.errors import NotSupported
from chainfolio.portfolio.compose import clean, portfolio
from chainfolio.portfolio.document import WALLET, Portfolio
from chainfolio.portfolio.facts import ChainFacts, Options, ProtocolFacts
from chainfolio.portfolio.valuation import Valuation, ValuedHolding, market_value

OFFCHAIN: Final = "offchain"
NO_CHAIN: Final = "No chain {} is configured"
CEX: Final = "cex"
PLACES: Final = {"BALANCE": (WALLET, "WALLET"), "CEX": (CEX, "SPOT")}
NOBODY: Final = ""  # whose page no explorer has
CERTAIN: Final = Decimal(1)


@dataclass(frozen=True, slots=True)
class Shown:
    """What documents are made with: chains and protocols, what was asked to be seen, and the time."""

    chains: Mapping[str, ChainFacts]
    protocols: Mapping[str, ProtocolFacts]
    options: Options
    now_us: int


def _contract(holding: VirtualHolding) -> str:
    """Where a holding's token lies, as answers show it."""
    return account(holding.contract).address if holding.contract else SHOWN_NATIVE


def read_group(user: VirtualUser) -> tuple[Account, ...]:
    """The accounts of a group, each once; of another type, none."""
    return tuple(dict.fromkeys(account(written) for written in user.accounts)) if user.type == "GROUP" else ()


def wanted(users: Iterable[VirtualUser]) -> dict[str, list[str]]:
    """The contracts to be priced, by the key of their chain; a chain whose native coin alone is held has none."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for user in users:
        for holding in user.holdings:
            if holding.chain:
                found[holding.chain] |= {_contract(holding)}
    return {chain: sorted(found[chain] - {SHOWN_NATIVE}) for chain in sorted(found)}


def unanswerable(
    users: Iterable[VirtualUser], kinds: Collection[str], chains: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return why nothing of some virtual users can be answered, by address: a group all of whose accounts are of
    `kinds` without a chain, or balances that all lie on other `chains` than the configured ones. Users without accounts
    and balances are not among them."""
    found = {}
    for user in users:
        lacking = [no_chain(member.kind) for member in read_group(user) if member.kind not in kinds]
        lacking += [NO_CHAIN.format(each.chain) for each in user.holdings if each.chain and each.chain not in chains]
        if lacking and len(lacking) == len(read_group(user)) + len(user.holdings):
            found[user.address] = tuple(dict.fromkeys(lacking))
    return found


def check_answerable(users: Sequence[VirtualUser], kinds: Collection[str], chains: Collection[str]) -> None:
    """Raise NotSupported if nothing of any virtual user can be answered, see `unanswerable`."""
    lacking = unanswerable(users, kinds, chains)
    if lacking and len(lacking) == len(users):
        reasons = dict.fromkeys(reason for several in lacking.values() for reason in several)
        remedy = "the operator adds such a chain to the settings"
        raise NotSupported(f"the portfolio of {', '.join(lacking)}", "; ".join(reasons), remedy=remedy)


def document(user: VirtualUser, quoted: Mapping[str, QuotedTokens], shown: Shown) -> Portfolio:
    """The portfolio of a BALANCE or a CEX. What is on a chain that was not quoted is an issue, and in no sum."""
    parts: list[ValuedHolding] = []
    issues: list[Issue] = []
    for holding, amount in _distinct(user.holdings):
        if holding.chain and holding.chain not in quoted:
            subject = f"{holding.chain}:{_contract(holding)}"
            issues.append(Issue("virtual", subject, NO_CHAIN.format(holding.chain)))
        elif amount:
            on_chain = quoted.get(holding.chain)
            parts.append(_on_chain(user, holding, amount, on_chain) if on_chain else _off(user, holding, amount, shown))
    issues += _issues(parts, quoted)
    scope = tuple(sorted({part.chain for part in parts}))
    found = Valuation(tuple(parts), scope={NOBODY: scope}, unread={NOBODY: tuple(issues)})
    made = portfolio(
        NOBODY,
        found,
        {**shown.chains, OFFCHAIN: ChainFacts(OFFCHAIN, "Off chain", 0)},
        updated_ms=shown.now_us // 1000,
        options=replace(shown.options, sources=False),
        protocols={**shown.protocols, CEX: ProtocolFacts(CEX, clean(user.label) or "Exchange")},
    )
    manual = made.networth if user.type == "BALANCE" else "0"
    # What somebody wrote down has sent nothing, and nothing came to it.
    nothing = dict.fromkeys(("daily_income", "daily_expense", "fees", "fees_fiat"), "0")
    return msgspec.structs.replace(made, address=user.address, manual_balance_networth=manual, **nothing)


def _distinct(holdings: Iterable[VirtualHolding]) -> list[tuple[VirtualHolding, Decimal]]:
    """Each thing that is held, once, with all that is held of it."""
    found: defaultdict[VirtualHolding, list[Decimal]] = defaultdict(list)
    for holding in holdings:
        contract = _contract(holding) if holding.chain else ""
        found[replace(holding, amount="", contract=contract)].append(amounts.parse(holding.amount))
    return [(holding, amounts.total(parts)) for holding, parts in found.items()]


def _on_chain(user: VirtualUser, holding: VirtualHolding, amount: Decimal, quoted: QuotedTokens) -> ValuedHolding:
    token = next(token for asset, token in quoted.tokens.items() if asset.shown_contract == holding.contract)
    part = _valued(user, token, holding.chain, quoted.block, amount, quoted.prices.get(token.asset))
    return replace(part, is_pegged=token.asset in quoted.pegged)


def _off(user: VirtualUser, holding: VirtualHolding, amount: Decimal, shown: Shown) -> ValuedHolding:
    token = Token(Asset(OFFCHAIN, "symbol", holding.symbol), holding.symbol, holding.name or holding.symbol, None)
    price = None
    if holding.usd is not None:
        price = Price(token.asset, amounts.parse(holding.usd), "fixed", shown.now_us, CERTAIN)
    return _valued(user, token, OFFCHAIN, Block(0, "", "", shown.now_us), amount, price)


def _valued(
    user: VirtualUser, token: Token, chain: str, block: Block, amount: Decimal, price: Price | None
) -> ValuedHolding:
    """The amount is what its owner wrote, to the last digit, also where the token has fewer: it has no raw."""
    protocol, position = PLACES[user.type]
    holding = Holding(NOBODY, token, 0, protocol, position)
    if price is None:
        return ValuedHolding(holding, chain, block, amount, None, None)
    value_usd, full_usd = market_value(amount, price), amounts.value_of(amount, price.usd)
    beyond_usd = full_usd if full_usd > value_usd else None
    return ValuedHolding(holding, chain, block, amount, price, value_usd, uncapped_usd=beyond_usd)


def _issues(parts: Sequence[ValuedHolding], quoted: Mapping[str, QuotedTokens]) -> list[Issue]:
    """What could not be read of the chains of these parts, and why those of them have no price that have none."""
    held = {str(part.holding.token.asset) for part in parts}
    chains = sorted({part.chain for part in parts} & quoted.keys())
    return [issue for chain in chains for issue in quoted[chain].issues if issue.makes_partial or issue.subject in held]
