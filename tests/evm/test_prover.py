"""Balances proven on a real node: published tokens, every storage layout, and nodes that lie."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from sha3 import keccak_256

from chainfolio.adapters.evm.chain import EvmChain
from chainfolio.adapters.evm.endpoint import EvmEndpoint
from chainfolio.adapters.evm.facts import load
from chainfolio.adapters.evm.node import Node
from chainfolio.adapters.evm.reads import NativeBalance, balance_of
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.adapters.evm.slots import OPENZEPPELIN, matching_bits, slots
from chainfolio.blocks import Block
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, Reorged, UnsupportedMethod
from chainfolio.localchain.node import LocalNode
from chainfolio.proofs import ProofResult
from chainfolio.transport.exchange import HttpResponse
from chainfolio.transport.http import HttpTransport
from tests.evm.anvil import LOCAL, Local

pytestmark = pytest.mark.node
Lie = Callable[[str, list[Any], Any], Any]
PLAIN = ("WETH", "USDC", "DAI", "WBTC", "SUSHI", "Vault", "UniswapV2Pair WETH/USDC")


class MissingMethod(Exception):
    """The method is not there."""


@dataclass
class Scripted:
    """The node's own transport, with a script that may change results, and take methods away."""

    lie: Lie = lambda method, params, result: result
    http: HttpTransport = field(default_factory=HttpTransport)
    methods: list[str] = field(default_factory=list)

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        posted = await self.http.post(source, url, body, timeout_s)
        reads, replies = json.loads(body), json.loads(posted.body)
        for ask, reply in zip(*([x] if isinstance(x, dict) else x for x in (reads, replies)), strict=True):
            self.methods.append(ask["method"])
            try:
                if "result" in reply:
                    reply["result"] = self.lie(ask["method"], ask["params"], reply["result"])
            except MissingMethod:
                del reply["result"]
                reply["error"] = {"code": -32601, "message": "the method does not exist/is not available"}
        return replace(posted, body=json.dumps(replies).encode())

    async def close(self) -> None:
        await self.http.close()


@asynccontextmanager
async def over(node: LocalNode, lie: Lie | None = None) -> AsyncIterator[tuple[EvmChain, Scripted]]:
    transport = Scripted(lie) if lie else Scripted()
    facts = msgspec.structs.replace(load(LOCAL))
    environment = Environment()
    chain = EvmChain(
        facts, Node(facts, [EvmEndpoint(node.url, transport, environment)], environment), EvmSettings(rpc=[node.url])
    )
    try:
        yield chain, transport
    finally:
        await chain.close()


@dataclass(frozen=True)
class Proven:
    """Findings by the contracts of the tokens."""

    header: ProofResult
    native: ProofResult
    tokens: dict[str, ProofResult]


async def prove(chain: EvmChain, block: Block, account: str, native: int | None, tokens: dict[str, Any]) -> Proven:
    coin = chain.info.native.asset
    raws = {coin: native} | {chain.info.token_asset(contract): raw for contract, raw in tokens.items()}
    findings = await chain.prove(block, account, raws)
    balances = dict(findings.balances)
    return Proven(findings.header, balances.pop(coin), {asset.reference: each for asset, each in balances.items()})


async def proven(
    node: LocalNode, account: str, tokens: list[str], height: int, lie: Lie | None = None, **raws: int
) -> tuple[Proven, dict[str, Any]]:
    """Return the proofs of the balances that an honest reader gets, with `raws` in place of some."""
    async with over(node) as (honest, _):
        block = await honest.block(height)
        native, *read = await honest.answer([NativeBalance(account), *(balance_of(t, account) for t in tokens)], block)
    balances = {token: raw for token, raw in zip(tokens, read, strict=True) if isinstance(raw, int)} | raws
    async with over(node, lie) as (chain, _):
        return await prove(chain, block, account, native, balances), {"": native, **balances}


def address(local: Local, name: str) -> str:
    return local.deployment.contracts[name].lower()


# --- published tokens ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("back", [0, 3])
async def test_published_tokens_are_proven_now_and_in_the_past(local: Local, back: int) -> None:
    for wallet in local.wallets:
        findings, balances = await proven(
            local.node, wallet, [address(local, name) for name in PLAIN], local.heights[-1] - back
        )
        assert findings.header.status == "proven"
        assert (findings.native.status, findings.native.value) == ("proven", balances[""])
        for token, finding in findings.tokens.items():
            expected = ("proven", balances[token]) if balances[token] else ("unprovable", None)
            assert (finding.status, finding.value) == expected, finding
            assert "Solidity mapping at slot" in finding.reason or not balances[token]


