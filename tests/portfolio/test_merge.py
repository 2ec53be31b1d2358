"""Several portfolios as one: exact, in any order, and silent about nothing."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainfolio import amounts
from chainfolio.amounts import MAX_RAW
from chainfolio.contracts import Holding, Issue
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.document import AssetDocument, Portfolio, encode_one, every_asset
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.finished import finish
from chainfolio.portfolio.merge import merge
from chainfolio.portfolio.pnl.in_portfolio import with_gains
from chainfolio.portfolio.valuation import ValuedHolding, ValuedPosition, valuate, value_holding
from tests.portfolio.examples import ALICE, BLOCK, BOB, CHAINS, USDC, erc20, native, price, snapshot
from tests.portfolio.test_pnl_in_portfolio import document as priced_document
from tests.portfolio.test_pnl_in_portfolio import lots, position

ADDRESSES = [f"0x{n:040x}" for n in (1, 2, 3)]
RAWS = st.one_of(st.integers(1, MAX_RAW), st.integers(1, 10**9))
USD = st.none() | st.decimals(Decimal("1E-18"), 10**6, places=18).map(str)
TOKENS = st.sampled_from([("ethereum", None), ("base", None), *(("ethereum", each) for each in ADDRESSES)])


@st.composite
def documents(draw: st.DrawFn) -> Portfolio:
    """A portfolio of loose tokens on two chains and of lending positions that have a name each."""
    wallet = draw(st.dictionaries(TOKENS, st.tuples(RAWS, USD), max_size=4))
    loose: dict[str, list[Any]] = {"ethereum": [], "base": []}
    prices: dict[str, list[Any]] = {"ethereum": [], "base": []}
    for (chain, contract), (raw, usd) in wallet.items():
        token = native(chain) if contract is None else erc20(contract, draw(st.sampled_from([6, None])))
        loose[chain].append(Holding(ALICE, token, raw))
        prices[chain] += [price(token, usd)] if usd else []
    issues = draw(st.lists(st.sampled_from([Issue("a", "b", "c"), Issue("a", "b", "d", makes_partial=False)])))
    snapshots = [
        snapshot(*loose[chain], prices=tuple(prices[chain]), chain=chain, issues=tuple(issues)) for chain in loose
    ]
    names = draw(st.sets(st.sampled_from("xyz"), max_size=2))
    positions = [lent(name, draw(RAWS), draw(RAWS)) for name in sorted(names)]
    updated_ms = draw(st.integers(0, 10**13))
    rates = draw(st.dictionaries(st.sampled_from(["ETH", "SOL"]), st.integers(1, 9).map(Decimal)))
    options = Options(images=True, explorer_urls=True, sources=True)
    valuation = replace(valuate(snapshots), positions=tuple(positions))
    return finish(portfolio(ALICE, valuation, CHAINS, updated_ms=updated_ms, options=options), rates)


def lent(name: str, supplied: int, borrowed: int) -> ValuedPosition:
    def part(raw: int) -> tuple[ValuedHolding, ...]:
        return (value_holding(Holding(ALICE, erc20(), raw), "ethereum", BLOCK, price(erc20(), "1.000000000000000001")),)

    return ValuedPosition(ALICE, "ethereum", "aave3", "LENDING", name, supplied=part(supplied), borrowed=part(borrowed))


def read_all(document: Portfolio) -> list[AssetDocument]:
    return [
        asset
        for protocol in document.asset_by_protocols.values()
        for chain in protocol.chains.values()
        for asset in every_asset(chain)
    ]


def exact(texts: list[str]) -> Decimal:
    return amounts.total([Decimal(text) for text in texts])


portfolio_lists = st.lists(documents(), min_size=1, max_size=4)


@given(documents())
def test_a_merge_of_one_is_itself(document: Portfolio) -> None:
    assert encode_one(merge([document], ALICE)) == encode_one(document)


@given(portfolio_lists)
@settings(max_examples=50)
def test_every_level_is_the_exact_sum_of_the_parts_and_of_what_is_in_it(parts: list[Portfolio]) -> None:
    merged = merge(parts, "all")
    assert Decimal(merged.networth) == exact([part.networth for part in parts])
    assert Decimal(merged.networth) == exact([chain.value for chain in merged.chains.values()])
    assert Decimal(merged.networth) == exact([each.value for each in merged.asset_by_protocols.values()])
    for protocol in merged.asset_by_protocols.values():
        assert Decimal(protocol.value) == exact([chain.value for chain in protocol.chains.values()])
        for chain in protocol.chains.values():
            kinds = chain.protocol_positions.values()
            assert Decimal(chain.value) == exact([kind.total_value for kind in kinds])
            for kind in kinds:
                loose = [asset.value for asset in kind.assets if asset.value != "N/A"]
                nested = [position.value for position in kind.protocol_positions]
                assert Decimal(kind.total_value) == exact([*loose, *nested])


@given(portfolio_lists)
@settings(max_examples=50)
def test_no_balance_is_lost_and_none_is_there_twice(parts: list[Portfolio]) -> None:
    def balances_of(documents: list[Portfolio]) -> dict[tuple[str, bool], Decimal]:
        balances: dict[tuple[str, bool], Decimal] = {}
        for asset in (asset for document in documents for asset in read_all(document)):
            key = asset.chain_contract, asset.value == "N/A"
            balances[key] = amounts.total(
                [balances.get(key, Decimal(0)), Decimal("0" if asset.balance == "N/A" else asset.balance)]
            )
        return balances

    assert balances_of([merge(parts, "all")]) == balances_of(parts)
    for chain in merge(parts, "all").asset_by_protocols["wallet"].chains.values():
        rows = [
            (each.chain_contract, each.decimal, each.value == "N/A")
            for each in chain.protocol_positions["WALLET"].assets
        ]
        assert len(rows) == len(set(rows))


@given(portfolio_lists, st.randoms())
@settings(max_examples=50)
def test_the_order_of_the_parts_changes_nothing(parts: list[Portfolio], random: Any) -> None:
    shuffled = random.sample(parts, len(parts))
    assert encode_one(merge(shuffled, "all")) == encode_one(merge(parts, "all"))


@given(portfolio_lists)
@settings(max_examples=50)
def test_what_is_not_known_of_a_part_is_not_known_of_the_whole(parts: list[Portfolio]) -> None:
    merged = merge(parts, "all")
    assert (merged.completeness == "partial") is any(part.completeness == "partial" for part in parts)
    assert set(merged.issues) == {issue for part in parts for issue in part.issues}
    assert merged.unpriced_assets == sum(asset.value == "N/A" for asset in read_all(merged))
    assert int(merged.last_updated) == min(int(part.last_updated) for part in parts)
    assert set(merged.price_adapters) == {adapter for part in parts for adapter in part.price_adapters}


def document_of(*holdings: Holding, usd: str = "2", at_ms: int = 0, address: str = ALICE, **more: Any) -> Portfolio:
    prices = tuple(price(holding.token, usd) for holding in holdings)
    own_holdings = [replace(holding, account=address) for holding in holdings]
    valuation = valuate([snapshot(*own_holdings, prices=prices, accounts=(address,))])
    return portfolio(address, valuation, CHAINS, updated_ms=at_ms, **more)


def loose(document: Portfolio) -> tuple[AssetDocument, ...]:
    return document.asset_by_protocols["wallet"].chains["ethereum"].protocol_positions["WALLET"].assets


def test_equal_assets_at_other_prices_show_the_mean_that_their_sums_have() -> None:
    ether = Holding(ALICE, native(), 10**18)
    merged = merge([document_of(ether, usd="2"), document_of(replace(ether, raw=2 * 10**18), usd="5")], "all")
    (asset,) = loose(merged)
    assert (asset.balance, asset.value, asset.price) == ("3", "12", "4")
    merged = merge([document_of(ether, usd="1"), document_of(replace(ether, raw=2 * 10**18), usd="2")], "all")
    (asset,) = loose(merged)
    assert (asset.value, asset.price) == ("5", "1.666666666666666667")
    assert abs(Fraction(str(asset.price)) - Fraction(5, 3)) < Fraction(1, 10**18)


def test_what_nobody_priced_stays_beside_what_is_priced() -> None:
    priced, unpriced = (
        document_of(Holding(ALICE, native(), 10**18)),
        document_of(Holding(ALICE, native(), 10**18), usd="0"),
    )
    merged = merge([priced, unpriced], "all")
    assert [(asset.balance, asset.value) for asset in loose(merged)] == [("1", "2"), ("1", "N/A")]
    assert (merged.networth, merged.unpriced_assets) == ("2", 1)


def test_nested_positions_stay_apart() -> None:
    parts = [
        portfolio(ALICE, replace(valuate([snapshot()]), positions=(lent("Main", raw, 1),)), CHAINS, updated_ms=0)
        for raw in (1001, 2001)
    ]
    kind = merge(parts, "all").asset_by_protocols["aave3"].chains["ethereum"].protocol_positions["LENDING"]
    assert [position.name for position in kind.protocol_positions] == ["Main", "Main"]
    assert Decimal(kind.protocol_positions[0].value) > Decimal(kind.protocol_positions[1].value)


def test_shares_are_of_the_whole() -> None:
    parts = [document_of(Holding(ALICE, native(), 10**18), usd="3")]
    ether = native("base")
    base_snapshot = snapshot(Holding(ALICE, ether, 10**18), prices=(price(ether, "1"),), chain="base")
    parts.append(portfolio(ALICE, valuate([base_snapshot]), CHAINS, updated_ms=0))
    shares = {key: chain.value_percentile for key, chain in merge(parts, "all").chains.items()}
    assert shares == {"base": "25", "ethereum": "75"}


def test_links_and_lineage_that_differ_are_left_out_and_others_stay() -> None:
    options = Options(images=True, explorer_urls=True, sources=True)
    holdings = Holding(ALICE, native(), 3), Holding(ALICE, erc20(), 5)
    merged = merge(
        [document_of(*holdings, options=options), document_of(*holdings, address=BOB, options=options)], "all"
    )
    ether, usdc = sorted(loose(merged), key=lambda asset: asset.contract)
    assert ether.explorer_url is msgspec.UNSET
    assert usdc.explorer_url == f"https://etherscan.io/token/{USDC}"
    assert isinstance(ether.img_small, str)
    assert not isinstance(usdc.sources, msgspec.UnsetType)
    assert usdc.sources.raw == "10"
    assert [(call.arguments, call.result) for call in usdc.sources.calls if call.number == "balance"] == [
        ((ALICE,), ("5",)),
        ((BOB,), ("5",)),
    ]
    assert [call.number for call in usdc.sources.calls].count("decimal") == 1


@pytest.mark.parametrize(("first", "second", "both"), [("1.5", "2", "3.5"), ("N/A", "2", "N/A"), ("N/A", "N/A", "N/A")])
def test_a_sum_with_an_unknown_part_is_unknown(first: str, second: str, both: str) -> None:
    parts = [
        msgspec.structs.replace(document_of(), open_pnl=pnl, fees=fee) for pnl, fee in ((first, "7"), (second, "8"))
    ]
    merged = merge(parts, "all")
    assert (merged.open_pnl, merged.fees) == (both, "15")


@pytest.mark.parametrize(("first", "second", "both"), [("1.5", "2", "3.5"), ("N/A", "2", "N/A"), ("N/A", "N/A", "N/A")])
def test_the_day_of_several_is_the_sum_of_theirs_and_unknown_where_one_is(first: str, second: str, both: str) -> None:
    parts = [
        msgspec.structs.replace(document_of(), daily_income=each, daily_expense=each, cash_balance="2.25")
        for each in (first, second)
    ]
    merged = merge(parts, ALICE)
    assert (merged.daily_income, merged.daily_expense, merged.cash_balance) == (both, both, "4.5")


def test_fees_of_several_chains_may_be_in_several_coins_and_are_not_added_up() -> None:
    on_ethereum, on_base = (
        document_of(),
        msgspec.structs.replace(document_of(), chains={"base": next(iter(document_of().chains.values()))}),
    )
    for fees, expected in ((("7", "8"), "N/A"), (("7", "0"), "7"), (("N/A", "0"), "N/A"), (("0", "0"), "0")):
        parts = [
            msgspec.structs.replace(part, fees=fee) for part, fee in zip((on_ethereum, on_base), fees, strict=True)
        ]
        assert merge(parts, "all").fees == expected


def test_rates_are_those_of_the_newest_part() -> None:
    parts = [finish(document_of(at_ms=at), {"ETH": Decimal(usd)}) for at, usd in ((5, 1), (9, 3), (7, 2))]
    assert merge(parts, "all").conversion_rates == {"ETH": "3"}


def test_gains_of_every_level_are_the_sums_of_the_parts() -> None:
    gained = [
        with_gains(
            priced_document({"ETH": 10**18, "USDC": dollars * 10**6}, position({"USDC": 4 * 10**6})),
            lots(("ETH", 10**18, "1500"), ("USDC", (dollars + 4) * 10**6, "3", 4 * 10**6), closed={"DAI": "8"}),
        )
        for dollars in (5, 7)
    ]
    whole = merge(gained, "all")

    def sums(part: Any) -> tuple[Decimal, ...]:
        return tuple(Decimal(part[name]) for name in ("totalCostBasis", "totalOpenPnl", "totalClosedPnl"))

    def levels(portfolio: Portfolio) -> dict[str, tuple[Decimal, ...]]:
        shown = msgspec.json.decode(encode_one(portfolio))
        result = {key: sums(chain) for key, chain in shown["chains"].items()}
        for name, protocol in shown["assetByProtocols"].items():
            result[name] = sums(protocol) if name == "wallet" else sums({**protocol, "totalClosedPnl": "0"})
            for key, chain in protocol["chains"].items():
                kinds = {f"{name} {key}": chain, **chain["protocolPositions"]}
                result |= {label: sums({**each, "totalClosedPnl": "0"}) for label, each in kinds.items()}
        return result

    one, other = map(levels, gained)
    assert levels(whole) == {
        name: tuple(amounts.total([*pair]) for pair in zip(parts, other[name], strict=True))
        for name, parts in one.items()
    }
    assert len(one) == 7
    assert one["ethereum"][2] == 8
