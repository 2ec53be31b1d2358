"""Cost, open and closed gain at every level of a portfolio are the sums of the level below, whatever is held where."""

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
PRICES = {"ETH": "2000", "USDC": "1.01"}  # nobody prices DAI
Places = dict[tuple[str, str], int]


def whole(parts: Iterable[str]) -> str:
    """The sum as a document has it: unknown where a part is."""
    found = list(parts)
    return UNKNOWN if UNKNOWN in found else text(total([Decimal(part) for part in found]))


def counted(assets: Iterable[AssetDocument]) -> Iterator[AssetDocument]:
    return (asset for asset in assets if asset.value != UNKNOWN)


def parts_of(position: PositionDocument) -> list[AssetDocument]:
    groups = (position.assets, position.supply_assets, position.dex_assets, position.reward_assets)
    return [asset for group in groups for asset in counted(group)]


def check(document: Portfolio) -> None:
    """Every level against the one below it."""
    protocols = document.asset_by_protocols.values()
    for protocol in protocols:
        for chain in protocol.chains.values():
            for kind in chain.protocol_positions.values():
                loose = list(counted(kind.assets))
                for nested in kind.protocol_positions:
                    if not nested.borrow_assets:
                        assert nested.total_cost_basis == whole(each.total_cost_basis for each in parts_of(nested))
                        assert nested.total_open_pnl == whole(each.open_pnl for each in parts_of(nested))
                nested_costs = [each.total_cost_basis for each in kind.protocol_positions]
                nested_gains = [each.total_open_pnl for each in kind.protocol_positions]
                assert kind.total_cost_basis == whole([*(each.total_cost_basis for each in loose), *nested_costs])
                assert kind.total_open_pnl == whole([*(each.open_pnl for each in loose), *nested_gains])
            kinds = chain.protocol_positions.values()
            assert chain.total_cost_basis == whole(each.total_cost_basis for each in kinds)
            assert chain.total_open_pnl == whole(each.total_open_pnl for each in kinds)
        assert protocol.total_cost_basis == whole(each.total_cost_basis for each in protocol.chains.values())
        assert protocol.total_open_pnl == whole(each.total_open_pnl for each in protocol.chains.values())
        if protocol.key == "wallet":
            assert protocol.total_closed_pnl == whole(each.total_closed_pnl for each in protocol.chains.values())
    for key, summary in document.chains.items():
        here = [protocol.chains[key] for protocol in protocols if key in protocol.chains]
        assert summary.total_cost_basis == whole(each.total_cost_basis for each in here)
        assert summary.total_open_pnl == whole(each.total_open_pnl for each in here)
    assert document.total_cost_basis == whole(each.total_cost_basis for each in protocols)
    assert document.open_pnl == whole(each.total_open_pnl for each in protocols)
    assert document.total_cost_basis == whole(each.total_cost_basis for each in document.chains.values())
    assert document.closed_pnl == whole(each.total_closed_pnl for each in document.chains.values())
    wallet = document.asset_by_protocols["wallet"]
    assert wallet.total_closed_pnl == document.closed_pnl
    for key, place in wallet.chains.items():
        kind = place.protocol_positions["WALLET"]
        assert kind.total_closed_pnl == place.total_closed_pnl == document.chains[key].total_closed_pnl


def held(places: Places, inside: Places, costs: dict[tuple[str, str], int | None]) -> dict[str, RemainingLots]:
    found = {}
    for place in {*places, *inside}:
        key = f"{place[0]}:{TOKENS[place].asset.shown_contract}"
        cost, raw = costs.get(place), places.get(place, 0) + inside.get(place, 0)
        found[key] = RemainingLots(
            key, "", raw, cost, "" if cost is not None else "unknown", deposited=inside.get(place, 0)
        )
    return found


def _valued(chain: str, side: Places) -> tuple[ValuedHolding, ...]:
    return tuple(
        value_holding(
            Holding(ALICE, TOKENS[place], raw, "aave3", "LENDING"),
            chain,
            BLOCK,
            price(TOKENS[place], PRICES[place[1]]) if place[1] in PRICES else None,
        )
        for place, raw in side.items()
        if place[0] == chain
    )


def document(places: Places, inside: Places, owed: Places) -> Portfolio:
    """Both chains; what is deposited lies in one position for each chain, beside what is owed there."""
    snapshots, positions = [], []
    for chain in ("ethereum", "base"):
        here = [(place, raw) for place, raw in places.items() if place[0] == chain]
        prices = tuple(price(TOKENS[chain, symbol], usd) for symbol, usd in PRICES.items())
        holdings = [Holding(ALICE, TOKENS[place], raw) for place, raw in here]
        snapshots.append(snapshot(*holdings, prices=prices, chain=chain))
        supplied, borrowed = (_valued(chain, side) for side in (inside, owed))
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
    places: Places,
    inside: Places,
    owed: Places,
    costs: dict[tuple[str, str], int | None],
    gains: dict[tuple[str, str], int | None],
) -> None:
    closed = {f"{place[0]}:{TOKENS[place].asset.shown_contract}": gain for place, gain in gains.items()}
    known = AccountGains(held(places, inside, costs), closed)
    check(with_gains(document(places, inside, owed), known))
