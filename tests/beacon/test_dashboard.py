"""The page of validators in a real browser, over a local beacon chain: states, rewards and sums of the API."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainfolio import amounts
from tests.beacon.conftest import OFFLINE, SLASHED, IndexedBeacon
from tests.beacon.test_served import GENESIS_S, served
from tests.e2e.browser import PROGRAM
from tests.e2e.dashboard_page import MUTE, WIDE, opened
from tests.e2e.running import Demo

pytestmark = [
    pytest.mark.node,
    pytest.mark.xdist_group("beacon"),
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here"),
]
DAY = "2020-12-01"
DAY_S = 1_606_780_800
RANGE = f"rangeType=timestamp&rangeFrom={DAY_S}&rangeTo={DAY_S + 86_399}&granularity=day&offset=0&limit=10"
CELLS = "each => [...each.querySelectorAll('[data-exact]')].map(cell => cell.dataset.exact)"


async def test_validators_are_those_of_the_api_to_the_digit(indexed: IndexedBeacon, tmp_path: Path) -> None:
    assert DAY_S < GENESIS_S < DAY_S + 86_400
    offline = OFFLINE[0]
    async with served(indexed.settings) as client:
        server = Demo(client.url, indexed.config, client.key, "", "")
        path = f"validators?validators={offline},{SLASHED},99999&from={DAY}&to={DAY}"
        async with opened(server, tmp_path, path, 390, "dark") as page:
            await page.once("document.querySelector('[data-ready]')")
            for index in (offline, SLASHED):
                box = f"document.querySelector('[data-validator=\"{index}\"]')"
                details = (await client.get(f"/details/index/{index}"))[1]
                (day,) = (await client.rewards(index, RANGE))["data"]
                cells = await page.says(f"[...{box}.querySelectorAll('[data-day]')].map({CELLS})")
                assert cells == [[day[key] for key in ("consensusReward", "executionReward", "endEffectiveBalance")]]
                sums = dict(
                    await page.says(
                        f"[...{box}.querySelectorAll('[data-sum]')].map(e => [e.dataset.sum, e.dataset.exact])"
                    )
                )
                assert sums["actualBalance"] == details["balance"]["actual"]
                assert sums["rewardSum"] == day["consensusReward"]
                assert sums["missed"] == str(day["attestationsMissed"])
                text = await page.says(f"{box}.textContent")
                assert details["validator"]["pubkey"] in text
                coins = amounts.text(amounts.amount(int(details["balance"]["actual"]), 18))
                assert coins == await page.says(f"{box}.querySelector('[data-sum=actualBalance]').title")
            assert "Slashed" in await page.says(f"document.querySelector('[data-validator=\"{SLASHED}\"]').textContent")
            assert "not found" in await page.says("document.querySelector('.notice.bad').textContent")
            assert await page.says(WIDE) == []
            assert await page.says(MUTE) == []
