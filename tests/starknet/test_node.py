"""A real node: transfers and fees as rows, balances at any block, names, a reorganisation, the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.starknet.accounts import balances, describe
from chainfolio.adapters.starknet.chain import StarknetChain
from chainfolio.blocks import Block, Span
from chainfolio.chain_results import IndexedTransaction
from chainfolio.cli.main import main
from chainfolio.errors import Reorged
from chainfolio.plans import Unknown, run_batched
from tests.starknet.conftest import AMOUNTS, TransferWorld, facts_file

pytestmark = pytest.mark.node


async def _at(chain: StarknetChain, block: Block, reads: Sequence[Any]) -> list[Any]:
    """Answer reads at a block."""
    return await chain.answer(reads, block)


ALL = ("blocks", "transactions", "native", "transfers")


async def test_sums_of_rows_are_what_the_chain_says_at_every_block(
    transfers: TransferWorld, chain: StarknetChain
) -> None:
    head = (await chain.heads()).latest.height
    tables = (await chain.collect(Span(0, head), ALL)).tables
    transactions = tables["transactions"].to_pylist()
    assert [row["hash"] for row in transactions][-len(AMOUNTS) :] == transfers.hashes
    for height in range(1, head + 1):
        for account in transfers.accounts[:2]:
            change = transfers.balance(account, height) - transfers.balance(account, height - 1)
            rows = [row for row in tables["transfers"].to_pylist() if row["height"] == height]
            assert {row["standard"] for row in rows} <= {"native"}
            net_amount = sum(int.from_bytes(row["raw"], "big") for row in rows if row["recipient"] == account)
            net_amount -= sum(int.from_bytes(row["raw"], "big") for row in rows if row["sender"] == account)
            fees = [
                int.from_bytes(row["fee"], "big")
                for row in transactions
                if (row["height"], row["sender"]) == (height, account)
            ]
            assert net_amount - sum(fees) == change


async def test_balances_are_read_at_the_hash_of_any_block(transfers: TransferWorld, chain: StarknetChain) -> None:
    head = (await chain.heads()).latest.height
    coin, missing_token = chain.info.native.asset, chain.info.token_asset(f"0x{0xDEAD:064x}")
    for height in (1, head // 2, head):
        block = await chain.block(height)
        pairs = [(transfers.accounts[1], coin), (transfers.accounts[1], missing_token)]
        report = await run_batched({"all": balances(chain.facts, pairs)}, partial(_at, chain, block))
        raw, absent = report["all"].result or []
        assert raw == transfers.balance(transfers.accounts[1], height)
        assert isinstance(absent, Unknown)


async def test_the_coin_says_what_it_is_called(chain: StarknetChain) -> None:
    block, coin = (await chain.heads()).latest, chain.info.native.asset
    report = await run_batched({"all": describe(chain.facts, [coin])}, partial(_at, chain, block))
    token = (report["all"].result or {})[coin]
    assert (token.symbol, token.name, token.decimals) == ("ETH", "ether", 18)


async def test_a_transaction_is_looked_up(transfers: TransferWorld, chain: StarknetChain) -> None:
    await chain.heads()
    receipt = transfers.devnet.rpc("starknet_getTransactionReceipt", hex(int(transfers.hashes[0], 16)))
    indexed = IndexedTransaction(transfers.hashes[0], receipt["block_number"], 0, 0, None, True)
    (details,) = await chain.look_up([indexed])
    assert details.sender == transfers.accounts[0]
    assert details.recipient == chain.facts.coin
    assert (details.fee, details.failed) == (int(receipt["actual_fee"], 16), False)


async def test_a_block_that_the_chain_took_back_is_a_reorganisation(
    transfers: TransferWorld, chain: StarknetChain
) -> None:
    transfers.devnet.http("/create_block", {})
    before = (await chain.heads()).latest
    transfers.devnet.forget(before.height)
    transfers.devnet.transfer((2, transfers.accounts[3], 5), (2, transfers.accounts[3], 7))
    with pytest.raises(Reorged):
        await chain.collect(Span(before.height + 1, before.height + 1), ALL, before=before)


def test_a_wallet_is_indexed_and_answered_about_by_the_command_line(
    transfers: TransferWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = f'[chains.starknet]\nadapter = "starknet"\nrpc = ["{transfers.devnet.url}/rpc"]\n'
    (tmp_path / "chainfolio.toml").write_text(f'data = "data"\n{settings}facts = "{facts_file(tmp_path)}"\n')
    assert main(["index", "starknet"]) == 0
    capsys.readouterr()
    assert main(["portfolio", transfers.accounts[1], "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    height = transfers.devnet.rpc("starknet_blockNumber")
    raw = transfers.balance(transfers.accounts[1], height)
    assert str(raw) in json.dumps(answer) or f"{raw / 10**18}" in json.dumps(answer)
    assert main(["transactions", transfers.accounts[1], "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {each["hash"] for each in document["transactions"]} >= set(transfers.hashes)
