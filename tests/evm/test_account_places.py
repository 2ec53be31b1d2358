"""Acts of accounts without logs, by every set of methods of providers: the rows equal a full index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from chainfolio.adapters.evm import explorer
from chainfolio.adapters.evm.accounts import otterscan, replay
from chainfolio.blocks import Span
from chainfolio.budgets import Budget
from chainfolio.chain_results import SpanTables
from chainfolio.errors import BadAnswer, OverBudget
from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.errors import RpcError
from chainfolio.localchain.evm import Tx, tx
from chainfolio.localchain.node import LocalNode
from tests.evm.anvil import Local, chain_of, populated
from tests.evm.fakes import topic_of
from tests.evm.limited import SETS, Listing, Provider, served
from tests.evm.scoped import Rows, indexed_rows, merged_rows, not_of_logs, scoped

FORWARDER = "0x" + "f0" * 20  # pays whom the call data name all that comes, with all of its gas
OF_PLACES = ("transactions", "native", "internal")
pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def lived() -> Iterator[Local]:
    """A chain on which wallets pay, are paid by contracts, fail, and do nothing for long."""
    with LocalNode() as node:
        local = populated(node)
        alice, bob, carol = (local.deployment.accounts[name] for name in ("alice", "bob", "carol"))
        weth = local.deployment.tokens["WETH"].address
        node.rpc("anvil_setCode", FORWARDER, "0x6000600060006000346000355af100")
        for k in range(6):
            node.mine(30 + 7 * k)
            node.settle([Tx(carol, FORWARDER, topic_of(bob), value=100 + k)])
            node.settle([tx(alice, weth, "deposit()", value=WAD + k), Tx(carol, bob, value=k + 1)])
            node.mine(3)
            node.settle([tx(alice, weth, "withdraw(uint256)", WAD), tx(carol, weth, "deposit()", value=5)])
            with node.by_hand():
                node.send(tx(alice, weth, "withdraw(uint256)", 10**30, gas=200_000))  # fails
                node.send(Tx(bob, alice, value=7))
                node.mine()
        yield local


async def reference(local: Local, accounts: list[str], span: Span) -> Rows:
    async with chain_of(local) as chain:
        await chain.heads()
        return await indexed_rows(chain, span, accounts, OF_PLACES)


@pytest.mark.slow("the same rows by other methods", fast=["traces", "state"])
@pytest.mark.parametrize("has", list(SETS))
async def test_every_set_of_methods_gives_the_rows_of_a_whole_index(lived: Local, has: str) -> None:
    accounts = [lived.deployment.accounts[name].lower() for name in ("alice", "bob", "carol")]
    span = Span(0, lived.node.height)
    provider = Provider(lived.node.url, SETS[has])
    async with served(lived.node, lived.deployment, provider, explorer=has == "explorer") as chain:
        await chain.heads()
        chain.node.finalized = span.last
        pieces = await scoped(chain, span, accounts, OF_PLACES)
        rows, expected = merged_rows(pieces), await reference(lived, accounts, span)
        assert len(expected["transactions"]) > 30
        assert {row["standard"] for row in expected["transfers"]} == {"native", "internal"}
        assert rows == expected
        method = {"traces": "trace_filter", "search": "ots"}.get(has, has)
        assert pieces[-1].read_methods == dict.fromkeys(OF_PLACES, method)
        assert not [each for piece in pieces for each in piece.unexplained]


async def test_by_the_state_a_hundred_own_transactions_cost_at_most_forty_requests(lived: Local) -> None:
    accounts = [lived.deployment.accounts[name].lower() for name in ("alice", "bob", "carol")]
    span = Span(lived.deployment.height, lived.node.height)
    provider = Provider(lived.node.url, SETS["state"])
    async with served(lived.node, lived.deployment, provider) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        before = provider.requests
        pieces = await scoped(chain, span, accounts, OF_PLACES)
        own_count = len(merged_rows(pieces)["transactions"])
        assert own_count > 30
        assert 100 * (provider.requests - before) <= 40 * max(own_count, 100)


def uncounted(rows: Rows) -> Rows:
    """Return rows without the numbers of payments, which a replayed transaction does not show."""
    return rows | {"transfers": [row | {"item": min(1, row["item"])} for row in rows["transfers"]]}


async def test_calls_that_paid_an_account_are_found_by_making_their_transactions_again(lived: Local) -> None:
    """Archive state and `eth_call` suffice, for payments with a stipend and with all of the gas."""
    accounts = [lived.deployment.accounts[name].lower() for name in ("alice", "bob", "carol")]
    span = Span(0, lived.node.height)
    provider = Provider(lived.node.url, (*SETS["state"], "eth_simulateV1"))
    async with served(lived.node, lived.deployment, provider) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        pieces = await scoped(chain, span, accounts, OF_PLACES)
        rows, expected = merged_rows(pieces), await reference(lived, accounts, span)
        numbered = [row for row in rows["transfers"] if row["item"] >= 2**30]
        assert len({(row["tx_hash"], row["item"]) for row in numbered}) == len(numbered) > 6
        assert uncounted(rows) == uncounted(expected)
        assert not [each for piece in pieces for each in piece.unexplained]


@pytest.mark.parametrize("first", [(), (("0c", "0d"),)], ids=["older words", "words that are no instructions"])
async def test_before_cancun_what_was_paid_with_all_of_the_gas_is_found(
    lived: Local, monkeypatch: pytest.MonkeyPatch, first: tuple[tuple[str, str], ...]
) -> None:
    """If a fork does not know the newer storage opcodes, the replay tries the older ones."""
    monkeypatch.setattr(replay, "STORAGE_OPCODES", (*first, ("54", "55")))
    bob, span = lived.deployment.accounts["bob"].lower(), Span(lived.deployment.height + 5, lived.node.height)
    provider = Provider(lived.node.url, (*SETS["state"], "eth_simulateV1"))
    async with served(lived.node, lived.deployment, provider) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        rows = merged_rows(await scoped(chain, span, [bob], OF_PLACES))
        internal = [row for row in rows["transfers"] if row["standard"] == "internal"]
        assert [int.from_bytes(row["raw"], "big") for row in internal] == [100 + k for k in range(6)]
        assert {row["sender"] for row in internal} == {FORWARDER}


@pytest.mark.parametrize("result", ["0x", "0x01", "0x" + "00" * 32, "0x" + "ff" * 64])
async def test_a_node_that_ignores_overrides_of_the_state_leaves_the_rest_unexplained(
    lived: Local, result: str
) -> None:
    def ignores(ask: dict[str, Any]) -> dict[str, Any] | None:
        return {"result": result} if ask["method"] == "eth_call" else None

    alice, span = lived.deployment.accounts["alice"].lower(), Span(0, lived.node.height)
    async with served(
        lived.node, lived.deployment, Provider(lived.node.url, (*SETS["state"], "eth_simulateV1"), ignores)
    ) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        pieces = await scoped(chain, span, [alice], OF_PLACES)
        missing = [each for piece in pieces for each in piece.unexplained]
        assert len(missing) == 6
        assert all(each.amount > 0 for each in missing)


def only_five(ask: dict[str, Any], result: Any) -> Any:
    return result[:5] if ask["method"] == "trace_filter" else result


def nothing(ask: dict[str, Any], result: Any) -> Any:
    return [] if ask["method"] == "trace_filter" else result


def always_the_newest_page(ask: dict[str, Any], result: Any) -> Any:
    return result | {"firstPage": True} if ask["method"].startswith("ots_search") else result


def empty_pages(ask: dict[str, Any], result: Any) -> Any:
    page = {"txs": [], "receipts": [], "firstPage": False}
    return page if ask["method"].startswith("ots_search") else result


def the_same_page(ask: dict[str, Any], result: Any) -> Any:
    is_later = ask["method"].startswith("ots_search") and ask["params"][1] > 0
    first = [{"hash": "0x" + "ab" * 32, "blockNumber": "0x1"}]
    return {"txs": first, "receipts": [], "firstPage": False} if is_later else result


@pytest.mark.slow("other ways to leave out the same", fast=["traces-nothing-state", "search-empty_pages-state"])
@pytest.mark.parametrize(
    ("has", "lie", "method"),
    [
        ("traces", only_five, "state"),
        ("traces", nothing, "state"),
        ("search", always_the_newest_page, "ots"),
        ("search", empty_pages, "state"),
        ("search", the_same_page, "state"),
        ("explorer", None, "state"),
    ],
)
async def test_a_list_that_leaves_out_what_accounts_sent_is_noticed_and_the_state_is_searched_instead(
    lived: Local,
    has: str,
    lie: Callable[[dict[str, Any], Any], Any] | None,
    method: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accounts = [lived.deployment.accounts[name].lower() for name in ("alice", "bob", "carol")]
    span = Span(0, lived.node.height)

    def fault(ask: dict[str, Any]) -> dict[str, Any] | None:
        if lie is None or not ask["method"].startswith(("trace_filter", "ots_search")):
            return None
        try:
            return {"result": lie(ask, lived.node.rpc(ask["method"], *ask["params"]))}
        except RpcError:  # the span is too wide
            return None

    if lie is None:
        monkeypatch.setattr(Listing, "_transactions", lambda self: [])
    monkeypatch.setattr(otterscan, "PAGE_SIZE", 5)
    provider = Provider(lived.node.url, SETS[has], fault)
    async with served(lived.node, lived.deployment, provider, explorer=has == "explorer") as chain:
        await chain.heads()
        chain.node.finalized = span.last
        pieces = await scoped(chain, span, accounts, OF_PLACES)
        assert uncounted(merged_rows(pieces)) == uncounted(await reference(lived, accounts, span))
        assert not [each for piece in pieces for each in piece.unexplained]
        assert pieces[-1].read_methods == dict.fromkeys(OF_PLACES, method)


async def test_coins_that_came_and_that_a_list_leaves_out_are_told_as_unexplained(lived: Local) -> None:
    """The nonce of an account does not show incoming payments; its balance does."""
    bob, span = lived.deployment.accounts["bob"].lower(), Span(lived.deployment.height + 1, lived.node.height)

    def fault(ask: dict[str, Any]) -> dict[str, Any] | None:
        return {"result": []} if ask["method"] == "trace_filter" and "toAddress" in ask["params"][0] else None

    async with served(lived.node, lived.deployment, Provider(lived.node.url, SETS["traces"], fault)) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        pieces = await scoped(chain, span, [bob], OF_PLACES)
        gap_total = sum(each.amount for piece in pieces for each in piece.unexplained)
        incoming = [row for row in (await reference(lived, [bob], span))["transfers"] if row["recipient"] == bob]
        assert gap_total == sum(int.from_bytes(row["raw"], "big") for row in incoming) > 0


@pytest.mark.parametrize(
    ("datasets", "pays"),
    [
        (("transactions", "native"), ()),
        (("transactions", "native"), ("withdrawals",)),
        (("transactions", "native", "withdrawals"), ("withdrawals",)),
    ],
)
async def test_calls_that_were_not_requested_are_neither_unexplained_nor_searched_for(
    lived: Local, datasets: tuple[str, ...], pays: tuple[str, ...]
) -> None:
    alice, span = lived.deployment.accounts["alice"].lower(), Span(lived.deployment.height + 1, lived.node.height)
    provider = Provider(lived.node.url, SETS["traces"])
    async with served(lived.node, lived.deployment, provider, pays=pays) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        pieces = await scoped(chain, span, [alice], datasets)
        assert [each for piece in pieces for each in piece.unexplained] == []
        assert provider.method_counts["eth_getBalance"] <= 2 * len(pieces)
        assert set(pieces[-1].read_methods) == {*datasets}


async def test_a_node_with_traces_and_without_state_of_the_past_is_believed(lived: Local) -> None:
    def pruned(ask: dict[str, Any]) -> dict[str, Any] | None:
        if ask["method"] in ("eth_getBalance", "eth_getTransactionCount"):
            return {"error": {"code": -32000, "message": "missing trie node 0xabc (path ) state is not available"}}
        return None

    alice, span = lived.deployment.accounts["alice"].lower(), Span(0, lived.node.height)
    async with served(lived.node, lived.deployment, Provider(lived.node.url, SETS["traces"], pruned)) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        assert merged_rows(await scoped(chain, span, [alice], OF_PLACES)) == await reference(lived, [alice], span)


@pytest.mark.slow("the same with longer pages", only=["23"])
@pytest.mark.parametrize("max_rows", [10, 23])
async def test_an_explorer_that_lists_fewer_rows_than_it_is_asked_for_is_asked_for_the_rest(
    lived: Local, max_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts, span = [lived.deployment.accounts["alice"].lower()], Span(0, lived.node.height)
    monkeypatch.setattr(explorer, "SUSPICIOUS_ROWS", max_rows)
    monkeypatch.setattr(Listing, "max_rows", max_rows)
    provider = Provider(lived.node.url, SETS["explorer"])
    async with served(lived.node, lived.deployment, provider, explorer=True) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        pieces = await scoped(chain, span, accounts, OF_PLACES)
        assert merged_rows(pieces) == await reference(lived, accounts, span)
        assert len(pieces) > 1
        assert pieces[-1].read_methods == dict.fromkeys(OF_PLACES, "explorer")
        monkeypatch.setattr(Listing, "is_turned", True)
        with pytest.raises(BadAnswer, match="in another order than was asked for"):
            await scoped(chain, span, accounts, OF_PLACES)


@pytest.mark.slow("the same blocks by another method", fast=["traces"])
@pytest.mark.parametrize("has", ["traces", "state"])
async def test_blocks_that_may_still_go_are_read_by_their_hashes_and_give_the_same_rows(lived: Local, has: str) -> None:
    accounts = [lived.deployment.accounts["alice"].lower()]
    span = Span(lived.node.height - 20, lived.node.height)
    async with served(lived.node, lived.deployment, Provider(lived.node.url, SETS[has])) as chain:
        await chain.heads()
        before = await chain.block(span.first - 1)
        (piece,) = await scoped(chain, span, accounts, ("blocks", *OF_PLACES), before=before)
        assert piece.is_linked
        assert piece.tables.pop("blocks")["height"].to_pylist() == list(range(span.first, span.last + 1))
        assert merged_rows([piece]) == await reference(lived, accounts, span)
        assert set(piece.read_methods) == {"blocks", *OF_PLACES}


async def test_what_nobody_can_look_into_is_told_as_unexplained_and_never_left_out_silently(lived: Local) -> None:
    alice = lived.deployment.accounts["alice"].lower()
    span = Span(0, lived.node.height)
    provider = Provider(lived.node.url, (*SETS["state"], "eth_simulateV1", "eth_call"))
    async with served(lived.node, lived.deployment, provider) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        pieces = await scoped(chain, span, [alice], OF_PLACES)
        expected = await reference(lived, [alice], span)
        internal = [row for row in expected["transfers"] if row["standard"] == "internal"]
        missing = [each for piece in pieces for each in piece.unexplained]
        assert [(each.height, each.amount) for each in missing] == [
            (row["height"], int.from_bytes(row["raw"], "big")) for row in internal
        ]
        assert all(each.account == alice and "calls inside" in each.reason for each in missing)
        assert merged_rows(pieces)["transactions"] == expected["transactions"]


async def test_an_account_with_code_is_told_to_be_no_proof_by_the_state(lived: Local) -> None:
    weth = lived.deployment.tokens["WETH"].address.lower()
    span = Span(0, lived.node.height)
    async with served(lived.node, lived.deployment, Provider(lived.node.url, SETS["state"])) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        pieces = await scoped(chain, span, [weth], ("native",))
        notes = [each for piece in pieces for each in piece.unexplained if each.amount == 0]
        assert [(each.account, each.height) for each in notes] == [(weth, span.last)]
        assert "has or had code" in notes[0].reason


DESTROYED = "0x" + "d1" * 20  # a contract that destroys itself


def destroyed_life(local: Local) -> tuple[int, int]:
    """Give DESTROYED code, pay it, and remove it; return the heights of its first block and of one of its last."""
    node = local.node
    node.rpc("anvil_setCode", DESTROYED, "0x00")
    node.rpc("anvil_setNonce", DESTROYED, "0x1")
    node.mine(1)
    first = node.height
    node.settle([Tx(local.deployment.accounts["carol"], DESTROYED, value=7)])
    node.mine(5)
    for method, nothing in (("setCode", "0x"), ("setNonce", "0x0"), ("setBalance", "0x0")):
        node.rpc(f"anvil_{method}", DESTROYED, nothing)
    node.mine(5)
    return first, node.height - 8


async def state_notes(local: Local, account: str, span: Span) -> list[tuple[int, str]]:
    """Return amount and reason of the unexplained changes of an account, searched by state."""
    async with served(local.node, local.deployment, Provider(local.node.url, SETS["state"])) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        pieces = await scoped(chain, span, [account.lower()], OF_PLACES)
    return [(each.amount, each.reason) for piece in pieces for each in piece.unexplained]


async def test_a_contract_that_destroyed_itself_is_no_proof_by_the_state(lived: Local) -> None:
    first, last = destroyed_life(lived)
    end = lived.node.height
    for span in (Span(first, end), Span(0, last), Span(first + 3, end - 1)):
        reasons = [reason for amount, reason in await state_notes(lived, DESTROYED, span) if not amount]
        assert any("has or had code" in each for each in reasons), span
    [(amount, reason)] = await state_notes(lived, DESTROYED, Span(0, end))
    assert amount == 0
    assert "no coins and never sent a transaction" in reason


async def test_an_account_with_coins_or_a_later_transaction_is_no_contract(lived: Local) -> None:
    sender, payee = lived.deployment.accounts["carol"], lived.node.rpc("eth_accounts")[9]
    lived.node.settle([Tx(sender, payee, value=3)])
    height = lived.node.height
    assert await state_notes(lived, payee, Span(height, height)) == []
    coins = lived.node.rpc("eth_getBalance", payee, "latest")
    lived.node.rpc("anvil_setBalance", payee, "0x0")
    unused = await state_notes(lived, payee, Span(height, height))
    lived.node.rpc("anvil_setBalance", payee, coins)
    lived.node.settle([Tx(payee, sender, value=1)])
    assert any("never sent" in reason for _, reason in unused)
    assert await state_notes(lived, payee, Span(height, height)) == []


async def test_two_endpoints_of_different_depth_share_the_work(lived: Local) -> None:
    """The first has methods and no state of the past; the second has nothing but that."""
    alice = lived.deployment.accounts["alice"].lower()
    span = Span(0, lived.node.height)

    def pruned(ask: dict[str, Any]) -> dict[str, Any] | None:
        if ask["method"] in ("eth_getBalance", "eth_getTransactionCount", "eth_simulateV1"):
            return {"error": {"code": -32000, "message": "missing trie node 0xabc (path ) state is not available"}}
        return None

    shallow, deep = Provider(lived.node.url, SETS["state"], pruned), Provider(lived.node.url, SETS["state"])
    async with served(lived.node, lived.deployment, shallow, deep) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        pieces = await scoped(chain, span, [alice], ("transfers", *OF_PLACES))
        assert merged_rows(pieces)["transactions"] == (await reference(lived, [alice], span))["transactions"]
        assert shallow.method_counts["eth_getLogs"] > 0
        assert deep.method_counts["eth_getLogs"] == 0
        assert deep.method_counts["eth_getBalance"] > 50
        before = shallow.method_counts["eth_getBalance"]
        await scoped(chain, span, [alice], OF_PLACES)
        assert shallow.method_counts["eth_getBalance"] == before, (
            "it said that it has no such state, and is not asked again"
        )


async def test_a_node_that_gives_the_state_of_today_for_every_block_has_no_past(lived: Local) -> None:
    """Constant nonces do not count as an empty history."""
    accounts, span = [lived.deployment.accounts["alice"].lower()], Span(lived.deployment.height, lived.node.height)

    def today(ask: dict[str, Any]) -> dict[str, Any] | None:
        if ask["method"] not in ("eth_getBalance", "eth_getTransactionCount"):
            return None
        return {"result": lived.node.rpc(ask["method"], ask["params"][0], "latest")}

    async with served(lived.node, lived.deployment, Provider(lived.node.url, SETS["state"], today)) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        pieces = await scoped(chain, span, accounts, OF_PLACES)
        assert not merged_rows(pieces)
        assert not any(piece.read_methods for piece in pieces)
        assert all("before and after blocks" in each.reason for piece in pieces for each in piece.unexplained)
        assert any(piece.unexplained for piece in pieces)


async def test_without_state_of_the_past_and_without_any_other_way_nothing_is_said_to_be_read(lived: Local) -> None:
    def pruned(ask: dict[str, Any]) -> dict[str, Any] | None:
        if ask["method"] in ("eth_getBalance", "eth_getTransactionCount"):
            return {"error": {"code": -32000, "message": "missing trie node 0xabc (path ) state is not available"}}
        return None

    alice = lived.deployment.accounts["alice"].lower()
    async with served(lived.node, lived.deployment, Provider(lived.node.url, SETS["state"], pruned)) as chain:
        await chain.heads()
        chain.node.finalized = lived.node.height
        (piece,) = await scoped(chain, Span(0, 99), [alice], ("transfers", *OF_PLACES))
        assert piece.read_methods == {"transfers": "logs"}
        assert "transactions" not in piece.tables or not len(piece.tables["transactions"])
        assert [(each.account, each.amount) for each in piece.unexplained] == [(alice, 0)]
        assert "archive node" in piece.unexplained[0].reason


@pytest.mark.slow("the same end by another limit", fast=["limit0"])
@pytest.mark.parametrize("limit", [{"max_requests": 30}, {"max_units": 60_000}])
async def test_a_budget_ends_the_work_with_an_error_and_another_one_goes_on(
    lived: Local, limit: dict[str, int]
) -> None:
    accounts = [lived.deployment.accounts[name].lower() for name in ("alice", "bob", "carol")]
    span = Span(0, lived.node.height)
    provider = Provider(lived.node.url, SETS["state"], largest=50)
    async with served(lived.node, lived.deployment, provider) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        pieces: list[SpanTables] = []
        budgets = 0
        while not pieces or pieces[-1].span.last < span.last:
            budget, budgets = Budget(**limit), budgets + 1
            before, had = provider.requests, len(pieces)
            with suppress(OverBudget):
                while not pieces or pieces[-1].span.last < span.last:
                    first = pieces[-1].span.last + 1 if pieces else 0
                    remaining = Span(first, span.last)
                    pieces.append(
                        not_of_logs(await chain.collect_accounts(remaining, accounts, OF_PLACES, budget=budget))
                    )
            assert len(pieces) > had, "no budget is spent without getting on"
            assert provider.requests - before == budget.requests <= (budget.max_requests or budget.requests)
            assert budget.units <= (budget.max_units or budget.units)
        assert budgets > 1
        assert merged_rows(pieces) == await reference(lived, accounts, span)


async def test_a_budget_that_is_used_up_says_how_to_go_on(lived: Local) -> None:
    async with served(lived.node, lived.deployment, Provider(lived.node.url)) as chain:
        await chain.heads()
        chain.node.finalized = lived.node.height
        with pytest.raises(OverBudget, match=r"1 requests is used up.*goes on where this ended"):
            await chain.collect_accounts(Span(0, 9), [lived.wallets[1]], OF_PLACES, budget=Budget(max_requests=1))


@pytest.mark.slow("the same count by other methods", fast=["search"])
@pytest.mark.parametrize("has", ["traces", "search", "explorer"])
async def test_where_transactions_are_known_by_hash_no_transactions_of_others_are_read(lived: Local, has: str) -> None:
    """A body of a busy chain is 20 times as large as its header; no header is read twice."""
    accounts, span = [lived.deployment.accounts["alice"].lower()], Span(0, lived.node.height)
    expected = await reference(lived, accounts, span)
    whole_blocks: list[str] = []
    headers: list[str] = []

    def record_block(ask: dict[str, Any]) -> None:
        if ask["method"] == "eth_getBlockByNumber" and ask["params"][0].startswith("0x"):
            (whole_blocks if ask["params"][1] else headers).append(ask["params"][0])

    async with served(
        lived.node, lived.deployment, Provider(lived.node.url, SETS[has], record_block), explorer=has == "explorer"
    ) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        await scoped(chain, span, accounts, ("transfers", "approvals", "events"))
        of_logs = set(headers)
        headers.clear()
        assert merged_rows(await scoped(chain, span, accounts, OF_PLACES)) == expected
        assert not whole_blocks
        assert len(of_logs) > 10
        assert of_logs & set(headers) <= {hex(span.last)}


async def test_a_node_that_does_not_give_transactions_by_their_place_is_asked_for_whole_blocks(lived: Local) -> None:
    accounts, span = [lived.deployment.accounts["alice"].lower()], Span(0, lived.node.height)
    provider = Provider(lived.node.url, (*SETS["traces"], "eth_getTransactionByBlockHashAndIndex"))
    async with served(lived.node, lived.deployment, provider) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        assert merged_rows(await scoped(chain, span, accounts, OF_PLACES)) == await reference(lived, accounts, span)
        assert provider.method_counts["eth_getTransactionByBlockHashAndIndex"] > 0


@pytest.mark.parametrize("lie", ["null", "another"])
async def test_a_transaction_that_is_not_the_one_at_its_place_is_refused(lived: Local, lie: str) -> None:
    def lies(ask: dict[str, Any]) -> dict[str, Any] | None:
        if ask["method"] != "eth_getTransactionByBlockHashAndIndex":
            return None
        tx = lived.node.rpc(ask["method"], *ask["params"])
        return {"result": None if lie == "null" else {**tx, "hash": "0x" + "ab" * 32}}

    async with served(lived.node, lived.deployment, Provider(lived.node.url, SETS["traces"], lies)) as chain:
        await chain.heads()
        chain.node.finalized = lived.node.height
        with pytest.raises(BadAnswer, match=r"does not have transaction|in answer to"):
            await scoped(chain, Span(0, lived.node.height), [lived.deployment.accounts["alice"].lower()], OF_PLACES)


@pytest.mark.parametrize("is_forged", [True, False], ids=["forged", "true"])
async def test_forged_acts_are_not_followed(lived: Local, is_forged: bool) -> None:
    """A search starts at the heights of an account's acts; impossible heights cost no request."""
    alice, span = lived.deployment.accounts["alice"].lower(), Span(0, lived.node.height)
    rows, probes = list[Rows](), list[int]()
    for acts in ((), range(1, span.last) if is_forged else await _acts(lived, alice, span)):
        provider = Provider(lived.node.url, SETS["state"], largest=10)
        async with served(lived.node, lived.deployment, provider) as chain:
            await chain.heads()
            chain.node.finalized = span.last
            chain._accounts.transactions.actor_heights._heights = {alice: set(acts)}
            rows.append(merged_rows(await scoped(chain, span, [alice], OF_PLACES)))
            probes.append(provider.method_counts["eth_getTransactionCount"])
    assert rows[0] == rows[1]
    assert probes[1] == probes[0] if is_forged else probes[1] < probes[0]


async def _acts(lived: Local, account: str, span: Span) -> set[int]:
    rows = await reference(lived, [account], span)
    return {row["height"] for row in rows["transactions"] if row["sender"] == account}
