"""Values of a wallet on a real node by the command line; prices and pools are accounts of that node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from solders.keypair import Keypair
from solders.pubkey import Pubkey

from chainfolio.adapters.solana.account_reads import derived
from chainfolio.adapters.solana.ticks import orca_root
from chainfolio.localchain.solana.node import SolanaNode
from chainfolio.localchain.solana.programs import TOKEN, associated_account, send_coins
from chainfolio.pricing.relatives import rounded
from chainfolio.settings_file import load
from tests.api.asking import open_client
from tests.commands import run_json
from tests.solana import kamino, ledger, marginfi
from tests.solana.conftest import GENESIS, ROOT, facts_of
from tests.solana.sdk import run_jobs
from tests.solana.vendor_accounts import (
    JITO_MINT,
    JITO_POOL,
    POOLS,
    PUSH,
    RECEIVER,
    SOL_FEED_AT,
    pyth_bytes,
    stake_pool_bytes,
)
from tests.solana.whirlpools import PROGRAM, Pool, Position, Tick, write

pytestmark = pytest.mark.node
WSOL, USDC = "So11111111111111111111111111111111111111112", "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v"
UNITS = {WSOL: 10**9, USDC: 10**6}
USDC_FEED = bytes.fromhex("eaa020c61cc479712813461ce153894a96a6c00b21ed0cfc2798d1f9a9e9c94a")
Run = Callable[..., Any]
RENT = 10**8
CAIP = 32  # characters of a genesis that name a chain


@pytest.fixture
def run(node: SolanaNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command with one JSON document; the settings name the node."""
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

    return partial(run_json, capsys)


def put(node: SolanaNode, address: str, owner: str, content: bytes) -> None:
    """Write an account that its program did not have to make."""
    node.put(Pubkey.from_string(address), owner, content, RENT)


def give(node: SolanaNode, owner: Pubkey, mint: str, raw: int, decimals: int = 9) -> None:
    """Put tokens of a mint into an owner's account."""
    put(node, mint, str(TOKEN), ledger.mint(10**18, decimals))
    content = ledger.token_account(mint, str(owner), raw)
    node.put(associated_account(owner, Pubkey.from_string(mint)), str(TOKEN), content, RENT)


def now(node: SolanaNode) -> int:
    """The time of the newest block."""
    header = {"transactionDetails": "none", "rewards": False, "maxSupportedTransactionVersion": 0}
    slot = node.rpc("getSlot", {"commitment": "confirmed"})
    time_s: int = node.rpc("getBlock", slot, header | {"commitment": "confirmed"})["blockTime"]
    return time_s


@pytest.fixture
def priced(node: SolanaNode) -> None:
    """SOL at 150.25 USD and USDC at 1 USD by Pyth, now; JitoSOL at 1.25 SOL by its pool."""
    send_coins(node, Keypair().pubkey(), RENT)  # a new node has no block yet
    now_s = now(node)
    put(node, SOL_FEED_AT, RECEIVER, pyth_bytes(now_s))
    dollar = pyth_bytes(now_s, feedId=USDC_FEED, price=100_000_000, conf=50_000)
    put(node, derived(PUSH, (bytes(2), USDC_FEED)), RECEIVER, dollar)
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
    send_coins(node, wallet, 2 * 10**9)
    give(node, wallet, JITO_MINT, 4 * 10**9)
    [portfolio] = run("portfolio", str(wallet), "--sources")
    assert values(portfolio) == {
        "0x0000000000000000000000000000000000000000": ("2", "150.25", "300.5"),
        JITO_MINT: ("4", "187.8125", "751.25"),
    }
    assert portfolio["chains"]["solana"]["value"] == "1051.75"
    assert portfolio["completeness"] == "complete"


def test_a_token_that_only_a_pool_knows_is_worth_what_the_pool_says_and_could_pay(
    node: SolanaNode, run: Run, priced: None
) -> None:
    wallet, mint = Keypair().pubkey(), str(Keypair().pubkey())
    send_coins(node, wallet, 10**9)
    give(node, wallet, mint, 4 * 10**6, 6)
    mints = tuple(sorted((mint, USDC), key=lambda each: bytes(Pubkey.from_string(each))))
    tick = 1_000 if mints[1] == USDC else -1_000  # 1.105 USDC
    pool = Pool((mints[0], mints[1]), (str(Keypair().pubkey()), str(Keypair().pubkey())), 64, orca_root(tick), tick)
    put(node, pool.address, PROGRAM, run_jobs([pool.job])[0])
    put(node, USDC, str(TOKEN), ledger.mint(10**15, 6))
    for of, vault in zip(pool.mints, pool.vaults, strict=True):
        put(node, vault, str(TOKEN), ledger.token_account(of, pool.address, 6_000 * 10**6))
    [portfolio] = run("portfolio", str(wallet), "--sources")
    price = Fraction(pool.root**2, 2**128) if mints[1] == USDC else Fraction(2**128, pool.root**2)
    balance, usd, _ = values(portfolio)[mint]
    assert (balance, Decimal(usd)) == ("4", rounded(price))
    assert portfolio["priceAdapters"] == ["pyth_accounts", "solana_pools"]


