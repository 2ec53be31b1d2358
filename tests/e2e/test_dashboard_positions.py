"""The page of positions in a real browser: health, debts, rewards and unlock days are those of the API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from chainfolio import amounts
from tests.e2e.browser import PROGRAM
from tests.e2e.dashboard_page import HOSTILE, MUTE, WIDE, get, opened
from tests.e2e.running import BOB, Demo

pytestmark = [
    pytest.mark.node,
    pytest.mark.xdist_group("demo"),
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here"),
]
ERIN = "0x9965507d1a55bcc2695c58ba16fb37d819b0a4dc"
EXACT = "[...document.querySelectorAll('{}')].map(each => [{}])"
SIDES = ("assets", "supplyAssets", "dexAssets", "rewardAssets", "borrowAssets")


def positions_of(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The positions in protocols; the assets of a wallet are none."""
    for document in documents:
        for protocol in document["assetByProtocols"].values():
            for chain in protocol["chains"].values():
                for group in chain["protocolPositions"].values():
                    yield from group["protocolPositions"]


async def test_positions_are_those_of_the_api_to_the_digit(demo: Demo, tmp_path: Path) -> None:
    documents = get(demo, f"/v1/portfolio?addresses={BOB},{ERIN}&includeSources=true")
    positions = list(positions_of(documents))
    healths = sorted((each["healthRate"] for each in positions if "healthRate" in each), key=Decimal)
    assert healths
    async with opened(demo, tmp_path, f"positions?addresses={BOB},{ERIN}", 390, "dark") as page:
        await page.once("document.querySelector('[data-ready]')")
        values = await page.says(EXACT.format("[data-position]", "each.dataset.exact"))
        assert sorted(exact for (exact,) in values) == sorted(each["value"] for each in positions)
        assert [each for (each,) in await page.says(EXACT.format("[data-health]", "each.dataset.health"))] == healths
        parts = await page.says(EXACT.format(".position tbody tr", "each.cells[1].title"))
        expected = [asset["balance"] for each in positions for side in SIDES for asset in each[side]]
        assert sorted(balance for (balance,) in parts) == sorted(expected)
        sums = dict(await page.says(EXACT.format("[data-sum]", "each.dataset.sum, each.dataset.exact")))
        assert sums == {
            "inPositions": total(each["value"] for each in positions),
            "borrowedSum": total(asset["value"] for each in positions for asset in each["borrowAssets"]),
            "claimable": total(asset["value"] for each in positions for asset in each["rewardAssets"]),
            "lowestHealth": healths[0],
        }
        await page.says("document.querySelector('.position td button.number').click()")
        asset = await page.says("document.querySelector('.position tbody tr').cells[1].title")
        assert asset in await page.says("document.querySelector('dialog[open]').textContent")
        assert await page.says(WIDE) == []
        assert await page.says(MUTE) == []
        assert page.complaints == []


def total(values: Iterator[str]) -> str:
    """The exact sum of the known values."""
    return amounts.text(amounts.total([Decimal(each) for each in values if each != "N/A"]))


async def test_odd_positions_are_shown_and_stay_text(demo: Demo, tmp_path: Path) -> None:
    change = {"unlockAt": "1900000000", "healthRate": "0.97", "name": HOSTILE, "symbol": HOSTILE}
    change["value"] = str(-(2**256))
    script = f"""const real = fetch, change = {json.dumps(change)}; window.fetch = async (path, ...more) => {{
      const answer = await real(path, ...more);
      if (!path.startsWith('/v1/portfolio')) return answer;
      const odd = JSON.parse(await answer.text(), (key, value) => change[key] ?? value);
      return new Response(JSON.stringify(odd), {{status: answer.status}});
    }};"""
    async with opened(demo, tmp_path, f"positions?addresses={BOB}", 390, script=script) as page:
        await page.once("document.querySelector('[data-ready]')")
        assert "2030-03-17" in await page.says("document.querySelector('[data-unlock]').textContent")
        assert await page.says("document.querySelector('[data-health]').className") == "bad"
        assert await page.says("document.querySelector('img') === null && document.body.id === ''")
        assert not {"\u202e", "\u200b"} & set(await page.says("document.body.textContent"))
        assert await page.says(WIDE) == []
        assert page.complaints == []
