"""Coins and tokens that calls of contracts carry, and calls that cannot be made."""

from __future__ import annotations

from collections.abc import Sequence

from chainfolio.adapters.evm.families import FAMILIES
from chainfolio.adapters.evm.reads import Call
from chainfolio.adapters.tron.families import EvmProtocols, to_evm
from chainfolio.plans import Plan, Unknown, run_offline
from chainfolio.protocols import InstalledProtocols
from tests.tron.fakes import ALICE, USDT, FakeNode, make_transaction
from tests.tron.test_faults import movement, rows


async def test_coins_and_tokens_that_a_call_carries_move_to_the_contract() -> None:
    node = FakeNode()
    node.transactions[50] = [make_transaction(31, (1, ALICE), (2, USDT), (3, 7), (5, 9), (6, 1_002_000))]
    tables = await rows(node)
    assert [movement(each) for each in tables["transfers"]] == [
        ("native", None, ALICE, USDT, 7),
        ("trc10", "1002000", ALICE, USDT, 9),
    ]


def test_a_read_that_cannot_be_encoded_is_unknown_and_the_others_are_made() -> None:
    """A contract chooses the number that a decoder passes on, and must not fail the answers of accounts."""
    protocols = EvmProtocols.build(FAMILIES, FakeNode().chain().facts, InstalledProtocols(), ())
    contract = to_evm(USDT)

    def decoder() -> Plan[Sequence[object]]:
        results = yield [
            Call(contract, "convertToAssets(uint256)(uint256)", (2**256,)),
            Call(contract, "totalSupply()(uint256)"),
        ]
        return results

    results = run_offline(protocols._translate(decoder()), lambda read: 7)
    assert isinstance(results[0], Unknown)
    assert (results[0].cause, results[1]) == ("argument", 7)
