"""Fees paid by accounts up to any block equal those of a real node's receipts, or are unknown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from chainfolio.engine.rows import ChainIndex
from tests.chains.account_rows import fees_at
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import EVERYTHING, Index, index

pytestmark = pytest.mark.node
LAST = 24


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(LAST) as chain:
        yield chain


def of_receipts(subject: EvmSubject, accounts: list[str], height: int) -> dict[str, int]:
    fees = dict.fromkeys(accounts, 0)
    for number in range(height + 1):
        for receipt in subject.node.rpc("eth_getBlockReceipts", hex(number)):
            if receipt["from"] in fees:
                fees[receipt["from"]] += int(receipt["gasUsed"], 16) * int(receipt["effectiveGasPrice"], 16)
    return fees


def wallets(subject: EvmSubject) -> list[str]:
    """The wallets, and a contract that they call: it pays for none of that."""
    return [*(account.lower() for account in subject.deployment.accounts.values()), subject.token("WETH")]


async def of_index(indexed: Index, accounts: list[str], height: int) -> dict[str, int]:
    block = await indexed.chain.block(height)
    return fees_at(ChainIndex(indexed.lake, indexed.tail, indexed.key), accounts, block)


async def test_fees_are_those_of_the_receipts_wherever_the_rows_lie(subject: EvmSubject, tmp_path: Path) -> None:
    accounts = wallets(subject)
    async with index(subject, tmp_path) as indexed:
        await indexed.fill(0, 9)
        await indexed.materialise()
        await indexed.fill(10, 16)
        await indexed.follower().step()
        assert indexed.tail.rows(indexed.key, "transactions", 0, 2**40)
        for height in (0, 5, 9, 12, 16, subject.height):
            fees = await of_index(indexed, accounts, height)
            assert fees == of_receipts(subject, accounts, height), height
        assert max(fees.values()) > fees[subject.token("WETH")] == 0
        assert await of_index(indexed, ["0x" + "12" * 20], 16) == {"0x" + "12" * 20: 0}


async def test_without_all_blocks_or_of_another_block_nothing_is_known(subject: EvmSubject, tmp_path: Path) -> None:
    accounts = wallets(subject)
    without = tuple(name for name in EVERYTHING if name != "transactions")
    async with index(subject, tmp_path / "without", datasets=without) as indexed:
        await indexed.fill(0, 9)
        assert await of_index(indexed, accounts, 5) == {}
    async with index(subject, tmp_path / "late") as indexed:
        await indexed.fill(1, 9)
        assert await of_index(indexed, accounts, 5) == {}
    async with index(subject, tmp_path / "other") as indexed:
        await indexed.fill(0, 16)
        await indexed.follower().step()
        top = await indexed.chain.block(subject.height)
        args = ChainIndex(indexed.lake, indexed.tail, indexed.key), accounts
        assert fees_at(*args, top) != {}
        assert fees_at(*args, replace(top, hash="0x" + "ab" * 32)) == {}
