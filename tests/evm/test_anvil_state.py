"""State of a real node: every route returns what a single call returns, whatever contracts try."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.evm import scanner, tokens
from chainfolio.adapters.evm.doctor import abilities
from chainfolio.adapters.evm.reads import Call, NativeBalance, Read
from chainfolio.adapters.evm.scan import ROUTE
from chainfolio.adapters.evm.scanner import CREATION, OVERRIDE, SCANNER_AT, SENDER, SINGLES
from chainfolio.contracts import Token
from chainfolio.localchain import install
from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.evm import MAX, Tx, call_data, created_address, tx, words
from chainfolio.plans import Reverted, Unknown, run_batched
from tests.evm.anvil import Local, chain_of

pytestmark = pytest.mark.node
ROUTES = (OVERRIDE, CREATION, SINGLES)
LARGEST = 0xFFFF  # bytes of an answer that are read

SOLC = """
const { createRequire } = require("module");
const solc = createRequire(process.cwd() + "/x.js")("solc");
const content = require("fs").readFileSync(0, "utf8");
const settings = { evmVersion: "byzantium", optimizer: { enabled: true, details: { yul: true } },
                   outputSelection: { "*": { "*": ["evm.bytecode.object"] } } };
const input = { language: "Yul", sources: { scanner: { content } }, settings };
console.log(JSON.stringify(JSON.parse(solc.compile(JSON.stringify(input))).contracts.scanner));
"""


def balance_call(token: str, wallet: str) -> Call:
    return Call(token, "balanceOf(address)(uint256)", (wallet,))


def plainly(local: Local, reads: list[Call], height: int) -> list[Any]:
    """Return the results of one eth_call per read: bytes, or None if it failed."""
    calls = [{"to": ask.to, "data": call_data(ask.signature, *ask.args), "gas": hex(30_000_000)} for ask in reads]
    body = [
        {"jsonrpc": "2.0", "id": k, "method": "eth_call", "params": [each, hex(height)]} for k, each in enumerate(calls)
    ]
    replies = {reply["id"]: reply for reply in local.node._post(body)}
    return [bytes.fromhex(replies[k]["result"][2:]) if "result" in replies[k] else None for k in range(len(reads))]


def agrees(value: Any, plain: bytes | None) -> bool:
    """Return True if a read value agrees with the bytes of a plain call.

    A number must equal the first word; an answer that is too long may also be Unknown.
    """
    if plain is None:
        return isinstance(value, Reverted | Unknown)
    if len(plain) < 32 or isinstance(value, Unknown):
        return isinstance(value, Unknown) and (len(plain) < 32 or len(plain) > LARGEST)
    return bool(value == int.from_bytes(plain[:32], "big"))


@pytest.mark.slow("single calls, one by one, for all that two routes read together", fast=["0", "1"])
@pytest.mark.parametrize("route", ROUTES)
async def test_every_balance_of_every_token_is_what_a_plain_call_says(local: Local, route: int) -> None:
    reads = [balance_call(token, wallet) for token in local.tokens for wallet in local.wallets]
    async with chain_of(local, **{ROUTE: route}) as chain:
        for height in local.heights:
            values = await chain.answer(reads, await chain.block(height))
            plain = plainly(local, reads, height)
            wrong = [(a.to, g) for a, g, p in zip(reads, values, plain, strict=True) if not agrees(g, p)]
            assert wrong == []
            assert sum(isinstance(value, int) for value in values) >= (0 if height == 1 else 20)
        assert chain.node.endpoints[0].capabilities[ROUTE] == route


@pytest.mark.parametrize("route", ROUTES)
async def test_native_balances_at_past_blocks(local: Local, route: int) -> None:
    reads = [NativeBalance(wallet) for wallet in local.wallets]
    async with chain_of(local, **{ROUTE: route}) as chain:
        snapshots = []
        for height in local.heights:
            values = await chain.answer(reads, await chain.block(height))
            requests = [("eth_getBalance", (wallet, hex(height))) for wallet in local.wallets]
            assert values == [int(balance, 16) for balance in local.node.batch(requests)]
            snapshots.append(tuple(values))
        assert len(set(snapshots)) == len(local.heights)


@pytest.mark.parametrize("route", ROUTES)
async def test_hostile_balances_by_name(local: Local, route: int) -> None:
    names = [name for name in local.hostile if name.startswith("balance")]
    reads = [balance_call(local.hostile[name].lower(), local.wallets[1]) for name in names]
    async with chain_of(local, **{ROUTE: route}) as chain:
        values = dict(zip(names, await chain.answer(reads, await chain.block(local.heights[-1])), strict=True))
    assert values["balance of 64 bytes"] == 10**18
    assert values["balance of max uint256"] == MAX
    for name in names:
        if "bytes" in name and "64" not in name:
            assert isinstance(values[name], Unknown), name
        elif "reverts" in name:
            assert isinstance(values[name], Reverted), name
            assert len(values[name].data) <= 512
        elif "loops" in name or "invalid" in name:
            assert isinstance(values[name], Reverted | Unknown), name


@pytest.mark.parametrize("route", ROUTES)
async def test_a_contract_that_burns_all_gas_harms_no_other_read(local: Local, route: int) -> None:
    """The batch size and route of the endpoint stay the same."""
    burners = [local.hostile[name].lower() for name in ("balance loops", "balance is invalid")]
    honest = [
        balance_call(token.address.lower(), wallet)
        for token in local.deployment.tokens.values()
        for wallet in local.wallets
    ]
    reads = [
        each
        for ask in honest
        for each in (balance_call(burners[0], local.wallets[0]), ask, balance_call(burners[1], local.wallets[1]))
    ]
    async with chain_of(local, **{ROUTE: route}) as chain:
        (endpoint,) = chain.node.endpoints
        block = await chain.block(local.heights[-1])
        alone = await chain.answer(honest, block)
        before = endpoint.requests
        results = await chain.answer(reads, block)
        if route == SINGLES:
            assert endpoint.requests - before <= 2, "once more with more gas, for the burners alone"
        assert results[1::3] == alone
        assert all(isinstance(value, int) for value in alone)
        assert all(isinstance(value, Reverted | Unknown) for value in (*results[0::3], *results[2::3]))
        assert endpoint.capabilities == {ROUTE: route}
        assert not endpoint.errors.counts


@pytest.mark.parametrize("route", ROUTES)
async def test_what_writes_says_what_it_would_give_and_changes_nothing(local: Local, route: int) -> None:
    weth, wallet = local.deployment.tokens["WETH"].address.lower(), local.wallets[1]
    reads = [
        Call(weth, "approve(address,uint256)(bool)", (wallet, 5), alone=True),
        Call(weth, "allowance(address,address)(uint256)", (SCANNER_AT, wallet)),
        Call(weth, "transfer(address,uint256)(bool)", (wallet, MAX), alone=True),
    ]
    async with chain_of(local, **{ROUTE: route}) as chain:
        values = await chain.answer(reads, await chain.block(local.heights[-1]))
        assert values[:2] == [True, 0]
        assert isinstance(values[2], Reverted)
        assert chain.node.endpoints[0].capabilities[ROUTE] == route


MEDDLERS = ("moves", "tries to move", "counts", "remembers", "looks at gas", "looks at its caller", "looks at code")
WRITING = MEDDLERS[:4]


@pytest.fixture(scope="module")
def meddlers(local: Local) -> dict[str, str]:
    """Tokens whose balanceOf meddles, with a million DAI each to give away, by what they do."""
    maker, dai = local.deployment.accounts["deployer"], local.deployment.tokens["DAI"].address
    nonce = int(local.node.rpc("eth_getTransactionCount", maker, "pending"), 16)
    creations = [
        Tx(maker, None, artifact("Meddler").creation(words(["uint8", "address"], kind, dai)), gas=2_000_000)
        for kind in range(len(MEDDLERS))
    ]
    addresses = {name: created_address(maker, nonce + k).lower() for k, name in enumerate(MEDDLERS)}
    local.node.settle(
        [*creations, *(tx(maker, dai, "mint(address,uint256)", each, 10**24) for each in addresses.values())]
    )
    return addresses


async def by_every_route(local: Local, reads: list[Call]) -> dict[int, list[Any]]:
    results = {}
    for route in ROUTES:
        async with chain_of(local, **{ROUTE: route}) as chain:
            results[route] = await chain.answer(reads, await chain.block(local.node.height))
            assert chain.node.endpoints[0].capabilities[ROUTE] == route
    return results


async def test_a_token_that_moves_others_when_it_is_asked_changes_no_other_balance(
    local: Local, meddlers: dict[str, str]
) -> None:
    wallet, dai = local.wallets[1], balance_call(local.deployment.tokens["DAI"].address.lower(), local.wallets[1])
    (truth,) = plainly(local, [dai], local.node.height)
    assert truth is not None
    hostile = [balance_call(each, wallet) for each in meddlers.values()]
    for reads in ([*hostile, dai], [dai, *hostile], [*hostile, dai, *reversed(hostile)]):
        for route, results in (await by_every_route(local, reads)).items():
            assert results[reads.index(dai)] == int.from_bytes(truth, "big"), f"route {route}"


async def test_what_looks_at_its_caller_or_its_gas_says_the_same_on_every_route(
    local: Local, meddlers: dict[str, str]
) -> None:
    """The scanner has one address on every route; without a scanner, that address has no code."""
    reads = [balance_call(meddlers[name], local.wallets[1]) for name in MEDDLERS if name not in WRITING]
    for route, values in (await by_every_route(local, reads)).items():
        assert values == [7, int(SCANNER_AT, 16), 0 if route == SINGLES else len(scanner.SCANNER) // 2 - 1]


async def test_what_writes_when_it_is_asked_has_no_balance_where_calls_are_static(
    local: Local, meddlers: dict[str, str]
) -> None:
    """Single calls show it as it would be, from a state that no other call has touched."""
    reads = [balance_call(meddlers[name], wallet) for wallet in local.wallets[:2] for name in WRITING]
    by_route = await by_every_route(local, reads)
    for values in (by_route[OVERRIDE], by_route[CREATION]):
        assert [each if isinstance(each, int) else None for each in values] == [None, 5, None, None] * 2
        assert all(isinstance(each, int | Unknown | Reverted) for each in values)
    assert by_route[SINGLES] == [10**18, 10**18, 1, 1] * 2


async def test_what_code_may_not_be_as_long_as_comes_whole_on_every_route(local: Local) -> None:
    """24,576 bytes are the longest code: longer answers of the scanner come as revert data."""
    long = local.hostile["name: 10 kB"].lower()
    reads = [Call(long, f"{name}()(string)") for name in ("name", "symbol")]
    reads += [
        Call(local.hostile["balance of 1 MB"].lower(), "balanceOf(address)(*)", (wallet,)) for wallet in local.wallets
    ]
    reads += [balance_call(local.hostile["balance of 1 MB"].lower(), wallet) for wallet in local.wallets]
    by_route = await by_every_route(local, reads)
    assert by_route[OVERRIDE] == by_route[CREATION]
    assert by_route[CREATION][:2] == ["A" * 10_240] * 2


async def test_everything_is_one_request_where_the_node_allows_it(local: Local) -> None:
    honest = [token.address.lower() for token in local.deployment.tokens.values()]
    reads: list[Read] = [balance_call(token, wallet) for token in honest for wallet in local.wallets]
    async with chain_of(local) as chain:
        block = await chain.block(local.heights[-1])
        before = chain.requests
        results = await chain.answer([*reads, *(NativeBalance(wallet) for wallet in local.wallets)], block)
        assert chain.requests == before + 1
        assert all(isinstance(value, int) for value in results)


async def test_more_than_a_node_takes_in_one_body_is_read_in_several(local: Local) -> None:
    token, wallet = local.deployment.tokens["DAI"].address.lower(), local.wallets[0]
    allowance = "allowance(address,address)(uint256)"
    reads: list[Read] = [Call(token, allowance, (wallet, f"0x{k:040x}")) for k in range(1, 15_001)]
    async with chain_of(local) as chain:
        block = await chain.block(local.heights[-1])
        before = chain.requests
        values = await chain.answer([*reads, balance_call(token, wallet)], block)
        assert chain.requests == before + 2  # 2.7 MB
    assert values[:-1] == [0] * 15_000
    assert values[-1] == local.node.call(token, "balanceOf(address)(uint256)", wallet, block=block.height) > 0


async def test_a_real_node_is_examined(local: Local) -> None:
    async with chain_of(local) as chain:
        assert await abilities(chain.node, await chain.heads()) == {
            "oldestState": 0,
            "reads": "state override",
            "leavesOutLogs": False,
        }


async def test_what_tokens_say_about_themselves(local: Local) -> None:
    contracts = local.tokens
    async with chain_of(local) as chain:
        block = await chain.block(local.heights[-1])
        plan = tokens.describe(chain.facts, contracts)
        report = (await run_batched({"tokens": plan}, lambda reads: chain.answer(reads, block)))["tokens"]
    by_address: dict[str, Token] = report.result or {}
    assert report.status == "ok"
    for token in local.deployment.tokens.values():
        description = by_address[token.address.lower()]
        assert (description.symbol, description.decimals) == (token.symbol, token.decimals)
    decimals = {name: by_address[address.lower()].decimals for name, address in local.hostile.items()}
    assert {name: value for name, value in decimals.items() if name.startswith("decimals")} == {
        "decimals revert": None,
        "decimals of 0 bytes": None,
        "decimals 0": 0,
        "decimals 77": 77,
        "decimals 255": 255,
        "decimals 256": None,
        "decimals of max uint256": None,
    }
    names = {name: by_address[address.lower()].name for name, address in local.hostile.items()}
    assert names["name as bytes32"] == "Maker"
    assert names["name reverts"] == names["name points outside"] == names["name: empty"] == ""
    assert names["name: right to left"] == "CDSU"
    assert len(names["name: 10 kB"]) <= 96
    assert all(name.isprintable() for name in names.values())


def test_the_scanner_is_what_its_source_compiles_to() -> None:
    folder = install.ensure()
    if not (folder / "node_modules" / "solc").is_dir():
        pytest.skip("the compiler is not here")
    assert created_address(created_address(SENDER, 0), 1).lower() == scanner.SCANNER_AT
    source = Path(scanner.__file__).with_name("scanner.yul").read_text()
    process = subprocess.run(["node", "-e", SOLC], cwd=folder, input=source, capture_output=True, check=True, text=True)
    (compiled,) = json.loads(process.stdout).values()
    assert "0x" + compiled["evm"]["bytecode"]["object"] == scanner.CREATION_CODE
    assert scanner.CREATION_CODE.endswith(scanner.SCANNER[2:])
