"""Indexed rows are those of a plain reading of the node, and derived ones are what the contracts say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chainfolio.amounts import raw_from_bytes
from chainfolio.blocks import Span
from chainfolio.capabilities import Capability
from chainfolio.indexer import materialise, reprocess
from chainfolio.table import bucket
from tests.chains.index import FETCHED, AnyIndex, in_order, index
from tests.chains.subject import ChainUnderTest

DERIVED = materialise.DERIVED


@pytest.fixture
async def indexed(traded: ChainUnderTest, tmp_path: Path) -> AsyncIterator[AnyIndex]:
    async with index(traded, tmp_path) as indexed:
        await indexed.fill_final()
        yield indexed


async def test_every_row_is_that_of_a_plain_reading(traded: ChainUnderTest, indexed: AnyIndex) -> None:
    await indexed.follower().step()
    plain = traded.rows(Span(0, traded.height))
    filled = {indexed.chain.datasets[name].table.name for name in indexed.datasets}
    for table in indexed.tables:
        assert indexed.rows(table) == in_order(plain[table]), table
        assert plain[table] or table not in filled, table
    assert len(plain["transfers"]) > 300 or "transfers" in traded.no_rows
    assert {row["standard"] for row in plain["transfers"]} >= traded.standards
    assert {row["standard"] for row in plain["approvals"]} == traded.approval_standards
    assert not any(plain[table] for table in traded.no_rows)


@pytest.mark.needs_rows("transfers")
async def test_balances_from_events_are_what_the_contracts_say(traded: ChainUnderTest, indexed: AnyIndex) -> None:
    await indexed.materialise()
    rows = {(row["account"], row["token"]): row for row in indexed.stored("balances").to_pylist()}
    height = (await indexed.chain.heads()).finalized
    assert {row["height"] for row in rows.values()} == {height}
    for account in traded.accounts:
        for token in traded.plain:
            row = rows.get((account, token))
            assert (raw_from_bytes(row["raw"]) if row else 0) == traded.balance(account, token, height), (
                account,
                token,
            )
            assert row is None or not row["short"]
    assert any(token == traded.plain[0] for _, token in rows)


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
@pytest.mark.needs_rows("transfers")
async def test_balances_from_events_are_of_the_lake_alone(traded: ChainUnderTest, indexed: AnyIndex) -> None:
    await indexed.follower().step()  # the tail is above what is in the lake, and no part of it
    assert indexed.tail.top(indexed.key) is not None
    await test_balances_from_events_are_what_the_contracts_say(traded, indexed)


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
@pytest.mark.needs_rows("approvals")
async def test_allowances_are_the_last_approvals(traded: ChainUnderTest, indexed: AnyIndex) -> None:
    await indexed.materialise()
    height = (await indexed.chain.heads()).finalized
    last = {}
    for row in traded.rows(Span(0, height))["approvals"]:
        if row["standard"] == "erc20":
            last[row["owner"], row["token"], row["spender"]] = (row["raw"], row["height"])
    rows = indexed.stored("allowances").to_pylist()
    allowances = {(row["owner"], row["token"], row["spender"]): (row["raw"], row["approved_height"]) for row in rows}
    assert allowances == last
    assert {row["height"] for row in rows} == {height}


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
@pytest.mark.needs_rows("approvals")
async def test_what_nobody_has_spent_may_still_be_spent(traded: ChainUnderTest, indexed: AnyIndex) -> None:
    await indexed.materialise()
    height = (await indexed.chain.heads()).finalized
    last_sent = {(row["token"], row["sender"]): row["height"] for row in traded.rows(Span(0, height))["transfers"]}
    unspent = [
        row
        for row in indexed.stored("allowances").to_pylist()
        if row["token"] in traded.plain and last_sent.get((row["token"], row["owner"]), 0) < row["approved_height"]
    ]
    assert unspent
    for row in unspent:
        may = traded.allowance(row["owner"], row["token"], row["spender"], height)
        assert may == raw_from_bytes(row["raw"]), row


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
@pytest.mark.needs_rows("transfers")
async def test_every_transfer_is_in_the_history_of_both_sides(traded: ChainUnderTest, indexed: AnyIndex) -> None:
    await indexed.materialise()
    expected = []
    for row in indexed.rows("transfers"):
        shared_columns = {name: row[name] for name in row if name not in ("sender", "recipient", "operator", "layout")}
        for direction, me, counterparty in (("in", "recipient", "sender"), ("out", "sender", "recipient")):
            own_columns = {
                "direction": direction,
                "account": row[me],
                "counterparty": row[counterparty],
                "bucket": bucket(row[me]),
            }
            expected.append(shared_columns | own_columns)
    assert in_order(indexed.stored("account_transfers").to_pylist()) == in_order(expected)


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
@pytest.mark.needs_rows("approvals")
async def test_every_approval_is_in_the_history_of_who_gave_it(indexed: AnyIndex) -> None:
    await indexed.materialise()
    expected = [
        {name: row[name] for name in row if name != "owner"} | {"account": row["owner"], "bucket": bucket(row["owner"])}
        for row in indexed.rows("approvals")
    ]
    assert expected
    assert in_order(indexed.stored("account_approvals").to_pylist()) == in_order(expected)


@pytest.mark.slow("the same on chains whose nodes are slower", only=["beacon*", "solana*", "tron*"])
@pytest.mark.needs(Capability.RESTORE)
async def test_decoding_again_changes_no_byte_and_asks_nobody(traded: ChainUnderTest, indexed: AnyIndex) -> None:
    await indexed.materialise()
    tables = (*FETCHED, *DERIVED)
    before = {table: indexed.stored(table) for table in tables}
    traded.request_log.forget()
    row_counts = reprocess.reprocess(indexed.chain, indexed.lake)
    for history in materialise.HISTORIES:
        materialise.rebuild_history(indexed.lake, indexed.tail, indexed.key, history)
    await indexed.materialise()
    assert traded.request_log.requests == 0
    assert {table: indexed.stored(table) for table in tables} == before
    assert row_counts == {table: before[table].num_rows for table in ("transfers", "approvals", "logs")}
