"""Payments of the protocol to an account: records, reasons of balance changes, and income."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest

from chainfolio.engine.reconcile.reconciler import Reconciler
from chainfolio.engine.validators.stakes import Stakes
from chainfolio.indexer.registry import Protocol
from chainfolio.indexer.wiring import System
from chainfolio.localchain.evm import tx
from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.records import entries_of
from chainfolio.portfolio.pnl.transaction_records import record_of
from chainfolio.portfolio.transactions import TransactionDocument
from chainfolio.settings import Settings
from chainfolio.staking_tables import VALIDATORS, WITHDRAWALS
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.table import Table, bucket
from tests.chains.index import EVERYTHING, IndexOf
from tests.engine.test_transactions import ask
from tests.evm.limited import SETS, Provider, served
from tests.evm.paying import GWEI, PAYS, Paying, paying_chain

DATASETS = (*EVERYTHING, "internal", *PAYS)
pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def paying() -> Iterator[Paying]:
    with paying_chain() as chain:
        chain.node.mine(10)
        yield chain


@pytest.mark.slow("the same rows from another index", only=["everything"])
@pytest.mark.parametrize("scope", ["everything", "account"])
async def test_withdrawals_are_records_of_no_transaction_and_explain_the_balance(
    paying: Paying, scope: str, tmp_path: Path
) -> None:
    alice, tail = paying.address_of("alice"), Tail(tmp_path / "tail.db")
    without = () if scope == "everything" else SETS["state"]
    async with served(
        paying.node, paying.local.deployment, Provider(paying.node.url, without, paying.answer), pays=PAYS
    ) as chain:
        index = IndexOf(chain, Lake(str(tmp_path / "lake")), tail, DATASETS)
        last = (await chain.heads()).finalized
        await (index.fill(0, last) if scope == "everything" else index.fill_accounts([alice], 0, last))
        await index.materialise()
        documents = {each.hash: each for each in await ask(index, [alice])}
        heights = [height for height in paying.withdrawn if height <= last]
        records = [documents[paying.node.rpc("eth_getBlockByNumber", hex(at), False)["hash"]] for at in heights]
        check_records(records, alice, heights)
        minted = [each for each in documents.values() if each.block_number in paying.minted and each.sender == alice]
        assert {each.type for each in minted} == {"BRIDGEIN"}
        (reconciled,) = await Reconciler(chain, index.lake, tail, checkpoints=4).run([alice])
        native = str(chain.info.native.asset)
        assert {each.asset: each.status for each in reconciled.assets}[native] == "equal"
        gains = entries_of(list(map(record_of, records)), {alice}, Treatment()).entries
        assert {each.kind for each in gains} == {"income", "withdraw"}
        assert sum(each.quantity for each in gains) == (80_000_018 + 32 * GWEI) * GWEI
    tail.close()


def check_records(records: list[TransactionDocument], alice: str, heights: list[int]) -> None:
    """Check one record for each block, without sender, fee or explorer page."""
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


def beacon_of(address: str = "") -> Protocol:
    """Return the protocol of validator deposits, with `address` as its contract on the local chain."""
    protocol = next(each for each in System(Settings()).registry.on("ethereum") if each.key == "beacon")
    return msgspec.structs.replace(protocol, contracts={"local": {"deposit": [address]}} if address else {}, labels=[])


def append_rows(lake: Lake, table: Table, rows: list[dict[str, Any]]) -> None:
    every = [{column.name: None for column in table.columns} | {"chain": "own"} | row for row in rows]
    lake.append(table, pa.Table.from_pylist(every, table.schema()), stream="test", batch=1)


async def test_a_withdrawal_names_its_validators_where_the_beacon_chain_is_indexed(
    paying: Paying, tmp_path: Path
) -> None:
    alice, tail, lake = paying.address_of("alice"), Tail(tmp_path / "tail.db"), Lake(str(tmp_path / "lake"))
    async with served(
        paying.node, paying.local.deployment, Provider(paying.node.url, (), paying.answer), pays=PAYS
    ) as chain:
        index = IndexOf(chain, lake, tail, DATASETS)
        await index.fill(0, last := (await chain.heads()).finalized)
        await index.materialise()
        rows: list[dict[str, Any]] = []
        expected: dict[int, list[int]] = {}
        for height, block_withdrawals in paying.withdrawn.items():
            block_time = datetime.fromtimestamp(int(paying.node.block(height)["timestamp"], 16), UTC)
            for each in block_withdrawals:
                validator = 1000 - len(rows)
                rows.append(
                    {
                        "bucket": bucket(validator),
                        "validator": validator,
                        "epoch": 0,
                        "height": height,
                        "time": block_time,
                        "number": len(rows),
                        "address": each["address"],
                        "gwei": int(each["amount"], 16),
                    }
                )
                if each["address"] == alice and height <= last:
                    expected.setdefault(height, []).append(validator)
        append_rows(lake, WITHDRAWALS, rows)
        registry = [
            {
                "bucket": row["bucket"],
                "validator": row["validator"],
                "epoch": 0,
                "height": 0,
                "pubkey": "",
                "credentials": f"0x01{'00' * 11}{row['address'][2:]}",
                "effective": 0,
                "slashed": False,
            }
            for row in rows
        ]
        append_rows(lake, VALIDATORS, registry)
        beacon = cast(Any, SimpleNamespace(key="own"))
        stakes = Stakes(chain.info.native.asset, beacon, lake, tail)
        documents = [
            each for each in await ask(index, [alice], protocols=(beacon_of(),), stakes=stakes) if each.validators
        ]
        assert {
            each.block_number: list(cast(Any, each.validators))
            for each in documents
            if each.validators is not msgspec.UNSET
        } == expected
        assert any(len(validators) > 1 for validators in expected.values()), "several at once are one record"
        unknown = await ask(index, [alice], protocols=(beacon_of(),))
        withdrawals = [each for each in unknown if each.block_number in expected and each.protocol.key == "beacon"]
        assert len(withdrawals) == len(expected)
        assert {each.validators for each in withdrawals} == {msgspec.UNSET}
    tail.close()


async def test_a_deposit_for_a_validator_is_a_stake_of_its_sender(paying: Paying, tmp_path: Path) -> None:
    alice, contract, tail = paying.address_of("alice"), "0x" + "d0" * 20, Tail(tmp_path / "tail.db")
    paying.node.rpc("anvil_setCode", contract, "0x00")
    height = paying.node.settle(
        [
            tx(
                alice,
                contract,
                "deposit(bytes,bytes,bytes,bytes32)",
                b"1" * 48,
                b"2" * 32,
                b"3" * 96,
                b"4" * 32,
                value=32 * 10**18,
            )
        ]
    )
    paying.node.mine(70)
    async with served(
        paying.node, paying.local.deployment, Provider(paying.node.url, (), paying.answer), pays=PAYS
    ) as chain:
        index = IndexOf(chain, Lake(str(tmp_path / "lake")), tail, DATASETS)
        await index.fill(0, (await chain.heads()).finalized)
        await index.materialise()
        documents = await ask(index, [alice], protocols=(beacon_of(contract),))
        (deposit,) = [each for each in documents if each.block_number == height]
        assert (deposit.type, deposit.protocol.name, deposit.function_name) == (
            "STAKE",
            "Ethereum validators",
            "Deposit",
        )
        assert [each.balance for each in deposit.assets_out] == ["32"]
    tail.close()
