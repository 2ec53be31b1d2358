"""Refusals in the exact wording of nodes, and the error that each one becomes."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.adapters.evm.refusals import CallReverted, OutOfGas, meaning
from chainfolio.errors import (
    BadAnswer,
    HistoryUnavailable,
    NodeBehind,
    ResponseTooLarge,
    SourceError,
    Unavailable,
    UnsupportedMethod,
)
from chainfolio.transport.exchange import RateLimited
from chainfolio.transport.wire import RpcError

ALCHEMY = (
    "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range and no limit on the "
    "response size, or you can request any block range with a cap of 10K logs in the response. Based on your "
    "parameters and the response size limit, this block range should work: [0x100000, 0x10000f]"
)
FREE_TIER = (
    "Under the Free tier plan, you can make eth_getLogs requests with up to a 10 block range. Based on your "
    "parameters, this block range should work: [0x18b0000, 0x18b0009]. Upgrade to PAYG for expanded block range."
)
NETHERMIND = "Query returned more than 50000 results. Try with this block range [0x1000000, 0x1080000]."
RONIN = "requested block range 16777217 exceeds the limit of 200; narrow your fromBlock/toBlock"
INFURA = "query returned more than 10000 results. Try with this block range [0xBDE5F8, 0x102DBCC]."


def refusal(code: int, message: str, data: Any = None, method: str = "eth_getLogs") -> SourceError:
    return meaning("node", method, RpcError(code, message, data), 7)


@pytest.mark.parametrize(
    ("code", "message", "max_span"),
    [
        (-32000, "block range too large, max range: 10000", 10_000),
        (-32000, "exceeded maximum block range: 5000", 5_000),
        (-32701, "exceed maximum block range: 50000", 50_000),
        (-32000, "maximum [from, to] blocks distance: 2000", 2_000),
        (-32000, "requested too many blocks from 50331648 to 51380224, maximum is set to 2048", 2_048),
        (-32000, "too wide blocks range, the limit is 100", 100),
        (-32000, "GetLogs query must be smaller than size 1024", 1_024),
        (-32602, "range 47440 exceeds limit of 10000", 10_000),
        (-32602, "eth_getLogs is limited to 0 - 50 blocks range", 50),
        (-32602, "query exceeds range, retry smaller (max block range 5000, got 16777216)", 5_000),
        (-32602, "block range greater than 10000 max", 10_000),
        (-32614, "eth_getLogs is limited to a 10,000 range", 10_000),
        (-32614, "eth_getLogs and eth_newFilter are limited to a 10,000 blocks range", 10_000),
        (-32047, "Invalid eth_getLogs request. 'fromBlock'-'toBlock' range too large. Max range: 800", 800),
        (35, "ranges over 10000 blocks are not supported on freetier", 10_000),
        (-32001, "Block range too large: maximum allowed is 500 blocks", 500),
        (-32000, "eth_getLogs is limited to 1024 block range. Please check the parameter requirements at docs", 1_024),
        (-32000, "please limit the query to at most 1000 blocks", 1_000),
        (-32602, "query exceeds max block range 100000", 100_000),
        (-32000, "invalid request: max allowed of rounds in logs query is: 100", 100),
        (-32005, "eth_getLogs range is too large, max is 1k blocks", 1_000),
        (-32600, FREE_TIER, 10),
        (
            -32000,
            "Block range limit exceeded. See more details at https://docs.test/docs/limits#evm-range-limits",
            None,
        ),
        (-32600, "block range is too wide", None),
        (-32000, "Requested range exceeds maximum RPC range limit", None),
    ],
)
def test_a_span_that_is_too_wide_names_the_width_that_is_not(code: int, message: str, max_span: int | None) -> None:
    error = refusal(code, message)
    assert isinstance(error, ResponseTooLarge)
    assert (error.max_span, error.dense) == (max_span, False)


def test_what_is_said_beside_the_message_counts_too() -> None:
    error = refusal(-32602, "Invalid params", RONIN)
    assert isinstance(error, ResponseTooLarge)
    assert (error.max_span, error.dense) == (200, False)


@pytest.mark.parametrize(
    ("code", "message", "data", "max_span"),
    [
        (-32005, "query returned more than 10000 results", None, None),
        (-32005, INFURA, {"from": "0xBDE5F8", "limit": 10000, "to": "0x102DBCC"}, 0x102DBCC - 0xBDE5F8 + 1),
        (-32602, "invalid params", NETHERMIND, 0x80001),
        (-32602, ALCHEMY, None, 16),
        (-32000, "logs matched by query exceeds limit of 10000", None, None),
        (-32000, "query returned more than allowed number of logs, try with smaller block range", None, None),
        (-32602, "query exceeds max results 20000, retry with the range 24383075-24383096", None, 22),
        (-32005, "Too many logs requested. Max logs per response is 10000", None, None),
        (-32000, "log query timed out", None, None),
        (-32000, "query timeout exceeded. Consider reducing your block range.", None, None),
        (-32008, "Response size is larger than 150MB limit.", None, None),
        (-32008, "Response is too big", None, None),
        (-32020, "backend response too large", None, None),
        (-32005, "limit exceeded", None, None),
    ],
)
def test_too_many_logs_are_told_from_too_many_blocks(code: int, message: str, data: Any, max_span: int | None) -> None:
    error = refusal(code, message, data)
    assert isinstance(error, ResponseTooLarge)
    assert (error.max_span, error.dense) == (max_span, True)


@pytest.mark.parametrize("method", ["eth_getLogs", "eth_call", "eth_getBlockByNumber"])
@pytest.mark.parametrize(
    ("code", "message"),
    [
        (-32005, "daily request count exceeded, request rate limited"),
        (-32005, "project ID request rate exceeded"),
        (-32005, "rate limit exceeded"),
        (-32005, "Too Many Requests"),
        (-32005, "request limit reached"),
        (429, "Your app has exceeded its compute units per second capacity. If you have retries enabled, ignore this."),
        (-32090, "Too many requests, reason: call rate limit exhausted, retry in 10s"),
        (-32007, "50/second request limit reached - reduce calls per second or upgrade your account"),
        (-32005, "Request limit exceeded"),
        (-32603, "service temporarily unavailable"),
        (-32603, "Internal server error"),
        (-32011, "no backends available for method"),
        (-32000, "server busy, try again later"),
        (-32016, "over the limit"),
    ],
)
def test_a_rate_limit_is_waited_for_and_never_taken_for_a_size(method: str, code: int, message: str) -> None:
    assert type(refusal(code, message, method=method)) in (Unavailable, RateLimited)


@pytest.mark.parametrize("method", ["eth_call", "eth_getBalance"])
@pytest.mark.parametrize(
    "message",
    [
        "missing trie node b03d68ac51042467d7637d4ef9e1c52370abc410f263166965cb1e280b1f6d17 (path )",
        "missing trie node 46 (path ) state 0xc6ebfa185e24077a555f06caaf4b78d9 is not available, not found",
        "required historical state unavailable (reexec=128)",
        "historical state unavailable. tried regeneration but not possible, possibly due to state migration/pruning",
        "historical state 0xc6ebfa185e24077a555f06caaf4b78d9 is not available",
        "This request is not supported because your node is running with state pruning. Run with --pruning=archive.",
        "No state available for block 15000000",
        "state at block #19000000 is pruned",
        "distance to target block exceeds maximum proof window",
        "project ID does not have access to archive state",
        "Archive requests require a personal token. Get one at: https://node.test",
        "Archive, Debug and Trace requests are not available on your current plan",
        "BlockOutOfRangeError: block height is 100 but requested was 5",
        "old data not available due to pruning",
        "state is not available",
        "snapshot for block 5 not found",
    ],
)
def test_pruned_state_is_said_to_be_missing(method: str, message: str) -> None:
    error = refusal(-32000, message, method=method)
    assert type(error) is HistoryUnavailable
    assert error.height == 7
    assert "archive node" in error.remedy


@pytest.mark.parametrize(
    "message",
    [
        "header not found",
        "unknown block",
        "Block 0x5 not found",
        "block range extends beyond current head block",
        "cannot query unfinalized data",
        "requested block is after last accepted block",
        "hash 0xab is not currently canonical",
    ],
)
@pytest.mark.parametrize("method", ["eth_getLogs", "eth_call"])
def test_a_block_that_the_node_does_not_have_yet(method: str, message: str) -> None:
    assert type(refusal(-32000, message, method=method)) is NodeBehind


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (-32601, "Method not found"),
        (-32601, "the method eth_getLogs does not exist/is not available"),
        (-32000, "this method is not supported"),
        (-32602, "invalid argument 1: json: cannot unmarshal object"),
        (-32602, "too many arguments, want at most 2"),
        (-32602, "whatever this is"),
        (-32602, "invalid block range params"),
    ],
)
def test_what_a_node_does_not_know(code: int, message: str) -> None:
    assert type(refusal(code, message)) is UnsupportedMethod


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (3, "execution reverted: rate limit", CallReverted),
        (-32000, "execution reverted: too many requests", CallReverted),
        (-32015, "VM execution error.", CallReverted),
        (-32000, "invalid opcode: INVALID", CallReverted),
        (-32000, "out of gas", OutOfGas),
        (-32000, "gas required exceeds allowance (50000000)", OutOfGas),
        (-32000, "execution aborted (timeout = 5s)", OutOfGas),
        (-32003, "Out of gas: gas exhausted", OutOfGas),
    ],
)
def test_a_call_that_failed_says_nothing_about_the_node(code: int, message: str, kind: type[SourceError]) -> None:
    assert type(refusal(code, message, method="eth_call")) is kind


@pytest.mark.parametrize("data", ["0x08c379a0", {"data": "0x08c379a0"}])
def test_what_a_contract_says_when_it_reverts_is_kept(data: Any) -> None:
    error = refusal(3, "execution reverted", data, method="eth_call")
    assert isinstance(error, CallReverted)
    assert error.data == bytes.fromhex("08c379a0")


def test_of_a_revert_of_a_megabyte_the_words_are_cut() -> None:
    error = refusal(3, "execution reverted: " + "A" * 2**20, "0x" + "41" * 2**20, method="eth_call")
    assert isinstance(error, CallReverted)
    assert error.data == b"A" * 2**20
    assert len(str(error)) < 1000


def test_no_wording_breaks_a_line_or_a_terminal() -> None:
    message = str(refusal(-32000, "oh\nno\x1b[2J\u202eevil\0"))
    assert all(char.isprintable() for char in message)


def test_of_an_unknown_refusal_the_code_and_the_common_words_are_shown() -> None:
    error = refusal(-1, "the moon is in the wrong state")
    assert type(error) is BadAnswer
    assert "⟨the … is in the wrong state⟩" in str(error)
    assert "-1" in str(error)


SECRETS = (
    "CANARY-PROJECT-1234",
    "ops@corp.example",
    "http://10.0.0.5:8545/v3/short77/abcdefgh%2Fsecretpart",
    "kEy0nLyLetters",
    "84512345678",
    "0xdeadbeefdeadbeefdeadbeef",
    "10.1.2.3",
    "acme_internal",
)


@pytest.mark.parametrize("method", ["eth_call", "eth_getLogs", "eth_getBlockByNumber"])
@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "wording",
    [
        "daily limit of project {} reached",
        "execution reverted: {}",
        "missing trie node {}",
        "header not found for {}",
        "block range too large for {}, max range: 100",
        "{}",
        "the method {} does not exist",
        "out of gas in {}",
        "query returned more than 10000 results for {}",
        "batch of {} too large",
        "try again later, {}",
        "no {} here",
    ],
)
def test_of_a_nodes_own_words_only_common_ones_and_small_numbers_are_shown(
    wording: str, secret: str, method: str
) -> None:
    for code in (-32000, -32005, -32601, -32602, 3, 429):
        for data in (None, f"see {secret}", {"see": secret}):
            error = refusal(code, wording.format(secret), data, method)
            assert secret not in f"{error} {error.__dict__} {error.args}"


def test_what_a_node_says_about_limits_can_still_be_read() -> None:
    assert refusal(-32000, "block range too large, max range: 10000").args[0].endswith("max range: 10000⟩")
    assert "missing trie node … state 0x00 is not available" in str(
        refusal(-32000, "missing trie node 3f5c1e (path ) state 0x00 is not available".replace(" (path )", ""))
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (-32700, "The method trace_block does not exist/is not available"),
        (-32700, "The method debug_traceBlockByHash does not exist/is not available"),
        (-32004, "Method eth_getBlockReceipts is not supported"),
        (-32700, 'Cannot wrap a "object" as a json-rpc type'),
    ],
)
def test_a_method_or_a_way_of_asking_that_ganache_and_hardhat_lack_is_no_missing_block(code: int, message: str) -> None:
    assert type(refusal(code, message, method="trace_block")) is UnsupportedMethod
