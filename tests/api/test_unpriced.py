"""`unpriced = "zero"`: answers in which every number can be computed with, on every route that shows any."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from chainfolio.api.approvals import AllowanceLeft, PermittedSpender
from chainfolio.portfolio.document import (
    AssetDocument,
    Portfolio,
    PositionsDocument,
    ProtocolChainDocument,
    ProtocolDocument,
)
from chainfolio.portfolio.metrics.report import DayDocument, ExposureDocument, ShareDocument
from chainfolio.portfolio.zeroed import zero_unknown
from chainfolio.settings import Server
from tests.api import fakes
from tests.api.fakes import ALICE, FakeEngine, a_portfolio

MOON = AssetDocument(
    symbol="moon",
    name="moon",
    contract="0x1",
    chain_key="ethereum",
    chain_contract="ethereum:0x1",
    balance="7",
    price="N/A",
    value="N/A",
    decimal="18",
)
ROUTES = (
    f"/v1/portfolio?addresses={ALICE}",
    f"/v1/wallet?addresses={ALICE}",
    f"/v1/historical?addresses={ALICE}&date=2024-02-29",
    f"/v1/token-overview?addresses={ALICE}&date=2024-02-29",
    f"/v1/portfolio/at-block?addresses={ALICE}&chainKey=ethereum&blockNumber=7",
)


def holding_moon(address: str) -> Portfolio:
    """The portfolio of somebody who has a token that nobody priced."""
    positions = {"WALLET": PositionsDocument(name="wallet", total_value="0", assets=(MOON,))}
    chain = ProtocolChainDocument(name="Ethereum", key="ethereum", value="0", protocol_positions=positions)
    wallet = ProtocolDocument(name="Wallet", key="wallet", value="0", chains={"ethereum": chain})
    return msgspec.structs.replace(a_portfolio(address), asset_by_protocols={"wallet": wallet}, unpriced_assets=1)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    monkeypatch.setattr(fakes, "a_portfolio", holding_moon)
    return FakeEngine()


async def numbers(ask: Any, path: str) -> tuple[set[str], Any]:
    """The prices and values of an answer, and how many it counts as unpriced."""
    (found,) = json.loads(await (await ask(path)).text())
    if "symbol" in found:
        return {found["price"], found["value"]}, 1
    (asset,) = found["assetByProtocols"]["wallet"]["chains"]["ethereum"]["protocolPositions"]["WALLET"]["assets"]
    return {asset["price"], asset["value"], found["dailyIncome"], found["fees"]}, found["unpricedAssets"]


@pytest.mark.parametrize("path", ROUTES)
async def test_without_it_what_is_not_known_is_said(ask: Any, path: str) -> None:
    assert await numbers(ask, path) == ({"N/A"}, 1)


def with_unknown(kind: type[msgspec.Struct], **known: Any) -> Any:
    """A document in which every text that is not `known` is `N/A`."""
    fields = {each.name: each for each in msgspec.structs.fields(kind)}
    return kind(**{name: known.get(name, "N/A") for name in fields})


def test_values_at_risk_are_zero_and_what_a_spender_may_take_is_not() -> None:
    left = zero_unknown(with_unknown(AllowanceLeft, unlimited=False))
    assert (left.value_at_risk, left.amount) == ("0", "N/A")
    permitted = zero_unknown(with_unknown(PermittedSpender, unlimited=False))
    assert (permitted.value_at_risk, permitted.amount, permitted.takeable) == ("0", "N/A", "N/A")


def test_values_and_flows_of_a_performance_are_zero_and_its_results_are_not() -> None:
    share = ShareDocument(key="a", value="N/A", share="N/A")
    day = DayDocument(day="2026-02-01", value="1", flow="N/A", growth="N/A")
    exposure = ExposureDocument(chains=(share,), protocols=(), assets=(), unpriced=())
    unknown = dict.fromkeys(("start_value", "end_value", "net_flows", "gain"), "N/A")
    found = zero_unknown(msgspec.structs.replace(fakes.a_performance("USD"), days=(day,), exposure=exposure, **unknown))
    assert (found.start_value, found.end_value, found.net_flows, found.days[0].flow) == ("0", "0", "0", "0")
    assert (found.exposure.chains[0].value, found.exposure.chains[0].share) == ("0", "0")
    assert (found.gain, found.days[0].growth, found.time_weighted_return, found.money_weighted_return) == ("N/A",) * 4


class TestZero:
    @pytest.fixture
    def server(self) -> Server:
        return Server(unpriced="zero")

    @pytest.mark.parametrize("path", ROUTES)
    async def test_with_zero_every_number_can_be_computed_with(self, ask: Any, path: str) -> None:
        assert await numbers(ask, path) == ({"0"}, 1)
