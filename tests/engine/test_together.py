"""Reads of many accounts at once equal reads of each alone, wherever their rows lie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainfolio.engine.rows import ChainIndex
from chainfolio.engine.snapshots import account_index
from chainfolio.localchain.airdrop import airdrop
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.facts import ChainFacts
from chainfolio.portfolio.valuation import valuate
from tests.chains.account_rows import arrivals_of, fees_at
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import Index, index

STRANGER = "0x" + "12" * 20


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(24) as chain:
        airdrop(chain.node, chain.deployment)
        chain.mine(20)
        yield chain


def wallets(subject: EvmSubject) -> list[str]:
    """Wallets of the chain, contracts among them, and one that nothing ever happened to."""
    return [*sorted({account.lower() for account in subject.accounts}), STRANGER]


async def everywhere(indexed: Index) -> None:
    """Rows sorted by account, rows that are not yet, and rows in the tail; all sorted in several files."""
    await indexed.fill(0, 5)
    await indexed.materialise()
    await indexed.fill(6, 14)
    await indexed.materialise()
    await indexed.fill_final()
    await indexed.follower().step()


@pytest.mark.node
async def test_what_many_met_and_paid_and_how_it_came_is_what_each_alone_did(
    subject: EvmSubject, tmp_path: Path
) -> None:
    owners = wallets(subject)
    async with index(subject, tmp_path) as indexed:
        await everywhere(indexed)
        lake, tail, key, info = indexed.lake, indexed.tail, indexed.key, indexed.chain.info
        rows = ChainIndex(lake, tail, key)
        blocks = {height: await indexed.chain.block(height) for height in (0, 5, 12, 20, subject.height)}
        tokens = sorted(
            {
                token
                for each in account_index.interactions_of(rows, owners, subject.height, info).values()
                for token in each.tokens
            }
        )
        assert len(tokens) > 5

        @settings(max_examples=12, deadline=None)
        @given(
            st.lists(st.sampled_from(owners), min_size=1, max_size=12, unique=True),
            st.sampled_from(sorted(blocks)),
            st.randoms(),
        )
        def equal(accounts: list[str], height: int, random: Random) -> None:
            interactions = account_index.interactions_of(rows, accounts, height, info)
            assert list(interactions) == accounts
            fees = fees_at(rows, accounts, blocks[height])
            token_samples = {account: random.sample(tokens, 4) for account in accounts}
            trusted = {account: random.sample(tokens, 2) for account in accounts}
            arrivals = arrivals_of(rows, token_samples, trusted, height)
            extended_trust = {account: [*trusted[account], *tokens[:2]] for account in accounts}
            assert arrivals_of(rows, token_samples, trusted, height, tokens[:2]) == arrivals_of(
                rows, token_samples, extended_trust, height
            )
            for account in accounts:
                assert account_index.interactions_of(rows, [account], height, info) == {account: interactions[account]}
                assert fees_at(rows, [account], blocks[height]) == {account: fees[account]}
                alone = arrivals_of(rows, {account: token_samples[account]}, {account: trusted[account]}, height)
                assert alone == {account: arrivals[account]}

        equal()


@pytest.mark.node
async def test_an_account_has_the_same_portfolio_alone_and_among_others(subject: EvmSubject, tmp_path: Path) -> None:
    """Issues and spam flags are equal too: they do not depend on the other accounts of a request."""
    accounts = wallets(subject)
    chains = {"local": ChainFacts("local", "Local", 31337)}
    async with index(subject, tmp_path) as indexed:
        await everywhere(indexed)
        block = await indexed.chain.block(subject.height)
        snapshot = await indexed.snapshot(accounts, block)
        parts = valuate([snapshot]).by_account()
        spam = 0
        for account in accounts:
            alone = valuate([await indexed.snapshot([account], block)])
            document = portfolio(account, parts[account], chains, updated_ms=0, block_number=block.height)
            assert document == portfolio(account, alone, chains, updated_ms=0, block_number=block.height)
            assert document == portfolio(account, valuate([snapshot]), chains, updated_ms=0, block_number=block.height)
            spam += document.spam_assets
        assert spam > 0
