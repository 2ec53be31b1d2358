"""Estimated and real costs of reading accounts, at a real node with the methods and limits of providers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from chainfolio.adapters.evm.chain import EvmChain
from chainfolio.blocks import Span, Spans
from chainfolio.budgets import Budget
from chainfolio.environment import Environment
from chainfolio.errors import OverBudget
from chainfolio.indexer.account_estimate import estimate
from chainfolio.indexer.scopes import groups
from chainfolio.indexer.work import Work
from chainfolio.localchain.node import LocalNode
from chainfolio.scopes import account_filter
from tests.chains.evm import EvmSubject
from tests.evm.limited import SETS, Provider, served
from tests.evm.scoped import merged_rows, scoped

pytestmark = pytest.mark.node
BLOCKS = 400


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EvmSubject]:
    with LocalNode() as node:
        yield EvmSubject(node, tmp_path_factory.mktemp("estimate"), BLOCKS)


def work_of(chain: EvmChain, span: Span, accounts: Sequence[str]) -> list[Work]:
    names = tuple(map(account_filter, accounts))
    return [Work(Spans([span]), group, names) for group in groups(chain.datasets)]


@pytest.mark.slow("indexes several histories to compare estimates with them")
@pytest.mark.parametrize(("has", "largest"), [("traces", 10_000), ("search", 20), ("state", 10_000)])
async def test_an_estimate_is_as_near_as_it_says_to_what_is_then_spent(
    lived: EvmSubject, has: str, largest: int
) -> None:
    accounts = [lived.deployment.accounts[name].lower() for name in ("alice", "bob")]
    span = Span(0, lived.node.height)
    forecast, spent = {}, Budget()
    for is_told in (True, False):
        provider = Provider(lived.node.url, SETS[has], largest=largest)
        async with served(lived.node, lived.deployment, provider) as chain:
            await chain.heads()
            chain.node.finalized = span.last
            work = work_of(chain, span, accounts)
            if is_told:
                forecast = await estimate(chain, work, Environment().clock)
                continue
            groups_read = [await scoped(chain, span, accounts, item.datasets, budget=spent) for item in work]
            pieces = [each for group in groups_read for each in group]
            rows = sum(map(len, merged_rows(pieces).values()))
            sizes = sum(each.cost.sent_bytes + each.cost.received_bytes for each in chain.health())
    real = {"rows": rows, "requests": spent.requests, "units": spent.units, "bytes": sizes}
    for name, figure in real.items():
        assert figure / forecast["factor"] <= forecast[name] <= figure * forecast["factor"], (name, forecast, real)
    assert forecast["sampled"]["requests"] <= 20
    assert forecast["unread"] == []


async def test_a_short_span_is_forecast_and_nothing_missing_costs_nothing(lived: EvmSubject) -> None:
    alice, span = lived.deployment.accounts["alice"].lower(), Span(lived.node.height - 60, lived.node.height)
    async with served(lived.node, lived.deployment, Provider(lived.node.url)) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        work = work_of(chain, span, [alice])
        forecast = await estimate(chain, work, Environment().clock)
        pieces = [each for item in work for each in await scoped(chain, span, [alice], item.datasets)]
        rows = sum(map(len, merged_rows(pieces).values()))
        assert rows / forecast["factor"] <= forecast["rows"] <= rows * forecast["factor"]
        assert forecast["sampled"]["blocks"] == forecast["blocks"] == len(span)
        before = chain.requests
        empty_forecast = await estimate(chain, [], Environment().clock)
        assert (empty_forecast["blocks"], empty_forecast["requests"], empty_forecast["sampled"]) == (
            0,
            0,
            {"blocks": 0, "requests": 0},
        )
        assert chain.requests == before


async def test_an_estimate_that_may_ask_for_less_than_one_part_says_so(lived: EvmSubject) -> None:
    alice, span = lived.deployment.accounts["alice"].lower(), Span(0, lived.node.height)
    async with served(lived.node, lived.deployment, Provider(lived.node.url)) as chain:
        await chain.heads()
        with pytest.raises(OverBudget, match="allow the estimate more requests"):
            await estimate(chain, work_of(chain, span, [alice]), Environment().clock, max_requests=1)


async def test_what_no_node_gives_is_named(lived: EvmSubject) -> None:
    alice, span = lived.deployment.accounts["alice"].lower(), Span(0, lived.node.height)

    def forgotten(request: dict[str, Any]) -> dict[str, Any] | None:
        is_state = request["method"] in ("eth_getBalance", "eth_getTransactionCount", "eth_getCode")
        return {"error": {"code": -32000, "message": "missing trie node"}} if is_state else None

    async with served(lived.node, lived.deployment, Provider(lived.node.url, SETS["state"], forgotten)) as chain:
        await chain.heads()
        forecast = await estimate(chain, work_of(chain, span, [alice]), Environment().clock)
        assert forecast["unread"] == sorted(name for name in groups(chain.datasets)[1])
        assert forecast["rows"] > 0, "logs are read"
