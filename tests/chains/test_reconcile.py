"""On every kind of chain, balances are the sums of movements, and one that an index lacks is found in its block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chainfolio.blocks import Span
from chainfolio.engine.reconcile.reconciler import Reconciler
from chainfolio.tables import TRANSFERS
from tests.chains.index import AnyIndex, index
from tests.chains.subject import ChainUnderTest


@asynccontextmanager
async def full_index(traded: ChainUnderTest, folder: Path) -> AsyncIterator[AnyIndex]:
    """Everything that moves something, up to the newest final block."""
    async with index(traded, folder) as indexed:
        indexed.datasets = tuple(each.name for each in indexed.chain.datasets.values() if each.history)
        await indexed.fill_final()
        yield indexed


@pytest.mark.needs_rows("transfers")
async def test_balances_of_coins_and_plain_tokens_are_the_sums_of_their_movements(
    traded: ChainUnderTest, tmp_path: Path
) -> None:
    async with full_index(traded, tmp_path) as indexed:
        info, last = indexed.chain.info, (await indexed.chain.heads()).finalized
        results = await Reconciler(indexed.chain, indexed.lake, indexed.tail).run(traded.accounts)
        plain = {str(info.native.asset), *(str(info.token_asset(token)) for token in traded.plain)}
        assets: set[str] = set()
        for each in results:
            states = {
                asset_status.asset: asset_status.status for asset_status in each.assets if asset_status.asset in plain
            }
            assert set(states.values()) == {"equal"}, (each.address, each.differences)
            assert (each.first_block, each.last_block) == (0, last)
            assets |= states.keys()
        assert str(info.native.asset) in assets
        assert len(assets) > len(plain) // 2


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
@pytest.mark.needs_rows("transfers")
async def test_a_movement_that_the_index_lacks_is_found_in_its_block(traded: ChainUnderTest, tmp_path: Path) -> None:
    async with full_index(traded, tmp_path) as indexed:
        rows = [row for row in indexed.stored(TRANSFERS.name).to_pylist() if row["token"] in traded.plain]
        incoming = [row for row in rows if row["recipient"] in traded.accounts and row["sender"] not in traded.accounts]
        missing_row = incoming[len(incoming) // 2]
        account = missing_row["recipient"]
        token = str(indexed.chain.info.token_asset(missing_row["token"]))
        indexed.lake.delete_span(indexed.key, Span(missing_row["height"], missing_row["height"]), [TRANSFERS])
        (reconciliation,) = await Reconciler(indexed.chain, indexed.lake, indexed.tail).run([account])
        blocks = {each.block for each in reconciliation.differences if each.asset == token}
        assert blocks == {missing_row["height"]}
        assert {each.cause for each in reconciliation.differences if each.block == missing_row["height"]} == {
            "missing_row"
        }, reconciliation
