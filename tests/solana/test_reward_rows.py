"""Staking rewards as rows of the account that may withdraw the stake: income, but no change of coins."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from solders.keypair import Keypair

from chainfolio.adapters.solana.chain import SolanaChain, build
from chainfolio.adapters.solana.epochs import Schedule
from chainfolio.adapters.solana.layouts import STAKE
from chainfolio.adapters.solana.reward_rows import MAX_EPOCHS
from chainfolio.adapters.solana.settings import SolanaSettings
from chainfolio.blocks import Span
from chainfolio.chain_results import SpanTables
from chainfolio.engine.rows import ChainIndex
from chainfolio.engine.snapshots.day_flows import flows_in_span
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, BadRequest, Unavailable
from chainfolio.indexer.wiring import System, check_datasets
from chainfolio.localchain.solana.dated import dated
from chainfolio.localchain.solana.node import SolanaNode
from chainfolio.localchain.solana.programs import create_stake, create_vote_account, send_coins, stake_withdrawal
from chainfolio.settings_file import load
from tests.chains.account_rows import flows_of
from tests.evm.fakes import FakeClock
from tests.json_rpc import Refuse
from tests.solana.conftest import Run, started
from tests.solana.fakes import ROOT, SCHEDULE, WALLET, FakeNode, header, transaction
from tests.solana.recorded import expected, needs_recordings
from tests.solana.test_rewards import STAKED, Answers, StakeNode, recorded, reward_entry

SLOTS = 432_000
EVERYTHING = Span(0, 2**40)


# --- on a real node --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StakingWallet:
    """A wallet with 5 coins whose stake earned two rewards; it withdrew the first one.

    Surfpool pays no rewards: the test answers for it and adds them to the stake account.
    """

    owner: str
    stake: str
    slots: dict[int, int]
    url: str
    node: SolanaNode


REWARDS = {0: 7_000_000, 1: 11, 2: 300_000_000}


@pytest.fixture(scope="module")
def staking_wallet() -> Iterator[StakingWallet]:
    """Yield the wallet with its node."""
    slots: dict[int, int] = {}

    def answer_rewards(params: Any) -> Any:
        epoch = params[1]["epoch"]
        if epoch not in slots:
            return [None for _ in params[0]]
        return [
            reward_entry(epoch, amount=REWARDS[epoch], effectiveSlot=slots[epoch], postBalance=10**11)
            for _ in params[0]
        ]

    with started() as node, dated(node, 0, {"getInflationReward": answer_rewards}) as url:
        wallet = Keypair()
        owner = wallet.pubkey()
        send_coins(node, owner, 5 * 10**9)
        address = create_stake(node, owner, 10**10, create_vote_account(node))
        for epoch in (0, 1):
            node.rpc("surfnet_timeTravel", {"absoluteEpoch": epoch + 1})
            send_coins(node, Keypair().pubkey(), 10**9)  # a transaction makes the first block of the epoch
            first = (epoch + 1) * SLOTS
            slots[epoch] = next(slot for slot in node.rpc("getBlocks", first, first + 1000) if slot >= first)
            account = node.rpc("getAccountInfo", str(address), {"encoding": "base64"})["value"]
            node.put(address, STAKE, base64.b64decode(account["data"][0]), account["lamports"] + REWARDS[epoch])
        node.send([stake_withdrawal(address, owner, REWARDS[0])], wallet)
        node.rpc("surfnet_timeTravel", {"absoluteSlot": node.rpc("getSlot") + 100})
        yield StakingWallet(str(owner), str(address), slots, url, node)


@pytest.fixture
def run(staking_wallet: StakingWallet, running: Callable[..., Run]) -> Run:
    """Runs a command that prints one document."""
    return running(staking_wallet.node.rpc("getGenesisHash"), staking_wallet.url)


@pytest.mark.slow("takes seconds, and faster tests take its branches")
@pytest.mark.node
def test_what_a_stake_earned_is_income_and_changes_no_balance(run: Run, staking_wallet: StakingWallet) -> None:
    run("watch", staking_wallet.owner)
    history = run("transactions", staking_wallet.owner)
    assert (history["completeness"], history["issues"]) == ("complete", [])
    rewards = [each for each in history["transactions"] if each["type"] == "COLLECT"]
    assert [(each["blockNumber"], each["protocol"]["key"], each["fees"]) for each in rewards] == [
        (staking_wallet.slots[epoch], "solana_stake", "0") for epoch in (1, 0)
    ]
    assert [each["assetsOut"] for each in rewards] == [[], []]
    assets = [asset for each in rewards for asset in each["assetsIn"]]
    assert [(each["balance"], each["from"], each["to"], each["staysStaked"]) for each in assets] == [
        ("0.000000011", staking_wallet.stake, staking_wallet.owner, True),
        ("0.007", staking_wallet.stake, staking_wallet.owner, True),
    ]
    [withdrawal] = [each for each in history["transactions"] if each["type"] == "UNSTAKE"]
    assert [each["balance"] for each in withdrawal["assetsIn"]] == ["0.007"]
    then = run("portfolio", staking_wallet.owner, "--chain", "solana", "--block", str(staking_wallet.slots[1]))[0]
    assert wallet_of(then) == "5", "rewards are no coins of the wallet"
    assert not any("add up" in each["reason"] for each in then["issues"])
    assert wallet_of(run("portfolio", staking_wallet.owner)[0]) == "5.007"


@pytest.mark.node
async def test_a_day_has_what_a_stake_earned_and_a_balance_has_not(run: Run, staking_wallet: StakingWallet) -> None:
    await asyncio.to_thread(run, "watch", staking_wallet.owner)
    system = System(load(Path("chainfolio.toml"), {}))
    chain = system.chain("solana")
    index, native = (system.lake, system.tail, chain, [staking_wallet.owner]), chain.info.native.asset
    block = await chain.block(staking_wallet.slots[1])
    earlier = Span(0, block.height)
    assert flows_in_span(*index, earlier)[staking_wallet.owner].incoming == {native: 5 * 10**9}
    all_income = flows_in_span(*index, earlier, with_rewards=True)[staking_wallet.owner].incoming
    assert all_income == {native: 5 * 10**9 + REWARDS[0] + REWARDS[1]}
    flows, reason = flows_of(ChainIndex(system.lake, system.tail, chain.key), chain, [staking_wallet.owner], block)
    await system.close()
    assert reason == ""
    assert flows[staking_wallet.owner].incoming[native] % 1_000 == REWARDS[1], (
        "what the block itself paid is of its day"
    )


@pytest.mark.slow("takes seconds, and faster tests take its branches")
@pytest.mark.node
def test_a_wallet_that_is_read_on_and_on_has_each_reward_once(run: Run, staking_wallet: StakingWallet) -> None:
    idle = str(Keypair().pubkey())
    run("watch", staking_wallet.owner, idle)
    staking_wallet.node.rpc("surfnet_timeTravel", {"absoluteEpoch": 3})
    send_coins(staking_wallet.node, Keypair().pubkey(), 10**9)
    staking_wallet.slots[2] = next(each for each in staking_wallet.node.rpc("getBlocks", 3 * SLOTS, 3 * SLOTS + 1000))
    staking_wallet.node.rpc("surfnet_timeTravel", {"absoluteSlot": staking_wallet.node.rpc("getSlot") + 100})

    def rewarded() -> list[tuple[int, str]]:
        history = run("transactions", staking_wallet.owner)
        return [
            (each["blockNumber"], asset["balance"])
            for each in history["transactions"]
            for asset in each["assetsIn"]
            if "staysStaked" in asset
        ]

    run("watch", staking_wallet.owner, idle)
    expected = [
        (staking_wallet.slots[2], "0.3"),
        (staking_wallet.slots[1], "0.000000011"),
        (staking_wallet.slots[0], "0.007"),
    ]
    assert rewarded() == expected
    staking_wallet.node.rpc("surfnet_timeTravel", {"absoluteSlot": staking_wallet.node.rpc("getSlot") + 100})
    run("watch", staking_wallet.owner, idle)
    assert rewarded() == expected
    idle_history = run("transactions", idle)
    assert (idle_history["transactions"], idle_history["completeness"]) == ([], "complete")


def wallet_of(portfolio: Any) -> str:
    """The coins of a wallet itself."""
    [coin] = portfolio["assetByProtocols"]["wallet"]["chains"]["solana"]["protocolPositions"]["WALLET"]["assets"]
    balance: str = coin["balance"]
    return balance


# --- on nodes that say what a test wants -----------------------------------------------------------------------------


async def collected(chain: SolanaChain, span: Span = EVERYTHING) -> list[SpanTables]:
    """Return all pieces of the wallet's rewards, up to the newest final slot."""
    pieces, first, last = list[SpanTables](), span.first, min(span.last, (await chain.heads()).finalized)
    while first <= last:
        pieces.append(await chain.collect_accounts(Span(first, last), [WALLET], ["rewards"]))
        assert pieces[-1].span.first == first
        first = pieces[-1].span.last + 1
    return pieces


