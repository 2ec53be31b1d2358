"""`unpriced = "zero"`: every value in the answers is a number, on every route with values."""

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
    """Return a portfolio with an unpriced token."""
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
    (document,) = json.loads(await (await ask(path)).text())
    if "symbol" in document:
        return {document["price"], document["value"]}, 1
    (asset,) = document["assetByProtocols"]["wallet"]["chains"]["ethereum"]["protocolPositions"]["WALLET"]["assets"]
    return {asset["price"], asset["value"], document["dailyIncome"], document["fees"]}, document["unpricedAssets"]


@pytest.mark.parametrize("path", ROUTES)
async def test_without_it_what_is_not_known_is_said(ask: Any, path: str) -> None:
    assert await numbers(ask, path) == ({"N/A"}, 1)


def with_unknown(kind: type[msgspec.Struct], **known: Any) -> Any:
    """A document in which every text that is not `known` is `N/A`."""
    fields = {each.name: each for each in msgspec.structs.fields(kind)}
    return kind(**{name: known.get(name, "N/A") for name in fields})


def test_values_at_risk_are_zero_and_what_a_spender_may_take_is_not() -> None:
    allowance = zero_unknown(with_unknown(AllowanceLeft, unlimited=False))
    assert (allowance.value_at_risk, allowance.amount) == ("0", "N/A")
    permitted = zero_unknown(with_unknown(PermittedSpender, unlimited=False))
    assert (permitted.value_at_risk, permitted.amount, permitted.takeable) == ("0", "N/A", "N/A")


def test_values_and_flows_of_a_performance_are_zero_and_its_results_are_not() -> None:
    share = ShareDocument(key="a", value="N/A", share="N/A")
    day = DayDocument(day="2026-02-01", value="1", flow="N/A", growth="N/A")
    exposure = ExposureDocument(chains=(share,), protocols=(), assets=(), unpriced=())
    unknown = dict.fromkeys(("start_value", "end_value", "net_flows", "gain"), "N/A")
    performance = zero_unknown(
        msgspec.structs.replace(fakes.a_performance("USD"), days=(day,), exposure=exposure, **unknown)
    )
    assert (performance.start_value, performance.end_value, performance.net_flows, performance.days[0].flow) == (
        "0",
        "0",
        "0",
        "0",
    )
    assert (performance.exposure.chains[0].value, performance.exposure.chains[0].share) == ("0", "0")
    assert (
        performance.gain,
        performance.days[0].growth,
        performance.time_weighted_return,
        performance.money_weighted_return,
    ) == ("N/A",) * 4


class TestZero:
    @pytest.fixture
    def server(self) -> Server:
        return Server(unpriced="zero")

    @pytest.mark.parametrize("path", ROUTES)
    async def test_with_zero_every_number_can_be_computed_with(self, ask: Any, path: str) -> None:
        assert await numbers(ask, path) == ({"0"}, 1)
