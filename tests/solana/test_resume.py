"""A back-fill that is killed is finished by the next run: every row once, with few repeated reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from bench.solana_history import Wallet, Watching, expected, serving
from chainfolio.adapters.solana.chain import SolanaChain, build
from chainfolio.adapters.solana.history import PIECE_SIZE
from chainfolio.adapters.solana.settings import SolanaSettings
from chainfolio.cli.watch import MAX_LOOKUPS
from chainfolio.environment import Environment
from chainfolio.indexer.collect import BATCH_REQUESTS
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.tables import TRANSFERS
from tests.chains.index import IndexOf
from tests.solana.fakes import ROOT

HISTORIES = ("transactions", "native", "transfers")


class Died(Exception):
    """The process is no more."""


@pytest.mark.slow("many kills of processes; the next test dies once")
def test_a_back_fill_that_is_killed_again_and_again_has_every_row_once_and_repeats_two_batches_at_most(
    tmp_path: Path,
) -> None:
    wallet, kills = Wallet(1_500), 0
    with serving(wallet) as url:
        broken = Watching(wallet, url, tmp_path)
        for after in (40, 215, 433, 250, 470):
            before = wallet.requests["getTransaction"]
            kills += broken.killed(after)
            assert wallet.requests["getTransaction"] > before
        broken.run_once()
        assert broken.rows() == expected(wallet)
        assert kills == 5
        repeated_reads = wallet.requests["getTransaction"] - wallet.count
        assert repeated_reads <= kills * 2 * max(PIECE_SIZE, BATCH_REQUESTS)
        assert broken.run_once() < 20 + MAX_LOOKUPS  # a run prepares gains of so many transactions more


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_a_back_fill_that_dies_after_1000_transactions_reads_at_most_400_again(tmp_path: Path) -> None:
    """Two batches of 200 requests: one that is being written, and one that is being read."""
    wallet = Wallet(1_500)
    with serving(wallet) as url:
        broken = Watching(wallet, url, tmp_path)
        assert broken.killed(1_000)
        broken.run_once()
        assert broken.rows() == expected(wallet)
        repeated_reads = wallet.requests["getTransaction"] - wallet.count
        assert repeated_reads <= 400 + MAX_LOOKUPS  # a run prepares gains of so many transactions more


@asynccontextmanager
async def indexing(url: str, folder: Path) -> AsyncIterator[IndexOf[SolanaChain]]:
    """An index in a folder, as after a restart."""
    chain = build("solana", SolanaSettings(adapter="solana", rpc=[url]), Environment(), configs=ROOT / "configs")
    tail = Tail(folder / "tail.db")
    try:
        yield IndexOf(chain, Lake(str(folder / "lake")), tail, HISTORIES)
    finally:
        tail.close()
        await chain.close()


async def test_a_batch_that_was_left_open_is_read_again_by_its_signatures_and_not_block_by_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> NoReturn:
        raise Died

    wallet = Wallet(30)
    with serving(wallet) as url:
        async with indexing(url, tmp_path) as indexed:
            last = (await indexed.chain.heads()).finalized
            monkeypatch.setattr(indexed.tail, "close_batch", dies)
            with pytest.raises(Died):
                await indexed.fill_accounts([wallet.owner], 0, last)
        wallet.requests.clear()
        async with indexing(url, tmp_path) as indexed:
            await indexed.fill_accounts([wallet.owner], 0, last)
            rows = indexed.stored(TRANSFERS.name).to_pylist()
    assert sorted(row["tx_hash"] for row in rows) == sorted(wallet.signatures[1:])
    assert wallet.requests["getTransaction"] == 30
    assert wallet.requests["getBlock"] < 5
