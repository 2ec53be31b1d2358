"""Staking rewards by epoch: recorded rewards exactly, and rewards that a node lacks are never zero."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chainfolio.adapters.solana import rewards
from chainfolio.adapters.solana.chain import SolanaChain
from chainfolio.adapters.solana.layouts import STAKE, STAKE_HISTORY, SYSTEM
from chainfolio.adapters.solana.reads import Reward, RewardRead
from chainfolio.adapters.solana.settings import SolanaSettings
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.errors import BadSettings
from chainfolio.plans import Unknown
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.facts import ChainFacts
from chainfolio.portfolio.valuation import valuate
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from tests.json_rpc import Refuse
from tests.solana.fakes import WALLET, FakeNode, account
from tests.solana.recorded import expected, lines, needs_recordings

STAKED = "F6dEJnUbV999jwHdA6GPb1YhwfcyPfDXq9LcwMkUFbLr"
OTHER = "7K8DVxtNJGnMtUY1CQJT5jcs8sFGSZTDiG7kowvFpECh"
EPOCH, LAMPORTS, ALWAYS = 135, 28_897_168_409_392, 2**64 - 1
Answers = Callable[[Any], Any]


def reward_entry(epoch: int, **changed: Any) -> dict[str, Any]:
    """Return a reward as a node answers it."""
    slot = (epoch + 1) * 432_000
    return {"amount": 7, "commission": None, "effectiveSlot": slot, "epoch": epoch, "postBalance": 100, **changed}


class StakeNode(FakeNode):
    """A node with rewards of the wallet's stake account; epoch 134 is the last complete one."""

    def __init__(
        self, rewards: Answers, *, times: Answers = lambda params: 1_600_000_000, activation_epoch: int = 100
    ) -> None:
        super().__init__(
            getInflationReward=rewards,
            getBlockTime=times,
            getMultipleAccounts=self._accounts,
            getProgramAccounts=lambda params: self.at([self._stake(activation_epoch)]),
        )
        self.slot = 60_000_000

    def _accounts(self, params: Any) -> Any:
        if params[0] == [STAKE_HISTORY]:
            return self.at([None])
        clock = struct.pack("<QqQQq", self.slot, 0, EPOCH, EPOCH, 1_609_400_000)
        return self.at([account(SYSTEM, 5), account("Sysvar", 1, clock)])

    @staticmethod
    def _stake(activation_epoch: int) -> dict[str, Any]:
        delegation = {
            "voter": OTHER,
            "stake": str(LAMPORTS - 2_282_880),
            "activationEpoch": str(activation_epoch),
            "deactivationEpoch": str(ALWAYS),
        }
        info = {
            "meta": {"authorized": {"staker": WALLET, "withdrawer": WALLET}, "rentExemptReserve": "2282880"},
            "stake": {"delegation": delegation},
        }
        data = {"parsed": {"info": info, "type": "delegated"}, "program": "stake"}
        return {"pubkey": STAKED, "account": {"data": data, "owner": STAKE, "lamports": LAMPORTS}}


def recorded() -> StakeNode:
    """A node that replays what was recorded, and has dropped the blocks that paid older epochs."""
    exchanges = lines("staking_rewards.rpc.jsonl.gz")
    by_epoch = {each["params"][1]["epoch"]: each for each in exchanges if each["method"] == "getInflationReward"}
    times = {each["params"][0]: each["result"] for each in exchanges if each["method"] == "getBlockTime"}

    def rewards(params: Any) -> Any:
        if params[1]["epoch"] not in by_epoch:
            raise Refuse(-32004, "Block not available for slot 57024000")
        exchange = by_epoch[params[1]["epoch"]]
        assert params[0] == exchange["params"][0]
        return exchange["result"]

    return StakeNode(rewards, times=lambda params: times[params[0]])


async def read_portfolio(chain: SolanaChain, folder: Path) -> Any:
    """The portfolio of the wallet."""
    tail = Tail(folder / "tail.db")
    try:
        snapshotter = Snapshotter(chain, Lake(str(folder / "lake")), tail, TokenBook(chain.key, None, {}), ())
        snapshot: Any = await snapshotter.take([WALLET], live=True)
    finally:
        tail.close()
    facts = {chain.key: ChainFacts(chain.key, "Solana", 101)}
    return msgspec.json.decode(msgspec.json.encode(portfolio(WALLET, valuate([snapshot]), facts, updated_ms=0)))


def position(document: Any) -> Any:
    """The one stake account of a portfolio."""
    staked = document["assetByProtocols"]["solana_stake"]["chains"]["solana"]["protocolPositions"]
    [stake_position] = staked["STAKED"]["protocolPositions"]
    return stake_position


async def read_rewards(node: FakeNode, *reads: RewardRead) -> list[Any]:
    """Read rewards through the chain of a node."""
    chain = node.chain()
    return await chain.answer(reads, (await chain.heads()).latest)


