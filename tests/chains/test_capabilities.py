"""What a chain lacks is declared by the chain and by its subject; a declaration that is no longer true is red."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from chainfolio.blocks import Block
from chainfolio.chains import PROTOCOLS, Capability, Chain, having
from chainfolio.datasets import Dataset
from chainfolio.errors import Incapable
from chainfolio.proofs import Findings
from chainfolio.tables import APPROVALS
from tests.chains.index import FETCHED
from tests.chains.invented.chainfolio_invented.chain import InventedChain
from tests.chains.invented_subject import InventedSubject
from tests.chains.subject import ChainUnderTest


def check_declared(subject: ChainUnderTest, chain: Chain) -> None:
    """A subject declares just what its chain lacks, and a chain has just the methods of what it has."""
    assert set(Capability) - chain.capabilities == subject.lacks
    tables = {each.table.name for each in chain.datasets.values()}
    assert set(FETCHED) - tables == subject.no_rows
    for capability, protocol in PROTOCOLS.items():
        assert isinstance(chain, protocol) == (capability in chain.capabilities), capability
    assert (Capability.APPROVALS in chain.capabilities) == ("approvals" in tables)


async def test_what_a_chain_lacks_is_what_its_subject_declares(traded: ChainUnderTest) -> None:
    chain = traded.chain()
    check_declared(traded, chain)
    assert set(traded.datasets) <= set(chain.datasets)
    assert set(chain.usual) <= set(chain.datasets)
    await chain.close()


@pytest.mark.parametrize("capability", list(Capability))
async def test_what_a_chain_lacks_is_one_error_that_names_both(traded: ChainUnderTest, capability: Capability) -> None:
    chain = traded.chain()
    get: Callable[[Chain, Capability], Any] = having  # it is typed for each capability by itself
    if capability in traded.lacks:
        with pytest.raises(Incapable, match=rf"`{capability}` of {chain.key}.*doctor"):
            get(chain, capability)
    else:
        assert get(chain, capability) is chain
    await chain.close()


class Proving(InventedChain):
    """A gap that was closed, and declared closed by the chain."""

    capabilities = InventedChain.capabilities | {Capability.PROOFS}

    async def prove(self, block: Block, account: str, native: int | None, tokens: Any) -> Findings:
        raise AssertionError("nobody asks here")


class Secretive(Proving):
    """A gap that was closed, and nobody was told."""

    capabilities = InventedChain.capabilities


class Boastful(InventedChain):
    """A capability without anything behind it."""

    capabilities = InventedChain.capabilities | {Capability.RESTORE}


class Approving(InventedChain):
    """A dataset more than its subject knows of."""

    datasets = MappingProxyType({**InventedChain.datasets, "approvals": Dataset("approvals", APPROVALS)})


@pytest.mark.parametrize("changed", [Proving, Secretive, Boastful, Approving])
def test_a_gap_that_was_closed_turns_its_declaration_red(changed: type[InventedChain]) -> None:
    subject = InventedSubject(3)
    check_declared(subject, subject.chain())
    chain = changed("moon", subject.chain().settings, lambda: subject.ledger)
    with pytest.raises(AssertionError):
        check_declared(subject, chain)
