"""However an index came about - at once, twice, in pieces, contract by contract - it is the same index."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from chainfolio.blocks import Span, Spans
from chainfolio.errors import BadRequest
from chainfolio.indexer.rewind import check_span
from chainfolio.indexer.work import missing
from tests.chains.index import AnyIndex, in_order, index
from tests.chains.subject import FINALITY, ChainUnderTest, Row

LOGS = ("transfers", "approvals")


def logs(subject: ChainUnderTest) -> tuple[str, ...]:
    return tuple(name for name in LOGS if name in subject.datasets)


async def at_once(traded: ChainUnderTest, folder: Path, last: int) -> dict[str, list[Row]]:
    async with index(traded, folder) as full_index:
        await full_index.fill(0, last)
        return full_index.read_all()


def histories(indexed: AnyIndex) -> list[Row]:
    rows: list[Row] = indexed.stored("account_transfers").to_pylist()
    return in_order(rows)


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
async def test_indexing_twice_is_indexing_once(traded: ChainUnderTest, tmp_path: Path) -> None:
    async with index(traded, tmp_path) as indexed:
        last = await indexed.fill_final()
        full_rows = indexed.read_all()
        traded.request_log.forget()
        second_run = await indexed.fill(0, last)
        assert (traded.request_log.requests, second_run.blocks_total, second_run.rows) == (0, 0, 0)
        assert indexed.read_all() == full_rows


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
async def test_work_that_was_done_meanwhile_is_not_done_again(traded: ChainUnderTest, tmp_path: Path) -> None:
    from chainfolio.indexer.collect import Collector
    from chainfolio.indexer.progress import Progress

    async with index(traded, tmp_path) as indexed:
        work = missing(indexed.tail, indexed.key, Span(0, 40), indexed.datasets, ())
        await indexed.fill(5, 20)
        progress = Progress(indexed.environment.clock, 41)
        await Collector(indexed.chain, indexed.lake, indexed.tail, indexed.environment, progress).run([*work, *work])
        full_rows = await at_once(traded, tmp_path / "whole", 40)
        assert indexed.read_all() == full_rows


@pytest.mark.slow("many small runs of each kind; other tests index in two pieces")
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow("one more order of the same pieces"))])
async def test_pieces_in_any_order_make_the_same_index(traded: ChainUnderTest, tmp_path: Path, seed: int) -> None:
    chance, last = random.Random(seed), traded.height - FINALITY
    cuts = [0, *sorted(chance.sample(range(1, last), 3)), last + 1]
    pieces = [(first, after - 1, dataset) for first, after in pairwise(cuts) for dataset in traded.datasets]
    chance.shuffle(pieces)
    async with index(traded, tmp_path / "pieces", span=7) as indexed:
        for first, end, dataset in pieces:
            await indexed.fill(first, end, [dataset])
            if chance.random() < 0.2:
                await indexed.materialise()
        await indexed.materialise()
        assert all(indexed.tail.indexed_ranges(indexed.key, name) == Spans([Span(0, last)]) for name in traded.datasets)
        async with index(traded, tmp_path / "whole") as full_index:
            await full_index.fill(0, last)
            await full_index.materialise()
            assert indexed.read_all() == full_index.read_all()
            assert histories(indexed) == histories(full_index)


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
@pytest.mark.needs_rows("transfers")
async def test_a_contract_that_is_added_is_all_that_is_fetched(traded: ChainUnderTest, tmp_path: Path) -> None:
    first, second, third = traded.plain[:3]
    async with index(traded, tmp_path, datasets=logs(traded)) as indexed:
        await indexed.fill(0, 60, contracts=[first])
        traded.request_log.forget()
        await indexed.fill(0, 60, contracts=[first, second])
        assert requested_spans(traded, {(second,)}) == Spans([Span(0, 60)])
        traded.request_log.forget()
        await indexed.fill(0, 65, contracts=[first, second, third])
        assert requested_spans(traded, {(third,)}) == Spans([Span(0, 60)]) | [Span(0, 65)]
        assert requested_spans(traded, {tuple(sorted([first, second]))}) == Spans([Span(61, 65)])
        spans = [span for span, _ in traded.request_log.spans]
        each = sum(map(len, spans)) if traded.asks_each_block else len(spans)
        assert traded.request_log.requests <= 2 * each
        async with index(traded, tmp_path / "whole", datasets=logs(traded)) as full_index:
            await full_index.fill(0, 65)
            contracts = {first, second, third}
            assert indexed.rows("transfers") == [
                row for row in full_index.rows("transfers") if row["token"] in contracts
            ]
            assert indexed.rows("approvals") == [
                row for row in full_index.rows("approvals") if row["token"] in contracts
            ]


def requested_spans(traded: ChainUnderTest, contracts: set[tuple[str, ...]]) -> Spans:
    """The heights that were asked for with just these contracts, each once."""
    spans = [span for span, span_contracts in traded.request_log.spans if tuple(sorted(span_contracts)) in contracts]
    assert sum(map(len, spans)) == len(Spans(spans)), "nothing is asked twice"
    return Spans(spans)


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
@pytest.mark.parametrize("derived", [False, True], ids=["derived at the end", "derived in between"])
@pytest.mark.needs_rows("approvals")
async def test_everything_after_a_contract_doubles_nothing(
    traded: ChainUnderTest, tmp_path: Path, derived: bool
) -> None:
    async with index(traded, tmp_path / "a", datasets=logs(traded)) as indexed:
        await indexed.fill(0, 30, ["transfers"], contracts=traded.plain[:2])
        await indexed.fill(20, 50, ["approvals"], contracts=traded.plain[1:3])
        if derived:
            await indexed.materialise()
        await indexed.fill(10, 60)
        if derived:
            await indexed.materialise()
        await indexed.fill(0, 60)
        await indexed.materialise()
        async with index(traded, tmp_path / "b", datasets=logs(traded)) as full_index:
            await full_index.fill(0, 60)
            await full_index.materialise()
            assert indexed.read_all() == full_index.read_all()
            assert histories(indexed) == histories(full_index)


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
@pytest.mark.needs_rows("transfers")
async def test_a_contract_after_everything_costs_no_request(traded: ChainUnderTest, tmp_path: Path) -> None:
    async with index(traded, tmp_path, datasets=logs(traded)) as indexed:
        await indexed.fill(0, 60)
        traded.request_log.forget()
        await indexed.fill(0, 60, contracts=traded.plain)
        assert traded.request_log.requests == 0


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
async def test_a_hole_that_is_filled_later_leaves_the_anchor_where_it_is(
    traded: ChainUnderTest, tmp_path: Path
) -> None:
    async with index(traded, tmp_path) as indexed:
        await indexed.fill(40, 60)
        await indexed.fill(0, 20)
        anchor = indexed.tail.anchor(indexed.key)
        assert anchor is not None
        assert anchor == await indexed.block(60)


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
async def test_only_what_is_final_can_be_asked_for(traded: ChainUnderTest, tmp_path: Path) -> None:
    async with index(traded, tmp_path) as indexed:
        finalized = (await indexed.chain.heads()).finalized
        assert check_span(indexed.key, 0, traded.height, finalized) == Span(0, traded.height - FINALITY)
        with pytest.raises(BadRequest, match="not final yet"):
            check_span(indexed.key, traded.height, traded.height, finalized)


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
@pytest.mark.needs_rows("approvals", "blocks", "transactions")
async def test_blocks_of_the_tail_are_not_fetched_into_the_lake(traded: ChainUnderTest, tmp_path: Path) -> None:
    """Blocks that are final on the node may still be in the tail: another dataset there goes into the tail, too."""
    async with index(traded, tmp_path, datasets=logs(traded)) as indexed:
        last = await indexed.fill_final()
        await indexed.follower().step()
        await indexed.fill(0, last + 20, traded.datasets)
        assert indexed.stored("transactions")["height"].to_pylist() == heights_of(indexed, last)
        anchor = indexed.tail.anchor(indexed.key)
        assert anchor is not None
        assert anchor.height == last
    async with index(traded, tmp_path) as wider:
        await wider.follower().step()
        wider.follower().finalise(last + 20)
        await wider.follower().step()
        assert wider.read_all() == await at_once(traded, tmp_path / "whole", traded.height)


def heights_of(indexed: AnyIndex, last: int) -> Sequence[int]:
    """The height of each transaction up to a block, by the transfers' own story of it."""
    rows = indexed.stored("blocks").to_pylist()
    return [row["height"] for row in rows if row["height"] <= last for _ in range(row["tx_count"])]
