"""Staking contracts with an unknown interface."""

from __future__ import annotations

import pytest

from chainfolio.adapters.evm.positions.rules import ProtocolMatch, ReadError
from chainfolio.adapters.evm.protocols.staking_rewards import position
from chainfolio.protocols import DecodedPosition, TokenAmount
from tests.protocols.scripted import Says, decode

ME, FARM, SHARE, REWARD = ("0x" + letter * 40 for letter in "1234")
ANSWERS: Says = {
    (FARM, "balanceOf"): 7,
    (FARM, "earned"): 3,
    (FARM, "stakingToken"): SHARE,
    (FARM, "rewardsToken"): REWARD,
    (SHARE, "balanceOf"): 7,
    (REWARD, "balanceOf"): 3,
}
ASKED = [(FARM, "balanceOf"), (FARM, "earned"), (FARM, "stakingToken"), (FARM, "rewardsToken")]


def match(*sent: str) -> ProtocolMatch:
    """Return the match of an account that sent these tokens to the contract."""
    return ProtocolMatch(
        ME, FARM, contracts={"staking": (FARM,)}, sent={FARM: frozenset(sent)} if sent else {}, is_fork=True
    )


def test_a_contract_that_answers_as_a_farm_is_read_as_one() -> None:
    positions = decode(position, match(SHARE), says=ANSWERS)
    assert positions == [
        DecodedPosition("FARMING", supplied=(TokenAmount(SHARE, 7),), rewards=(TokenAmount(REWARD, 3),), pool=FARM)
    ]


@pytest.mark.parametrize("silent", ASKED, ids=[name for _, name in ASKED])
def test_one_that_does_not_is_unknown_to_whom_it_has_something_of(silent: tuple[str, str]) -> None:
    says = {key: answer for key, answer in ANSWERS.items() if key != silent}
    with pytest.raises(ReadError, match="no decoder knows"):
        decode(position, match(SHARE), says=says)
    assert decode(position, match(), says=says) is None


def test_a_farm_in_which_nothing_is_left_is_no_position() -> None:
    assert decode(position, match(SHARE), says={**ANSWERS, (FARM, "balanceOf"): 0, (FARM, "earned"): 0}) is None
