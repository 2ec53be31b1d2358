"""The adapter on a node: rows, balances and positions are what the node itself keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from chainfolio.blocks import Span
from chainfolio.localchain.tron.blocks import TransactionRejected
from chainfolio.localchain.tron.forms import base58check
from chainfolio.localchain.tron.node import TronNode
from chainfolio.localchain.tron.state import TRX
from tests.tron.chains import chain
from tests.tron.test_node import People, token_made

pytestmark = pytest.mark.node

ALL = ("blocks", "transactions", "native", "internal", "transfers")


def busy(node: TronNode, people: People, blocks: int, seed: int = 5) -> dict[str, str]:
    """Make a history of random transactions of every kind and return its contracts."""
    alice, bob, carol = people
    chance = Random(seed)
    number, wrapped = token_made(node, alice), bob.deploy("WETH9")
    node.advance()
    alice.send("createTRXExchange", number, 10**9, 10**9, alice.hex)
    alice.pay(carol.hex, 10**10)
    alice.send("freezeBalanceV2", 10**12, "ENERGY", alice.hex)
    node.advance()
    witness = base58check(next(iter(node.state.witnesses)))
    actions = _actions(node, people, number, wrapped, witness, chance)
    for _ in range(blocks):
        for action in chance.sample(actions, 4):
            with suppress(TransactionRejected):  # not everything can be done at all times
                action(chance.randrange(1, 10**6))
        if chance.random() < 0.1:
            node.wait(chance.choice([86_400, 14 * 86_400]))
        node.advance()
    return {"trc10": number, "wrapped": wrapped}


def _actions(
    node: TronNode, people: People, number: str, wrapped: str, witness: str, chance: Random
) -> list[Callable[[int], str]]:
    """Return the actions that each take an amount of sun and return a transaction id."""
    alice, bob, carol = people
    return [
        lambda sun: alice.pay(bob.hex, sun),
        lambda sun: bob.pay(carol.hex, sun, memo="x"),
        lambda sun: carol.pay(f"41{chance.getrandbits(160):040x}", sun),
        lambda sun: bob.call(wrapped, "deposit()", sun=sun),
        lambda sun: bob.call(wrapped, "withdraw(uint256)", ("uint256", sun)),
        lambda sun: carol.call(wrapped, "deposit()", sun=sun, limit=sun),
        lambda sun: bob.call(wrapped, "transfer(address,uint256)", ("address", carol.hex), ("uint256", sun)),
        lambda sun: carol.call(wrapped, "approve(address,uint256)", ("address", bob.hex), ("uint256", sun), limit=sun),
        lambda sun: alice.send("sendToken", bob.hex, sun, number, alice.hex),
        lambda sun: alice.send("tradeExchangeTokens", 1, "_", sun, 1, alice.hex),
        lambda sun: bob.send("tradeExchangeTokens", 1, number, sun, 1, bob.hex),
        lambda sun: alice.send("vote", {witness: sun % 1_000 + 1}, alice.hex),
        lambda sun: alice.send("unfreezeBalanceV2", 3 * TRX + sun, "ENERGY", alice.hex),
        lambda sun: alice.send("withdrawExpireUnfreeze", alice.hex),
        lambda sun: alice.send("withdrawBlockRewards", alice.hex),
        lambda sun: alice.send("cancelUnfreezeBalanceV2", alice.hex),
        lambda sun: alice.send("delegateResource", TRX + sun, bob.hex, "ENERGY", alice.hex, False, 0),
    ]


def net(rows: Sequence[dict[str, Any]], account: str) -> int:
    """Return the sum of movements into an account less those out of it."""
    signed = ((int.from_bytes(row["raw"], "big"), row) for row in rows)
    return sum(raw * ((row["recipient"] == account) - (row["sender"] == account)) for raw, row in signed)


async def test_rows_and_fees_add_up_to_every_balance_at_every_block(
    node: TronNode, people: People, tmp_path: Path
) -> None:
    contracts = busy(node, people, 60)
    reads = chain(node, tmp_path, wrapped=contracts["wrapped"])
    collected = await reads.collect(Span(0, node.head.height), ALL)
    await reads.close()
    transfers, transactions = collected.tables["transfers"].to_pylist(), collected.tables["transactions"].to_pylist()
    unexplained_heights = {
        each.height for each in collected.unexplained
    }  # the issuer of a token may have frozen some of it
    assert len(unexplained_heights) <= 1
    assert {row["standard"] for row in transfers} >= {"native", "internal", "trc10", "trc20"}
    assert len(transactions) > 150
    addresses = {base58check(address): address for state in node.states for address in state.accounts}
    before = dict.fromkeys(addresses, 0)
    for height, state in enumerate(node.states):
        rows = [row for row in transfers if row["height"] == height]
        coins, trc10_rows = ([row for row in rows if row["token"] == token] for token in (None, contracts["trc10"]))
        for base58, address in addresses.items():
            fees = sum(
                int.from_bytes(row["fee"], "big")
                for row in transactions
                if (row["height"], row["sender"]) == (height, base58)
            )
            account = state.accounts.get(address)
            balance = account.balance if account else 0
            assert net(coins, base58) - fees == balance - before[base58], (height, base58)
            before[base58] = balance
            account_before = node.states[height - 1].accounts.get(address) if height else None
            had = account_before.assets.get(contracts["trc10"], 0) if account_before else 0
            has = account.assets.get(contracts["trc10"], 0) if account else 0
            assert net(trc10_rows, base58) == has - had or height in unexplained_heights


async def test_what_every_transaction_used_up_is_what_the_node_keeps(
    node: TronNode, people: People, tmp_path: Path
) -> None:
    busy(node, people, 15)
    reads = chain(node, tmp_path)
    assert "resources" not in reads.default_datasets, "who wants it names it"
    collected = await reads.collect(Span(1, node.head.height), ["transactions", "resources"])
    await reads.close()
    resources, transactions = (collected.tables[name].to_pylist() for name in ("resources", "transactions"))
    columns = {
        "energy": "energy_usage_total",
        "energy_staked": "energy_usage",
        "energy_of_contract": "origin_energy_usage",
        "energy_penalty": "energy_penalty_total",
        "energy_fee": "energy_fee",
        "bandwidth": "net_usage",
        "bandwidth_fee": "net_fee",
    }
    receipts = {info["id"]: info["receipt"] for block in node.blocks for info in block.infos}
    assert {row["tx_hash"]: [row[name] for name in columns] for row in resources} == {
        name: [receipt.get(each, 0) for each in columns.values()] for name, receipt in receipts.items()
    }
    assert any(row["energy_staked"] for row in resources)
    assert any(row["bandwidth_fee"] for row in resources)
    for row, transaction in zip(resources, transactions, strict=True):
        assert (row["tx_index"], row["tx_hash"], row["account"]) == tuple(
            transaction[name] for name in ("tx_index", "hash", "sender")
        )
        assert row["energy_fee"] + row["bandwidth_fee"] <= int.from_bytes(transaction["fee"], "big")
