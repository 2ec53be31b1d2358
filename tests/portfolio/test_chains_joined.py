"""A portfolio joined from one per chain equals the portfolio of all their snapshots."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chainfolio.contracts import DayFlows, Holding, Issue, Snapshot
from chainfolio.portfolio.chains_joined import join_chains
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.document import Portfolio, encode_one
from chainfolio.portfolio.valuation import valuate
from tests.portfolio.examples import ALICE, CHAINS, native, price, snapshot
from tests.portfolio.test_document import HOLDINGS, arranged

COINS: dict[str, tuple[str, int | None]] = dict.fromkeys(CHAINS, ("ETH", 18))
KNOWN = st.dictionaries(st.sampled_from(sorted(CHAINS)), st.integers(0, 10**20))
LACKING = st.dictionaries(st.sampled_from(sorted(CHAINS)), st.booleans())


def portfolio_of(snapshots: Sequence[Snapshot]) -> Portfolio:
    return portfolio(ALICE, valuate(snapshots), CHAINS, updated_ms=1_760_000_000_000)


@given(HOLDINGS, KNOWN, KNOWN, LACKING)
def test_the_portfolios_of_chains_are_joined_to_what_their_snapshots_give_together(
    rows: list[Any], fees: dict[str, int], inflows: dict[str, int], failures: dict[str, bool]
) -> None:
    snapshots = []
    for each in arranged(rows, random.Random(1)):
        coin = native(each.chain)
        snapshots.append(
            replace(
                each,
                prices=(*each.prices, price(coin, "2000", source=f"feed of {each.chain}")),
                fees=(Holding(ALICE, coin, fees[each.chain]),) if each.chain in fees else (),
                day_flows=(DayFlows(ALICE, (Holding(ALICE, coin, inflows[each.chain]),), ()),)
                if each.chain in inflows
                else (),
                issues=(Issue("balance", each.chain, "not read", failures[each.chain]), Issue("a", "b", "c"))
                if each.chain in failures
                else (),
            )
        )
    parts = {each.chain: portfolio_of([each]) for each in snapshots}
    assert encode_one(join_chains(parts, COINS)) == encode_one(portfolio_of(snapshots))


def test_fees_in_different_coins_are_not_added_up() -> None:
    snapshots = {chain: replace(snapshot(chain=chain), fees=(Holding(ALICE, native(chain), 5),)) for chain in CHAINS}
    parts = {chain: portfolio_of([each]) for chain, each in snapshots.items()}
    assert join_chains(parts, COINS).fees == "10"
    assert join_chains(parts, {**COINS, "base": ("POL", 18)}).fees == "N/A"
    assert join_chains({"base": parts["base"]}, COINS) is parts["base"]
