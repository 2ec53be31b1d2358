"""Promises that nothing else shows: what is in a list, what is not served, what a version means."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.api.app import make_app
from chainfolio.api.openapi import describe
from chainfolio.api.routes import ROUTES
from chainfolio.api.serve import listening
from chainfolio.environment import Environment
from chainfolio.settings import Settings
from tests.api.fakes import ALICE, KEY, FakeEngine, FakeKeys
from tests.api.sessions import client_session

DESCRIBED = describe(ROUTES, Settings())
SCHEMAS = DESCRIBED["components"]["schemas"]


def test_every_keyed_path_names_the_version() -> None:
    assert all(route.path.startswith("/v1/") is not route.public for route in ROUTES)


@pytest.mark.parametrize("path", ["/v1/airdrop", "/v1/portfolio/proxy/polymarket", "/v1/agent/wallet", "/v2/wallet"])
async def test_what_is_not_served_is_404(ask: Any, path: str) -> None:
    assert (await ask(f"{path}?addresses={ALICE}")).status == 404


@pytest.mark.parametrize(
    "chain",
    ["arbitrum", "avalanche", "base", "binance", "ethereum", "fantom", "gnosis", "linea", "optimism", "polygon"],
)
async def test_approvals_are_asked_of_ten_chains(ask: Any, chain: str) -> None:
    assert (await ask(f"/v1/approvals/{chain}?addresses={ALICE}")).status == 200
    assert (await ask(f"/v1/approvals/{chain.upper()}?addresses={ALICE}")).status == 400
    (parameter,) = [p for p in DESCRIBED["paths"]["/v1/approvals/{chain}"]["get"]["parameters"] if p["in"] == "path"]
    assert len(parameter["schema"]["enum"]) == 10


async def test_approvals_are_asked_of_every_configured_chain() -> None:
    settings = Settings(chains={"local": EvmSettings(rpc=["http://127.0.0.1:1"])})
    app = make_app(FakeEngine(), FakeKeys(), settings, Environment())
    async with listening(app, "127.0.0.1", 0, drain_s=0.1) as port, client_session() as session:
        for chain, status in (("local", 200), ("ethereum", 200), ("other", 400)):
            url = f"http://127.0.0.1:{port}/v1/approvals/{chain}?addresses={ALICE}"
            assert (await session.get(url, headers={"Authorization": f"Bearer {KEY}"})).status == status


def test_a_bundle_has_three_fields() -> None:
    assert list(SCHEMAS["Bundle"]["properties"]) == ["id", "name", "addresses"]


def test_a_validator_has_one_of_eight_statuses() -> None:
    assert set(SCHEMAS["ValidatorIdentity"]["properties"]["status"]["enum"]) == {
        "pending",
        "active_ongoing",
        "active_exiting",
        "active_slashed",
        "exited_unslashed",
        "exited_slashed",
        "withdrawal_possible",
        "withdrawal_done",
    }


def test_an_entry_has_one_of_three_plans() -> None:
    assert set(SCHEMAS["Entry"]["properties"]["plan"]["enum"]) == {"FREE", "LITE", "PRO"}


def test_what_is_only_there_when_asked_for_is_not_required() -> None:
    assert "blockNumber" not in SCHEMAS["Portfolio"]["required"]
    assert {"imgSmall", "imgLarge", "explorerUrl", "sources"}.isdisjoint(SCHEMAS["AssetDocument"]["required"])
    assert "balance" in SCHEMAS["AssetDocument"]["required"]
