"""The income of proposed blocks on the execution chain equals the balances of its recipients, to the wei."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from chainfolio.adapters.evm.chain import EvmChain, build
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.blocks import Span
from chainfolio.chain_results import SpanTables
from chainfolio.cli.main import main
from chainfolio.engine.validators import block_income
from chainfolio.engine.validators.block_income import CONCURRENCY, RETRY_AFTER_S, BlockIncome, income
from chainfolio.engine.validators.records import records
from chainfolio.engine.validators.results import Range, ValidatorReward, Window
from chainfolio.environment import Environment
from chainfolio.errors import NodeBehind
from chainfolio.indexer.wiring import System
from chainfolio.localchain.node import GENESIS_TIME
from chainfolio.settings_file import load
from chainfolio.storage.views import VALIDATOR_REWARDS_OF, decimal_of
from chainfolio.tables import TABLES
from tests.beacon.both import SLOT_S, Both, running
from tests.beacon.conftest import CONFIGS
from tests.evm.fakes import FakeClock

pytestmark = pytest.mark.node
PROPOSER, BUILDER, PAID, STRANGER = ("0x" + byte * 20 for byte in ("f1", "b1", "a1", "77"))
TIP, ETHER = 3 * 10**9, 10**18
BUSY = 24  # slots: three epochs


@dataclass
class Lived:
    """The nodes, and by slot the income of its block, from balances, and whether a builder made it."""

    both: Both
    brought: dict[int, tuple[int, bool]]

    def by_proposer(self, epoch: int) -> dict[int, list[tuple[int, bool]]]:
        """Return what the proposers of an epoch got."""
        wei_by_proposer: dict[int, list[tuple[int, bool]]] = {}
        for slot in range(epoch * 8, epoch * 8 + 8):
            if slot in self.brought:
                header = self.both.beacon.call(f"/eth/v1/beacon/headers/{slot}")["data"]["header"]["message"]
                wei_by_proposer.setdefault(int(header["proposer_index"]), []).append(self.brought[slot])
        return wei_by_proposer


def send(both: Both, sender: str, to: str, wei: int, tip: int) -> None:
    both.execution.rpc(
        "eth_sendTransaction",
        {
            "from": sender,
            "to": to,
            "value": hex(wei),
            "gas": hex(50_000),
            "maxFeePerGas": hex(10**12),
            "maxPriorityFeePerGas": hex(tip),
        },
    )


def balance(both: Both, address: str, height: int) -> int:
    return int(both.execution.rpc("eth_getBalance", address, hex(height)), 16)


def produce(both: Both, slot: int) -> tuple[int, bool]:
    """A block that its proposer made, one that a builder made and paid for, or one without transactions."""
    node, is_built = both.execution, slot % 3 == 0
    collector = BUILDER if is_built else PROPOSER
    node.rpc("anvil_setCoinbase", collector)
    with node.by_hand():
        if slot % 3 != 2:
            send(both, STRANGER, "0x" + "55" * 20, 1000, TIP)
            send(both, STRANGER, "0x" + "56" * 20, 1000, 2 * TIP + slot)
        if is_built:
            send(both, BUILDER, PAID, 10**16 + slot, 0)  # of the lowest tip, so that it is the last one
        node.rpc("evm_setNextBlockTimestamp", GENESIS_TIME + slot * SLOT_S)
        node.mine()
    both.carried(collector)
    address, height = (PAID if is_built else PROPOSER), node.height
    return balance(both, address, height) - balance(both, address, height - 1), is_built


@pytest.fixture(scope="module")
def lived() -> Iterator[Lived]:
    with running() as both:
        for address in (BUILDER, STRANGER):
            both.execution.rpc("anvil_setBalance", address, hex(1000 * ETHER))
            both.execution.rpc("anvil_impersonateAccount", address)
        brought = {slot: produce(both, slot) for slot in range(1, BUSY)}
        both.advance(80 - BUSY)
        yield Lived(both, brought)


@pytest.fixture(scope="module")
def config(lived: Lived, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = lived.both.settings(tmp_path_factory.mktemp("income"))
    assert main(["index", "own", "--config", str(path), "--json"]) == 0
    return path


def rewards(config: Path, validator: int, epochs: range, granularity: Any = "epoch") -> list[ValidatorReward]:
    async def read_rewards() -> list[ValidatorReward]:
        system = System(load(config))
        try:
            epoch_range = Range("epoch", epochs[0], epochs[-1], granularity)
            return list((await records(system).rewards(validator, epoch_range, Window(0, 100))).rows)
        finally:
            await system.close()

    return asyncio.run(read_rewards())


def test_a_block_brings_its_priority_fees_or_what_its_builder_paid(lived: Lived, config: Path) -> None:
    kinds = set()
    for epoch in range(3):
        for validator, blocks in lived.by_proposer(epoch).items():
            (bucket,) = rewards(config, validator, range(epoch, epoch + 1))
            assert bucket.proposed_blocks == len(blocks)
            assert bucket.execution_reward == str(sum(wei for wei, _ in blocks))
            assert bucket.mev_blocks == sum(is_built for _, is_built in blocks)
            kinds |= {(wei > 0, is_built) for wei, is_built in blocks}
    assert kinds == {(True, True), (True, False), (False, False)}


def test_buckets_add_up_what_their_blocks_brought(lived: Lived, config: Path) -> None:
    validator, _ = next(iter(lived.by_proposer(0).items()))
    blocks = [each for epoch in range(3) for each in lived.by_proposer(epoch).get(validator, [])]
    by_epoch, (day,) = (rewards(config, validator, range(3), each) for each in ("epoch", "day"))
    assert day.execution_reward == str(sum(wei for wei, _ in blocks))
    assert sum(int(each.execution_reward) for each in by_epoch) == int(day.execution_reward)
    assert day.mev_blocks == sum(is_built for _, is_built in blocks)


def test_without_the_execution_chain_what_blocks_brought_is_not_known_and_never_zero(
    lived: Lived, config: Path, tmp_path: Path
) -> None:
    (validator, _), *_ = lived.by_proposer(1).items()
    text = config.read_text()
    for config_text in (
        text.replace('execution = "local"', 'execution = "elsewhere"'),
        text.replace(lived.both.execution.url, "http://127.0.0.1:9"),
    ):
        unknown = tmp_path / "chainfolio.toml"
        unknown.write_text(config_text)
        (bucket,) = rewards(unknown, validator, range(1, 2))
        assert (bucket.execution_reward, bucket.mev_blocks) == ("N/A", None)
        idle = next(each for each in range(64) if each not in lived.by_proposer(1))
        (bucket,) = rewards(unknown, idle, range(1, 2))
        assert (bucket.execution_reward, bucket.mev_blocks) == ("0", 0)


def command_output(config: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return what a command prints."""
    capsys.readouterr()
    assert main([*words, "--config", str(config)]) == 0
    return capsys.readouterr().out


