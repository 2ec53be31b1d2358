"""State at one block by every route, at nodes with faults: the right value, Unknown, or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chainfolio.adapters.evm.chain import EvmChain
from chainfolio.adapters.evm.reads import Call, NativeBalance, Read, own_reads
from chainfolio.adapters.evm.scan import ROUTE, answer
from chainfolio.adapters.evm.scanner import CREATION, MORE_GAS, OVERRIDE, SCANNER_AT, SINGLES
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.errors import BadAnswer, HistoryUnavailable, NodeBehind, Reorged, Unavailable
from chainfolio.plans import Plan, Report, Reverted, Unknown, run_batched
from chainfolio.transport.exchange import HttpResponse
from tests.evm.contracts import Burns, Contracts, Reverts, RpcRefusal, balances
from tests.evm.fakes import (
    ALICE,
    BOB,
    TOKEN,
    FakeChain,
    FakeNode,
    Wired,
    errors_of,
    wired,
)

SILENT, REFUSING, BURNING, NOWHERE, LONG = ("0x" + pair * 20 for pair in ("51", "52", "53", "54", "55"))
CANONICAL = {"requireCanonical": True}
ROUTES: dict[int, dict[str, str]] = {
    OVERRIDE: {},
    CREATION: {"overrides": "ignored"},
    SINGLES: {"overrides": "refused", "creations": "refused"},
}


def _reverts(data: bytes) -> bytes:
    raise Reverts


def _burns(data: bytes) -> bytes:
    raise Burns


def contracts(**changes: Any) -> Contracts:
    code = {
        TOKEN: balances({ALICE: 7, BOB: 2**256 - 1}),
        SILENT: lambda data: b"",
        REFUSING: _reverts,
        BURNING: _burns,
        LONG: lambda data: (5).to_bytes(32, "big") + b"\xff" * 1000,
    }
    return Contracts(code, {ALICE: 10**18}, **changes)


def balance_call(token: str, wallet: str = ALICE) -> Call:
    return Call(token, "balanceOf(address)(uint256)", (wallet,))


def by_route(route: int, chain: FakeChain | None = None) -> Wired:
    """A node at which reads can only go this way."""
    return wired(FakeNode(chain or FakeChain(5), contracts(**ROUTES[route])), checked=True)


READS: list[Read] = [
    balance_call(TOKEN),
    NativeBalance(ALICE),
    balance_call(TOKEN, BOB),
    balance_call(TOKEN, NOWHERE),
    NativeBalance(BOB),
    balance_call(LONG),
]
VALUES = [7, 10**18, 2**256 - 1, 0, 0, 5]


@pytest.mark.parametrize("route", ROUTES)
async def test_every_route_reads_the_same(route: int) -> None:
    pool = by_route(route)
    assert await answer(pool.node, READS, pool.node_block(3)) == VALUES
    assert pool.endpoint.capabilities.get(ROUTE, OVERRIDE) == route


@pytest.mark.parametrize("route", ROUTES)
async def test_what_cannot_be_read_is_never_a_number_and_spoils_nothing(route: int) -> None:
    pool = by_route(route)
    reads: list[Read] = [
        balance_call(SILENT),
        balance_call(TOKEN),
        balance_call(REFUSING),
        balance_call(BURNING),
        balance_call(NOWHERE),
        NativeBalance(ALICE),
    ]
    values = await answer(pool.node, reads, pool.node_block(3))
    assert [values[1], values[5]] == [7, 10**18]
    assert isinstance(values[2], Reverted)
    for value in (values[0], values[3], values[4]):
        assert isinstance(value, Unknown)
        assert value.reason


@pytest.mark.parametrize(
    ("bad", "cause"),
    [
        (Call(TOKEN, "convertToAssets(uint256)(uint256)", (2**256,)), "argument"),
        (Call(TOKEN, "convertToAssets(uint256)(uint256)", (2**256,), untrusted=True), "argument"),
        (Call(TOKEN, "balanceOf(address)(uint256)", (7,)), "read"),
        (Call(TOKEN, "balanceOf(address)(uint256)", ("0x12",)), "read"),
        (Call(TOKEN, "balanceOf(address)(uint256)"), "read"),
        (Call(TOKEN, "balanceOf"), "read"),
        (Call(TOKEN, "f(bytes)(uint256)", (bytes(2**16),)), "read"),
        (Call("0x12", "balanceOf(address)(uint256)", (ALICE,)), "read"),
        (NativeBalance("0x12"), "read"),
    ],
    ids=["257-bits", "untrusted", "type", "address", "count", "signature", "size", "contract", "account"],
)
async def test_a_read_that_cannot_be_encoded_fails_no_other_account(bad: Read, cause: str) -> None:
    pool = by_route(OVERRIDE)

    def plan(read: Read) -> Plan[object]:
        (result,) = yield [read]
        return result

    block = pool.node_block(3)
    reports: dict[str, Report[object]] = await run_batched(
        {"bad": plan(bad), "good": plan(balance_call(TOKEN))}, lambda reads: answer(pool.node, own_reads(reads), block)
    )
    result = reports["bad"].result
    assert isinstance(result, Unknown)
    assert (result.cause, "cannot be encoded" in result.reason) == (cause, True)
    assert reports["good"].result == 7


@pytest.mark.parametrize("route", ROUTES)
async def test_a_call_that_has_to_travel_alone_does_and_the_others_go_on_together(route: int) -> None:
    pool = by_route(route)
    alone = Call(TOKEN, "balanceOf(address)(uint256)", (BOB,), alone=True)
    assert await answer(pool.node, [alone, balance_call(TOKEN)], pool.node_block(3)) == [2**256 - 1, 7]
    assert pool.endpoint.capabilities.get(ROUTE, OVERRIDE) == route
    (fake,) = pool.transport.nodes.values()
    direct = [call["data"] for method, (call, *_) in fake.asked if method == "eth_call" and call.get("to") == TOKEN]
    assert sum(data.endswith(BOB[2:]) for data in direct) == 1


@pytest.mark.parametrize(
    ("route", "route_name"), [(OVERRIDE, "state override"), (CREATION, "creation code"), (SINGLES, "single calls")]
)
async def test_the_route_that_is_named_to_the_operator_is_the_one_that_works(route: int, route_name: str) -> None:
    pool = by_route(route)
    chain = EvmChain(pool.node.facts, pool.node, EvmSettings(rpc=["http://one.test"]))
    (row,) = await chain.examine()
    assert row["reads"] == route_name


@pytest.mark.parametrize("route", ROUTES)
async def test_nothing_asked_is_nothing_sent(route: int) -> None:
    pool = by_route(route)
    assert await answer(pool.node, [], pool.node_block(3)) == []
    assert pool.node.requests == 0


async def test_a_route_once_learnt_is_taken_at_once() -> None:
    pool = by_route(CREATION)
    await answer(pool.node, READS[:5], pool.node_block(3))
    requests = pool.node.requests
    await answer(pool.node, READS[:5], pool.node_block(3))
    assert pool.node.requests == requests + 1


@pytest.mark.parametrize("creations", ["refused", "nonsense"])
async def test_a_node_that_can_run_no_code_of_ours_is_read_one_by_one(creations: str) -> None:
    chain = FakeChain(5)
    pool = wired(FakeNode(chain, contracts(overrides="refused", creations=creations)), checked=True)
    assert await answer(pool.node, READS, chain.block(3)) == VALUES
    assert pool.endpoint.capabilities[ROUTE] == SINGLES


async def test_what_is_too_long_to_be_code_comes_as_revert_data() -> None:
    chain = FakeChain(5)
    pool = wired(FakeNode(chain, contracts(overrides="ignored", creations="reverted")), checked=True)
    assert await answer(pool.node, READS, chain.block(3)) == VALUES
    assert pool.endpoint.capabilities[ROUTE] == CREATION


@pytest.mark.parametrize("works", [OVERRIDE, CREATION])
async def test_a_block_at_which_a_route_does_not_work_yet_takes_it_from_no_other_block(works: int) -> None:
    """STATICCALL exists since Byzantium: the scanner fails before it, which says nothing of the endpoint."""
    chain = FakeChain(5)
    node = FakeNode(chain, contracts(**ROUTES[works]))
    young = node.eth_call

    def old(params: list[Any]) -> Any:
        if params[0].get("to") in (None, SCANNER_AT) and params[1] == {"blockHash": chain.block(1).hash, **CANONICAL}:
            raise RpcRefusal(-32000, "invalid opcode: STATICCALL")
        return young(params)

    node.on["eth_call"] = old
    pool = wired(node, checked=True)
    assert await answer(pool.node, READS, chain.block(1)) == VALUES
    assert pool.endpoint.capabilities.get(ROUTE, OVERRIDE) == works
    before = pool.node.requests
    assert await answer(pool.node, READS[:5], chain.block(3)) == VALUES[:5]
    assert pool.node.requests == before + 1


async def test_single_calls_come_from_the_scanners_address_with_the_scanners_gas_and_then_with_more() -> None:
    pool = by_route(SINGLES)
    pool.endpoint.capabilities[ROUTE] = SINGLES
    await answer(pool.node, [balance_call(TOKEN), balance_call(BURNING)], pool.node_block(3))
    (fake,) = pool.transport.nodes.values()
    calls = [call for method, (call, *_) in fake.asked if method == "eth_call"]
    assert {call["from"] for call in calls} == {SCANNER_AT}
    gas = [(call["to"], int(call["gas"], 16) // 1_000_000) for call in calls]
    assert gas == [(TOKEN, 1), (BURNING, 1), (BURNING, MORE_GAS // 1_000_000)]


@pytest.mark.parametrize("route", ROUTES)
async def test_a_native_balance_that_is_refused_is_unknown_and_spoils_nothing(route: int) -> None:
    pool = by_route(route)
    (fake,) = pool.transport.nodes.values()
    scan = fake.eth_call

    def refuses(params: list[Any]) -> Any:
        raise RpcRefusal(3, "execution reverted", "0x")

    def without(params: list[Any]) -> Any:
        """The scanner's answer with its first entry a revert."""
        scanned = scan(params)
        return scanned if route == SINGLES else "0x00000000" + scanned[2 + 72 :]

    fake.on["eth_getBalance"], fake.on["eth_call"] = refuses, without
    pool.endpoint.capabilities[ROUTE] = route
    results = await answer(pool.node, [balance_call(TOKEN, BOB), NativeBalance(ALICE)], pool.node_block(3))
    assert results[0] == 2**256 - 1
    assert isinstance(results[1], Unknown)


