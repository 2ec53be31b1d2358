"""Capabilities that a chain lacks are declared by the chain and by its subject; outdated declarations are red."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import pytest

from chainfolio.blocks import Block
from chainfolio.capabilities import Capability, require_capability
from chainfolio.chains import Chain
from chainfolio.datasets import Dataset
from chainfolio.engine.results import TransactionFilter
from chainfolio.engine.snapshots.day_flows import balance_datasets
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.engine.transactions.pages import Statement
from chainfolio.engine.transactions.subjects import Subject
from chainfolio.errors import ChainfolioError, MissingCapability, NotIndexed
from chainfolio.indexer.registry import Registry
from chainfolio.kind_checks import METHODS
from chainfolio.kinds import kind_of
from chainfolio.portfolio.activity import Functions
from chainfolio.portfolio.facts import ChainFacts
from chainfolio.proofs import BlockProofs
from chainfolio.tables import APPROVALS
from tests.chains.index import FETCHED, index
from tests.chains.invented.chainfolio_invented.chain import InventedChain
from tests.chains.invented_subject import InventedSubject
from tests.chains.subject import ChainUnderTest


def check_declared(subject: ChainUnderTest, chain: Chain) -> None:
    """A subject declares just what its chain lacks, and a chain has just the methods of what it has."""
    assert set(Capability) - chain.capabilities == subject.lacks
    tables = {each.table.name for each in chain.datasets.values()}
    assert set(FETCHED) - tables == subject.no_rows
    for capability, names in METHODS.items():
        assert all(hasattr(chain, name) for name in names) == (capability in chain.capabilities), capability
    assert (Capability.APPROVALS in chain.capabilities) == ("approvals" in tables)


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
async def test_what_a_chain_lacks_is_what_its_subject_declares(traded: ChainUnderTest) -> None:
    chain = traded.chain()
    check_declared(traded, chain)
    assert set(traded.datasets) <= set(chain.datasets)
    assert set(chain.default_datasets) <= set(chain.datasets)
    await chain.close()


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
@pytest.mark.parametrize("capability", list(Capability))
async def test_what_a_chain_lacks_is_one_error_that_names_both(traded: ChainUnderTest, capability: Capability) -> None:
    chain = traded.chain()
    get: Callable[[Chain, Capability], Any] = cast("Any", require_capability)  # it is typed for each capability
    if capability in traded.lacks:
        with pytest.raises(MissingCapability, match=rf"`{capability}` of {chain.key}.*doctor"):
            get(chain, capability)
    else:
        assert get(chain, capability) is chain
    await chain.close()


class Proving(InventedChain):
    """A gap that was closed, and declared closed by the chain."""

    capabilities = InventedChain.capabilities | {Capability.PROOFS}

    async def prove(self, block: Block, account: str, balances: Any) -> BlockProofs:
        raise AssertionError("nobody asks here")


class Secretive(Proving):
    """A chain that closed a gap, but still declares it."""

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


class WithoutTransactions(InventedChain):
    """A chain that returns movements, but no transactions, neither to an index nor to a lookup."""

    datasets = MappingProxyType({name: InventedChain.datasets[name] for name in ("native", "transfers")})
    default_datasets = tuple(datasets)
    capabilities = InventedChain.capabilities - {Capability.TRANSACTIONS}


class Unasked(InventedChain):
    """A chain whose transactions can be indexed only."""

    capabilities = WithoutTransactions.capabilities


@pytest.mark.parametrize(
    ("adapter", "error", "message"),
    [
        (
            WithoutTransactions,
            MissingCapability,
            "`transactions` of moon cannot be answered by this server .moon lacks it",
        ),
        (Unasked, NotIndexed, "transactions of moon are not indexed for blocks"),
        (InventedChain, None, ""),
    ],
)
async def test_transactions_that_no_part_of_a_chain_can_say_are_a_typed_error(
    tmp_path: Path, adapter: type[InventedChain], error: type[ChainfolioError] | None, message: str
) -> None:
    subject = InventedSubject(90)
    subject.adapter = adapter
    async with index(subject, tmp_path, datasets=("native", "transfers")) as indexed:
        await indexed.fill_final()
        await indexed.follower().step()
        book = TokenBook(indexed.key, indexed.lake, {})
        snapshotter = Snapshotter(indexed.chain, indexed.lake, indexed.tail, book, ())
        shown_subject = Subject(
            snapshotter, ChainFacts(indexed.key, "Moon", 7777), indexed.datasets, (subject.accounts[0],)
        )
        statement = Statement(Registry(()), Functions(), 1000, TransactionFilter(limit=10, offset=0))
        if error is None:
            assert (await statement.page([shown_subject]))[0]
            return
        with pytest.raises(error, match=message):
            await statement.page([shown_subject])


def test_a_day_takes_every_dataset_that_moves_or_charges_something() -> None:
    assert balance_datasets(InventedChain.datasets.values()) == ("transactions", "native", "transfers")
    expected = {"transfers", "native", "internal", "transactions", "withdrawals", "mints"}
    assert set(balance_datasets(kind_of("evm").datasets.values())) == expected