async def test_of_a_rebasing_token_the_share_is_proven_and_the_balance_is_not(local: Local) -> None:
    deployer, token = local.wallets[0], address(local, "aDAI")
    findings, balances = await proven(local.node, deployer, [token], local.heights[-1])
    assert balances[token] > 0
    scaled = local.node.call(token, "scaledBalanceOf(address)(uint256)", deployer)
    assert findings.tokens[token].status == "unprovable"
    assert f"scaledBalanceOf of {scaled} is proven (Solidity mapping at slot 52)" in findings.tokens[token].reason


async def test_hostile_tokens_are_unprovable_and_sink_nobody(local: Local) -> None:
    alice, usdc = local.wallets[1], address(local, "USDC")
    findings, _ = await proven(local.node, alice, [usdc, *local.hostile.values()], local.heights[-1])
    assert findings.tokens[usdc].status == "proven"
    statuses = [finding.status for token, finding in findings.tokens.items() if token != usdc]
    assert len(statuses) > 30
    assert set(statuses) == {"unprovable"}


async def test_it_takes_four_requests_however_many_tokens_there_are(local: Local) -> None:
    async with over(local.node) as (chain, transport):
        block = await chain.block(local.heights[-1])
        transport.methods.clear()
        before = chain.requests
        await prove(chain, block, local.wallets[1], 1, {address(local, name): 1 for name in PLAIN})
        assert chain.requests - before <= 5
        assert "eth_getStorageAt" not in transport.methods


# --- every layout ----------------------------------------------------------------------------------------------------

ACCOUNT = "0x" + "a1" * 20


ONLY_BALANCES = "60003560e01c6370a0823114601357600080fd5b"  # every call but balanceOf(address) reverts


def code(*, base: bytes, before: bool = True, after: str = "") -> str:
    """Return code of a token with one function.

    It reads the word at keccak(account, base), or at keccak(base, account), and then runs `after`.
    """
    first, second = ("600435", "7f" + base.hex()) if before else ("7f" + base.hex(), "600435")
    return f"0x{ONLY_BALANCES}{first}600052{second}6020526040600020" + "54" + after + "60005260206000f3"


def word(number: int) -> bytes:
    return number.to_bytes(32, "big")


def key(*parts: bytes) -> str:
    return "0x" + str(keccak_256(b"".join(parts)).hexdigest())


HOLDER = bytes(12) + bytes.fromhex(ACCOUNT[2:])
SOLADY = f"0x{ONLY_BALANCES}6387a211a2600c526004356000526020600c20" + "54" + "60005260206000f3"
RAW = 123_456_789_012_345_678_901
LAYOUTS: dict[str, tuple[str, str, int, str]] = {
    "Solidity mapping at slot 0": (code(base=word(0)), key(HOLDER, word(0)), RAW, ""),
    "Solidity mapping at slot 63": (code(base=word(63)), key(HOLDER, word(63)), RAW, ""),
    "Vyper mapping at slot 2": (code(base=word(2), before=False), key(word(2), HOLDER), RAW, ""),
    "ERC-7201 openzeppelin.storage.ERC20": (code(base=word(OPENZEPPELIN)), key(HOLDER, word(OPENZEPPELIN)), RAW, ""),
    "Solady's slot of balances": (SOLADY, key(HOLDER[12:], bytes(8), bytes.fromhex("87a211a2")), RAW, ""),
    "Solidity mapping at slot 9": (  # a flag in the top bit, as USDC has it
        code(base=word(9), after="7f7f" + "ff" * 31 + "16"),
        key(HOLDER, word(9)),
        RAW | 1 << 255,
        "low 255 bits",
    ),
    "Solidity mapping at slot 10": (
        code(base=word(10), after="6f" + "ff" * 16 + "16"),
        key(HOLDER, word(10)),
        RAW | 77 << 128,
        "low 128 bits",
    ),
}


@pytest.fixture(scope="module")
def laid_out() -> Iterator[tuple[LocalNode, dict[str, str]]]:
    """A token of each layout, in proof_kind the account holds the same."""
    with LocalNode() as node:
        contracts = {rule: f"0x{0x1000 + k:040x}" for k, rule in enumerate(LAYOUTS)}
        for rule, contract in contracts.items():
            runtime, slot, content, _ = LAYOUTS[rule]
            node.rpc("anvil_setCode", contract, runtime)
            node.rpc("anvil_setStorageAt", contract, slot, "0x" + word(content).hex())
        node.mine()
        yield node, contracts