async def test_thousands_of_reads_are_one_request() -> None:
    pool = by_route(OVERRIDE)
    reads: list[Read] = [balance_call(TOKEN, f"0x{k:040x}") for k in range(3000)]
    assert await answer(pool.node, reads, pool.node_block(3)) == [0] * 3000
    assert pool.node.requests == 1


async def test_a_node_with_little_gas_gives_up_on_one_read_and_keeps_its_route() -> None:
    chain = FakeChain(5)
    pool = wired(FakeNode(chain, contracts(gas_cap=10_000_000)), checked=True)
    values = await answer(pool.node, [balance_call(BURNING), balance_call(TOKEN)], chain.block(3))
    assert isinstance(values[0], Unknown)
    assert values[1] == 7
    assert ROUTE not in pool.endpoint.capabilities


async def test_a_call_that_times_out_is_made_smaller() -> None:
    chain = FakeChain(5)
    node = FakeNode(chain, contracts())
    plain = node.eth_call

    def slow(params: list[Any]) -> Any:
        if len(params[0]["data"]) > 20_000:
            raise RpcRefusal(-32000, "execution aborted (timeout = 5s)")
        return plain(params)

    node.on["eth_call"] = slow
    pool = wired(node, checked=True)
    assert (
        await answer(pool.node, [balance_call(TOKEN, f"0x{k:040x}") for k in range(900)], chain.block(3)) == [0] * 900
    )
    assert pool.endpoint.capabilities["max_reads"] < 900
    assert ROUTE not in pool.endpoint.capabilities


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("limit", [150_000, 700_000])
async def test_reads_are_split_into_bodies_that_the_node_takes(route: int, limit: int) -> None:
    """And what was learnt of bodies does not bound how many reads there may be in one."""
    chain = FakeChain(5)
    node = FakeNode(chain, contracts(**ROUTES[route]))
    plain, sizes = node.post, list[int]()

    def post(body: bytes) -> HttpResponse:
        sizes.append(len(body))
        return HttpResponse(413, None, b"length limit exceeded") if len(body) > limit else plain(body)

    node.post = post  # type: ignore[method-assign]
    pool = wired(node, checked=True)
    reads = [balance_call(TOKEN, f"0x{k:040x}") for k in range(9_000)]
    assert await answer(pool.node, [balance_call(TOKEN), *reads], chain.block(3)) == [7] + [0] * 9_000
    assert pool.endpoint.capabilities["max_bytes"] <= limit
    assert not {"max_reads", "max_batch"} & pool.endpoint.capabilities.keys()
    assert sum(size > limit for size in sizes) <= 8


