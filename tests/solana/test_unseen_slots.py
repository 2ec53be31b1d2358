"""Slots and token accounts that a node does not show: they are unread or unexplained, and never empty."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.solana.chain import SolanaChain
from chainfolio.blocks import Span
from chainfolio.chain_results import SpanTables
from chainfolio.environment import Environment
from chainfolio.errors import HistoryUnavailable
from chainfolio.indexer.scopes import UNREAD
from chainfolio.scopes import account_filter
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.transport.exchange import HttpResponse
from tests.chains.index import IndexOf
from tests.json_rpc import Refuse
from tests.solana.fakes import HOME, MINT, WALLET, ListingNode, signature, token_account, transaction

DATASETS = ("transactions", "native", "transfers")


async def read(chain: SolanaChain, first: int, last: int) -> SpanTables:
    """Read the first piece of the wallet's history in a span."""
    await chain.heads()
    return await chain.collect_accounts(Span(first, last), [WALLET], DATASETS)


def slots(piece: SpanTables) -> list[int]:
    """Return the slots of a piece's transactions."""
    return [row["height"] for row in piece.tables["transactions"].to_pylist()]


class PrunedNode(ListingNode):
    """A node that lost everything before a slot, and does not tell so in its lists."""

    def __init__(self, *slots: int, first_block: int = 500) -> None:
        super().__init__(*(each for each in slots if each >= first_block))
        self.answers = {
            **self.answers,
            "getFirstAvailableBlock": lambda params: first_block,
            "getBlocks": lambda params: [
                each for each in range(params[0], params[1] + 1) if first_block <= each <= self.slot
            ],
        }


class TwoNodes(ListingNode):
    """A pruned node at the first URL, and another node at the second."""

    def __init__(self, pruned: PrunedNode, *slots: int) -> None:
        super().__init__(*slots)
        self.pruned = pruned

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        node = self.pruned if "one" in url else self
        return HttpResponse(200, None, node.replies(json.loads(body)))


async def test_slots_before_the_first_block_of_the_node_are_unread_and_the_others_are_read() -> None:
    chain = PrunedNode(100, 900).chain()
    lost = await read(chain, 0, 1_000)
    assert (lost.span, dict(lost.read_methods), slots(lost)) == (Span(0, 499), {}, [])
    with pytest.raises(HistoryUnavailable, match="no node has transactions, native, transfers of"):
        lost.require_datasets("solana", DATASETS)
    kept = await read(chain, 500, 1_000)
    assert (kept.span, slots(kept), {*kept.read_methods}) == (Span(500, 1_000), [900], {*DATASETS})
    kept.require_datasets("solana", DATASETS)
    assert (await read(chain, 0, 300)).span == Span(0, 300)


async def test_slots_that_a_pruned_node_lost_are_read_from_another_node() -> None:
    chain = TwoNodes(PrunedNode(100, 900), 100, 900).chain("http://one.test", "http://two.test")
    assert slots(await read(chain, 0, 1_000)) == [100, 900]


async def test_slots_are_not_unread_while_the_node_that_may_have_them_fails() -> None:
    node = TwoNodes(PrunedNode(100, 900), 100, 900)

    def refuse(params: Any) -> Any:
        raise Refuse(-32603, "internal error")

    node.answers = {**node.answers, "getSignaturesForAddress": refuse}
    chain = node.chain("http://one.test", "http://two.test")
    with pytest.raises(Exception, match=r"internal error|first block"):
        await read(chain, 0, 1_000)


async def test_a_back_fill_from_a_pruned_node_stores_lost_slots_as_unread(tmp_path: Path) -> None:
    node = PrunedNode(100, 900)
    answer_block = node.answers["getBlock"]

    def answer_kept_block(params: Any) -> Any:
        if params[0] < 500:
            raise Refuse(-32001, "Block cleaned up, does not exist on node")
        return answer_block(params)

    node.answers = {**node.answers, "getBlock": answer_kept_block}
    tail = Tail(tmp_path / "tail.db")
    indexed = IndexOf(node.chain(), Lake(str(tmp_path / "lake")), tail, DATASETS, environment=Environment())
    await indexed.chain.heads()
    await indexed.fill_accounts([WALLET], 0, 1_000)
    filter_ = account_filter(WALLET)
    assert list(tail.indexed_ranges("solana", "transfers", filter_)) == [Span(500, 1_000)]
    assert list(tail.indexed_ranges("solana", f"{UNREAD}transfers", filter_)) == [Span(0, 499)]
    tail.close()


async def test_whole_blocks_that_a_node_lost_are_an_error_and_not_empty() -> None:
    chain = PrunedNode().chain()
    await chain.heads()
    for span in (Span(0, 99), Span(450, 549)):
        with pytest.raises(HistoryUnavailable, match="first block"):
            await chain.collect(span, ["blocks"])


# --- token accounts ---------------------------------------------------------------------------------------------------


async def test_a_token_account_that_is_opened_without_its_owners_name_is_read_with_the_next_span() -> None:
    node = ListingNode(100, slot=500)
    open_accounts: list[Any] = []
    node.answers = {**node.answers, "getTokenAccountsByOwner": lambda params: node.at(list(open_accounts))}
    chain = node.chain()
    assert slots(await read(chain, 0, 500)) == [100]
    node.slot, node.slots_by_address[HOME] = 1_000, (700,)
    open_accounts.append(token_account())
    assert slots(await read(chain, 501, 1_000)) == [700]


def owned(slot: int, owner: str | None = WALLET) -> dict[str, Any]:
    """A transaction that gives 7 of a token to a token account."""
    balance = {"accountIndex": 1, "mint": MINT, "uiTokenAmount": {"amount": "7"}, **({"owner": owner} if owner else {})}
    return transaction(slot, signature(slot), preTokenBalances=[], postTokenBalances=[balance])


async def test_a_token_account_that_is_found_late_is_reported_after_a_failed_attempt_too() -> None:
    node, failures = ListingNode(900), 1
    node.slots_by_address[HOME] = (100, 900)

    def answer_blocks(params: Any) -> Any:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise Refuse(-32002, "once")
        return [params[1]]

    node.answers = {**node.answers, "getBlocks": answer_blocks, "getTransaction": lambda params: owned(900)}
    piece = await read(node.chain("http://one.test", "http://two.test"), 500, 1_000)
    [change] = piece.unexplained
    assert (change.account, change.height, change.reason) == (
        WALLET,
        100,
        f"the token account {HOME} was not known yet when older slots were read",
    )


async def test_tokens_of_an_own_token_account_without_a_recorded_owner_are_unexplained() -> None:
    node = ListingNode(100)
    node.answers = {
        **node.answers,
        "getTokenAccountsByOwner": lambda params: node.at([token_account()]),
        "getTransaction": lambda params: owned(100, None),
    }
    piece = await read(node.chain(), 0, 1_000)
    [change] = piece.unexplained
    assert (change.height, change.asset.reference, change.amount) == (100, MINT, 0)
    assert HOME in change.reason