@needs_recordings
async def test_recorded_rewards_are_shown_exactly_and_epochs_that_the_node_dropped_are_not_known(
    tmp_path: Path,
) -> None:
    node = recorded()
    chain = node.chain()
    document = await read_portfolio(chain, tmp_path)
    stake_position = position(document)
    known_epochs, dropped = stake_position["earned"][:3], stake_position["earned"][3:]
    expected_rewards = expected("staking_rewards.expected.json")
    assert [
        (int(each["epoch"]), Decimal(each["amount"]), f"{datetime.fromtimestamp(int(each['time']), UTC):%F %T}")
        for each in reversed(known_epochs)
    ] == [(each["epoch"], Decimal(str(each["sol"])), each["time"]) for each in expected_rewards]
    assert [each["blockNumber"] for each in known_epochs] == ["58320000", "57888004", "57456000"]
    assert [(each["epoch"], each["amount"], each["time"]) for each in dropped] == [
        ("131", "N/A", "N/A"),
        ("130", "N/A", "N/A"),
    ]
    assert [each["balance"] for each in stake_position["supplyAssets"]] == ["28897.168409392"], (
        "rewards are in it already"
    )
    assert document["completeness"] == "complete"
    assert [each["reason"] for each in document["issues"] if "earned" in each["reason"]] == [
        "what stake accounts earned is not known of epochs 130, 131: the node does not have the block that paid them"
    ]
    before = node.asked.count("getInflationReward")
    (tmp_path / "again").mkdir()
    assert position(await read_portfolio(chain, tmp_path / "again"))["earned"] == stake_position["earned"]
    assert (before, node.asked.count("getInflationReward") - before) == (5, 2), "what is known is asked for once"


async def test_accounts_of_one_epoch_are_asked_for_together_in_pages() -> None:
    sizes: list[int] = []

    def rewards(params: Any) -> Any:
        sizes.append(len(params[0]))
        return [reward_entry(params[1]["epoch"], amount=int(each)) for each in params[0]]

    node = StakeNode(rewards)
    reads = [RewardRead(str(number), epoch) for number in range(1, 101) for epoch in (133, 134)]
    results = await read_rewards(node, *reads, *(RewardRead("99", 132) for _ in range(2)))
    assert sorted(sizes) == [1, 100, 100]
    assert [each.lamports for each in results] == [number for number in range(1, 101) for _ in (133, 134)] + [99, 99]


async def test_an_epoch_in_which_an_account_earned_nothing_is_left_out_and_none_before_it_was_delegated_is_asked_for(
    tmp_path: Path,
) -> None:
    epochs: list[int] = []

    def rewards(params: Any) -> Any:
        epochs.append(params[1]["epoch"])
        return [None if epochs[-1] == 133 else reward_entry(epochs[-1], commission=8, postBalance=LAMPORTS)]

    document = await read_portfolio(StakeNode(rewards, activation_epoch=131).chain(), tmp_path)
    assert sorted(epochs) == [132, 133, 134]
    assert [(each["epoch"], each["amount"], each["commission"]) for each in position(document)["earned"]] == [
        ("134", "0.000000007", "8"),
        ("132", "0.000000007", "8"),
    ]
    assert not any("earned" in each["reason"] for each in document["issues"])


@pytest.mark.parametrize(
    "answer",
    [
        [],
        [None, None],
        {},
        None,
        7,
        ["x"],
        [reward_entry(133)],
        [reward_entry(134, amount=1.5)],
        [reward_entry(134, amount="7")],
        [reward_entry(134, amount=-1)],
        [reward_entry(134, amount=2**64)],
        [reward_entry(134, amount=101)],
        [reward_entry(134, commission=101)],
        [reward_entry(134, effectiveSlot=-1)],
        [reward_entry(134, effectiveSlot=None)],
        [{"epoch": 134}],
    ],
)
async def test_rewards_that_cannot_be_are_unknown_and_never_zero(answer: Any) -> None:
    [result] = await read_rewards(StakeNode(lambda params: answer), RewardRead(STAKED, 134))
    assert isinstance(result, Unknown)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (-32001, "cleaned up"),
        (-32004, "not available"),
        (-32007, "skipped"),
        (-32009, "missing in long-term storage"),
        (-32011, "no history"),
        (-32017, "Epoch rewards period still active at slot 58320000"),
        (-32018, "no boundary"),
        (-32601, "Method not found"),
        (-32602, "Invalid params"),
        (429, "too many requests"),
    ],
)
async def test_a_node_that_does_not_say_what_was_earned_spoils_nothing_else(
    code: int, message: str, tmp_path: Path
) -> None:
    def refuse(params: Any) -> Any:
        raise Refuse(code, message)

    document = await read_portfolio(StakeNode(refuse).chain(), tmp_path)
    stake_position = position(document)
    assert {each["amount"] for each in stake_position["earned"]} == {"N/A"}
    assert [each["balance"] for each in stake_position["supplyAssets"]] == ["28897.168409392"]
    [issue] = [each for each in document["issues"] if "earned" in each["reason"]]
    assert "130, 131, 132, 133, 134" in issue["reason"]
    assert document["completeness"] == "complete"


@pytest.mark.parametrize("time", [None, -1, 2**60])
async def test_a_time_that_is_not_known_takes_no_reward_away(time: Any) -> None:
    node = StakeNode(lambda params: [reward_entry(134)], times=lambda params: time)
    assert await read_rewards(node, RewardRead(STAKED, 134)) == [Reward(7, 58_320_000, None, None)]


@pytest.mark.parametrize("epochs", [-1, 101])
def test_epochs_of_rewards_that_cannot_be_meant_are_refused(epochs: int) -> None:
    settings = SolanaSettings(adapter="solana", rpc=["http://one.test"], reward_epochs=epochs)
    with pytest.raises(BadSettings, match="reward_epochs"):
        settings.check("chains.solana")


async def test_a_reward_that_becomes_final_while_it_is_read_is_read_again() -> None:
    lamports = [7, 9]

    def answer_rewards(params: Any) -> Any:
        chain.node.finalized = 60_000_000
        return [reward_entry(137, amount=lamports.pop(0))]

    chain, read = StakeNode(answer_rewards).chain(), RewardRead(STAKED, 137)
    chain.node.finalized = 138 * 432_000 - 1
    for expected_lamports in (7, 9, 9):
        reward = (await rewards.read_rewards(chain.node, [read]))[read]
        assert isinstance(reward, Reward)
        assert reward.lamports == expected_lamports
