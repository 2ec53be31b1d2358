"""Transactions over HTTP are those of the receipts: every one that a wallet took part in, and nothing else."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from chainfolio.amounts import text
from chainfolio.localchain.evm import topic, tx
from tests.e2e.conftest import Server, Serving, World

pytestmark = pytest.mark.node

# Where the wallet's address stands among the topics of each event that says it took part.
PARTIES = {
    topic("Transfer(address,address,uint256)"): (1, 2),
    topic("TransferSingle(address,address,address,uint256,uint256)"): (2, 3),
    topic("TransferBatch(address,address,address,uint256[],uint256[])"): (2, 3),
    topic("Approval(address,address,uint256)"): (1,),
    topic("ApprovalForAll(address,address,bool)"): (1,),
}
OF_WETH = {topic("Deposit(address,uint256)"), topic("Withdrawal(address,uint256)")}


def receipts_of(world: World, wallet: str) -> dict[str, dict[str, Any]]:
    """The receipts of all that a wallet took part in, read one by one, the newest first."""
    receipts_by_hash = {}
    weth, padded = world.deployment.contracts["WETH"].lower(), "0x" + "0" * 24 + wallet[2:]
    for height in range(world.node.height, -1, -1):
        block = world.node.rpc("eth_getBlockByNumber", hex(height), True)
        receipts = world.node.rpc("eth_getBlockReceipts", hex(height))
        for transaction, receipt in reversed(list(zip(block["transactions"], receipts, strict=True))):
            is_party = transaction["from"] == wallet
            is_party |= transaction["to"] == wallet
            for log in receipt["logs"]:
                positions = PARTIES.get(log["topics"][0], ())
                is_party |= any(
                    log["topics"][position] == padded for position in positions if position < len(log["topics"])
                )
                is_party |= log["topics"][0] in OF_WETH and log["address"] == weth and log["topics"][1] == padded
            if is_party:
                receipts_by_hash[transaction["hash"]] = {
                    **receipt,
                    "value": transaction["value"],
                    "timestamp": block["timestamp"],
                }
    return receipts_by_hash


def ether(world: World, height: int) -> Decimal | None:
    """Return the feed's price at the end of a block; None before there was one."""
    feed = world.deployment.feeds["ETH"]
    if world.node.rpc("eth_getCode", feed, hex(height)) == "0x":
        return None
    return Decimal(world.node.call(feed, "latestAnswer()(int256)", block=height)).scaleb(-8)


async def walk(server: Server, query: str, limit: int) -> list[dict[str, Any]]:
    transactions: list[dict[str, Any]] = []
    while True:
        page = (await server.json(f"/v1/transactions?{query}&limit={limit}&offset={len(transactions)}"))["transactions"]
        transactions += page
        if len(page) < limit:
            return transactions


async def test_each_wallet_did_what_the_receipts_say(world: World, serving: Serving) -> None:
    async with serving(world) as server:
        await server.at(world.node.height)
        for name, wallet in world.wallets.items():
            right = receipts_of(world, wallet)
            transactions = await walk(server, f"addresses={wallet}", 25)
            assert [each["hash"] for each in transactions] == list(right), name
            for each in transactions:
                receipt = right[each["hash"]]
                fee = int(receipt["gasUsed"], 16) * int(receipt["effectiveGasPrice"], 16)
                assert Decimal(each["fees"]) == Decimal(fee).scaleb(-18)
                assert Decimal(each["value"]) == Decimal(int(receipt["value"], 16)).scaleb(-18)
                assert each["timestamp"] == str(int(receipt["timestamp"], 16))
                assert each["blockNumber"] == int(receipt["blockNumber"], 16)
                assert each["from"] == receipt["from"]
                assert each["to"] == (receipt["to"] or receipt["contractAddress"])
                assert each["chain"] == {"key": "local", "name": "Local"}
                assert each["user"] == {"address": wallet}
                assert (each["type"] == "FAILED") is (receipt["status"] == "0x0")
                coin = ether(world, each["blockNumber"])
                assert each["feesFiat"] == ("N/A" if coin is None else text(Decimal(each["fees"]) * coin))
                assert each["valueFiat"] == ("N/A" if coin is None else text(Decimal(each["value"]) * coin))


async def test_what_came_and_left_is_how_each_balance_came_about(world: World, serving: Serving) -> None:
    async with serving(world) as server:
        await server.at(world.node.height)
        for wallet in world.wallets.values():
            transactions = await walk(server, f"addresses={wallet}", 250)
            for symbol in ("USDC", "WETH", "WBTC"):
                contract = world.deployment.tokens[symbol].address.lower()
                total = sum(
                    (
                        Decimal(asset["balance"]) * sign
                        for each in transactions
                        for key, sign in (("assetsIn", 1), ("assetsOut", -1))
                        for asset in each[key]
                        if asset["contract"] == contract
                    ),
                    Decimal(0),
                )
                raw = world.node.call(contract, "balanceOf(address)(uint256)", wallet)
                assert total == Decimal(raw).scaleb(-world.deployment.tokens[symbol].decimals), symbol


@pytest.mark.slow("tests/engine/test_transactions.py merges the lists of wallets too")
async def test_wallets_together_are_their_lists_merged(world: World, serving: Serving) -> None:
    async with serving(world) as server:
        await server.at(world.node.height)
        wallets = list(world.wallets.values())[:3]
        alone = [each for wallet in wallets for each in await walk(server, f"addresses={wallet}", 250)]
        both = await walk(server, "addresses=" + ",".join(wallets) + "&sort=ASC", 17)
        key = "hash"
        assert sorted((e[key], e["user"]["address"]) for e in both) == sorted(
            (e[key], e["user"]["address"]) for e in alone
        )
        times = [(int(each["timestamp"]), each["blockNumber"]) for each in both]
        assert times == sorted(times)
        swaps = await walk(server, "addresses=" + ",".join(wallets) + "&sort=ASC&txTypes=SWAP", 3)
        assert swaps == [each for each in both if each["type"] == "SWAP"]
        assert swaps


@pytest.mark.slow("tests/engine/test_transaction_reorgs.py reads pages while blocks come and go")
async def test_a_client_that_pages_by_offset_meets_everything_once_while_blocks_come_and_go(
    world: World, serving: Serving
) -> None:
    snapshot = world.node.snapshot()
    try:
        async with serving(world) as server:
            alice = world.wallets["alice"]
            gift = tx(alice, world.deployment.contracts["WETH"], "deposit()", value=1)
            await server.at(world.node.settle([gift, gift]))
            right = list(receipts_of(world, alice))
            hashes: list[str] = []
            for kind in ("blocks", "reorganisation", "blocks", "blocks"):
                page = await server.json(f"/v1/transactions?addresses={alice}&limit=7&offset={len(hashes)}")
                hashes += [each["hash"] for each in page["transactions"]]
                if kind == "reorganisation":
                    world.node.reorg(1)
                await server.at(world.node.settle([gift]))
            assert hashes == right[:28]
            # From the beginning it is another list.
            newest = await server.json(f"/v1/transactions?addresses={alice}&limit=7&offset=0")
            assert (
                [each["hash"] for each in newest["transactions"]] == list(receipts_of(world, alice))[:7] != hashes[:7]
            )
    finally:
        world.node.revert(snapshot)
