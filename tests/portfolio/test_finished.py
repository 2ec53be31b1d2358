"""Final fields of a portfolio: addresses and percentages of assets, and rates of other currencies."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from chainfolio.contracts import Holding, Spam
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.document import AssetDocument, Portfolio, every_asset, rounded, wallet_only
from chainfolio.portfolio.finished import coin_rates, finish
from chainfolio.portfolio.valuation import valuate
from tests.portfolio.examples import ALICE, CHAINS, erc20, native, price, snapshot
from tests.portfolio.test_document import lending

COINS = {f"{key}:{native(key).asset.shown_contract}": "ETH" for key in ("ethereum", "base")}


def document() -> Portfolio:
    """Return a portfolio with one ether of 2,000 USD, 1,000 unpriced USDC, and a net loan of 600."""
    read = snapshot(Holding(ALICE, native(), 10**18), Holding(ALICE, erc20(), 10**9), prices=(price(native(), "2000"),))
    positions = (lending(),)
    return portfolio(ALICE, replace(valuate([read]), positions=positions), CHAINS, updated_ms=0)


def assets(document: Portfolio) -> dict[tuple[str, str], AssetDocument]:
    """The assets of a portfolio by symbol and value."""
    chains = (chain for protocol in document.asset_by_protocols.values() for chain in protocol.chains.values())
    return {(each.symbol, each.value): each for chain in chains for each in every_asset(chain)}


def test_each_asset_has_its_address_and_its_percentage_of_the_net_worth() -> None:
    finished = finish(document())
    assert finished.networth == "2600"
    by_key = assets(finished)
    assert {key: each.percentage for key, each in by_key.items()} == {
        ("eth", "2000"): "76.9231",
        ("usdc", "N/A"): "N/A",
        ("weth", "1000"): "38.4615",
        ("usdc", "400"): "15.3846",
    }
    assert all(each.address == each.contract for each in by_key.values())


@given(st.decimals(0, 10**30, places=18), st.decimals("0.000001", 10**30, places=6))
@example(Decimal("0.0000005"), Decimal(1))
@example(Decimal("0.0000015"), Decimal(1))
def test_a_percentage_is_rounded_half_to_even_from_the_exact_share(usd: Decimal, networth: Decimal) -> None:
    original = document()
    wallet = original.asset_by_protocols["wallet"]
    kinds = wallet.chains["ethereum"].protocol_positions
    sized_asset = msgspec.structs.replace(kinds["WALLET"].assets[0], value=f"{usd:f}")
    kinds["WALLET"] = msgspec.structs.replace(kinds["WALLET"], assets=(sized_asset,))
    finished = finish(
        msgspec.structs.replace(original, networth=f"{networth:f}", asset_by_protocols={"wallet": wallet})
    )
    (asset,) = assets(finished).values()
    assert Decimal(str(asset.percentage)) == rounded(Fraction(usd) * 100 / Fraction(networth), 4)


def test_the_percentages_of_a_wallet_are_those_of_its_own_net_worth() -> None:
    assert assets(finish(wallet_only(finish(document()))))["eth", "2000"].percentage == "100"


def test_spam_and_what_has_no_net_worth_beside_it_have_a_percentage_of_zero() -> None:
    read = snapshot(Holding(ALICE, native(), 10**18), prices=(price(native(), "2000"),))
    spam = replace(read, spam={(ALICE, native().asset): Spam(90, ("LURE",))})
    (spam_asset,) = assets(finish(portfolio(ALICE, valuate([spam]), CHAINS, updated_ms=0))).values()
    assert spam_asset.percentage == "0"


def test_rates_are_written_exactly_and_stay_if_none_are_given() -> None:
    finished = finish(document(), {"GBP": Decimal("0.790123456789012345"), "ETH": Decimal("2E+3")})
    assert finished.conversion_rates == {"ETH": "2000", "GBP": "0.790123456789012345"}
    assert finish(finished).conversion_rates == finished.conversion_rates
    assert finish(finished, {}).conversion_rates == {}


def test_a_coin_that_is_held_has_the_mean_of_its_prices_by_amount() -> None:
    read = [
        snapshot(Holding(ALICE, native(key), raw), prices=(price(native(key), usd),), chain=key)
        for key, raw, usd in (("ethereum", 10**18, "2000"), ("base", 3 * 10**18, "2004"))
    ]
    document = portfolio(ALICE, valuate(read), CHAINS, updated_ms=0)
    assert coin_rates(document, COINS) == {"ETH": Decimal(2003)}
    assert coin_rates(document, {}) == {}
    assert coin_rates(portfolio(ALICE, valuate([snapshot()]), CHAINS, updated_ms=0), COINS) == {}


def test_every_list_that_clients_read_is_there() -> None:
    (position,) = (
        nested
        for chain in finish(document()).asset_by_protocols["aave3"].chains.values()
        for nested in chain.protocol_positions["LENDING"].protocol_positions
    )
    fields = msgspec.to_builtins(position)
    for name in ("marginAssets", "baseAssets", "quoteAssets", "collateralizeNFTAssets", "dexAssets", "assets"):
        assert list(fields[name]) == []
