"""`chainfolio portfolio --nfts`: the same collectibles in text as in JSON."""

from __future__ import annotations

import pytest

from tests.cli.conftest import ALICE, Run

pytestmark = pytest.mark.node


def test_collectibles_in_text_are_those_of_json(run: Run, wallets: dict[str, str]) -> None:
    options = (wallets["carol"], "--chain", "local", "--nfts")
    (document,) = run("portfolio", *options, "--json").json
    collections = document["nftsByCollection"].values()
    out = run("portfolio", *options).out
    assert f"collectibles: {len(collections)} collection" in out
    assert collections
    for each in collections:
        assert f"{each['name'] or each['symbol'] or each['contractAddress'][:6]}" in out
        for item in each["items"]:
            assert f"#{item['tokenId']} " in out
            assert item["metadataUri"].startswith("ipfs://")
    assert "no gateway is configured for them" in out
    assert "collectibles:" not in run("portfolio", *options[:-1]).out


def test_a_table_of_prices_has_no_collectibles(run: Run) -> None:
    ran = run("portfolio", ALICE, "--nfts", "--csv", "--json")
    assert (ran.code, ran.error["kind"]) == (2, "BadRequest")
