"""Untrusted contracts are read apart on Starknet, and for a bounded time."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.adapters.starknet import state
from chainfolio.adapters.starknet.state import Call
from chainfolio.plans import Reverted, Unknown
from chainfolio.untrusted import OVER
from tests.json_rpc import Refuse
from tests.starknet.dust import BEHAVIOURS, DustNode

HONEST = Call("0x1", "balance_of", (7,))


def call(number: int) -> Call:
    """An untrusted call of a contract."""
    return Call(hex(number), "balance_of", (7,), untrusted=True)


async def test_a_contract_that_never_ends_costs_no_honest_read_and_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state, "MAX_SECONDS", 0.02)
    node = DustNode({2: "never ends"})
    chain = node.chain()
    block = (await chain.heads()).latest
    assert await chain.answer([call(2), HONEST], block) == [OVER, (5, 0)]
    requests = node.requests
    assert await chain.answer([call(2), HONEST], block) == [OVER, (5, 0)]
    assert node.requests == requests + 1
    await chain.close()


@pytest.mark.parametrize("behaviour", [each for each in BEHAVIOURS if each != "never ends"])
async def test_an_untrusted_contract_spoils_no_answer_of_another_one(behaviour: str) -> None:
    node = DustNode({2: behaviour})
    chain = node.chain()
    block = (await chain.heads()).latest
    results = await chain.answer([call(2), HONEST, call(3)], block)
    assert results[1:] == [(5, 0), (5, 0)]
    assert isinstance(results[0], Reverted | Unknown | tuple)
    await chain.close()


async def test_a_node_without_the_state_says_nothing_about_an_untrusted_contract() -> None:
    """The other node is asked; without one, the read failed, and the contract is called again at once."""

    class PrunedNode(DustNode):
        is_pruned = True

        def answer(self, method: str, params: Any) -> Any:
            if method == "starknet_call" and self.is_pruned:
                raise Refuse(42, "the state of this block is not available")
            return super().answer(method, params)

    node = PrunedNode({})
    chain = node.chain()
    block = (await chain.heads()).latest
    [result] = await chain.answer([call(2)], block)
    assert isinstance(result, Unknown)
    assert (result.cause, "not available" in result.reason) == ("read", True)
    node.is_pruned = False
    assert await chain.answer([call(2)], block) == [(5, 0)]
    await chain.close()