def rows(pieces: Sequence[SpanTables]) -> list[tuple[Any, ...]]:
    """Slot, time, stake account, owner and lamports."""
    return [
        (
            row["height"],
            int(row["time"].timestamp()),
            row["sender"],
            row["recipient"],
            int.from_bytes(row["raw"], "big"),
        )
        for each in pieces
        for row in each.tables["transfers"].to_pylist()
    ]


def known_spans(pieces: Sequence[SpanTables]) -> list[tuple[int, int]]:
    """Return the spans whose rewards are known."""
    return [(each.span.first, each.span.last) for each in pieces if "rewards" in each.read_methods]


@needs_recordings
async def test_recorded_rewards_are_rows_at_their_slots_and_dropped_epochs_count_as_unread() -> None:
    node = recorded()
    chain = node.chain()
    pieces = await collected(chain)
    expected_rewards = expected("staking_rewards.expected.json")
    assert [(height, Decimal(raw).scaleb(-9)) for height, _, _, _, raw in rows(pieces)] == [
        (height, Decimal(str(each["sol"])))
        for height, each in zip((57_456_000, 57_888_004, 58_320_000), expected_rewards, strict=True)
    ]
    assert {(sender, recipient) for _, _, sender, recipient, _ in rows(pieces)} == {(STAKED, WALLET)}
    assert known_spans(pieces) == [(0, SLOTS - 1), (133 * SLOTS, 136 * SLOTS - 1)], "what epoch 132 earned, 133 paid"


