"""The page of collectibles in a real browser: items are those of the API, spam is hidden, metadata stay text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.browser import PROGRAM
from tests.e2e.dashboard_page import CAROL, HOSTILE, MUTE, WIDE, get, opened
from tests.e2e.running import BOB, Demo

pytestmark = [
    pytest.mark.node,
    pytest.mark.xdist_group("demo"),
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here"),
]
ITEMS = "[...document.querySelectorAll('.nft')].map(each => [each.dataset.token, each.dataset.balance])"


def collections_of(demo: Demo) -> list[dict[str, Any]]:
    """The collections of two wallets, as the API has them."""
    documents = get(demo, f"/v1/portfolio?addresses={BOB},{CAROL}&includeNFTs=true&includeSources=true")
    return [each for document in documents for each in document["nftsByCollection"].values()]


async def test_collectibles_are_those_of_the_api(demo: Demo, tmp_path: Path) -> None:
    collections = collections_of(demo)
    assert collections
    async with opened(demo, tmp_path, f"nfts?addresses={BOB},{CAROL}", 390, "dark") as page:
        await page.once("document.querySelector('[data-ready]')")
        items = [[item["tokenId"], item["balance"]] for each in collections for item in each["items"]]
        assert sorted(await page.says(ITEMS)) == sorted(items)
        await page.says("document.querySelector('.nft summary').click()")
        text = await page.says("document.querySelector('.nft details[open]').textContent")
        assert "ownerOf(uint256)(address)" in text or "balanceOf(address,uint256)(uint256)" in text
        assert collections[0]["items"][0]["sources"]["blockHash"] in text
        assert await page.says(WIDE) == []
        assert await page.says(MUTE) == []
        assert page.complaints == []


async def test_hostile_metadata_stay_text_and_spam_is_behind_a_switch(demo: Demo, tmp_path: Path) -> None:
    item = {"name": HOSTILE, "attributes": [{"name": HOSTILE, "value": HOSTILE}], "metadataProblem": HOSTILE}
    item |= {"metadataUri": "javascript:alert(1)", "imgSmall": "https://pictures.example/1.svg", "balance": "9" * 78}
    script = f"""const real = fetch, item = {json.dumps(item)}; window.fetch = async (path, ...more) => {{
      const answer = await real(path, ...more);
      if (!path.startsWith('/v1/portfolio')) return answer;
      const documents = await answer.json();
      for (const each of documents.flatMap((one) => Object.values(one.nftsByCollection))) {{
        each.spam = true; each.spamReasons = [{json.dumps(HOSTILE)}]; each.name = item.name;
        each.items = each.items.map((one) => ({{...one, ...item}}));
      }}
      return new Response(JSON.stringify(documents), {{status: answer.status}});
    }};"""
    async with opened(demo, tmp_path, f"nfts?addresses={BOB},{CAROL}", 390, script=script) as page:
        await page.once("document.querySelector('[data-ready]')")
        assert await page.says(ITEMS) == []
        await page.says("document.querySelector('#spam').click()")
        assert len(await page.says(ITEMS)) == sum(len(each["items"]) for each in collections_of(demo))
        await page.says("[...document.querySelectorAll('details')].forEach(each => each.open = true)")
        assert await page.says("document.querySelector('img[src^=http], .nft a') === null && document.body.id === ''")
        assert not {"\u202e", "\u200b"} & set(await page.says("document.body.textContent"))
        assert await page.says(WIDE) == []
        assert page.complaints == []
