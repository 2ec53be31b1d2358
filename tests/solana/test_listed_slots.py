"""Lists of transactions count only for the slots that a node listed: none is taken for empty unread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from chainfolio.adapters.solana.chain import SolanaChain
from chainfolio.adapters.solana.history import AccountHistory
from chainfolio.adapters.solana.listed_transactions import ListedTransaction
from chainfolio.blocks import Span
from tests.json_rpc import Refuse
from tests.solana.fakes import HOME, WALLET, ListingNode, token_account


async def slots_in(chain: SolanaChain, first: int, last: int) -> list[int]:
    """Return the slots of the wallet's rows in a span."""
    piece = await chain.collect_accounts(Span(first, last), [WALLET], ["transactions", "native", "transfers"])
    assert piece.span == Span(first, last)
    return [row["height"] for row in piece.tables["transactions"].to_pylist()]


async def test_slots_before_those_that_were_listed_are_listed_as_well() -> None:
    chain = ListingNode(100, 900).chain()
    await chain.heads()
    assert await slots_in(chain, 800, 1_000) == [900]
    assert await slots_in(chain, 0, 799) == [100]
    assert await slots_in(chain, 0, 1_000) == [100, 900]


async def test_slots_that_become_final_while_a_list_is_read_are_listed_later() -> None:
    node, request_count = ListingNode(990), 0
    chain = node.chain()
    await chain.heads()
    answer_list = node.answers["getSignaturesForAddress"]

    def answer_before_finality(params: Any) -> Any:
        nonlocal request_count
        request_count += 1
        response = answer_list(params)
        if request_count == 1:
            node.slots_by_address[WALLET] = (990, 1_002)
            node.slot = chain.node.finalized = 1_004
        return response

    node.answers = {**node.answers, "getSignaturesForAddress": answer_before_finality}
    assert await slots_in(chain, 0, 1_000) == [990]
    assert await slots_in(chain, 1_001, 1_004) == [1_002]


async def test_pieces_of_one_span_are_listed_once() -> None:
    node = ListingNode(*range(500, 950))
    chain = node.chain()
    await chain.heads()
    first, slots = 0, list[int]()
    while first <= 1_000:
        piece = await chain.collect_accounts(Span(first, 1_000), [WALLET], ["transactions"])
        slots += [row["height"] for row in piece.tables["transactions"].to_pylist()]
        first = piece.span.last + 1
    assert slots == [*range(500, 950)]
    assert node.asked.count("getSignaturesForAddress") == 2, "the list and its end"


async def test_a_list_that_another_reader_replaces_meanwhile_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of all slots is not given the list of a reader of the last ones, who ends while it goes on."""
    chain = ListingNode().chain()
    await chain.heads()
    begun, replaced = asyncio.Event(), asyncio.Event()

    async def list_address(_: object, address: str, first_slot: int, *__: object) -> Sequence[ListedTransaction]:
        if address == "second":
            begun.set()
            await replaced.wait()
            return []
        return [each for each in (ListedTransaction("b", 900), ListedTransaction("a", 100)) if each.slot >= first_slot]

    monkeypatch.setattr("chainfolio.adapters.solana.history.signatures", list_address)
    history = AccountHistory(chain.node, chain.stake_histories)
    [endpoint] = chain.node.endpoints
    whole = asyncio.create_task(history._list(endpoint, ["first", "second"], Span(0, 1_000)))
    await begun.wait()
    history._lists.clear()
    assert [each.slot for each in await history._list(endpoint, ["first"], Span(800, 1_000))] == [900]
    replaced.set()
    assert [each.slot for each in await whole] == [100, 900]


# --- a node that is behind the others at the same URL ----------------------------------------------------------------


class LateNode(ListingNode):
    """A node at slot 900 behind a URL whose newest final slot is 1000; it is there after its first refusal."""

    def __init__(self, *slots: int) -> None:
        super().__init__(*slots, slot=900)
        self.answers = {
            **self.answers,
            "getSlot": lambda params: 1_000,
            "getTokenAccountsByOwner": self._token_accounts,
        }

    def refuse_if_behind(self, params: Any) -> None:
        """Refuse a minimum context slot that is not reached."""
        if params[-1].get("minContextSlot", 0) > self.slot:
            self.slot = 1_000
            raise Refuse(-32016, "Minimum context slot has not been reached")

    def _signatures(self, params: Any) -> Any:
        self.refuse_if_behind(params)
        return super()._signatures(params)

    def _token_accounts(self, params: Any) -> Any:
        return self.at([])


async def test_the_list_of_a_node_that_is_behind_is_awaited() -> None:
    chain = LateNode(100, 950).chain()
    await chain.heads()
    assert await slots_in(chain, 0, 1_000) == [100, 950]


async def test_the_token_accounts_of_a_node_that_is_behind_are_awaited() -> None:
    class LateTokens(LateNode):
        def _token_accounts(self, params: Any) -> Any:
            self.refuse_if_behind(params)
            return self.at([token_account()] if self.slot == 1_000 else [])

    node = LateTokens(100)
    node.slots_by_address[HOME] = (950,)
    chain = node.chain()
    await chain.heads()
    assert await slots_in(chain, 0, 1_000) == [100, 950]


async def test_a_node_that_lists_only_what_is_newer_than_the_minimum_slot_is_asked_for_the_rest() -> None:
    class FilteringNode(ListingNode):
        def _signatures(self, params: Any) -> Any:
            min_slot = params[1].get("minContextSlot", 0)
            return [each for each in super()._signatures(params) if each["slot"] >= min_slot]

    for slots in ((100, 950), (100, 950, 1_000)):
        chain = FilteringNode(*slots).chain()
        await chain.heads()
        assert await slots_in(chain, 0, 1_000) == [*slots]