def by_sql(config: Path, capsys: pytest.CaptureFixture[str], validator: int) -> dict[int, tuple[int | None, ...]]:
    """`execution` and `mev` of the first epochs of a validator, from the tables alone."""
    query = f"SELECT * FROM validator_rewards_of({validator}) WHERE epoch < 3 ORDER BY epoch"
    rows = json.loads(command_output(config, capsys, "sql", query, "--json"))
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    return {
        row["epoch"]: tuple(None if row[name] is None else int(row[name]) for name in ("execution", "mev"))
        for row in rows
    }


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_rows_of_rewards_have_what_blocks_brought_where_the_execution_chain_is_indexed(
    lived: Lived, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full_config = tmp_path / "chainfolio.toml"
    full_config.write_text(config.read_text().replace(str(config.parent), str(tmp_path)))
    assert main(["index", "own", "--config", str(full_config), "--json"]) == 0
    blocks = {epoch: lived.by_proposer(epoch) for epoch in range(3)}
    proposers = sorted({each for by_proposer in blocks.values() for each in by_proposer})[:6]
    built_values = {
        is_built for by_proposer in blocks.values() for each in proposers for _, is_built in by_proposer.get(each, [])
    }
    assert built_values == {True, False}
    for validator in proposers:
        for epoch, epoch_income in by_sql(full_config, capsys, validator).items():
            assert epoch_income == ((None, None) if validator in blocks[epoch] else (0, 0)), "not indexed is not zero"
    arguments = ["index", "local", "--datasets", "blocks,transactions", "--config", str(full_config), "--json"]
    assert main(arguments) == 0
    for validator in proposers:
        for epoch, epoch_income in by_sql(full_config, capsys, validator).items():
            proposals = blocks[epoch].get(validator, [])
            fees, payments = (sum(wei for wei, is_built in proposals if is_built == built) for built in (False, True))
            assert epoch_income == (fees, payments), (validator, epoch)


def test_the_command_tells_what_blocks_brought_in_documents_and_in_spreadsheets(
    lived: Lived, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (validator, blocks), *_ = lived.by_proposer(1).items()
    arguments = ("validators", str(validator), "--by", "epoch")
    (document,) = json.loads(command_output(config, capsys, *arguments, "--json"))
    rows = list(csv.DictReader(io.StringIO(command_output(config, capsys, *arguments, "--csv"))))
    expected = (str(sum(wei for wei, _ in blocks)), sum(is_built for _, is_built in blocks))
    assert (document["rewards"][1]["executionReward"], document["rewards"][1]["mevBlocks"]) == expected
    assert (rows[1]["executionReward"], int(rows[1]["mevBlocks"])) == expected
    alone = tmp_path / "chainfolio.toml"
    alone.write_text(config.read_text().replace('execution = "local"', 'execution = "elsewhere"'))
    (document,) = json.loads(command_output(alone, capsys, *arguments, "--json"))
    rows = list(csv.DictReader(io.StringIO(command_output(alone, capsys, *arguments, "--csv"))))
    assert (document["rewards"][1]["executionReward"], document["rewards"][1]["mevBlocks"]) == ("N/A", None)
    assert (rows[1]["executionReward"], rows[1]["mevBlocks"]) == ("N/A", "")


def test_another_block_at_that_height_is_refused(lived: Lived, config: Path, tmp_path: Path) -> None:
    (validator, _), *_ = lived.by_proposer(1).items()
    with running() as another:
        another.execution.mine(BUSY)
        unknown = tmp_path / "chainfolio.toml"
        unknown.write_text(config.read_text().replace(lived.both.execution.url, another.execution.url))
        (bucket,) = rewards(unknown, validator, range(1, 2))
    assert (bucket.execution_reward, bucket.mev_blocks) == ("N/A", None)


async def test_a_block_that_the_node_lacks_is_asked_for_again_only_a_minute_later(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, clock = lived.both.execution, FakeClock()
    chain = build("local", EvmSettings(rpc=[node.url]), Environment(clock=clock), configs=CONFIGS)
    read: list[int] = []
    lacks = {8}  # the heights of the blocks that the node does not have yet

    async def collect(self: EvmChain, span: Span, datasets: Sequence[str]) -> SpanTables:
        read.append(span.first)
        if span.first in lacks:
            raise NodeBehind("local", f"does not have block {span.first}")
        return await collect_of_node(self, span, datasets)

    collect_of_node = EvmChain.collect
    monkeypatch.setattr(EvmChain, "collect", collect)
    income_of = BlockIncome(chain, clock)
    blocks = {str(node.block(height)["hash"]): height for height in (7, 8, 9)}
    available = [block for block, height in blocks.items() if height != 8]
    assert list(await income_of.of(blocks)) == available, "the block that is missing costs the others nothing"
    assert list(await income_of.of(blocks)) == available
    assert read == [7, 8, 9], "no block is asked for again"
    lacks.clear()
    clock.now_s += RETRY_AFTER_S
    assert list(await income_of.of(blocks)) == list(blocks), "the node was late"
    assert read == [7, 8, 9, 8]
    await chain.close()


async def test_a_node_without_any_of_the_blocks_is_asked_for_a_few_of_them(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, clock = lived.both.execution, FakeClock()
    chain = build("local", EvmSettings(rpc=[node.url]), Environment(clock=clock), configs=CONFIGS)
    read: list[int] = []

    async def collect(self: EvmChain, span: Span, datasets: Sequence[str]) -> SpanTables:
        read.append(span.first)
        raise NodeBehind("local", f"does not have block {span.first}")

    monkeypatch.setattr(EvmChain, "collect", collect)
    monkeypatch.setattr(block_income, "MAX_CACHED_BLOCKS", 50)
    income_of = BlockIncome(chain, clock)
    blocks = {f"0x{height:064x}": height for height in range(1000, 1100)}
    for _ in range(2):
        assert await income_of.of(blocks) == {}
    assert read == [*range(1000, 1000 + CONCURRENCY), *range(1000, 1000 + CONCURRENCY)], (
        "the oldest refusals are forgotten"
    )
    assert len(income_of._retry_at_s) == 50
    await chain.close()


def raw(value: int) -> bytes:
    return value.to_bytes(32, "big")


LAST: list[tuple[dict[str, Any], tuple[int, int]]] = [
    ({}, (0, 7)),
    ({"sender": STRANGER}, (21_000 * 2, 0)),
    ({"recipient": BUILDER}, (21_000 * 2, 0)),
    ({"recipient": None}, (21_000 * 2, 0)),
    ({"raw": raw(0)}, (21_000 * 2, 0)),
    ({"status": 0}, (21_000 * 2, 0)),
]


@pytest.mark.parametrize(("last", "expected"), LAST)
def test_only_coins_that_the_fee_recipient_sends_last_are_a_payment(
    last: dict[str, Any], expected: tuple[int, int]
) -> None:
    first = {"tx_index": 0, "sender": BUILDER, "recipient": PAID, "raw": raw(9), "status": 1, "gas_used": 21_000}
    payment = {**first, "tx_index": 1, "raw": raw(7), "gas_used": 21_000, "gas_price": raw(100), **last}
    block = {"miner": BUILDER, "base_fee": raw(100)}
    result = income(block, [payment, {**first, "gas_price": raw(102)}])
    assert (result.fees, result.payment, result.is_built) == (*expected, bool(expected[1]))
    assert income(block, []) == income({**block, "base_fee": None}, [])


def of_rows(
    blocks: list[dict[str, Any]], transactions: list[dict[str, Any]], proposed: int = 1, payload: str | None = "0xb"
) -> tuple[Any, Any]:
    """`execution` and `mev` of the macro, of an epoch in which validator 7 proposed one block."""
    rows: dict[str, list[dict[str, Any]]] = {
        "validator_rewards": [{"chain": "own", "bucket": 7, "validator": 7, "epoch": 1, "proposed": proposed}],
        "proposals": [
            {
                "chain": "own",
                "bucket": 7,
                "validator": 7,
                "epoch": 1,
                "height": 9,
                "execution_height": 5,
                "execution_hash": payload,
            }
        ],
        "blocks": [{"chain": "local", "height": 5, "hash": "0xb", "tx_count": 2, **each} for each in blocks],
        "transactions": [{"chain": "local", "height": 5, **each} for each in transactions],
    }
    with duckdb.connect() as database:
        for name, table_rows in rows.items():
            table = pa.Table.from_pylist(table_rows, TABLES[name].schema())
            database.register(f"{name}_found", table)
            raws = [each.name for each in TABLES[name].columns if each.type == "raw"]
            columns = ", ".join(["*", *(f"{decimal_of(each)} AS {each}_dec" for each in raws)])
            database.execute(f"CREATE VIEW {name} AS SELECT {columns} FROM {name}_found")
        database.execute(VALIDATOR_REWARDS_OF)
        (found_row,) = database.execute("SELECT execution, mev FROM validator_rewards_of(7)").fetchall()
    return tuple(None if each is None else int(each) for each in found_row)  # type: ignore[return-value]


BLOCK = {"miner": BUILDER, "base_fee": raw(100)}
FIRST = {"tx_index": 0, "sender": BUILDER, "recipient": PAID, "raw": raw(9), "status": 1, "gas_used": 21_000}
PAIR = [{**FIRST, "gas_price": raw(102)}, {**FIRST, "tx_index": 1, "raw": raw(7), "gas_price": raw(100)}]


@pytest.mark.parametrize(("last", "expected"), LAST)
def test_the_tables_and_the_answers_know_the_same_payments(last: dict[str, Any], expected: tuple[int, int]) -> None:
    assert of_rows([BLOCK], [PAIR[0], {**PAIR[1], **last}]) == expected


def test_tables_that_lack_something_know_no_income_and_a_block_in_two_chains_is_paid_once() -> None:
    no_rows: list[dict[str, Any]] = []
    assert of_rows([BLOCK], PAIR[:1]) == (None, None), "a transaction is missing"
    assert of_rows([BLOCK], no_rows) == of_rows(no_rows, PAIR) == of_rows(no_rows, no_rows) == (None, None)
    assert of_rows([{**BLOCK, "hash": "0xc"}], PAIR) == (None, None), "another block stands there"
    assert of_rows([BLOCK], [PAIR[0], {**PAIR[1], "gas_price": b"\xff" * 32}]) == (None, None), "no decimal holds it"
    assert of_rows([BLOCK], [PAIR[0], {**PAIR[1], "raw": b"\xff" * 32}]) == (None, None)
    assert of_rows([BLOCK], PAIR, proposed=2) == (None, None), "a block is in no row of proposals"
    assert of_rows([{**BLOCK, "tx_count": 0}], no_rows) == of_rows(no_rows, no_rows, payload=None) == (0, 0)
    twin_rows = [{**each, "chain": "twin"} for each in PAIR]
    twin = {**BLOCK, "chain": "twin"}
    assert of_rows([BLOCK, twin], [*PAIR, *twin_rows]) == of_rows([BLOCK, twin], [*PAIR, *twin_rows[:1]]) == (0, 7)
