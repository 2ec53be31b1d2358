"""`hideDust`: transactions by which others sent next to nothing are left out, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chainfolio.engine.results import TransactionFilter
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.engine.transactions.pages import Statement
from chainfolio.engine.transactions.subjects import Subject
from chainfolio.indexer.registry import Registry
from chainfolio.localchain.evm import Tx
from chainfolio.portfolio.facts import ChainFacts
from chainfolio.portfolio.transactions import TransactionDocument, may_be_dust
from chainfolio.pricing.fixed import build_fixed
from tests.chains.evm import evm
from tests.chains.index import Index, index
from tests.engine.test_transactions import FUNCTIONS, filled, hashes, send_all

CENT_WEI = 5 * 10**12  # 0.01 USD at 2,000 USD


async def read(
    indexed: Index, account: str, question: TransactionFilter, *, usd: str = "2000"
) -> list[TransactionDocument]:
    """A page of one account; the native coin has a fixed price, or none."""
    facts = indexed.chain.facts
    facts_without_prices = ChainFacts(facts.key, facts.name, facts.chain_id, {})
    sources = [build_fixed({str(facts.native_asset): usd}, "test")] if usd else []
    book = TokenBook(facts.key, indexed.lake, {})
    snapshotter = Snapshotter(indexed.chain, indexed.lake, indexed.tail, book, sources)
    statement = Statement(Registry(()), FUNCTIONS, 100_000, question)
    return (await statement.page([Subject(snapshotter, facts_without_prices, indexed.datasets, (account,))]))[0]


@pytest.mark.node
async def test_what_others_sent_below_a_cent_is_left_out_and_nothing_else(tmp_path: Path) -> None:
    with evm(0) as subject:
        alice, bob = (subject.deployment.accounts[name] for name in ("alice", "bob"))
        amounts = (CENT_WEI - 1, CENT_WEI, 1, CENT_WEI * 100)
        received_hashes = send_all(subject, *(Tx(bob, alice, value=amount, gas=21_000) for amount in amounts))
        own_hashes = send_all(subject, Tx(alice, bob, value=1, gas=21_000), Tx(alice, alice, value=1, gas=21_000))
        unfiltered = TransactionFilter(limit=250, offset=0)
        hidden = replace(unfiltered, hide_dust=True)
        async with index(subject, tmp_path) as indexed:
            await filled(indexed)
            all_hashes = hashes(await read(indexed, alice.lower(), unfiltered))
            assert {*received_hashes, *own_hashes} <= {*all_hashes}
            remaining = [each for each in all_hashes if each not in (received_hashes[0], received_hashes[2])]
            assert hashes(await read(indexed, alice.lower(), hidden)) == remaining
            pages = [
                await read(indexed, alice.lower(), replace(hidden, limit=1, offset=offset))
                for offset in range(len(remaining) + 1)
            ]
            assert [each.hash for page in pages for each in page] == remaining
            assert hashes(await read(indexed, alice.lower(), hidden, usd="")) == all_hashes, (
                "without a price nothing is dust"
            )
            of_bob = await read(indexed, bob.lower(), hidden)
            assert {*received_hashes} <= {*hashes(of_bob)}
            assert not any(may_be_dust(each) for each in of_bob if each.hash in received_hashes)