def unnamed(method: str, params: list[Any], result: Any) -> Any:
    """A node without access lists."""
    if method == "eth_createAccessList":
        raise MissingMethod
    return result


@pytest.mark.parametrize("lie", [None, unnamed], ids=["keys named by the node", "usual places looked through"])
@pytest.mark.parametrize("rule", LAYOUTS)
async def test_every_layout_is_found_and_proven(
    laid_out: tuple[LocalNode, dict[str, str]], rule: str, lie: Lie | None
) -> None:
    node, contracts = laid_out
    findings, balances = await proven(node, ACCOUNT, [contracts[rule]], node.height, lie)
    assert balances[contracts[rule]] == RAW
    finding, bits = findings.tokens[contracts[rule]], LAYOUTS[rule][3]
    assert (finding.status, finding.reason) == ("proven", f"{rule}, {bits}" if bits else rule)


async def test_a_balance_kept_in_another_contract_is_unprovable_and_says_where(
    laid_out: tuple[LocalNode, dict[str, str]],
) -> None:
    node, contracts = laid_out
    store, token = contracts["Solidity mapping at slot 0"], "0x" + "2f" * 20
    forwards = "3660006000376020600036600073" + store[2:] + "5afa5060206000f3"
    node.rpc("anvil_setCode", token, "0x" + forwards)
    node.mine()
    findings, balances = await proven(node, ACCOUNT, [token], node.height)
    assert balances[token] == RAW
    assert findings.tokens[token].status == "unprovable"
    assert store in findings.tokens[token].reason


def test_the_namespace_is_what_erc_7201_makes_of_its_name() -> None:
    inner = int.from_bytes(keccak_256(b"openzeppelin.storage.ERC20").digest(), "big") - 1
    assert int.from_bytes(keccak_256(word(inner)).digest(), "big") & ~0xFF == OPENZEPPELIN


def test_keys_of_two_accounts_or_rules_are_never_the_same() -> None:
    keys = [slot.key for account in (ACCOUNT, "0x" + "a2" * 20) for slot in slots(account, 64)]
    assert len(set(keys)) == len(keys) == 2 * 130


@pytest.mark.parametrize(
    ("content", "raw", "bits"),
    [
        (5, 5, ""),
        (5 | 1 << 255, 5, "low 255 bits"),
        (5 | 1 << 128, 5, "low 128 bits"),
        (5 | 1 << 96, 5, "low 96 bits"),
        (5 << 8, 5, None),
        (0, 0, ""),
        (6, 5, None),
    ],
)
def test_a_word_reads_as_a_balance_or_not(content: int, raw: int, bits: str | None) -> None:
    assert matching_bits(content, raw) == bits


# --- nodes that lie --------------------------------------------------------------------------------------------------


async def test_a_balance_that_is_not_the_chains_is_contradicted(local: Local) -> None:
    alice, tokens = local.wallets[1], [address(local, name) for name in ("WETH", "USDC", "DAI")]
    async with over(local.node) as (chain, _):
        block = await chain.block(local.heights[-1])
        native, *balances = await chain.answer([NativeBalance(alice), *(balance_of(t, alice) for t in tokens)], block)
        for by in (1, -1, 10**30, 256):
            false_balances = {token: raw + by for token, raw in zip(tokens, balances, strict=True)}
            findings = await prove(chain, block, alice, native + by, false_balances)
            assert (findings.native.status, findings.native.value) == ("contradicted", native)
            for token, raw in zip(tokens, balances, strict=True):
                assert (findings.tokens[token].status, findings.tokens[token].value) == ("contradicted", raw)
        hidden = await prove(chain, block, alice, native, dict.fromkeys(tokens, 0))
        assert {finding.status for finding in hidden.tokens.values()} == {"contradicted"}


FIELDS = (
    "parentHash",
    "sha3Uncles",
    "miner",
    "stateRoot",
    "transactionsRoot",
    "receiptsRoot",
    "logsBloom",
    "difficulty",
    "gasLimit",
    "gasUsed",
    "timestamp",
    "mixHash",
    "nonce",
    "baseFeePerGas",
    "withdrawalsRoot",
    "blobGasUsed",
    "excessBlobGas",
    "parentBeaconBlockRoot",
    "requestsHash",
)


