"""Reads of the state at the parent of a block, on a real node, in the request of the block itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from chainfolio.adapters.evm.reads import balance_of
from chainfolio.chains import Chain
from chainfolio.engine.snapshots.mixed_reads import with_mixed_reads
from chainfolio.environment import Environment
from chainfolio.errors import HistoryUnavailable
from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import tx
from chainfolio.plans import Unknown
from chainfolio.pricing.http_reads import Http, HttpGet
from chainfolio.reads import AtParent
from tests.chains.evm import EvmSubject, evm

pytestmark = pytest.mark.node
GIVEN = 10**6 * WAD  # to each wallet by the deployment


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    """A chain in whose last two blocks bob got 3 DAI and then 4."""
    with evm(0) as chain:
        alice, bob = (chain.deployment.accounts[name] for name in ("alice", "bob"))
        for dai in (3, 4):
            chain.node.settle([tx(alice, chain.token("DAI"), "transfer(address,uint256)", bob, dai * WAD)])
        yield chain


@asynccontextmanager
async def reading(subject: EvmSubject) -> AsyncIterator[tuple[Chain, Any]]:
    chain, http = subject.chain(), Http(Environment())
    balance_read = balance_of(subject.token("DAI"), subject.deployment.accounts["bob"].lower())
    try:
        await chain.answer([balance_read], (await chain.heads()).latest)  # the handshake is over
        subject.request_log.forget()
        yield with_mixed_reads(chain, http), balance_read
    finally:
        await http.close()
        await chain.close()


async def test_a_read_at_the_parent_has_the_state_before_the_block_in_the_same_request(subject: EvmSubject) -> None:
    async with reading(subject) as (chain, balance_read):
        block = await chain.block(subject.height)
        subject.request_log.forget()
        before, web, now = await chain.answer([AtParent(balance_read), HttpGet("ftp://nowhere"), balance_read], block)
    assert (before, now) == (GIVEN + 3 * WAD, GIVEN + 7 * WAD)
    assert isinstance(web, Unknown)
    assert subject.request_log.requests == 1


async def test_several_blocks_with_their_parents_are_one_request_and_unknown_parents_one_more(
    subject: EvmSubject,
) -> None:
    async with reading(subject) as (chain, balance_read):
        last, first = await chain.block(subject.height), await chain.block(subject.height - 1)
        reads = [balance_read, AtParent(balance_read)]
        subject.request_log.forget()
        results = await chain.answer_each([(last, reads), (first, reads)])
        with_parents = subject.request_log.requests
        bare = await chain.answer_each([(replace(last, parent=""), reads), (first, reads)])
    assert results == bare == [[GIVEN + 7 * WAD, GIVEN + 3 * WAD], [GIVEN + 3 * WAD, GIVEN]]
    assert (with_parents, subject.request_log.requests - with_parents) == (1, 2)


async def test_the_parent_of_another_block_of_that_height_and_of_the_first_block_is_unknown(
    subject: EvmSubject,
) -> None:
    async with reading(subject) as (chain, balance_read):
        first = await chain.block(0)
        last = await chain.block(subject.height)
        sibling = replace(
            await chain.block(subject.height - 1), height=last.height, parent=""
        )  # a hash of another height
        at_first, at_other = await chain.answer_each(
            [(first, [AtParent(balance_read)]), (sibling, [balance_read, AtParent(balance_read)])]
        )
    assert isinstance(at_first, list)
    assert [type(each) for each in at_first] == [Unknown]
    assert isinstance(at_other, list)
    assert (at_other[0], type(at_other[1])) == (GIVEN + 3 * WAD, Unknown)


async def test_reads_of_two_blocks_before_are_answered_beside_those_of_one_and_of_none(subject: EvmSubject) -> None:
    async with reading(subject) as (chain, balance_read):
        block = await chain.block(subject.height)
        subject.request_log.forget()
        reads = [AtParent(AtParent(balance_read)), balance_read, AtParent(balance_read)]
        assert await chain.answer(reads, block) == [GIVEN, GIVEN + 7 * WAD, GIVEN + 3 * WAD]
        assert subject.request_log.requests == 2  # the header of the parent, and the reads
        assert await chain.answer(reads[:1], block) == [GIVEN]
        genesis = await chain.block(1)
        (before_genesis,) = await chain.answer([AtParent(AtParent(AtParent(balance_read)))], genesis)
    assert before_genesis == Unknown("the parent of the block is not known", "gone")


async def test_a_parent_without_its_state_is_gone_also_where_nothing_else_is_read(subject: EvmSubject) -> None:
    async with reading(subject) as (chain, balance_read):
        block = await chain.block(subject.height)

        class Pruned:
            """A node that has the state of one block."""

            async def answer(self, reads: Any, at: Any) -> Any:
                if at.height < block.height:
                    raise HistoryUnavailable("node", at.height, "pruned")
                return await chain.answer(reads, at)

            async def answer_each(self, requests: Any) -> Any:
                return [
                    await chain.answer(reads, at) if at == block else HistoryUnavailable("node", at.height, "pruned")
                    for at, reads in requests
                ]

        pruned = with_mixed_reads(Pruned(), Http(Environment()))  # type: ignore[arg-type]
        alone = await pruned.answer([AtParent(balance_read)], block)
        combined = await pruned.answer([AtParent(balance_read), balance_read], block)
        older = replace(block, height=block.height - 1)
        with pytest.raises(HistoryUnavailable):
            await pruned.answer([balance_read], older)
    assert (alone[0].cause, combined[0].cause, combined[1]) == ("gone", "gone", GIVEN + 7 * WAD)
