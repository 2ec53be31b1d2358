"""What the protocol itself paid an account, in everything that answers: a record, a reason of its balance, income."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.reconcile import Reconciler
from portfolio.pnl.records import Treatment, entries_of
from portfolio.transactions import TransactionDocument
from storage.lake import Lake
from storage.tail import Tail
from tests.chains.index import EVERYTHING, IndexOf
from tests.engine.test_transactions import ask
from tests.evm.limited import SETS, Provider, served
from tests.evm.paying import GWEI, PAYS, Paying, paying_chain

DATASETS = (*EVERYTHING, "internal", *PAYS)
pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def paying() -> Iterator[Paying]:
    with paying_chain() as found:
        found.node.mine(10)
        yield found


@pytest.mark.parametrize("scope", ["everything", "account"])
async def test_withdrawals_are_records_of_no_transaction_and_explain_the_balance(
    paying: Paying, scope: str, tmp_path: Path
) -> None:
    alice, tail = paying.who("alice"), Tail(tmp_path / "tail.db")
    without = () if scope == "everything" else SETS["state"]
    async with served(
        paying.node, paying.local.deployment, Provider(paying.node.url, without, paying.told), pays=PAYS
    ) as chain:
        index = IndexOf(chain, Lake(str(tmp_path / "lake")), tail, DATASETS)
        last = (await chain.heads()).finalized
        await (index.fill(0, last) if scope == "everything" else index.fill_accounts([alice], 0, last))
        await index.materialise()
        found = {each.hash: each for each in await ask(index, [alice])}
        heights = [height for height in paying.withdrawn if height <= last]
        records = [found[paying.node.rpc("eth_getBlockByNumber", hex(at), False)["hash"]] for at in heights]
        check_records(records, alice, heights)
        minted = [each for each in found.values() if each.block_number in paying.minted and each.sender == alice]
        assert {each.type for each in minted} == {"BRIDGEIN"}
        (reconciled,) = await Reconciler(chain, index.lake, tail, checkpoints=4).run([alice])
        native = str(chain.info.native.asset)
        assert {each.asset: each.status for each in reconciled.assets}[native] == "equal"
        gains = entries_of(records, {alice}, Treatment()).entries
        assert {each.kind for each in gains} == {"income", "withdraw"}
        assert sum(each.quantity for each in gains) == (80_000_018 + 32 * GWEI) * GWEI
    tail.close()


def check_records(records: list[TransactionDocument], alice: str, heights: list[int]) -> None:
    """One for each block; nobody sent it, nobody paid for it, and no explorer has a page of it."""
    assert len(records) == 5
    for record, height in zip(records, heights, strict=True):
        assert (record.block_number, record.recipient, record.fees) == (height, alice, "0")
        assert record.sender == "0x" + "0" * 40
        assert (record.assets_out, record.flags) == ((), ())
        assert "explorer_url" not in {
            name for name in record.__struct_fields__ if isinstance(getattr(record, name), str)
        }
    assert [record.type for record in records] == ["COLLECT"] * 4 + ["UNSTAKE"]
    assert [len(record.assets_in) for record in records] == [2, 2, 2, 2, 1]
    assert records[0].assets_in[0].balance == "0.02"