def test_epochs_are_cut_as_the_cluster_cuts_them() -> None:
    plain, warming = Schedule(432_000, 0, 0), Schedule(8_192, 8, 8_160)
    assert [plain.epoch(slot) for slot in (0, 431_999, 432_000)] == [0, 0, 1]
    assert [warming.first(epoch) for epoch in (0, 1, 2, 7, 8, 9)] == [0, 32, 96, 4_064, 8_160, 16_352]
    assert all(
        warming.first(warming.epoch(slot)) <= slot < warming.first(warming.epoch(slot) + 1) for slot in range(9_000)
    )


@pytest.mark.parametrize(
    "schedule",
    [
        {},
        None,
        [],
        {**SCHEDULE, "slotsPerEpoch": 0},
        {**SCHEDULE, "slotsPerEpoch": 1.5},
        {**SCHEDULE, "firstNormalSlot": -1},
        {**SCHEDULE, "firstNormalEpoch": 3},
        {**SCHEDULE, "firstNormalSlot": 3},
        {**SCHEDULE, "firstNormalEpoch": 2, "firstNormalSlot": 31},
        {**SCHEDULE, "firstNormalEpoch": 2**40, "firstNormalSlot": 32},
    ],
)
async def test_by_a_schedule_that_cannot_be_nothing_is_known(schedule: Any) -> None:
    node = StakeNode(lambda params: [None])
    node.answers = {**node.answers, "getEpochSchedule": lambda params: schedule}
    assert known_spans(await collected(node.chain())) == []


