"""Delegated coins, by answers laid out as the published ABI of pools and of the staking contract has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from chainfolio.adapters.starknet.felts import selector
from chainfolio.adapters.starknet.staking import MAX_CONTRACTS, NOT_LISTED, NOT_READ, decode_member
from chainfolio.interactions import Interactions
from chainfolio.plans import Reverted, Unknown, run_batched
from chainfolio.positions import AccountState
from chainfolio.protocols import InstalledProtocols
from tests.json_rpc import Refuse
from tests.starknet.fakes import COIN, WALLET, FakeNode
from tests.starknet.recorded import FACTS

MINE = f"0x{int(WALLET, 16):064x}"
POOL, OTHER, FRIEND, VALIDATOR, TOKEN = 0xD1, 0xD2, 0xD3, 0xAA, 0xCE
STRK = FACTS.native_asset
# Some(reward address, amount, unclaimed rewards, commission, amount that leaves, Some(seconds)); None; a moment of None
LEAVING = (0, 7, 100, 5, 500, 25, 0, 1_754_224_640)
STAYING = (0, 7, 100, 5, 500, 0, 1)
NOBODY = (1,)


def felt(number: int) -> str:
    """A felt as an address."""
    return f"0x{number:064x}"


class Staking(FakeNode):
    """A node with pools: their answers about the account and themselves, and the pools of the staking contract."""

    def __init__(
        self, members: dict[int, Any], listed_pools: Any = (0, 500, 2, POOL, int(COIN, 16), 9, OTHER, TOKEN, 8)
    ) -> None:
        super().__init__(starknet_call=self._called)
        self.members, self.named = members, listed_pools
        self.tokens = {POOL: int(COIN, 16), OTHER: TOKEN}

    def _called(self, params: Any) -> Sequence[str]:
        contract, function = int(params[0]["contract_address"], 16), int(params[0]["entry_point_selector"], 16)
        if function == selector("balanceOf"):
            return ["0x9", "0x0"]
        answer: Any = None
        if function == selector("get_pool_member_info_v1"):
            answer = self.members.get(contract)
        elif function == selector("contract_parameters_v1") and contract in self.members:
            answer = (VALIDATOR, 0, int(FACTS.staking, 16), self.tokens.get(contract, int(COIN, 16)), 500)
        elif function == selector("staker_pool_info") and contract == int(FACTS.staking, 16):
            answer = self.named
        if answer is None:
            raise Refuse(21, "Requested entrypoint does not exist in the contract")
        if isinstance(answer, Refuse):
            raise answer
        return [hex(each) for each in answer]

    async def read(self, *sent: int) -> AccountState:
        """The account, who sent something to these contracts."""
        chain = self.chain()
        block = (await chain.heads()).latest
        reader = chain.account_reader(InstalledProtocols()).at(block)
        interactions = Interactions(sent_to={felt(each): frozenset([STRK]) for each in sent})
        report = (
            await run_batched(
                {"all": reader.read(MINE, interactions, ())}, lambda reads: chain.answer(list(reads), block)
            )
        )["all"]
        assert report.error is None, report.error
        assert report.result is not None
        return report.result


async def test_what_is_delegated_what_leaves_and_what_was_earned_is_a_position() -> None:
    state = await Staking({POOL: LEAVING, OTHER: STAYING, FRIEND: NOBODY}).read(POOL, OTHER, FRIEND, 0xE0)
    delegated, leaving = state.positions
    assert (delegated.supplied, delegated.rewards, delegated.unlock_s, delegated.pool) == (
        {STRK: 125},
        {STRK: 5},
        1_754_224_640,
        felt(POOL),
    )
    assert (leaving.supplied, leaving.rewards, leaving.unlock_s) == (
        {FACTS.token_asset(felt(TOKEN)): 100},
        {STRK: 5},
        0,
    )
    assert {each.unverified for each in state.positions} == {""}
    assert {each.type for each in state.positions} == {"STAKED"}
    assert state.issues == ()


async def test_a_contract_that_only_answers_like_a_pool_is_worth_nothing() -> None:
    (position,) = (await Staking({FRIEND: LEAVING}).read(FRIEND)).positions
    assert position.unverified == NOT_LISTED
    (position,) = (
        await Staking({POOL: LEAVING}, listed_pools=Refuse(40, "Contract error", "STAKER_NOT_EXISTS")).read(POOL)
    ).positions
    assert position.unverified == NOT_LISTED


async def test_a_pool_of_another_token_than_the_staking_contract_names_is_not_that_pool() -> None:
    node = Staking({POOL: LEAVING})
    node.tokens = {POOL: TOKEN}
    (position,) = (await node.read(POOL)).positions
    assert position.unverified == NOT_LISTED


@pytest.mark.parametrize("listed_pools", [(), (0,), (0, 500, 2**200, 1), (0, 500, 2, POOL, 1, 9), (1, 1, POOL)])
async def test_a_list_of_pools_that_is_none_vouches_for_nothing(listed_pools: tuple[int, ...]) -> None:
    (position,) = (await Staking({POOL: LEAVING}, listed_pools=listed_pools).read(POOL)).positions
    assert position.unverified in (NOT_READ, NOT_LISTED)


@pytest.mark.parametrize(
    "answer",
    [
        (),
        (0,),
        (2,),
        (0, 7, 2**128, 5, 500, 0, 1),
        (0, 7, 1, 5, 500, 2**130, 1),
        (0, 7, 1, 5, 500, 0, 0, 2**60),
        (0, 7, 1, 5, 500, 0),
        (0, 7, 1, 5, 500, 0, 1, 9),
        (0, 7, 1, 5, 500, 0, 7),
        Reverted(),
        Unknown("x", "absent"),
    ],
)
def test_what_no_pool_answers_is_no_position(answer: Any) -> None:
    assert decode_member(answer) is None


async def test_contracts_beyond_the_bound_are_said_not_to_be_asked() -> None:
    state = await Staking({}).read(*range(0x1000, 0x1000 + MAX_CONTRACTS + 3))
    assert state.positions == ()
    (issue,) = state.issues
    assert issue.makes_partial
    assert "3 contracts were not asked" in issue.reason


async def test_a_wallet_without_pools_asks_no_more_than_its_balances() -> None:
    node = Staking({})
    await node.read()
    assert node.asked.count("starknet_call") == 1