# --- naming the block ------------------------------------------------------------------------------------------------


def naming(chain: FakeChain, *, hashes: bool, route: int = OVERRIDE) -> FakeNode:
    """A node that does not know `requireCanonical`, or no hashes at all."""
    node = FakeNode(chain, contracts(**ROUTES[route]))

    def picky(method: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        def checked(params: list[Any]) -> Any:
            if isinstance(params[1], dict) and ("requireCanonical" in params[1] or not hashes):
                raise RpcRefusal(-32602, "invalid argument 1: json: cannot unmarshal object, block tag wanted")
            return method(params)

        return checked

    node.on["eth_call"], node.on["eth_getBalance"] = picky(node.eth_call), picky(node.eth_getBalance)
    return node


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("hashes", "pin"), [(True, 1), (False, 2)])
async def test_the_block_is_named_as_the_node_understands(route: int, hashes: bool, pin: int) -> None:
    chain = FakeChain(5)
    pool = wired(naming(chain, hashes=hashes, route=route), checked=True)
    assert await answer(pool.node, READS, chain.block(3)) == VALUES
    assert pool.endpoint.capabilities["pin"] == pin


@pytest.mark.parametrize("reads", [READS, [NativeBalance(ALICE)]])
@pytest.mark.parametrize("route", ROUTES)
async def test_a_number_that_means_another_block_by_now_is_noticed(route: int, reads: list[Read]) -> None:
    chain = FakeChain(5)
    block = chain.block(3)
    pool = wired(naming(chain, hashes=False, route=route), checked=True)
    chain.reorganise(2, "b")
    with pytest.raises(Reorged) as caught:
        await answer(pool.node, reads, block)
    assert (caught.value.height, caught.value.block_hash) == (3, block.hash)


