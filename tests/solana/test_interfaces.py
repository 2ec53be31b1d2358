"""A wallet on a real node through the command line and the API: what it has, what it had, what it did."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from solders.keypair import Keypair
from solders.pubkey import Pubkey

from chainfolio.localchain.solana.node import SolanaNode
from chainfolio.localchain.solana.programs import (
    account_opening,
    associated_account,
    create_mint,
    send_coins,
    token_issue,
    token_transfer,
)
from chainfolio.settings_file import load
from tests.api.asking import open_client
from tests.solana.conftest import Run

pytestmark = pytest.mark.node
NATIVE = "0x0000000000000000000000000000000000000000"
SYSTEM = "1" * 32


@pytest.fixture
def run(node: SolanaNode, running: Callable[..., Run]) -> Run:
    """Runs a command that prints one document."""
    return running(node.rpc("getGenesisHash"), node.url)


def later(node: SolanaNode, slots: int = 100) -> int:
    """Let some slots go by, so that all before is final."""
    node.rpc("surfnet_timeTravel", {"absoluteSlot": node.rpc("getSlot") + slots})
    finalized: int = node.rpc("getSlot", {"commitment": "finalized"})
    return finalized


def asset_balances(portfolio: dict[str, Any]) -> dict[str, str]:
    """The amounts of a portfolio by the contract that it shows."""
    return {
        asset["contract"]: asset["balance"]
        for protocol in portfolio["assetByProtocols"].values()
        for chain in protocol["chains"].values()
        for assets in chain["protocolPositions"].values()
        for asset in assets["assets"]
    }


@pytest.fixture
def traded(node: SolanaNode, run: Run) -> tuple[Keypair, Pubkey, int]:
    """A wallet that had 3 coins and 10 tokens at a slot, and gave 2.5 tokens away and got a coin later."""
    wallet, recipient, token = Keypair(), Keypair().pubkey(), create_mint(node, 6)
    owner = wallet.pubkey()
    send_coins(node, owner, 3 * 10**9)
    source, destination = associated_account(owner, token), associated_account(recipient, token)
    node.send(
        [
            account_opening(node, owner, token),
            account_opening(node, recipient, token),
            token_issue(node, token, source, 10_000_000),
        ]
    )
    then = later(node)
    node.send([token_transfer(token, source, destination, owner, 2_500_000, 6)], wallet)
    send_coins(node, owner, 10**9)
    later(node)
    return wallet, token, then


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_a_past_balance_is_that_of_now_without_what_moved_since(
    node: SolanaNode, run: Run, traded: tuple[Keypair, Pubkey, int]
) -> None:
    wallet, token, then = traded
    owner = str(wallet.pubkey())
    run("watch", owner)
    before = run("portfolio", owner, "--chain", "solana", "--block", str(then))[0]
    assert asset_balances(before) == {NATIVE: "3", str(token): "10"}
    assert (before["blockNumber"], before["completeness"]) == (str(then), "complete")
    now = asset_balances(run("portfolio", owner)[0])
    assert now == asset_balances(run("portfolio", owner, "--chain", "solana")[0]) == {NATIVE: "4", str(token): "7.5"}
    send_coins(node, wallet.pubkey(), 5)  # newer than the index
    later(node)
    assert asset_balances(run("portfolio", owner)[0])[NATIVE] == "4.000000005"
    assert asset_balances(run("portfolio", owner, "--chain", "solana", "--block", str(then))[0]) == asset_balances(
        before
    )


def test_a_past_balance_without_the_rows_since_is_history_that_is_not_there(
    node: SolanaNode, run: Run, traded: tuple[Keypair, Pubkey, int]
) -> None:
    wallet, _, then = traded
    later(node, 2000)  # more than a read takes from the node in addition to the index
    with pytest.raises(AssertionError, match="HistoryUnavailable"):
        run("portfolio", str(wallet.pubkey()), "--chain", "solana", "--block", str(then))


def test_a_past_balance_that_rows_do_not_add_up_to_is_partial(
    node: SolanaNode, run: Run, traded: tuple[Keypair, Pubkey, int]
) -> None:
    wallet, _, then = traded
    node.put(wallet.pubkey(), SYSTEM, b"", 9 * 10**9)  # coins that no transaction brought
    owner = str(wallet.pubkey())
    run("watch", owner)
    portfolio = run("portfolio", owner, "--chain", "solana", "--block", str(then))[0]
    assert portfolio["completeness"] == "partial"
    assert any("add up to 3000000000" in issue["reason"] for issue in portfolio["issues"])


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_what_an_account_did_is_answered_minutes_after_it_was_read(
    node: SolanaNode, run: Run, traded: tuple[Keypair, Pubkey, int]
) -> None:
    owner = str(traded[0].pubkey())
    run("watch", owner)
    read = run("transactions", owner)
    later(node, 1000)  # 400 s
    document = run("transactions", owner)
    assert document == read
    assert (document["completeness"], len(document["transactions"])) == ("complete", 4)


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_every_route_answers_about_a_solana_address(
    run: Run, traded: tuple[Keypair, Pubkey, int], tmp_path: Path
) -> None:
    wallet, token, _ = traded
    owner = str(wallet.pubkey())
    settings = load(tmp_path / "chainfolio.toml", {})
    await asyncio.to_thread(run, "watch", owner)
    async with open_client(settings) as ask:
        addresses = f"addresses={owner}"
        for route in ("portfolio", "wallet"):
            [portfolio] = await ask(f"{route}?{addresses}")
            assert asset_balances(portfolio) == {NATIVE: "4", str(token): "7.5"}
            assert portfolio["chains"]["solana"]["chainId"] == 101
        nav = await ask(f"nav?{addresses}")
        assert (nav["nav"], nav["unpricedAssets"]) == (0, 2)
        page = await ask(f"transactions?{addresses}&limit=100&offset=0")
        assert len(page["transactions"]) == 4
        assert {each["user"]["address"] for each in page["transactions"]} == {owner}
        [status] = await ask(f"status?{addresses}")
        assert (status["address"], status["syncInProgress"]) == (owner, False)
        error = await ask(f"portfolio?addresses={owner[:20]}", 400)
        assert "not a" in json.dumps(error) or "address" in json.dumps(error)
        assert "no historical subscription" in (await ask(f"historical?{addresses}&date=2024-01-01", 403))["message"]
        assert "solana" in json.dumps(await ask("chains"))
        error = await ask(f"approvals/solana?{addresses}", 501)
        assert "`approvals` of solana" in json.dumps(error)  # accounts of this chain give no approvals
