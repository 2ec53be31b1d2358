"""What a family says about calls holds for every fork of it; a wrong word disables its package only."""

from __future__ import annotations

import pytest

from chainfolio.errors import BadSettings
from chainfolio.indexer.registry import Protocol, Registry, typed_calls
from chainfolio.protocols import ProtocolFamily, TypedCalls


def test_a_fork_has_the_calls_of_its_family_after_its_own() -> None:
    family = ProtocolFamily("farm", kind="evm", calls=(TypedCalls("UNSTAKE", "gain", ("withdraw",)),))
    fork = Protocol("fork", "Fork", {}, families=["farm"], is_fork=True)
    other_protocol = Protocol("other", "Other", {}, families=["unknown"])
    facts = Registry([fork, other_protocol], {"farm": family}).facts
    assert [(rule.type, rule.needs, rule.functions) for rule in facts["fork"].transactions] == [
        ("UNSTAKE", frozenset({"gain"}), frozenset({"withdraw"}))
    ]
    assert facts["other"].transactions == ()


@pytest.mark.parametrize(
    "calls",
    [TypedCalls("NOTYPE", "gain", ("a",)), TypedCalls("STAKE", "luck", ("a",)), "x"],
    ids=["type", "needs", "text"],
)
def test_calls_with_a_wrong_word_are_refused(calls: TypedCalls) -> None:
    with pytest.raises(BadSettings):
        typed_calls(ProtocolFamily("farm", kind="evm", calls=(calls,)))


def test_calls_without_functions_are_calls_of_any_function() -> None:
    family = ProtocolFamily("pool", kind="evm", calls=(TypedCalls("ADDLIQUIDITY", "issued", ()),))
    (rule,) = Registry([Protocol("fork", "Fork", {}, families=["pool"])], {"pool": family}).facts["fork"].transactions
    assert rule.fits(frozenset({"issued", "loss"}), "multicall")
    assert not rule.fits(frozenset({"loss"}), "multicall")


def test_calls_without_functions_are_about_contracts_in_their_roles() -> None:
    calls = (TypedCalls("STAKE", "loss", (), ("chef",)), TypedCalls("CLAIM", "gain", ()))
    file = Protocol("fork", "Fork", {"chain": {"chef": ["0xc"], "router": ["0xr"]}}, families=["farm"])
    stake, claim = (
        Registry([file], {"farm": ProtocolFamily("farm", kind="evm", calls=calls)}).facts["fork"].transactions
    )
    assert (stake.counterparties, claim.counterparties) == (frozenset({"0xc"}), frozenset({"0xc", "0xr"}))
