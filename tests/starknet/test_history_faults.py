"""Histories of accounts from nodes that page strangely, lie, or have no old state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chainfolio.adapters.starknet import changes, event_search, history
from chainfolio.blocks import Span
from chainfolio.budgets import Budget
from chainfolio.capabilities import Capability, require_capability
from chainfolio.chain_results import SpanTables
from chainfolio.errors import BadAnswer, OverBudget, Reorged
from tests.json_rpc import Refuse
from tests.starknet.fakes import COIN, WALLET, FakeNode, event, invoked

ME, OTHER = f"0x{int(WALLET, 16):064x}", f"0x{0xB:064x}"
NAMES = ("transactions", "native", "transfers", "approvals")
ALL = Span(0, 90)
AT = (7, 31, 32, 88)


def living(*heights: int) -> FakeNode:
    """A node on which the wallet sent the coin in some blocks."""
    node = FakeNode()
    node.transactions = {
        height: [invoked(height, event(WALLET, "0xb", "0x5", "0x0", keys=3, token=COIN))] for height in heights
    }
    return node


def paging(node: FakeNode, pages: Callable[[list[Any], Any], Any]) -> FakeNode:
    """The node, with another way to page: from all events and the token to a page."""

    def events_page(params: Any) -> Any:
        return pages(node.listed(params[0]), params[0].get("continuation_token"))

    node.answers = {**node.answers, "starknet_getEvents": events_page}
    return node


async def read(node: FakeNode, span: Span = ALL, *accounts: str, budget: Budget | None = None) -> SpanTables:
    """The first piece of the history of the wallet."""
    chain = node.chain()
    await chain.heads()
    reader = require_capability(chain, Capability.ACCOUNT_HISTORY)
    return await reader.collect_accounts(span, accounts or (ME,), NAMES, budget=budget)


def heights(result: SpanTables) -> list[int]:
    """The blocks of its transactions."""
    return [row["height"] for row in result.tables["transactions"].to_pylist()]


def _one_by_one(events: list[Any], token: Any) -> Any:
    """An empty page, then one event on each, and an empty token in the end."""
    at = int(token or 0)
    return {"events": events[at - 1 : at] if at else [], "continuation_token": str(at + 1) if at < len(events) else ""}


@pytest.mark.parametrize(
    "pages",
    [
        lambda events, token: {"events": events, "continuation_token": None},
        lambda events, token: {"events": events, "continuation_token": ""},
        lambda events, token: {"events": [] if token else events, **({} if token else {"continuation_token": "7-0"})},
        lambda events, token: {"events": events} if token else {"events": [], "continuation_token": "7-0"},
        _one_by_one,
    ],
)
async def test_pages_go_on_until_there_is_no_token(pages: Callable[[list[Any], Any], Any]) -> None:
    node = paging(living(*AT), pages)
    for transactions in node.transactions.values():  # another account sent it: events alone show it
        transactions[0]["transaction"]["sender_address"] = "0xb"
    result = await read(node)
    assert [row["height"] for row in result.tables["transfers"].to_pylist()] == [*AT]
    assert (result.span, result.read_methods["transfers"]) == (ALL, "search")


@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        (lambda events, token: {"events": events, "continuation_token": "7-0"}, "from 88 to 90"),
        (lambda events, token: {"events": [], "continuation_token": "7-0"}, "in a circle"),
        (lambda events, token: {"events": [], "continuation_token": str(int(token or 0) + 1)}, "without an end"),
        (lambda events, token: {"events": [{**each, "block_number": None} for each in events]}, "of no block"),
        (lambda events, token: {"events": [{**each, "block_number": 91} for each in events]}, "of block 91"),
        (lambda events, token: {"events": events[::-1]}, "of block 32"),
        (lambda events, token: {"events": [{**each, "block_number": 2**80} for each in events]}, "block_number"),
        (lambda events, token: {"events": [{**each, "transaction_hash": "0xff"} for each in events]}, "does not have"),
        (lambda events, token: {"events": [{**each, "transaction_hash": "me"} for each in events]}, "is no felt"),
        (lambda events, token: {"events": None}, "events"),
        (lambda events, token: {"events": [], "continuation_token": 7}, "continuation_token"),
        (lambda events, token: [], "object"),
    ],
)
async def test_pages_that_cannot_be_are_refused(
    pages: Callable[[list[Any], Any], Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_search, "MAX_PAGES", 50)
    with pytest.raises(BadAnswer, match=reason):
        await read(paging(living(*AT), pages))


async def test_events_that_name_nobody_who_was_asked_for_are_left_out() -> None:
    strange = [
        {"keys": keys, "block_number": 50, "transaction_hash": "0x1"}
        for keys in ([], ["0x99cd8bde557814842a3121e8ddfd433a539b8c9f14bf31ebf108d12e6196e9"], ["0x1", WALLET, WALLET])
    ]
    result = await read(paging(living(7), lambda events, token: {"events": [*events, *strange]}))
    assert heights(result) == [7]


async def test_a_node_that_leaves_out_events_is_found_out_by_the_blocks_that_are_read() -> None:
    def first_events(events: list[Any], token: Any) -> Any:
        return {"events": [each for each in events if each["block_number"] != 31]}

    with pytest.raises(BadAnswer, match="block 31: others may be missing"):
        await read(paging(living(*AT), first_events))


async def test_pages_and_questions_that_are_too_large_are_cut() -> None:
    node, error_codes = living(*AT), []

    def bounded_events(params: Any) -> Any:
        keys, size = params[0]["keys"], params[0]["chunk_size"]
        if size > 100 or len(keys[-1]) > 1:
            error_codes.append(31 if size > 100 else 34)
            raise Refuse(error_codes[-1], "Requested page size is too big" if size > 100 else "Too many keys")
        return {"events": node.listed(params[0])}

    node.answers = {**node.answers, "starknet_getEvents": bounded_events}
    result = await read(node, ALL, ME, OTHER)
    assert heights(result) == [*AT]
    assert {31, 34} == {*error_codes}


async def test_an_account_with_very_much_is_read_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, bound in (
        (history, "MAX_BLOCKS", 3),
        (changes, "MAX_TRANSACTIONS", 7),
        (event_search, "MAX_BLOCKS", 5),
    ):
        monkeypatch.setattr(module, name, bound)
    node = living(*range(0, 90, 2))
    chain = node.chain()
    await chain.heads()
    reader, first, heights_read = require_capability(chain, Capability.ACCOUNT_HISTORY), 0, list[int]()
    while first <= 90:
        piece = await reader.collect_accounts(Span(first, 90), (ME,), NAMES)
        assert piece.last is not None
        assert (piece.span.first, piece.last.height) == (first, piece.span.last)
        heights_read, first = heights_read + heights(piece), piece.span.last + 1
    assert heights_read == [*range(0, 90, 2)]


async def test_coins_that_came_in_events_that_name_nobody_are_found_by_the_balance() -> None:
    """They come in block 20 and go in block 21, so that the balance is what it was."""
    node = living(21)
    node.transactions[20] = [invoked(20, event("0xb", WALLET, "0x5", "0x0", token=COIN), sender_address="0xb")]
    node.answers = {
        **node.answers,
        "starknet_call": lambda params: [hex(5 * (node.height(params[1]) == 20)), "0x0"],
    }
    result = await read(node)
    assert [(row["height"], row["recipient"]) for row in result.tables["transfers"].to_pylist()] == [
        (20, ME),
        (21, OTHER),
    ]


@pytest.mark.parametrize(
    ("nonce", "reason"),
    [
        (lambda height: 5 - (height > 50), "lower"),
        (lambda height: 2 * (height > 6), "other transactions"),
        (lambda height: 1, "other transactions"),
        (lambda height: height // 60, "other transactions"),
    ],
)
async def test_a_nonce_that_lies_is_found_out(nonce: Callable[[int], int], reason: str) -> None:
    node = living(7)
    node.answers = {**node.answers, "starknet_getNonce": lambda params: hex(nonce(node.height(params[0])))}
    with pytest.raises(BadAnswer, match=reason):
        await read(node)


@pytest.mark.parametrize(
    ("method", "code", "message"),
    [
        ("starknet_getNonce", 42, "the node does not have this state"),
        ("starknet_getEvents", -32601, "Method not found"),
        ("starknet_call", 42, "the node does not have this state"),
    ],
)
async def test_every_block_is_read_where_a_node_cannot_be_searched(method: str, code: int, message: str) -> None:
    def refuse(params: Any) -> Any:
        raise Refuse(code, message)

    node = living(*AT)
    node.answers = {**node.answers, method: refuse}
    result = await read(node)
    assert (heights(result), result.span, result.read_methods["native"]) == ([*AT], ALL, "blocks")
    assert not result.unexplained


async def test_who_is_not_there_yet_has_sent_nothing_and_has_nothing() -> None:
    def absent_before(height: int, answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def answered(params: Any) -> Any:
            at = node.height(params[0] if "contract_address" not in params[0] else params[1])
            if at < height:
                raise Refuse(20, "Contract not found")
            return answer(params)

        return answered

    node = living(*AT)
    node.answers |= {  # type: ignore[operator]
        method: absent_before(7, node.answers[method]) for method in ("starknet_getNonce", "starknet_call")
    }
    assert heights(await read(node)) == [*AT]


async def test_blocks_that_may_still_go_are_read_whole_and_linked() -> None:
    node = living(*AT, 93, 97)
    chain = node.chain()
    await chain.heads()
    reader = require_capability(chain, Capability.ACCOUNT_HISTORY)
    before = await chain.block(91)
    result = await reader.collect_accounts(Span(92, 100), (ME,), NAMES, before)
    assert (heights(result), result.is_linked, [each.height for each in result.blocks]) == (
        [93, 97],
        True,
        [*range(92, 101)],
    )
    node.forks = dict.fromkeys(range(90, 101), 1)
    with pytest.raises(Reorged):
        await reader.collect_accounts(Span(92, 100), (ME,), NAMES, before)


async def linked(node: FakeNode, last: int = 100) -> SpanTables:
    """Read blocks that are not final, after block 5, as far as they are searched at once."""
    chain = node.chain()
    await chain.heads()
    reader, before = require_capability(chain, Capability.ACCOUNT_HISTORY), await chain.block(5)
    node.asked.clear()
    return await reader.collect_accounts(Span(6, last), (ME,), NAMES, before)


async def test_many_blocks_that_may_still_go_are_searched_by_their_hashes() -> None:
    node = living(*AT, 93)
    node.final = 5
    result = await linked(node)
    assert (heights(result), result.is_linked, result.read_methods["native"]) == ([*AT, 93], True, "search")
    assert [each.height for each in result.blocks] == [*range(6, 101)]
    assert node.asked.count("starknet_getBlockWithReceipts") == len(AT) + 1
    assert [each.account for each in result.unexplained] == [ME]


@pytest.mark.parametrize("method", ["getEvents", "getNonce", "call", "getBlockWithReceipts"])
async def test_a_reorganisation_in_the_middle_of_a_search_is_one(method: str) -> None:
    node = living(*AT, 93)
    node.final = 5
    answer = node.answers[f"starknet_{method}"]

    def turned(params: Any) -> Any:
        node.forks = dict.fromkeys(range(30, 101), 1)
        return answer(params)

    node.answers = {**node.answers, f"starknet_{method}": turned}
    with pytest.raises(Reorged):
        await linked(node)


async def test_a_search_of_which_a_listed_event_is_of_another_branch_is_a_reorganisation() -> None:
    node = living(*AT, 93)
    node.final = 5
    node = paging(node, lambda events, token: {"events": [{**each, "block_hash": "0xff"} for each in events]})
    with pytest.raises(Reorged):
        await linked(node)


async def test_a_budget_above_one_piece_gets_on() -> None:
    node = living(*range(1, 60))
    chain = node.chain()
    await chain.heads()
    reader, first, heights_read, runs = require_capability(chain, Capability.ACCOUNT_HISTORY), 0, list[int](), 0
    while first <= 90:
        runs += 1
        budget = Budget(max_requests=40)
        try:
            while first <= 90:
                piece = await reader.collect_accounts(Span(first, 90), (ME,), NAMES, budget=budget)
                heights_read, first = heights_read + heights(piece), piece.span.last + 1
        except OverBudget:
            assert runs < 20
    assert (heights_read, runs > 1) == ([*range(1, 60)], True)
