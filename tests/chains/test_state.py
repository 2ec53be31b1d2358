"""A snapshot of a past block has the node's balances at it, to the unit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chainfolio.capabilities import Capability
from chainfolio.contracts import Snapshot
from chainfolio.protocols import InstalledProtocols
from tests.chains.index import AnyIndex, index
from tests.chains.subject import ChainUnderTest

pytestmark = pytest.mark.needs_rows("transfers")  # without them there are no accounts
PAST = (0.0, 0.6, 1.0)  # where to look between the birth of the tokens and the head


@pytest.fixture
async def indexed(traded: ChainUnderTest, tmp_path: Path) -> AsyncIterator[AnyIndex]:
    # Balances that nodes do not keep are the sums of all movements since.
    skipped = ("native", "transactions") if Capability.PAST_BALANCES not in traded.lacks else ()
    datasets = [name for name in traded.datasets if name not in skipped]
    async with index(traded, tmp_path, datasets=datasets) as indexed:
        await indexed.fill_final()
        await indexed.follower().step()
        yield indexed


def token_balances(snapshot: Snapshot) -> dict[tuple[str, str], int]:
    """Return the token balances of a snapshot: account, contract -> raw."""
    return {
        (holding.account, holding.token.asset.reference): holding.raw
        for holding in snapshot.holdings
        if not holding.token.asset.is_native
    }


def native(snapshot: Snapshot) -> dict[str, int]:
    """Return the native balances of a snapshot."""
    return {holding.account: holding.raw for holding in snapshot.holdings if holding.token.asset.is_native}


@pytest.mark.slow("other heights of the same chain", fast=["*-0.6", "invented-*", "starknet-*"])
@pytest.mark.parametrize("share", PAST)
async def test_every_balance_of_every_wallet_is_what_its_contract_says_at_that_block(
    traded: ChainUnderTest, indexed: AnyIndex, share: float
) -> None:
    height = traded.birth + int((traded.height - traded.birth) * share)
    snapshot = await indexed.snapshot(traded.accounts, await indexed.block(height))
    keys = [(account, token) for account in traded.accounts for token in traded.tokens]
    truth = {key: traded.balance(*key, height) for key in keys}
    balances = token_balances(snapshot)
    assert {key: raw for key, raw in balances.items() if key in truth} == {p: raw for p, raw in truth.items() if raw}
    assert all(traded.balance(*key, height) == raw for key, raw in balances.items() if key not in truth)
    assert native(snapshot) == {account: traded.native(account, height) for account in traded.accounts}
    assert [issue for issue in snapshot.issues if issue.makes_partial] == []
    assert balances


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
async def test_the_head_is_what_a_snapshot_without_a_block_is_of(traded: ChainUnderTest, indexed: AnyIndex) -> None:
    snapshot = await indexed.snapshot(traded.accounts)
    assert snapshot.block.height == traded.height
    assert native(snapshot) == {account: traded.native(account, traded.height) for account in traded.accounts}


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
async def test_a_snapshot_of_many_accounts_is_the_sum_of_their_own(traded: ChainUnderTest, indexed: AnyIndex) -> None:
    block = await indexed.block(traded.height)
    combined = await indexed.snapshot(traded.accounts, block)
    alone = [await indexed.snapshot([account], block) for account in traded.accounts]
    assert token_balances(combined) == {key: raw for snapshot in alone for key, raw in token_balances(snapshot).items()}


@pytest.mark.needs(Capability.PAST_BALANCES)
async def test_zero_is_told_and_what_is_not_there_is_an_issue(traded: ChainUnderTest, indexed: AnyIndex) -> None:
    empty_account, token = traded.accounts[-1], traded.plain[0]
    assert traded.balance(empty_account, token, traded.height) == 0
    now = await indexed.snapshot([empty_account], await indexed.block(traded.height), extra=[token])
    assert (native(now), token_balances(now), now.issues) == ({empty_account: 0}, {}, ())
    before = await indexed.snapshot([empty_account], await indexed.chain.block(0), extra=[token])
    assert traded.balance(empty_account, token, 0) is None
    assert token_balances(before) == {}
    assert [issue.subject for issue in before.issues] == [token]


@pytest.mark.needs(Capability.PAST_BALANCES)
async def test_at_the_first_block_nobody_holds_what_came_later(traded: ChainUnderTest, indexed: AnyIndex) -> None:
    snapshot = await indexed.snapshot(traded.accounts, await indexed.chain.block(0))
    assert token_balances(snapshot) == {}
    assert native(snapshot) == {account: traded.native(account, 0) for account in traded.accounts}
    assert snapshot.issues == ()


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
@pytest.mark.needs(Capability.PAST_BALANCES)
async def test_heights_that_are_not_indexed_are_said(traded: ChainUnderTest, tmp_path: Path) -> None:
    async with index(traded, tmp_path) as part:
        await part.fill(10, 40)
        snapshot = await part.snapshot(traded.accounts[:1], await part.block(60))
        (issue,) = [issue for issue in snapshot.issues if issue.makes_partial]
        assert "0..9, 41..60" in issue.reason
        assert native(snapshot) == {traded.accounts[0]: traded.native(traded.accounts[0], 60)}


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
async def test_an_index_of_nothing_says_so(traded: ChainUnderTest, tmp_path: Path) -> None:
    async with index(traded, tmp_path) as empty_index:
        snapshot = await empty_index.snapshot(traded.accounts[:1])
        reasons = [issue.reason for issue in snapshot.issues if issue.makes_partial]
        if empty_index.chain.account_reader(InstalledProtocols()).finds_tokens:
            assert reasons == []
        else:
            assert [f"0..{traded.height}" in reason for reason in reasons] == [True]
        assert await empty_index.materialise() == {
            "account_transfers": 0,
            "account_approvals": 0,
            "account_transactions": 0,
            "account_events": 0,
            "balances": 0,
            "allowances": 0,
        }
