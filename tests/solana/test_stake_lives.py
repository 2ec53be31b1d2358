"""Histories of stake accounts by their transactions, and past answers if transactions are missing."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import base58
import pytest
from solders.pubkey import Pubkey

from chainfolio.adapters.solana.chain import build
from chainfolio.adapters.solana.layouts import STAKE, SYSTEM
from chainfolio.adapters.solana.settings import SolanaSettings
from chainfolio.adapters.solana.stake_calls import (
    AUTHORIZE,
    INITIALIZE,
    LOCK,
    LOCK_CHECKED,
    MERGE,
    SPLIT,
    WITHDRAW,
    StakeCall,
    stakes_of_authority,
)
from chainfolio.adapters.solana.stake_lives import AccountStakeHistory, Step, add_owners
from chainfolio.blocks import Span
from chainfolio.environment import Environment
from chainfolio.kinds import EndpointMemory
from tests.evm.fakes import FakeClock
from tests.json_rpc import Refuse
from tests.solana.fakes import ROOT, WALLET, account
from tests.solana.test_rewards import LAMPORTS, OTHER, STAKED, StakeNode, reward_entry

SLOTS = 432_000
CLOCK = "SysvarC1ock11111111111111111111111111111111"
HEIR = str(Pubkey(bytes([7] * 32)))
PART = str(Pubkey(bytes([8] * 32)))


def key(address: str) -> bytes:
    """The bytes of an address."""
    return bytes(Pubkey.from_string(address))


def initialize_call(stake: str, owner: str) -> StakeCall:
    """Return the call that initialises a stake account for an owner."""
    return StakeCall(INITIALIZE, (stake, SYSTEM), key(OTHER) + key(owner) + bytes(48))


def authorize_call(stake: str, by: str, to: str, role: int = 1) -> StakeCall:
    """Return the call that gives a role of a stake account to another key."""
    return StakeCall(AUTHORIZE, (stake, CLOCK, by), key(to) + struct.pack("<I", role))


def withdraw_call(stake: str, by: str, to: str = OTHER) -> StakeCall:
    """Return the call that withdraws from a stake account."""
    return StakeCall(WITHDRAW, (stake, to, CLOCK, SYSTEM, by), struct.pack("<Q", 1))


# --- who could withdraw ----------------------------------------------------------------------------------------------


def owners(
    steps: Sequence[Step], *slots: int, now: str | None = None, related: Sequence[AccountStakeHistory] = ()
) -> list[str | None]:
    """Return the accounts that could withdraw from the stake account at some slots."""
    life = AccountStakeHistory(STAKED, tuple(steps), steps[-1].after if steps else 0, 1_000)
    histories = add_owners([life, *related], {STAKED: now} if now else {})[STAKED]
    return [histories.owner(slot) for slot in slots]


def test_an_account_is_of_whom_it_was_begun_for_until_it_is_given_away_or_empty() -> None:
    steps = [
        Step(10, 0, 9, (initialize_call(STAKED, WALLET),)),
        Step(20, 9, 9, (authorize_call(STAKED, WALLET, HEIR),)),
        Step(30, 9, 0, (withdraw_call(STAKED, HEIR),)),
        Step(40, 0, 5),
    ]
    assert owners(steps, 9, 10, 19, 20, 29, 40) == ["", WALLET, WALLET, HEIR, HEIR, ""]


def test_what_is_given_away_and_back_was_anothers_in_between_and_not_within_one_slot() -> None:
    to_heir, to_wallet = authorize_call(STAKED, WALLET, HEIR), authorize_call(STAKED, HEIR, WALLET)
    steps = [
        Step(10, 0, 9, (initialize_call(STAKED, WALLET),)),
        Step(20, 9, 9, (to_heir,)),
        Step(30, 9, 9, (to_wallet,)),
        Step(40, 9, 9, (to_heir, to_wallet)),
        Step(50, 9, 9, (to_heir,)),
        Step(50, 9, 9, (to_wallet,)),
    ]
    assert owners(steps, 19, 20, 29, 30, 40, 50) == [WALLET, HEIR, HEIR, WALLET, WALLET, WALLET]


def test_a_transaction_that_a_node_leaves_out_makes_unknown_who_could_withdraw_before() -> None:
    begin, end = Step(10, 0, 9, (initialize_call(STAKED, WALLET),)), Step(30, 9, 0, (withdraw_call(STAKED, HEIR),))
    assert owners([begin, end], 9, 10, 29, 30) == ["", None, None, HEIR]
    assert owners([begin, Step(20, 9, 9, (authorize_call(STAKED, HEIR, OTHER),)), end], 10, 20, 30) == [
        None,
        None,
        HEIR,
    ]
    partner = AccountStakeHistory(PART, (Step(10, 0, 9, (initialize_call(PART, WALLET),)),), 9, 99)
    joined = Step(15, 9, 12, (StakeCall(MERGE, (STAKED, PART, CLOCK), b""),))
    assert owners([begin, joined, end], 10, 20, 30, related=[partner]) == [None, None, HEIR], (
        "what was kin tells nothing"
    )


def test_parts_that_are_merged_again_and_again_and_begun_anew_are_of_whom_they_were_begun_for() -> None:
    joined = StakeCall(MERGE, (STAKED, PART, CLOCK), b"")
    part = AccountStakeHistory(
        PART,
        (
            Step(10, 0, 4, (initialize_call(PART, WALLET),)),
            Step(20, 4, 0, (joined,)),
            Step(30, 0, 4, (initialize_call(PART, HEIR),)),
            Step(40, 4, 4, (authorize_call(PART, HEIR, WALLET),)),
            Step(50, 4, 0, (joined,)),
            Step(60, 0, 3),
        ),
        3,
        99,
    )
    target = AccountStakeHistory(STAKED, (Step(20, 5, 9, (joined,)), Step(50, 9, 13, (joined,))), 13, 99)
    histories = add_owners([part, target], {STAKED: WALLET})
    assert [histories[PART].owner(slot) for slot in (9, 10, 30, 40, 60)] == ["", WALLET, HEIR, WALLET, ""]
    assert [histories[STAKED].owner(slot) for slot in (5, 20, 50)] == [WALLET] * 3


@pytest.mark.parametrize("kind", [SPLIT, MERGE])
def test_what_is_split_or_merged_with_itself_which_no_program_does_makes_up_nobody(kind: int) -> None:
    itself = StakeCall(kind, (STAKED, STAKED, OTHER), b"")
    steps = [Step(10, 0, 9, (initialize_call(STAKED, WALLET),)), Step(20, 9, 9, (itself,))]
    assert owners(steps, 10, 20)[0] == WALLET
    assert owners(steps, 20)[0] in (WALLET, None)
    assert owners([Step(20, 9, 9, (itself,))], 10, 20) == [None, None]


def test_another_staker_changes_no_owner() -> None:
    steps = [
        Step(10, 0, 9, (initialize_call(STAKED, WALLET),)),
        Step(20, 9, 9, (authorize_call(STAKED, WALLET, HEIR, role=0),)),
    ]
    assert owners(steps, 20) == [WALLET]


def test_whoever_could_withdraw_later_could_before_unless_something_changed() -> None:
    assert owners([Step(20, 9, 5, (withdraw_call(STAKED, HEIR),))], 5) == [HEIR]
    assert owners([Step(20, 9, 9, (authorize_call(STAKED, WALLET, HEIR),))], 5, 25) == [WALLET, HEIR]
    assert owners([Step(20, 9, 9)], 5, 25, now=WALLET) == [WALLET, WALLET]
    assert owners([Step(20, 9, 9)], 5, 25) == [None, None]


def test_a_part_that_was_split_off_and_merged_again_was_of_whom_the_rest_is() -> None:
    parted, joined = StakeCall(SPLIT, (PART, STAKED, OTHER), b""), StakeCall(MERGE, (PART, STAKED, CLOCK), b"")
    part = [Step(20, 0, 4, (parted,)), Step(30, 4, 0, (joined,))]
    source = AccountStakeHistory(
        PART,
        (Step(10, 0, 9, (initialize_call(PART, WALLET),)), Step(20, 9, 5, (parted,)), Step(30, 5, 9, (joined,))),
        9,
        99,
    )
    assert owners(part, 19, 20, 29, related=[source]) == ["", WALLET, WALLET]
    assert owners(part, 20) == [None], "nothing tells, and nobody is made up"


def test_a_part_that_was_given_away_at_once_says_nothing_of_the_rest() -> None:
    parted = StakeCall(SPLIT, (STAKED, PART, OTHER), b"")
    steps = [Step(20, 9, 5, (parted,))]
    part = AccountStakeHistory(PART, (Step(20, 0, 4, (parted, authorize_call(PART, WALLET, HEIR))),), 4, 99)
    assert owners(steps, 5, 25, related=[part]) == [WALLET, WALLET]


def test_who_is_paid_has_no_say_and_who_is_named_as_the_next_owner_has() -> None:
    assert stakes_of_authority([withdraw_call(STAKED, OTHER, to=WALLET)], WALLET) == set()
    assert stakes_of_authority([withdraw_call(STAKED, WALLET)], WALLET) == {STAKED}
    assert stakes_of_authority([authorize_call(STAKED, OTHER, WALLET), initialize_call(PART, WALLET)], WALLET) == {
        STAKED,
        PART,
    }


@pytest.mark.parametrize("kind", [LOCK, LOCK_CHECKED])
def test_until_when_nothing_may_be_withdrawn_is_what_was_said_of_it_last(kind: int) -> None:
    locked = StakeCall(INITIALIZE, (STAKED, SYSTEM), key(OTHER) + key(WALLET) + struct.pack("<qQ", 90, 1) + bytes(32))
    later = StakeCall(kind, (STAKED, OTHER), b"\1" + struct.pack("<q", 95) + b"\0\0")
    by_epoch = StakeCall(kind, (STAKED, OTHER), b"\0\1" + struct.pack("<Q", 7) + b"\0")
    foreign_call = StakeCall(kind, (PART, OTHER), b"\1" + struct.pack("<q", 99) + b"\0\0")
    steps = (Step(10, 0, 9, (locked,)), Step(20, 9, 9, (later,)), Step(30, 9, 9, (by_epoch, foreign_call)))
    life = AccountStakeHistory(STAKED, steps, 9, 1_000)
    assert [life.last_value(slot, lambda call: call.unlock_s) for slot in (9, 19, 20, 30)] == [None, 90, 95, 95]


# --- answers about the past ------------------------------------------------------------------------------------------


class HistoryNode(StakeNode):
    """A node with one stake account of the wallet and transactions that name it.

    The account earned 7 in every epoch that ended after the first.
    """

    def __init__(self, steps: Sequence[Mapping[str, Any]], lamports: int, **answers: Any) -> None:
        super().__init__(self._rewards)
        self.steps, self.lamports, self.served = steps, lamports, 0
        self.answers = {
            **self.answers,
            "getMultipleAccounts": self._lamports,
            "getTransaction": self._transaction,
            "getSignaturesForAddress": self._signatures,
            "getFirstAvailableBlock": lambda params: self.served,
            **answers,
        }

    def _rewards(self, params: Any) -> Any:
        epoch = params[1]["epoch"]
        return [reward_entry(epoch, effectiveSlot=(epoch + 1) * SLOTS + 5) if epoch * SLOTS >= BORN else None]

    def _lamports(self, params: Any) -> Any:
        accounts = [account(STAKE, self.lamports) if each == STAKED else account(SYSTEM, 5) for each in params[0][:-1]]
        return self.at([*accounts, self.clock()])

    def _signatures(self, params: Any) -> Any:
        entries = [each for each in self.steps if params[0] in each["keys"]] if "before" not in params[1] else []
        return [{"signature": each["signature"], "slot": each["slot"]} for each in reversed(entries)]

    def _transaction(self, params: Any) -> Any:
        step = next(each for each in self.steps if each["signature"] == params[0])
        message = {"accountKeys": step["keys"], "instructions": step["calls"], "header": {"numRequiredSignatures": 1}}
        return {
            "slot": step["slot"],
            "blockTime": 1_700_000_000,
            "transaction": {"signatures": [step["signature"]], "message": message},
            "meta": {
                "err": None,
                "fee": 5,
                "preBalances": step["before"],
                "postBalances": step["after"],
                "innerInstructions": step.get("inside"),
            },
        }


def signature(slot: int) -> str:
    """One for each slot."""
    return base58.b58encode(slot.to_bytes(64, "big")).decode()


def step(slot: int, before: int, after: int, *calls: dict[str, Any]) -> dict[str, Any]:
    """A transaction that names the stake account, and the wallet."""
    keys = [WALLET, STAKED, STAKE, CLOCK]
    lamports = {"before": [9, before, 1, 1], "after": [9, after, 1, 1]}
    return {"slot": slot, "signature": signature(slot), "keys": keys, "calls": list(calls), **lamports}


def initialised(owner: str = WALLET) -> dict[str, Any]:
    """The instruction that begins it."""
    content = struct.pack("<I", 0) + key(OTHER) + key(owner) + bytes(48)
    return {"programIdIndex": 2, "accounts": [1, 3], "data": base58.b58encode(content).decode()}


async def stakes_at(node: HistoryNode, slot: int) -> tuple[list[int], list[str]]:
    """Return the amounts of stake accounts at a slot, and the reasons of the issues."""
    chain = node.chain()
    await chain.heads()
    positions, issues = (await chain.positions_at([WALLET], await chain.block(slot)))[WALLET]
    await chain.close()
    assert all(each.makes_partial for each in issues)
    return [raw for each in positions for raw in each.supplied.values()], [each.reason for each in issues]


BORN, NOW = 100 * SLOTS, 60_000_000


def reward_node(epochs: int = 138 - 100) -> HistoryNode:
    """An account that began with 1,000, and earned in each epoch."""
    return HistoryNode([step(BORN, 0, 1_000, initialised())], 1_000 + 7 * epochs)


async def test_rewards_are_added_up_to_the_slot_from_whichever_side_takes_fewer_requests() -> None:
    for slot, raw in ((BORN, 1_000), (101 * SLOTS + 4, 1_000), (101 * SLOTS + 5, 1_007), (NOW, 1_000 + 7 * 38)):
        assert await stakes_at(reward_node(), slot) == ([raw], []), slot
    node = reward_node()
    await stakes_at(node, 137 * SLOTS)
    assert node.asked.count("getInflationReward") == 2, "of the epochs behind it"
    node = reward_node()
    await stakes_at(node, 101 * SLOTS)
    assert node.asked.count("getInflationReward") == 2, "of those before it"


async def test_epochs_that_nodes_dropped_are_not_known_unless_the_other_side_tells() -> None:
    def dropped(params: Any) -> Any:
        if params[1]["epoch"] < 120:
            raise Refuse(-32004, "Block not available for slot 57024000")
        return node._rewards(params)

    node = reward_node()
    node.answers = {**node.answers, "getInflationReward": dropped}
    assert await stakes_at(node, 121 * SLOTS + 5) == ([1_000 + 7 * 21], [])
    amounts, [reason] = await stakes_at(node, 105 * SLOTS)
    assert (amounts, "does not have the block" in reason) == ([], True)


@pytest.mark.parametrize("lamports", [999, 1_005])
async def test_lamports_that_transactions_and_rewards_contradict_are_not_known(lamports: int) -> None:
    node = reward_node()
    node.lamports = lamports
    amounts, [reason] = await stakes_at(node, 103 * SLOTS)
    assert amounts == []
    assert "less than transactions left in it" in reason or "do not fit its transactions" in reason


async def test_transactions_that_are_lost_or_too_many_or_refused_are_said() -> None:
    for changed, phrase in (
        ({"getTransaction": lambda params: None}, "does not have"),
        ({"getFirstAvailableBlock": lambda params: NOW - 5}, "so old"),
        ({"getProgramAccounts": _refuse}, "not served"),
        ({"getSignaturesForAddress": _many_signatures}, "600 transactions since"),
        ({"getSignaturesForAddress": _refuse}, ""),
        ({"getTransaction": lambda params: {**reward_node()._transaction(params), "slot": 5}}, "is listed in slot"),
        ({"getTransaction": _another}, "another transaction"),
    ):
        node = reward_node()
        node.answers = {**node.answers, **changed}
        amounts, [reason] = await stakes_at(node, 103 * SLOTS)
        assert amounts == []
        assert reason.startswith("stake accounts of that block are not known")
        assert phrase in reason or phrase == "not served", reason


def _another(params: Any) -> Any:
    entry = reward_node()._transaction(params)
    return {**entry, "transaction": {**entry["transaction"], "signatures": [signature(7)]}}


def _refuse(params: Any) -> Any:
    raise Refuse(-32601, "Method not found")


def _many_signatures(params: Any) -> Any:
    return [] if "before" in params[1] else [{"signature": f"{each}", "slot": NOW - each} for each in range(600)]


@pytest.mark.parametrize(
    "broken",
    [
        {"keys": [WALLET, STAKED, STAKE]},
        {"before": [9, 0, 1.5, 1]},
        {"calls": [{"programIdIndex": 2}]},
        {"calls": [{"programIdIndex": 2, "accounts": [9], "data": "1"}]},
        {"calls": [{"programIdIndex": 2, "accounts": [1], "data": "0OIl"}]},
        {"keys": [WALLET, OTHER, STAKE, CLOCK]},
    ],
)
async def test_a_transaction_that_cannot_be_is_refused_and_said(broken: dict[str, Any]) -> None:
    node = HistoryNode([{**step(BORN, 0, 1_000, initialised()), **broken}], 1_000)
    node.answers = {**node.answers, "getSignaturesForAddress": lambda params: _one_signature(params, BORN)}
    amounts, [reason] = await stakes_at(node, BORN)
    assert amounts == []
    assert "not known" in reason


def _one_signature(params: Any, slot: int) -> list[dict[str, Any]]:
    return [] if "before" in params[1] else [{"signature": signature(slot), "slot": slot}]


@pytest.mark.parametrize(
    "calls",
    [
        [{"programIdIndex": 2, "accounts": [], "data": ""}],
        [{"programIdIndex": 2, "accounts": [1], "data": ""}],
        [{"programIdIndex": 2, "accounts": [1], "data": base58.b58encode(struct.pack("<I", 1)).decode()}],
        [{"programIdIndex": 2, "accounts": [1, 1, 1], "data": base58.b58encode(struct.pack("<I", 2**32 - 1)).decode()}],
    ],
)
async def test_instructions_that_say_less_than_they_should_say_nothing(calls: list[dict[str, Any]]) -> None:
    node = HistoryNode([step(BORN, 0, 1_000, initialised()), step(BORN + 9, 1_000, 1_000, *calls)], 1_000)
    assert await stakes_at(node, BORN + 9) == ([1_000], [])


def by_a_program(inner_calls: Any) -> HistoryNode:
    """A program that is called by the wallet gives its stake account away; a node says so or not."""
    called, to_heir = (
        {"programIdIndex": 3, "accounts": [1], "data": ""},
        {
            "programIdIndex": 2,
            "accounts": [1, 3, 0],
            "data": base58.b58encode(struct.pack("<I", 1) + key(HEIR) + struct.pack("<I", 1)).decode(),
        },
    )
    authorization = {
        **step(BORN + 9, 1_000, 1_000, called),
        "inside": inner_calls and [{"index": 0, "instructions": [to_heir]}],
    }
    return HistoryNode([step(BORN, 0, 1_000, initialised()), authorization], 1_000)


async def test_what_programs_did_with_stake_is_not_known_where_a_node_does_not_keep_what_they_called() -> None:
    assert await stakes_at(by_a_program(True), BORN + 9) == ([], []), "it is another's"
    assert await stakes_at(by_a_program(True), BORN + 8) == ([1_000], [])
    amounts, [reason] = await stakes_at(by_a_program(None), BORN + 9)
    assert (amounts, "does not keep what programs called" in reason) == ([], True)
    assert await stakes_at(by_a_program([]), BORN + 9) == ([1_000], []), "that nothing was called is another thing"


async def test_rows_do_not_need_what_programs_called_and_do_not_say_that_stake_was_seen() -> None:
    for inner_calls, is_seen in ((None, False), (True, True)):
        node = by_a_program(inner_calls)
        node.answers = {**node.answers, "getBlocks": lambda params: [params[1]]}
        chain = node.chain()
        await chain.heads()
        piece = await chain.collect_accounts(Span(0, NOW), [WALLET], ["transactions", "native"])
        assert len(piece.tables["transactions"]) == 2, "by balances alone"
        assert bool(chain.stake_histories._scanned.get(WALLET)) is is_seen
        await chain.close()


async def test_a_program_that_failed_did_nothing_with_stake() -> None:
    node = by_a_program(None)
    real = node._transaction

    def failed(params: Any) -> Any:
        entry = real(params)
        return {**entry, "meta": {**entry["meta"], "err": "no" if entry["slot"] > BORN else None}}

    node.answers = {**node.answers, "getTransaction": failed}
    assert await stakes_at(node, BORN + 9) == ([1_000], [])


async def test_an_account_of_which_nobody_knows_whose_it_was_is_said() -> None:
    staker = {"programIdIndex": 2, "accounts": [1, 3, 0], "data": _staker()}
    node = HistoryNode([step(BORN, 1_000, 900, staker), step(BORN + 9, 900, 0)], 0)
    node.answers = {**node.answers, "getProgramAccounts": lambda params: node.at([])}
    amounts, [reason] = await stakes_at(node, BORN)
    assert (amounts, "who could withdraw" in reason) == ([], True)


def _staker() -> str:
    """Return the data of a call that makes another key the staker."""
    return base58.b58encode(struct.pack("<I", 1) + key(OTHER) + struct.pack("<I", 0)).decode()


async def test_what_was_looked_at_is_not_read_again_after_a_restart() -> None:
    stored: dict[str, dict[str, int]] = {}
    memory = EndpointMemory(
        lambda name: stored.get(name, {}), lambda name, key, value: stored.setdefault(name, {}).update({key: value})
    )
    withdrawal = {
        "programIdIndex": 2,
        "accounts": [1, 3, 3, 3, 0],
        "data": base58.b58encode(bytes([4, *bytes(11)])).decode(),
    }
    steps = [step(BORN, 0, 1_000, initialised()), step(BORN + 9, 1_000, 0, withdrawal)]
    settings = SolanaSettings(adapter="solana", rpc=["http://one.test"])
    request_counts = []
    for _ in range(2):
        node = HistoryNode(steps, 0, getProgramAccounts=lambda params: {"context": {"slot": NOW}, "value": []})
        chain = build(
            "solana", settings, Environment(clock=FakeClock()), configs=ROOT / "configs", transport=node, memory=memory
        )
        await chain.heads()
        lives = await chain.stake_histories.read_since([WALLET], 0)
        request_counts.append(node.asked.count("getSignaturesForAddress"))
        assert lives.histories[STAKED].owner(BORN) == WALLET
        await chain.close()
    assert request_counts == [4, 2], "the second lists those of the stake account alone"


async def test_stake_in_slots_that_a_node_has_not_reached_is_awaited() -> None:
    behind = True

    def answer_list(params: Any) -> Any:
        nonlocal behind
        if behind and params[1].get("minContextSlot", 0) == NOW:
            behind = False
            raise Refuse(-32016, "Minimum context slot has not been reached")
        return [] if behind else node._signatures(params)

    node = HistoryNode([step(BORN, 0, 1_000, initialised())], 1_000, getSignaturesForAddress=answer_list)
    node.answers = {**node.answers, "getProgramAccounts": saying({"context": {"slot": NOW}, "value": []})}
    chain = node.chain()
    await chain.heads()
    lives = await chain.stake_histories.read_since([WALLET], 0)
    assert lives.histories[STAKED].owner(BORN) == WALLET


async def test_a_slot_that_is_not_final_does_not_count_as_read() -> None:
    steps: list[dict[str, Any]] = []
    node = HistoryNode(steps, 1_000, getProgramAccounts=saying({"context": {"slot": NOW}, "value": []}))
    chain = node.chain()
    await chain.heads()
    assert not (await chain.stake_histories.read_since([WALLET], NOW + 5)).histories
    steps.append(step(NOW + 5, 0, 1_000, initialised()))
    node.slot = NOW + 10
    await chain.heads()
    lives = await chain.stake_histories.read_since([WALLET], NOW + 5)
    assert lives.histories[STAKED].owner(NOW + 5) == WALLET


async def test_a_block_that_may_still_go_has_what_is_the_same_before_it_and_now() -> None:
    for now, expected in ((LAMPORTS, [LAMPORTS]), (LAMPORTS - 1, [])):
        node = HistoryNode([step(BORN, 0, LAMPORTS, initialised())], LAMPORTS)
        node.answers = {**node.answers, "getSlot": lambda params: NOW - 5 if params[0] == FINAL else NOW}
        account = StakeNode._stake(100)
        account["account"]["lamports"] = now
        node.answers = {**node.answers, "getProgramAccounts": saying({"context": {"slot": NOW}, "value": [account]})}
        amounts, reasons = await stakes_at(node, NOW - 1)
        assert (amounts, len(reasons)) == (expected, 0 if expected else 1)
        assert not reasons or "may still go" in reasons[0]


FINAL = {"commitment": "finalized"}


def saying(value: Any) -> Callable[[Any], Any]:
    """Always the same answer."""
    return lambda params: value