def provided(node: SolanaNode, wallet: Pubkey) -> Position:
    """A position in a pool of SOL and USDC at 150.25, which has earned 0.01 SOL and 2 USDC."""
    growth = (2**64 // 10**5, 2**64 // 500)  # of 10^9 units of liquidity: 10^4, and 2 * 10^6
    tick, liquidity = -18_955, 10**9
    pool = Pool(
        (WSOL, USDC), (str(Keypair().pubkey()), str(Keypair().pubkey())), 64, orca_root(tick), tick, 10**12, growth
    )
    edges = Tick(True, (0, 0))
    position = Position(pool, str(Keypair().pubkey()), liquidity, -20_480, -17_024, (edges, edges))
    pool_ledger = ledger.Ledger()
    write(pool_ledger, position, vaults=10**15)
    for address, (owner, content) in pool_ledger.accounts.items():
        put(node, address, owner, content)
    put(node, WSOL, str(TOKEN), ledger.mint(0, 9))
    put(node, USDC, str(TOKEN), ledger.mint(10**15, 6))
    give(node, wallet, position.mint, 1, 0)
    return position


async def test_a_position_of_orca_is_worth_its_sides_and_fees_to_the_unit_for_the_command_and_the_api(
    node: SolanaNode, run: Run, priced: None, tmp_path: Path
) -> None:
    wallet = Keypair().pubkey()
    await asyncio.to_thread(send_coins, node, wallet, 2 * 10**9)
    await asyncio.to_thread(give, node, wallet, JITO_MINT, 4 * 10**9)
    position = await asyncio.to_thread(provided, node, wallet)
    closing, fees, _ = await asyncio.to_thread(run_jobs, position.sdk_jobs(0))
    [portfolio] = await asyncio.to_thread(run, "portfolio", str(wallet))
    expected = {
        (WSOL, closing["tokenEstA"], "150.25"),
        (USDC, closing["tokenEstB"], "1"),
        (WSOL, fees["feeOwedA"], "150.25"),
        (USDC, fees["feeOwedB"], "1"),
    }
    assert worth_of(portfolio) == (expected, position.pool.address)
    assert portfolio["completeness"] == "complete"
    assert position.mint not in values(portfolio)  # it is shown as what it stands for
    total = Decimal(portfolio["chains"]["solana"]["value"])
    assert total == Decimal("1051.75") + sum(Decimal(raw) / UNITS[mint] * Decimal(usd) for mint, raw, usd in expected)
    async with open_client(load(tmp_path / "chainfolio.toml", {})) as ask:
        [served] = await ask(f"portfolio?addresses={wallet}")
        nav = await ask(f"nav?addresses={wallet}")
    assert worth_of(served) == (expected, position.pool.address)
    assert abs(Decimal(str(nav["nav"])) - total) < Decimal("0.01")


def worth_of(portfolio: dict[str, Any]) -> tuple[set[tuple[str, int, str]], str]:
    """The raws and prices of the one position in Orca, and its pool."""
    [kind] = portfolio["assetByProtocols"]["orca"]["chains"]["solana"]["protocolPositions"].values()
    [position] = kind["protocolPositions"]
    assets = [*position["supplyAssets"], *position["rewardAssets"]]
    return {
        (each["contract"], int(Decimal(each["balance"]) * UNITS[each["contract"]]), each["price"]) for each in assets
    }, position["poolAddress"]


MAIN_GROUP = "4qp6Fx6tnZkY5Wropq9wUYgtFxXKwE6viZxFHg3rdAG8"


def lent(node: SolanaNode, wallet: Pubkey) -> None:
    """10 SOL at Kamino against 500 USDC, and 4 SOL at MarginFi against 100, all without interest."""
    market, lending_ledger = str(Keypair().pubkey()), ledger.Ledger()
    flat: Any = {"shares": 4 * 10**12, "slot": 1, "curve": ((0, 0), *((10_000, 0),) * 10)}
    sol, usd = (
        kamino.Reserve(str(Keypair().pubkey()), market, mint, str(Keypair().pubkey()), **flat) for mint in (WSOL, USDC)
    )
    unit, debt = kamino.ONE, 500 * 10**6 * kamino.ONE
    kamino.write(
        lending_ledger,
        kamino.Obligation(str(Keypair().pubkey()), market, str(wallet), ((sol, 10**10),), ((usd, debt, unit),)),
    )
    coin, dollar = (
        marginfi.Bank(
            str(Keypair().pubkey()), MAIN_GROUP, mint, str(Keypair().pubkey()), time_s=1, ends=(0, 0), points=()
        )
        for mint in (WSOL, USDC)
    )
    has, owes = ((coin, 4 * 10**9 * marginfi.ONE),), ((dollar, 10**8 * marginfi.ONE),)
    marginfi.write(lending_ledger, marginfi.Account(str(Keypair().pubkey()), MAIN_GROUP, str(wallet), has, owes))
    for address, (owner, content) in lending_ledger.accounts.items():
        put(node, address, owner, content)


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_what_was_borrowed_counts_against_what_is_there(node: SolanaNode, run: Run, priced: None) -> None:
    wallet = Keypair().pubkey()
    send_coins(node, wallet, 2 * 10**9)
    put(node, WSOL, str(TOKEN), ledger.mint(0, 9))
    put(node, USDC, str(TOKEN), ledger.mint(10**15, 6))
    lent(node, wallet)
    [portfolio] = run("portfolio", str(wallet))
    assert portfolio["completeness"] == "complete"
    holdings = {}
    for protocol in ("kamino", "marginfi"):
        [kind] = portfolio["assetByProtocols"][protocol]["chains"]["solana"]["protocolPositions"].values()
        [position] = kind["protocolPositions"]
        sides = (position["supplyAssets"], position["borrowAssets"])
        holdings[protocol] = [[(each["contract"], each["balance"]) for each in side] for side in sides]
    assert holdings == {"kamino": [[(WSOL, "10")], [(USDC, "500")]], "marginfi": [[(WSOL, "4")], [(USDC, "100")]]}
    assert Decimal(portfolio["chains"]["solana"]["value"]) == (2 + 10 + 4) * Decimal("150.25") - 600
