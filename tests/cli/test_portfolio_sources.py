"""`chainfolio portfolio --sources`: the same sources in text as in JSON."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run

pytestmark = pytest.mark.node


def test_sources_in_text_name_the_block_the_calls_and_the_price(run: Run, wallets: dict[str, str]) -> None:
    options = (wallets["frank"], "--chain", "local", "--sources")
    (document,) = run("portfolio", *options, "--json").json
    text = run("portfolio", *options).out
    assets = [
        asset
        for chain in document["assetByProtocols"]["wallet"]["chains"].values()
        for asset in chain["protocolPositions"]["WALLET"]["assets"]
    ]
    assert len(assets) > 2
    for asset in assets:
        sources = asset["sources"]
        assert f"    block {sources['blockNumber']} {sources['blockHash']}\n" in text
        assert f"    balance {asset['balance']}, raw {sources['raw']}\n" in text
        if sources["priceSource"]:
            assert f"    price {asset['price']}: {sources['priceSource']} of {sources['priceTime']}" in text
        for call in sources["calls"]:
            assert f"    {call['number']}: {call['signature'] or call['method']}" in text
            assert f"= {', '.join(call['result'])}\n" in text
    assert "sources" not in run("portfolio", *options[:-1]).out
