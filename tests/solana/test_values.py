"""What a wallet on a real node is worth, through the command line: prices and pools lie in accounts of that node."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from solders.keypair import Keypair
from solders.pubkey import Pubkey

from cli.main import main
from localchain.solana.node import SolanaNode
from localchain.solana.programs import TOKEN, coins, home
from tests.solana import ledger
from tests.solana.conftest import GENESIS, ROOT, facts_of
from tests.solana.vendor_accounts import (
    JITO_MINT,
    JITO_POOL,
    POOLS,
    RECEIVER,
    SOL_FEED_AT,
    pyth_bytes,
    stake_pool_bytes,
)

pytestmark = pytest.mark.node
Run = Callable[..., Any]
RENT = 10**8
CAIP = 32  # characters of a genesis that name a chain


@pytest.fixture
def run(node: SolanaNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command that prints one document; the settings name the node, and prices as they are shipped."""
    monkeypatch.chdir(tmp_path)
    genesis = node.rpc("getGenesisHash")
    prices = (ROOT / "configs" / "prices.toml").read_text().replace(GENESIS[:CAIP], genesis[:CAIP])
    (tmp_path / "prices.toml").write_text(prices)
    lines = [
        'prices_file = "prices.toml"',
        "[chains.solana]",
        'adapter = "solana"',
        f"rpc = [{json.dumps(node.url)}]",
        f'facts = "{facts_of(genesis, tmp_path)}"',
        'index = "accounts"',
        'commitment = "confirmed"',
    ]
    (tmp_path / "chainfolio.toml").write_text("\n".join(lines) + "\n")

    def ran(*arguments: str) -> Any:
        capsys.readouterr()
        code = main((*arguments, "--json"))
        said = capsys.readouterr()
        assert code == 0, said.out + said.err
        return json.loads(said.out)

    return ran


def put(node: SolanaNode, address: str, owner: str, content: bytes) -> None:
    """Write an account that its program did not have to make."""
    node.put(Pubkey.from_string(address), owner, content, RENT)


def give(node: SolanaNode, owner: Pubkey, mint: str, raw: int, decimals: int = 9) -> None:
    """Some tokens of a mint that is there."""
    put(node, mint, str(TOKEN), ledger.mint(10**18, decimals))
    content = ledger.token_account(mint, str(owner), raw)
    node.put(home(owner, Pubkey.from_string(mint)), str(TOKEN), content, RENT)


def now(node: SolanaNode) -> int:
    """The time of the newest block."""
    header = {"transactionDetails": "none", "rewards": False, "maxSupportedTransactionVersion": 0}
    slot = node.rpc("getSlot", {"commitment": "confirmed"})
    time_s: int = node.rpc("getBlock", slot, header | {"commitment": "confirmed"})["blockTime"]
    return time_s


@pytest.fixture
def priced(node: SolanaNode) -> None:
    """SOL at 150.25 USD by Pyth, now; JitoSOL at 1.25 SOL by its pool."""
    coins(node, Keypair().pubkey(), RENT)  # a new node has no block yet
    now_s = now(node)
    put(node, SOL_FEED_AT, RECEIVER, pyth_bytes(now_s))
    put(node, JITO_POOL, POOLS, stake_pool_bytes(JITO_MINT, 12_500_000_000_000_000, 10_000_000_000_000_000))


def values(portfolio: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    """Balance, price and value of each asset by its contract, in the order of the answer."""
    return {
        asset["contract"]: (asset["balance"], asset["price"], asset["value"])
        for protocol in portfolio["assetByProtocols"].values()
        for chain in protocol["chains"].values()
        for assets in chain["protocolPositions"].values()
        for asset in assets["assets"]
    }


def test_coins_and_staked_coins_are_worth_what_accounts_of_the_node_say(
    node: SolanaNode, run: Run, priced: None
) -> None:
    wallet = Keypair().pubkey()
    coins(node, wallet, 2 * 10**9)
    give(node, wallet, JITO_MINT, 4 * 10**9)
    [found] = run("portfolio", str(wallet), "--sources")
    assert values(found) == {
        "0x0000000000000000000000000000000000000000": ("2", "150.25", "300.5"),
        JITO_MINT: ("4", "187.8125", "751.25"),
    }
    assert found["chains"]["solana"]["value"] == "1051.75"
    assert found["completeness"] == "complete"