@pytest.mark.parametrize("name", FIELDS)
async def test_a_header_with_one_field_changed_proves_nothing(local: Local, name: str) -> None:
    height = local.heights[-1]

    def lie(method: str, params: list[Any], result: Any) -> Any:
        if method == "eth_getBlockByNumber" and params[0] == hex(height):
            result[name] = result[name][:-1] + ("1" if result[name][-1] != "1" else "2")
        return result

    with pytest.raises(BadAnswer, match="a field is not true"):
        await proven(local.node, local.wallets[1], [], height, lie)


async def test_where_no_header_hashes_to_its_hash_nothing_is_provable(local: Local) -> None:
    def lie(method: str, params: list[Any], result: Any) -> Any:
        return {**result, "extraData": "0x77"} if method == "eth_getBlockByNumber" else result

    findings, _ = await proven(local.node, local.wallets[1], [address(local, "WETH")], local.heights[-1], lie)
    assert {f.status for f in (findings.header, findings.native, *findings.tokens.values())} == {"unprovable"}


async def test_another_block_at_that_height_is_a_reorganisation(local: Local) -> None:
    def lie(method: str, params: list[Any], result: Any) -> Any:
        return (
            {**result, "hash": "0x" + "77" * 32} if method == "eth_getBlockByNumber" and params[0] != "0x0" else result
        )

    with pytest.raises(Reorged):
        await proven(local.node, local.wallets[1], [], local.heights[-1], lie)


async def test_a_proof_with_one_node_changed_is_broken_each_node_and_each_proof(local: Local) -> None:
    alice, weth = local.wallets[1], address(local, "WETH")
    for proof_kind in ("accountProof", "storageProof"):
        for k in range(3):

            def lie(method: str, params: list[Any], result: Any, proof_kind: str = proof_kind, k: int = k) -> Any:
                if method == "eth_getProof":
                    nodes = (
                        result[proof_kind]
                        if proof_kind == "accountProof"
                        else [n for w in result[proof_kind] for n in w["proof"]]
                    )
                    if k < len(nodes):
                        node = nodes[k][:-2] + f"{int(nodes[k][-2:], 16) ^ 1:02x}"
                        result = json.loads(json.dumps(result).replace(nodes[k], node))
                return result

            findings, _ = await proven(local.node, alice, [weth], local.heights[-1], lie)
            assert findings.tokens[weth].status == "broken" or (proof_kind, k) == ("storageProof", 2)
            assert findings.native.status == ("broken" if proof_kind == "accountProof" else "proven")


async def test_proofs_of_somebody_elses_account_or_of_no_key_are_broken(local: Local) -> None:
    alice, weth, dai = local.wallets[1], address(local, "WETH"), address(local, "DAI")
    proofs: dict[str, Any] = {}

    def swapped(method: str, params: list[Any], result: Any) -> Any:
        if method == "eth_getProof":
            proofs[params[0]] = result
            return proofs.get(weth, result) if params[0] == dai else result
        return result

    findings, _ = await proven(local.node, alice, [weth, dai], local.heights[-1], swapped)
    assert (findings.tokens[weth].status, findings.tokens[dai].status) == ("proven", "broken")

    def without(method: str, params: list[Any], result: Any) -> Any:
        return {**result, "storageProof": []} if method == "eth_getProof" else result

    findings, _ = await proven(local.node, alice, [weth], local.heights[-1], without)
    assert findings.tokens[weth].status == "broken"


async def test_what_the_node_says_beside_a_proof_is_not_believed(local: Local) -> None:
    alice, weth = local.wallets[1], address(local, "WETH")

    def lie(method: str, params: list[Any], result: Any) -> Any:
        if method == "eth_getProof":
            entries = [{**each, "value": "0x7"} for each in result["storageProof"]]
            return {**result, "balance": "0x7", "nonce": "0x7", "storageProof": entries}
        return result

    findings, balances = await proven(local.node, alice, [weth], local.heights[-1], lie)
    assert (findings.native.value, findings.tokens[weth].value) == (balances[""], balances[weth])


async def test_keys_that_do_not_follow_from_the_account_count_for_nothing(local: Local) -> None:
    """A node may name any word that happens to hold the number it wants to be believed."""
    alice, sushi = local.wallets[1], address(local, "SUSHI")
    supply = 2  # where this token keeps its total supply

    def lie(method: str, params: list[Any], result: Any) -> Any:
        if method == "eth_createAccessList":
            return {**result, "accessList": [{"address": sushi, "storageKeys": [f"0x{supply:064x}"]}]}
        return result

    findings, _ = await proven(local.node, alice, [sushi], local.heights[-1], lie, **{sushi: 10**18})
    assert findings.tokens[sushi].status == "unprovable"
    assert "follows from the account" in findings.tokens[sushi].reason


