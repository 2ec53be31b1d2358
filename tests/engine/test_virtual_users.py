"""Virtual users: exact values of the balances that their owner entered, and reasons of unknown ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio import amounts
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.assets import ZERO_ADDRESS, Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Holding, Issue, Price, QuotedTokens, Snapshot, Token, VirtualHolding, VirtualUser
from chainfolio.engine.service import Engine
from chainfolio.engine.virtual_users import DocumentContext, contracts_to_price, document
from chainfolio.errors import Unavailable
from chainfolio.indexer.wiring import System
from chainfolio.portfolio.document import AssetDocument, Portfolio, encode_one
from chainfolio.portfolio.facts import ChainFacts, Options
from chainfolio.portfolio.merge import merge_users
from chainfolio.settings import Settings

ALICE, BOB = "0x" + "a1" * 20, "0x" + "b0" * 20
USDC, SPAM = "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48", "0x" + "5a" * 20
BLOCK = Block(19_000_000, "0x" + "ab" * 32, "0x" + "cd" * 32, 1_760_000_000_000_000)
ETHER = Token(Asset("eip155:1", "slip44", "60"), "ETH", "Ether", 18)
DOLLAR = Token(Asset("eip155:1", "erc20", USDC), "USDC", "USD Coin", 6)
NOBODY = Token(Asset("eip155:1", "erc20", SPAM), "", "", None)
SHOWN = DocumentContext({"ethereum": ChainFacts("ethereum", "Ethereum", 1)}, {}, Options(), BLOCK.time_us)


def price(token: Token, usd: str) -> Price:
    return Price(token.asset, Decimal(usd), "example", BLOCK.time_us, Decimal(1))


PRICES = {token.asset: price(token, usd) for token, usd in ((ETHER, "2000"), (DOLLAR, "0.9998"))}
REFUSED = Issue("chainlink", str(NOBODY.asset), "stale", makes_partial=False)
QUOTED = {
    "ethereum": QuotedTokens(BLOCK, {token.asset: token for token in (ETHER, DOLLAR, NOBODY)}, PRICES, (REFUSED,))
}


def user(*holdings: VirtualHolding, type: Any = "BALANCE", **more: Any) -> VirtualUser:
    return VirtualUser("7f", type, "Mine", holdings, **more)


def on_chain(amount: str, contract: str = "", chain: str = "ethereum") -> VirtualHolding:
    return VirtualHolding(amount, chain, contract)


def cash(amount: str, usd: str | None = "1.0731", symbol: str = "EUR") -> VirtualHolding:
    return VirtualHolding(amount, symbol=symbol, name="Euro", usd=usd)


def assets(portfolio: Portfolio, protocol: str = "wallet", chain: str = "ethereum") -> tuple[AssetDocument, ...]:
    (kind,) = portfolio.asset_by_protocols[protocol].chains[chain].protocol_positions.values()
    return kind.assets


# --- what is written down --------------------------------------------------------------------------------------------


def test_balances_lie_in_the_wallet_and_their_worth_is_said_twice() -> None:
    portfolio = document(user(on_chain("1.5"), on_chain("100.00", USDC)), QUOTED, SHOWN)
    assert (portfolio.address, portfolio.networth, portfolio.manual_balance_networth) == (
        "virtual:7f",
        "3099.98",
        "3099.98",
    )
    assert [(each.symbol, each.balance, each.price, each.value, each.decimal) for each in assets(portfolio)] == [
        ("eth", "1.5", "2000", "3000", "18"),
        ("usdc", "100", "0.9998", "99.98", "6"),
    ]
    assert (portfolio.completeness, portfolio.issues, portfolio.price_adapters) == ("complete", (), ("example",))
    assert list(portfolio.asset_by_protocols) == ["wallet"]


def test_what_is_written_down_is_worth_no_more_than_its_market_could_pay() -> None:
    thin = {**PRICES, ETHER.asset: replace(PRICES[ETHER.asset], depth_usd=Decimal(500))}
    portfolio = document(user(on_chain("1.5")), {"ethereum": replace(QUOTED["ethereum"], prices=thin)}, SHOWN)
    assert (portfolio.networth, assets(portfolio)[0].price) == ("500", "2000")
    assert "could pay 500 USD at most" in portfolio.issues[0].reason


def test_nothing_came_to_what_is_written_down_and_its_cash_is_what_is_pegged() -> None:
    quoted = {"ethereum": replace(QUOTED["ethereum"], pegged=frozenset({DOLLAR.asset}))}
    holdings = on_chain("1.5"), on_chain("100.00", USDC), cash("50")
    portfolio = document(user(*holdings), quoted, SHOWN)
    assert (portfolio.daily_income, portfolio.daily_expense, portfolio.cash_balance) == ("0", "0", "99.98")
    assert document(user(*holdings, type="CEX"), quoted, SHOWN).cash_balance == "0", "it does not lie in the wallet"


def test_an_exchange_is_a_protocol_of_the_users_name_and_no_manual_balance() -> None:
    portfolio = document(user(on_chain("1"), type="CEX"), QUOTED, SHOWN)
    exchange = portfolio.asset_by_protocols["cex"]
    assert (exchange.name, exchange.value, list(exchange.chains["ethereum"].protocol_positions)) == (
        "Mine",
        "2000",
        ["SPOT"],
    )
    assert (portfolio.networth, portfolio.manual_balance_networth) == ("2000", "0")
    assert portfolio.asset_by_protocols["wallet"].chains == {}


def test_cash_on_no_chain_has_the_price_that_its_owner_fixed() -> None:
    portfolio = document(user(cash("1000.10"), cash("5", None, "XYZ"), type="CEX"), {}, SHOWN)
    euro, xyz = assets(portfolio, "cex", "offchain")
    assert (euro.symbol, euro.name, euro.value, euro.price_source) == ("eur", "euro", "1073.20731", "fixed")
    assert (xyz.balance, xyz.value, xyz.decimal) == ("5", "N/A", "N/A")
    chain = portfolio.chains["offchain"]
    assert (chain.name, chain.chain_id, chain.value, chain.value_percentile) == ("Off chain", 0, "1073.20731", "100")
    assert (portfolio.networth, portfolio.unpriced_assets) == ("1073.20731", 1)


def test_what_nobody_priced_stays_outside_the_sum_with_the_reason() -> None:
    portfolio = document(user(on_chain("1"), on_chain("7", SPAM)), QUOTED, SHOWN)
    assert (portfolio.networth, portfolio.unpriced_assets) == ("2000", 1)
    assert [(issue.adapter, issue.reason) for issue in portfolio.issues] == [("chainlink", "stale")]
    assert portfolio.completeness == "complete"
    assert document(user(on_chain("1")), QUOTED, SHOWN).issues == ()


def test_a_chain_that_cannot_be_read_makes_it_partial_and_no_zero() -> None:
    down = QuotedTokens(
        BLOCK,
        {each.asset: replace(each, decimals=None) for each in (ETHER, DOLLAR)},
        {},
        (Issue("ethereum", "ethereum", "down"),),
    )
    portfolio = document(user(on_chain("1"), on_chain("2", USDC)), {"ethereum": down}, SHOWN)
    assert (portfolio.networth, portfolio.completeness, portfolio.unpriced_assets) == ("0", "partial", 2)
    assert sorted(each.balance or "" for each in assets(portfolio)) == ["1", "2"]
    assert {each.value for each in assets(portfolio)} == {"N/A"}


def test_a_chain_that_is_no_longer_configured_is_an_issue() -> None:
    portfolio = document(user(on_chain("1"), on_chain("5", chain="gone")), QUOTED, SHOWN)
    assert (portfolio.networth, portfolio.completeness) == ("2000", "partial")
    assert [(issue.subject, issue.reason) for issue in portfolio.issues] == [
        (f"gone:{ZERO_ADDRESS}", "No chain gone is configured")
    ]


def test_the_same_thing_written_twice_is_one_and_nothing_is_none() -> None:
    holdings = on_chain("1"), on_chain("0.5", ZERO_ADDRESS), on_chain("0", USDC), on_chain("2", USDC.upper())
    portfolio = document(user(*holdings), QUOTED, SHOWN)
    assert [each.balance for each in assets(portfolio)] == ["1.5", "2"]


@given(st.lists(st.decimals(0, 10**30, places=30).map(lambda value: f"{value:f}"), min_size=1, max_size=5))
def test_worth_is_exact_also_beyond_the_digits_of_the_token(balances: list[str]) -> None:
    portfolio = document(user(*(on_chain(amount, USDC) for amount in balances)), QUOTED, SHOWN)
    total = amounts.total([Decimal(amount) for amount in balances])
    assert Decimal(portfolio.networth) == amounts.value_of(total, Decimal("0.9998"))


def test_every_chain_is_asked_once_for_all_users() -> None:
    users = [
        user(on_chain("1"), on_chain("1", USDC), cash("1")),
        user(on_chain("2", USDC.upper()), on_chain("1", SPAM), on_chain("1", chain="base")),
        VirtualUser("g", "GROUP", "", accounts=(ALICE,)),
    ]
    assert contracts_to_price(users) == {"base": [], "ethereum": sorted([USDC, SPAM])}


def test_several_users_are_one_portfolio_under_their_joined_addresses() -> None:
    balance = document(user(on_chain("1"), cash("10", "1")), QUOTED, SHOWN)
    exchange = document(replace(user(on_chain("2"), type="CEX"), id="8e"), QUOTED, SHOWN)
    merged = merge_users([balance, exchange])
    assert (merged.address, merged.networth, merged.manual_balance_networth) == (
        "virtual:7f,virtual:8e",
        "6010",
        "2010",
    )
    assert {key: each.value for key, each in merged.asset_by_protocols.items()} == {"cex": "4000", "wallet": "2010"}


def test_two_exchanges_are_both_there_by_their_names_and_two_of_one_name_are_one() -> None:
    users = [replace(user(on_chain(str(n)), type="CEX"), id=f"8{n}", label=f"Exchange {n % 3}") for n in (1, 2, 4)]
    merged = merge_users([document(each, QUOTED, SHOWN) for each in users])
    assert merged.networth == "14000"
    assert {key: (each.key, each.name, each.value) for key, each in merged.asset_by_protocols.items()} == {
        "cex:Exchange 1": ("cex:Exchange 1", "Exchange 1", "10000"),
        "cex:Exchange 2": ("cex:Exchange 2", "Exchange 2", "4000"),
        "wallet": ("wallet", "Wallet", "0"),
    }


def test_no_link_names_a_virtual_user() -> None:
    explorer = {kind: f"https://explorer.example/{kind}/{{address}}" for kind in ("address", "token")}
    facts_with_explorer = replace(
        SHOWN,
        chains={"ethereum": ChainFacts("ethereum", "Ethereum", 1, explorer)},
        options=Options(explorer_urls=True),
    )
    portfolio = document(user(on_chain("1"), on_chain("1", USDC), cash("1")), QUOTED, facts_with_explorer)
    assert [each.explorer_url for each in assets(portfolio)] == [
        msgspec.UNSET,
        f"https://explorer.example/token/{USDC}",
    ]
    assert b"virtual" not in encode_one(portfolio).replace(b'"address":"virtual:7f"', b"")


# --- the engine ------------------------------------------------------------------------------------------------------


@dataclass
class Quoting:
    """Stands for the snapshotter of a chain: one ether for every account, and the prices above."""

    failure: Exception | None = None
    reads: list[Any] = field(default_factory=list)
    native: Token = ETHER

    @property
    def book(self) -> Any:
        return self

    def described_at(self, assets: Sequence[Asset], block: Any) -> dict[Asset, Token]:
        return {asset: DOLLAR for asset in assets if asset == DOLLAR.asset}

    async def quote(self, assets: Sequence[Asset]) -> QuotedTokens:
        self.reads.append(tuple(map(str, assets)))
        if self.failure:
            raise self.failure
        return QUOTED["ethereum"]

    async def take(self, accounts: Sequence[str], *, live: bool = False) -> Snapshot:
        self.reads.append(tuple(accounts))
        holdings = tuple(Holding(account, ETHER, 10**18) for account in accounts)
        return Snapshot("ethereum", BLOCK, tuple(accounts), holdings, tuple(PRICES.values()), ())


@pytest.fixture
async def engine(tmp_path: Path) -> Any:
    system = System(Settings(data=str(tmp_path), chains={"ethereum": EvmSettings(rpc=["http://127.0.0.1:1"])}))
    yield Engine(system, _snapshotters={"ethereum": Quoting()})  # type: ignore[dict-item]
    await system.close()


def group(*accounts: str) -> VirtualUser:
    return VirtualUser("g", "GROUP", "Ours", accounts=accounts)


async def test_users_come_back_in_their_order_and_a_group_is_its_accounts(engine: Any) -> None:
    users = [group(ALICE, BOB, ALICE), user(on_chain("1", USDC)), group(BOB)]
    portfolios = await engine.virtual(users, Options(), wait=True)
    assert [(each.address, each.networth) for each in portfolios] == [
        ("virtual:g", "4000"),
        ("virtual:7f", "0.9998"),
        ("virtual:g", "2000"),
    ]
    assert [each.balance for each in assets(portfolios[0])] == ["2"]
    quoting = engine._snapshotters["ethereum"]
    assert sorted(quoting.reads) == sorted([(ALICE,), (BOB,), (str(DOLLAR.asset),)])


async def test_nobody_is_asked_for_users_without_chains(engine: Any) -> None:
    portfolios = await engine.virtual([user(cash("2", "3"))], Options(), wait=False)
    assert [each.networth for each in portfolios] == ["6"]
    assert await engine.virtual([], Options(), wait=False) == []
    assert engine._snapshotters["ethereum"].reads == []


async def test_a_node_that_is_down_makes_balances_partial(engine: Any) -> None:
    engine._snapshotters["ethereum"].failure = Unavailable("node", "timed out")
    (portfolio,) = await engine.virtual(
        [user(on_chain("1"), on_chain("3", USDC), cash("2", "3"))], Options(), wait=True
    )
    assert (portfolio.networth, portfolio.completeness, portfolio.unpriced_assets) == ("6", "partial", 2)
    assert [issue.reason for issue in portfolio.issues] == ["the chain could not be read: timed out"]
    assert sorted((each.symbol, each.balance) for each in assets(portfolio)) == [("eth", "1"), ("usdc", "3")]


async def test_pictures_are_shown_when_asked_for(engine: Any) -> None:
    (portfolio,) = await engine.virtual([user(cash("1"), type="CEX")], Options(images=True, sources=True), wait=True)
    (euro,) = assets(portfolio, "cex", "offchain")
    assert isinstance(euro.img_small, str)
    assert euro.sources is msgspec.UNSET
