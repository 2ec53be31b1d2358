"""Cost, open and closed gain of every level of a portfolio are the sums of the level below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal

from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainfolio.amounts import text, total
from chainfolio.contracts import Holding
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.document import UNKNOWN, AssetDocument, Portfolio, PositionDocument
from chainfolio.portfolio.pnl.entries import money
from chainfolio.portfolio.pnl.gains import RemainingLots
from chainfolio.portfolio.pnl.in_portfolio import AccountGains, with_gains
from chainfolio.portfolio.valuation import ValuedHolding, ValuedPosition, valuate, value_holding
from tests.portfolio.examples import ALICE, BLOCK, CHAINS, erc20, native, price, snapshot

DAI = "0x" + "da" * 20
TOKENS = {
    (chain, symbol): token
    for chain in ("ethereum", "base")
    for symbol, token in (
        ("ETH", native(chain)),
        ("USDC", erc20(chain=chain)),
        ("DAI", erc20(DAI, 18, "DAI", chain)),
    )
}
PRICES = {"ETH": "2000", "USDC": "1.01"}  # DAI has no price
Amounts = dict[tuple[str, str], int]


def sum_of(parts: Iterable[str]) -> str:
    """Return the sum as a document writes it: unknown if a part is unknown."""
    values = list(parts)
    return UNKNOWN if UNKNOWN in values else text(total([Decimal(part) for part in values]))


def valued_assets(assets: Iterable[AssetDocument]) -> Iterator[AssetDocument]:
    return (asset for asset in assets if asset.value != UNKNOWN)


def parts_of(position: PositionDocument) -> list[AssetDocument]:
    groups = (position.assets, position.supply_assets, position.dex_assets, position.reward_assets)
    return [asset for group in groups for asset in valued_assets(group)]


def check(document: Portfolio) -> None:
    """Check every level against the one below it."""
    protocols = document.asset_by_protocols.values()
    for protocol in protocols:
        for chain in protocol.chains.values():
            for kind in chain.protocol_positions.values():
                loose = list(valued_assets(kind.assets))
                for nested in kind.protocol_positions:
                    if not nested.borrow_assets:
                        assert nested.total_cost_basis == sum_of(each.total_cost_basis for each in parts_of(nested))
                        assert nested.total_open_pnl == sum_of(each.open_pnl for each in parts_of(nested))
                nested_costs = [each.total_cost_basis for each in kind.protocol_positions]
                nested_gains = [each.total_open_pnl for each in kind.protocol_positions]
                assert kind.total_cost_basis == sum_of([*(each.total_cost_basis for each in loose), *nested_costs])
                assert kind.total_open_pnl == sum_of([*(each.open_pnl for each in loose), *nested_gains])
            kinds = chain.protocol_positions.values()
            assert chain.total_cost_basis == sum_of(each.total_cost_basis for each in kinds)
            assert chain.total_open_pnl == sum_of(each.total_open_pnl for each in kinds)
        assert protocol.total_cost_basis == sum_of(each.total_cost_basis for each in protocol.chains.values())
        assert protocol.total_open_pnl == sum_of(each.total_open_pnl for each in protocol.chains.values())
        if protocol.key == "wallet":
            assert protocol.total_closed_pnl == sum_of(each.total_closed_pnl for each in protocol.chains.values())
    for key, summary in document.chains.items():
        here = [protocol.chains[key] for protocol in protocols if key in protocol.chains]
        assert summary.total_cost_basis == sum_of(each.total_cost_basis for each in here)
        assert summary.total_open_pnl == sum_of(each.total_open_pnl for each in here)
    assert document.total_cost_basis == sum_of(each.total_cost_basis for each in protocols)
    assert document.open_pnl == sum_of(each.total_open_pnl for each in protocols)
    assert document.total_cost_basis == sum_of(each.total_cost_basis for each in document.chains.values())
    assert document.closed_pnl == sum_of(each.total_closed_pnl for each in document.chains.values())
    wallet = document.asset_by_protocols["wallet"]
    assert wallet.total_closed_pnl == document.closed_pnl
    for key, wallet_chain in wallet.chains.items():
        kind = wallet_chain.protocol_positions["WALLET"]
        assert kind.total_closed_pnl == wallet_chain.total_closed_pnl == document.chains[key].total_closed_pnl


def lots_of(loose: Amounts, deposits: Amounts, costs: dict[tuple[str, str], int | None]) -> dict[str, RemainingLots]:
    lots = {}
    for token_key in {*loose, *deposits}:
        key = f"{token_key[0]}:{TOKENS[token_key].asset.shown_contract}"
        cost, raw = costs.get(token_key), loose.get(token_key, 0) + deposits.get(token_key, 0)
        lots[key] = RemainingLots(
            key, "", raw, cost, "" if cost is not None else "unknown", deposited=deposits.get(token_key, 0)
        )
    return lots


def _valued(chain: str, side: Amounts) -> tuple[ValuedHolding, ...]:
    return tuple(
        value_holding(
            Holding(ALICE, TOKENS[token_key], raw, "aave3", "LENDING"),
            chain,
            BLOCK,
            price(TOKENS[token_key], PRICES[token_key[1]]) if token_key[1] in PRICES else None,
        )
        for token_key, raw in side.items()
        if token_key[0] == chain
    )


def document(loose: Amounts, deposits: Amounts, debts: Amounts) -> Portfolio:
    """Return a portfolio of both chains, with one position per chain for its deposits and debts."""
    snapshots, positions = [], []
    for chain in ("ethereum", "base"):
        here = [(token_key, raw) for token_key, raw in loose.items() if token_key[0] == chain]
        prices = tuple(price(TOKENS[chain, symbol], usd) for symbol, usd in PRICES.items())
        holdings = [Holding(ALICE, TOKENS[token_key], raw) for token_key, raw in here]
        snapshots.append(snapshot(*holdings, prices=prices, chain=chain))
        supplied, borrowed = (_valued(chain, side) for side in (deposits, debts))
        if supplied or borrowed:
            positions.append(ValuedPosition(ALICE, chain, "aave3", "LENDING", "pool", supplied, borrowed))
    return portfolio(ALICE, replace(valuate(snapshots), positions=tuple(positions)), CHAINS, updated_ms=1)


raws = st.dictionaries(st.sampled_from(sorted(TOKENS)), st.integers(1, 10**20), max_size=4)
sums = st.dictionaries(
    st.sampled_from(sorted(TOKENS)), st.one_of(st.none(), st.integers(0, 10**12).map(lambda usd: money(Decimal(usd))))
)


@settings(max_examples=200, deadline=None)
@example({}, {}, {}, {}, {("base", "USDC"): money(Decimal(7)), ("ethereum", "ETH"): money(Decimal(1))})
@given(raws, raws, raws, sums, sums)
def test_every_level_is_the_sum_of_the_one_below(
    loose: Amounts,
    deposits: Amounts,
    debts: Amounts,
    costs: dict[tuple[str, str], int | None],
    gains: dict[tuple[str, str], int | None],
) -> None:
    closed = {f"{token_key[0]}:{TOKENS[token_key].asset.shown_contract}": gain for token_key, gain in gains.items()}
    account = AccountGains(lots_of(loose, deposits, costs), closed)
    check(with_gains(document(loose, deposits, debts), account))