@pytest.mark.parametrize("reads", [READS, [NativeBalance(ALICE)]])
@pytest.mark.parametrize("route", ROUTES)
async def test_a_hash_that_left_the_chain_is_noticed(route: int, reads: list[Read]) -> None:
    chain = FakeChain(5)
    block = chain.block(3)
    pool = by_route(route, chain)
    chain.reorganise(2, "b")
    with pytest.raises(Reorged):
        await answer(pool.node, reads, block)


@pytest.mark.parametrize("route", ROUTES)
async def test_a_block_still_to_come_is_not_a_reorganisation(route: int) -> None:
    chain, longer = FakeChain(5), FakeChain(9)
    with pytest.raises(NodeBehind):
        await answer(by_route(route, chain).node, [NativeBalance(ALICE)], longer.block(9))


# --- what is not there -----------------------------------------------------------------------------------------------

PRUNED = "missing trie node 46 (path ) state 0xc6 is not available, not found"


@pytest.mark.parametrize("message", [PRUNED, "header not found"])
@pytest.mark.parametrize("route", ROUTES)
async def test_pruned_state_is_an_error_and_never_zero(route: int, message: str) -> None:
    """A node with the block but not its state gives either message; a node with the header has pruned."""
    chain = FakeChain(5)
    pool = by_route(route, chain)

    def refuse_state(params: list[Any]) -> Any:
        raise RpcRefusal(-32000, message)

    node = pool.transport.nodes["http://one.test"]
    node.on["eth_call"] = node.on["eth_getBalance"] = refuse_state
    for reads in (READS, [NativeBalance(ALICE)]):
        with pytest.raises(HistoryUnavailable, match="block 2"):
            await answer(pool.node, reads, chain.block(2))


async def test_an_archive_answers_for_a_node_that_has_pruned() -> None:
    chain = FakeChain(5)

    def refuse_state(params: list[Any]) -> Any:
        raise RpcRefusal(-32000, PRUNED)

    pruned = FakeNode(chain, contracts(), eth_call=refuse_state, eth_getBalance=refuse_state)
    two = wired(pruned, FakeNode(chain, contracts()), checked=True)
    assert await answer(two.node, READS, chain.block(2)) == VALUES
    assert errors_of(two.node) == {"one.test": {"HistoryUnavailable": 1}}


@pytest.mark.parametrize("balance", ["0x", "", "0x00", None, "ten", -1, "0x" + "f" * 65])
async def test_a_balance_that_is_no_quantity_is_refused(balance: Any) -> None:
    pool = by_route(SINGLES)
    pool.endpoint.capabilities[ROUTE] = SINGLES
    pool.transport.nodes["http://one.test"].on["eth_getBalance"] = lambda params: balance
    with pytest.raises(BadAnswer):
        await answer(pool.node, [NativeBalance(ALICE)], pool.node_block(3))


@pytest.mark.parametrize(
    "result", ["0x07", "0x01000020" + "00" * 5, "0x" + "01000020" + "00" * 32 + "01000020" + "00" * 32]
)
async def test_nonsense_in_place_of_the_scanner_is_refused(result: str) -> None:
    pool = by_route(OVERRIDE)
    pool.transport.nodes["http://one.test"].on["eth_call"] = lambda params: result
    with pytest.raises(BadAnswer, match="something else runs"):
        await answer(pool.node, [balance_call(TOKEN)], pool.node_block(3))


@pytest.mark.parametrize("route", ROUTES)
async def test_a_node_that_is_gone_is_an_error(route: int) -> None:
    pool = by_route(route)
    pool.endpoint.capabilities[ROUTE] = route
    pool.transport.nodes["http://one.test"].always = Unavailable("one.test", "cannot be reached")
    with pytest.raises(Unavailable):
        await answer(pool.node, READS, pool.node_block(3))