async def test_a_node_without_proofs_says_so(local: Local) -> None:
    def lie(method: str, params: list[Any], result: Any) -> Any:
        if method == "eth_getProof":
            raise MissingMethod
        return result

    with pytest.raises(UnsupportedMethod):
        await proven(local.node, local.wallets[1], [address(local, "WETH")], local.heights[-1], lie)


@pytest.mark.parametrize("nonsense", [None, 7, [], {}, {"accessList": 7}, {"accessList": [{"address": "x"}]}])
async def test_nonsense_for_an_access_list_is_passed_over(local: Local, nonsense: Any) -> None:
    alice, weth = local.wallets[1], address(local, "WETH")

    def lie(method: str, params: list[Any], result: Any) -> Any:
        return nonsense if method == "eth_createAccessList" else result

    findings, _ = await proven(local.node, alice, [weth], local.heights[-1], lie)
    assert findings.tokens[weth].status == "proven"


IMPLEMENTATION = "0x360894a13ba1a3210667c828492db98dca3e2076cc3735a920a3ca505d382bbc"  # of EIP-1967


@pytest.mark.parametrize(
    ("address_", "key", "status"),
    [
        ("", IMPLEMENTATION, "contradicted"),  # where a proxy has its code is no part of the balance
        ("", "0x07", "unprovable"),  # the balance may be made of two words
        ("0x" + "0b" * 20, "0x07", "unprovable"),  # or of another contract's
    ],
)
async def test_a_word_contradicts_a_balance_only_where_nothing_else_is_read(
    local: Local, address_: str, key: str, status: str
) -> None:
    alice, weth = local.wallets[1], address(local, "WETH")

    def lie(method: str, params: list[Any], result: Any) -> Any:
        if method == "eth_createAccessList":
            access = {"address": address_ or weth, "storageKeys": [f"0x{int(key, 16):064x}"]}
            return {**result, "accessList": [*result["accessList"], access]}
        return result

    findings, _ = await proven(local.node, alice, [weth], local.heights[-1], lie, **{weth: 2**90 + 1})
    assert findings.tokens[weth].status == status


async def test_an_access_list_of_a_call_that_failed_is_no_hint(local: Local) -> None:
    alice, weth = local.wallets[1], address(local, "WETH")

    def lie(method: str, params: list[Any], result: Any) -> Any:
        return {**result, "accessList": [], "error": "reverted"} if method == "eth_createAccessList" else result

    findings, _ = await proven(local.node, alice, [weth], local.heights[-1], lie)
    assert findings.tokens[weth].status == "proven"


async def test_a_native_balance_that_nobody_read_is_told_and_confirms_nothing(local: Local) -> None:
    alice = local.wallets[1]
    async with over(local.node) as (chain, _):
        block = await chain.block(local.heights[-1])
        (balance,) = await chain.answer([NativeBalance(alice)], block)
        native = (await prove(chain, block, alice, None, {})).native
    assert (native.status, native.value) == ("unprovable", balance)


async def test_nonsense_for_a_word_of_storage_is_no_hint(laid_out: tuple[LocalNode, dict[str, str]]) -> None:
    node, contracts = laid_out

    def lie(method: str, params: list[Any], result: Any) -> Any:
        return unnamed(method, params, result) if method != "eth_getStorageAt" else 7

    findings, _ = await proven(node, ACCOUNT, list(contracts.values()), node.height, lie)
    assert findings.native.status == "proven"
    assert {finding.reason for finding in findings.tokens.values()} == {"none of the 130 usual places holds it"}


@pytest.mark.parametrize("nonsense", [None, 7, [], {}, {"accountProof": ["0x"], "storageProof": []}])
async def test_nonsense_for_a_proof_is_broken(local: Local, nonsense: Any) -> None:
    alice, weth = local.wallets[1], address(local, "WETH")

    def lie(method: str, params: list[Any], result: Any) -> Any:
        return nonsense if method == "eth_getProof" else result

    findings, _ = await proven(local.node, alice, [weth], local.heights[-1], lie)
    assert (findings.native.status, findings.tokens[weth].status) == ("broken", "broken")