def every(epochs: list[int], lamports: int = 7, late: int = 0) -> Answers:
    """Rewards in every epoch, so many slots after its end; the epochs that were asked for are noted."""

    def rewards(params: Any) -> Any:
        epochs.append(params[1]["epoch"])
        slot = (params[1]["epoch"] + 1) * SLOTS + late
        return [reward_entry(params[1]["epoch"], amount=lamports, effectiveSlot=slot) for _ in params[0]]

    return rewards


async def test_pieces_anywhere_have_every_reward_once_and_ask_for_each_epoch_once() -> None:
    epochs: list[int] = []
    node = StakeNode(every(epochs, late=500))
    all_rows = rows(await collected(node.chain()))
    assert [height for height, *_ in all_rows] == [epoch * SLOTS + 500 for epoch in range(1, 139)]
    assert sorted(epochs) == [*range(138)]
    assert len(epochs) > MAX_EPOCHS
    for cut in (300, 400 * SLOTS // 3, 7 * SLOTS, 7 * SLOTS + 499, 7 * SLOTS + 500):
        chain = node.chain()
        assert rows([*await collected(chain, Span(0, cut)), *await collected(chain, Span(cut + 1, 2**40))]) == all_rows
    chain, before = node.chain(), node.asked.count("getProgramAccounts")
    for first in range(138 * SLOTS, 138 * SLOTS + 600, 100):
        await collected(chain, Span(first, first + 99))
    assert node.asked.count("getProgramAccounts") == before + 1, "a follower does not ask anew with every block"


async def test_before_a_stake_account_was_begun_nothing_is_asked() -> None:
    epochs: list[int] = []
    node = StakeNode(every(epochs))
    had = {f"{slot}": (slot, before) for slot, before in ((130 * SLOTS + 5, 0), (135 * SLOTS + 9, 1_000))}
    page = [{"signature": each, "slot": slot} for each, (slot, _) in reversed(had.items())]

    def answer_transaction(params: Any) -> Any:
        slot, before = had[params[0]]
        entry = transaction(slot, params[0], preBalances=[10, before], postBalances=[5, 1_000])
        entry["transaction"]["message"]["accountKeys"] = [WALLET, STAKED]
        return entry

    node.answers = {
        **node.answers,
        "getTransaction": answer_transaction,
        "getSignaturesForAddress": lambda params: [] if "before" in params[1] else page,
    }
    pieces = await collected(node.chain())
    assert (sorted(epochs), len(pieces)) == ([*range(134, 138)], 1), "up to the second it had no more than before"
    epochs.clear()
    had["56160005"] = 130 * SLOTS + 5, 990
    await collected(node.chain())
    assert sorted(epochs) == [*range(130), *range(134, 138)], "it is older than what the node has"


def saying(value: Any) -> Answers:
    """Always the same answer."""
    return lambda params: value


@pytest.mark.parametrize(
    "lie",
    [
        {"getSignaturesForAddress": [{"signature": "a", "slot": 5}, {"signature": "b", "slot": 6}]},
        {"getSignaturesForAddress": {}},
        {"getSignaturesForAddress": [{"signature": "a", "slot": 1.5}]},
    ],
)
async def test_where_nobody_tells_what_an_account_did_its_rewards_are_not_known(lie: dict[str, Any]) -> None:
    node = StakeNode(every([]))
    node.answers = {**node.answers, **{method: saying(response) for method, response in lie.items()}}
    assert known_spans(await collected(node.chain())) == [(0, SLOTS - 1)], "nothing is paid before"

    def refuse(params: Any) -> Any:
        raise Refuse(-32601, "Method not found")

    node.answers = {**node.answers, **dict.fromkeys(lie, refuse)}
    assert known_spans(await collected(node.chain())) == [(0, SLOTS - 1)]


async def test_a_stake_account_that_was_never_delegated_is_not_asked_about() -> None:
    epochs: list[int] = []
    node = StakeNode(every(epochs))
    idle = StakeNode._stake(100)
    del idle["account"]["data"]["parsed"]["info"]["stake"]
    idle["account"]["data"]["parsed"]["type"] = "initialized"
    node.answers = {**node.answers, "getProgramAccounts": lambda params: node.at([idle])}
    assert known_spans(await collected(node.chain())) == [(0, 60_000_000)]
    assert epochs == []


async def test_a_reward_in_a_block_that_may_still_go_is_a_row_with_that_block_and_is_asked_for_again() -> None:
    epochs: list[int] = []
    node, slot, branch = StakeNode(every(epochs, late=5)), 138 * SLOTS, ""
    final = {"finalized": slot - 20, "confirmed": slot + 10}
    node.answers = {
        **node.answers,
        "getSlot": lambda params: final[params[0]["commitment"]],
        "getBlock": lambda params: {**header(params[0]), "blockhash": f"hash{params[0]}{branch}"},
    }
    settings = SolanaSettings(adapter="solana", rpc=["http://one.test"], commitment="confirmed")
    chain = build("solana", settings, Environment(clock=FakeClock()), configs=ROOT / "configs", transport=node)
    span = Span(slot - 10, slot + 10)
    before = (await chain.heads()).latest

    async def read() -> list[tuple[int, str]]:
        piece = await chain.collect_accounts(span, [WALLET], ["rewards"], before)
        assert (piece.span, [each.hash for each in piece.blocks]) == (span, [f"hash{slot + 5}{branch}"])
        return [(row["height"], row["tx_hash"]) for row in piece.tables["transfers"].to_pylist()]

    assert await read() == [(slot + 5, f"hash{slot + 5}")]
    branch = " of another branch"
    assert await read() == [(slot + 5, f"hash{slot + 5}{branch}")]
    final |= {"finalized": slot + 10}
    await chain.heads()
    request_count = len(epochs)
    for _ in range(3):
        await read()
    assert len(epochs) == request_count + 2, "both epochs once more, now that their blocks are final"


async def test_that_nothing_was_paid_is_asked_again_while_the_slot_that_pays_may_still_go() -> None:
    slot, final, pays = 138 * SLOTS, {"finalized": 138 * SLOTS - 20, "confirmed": 138 * SLOTS + 10}, False
    node = StakeNode(lambda params: [reward_entry(137, effectiveSlot=slot + 5) if pays else None])
    node.answers = {**node.answers, "getSlot": lambda params: final[params[0]["commitment"]]}
    settings = SolanaSettings(adapter="solana", rpc=["http://one.test"], commitment="confirmed")
    chain = build("solana", settings, Environment(clock=FakeClock()), configs=ROOT / "configs", transport=node)
    before, span = (await chain.heads()).latest, Span(slot, slot + 10)

    async def read() -> list[int]:
        return [height for height, *_ in rows([await chain.collect_accounts(span, [WALLET], ["rewards"], before)])]

    assert await read() == []
    pays = True
    assert await read() == [slot + 5], "on another branch"
    pays, final = False, {"finalized": slot + 10, "confirmed": slot + 10}
    await chain.heads()
    request_count = len(node.asked)
    assert await read() == []
    assert len(node.asked) > request_count, "what it was paid on a branch that is gone is not kept"
    request_count = len(node.asked)
    assert await read() == []
    assert len(node.asked) == request_count, "it is final now"


async def test_rewards_that_are_still_being_paid_are_waited_for() -> None:
    def refuse(params: Any) -> Any:
        if params[1]["epoch"] == 137:
            raise Refuse(-32017, "Epoch rewards period still active at slot 59616010")
        return [None]

    node = StakeNode(refuse)
    node.slot = 138 * SLOTS + 10
    chain = node.chain()
    with pytest.raises(Unavailable, match="getInflationReward"):
        await collected(chain, Span(138 * SLOTS, 2**40))


@pytest.mark.parametrize("code", [-32001, -32004, -32007, -32011])
async def test_a_node_that_is_behind_is_asked_again_and_one_that_dropped_the_block_is_not(code: int) -> None:
    def refuse(params: Any) -> Any:
        raise Refuse(code, "not available")

    node = StakeNode(refuse)
    node.slot = 138 * SLOTS + 10
    with pytest.raises(Unavailable):
        await collected(node.chain(), Span(138 * SLOTS, 2**40))
    node.slot = 138 * SLOTS + 20_000
    assert known_spans(await collected(node.chain(), Span(138 * SLOTS, 2**40))) == []


@pytest.mark.parametrize("method", ["getInflationReward", "getProgramAccounts"])
async def test_where_nobody_tells_rewards_the_slots_that_may_have_paid_them_count_as_unread(method: str) -> None:
    def refuse(params: Any) -> Any:
        raise Refuse(-32601, "Method not found")

    node = StakeNode(every([]))
    node.answers = {**node.answers, method: refuse}
    assert known_spans(await collected(node.chain(), Span(5 * SLOTS, 2**40))) == []
    assert known_spans(await collected(node.chain(), Span(0, SLOTS - 1))) == [(0, SLOTS - 1)], "nothing is paid before"


@pytest.mark.parametrize(
    "wrong",
    [
        {"effectiveSlot": 137 * SLOTS - 1},
        {"effectiveSlot": 138 * SLOTS},
        {"epoch": 135},
        {"amount": 101},
        {"amount": 7.5},
        {"effectiveSlot": 2**63},
        {"commission": 101},
    ],
)
async def test_rewards_that_cannot_be_make_no_rows_and_their_slots_count_as_unread(wrong: Any) -> None:
    def rewards(params: Any) -> Any:
        epoch = params[1]["epoch"]
        return [{**reward_entry(epoch), **(wrong if epoch == 136 else {})}]

    node = StakeNode(rewards)
    pieces = await collected(node.chain(), Span(136 * SLOTS, 138 * SLOTS + 5))
    assert known_spans(pieces) == [(136 * SLOTS, 137 * SLOTS - 1), (138 * SLOTS, 138 * SLOTS + 5)]
    assert [height for height, *_ in rows(pieces)] == [136 * SLOTS, 138 * SLOTS]


async def test_a_reward_in_a_slot_without_a_block_is_refused() -> None:
    def skipped(params: Any) -> Any:
        if params[0] == 137 * SLOTS:
            raise Refuse(-32007, "skipped")
        return header(params[0])

    node = StakeNode(every([]))
    node.answers = {**node.answers, "getBlock": skipped}
    with pytest.raises(BadAnswer, match="which has no block"):
        await collected(node.chain(), Span(137 * SLOTS, 138 * SLOTS - 1))


async def test_a_wallet_without_transactions_costs_five_requests_and_is_read_to_the_end() -> None:
    node = FakeNode()
    node.slot = 60_000_000
    chain = node.chain()
    assert known_spans(await collected(chain)) == [(0, 60_000_000)]
    assert [each for each in node.asked if each not in ("getGenesisHash", "getSlot", "getBlock")] == [
        "getEpochSchedule",
        "getFirstAvailableBlock",
        "getSignaturesForAddress",
        "getSignaturesForAddress",
        "getProgramAccounts",
    ]


async def test_of_what_was_before_nodes_have_transactions_no_rewards_are_known() -> None:
    node = FakeNode()
    node.slot, node.answers = 60_000_000, {**node.answers, "getFirstAvailableBlock": lambda params: 120 * SLOTS + 1}
    assert known_spans(await collected(node.chain())) == [(0, SLOTS - 1), (121 * SLOTS, 60_000_000)]


def test_rewards_are_indexed_for_accounts_alone() -> None:
    chain = FakeNode().chain()
    assert "rewards" not in chain.default_datasets
    with pytest.raises(BadRequest, match="of accounts alone"):
        check_datasets(chain, ["rewards"])
