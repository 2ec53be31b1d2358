"""A chain that a package makes is checked before it is used: for missing parts and contradictions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from chainfolio import kinds
from chainfolio.assets import Asset
from chainfolio.capabilities import Capability
from chainfolio.datasets import Dataset
from chainfolio.environment import Environment
from chainfolio.errors import BadSettings
from chainfolio.kind_checks import chain_fault
from chainfolio.tables import APPROVALS
from tests.chains.invented.chainfolio_invented.chain import DATASETS, InventedChain
from tests.chains.invented_subject import InventedSubject

DECLARED: Any = InventedChain.capabilities
CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "as it is": ({}, ""),
    "a capability without its method": (
        {"capabilities": DECLARED | {Capability.PROOFS}},
        "it declares `proofs` without prove",
    ),
    "a capability that is none": ({"capabilities": DECLARED | {"teleport"}}, "teleport is no capability"),
    "another name than its coin's": ({"caip2": "invented:mars"}, "its native asset is not one of invented:mars"),
    "a name that is none": ({"caip2": "the moon"}, "the moon is no CAIP-2 name"),
    "another kind": ({"kind": "evm"}, "of the kind evm"),
    "another key": ({"key": "sun"}, "it calls itself sun"),
    "facts that are none": ({"info": None}, "its native asset is not one of invented:moon"),
    "a dataset of its own": (
        {"datasets": MappingProxyType({**DATASETS, "approvals": Dataset("approvals", APPROVALS)})},
        "it has datasets that its kind lacks: approvals",
    ),
    "a usual dataset that it lacks": ({"default_datasets": ("gossip",)}, "it has datasets that its kind lacks: gossip"),
}


def invented_chain() -> InventedChain:
    return InventedSubject(3).chain()


@pytest.mark.parametrize("name", CHANGES)
def test_a_chain_that_contradicts_itself_is_told(name: str) -> None:
    chain, (change, fault) = invented_chain(), CHANGES[name]
    for attribute, value in change.items():
        setattr(chain, attribute, value)
    message = chain_fault(chain, "moon", "invented", DATASETS)
    assert fault in message
    assert bool(message) == bool(fault)


def test_a_chain_whose_facts_name_the_coin_of_another_is_told() -> None:
    chain: Any = invented_chain()
    coin = replace(chain.info.native, asset=Asset("eip155:1", "slip44", "60"))
    chain.info = replace(chain.info, native=coin)
    assert "native asset" in chain_fault(chain, "moon", "invented", DATASETS)


@pytest.mark.parametrize(
    ("of", "message"),
    [
        (ValueError("no luck"), "chains.moon: the kind of chain `toy` cannot make it: ValueError: no luck"),
        (None, "chains.moon: what the kind of chain `toy` makes is no chain: it lacks key, kind, caip2, info, "),
        (BadSettings("chains.moon.speed", "is at least 1"), "chains.moon.speed: is at least 1"),
    ],
)
def test_a_kind_that_makes_no_chain_is_refused_with_the_section(
    of: Exception | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Kind:
        datasets = DATASETS

        def build(self, *_: Any, **__: Any) -> Any:
            if of is not None:
                raise of

    monkeypatch.setattr(kinds, "kind_of", lambda name: Kind())
    with pytest.raises(BadSettings) as caught:
        kinds.build_chain(
            "toy", "moon", invented_chain().settings, Environment(), configs=Path(), memory=kinds.EndpointMemory()
        )
    assert str(caught.value).startswith(message)
