"""Reads of the state that a block began with, on a real node: at the parent, in the request of the block's own."""

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
    with evm(0) as found:
        alice, bob = (found.deployment.accounts[name] for name in ("alice", "bob"))
        for dai in (3, 4):
            found.node.settle([tx(alice, found.token("DAI"), "transfer(address,uint256)", bob, dai * WAD)])
        yield found


@asynccontextmanager
async def reading(subject: EvmSubject) -> AsyncIterator[tuple[Chain, Any]]:
    chain, http = subject.chain(), Http(Environment())
    held = balance_of(subject.token("DAI"), subject.deployment.accounts["bob"].lower())
    try:
        await chain.answer([held], (await chain.heads()).latest)  # the handshake is over
        subject.asked.forget()
        yield with_mixed_reads(chain, http), held
    finally:
        await http.close()
        await chain.close()


async def test_a_read_at_the_parent_has_the_state_before_the_block_in_the_same_request(subject: EvmSubject) -> None:
    async with reading(subject) as (chain, held):
        block = await chain.block(subject.height)
        subject.asked.forget()
        before, web, now = await chain.answer([AtParent(held), HttpGet("ftp://nowhere"), held], block)
    assert (before, now) == (GIVEN + 3 * WAD, GIVEN + 7 * WAD)
    assert isinstance(web, Unknown)
    assert subject.asked.requests == 1


async def test_several_blocks_with_their_parents_are_one_request_and_unknown_parents_one_more(
    subject: EvmSubject,
) -> None:
    async with reading(subject) as (chain, held):
        last, first = await chain.block(subject.height), await chain.block(subject.height - 1)
        wanted = [held, AtParent(held)]
        subject.asked.forget()
        told = await chain.answer_each([(last, wanted), (first, wanted)])
        with_parents = subject.asked.requests
        bare = await chain.answer_each([(replace(last, parent=""), wanted), (first, wanted)])
    assert told == bare == [[GIVEN + 7 * WAD, GIVEN + 3 * WAD], [GIVEN + 3 * WAD, GIVEN]]
    assert (with_parents, subject.asked.requests - with_parents) == (1, 2)


async def test_the_parent_of_another_block_of_that_height_and_of_the_first_block_is_unknown(
    subject: EvmSubject,
) -> None:
    async with reading(subject) as (chain, held):
        first = await chain.block(0)
        last = await chain.block(subject.height)
        other = replace(
            await chain.block(subject.height - 1), height=last.height, parent=""
        )  # a hash of another height
        at_first, at_other = await chain.answer_each([(first, [AtParent(held)]), (other, [held, AtParent(held)])])
    assert isinstance(at_first, list)
    assert [type(each) for each in at_first] == [Unknown]
    assert isinstance(at_other, list)
    assert (at_other[0], type(at_other[1])) == (GIVEN + 3 * WAD, Unknown)


async def test_reads_of_two_blocks_before_are_answered_beside_those_of_one_and_of_none(subject: EvmSubject) -> None:
    async with reading(subject) as (chain, held):
        block = await chain.block(subject.height)
        subject.asked.forget()
        wanted = [AtParent(AtParent(held)), held, AtParent(held)]
        assert await chain.answer(wanted, block) == [GIVEN, GIVEN + 7 * WAD, GIVEN + 3 * WAD]
        assert subject.asked.requests == 2  # the header of the parent, and the reads
        assert await chain.answer(wanted[:1], block) == [GIVEN]
        genesis = await chain.block(1)
        (lost,) = await chain.answer([AtParent(AtParent(AtParent(held)))], genesis)
    assert lost == Unknown("the parent of the block is not known", "gone")


async def test_a_parent_without_its_state_is_gone_also_where_nothing_else_is_read(subject: EvmSubject) -> None:
    async with reading(subject) as (chain, held):
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
        alone = await pruned.answer([AtParent(held)], block)
        beside = await pruned.answer([AtParent(held), held], block)
        older = replace(block, height=block.height - 1)
        with pytest.raises(HistoryUnavailable):
            await pruned.answer([held], older)
    assert (alone[0].cause, beside[0].cause, beside[1]) == ("gone", "gone", GIVEN + 7 * WAD)
