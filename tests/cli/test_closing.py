"""The closing identity of `pnl` on a real chain: lots equal the holdings, or a row has the difference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.evm import Tx, tx
from chainfolio.localchain.node import LocalNode
from chainfolio.portfolio.pnl.closing import UNCLOSED
from chainfolio.portfolio.pnl.entries import UNASKED
from tests.cli.conftest import Run, configure
from tests.cli.test_reconcile import set_balance

pytestmark = pytest.mark.node
TOKENS = {"plain": "DAI", "charges": "USDC", "grows": "WBTC", "sent": "WETH"}
UNITS = {"plain": 10**18, "charges": 10**6, "grows": 10**8, "sent": 10**18}
WALLET = "0x00000000000000000000000000000000000abcde"
SEND = "transfer(address,uint256)"


@dataclass(frozen=True)
class Drifted:
    """A wallet with coins and tokens, and the blocks in which it got each token.

    Some tokens changed its balance without an event. The last one is untrusted: the settings price all others.
    """

    node: LocalNode
    tokens: dict[str, str]
    blocks: dict[str, int]
    sender: str


@pytest.fixture(scope="module")
def drifted() -> Iterator[Drifted]:
    with LocalNode() as node:
        deployment = deploy(node)
        tokens = {name: deployment.contracts[symbol].lower() for name, symbol in TOKENS.items()}
        sender = deployment.accounts["frank"]
        node.rpc("anvil_impersonateAccount", WALLET)
        node.settle([Tx(sender, WALLET, value=3 * 10**18)])
        blocks = {name: node.settle([tx(sender, tokens[name], SEND, WALLET, 5 * UNITS[name])]) for name in TOKENS}
        set_balance(node, tokens["charges"], WALLET, 45 * UNITS["charges"] // 10)  # a tenth was kept on the way
        node.settle([tx(WALLET, tokens["plain"], SEND, sender, 2 * UNITS["plain"])])
        set_balance(node, tokens["grows"], WALLET, 10 * UNITS["grows"])
        set_balance(node, tokens["sent"], WALLET, 4 * UNITS["sent"])
        node.mine(10)
        yield Drifted(node, tokens, blocks, sender)


@pytest.fixture
def configured(here: Path, drifted: Drifted) -> Path:
    trusted = [f'"eip155:31337/erc20:{drifted.tokens[name]}" = "2"' for name in TOKENS if name != "sent"]
    prices = "\n".join(["[prices]", '"eip155:31337/slip44:60" = "2000"', *trusted])
    configure(here, drifted.node.url, chain="local", more=prices)
    return here


def holdings(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {holding["contract"]: holding for holding in document["holdings"]}


def test_what_does_not_close_is_a_row_and_hides_only_its_own_gain(run: Run, configured: Path, drifted: Drifted) -> None:
    assert run("watch", WALLET).code == 0
    document = run("pnl", WALLET, "--json").json
    tokens, positions = drifted.tokens, holdings(document)
    rows = {row["contract"]: row for row in document["unexplained"]}
    assert {contract: (row["raw"], row["amount"], row["firstBlock"]) for contract, row in rows.items()} == {
        tokens["charges"]: ("-500000", "-0.5", drifted.blocks["charges"]),
        tokens["grows"]: (str(5 * UNITS["grows"]), "5", drifted.blocks["grows"]),
        tokens["sent"]: (str(-UNITS["sent"]), "-1", drifted.blocks["sent"]),
    }
    assert {row["place"] for row in rows.values()} == {"wallet"}
    for name, amount in (("plain", "3"), ("charges", "4.5"), ("grows", "10"), ("sent", "4")):
        on_chain = drifted.node.call(tokens[name], "balanceOf(address)(uint256)", WALLET)
        assert positions[tokens[name]]["held"] == amount, "what is held, not what lots say"
        assert Decimal(amount) * UNITS[name] == on_chain
    for name in ("charges", "grows"):
        assert positions[tokens[name]]["reason"] == UNCLOSED
        assert {positions[tokens[name]][field] for field in ("totalCostBasis", "openPnl", "value")} == {"N/A"}
    plain = positions[tokens["plain"]]
    assert (plain["totalCostBasis"], plain["openPnl"], plain["closedPnl"]) == ("6", "0", "0")
    assert positions[tokens["sent"]]["reason"] == UNASKED
    assert document["openPnl"] == document["totalCostBasis"] == document["value"] == "N/A"
    text = " ".join(run("pnl", WALLET).out.split())
    assert f"does not close: -0.5 usdc in the wallet since block {drifted.blocks['charges']}: its wallet holds" in text


def test_what_closes_is_worth_its_cost_and_its_open_gain(run: Run, configured: Path, drifted: Drifted) -> None:
    settings = configured / "chainfolio.toml"
    lines = settings.read_text().splitlines()
    misbehaving = [drifted.tokens[name] for name in ("charges", "grows", "sent")]
    settings.write_text("\n".join(line for line in lines if not any(token in line for token in misbehaving)) + "\n")
    assert run("watch", WALLET).code == 0
    document = run("pnl", WALLET, "--json").json
    assert {row["contract"] for row in document["unexplained"]} == set(misbehaving), "strangers' tokens hide no sum"
    value, cost, gain = (Decimal(document[field]) for field in ("value", "totalCostBasis", "openPnl"))
    assert value == cost + gain
    (portfolio,) = run("portfolio", WALLET, "--json").json
    assert Decimal(portfolio["networth"]) == value
    assert portfolio["totalCostBasis"] == document["totalCostBasis"]
    assert portfolio["closedPnl"] == document["closedPnl"] != "N/A"
    page = run("transactions", WALLET, "--json").json
    assert sum(Decimal(each["closedPnl"]) for each in page["transactions"]) == Decimal(document["closedPnl"])


def test_transactions_of_what_does_not_close_have_no_known_gain(run: Run, configured: Path, drifted: Drifted) -> None:
    grows = drifted.tokens["grows"]
    height = drifted.node.settle([tx(WALLET, grows, SEND, drifted.sender, 1_000)])
    drifted.node.mine(10)
    assert run("watch", WALLET).code == 0
    page = run("transactions", WALLET, "--json").json
    (transaction,) = (each for each in page["transactions"] if each["blockNumber"] == height)
    assert transaction["closedPnl"] == transaction["assetsOut"][0]["closedPnl"] == "N/A"
    assert transaction["nativeAssetFees"]["closedPnl"] != "N/A", "the fee was paid in another asset"
    (portfolio,) = run("portfolio", WALLET, "--json").json
    report = run("pnl", WALLET, "--json").json
    assert portfolio["closedPnl"] == report["closedPnl"] == "N/A"
    reasons = [issue["reason"] for issue in page["issues"] if issue["subject"] == f"local:{grows}"]
    assert reasons == [f"its gain is not known: {UNCLOSED}"]
