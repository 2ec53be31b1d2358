"""Staked, lent, unfreezing and earned coins are positions, which with the balance make up an account."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chainfolio.adapters.tron.chain import TronChain
from chainfolio.adapters.tron.facts import load
from chainfolio.adapters.tron.forms import Wallet
from chainfolio.adapters.tron.reads import WalletState
from chainfolio.adapters.tron.stakes import borrowed_stake_issues, positions
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer
from chainfolio.interactions import Interactions
from chainfolio.localchain.tron.forms import base58check
from chainfolio.localchain.tron.node import TronNode
from chainfolio.localchain.tron.state import TRX, Legacy
from chainfolio.localchain.tron.wallet import Person, TronWeb
from chainfolio.plans import run_batched
from chainfolio.positions import AccountState, OpenPosition
from chainfolio.protocols import InstalledProtocols
from chainfolio.transport.wire import typed
from tests.tron.chains import chain
from tests.tron.conftest import RICH
from tests.tron.test_node import FORTNIGHT_S, People, post

DAY_S = 86_400
FACTS = load(Path(__file__).parents[2] / "configs" / "chains" / "tron.toml")


async def read(reads: TronChain, account: str) -> AccountState:
    """Return the state that the engine reads of an account at the head."""
    block = (await reads.heads()).latest

    async def answered(batch: Any) -> Any:
        return await reads.answer(batch, block)

    plan = reads.account_reader(InstalledProtocols()).at(block).read(account, Interactions(), ())
    report = (await run_batched({"one": plan}, answered))["one"]
    assert isinstance(report.result, AccountState), report
    return report.result


def sums(state: AccountState) -> Mapping[str, int]:
    """Sun by the names of positions."""
    totals: dict[str, int] = {}
    for each in state.positions:
        totals[each.name] = totals.get(each.name, 0) + sum(each.supplied.values()) + sum(each.rewards.values())
    return totals


@pytest.mark.node
async def test_every_coin_of_an_account_is_somewhere(node: TronNode, people: People, tmp_path: Path) -> None:
    alice, bob, _ = people
    witness = base58check(next(iter(node.state.witnesses)))
    alice.send("freezeBalanceV2", 500 * TRX, "ENERGY", alice.hex)
    alice.send("freezeBalanceV2", 300 * TRX, "BANDWIDTH", alice.hex)
    node.advance()
    alice.send("vote", {witness: 700}, alice.hex)
    alice.send("delegateResource", 200 * TRX, bob.hex, "ENERGY", alice.hex, False, 0)
    alice.send("delegateResource", 50 * TRX, bob.hex, "BANDWIDTH", alice.hex, True, 100)
    alice.send("unfreezeBalanceV2", 30 * TRX, "ENERGY", alice.hex)
    node.advance()
    first_ms = node.head.time_ms
    node.wait(7 * DAY_S)
    node.advance()
    alice.send("unfreezeBalanceV2", 40 * TRX, "BANDWIDTH", alice.hex)
    node.advance(40)
    second_ms = first_ms + 7 * DAY_S * 1000 + 2 * 3_000
    reads = chain(node, tmp_path)
    state = await read(reads, alice.address)
    reward = post(node, "/wallet/getReward", address=alice.hex)["reward"]
    assert reward > 0
    assert sums(state) == {
        "Staked for bandwidth": 210 * TRX,
        "Staked for bandwidth, lent": 50 * TRX,
        "Staked for energy": 270 * TRX,
        "Staked for energy, lent": 200 * TRX,
        "Unfreezing": 70 * TRX,
        "Rewards for 700 votes": reward,
    }
    unlocks = {each.unlock_s: sum(each.supplied.values()) for each in state.positions if each.name == "Unfreezing"}
    fortnight_ms = FORTNIGHT_S * 1000
    assert unlocks == {(first_ms + fortnight_ms) // 1000: 30 * TRX, (second_ms + fortnight_ms) // 1000: 40 * TRX}
    fees = sum(
        info.get("fee", 0)
        for block in node.blocks
        for info, each in zip(block.infos, block.transactions, strict=False)
        if each.owner == alice.hex
    )
    assert isinstance(state.native, int)
    assert state.native + sum(sums(state).values()) - reward == RICH - fees
    assert state.block is not None
    assert state.block.hash == node.head.id
    lent = await read(reads, bob.address)
    assert lent.positions == ()
    assert [(each.makes_partial, each.account) for each in lent.issues] == [(False, bob.address)] * 2
    assert sorted(str(each.reason).split()[4] for each in lent.issues) == sorted([str(50 * TRX), str(200 * TRX)])
    node.wait(7 * DAY_S)
    node.advance()
    later = await read(reads, alice.address)
    assert (sums(later)["Withdrawable"], sums(later)["Unfreezing"]) == (30 * TRX, 40 * TRX)
    alice.send("withdrawExpireUnfreeze", alice.hex)
    node.advance()
    assert "Withdrawable" not in sums(await read(reads, alice.address))
    await reads.close()


@pytest.mark.node
async def test_old_stakes_say_when_they_end(web: TronWeb, tmp_path: Path) -> None:
    with TronNode(lag=2) as node:
        alice = Person(node, web, 0)
        ends_ms = node.head.time_ms + 259_200_000 + 1
        node.endow(alice.hex, RICH, {"BANDWIDTH": Legacy(9 * TRX, ends_ms), "ENERGY": Legacy(5 * TRX, ends_ms)})
        node.advance()
        reads = chain(node, tmp_path)
        by_name = {each.name: each for each in (await read(reads, alice.address)).positions}
        assert {name: sum(each.supplied.values()) for name, each in by_name.items()} == {
            "Staked for bandwidth (Stake 1.0)": 9 * TRX,
            "Staked for energy (Stake 1.0)": 5 * TRX,
        }
        assert {each.unlock_s for each in by_name.values()} == {ends_ms // 1000 + 1}, "never said too early"
        await reads.close()


# --- answers that nodes may give --------------------------------------------------------------------------------------


def positions_of(answer: dict[str, Any], reward: int = 0, time_ms: int = 5_000) -> tuple[OpenPosition, ...]:
    """The positions of an answer of /wallet/getaccount."""
    wallet = typed("node", msgspec.json.encode(answer), Wallet)
    block = Block(7, f"{7:064x}", f"{6:064x}", time_ms * 1_000)
    return positions(FACTS, "T", WalletState(block, wallet, reward))


def test_an_account_that_has_nothing_has_no_positions() -> None:
    assert positions_of({}) == ()
    empty = {"frozenV2": [{}, {"type": "ENERGY"}, {"type": "TRON_POWER"}], "unfrozenV2": [{}]}
    assert positions_of(empty) == ()


def test_a_stake_for_a_purpose_that_nobody_knows_is_told_all_the_same() -> None:
    (position,) = positions_of({"frozenV2": [{"type": "STORAGE" * 10, "amount": 5}]})
    assert list(position.supplied.values()) == [5]
    assert len(position.name) < 60


def test_amounts_are_exact_up_to_the_widest_number() -> None:
    max_sun = 2**63 - 1
    stakes = positions_of({"frozenV2": [{"amount": max_sun}, {"type": "BANDWIDTH", "amount": max_sun}]})
    assert [list(each.supplied.values()) for each in stakes] == [[2 * max_sun]]


@pytest.mark.parametrize(
    "answer",
    [
        {"frozenV2": [{"amount": -1}]},
        {"frozenV2": [{"amount": 2**63}]},
        {"frozenV2": [{"amount": "5"}]},
        {"frozenV2": [{"amount": 1.5}]},
        {"frozenV2": {"amount": 5}},
        {"unfrozenV2": [{"unfreeze_expire_time": -1}]},
        {"votes": [{"vote_count": 5}]},
        {"account_resource": []},
        {"delegated_frozenV2_balance_for_bandwidth": None},
        {"account_resource": {"frozen_balance_for_energy": 5}},
    ],
)
def test_an_answer_that_cannot_be_meant_is_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer):
        positions_of(answer)


def test_what_can_be_had_now_is_decided_by_the_time_of_the_block() -> None:
    waiting = {"unfrozenV2": [{"unfreeze_amount": 3, "unfreeze_expire_time": 5_000}]}
    assert [each.name for each in positions_of(waiting, time_ms=4_999)] == ["Unfreezing"]
    assert [each.name for each in positions_of(waiting, time_ms=5_000)] == ["Withdrawable"]


def test_rewards_without_votes_are_a_witness_s() -> None:
    (position,) = positions_of({}, reward=9)
    assert (position.name, position.type, list(position.rewards.values())) == ("Rewards", "REWARDS", [9])
    assert list(borrowed_stake_issues(FACTS, "T", WalletState(Block(1, "", "", 0), Wallet()))) == []
