"""Answers and blocks of mainnet and of a devnet, as nodes gave them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chainfolio.adapters.beacon import rows
from chainfolio.adapters.beacon.block_responses import SignedBlock
from chainfolio.adapters.beacon.responses import (
    AttestationRewards,
    BlockReward,
    Genesis,
    NodeVersion,
    ValidatorState,
    response_decoder,
)
from chainfolio.adapters.beacon.spec import Spec
from chainfolio.blocks import Block

RECORDED = Path(__file__).parents[3] / "shared" / "data" / "beacon"
pytestmark = pytest.mark.skipif(not RECORDED.exists(), reason="no recorded data beside this checkout")
SPEC = Spec("node", Genesis(1_606_824_023, "0x" + "0" * 64, "0x"), {"SLOTS_PER_EPOCH": "32", "SECONDS_PER_SLOT": "12"})


def recorded(name: str) -> list[dict[str, Any]]:
    """The exchanges of a file."""
    with gzip.open(RECORDED / f"{name}.http.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def answer(exchange: dict[str, Any], kind: Any) -> Any:
    """Decode the response of an exchange."""
    return response_decoder(kind)("node", msgspec.json.encode(exchange["json"])).data


def test_the_reward_of_a_block_of_mainnet_is_the_sum_of_its_parts() -> None:
    block, _ = recorded("rewards")
    reward = answer(block, BlockReward)
    assert (reward.proposer_index, reward.total) == (1515282, 42294581)
    assert (reward.attestations, reward.sync_aggregate) == (40696997, 1597584)


def test_the_rewards_of_two_validators_of_mainnet_are_9704_gwei_each() -> None:
    rewards = answer(recorded("rewards")[1], AttestationRewards)
    assert {each.validator_index: each.source + each.target + each.head for each in rewards.total_rewards} == {
        195766: 9704,
        198275: 9704,
    }
    ideal = {each.effective_balance: each.source + each.target + each.head for each in rewards.ideal_rewards}
    assert ideal[32 * 10**9] == 9704


def test_a_validator_of_mainnet_that_has_left_is_read_as_the_node_tells_it() -> None:
    version, *validators = recorded("validators")
    assert answer(version, NodeVersion).version.startswith("Lighthouse")
    for exchange in validators:
        (state,) = answer(exchange, list[ValidatorState])
        assert (state.index, state.balance, state.status) == (44, 0, "withdrawal_done")
        assert (state.validator.exit_epoch, state.validator.withdrawable_epoch) == (365684, 365940)


@pytest.mark.parametrize("name", ["capella_7378495", "electra_deposits_151016"])
def test_the_withdrawals_and_deposits_of_a_recorded_block_are_stored_to_the_gwei(name: str) -> None:
    expected = json.loads((RECORDED / "blocks.expected.json").read_text())[name]
    (exchange,) = recorded(f"blocks/{name}")
    message = answer(exchange, SignedBlock).message
    pair = [(Block(message.slot, "0x", message.parent_root, SPEC.time_us(message.slot)), message)]
    withdrawals = rows.withdrawals("beacon", SPEC, pair, lambda validator: True).to_pylist()
    assert [
        {"index": each["number"], "validator": each["validator"], "address": each["address"], "gwei": each["gwei"]}
        for each in withdrawals
    ] == expected["withdrawals"]
    assert sum(each["gwei"] for each in withdrawals) == expected["withdrawals_total_gwei"]
    (proposal,) = rows.proposals("beacon", SPEC, [message], lambda validator: True).to_pylist()
    assert (proposal["validator"], proposal["epoch"]) == (expected["proposer_index"], expected["epoch"])
    assert (proposal["execution_height"], proposal["execution_hash"], proposal["fee_recipient"]) == (
        expected["execution_block_number"],
        expected["execution_block_hash"],
        expected["fee_recipient"],
    )
    if expected["network"] == "mainnet":
        assert withdrawals[0]["time"].timestamp() == expected["timestamp"]
    deposited = rows.deposits("beacon", SPEC, pair, lambda pubkey, credentials: True).to_pylist()
    expected_deposits = expected["execution_requests"].get("deposits", [])
    assert [(each["pubkey"], each["credentials"], each["gwei"], each["number"]) for each in deposited] == [
        (each["pubkey"], each["withdrawal_credentials"], int(each["amount"]), int(each["index"]))
        for each in expected_deposits
    ]
