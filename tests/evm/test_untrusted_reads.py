"""Reads of untrusted contracts: after the others, separately, and with bounded gas, by every route."""

from __future__ import annotations

import pytest

from chainfolio.adapters.evm.reads import Call, NativeBalance, Read
from chainfolio.adapters.evm.scan import MAX_HEAVY, ROUTE, answer
from chainfolio.adapters.evm.scanner import MORE_GAS, OVERRIDE, SINGLES
from chainfolio.adapters.evm.untrusted import BURNT, MAX_CALL_READS, READ_GAS, Budget, call_gas
from chainfolio.engine.snapshots.trust import mark_untrusted
from chainfolio.plans import Unknown
from chainfolio.untrusted import OVER
from tests.evm.contracts import Burns, Contracts, balances
from tests.evm.dust import BLOCK, CHAIN
from tests.evm.fakes import ALICE, TOKEN, FakeNode, Wired, wired
from tests.evm.test_state_faults import ROUTES, balance_call

LOOPERS = [f"0x{k:040x}" for k in range(1, 851)]
NAMES = ("symbol()(*)", "name()(*)", "decimals()(*)")
HONEST: list[Read] = [NativeBalance(ALICE), balance_call(TOKEN)]


def _burns(data: bytes) -> bytes:
    raise Burns


def node(route: int, loopers: list[str], **more: int) -> tuple[Wired, Contracts]:
    code = {TOKEN: balances({ALICE: 7}), **dict.fromkeys(loopers, _burns)}
    contracts = Contracts(code, {ALICE: 10**18}, **ROUTES[route], **more)  # type: ignore[arg-type]
    return wired(FakeNode(CHAIN, contracts), checked=True), contracts


@pytest.mark.parametrize("route", ROUTES)
async def test_hostile_contracts_take_no_round_from_honest_reads(route: int) -> None:
    pool, contracts = node(route, LOOPERS, gas_cap=30_000_000)
    reads: list[Read] = [Call(each, name) for name in NAMES for each in LOOPERS]
    values = await answer(pool.node, mark_untrusted([*reads, *HONEST], set(LOOPERS)), BLOCK)
    assert values[-2:] == [10**18, 7]
    assert all(isinstance(each, Unknown) and each.cause == "contract" for each in values[:-2])
    assert contracts.gas_used <= Budget.of(len(reads)).gas + call_gas(MAX_CALL_READS)
    assert pool.endpoint.capabilities.get(ROUTE, OVERRIDE) == route
    assert "max_reads" not in pool.endpoint.capabilities


async def test_untrusted_reads_that_answer_cost_no_request_more() -> None:
    pool, _ = node(OVERRIDE, [])
    tokens = [f"0x{k:040x}" for k in range(1, 3001)]
    pool.transport.nodes["http://one.test"].contracts.code |= dict.fromkeys(tokens, balances({ALICE: 3}))
    values = await answer(
        pool.node, mark_untrusted([*HONEST, *(balance_call(each) for each in tokens)], set(tokens)), BLOCK
    )
    assert values == [10**18, 7] + [3] * 3000
    assert pool.node.requests == 1


async def test_rounds_of_the_scanner_take_no_read_that_has_a_call_to_itself() -> None:
    pool, contracts = node(OVERRIDE, LOOPERS)
    lone_contract = "0x" + "f" * 40
    contracts.code[lone_contract] = balances({ALICE: 3})
    alone = Call(lone_contract, balance_call(lone_contract).signature, (ALICE,), alone=True)
    reads = mark_untrusted([*HONEST, *(balance_call(each) for each in LOOPERS), alone], {*LOOPERS, lone_contract})
    values = await answer(pool.node, reads, BLOCK)
    assert (values[:2], values[-1]) == ([10**18, 7], 3)
    assert contracts.gas_used <= Budget.of(len(reads)).gas + call_gas(MAX_CALL_READS)


async def test_a_contract_that_burnt_its_gas_is_called_no_more_and_gets_no_more_gas() -> None:
    pool, _ = node(SINGLES, LOOPERS[:1])
    pool.endpoint.capabilities[ROUTE] = SINGLES
    await answer(pool.node, mark_untrusted([*HONEST, balance_call(LOOPERS[0])], set(LOOPERS)), BLOCK)
    (fake,) = pool.transport.nodes.values()
    calls = [call for method, (call, *_) in fake.asked if method == "eth_call"]
    assert [(call["to"], int(call["gas"], 16) // READ_GAS) for call in calls] == [(TOKEN, 3), (LOOPERS[0], 1)]


async def test_a_contract_that_burnt_its_gas_costs_nothing_in_the_next_blocks() -> None:
    pool, contracts = node(OVERRIDE, LOOPERS[:40])
    reads = mark_untrusted([*HONEST, *(balance_call(each) for each in LOOPERS[:40])], set(LOOPERS))
    await answer(pool.node, reads, BLOCK)
    request_count, gas = pool.node.requests, contracts.gas_used
    clean, clean_contracts = node(OVERRIDE, [])
    await answer(clean.node, HONEST, BLOCK)
    while any(each == OVER for each in await answer(pool.node, reads, BLOCK)):
        assert pool.node.requests <= request_count + 2
        request_count, gas = pool.node.requests, contracts.gas_used
    request_count, gas = pool.node.requests, contracts.gas_used
    for block in (BLOCK, CHAIN.block(4)):
        assert await answer(pool.node, reads, block) == [10**18, 7, *[BURNT] * 40]
    assert pool.node.requests == request_count + 2 * clean.node.requests
    assert contracts.gas_used == gas + 2 * clean_contracts.gas_used
    assert (await answer(pool.node, [balance_call(LOOPERS[0])], BLOCK)) != [BURNT]  # it is read for who trusts it


async def test_untrusted_reads_are_the_last_of_a_batch_and_have_a_gas_limit() -> None:
    pool, _ = node(OVERRIDE, LOOPERS[:3])
    await answer(
        pool.node, mark_untrusted([*(balance_call(each) for each in LOOPERS[:3]), *HONEST], set(LOOPERS)), BLOCK
    )
    (fake,) = pool.transport.nodes.values()
    calls = [call for method, (call, *_) in fake.asked if method == "eth_call"]
    assert ["gas" in call for call in calls] == [False] * (len(calls) - 1) + [True]
    assert [LOOPERS[0][2:] in call["data"] for call in calls] == ["gas" in call for call in calls]
    assert int(calls[-1]["gas"], 16) == call_gas(3)


async def test_unmarked_contracts_that_burn_gas_are_bounded_and_hide_no_other_read() -> None:
    """Contracts to which an untrusted contract leads are treated alike."""
    burners = [f"0x{k:040x}" for k in range(1, 2001)]
    pool, contracts = node(OVERRIDE, burners, gas_cap=50_000_000)
    values = await answer(pool.node, [*(balance_call(each) for each in burners), *HONEST], BLOCK)
    assert values[-2:] == [10**18, 7]
    assert contracts.gas_used <= len(burners) * 1_000_000 + (MAX_HEAVY + 50) * MORE_GAS
