"""What markets could pay for all that wallets own, as gains limit it."""

from __future__ import annotations

from decimal import Decimal

from chainfolio.engine.gains.pnl import market_values
from chainfolio.portfolio.document import (
    AssetDocument,
    Portfolio,
    PositionsDocument,
    ProtocolChainDocument,
    ProtocolDocument,
)


def asset(contract: str, balance: int, value: int) -> AssetDocument:
    """Return an asset with a price of 1 USD and a value that its market may limit."""
    return AssetDocument(
        symbol=contract,
        name=contract,
        contract=contract,
        chain_key="chain",
        chain_contract=f"chain:{contract}",
        balance=str(balance),
        price="1",
        value=str(value),
        decimal="0",
    )


def portfolio(*parts: AssetDocument) -> Portfolio:
    """Return a portfolio whose assets are in the wallet and in a protocol, one after another."""
    protocols = {
        key: ProtocolDocument(
            name=key,
            key=key,
            value="0",
            chains={
                "chain": ProtocolChainDocument(
                    name="Chain",
                    key="chain",
                    value="0",
                    protocol_positions={"x": PositionsDocument(name="x", total_value="0", assets=each)},
                )
            },
        )
        for key, each in (("wallet", parts[:1]), ("farm", parts[1:]))
    }
    return Portfolio(
        address="0x1",
        networth="0",
        last_updated="0",
        asset_by_protocols=protocols,
        chains={},
        completeness="complete",
        issues=(),
        unpriced_assets=0,
        price_adapters=(),
    )


def test_an_asset_within_its_market_has_no_limit() -> None:
    assert market_values([portfolio(asset("thin", 7, 7))], {}) == {}


def test_all_parts_of_an_asset_are_worth_what_its_market_pays_once() -> None:
    """The market pays 50: all of the loose part, and 20 of the 100 in the protocol."""
    assert market_values([portfolio(asset("thin", 30, 30), asset("thin", 100, 20))], {}) == {"chain:thin": Decimal(50)}


def test_several_wallets_have_one_market_together() -> None:
    wallets = [portfolio(asset("thin", 90, 50)), portfolio(asset("thin", 30, 30)), portfolio(asset("thin", 60, 50))]
    assert market_values(wallets, {}) == {"chain:thin": Decimal(50)}


def test_a_thin_market_does_not_limit_an_asset_that_counts_as_the_same() -> None:
    wallets = [portfolio(asset("coin", 1_000, 1_000), asset("wrapped", 90, 50)), portfolio(asset("coin", 5, 5))]
    assert market_values(wallets, {"chain:wrapped": "chain:coin"}) == {"chain:coin": Decimal(1_055)}
