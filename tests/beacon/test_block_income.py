"""What proposed blocks brought on the execution chain, beside the balances of those who got it, to the wei."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chainfolio.settings import load
from cli.main import main
from engine.block_income import income
from engine.validator_records import records
from engine.validators import Range, ValidatorReward, Window
from indexer.wiring import System
from localchain.node import GENESIS_TIME
from tests.beacon.both import SLOT_S, Both, running

pytestmark = [pytest.mark.node, pytest.mark.xdist_group("beacon")]
PROPOSER, BUILDER, PAID, STRANGER = ("0x" + byte * 20 for byte in ("f1", "b1", "a1", "77"))
TIP, ETHER = 3 * 10**9, 10**18
BUSY = 24  # slots: three epochs


@dataclass
class Lived:
    """The nodes, and by slot what its block brought, as balances say it, and whether somebody else built it."""

    both: Both
    brought: dict[int, tuple[int, bool]]

    def by_proposer(self, epoch: int) -> dict[int, list[tuple[int, bool]]]:
        """What those who proposed in an epoch got."""
        found: dict[int, list[tuple[int, bool]]] = {}
        for slot in range(epoch * 8, epoch * 8 + 8):
            if slot in self.brought:
                header = self.both.beacon.call(f"/eth/v1/beacon/headers/{slot}")["data"]["header"]["message"]
                found.setdefault(int(header["proposer_index"]), []).append(self.brought[slot])
        return found


def send(both: Both, sender: str, to: str, wei: int, tip: int) -> None:
    both.execution.rpc(
        "eth_sendTransaction",
        {"from": sender, "to": to, "value": hex(wei), "gas": hex(50_000), "maxFeePerGas": hex(10**12),
         "maxPriorityFeePerGas": hex(tip)},
    )  # fmt: skip


def balance(both: Both, who: str, height: int) -> int:
    return int(both.execution.rpc("eth_getBalance", who, hex(height)), 16)


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
    who, height = (PAID if is_built else PROPOSER), node.height
    return balance(both, who, height) - balance(both, who, height - 1), is_built


@pytest.fixture(scope="module")
def lived() -> Iterator[Lived]:
    with running() as both:
        for who in (BUILDER, STRANGER):
            both.execution.rpc("anvil_setBalance", who, hex(1000 * ETHER))
            both.execution.rpc("anvil_impersonateAccount", who)
        brought = {slot: produce(both, slot) for slot in range(1, BUSY)}
        both.advance(80 - BUSY)
        yield Lived(both, brought)


@pytest.fixture(scope="module")
def config(lived: Lived, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = lived.both.settings(tmp_path_factory.mktemp("income"))
    assert main(["index", "own", "--config", str(path), "--json"]) == 0
    return path


def rewards(config: Path, validator: int, epochs: range, granularity: Any = "epoch") -> list[ValidatorReward]:
    async def asked() -> list[ValidatorReward]:
        system = System(load(config))
        try:
            within = Range("epoch", epochs[0], epochs[-1], granularity)
            return list((await records(system).rewards(validator, within, Window(0, 100))).rows)
        finally:
            await system.close()

    return asyncio.run(asked())


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
    for other in (
        text.replace('execution = "local"', 'execution = "elsewhere"'),
        text.replace(lived.both.execution.url, "http://127.0.0.1:9"),
    ):
        unknown = tmp_path / "chainfolio.toml"
        unknown.write_text(other)
        (bucket,) = rewards(unknown, validator, range(1, 2))
        assert (bucket.execution_reward, bucket.mev_blocks) == ("N/A", None)
        idle = next(each for each in range(64) if each not in lived.by_proposer(1))
        (bucket,) = rewards(unknown, idle, range(1, 2))
        assert (bucket.execution_reward, bucket.mev_blocks) == ("0", 0)


def test_another_block_at_that_height_is_refused(lived: Lived, config: Path, tmp_path: Path) -> None:
    (validator, _), *_ = lived.by_proposer(1).items()
    with running() as another:
        another.execution.mine(BUSY)
        unknown = tmp_path / "chainfolio.toml"
        unknown.write_text(config.read_text().replace(lived.both.execution.url, another.execution.url))
        (bucket,) = rewards(unknown, validator, range(1, 2))
    assert (bucket.execution_reward, bucket.mev_blocks) == ("N/A", None)


def raw(value: int) -> bytes:
    return value.to_bytes(32, "big")


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ({}, (0, 7)),
        ({"sender": STRANGER}, (21_000 * 2, 0)),
        ({"recipient": BUILDER}, (21_000 * 2, 0)),
        ({"recipient": None}, (21_000 * 2, 0)),
        ({"raw": raw(0)}, (21_000 * 2, 0)),
        ({"status": 0}, (21_000 * 2, 0)),
    ],
)
def test_only_coins_that_the_fee_recipient_sends_last_are_a_payment(
    last: dict[str, Any], expected: tuple[int, int]
) -> None:
    first = {"tx_index": 0, "sender": BUILDER, "recipient": PAID, "raw": raw(9), "status": 1, "gas_used": 21_000}
    payment = {**first, "tx_index": 1, "raw": raw(7), "gas_used": 21_000, "gas_price": raw(100), **last}
    block = {"miner": BUILDER, "base_fee": raw(100)}
    found = income(block, [payment, {**first, "gas_price": raw(102)}])
    assert (found.fees, found.payment, found.is_built) == (*expected, bool(expected[1]))
    assert income(block, []) == income({**block, "base_fee": None}, [])
