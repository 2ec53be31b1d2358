"""Following accounts at the head of a real node costs nothing more if no block names them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from chainfolio.blocks import Span, Spans
from chainfolio.indexer.scopes import indexed_for
from tests.chains.evm import KEY, EvmSubject, evm
from tests.chains.index import index

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(40) as subject:
        yield subject


async def test_a_quiet_block_costs_one_read_of_balances_more_however_many_accounts_are_followed(
    subject: EvmSubject, tmp_path: Path
) -> None:
    """Check the bloom filter of its header: no log names them. Only balances show that no coins moved."""
    alice, bob = (subject.deployment.accounts[name].lower() for name in ("alice", "bob"))
    costs, calls = {}, dict[str, Counter[str]]()
    for name, accounts in (("nobody", []), ("alice", [alice]), ("both", [alice, bob])):
        async with index(subject, tmp_path / name, datasets=("blocks",)) as indexed:
            final = (await indexed.chain.heads()).finalized
            await indexed.fill(0, final)
            await indexed.fill_accounts(accounts, 0, final)
            follower = indexed.follower(accounts)
            await follower.step()
            subject.mine(1)
            before, (health,) = indexed.chain.requests, indexed.chain.health()
            calls_before = Counter(health.cost.calls)
            await follower.step()
            costs[name] = indexed.chain.requests - before
            calls[name] = Counter(indexed.chain.health()[0].cost.calls) - calls_before
            for account in accounts:
                assert indexed_for(indexed.tail, KEY, "transfers", account) == Spans([Span(0, subject.height)])
                assert indexed_for(indexed.tail, KEY, "transactions", account) == Spans([Span(0, subject.height)])
    print(calls)
    assert not any(each["eth_getLogs"] for each in calls.values())
    assert costs == {"nobody": costs["nobody"], "alice": costs["nobody"] + 1, "both": costs["nobody"] + 1}
