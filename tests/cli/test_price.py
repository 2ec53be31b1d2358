"""`chainfolio price`: the price of an asset at a block or a time, with reasons, from real feeds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from chainfolio.localchain.deploy import Deployment, deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import trade
from tests.cli.conftest import Run, configure

pytestmark = pytest.mark.node
FEED = '"eip155:31337/slip44:60" = {{feed = "{feed}", decimals = 8, heartbeat_s = {heartbeat_s}}}\n'
COIN = "eip155:31337/slip44:60"
HEARTBEAT_S = 86_400


@pytest.fixture(scope="module")
def traded() -> Iterator[tuple[LocalNode, Deployment]]:
    with LocalNode() as node:
        deployment = deploy(node)
        trade(node, deployment, 60)
        node.mine(80)
        yield node, deployment


@pytest.fixture
def here_priced(here: Path, traded: tuple[LocalNode, Deployment]) -> Path:
    """Settings with the chain's feed of Ether."""
    node, deployment = traded
    return priced(here, node.url, deployment, HEARTBEAT_S)


def priced(here: Path, url: str, deployment: Deployment, heartbeat_s: int) -> Path:
    feed = FEED.format(feed=deployment.feeds["ETH"].lower(), heartbeat_s=heartbeat_s)
    (here / "mine.toml").write_text(f"[chainlink.local]\n{feed}")
    configure(here, url, chain="local")
    settings = here / "chainfolio.toml"
    settings.write_text('prices_file = "mine.toml"\n' + settings.read_text())
    return here


def answer_of(node: LocalNode, deployment: Deployment, height: int) -> Decimal:
    """Return the feed's answer at a block."""
    latest = "latestRoundData()(uint80,int256,uint256,uint256,uint80)"
    return Decimal(node.call(deployment.feeds["ETH"], latest, block=height)[1]).scaleb(-8)


@pytest.mark.slow("other spellings of the same asset", only=["local:eth", "eip155*"])
@pytest.mark.parametrize("asset", ["ETH", "local:eth", COIN])
def test_a_price_at_a_past_block_is_what_the_feed_said_there_however_the_asset_is_written(
    run: Run, traded: tuple[LocalNode, Deployment], here_priced: Path, asset: str
) -> None:
    node, deployment = traded
    heights = (deployment.height + 5, deployment.height + 50)
    feed_prices = [answer_of(node, deployment, height) for height in heights]
    assert feed_prices[0] != feed_prices[1]
    for height, usd in zip(heights, feed_prices, strict=True):
        answer = run("price", asset, "--at", str(height), "--json").json
        assert (Decimal(answer["price"]["usd"]), answer["block"]["height"], answer["asset"]) == (usd, height, COIN)


def test_a_moment_means_the_last_block_before_it_and_a_zone_counts(
    run: Run, traded: tuple[LocalNode, Deployment], here_priced: Path
) -> None:
    node, deployment = traded
    height = deployment.height + 20
    time_s = int(node.block(height)["timestamp"], 16)
    after = datetime.fromtimestamp(time_s, UTC) + timedelta(seconds=1)
    summer = after.astimezone(timezone(timedelta(hours=2)))
    for time_text in (after.isoformat(), summer.isoformat(), after.replace(tzinfo=None).isoformat()):
        assert run("price", "ETH", "--at", time_text, "--json").json["block"]["height"] == height


def test_what_was_answered_of_a_final_block_is_kept_and_the_reasons_stand_as_a_tree(
    run: Run, traded: tuple[LocalNode, Deployment], here_priced: Path
) -> None:
    _, deployment = traded
    at = str(deployment.height + 5)
    first = run("price", "ETH", "--at", at, "--json").json
    repeated = run("price", "ETH", "--at", at, "--json").json
    assert (first["kept"], repeated["kept"]) == (False, True)
    assert first["price"] == repeated["price"]
    output = run("price", "ETH", "--at", at, "--explain").out
    assert "├─ fixed does not know it" in output or "├─ chainlink: " in output
    assert f"└─ chosen: {first['price']['usd']} USD of chainlink" in output


def test_why_there_is_no_price_is_said_without_being_asked(
    run: Run, traded: tuple[LocalNode, Deployment], here: Path
) -> None:
    node, deployment = traded
    priced(here, node.url, deployment, heartbeat_s=1)
    ran = run("price", "ETH", "--json")
    assert ran.json["price"] is None
    (refusal,) = [each for each in ran.json["sources"] if each["outcome"] == "refused"]
    assert "stale" in refusal["reason"]
    assert "no price" in (output := run("price", "ETH").out)
    assert "chainlink refused: the feed's answer is stale" in output


@pytest.mark.parametrize(
    ("arguments", "field", "reason"),
    [
        (("NOSUCH",), "asset", "no token of the lists has the symbol 'NOSUCH'"),
        (("eip155:5/slip44:60",), "asset", "no configured chain is eip155:5"),
        (("ETH", "--at", "2009-01-03"), "at", "local began after 2009-01-03"),
        (("ETH", "--at", "9999-12-31"), "at", "9999-12-31 is in the future"),
        (("ETH", "--at", "99999999"), "at", "above the head"),
        (("ETH", "--at", "2023-02-29"), "at", "is no block and no moment"),
        (("ETH", "--at", "yesterday"), "at", "is no block and no moment"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_cure(
    run: Run, here_priced: Path, arguments: tuple[str, ...], field: str, reason: str
) -> None:
    ran: Any = run("price", *arguments, "--json")
    assert (ran.code, ran.error["kind"], ran.error["field"]) == (2, "BadRequest", field)
    assert reason in ran.error["reason"]
