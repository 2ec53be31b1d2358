"""The order of untrusted calls: contracts that exhaust a node hide honest ones for some reads only."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chainfolio.adapters.tron import untrusted
from chainfolio.adapters.tron.node import TronNode
from chainfolio.adapters.tron.reads import Call
from chainfolio.adapters.tron.untrusted import OVER_BLOCKS, UntrustedCalls
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer
from chainfolio.transport.wire import RpcError
from chainfolio.untrusted import BURNT, SkippedContracts
from tests.tron.dust import MULTICALL, address
from tests.tron.fakes import ALICE

BLOCK = Block(1, "", "", 0)
SIZE, GROUPS, READINGS = 30, 12, 30  # tokens of one multicall, multicalls, readings
TOKENS = [address(number) for number in range(1, SIZE * GROUPS + 1)]
BURNING = set(TOKENS[7::SIZE])  # one in each multicall
WORD = (5).to_bytes(32, "big")


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> TronNode:
    """A node whose multicalls fail if one of their contracts burns; groups are not encoded."""

    async def send_calls(_: object, calls: Sequence[tuple[str, Any]]) -> tuple[list[object], Block]:
        return [_answer(*call) for call in calls], BLOCK

    monkeypatch.setattr(untrusted, "MULTICALL_SIZE", SIZE)
    monkeypatch.setattr(untrusted, "send_calls", send_calls)
    monkeypatch.setattr(untrusted, "encode_multicall", lambda group: [call.contract for call in group])
    monkeypatch.setattr(untrusted, "decode_multicall", _results)
    return cast(TronNode, SimpleNamespace(name="one", errors=None))


def _answer(contract: str, data: Any) -> object:
    burns = BURNING & set(data if isinstance(data, list) else [contract])
    return RpcError(-32000, "OUT_OF_ENERGY") if burns else b'"0x05"'


def _results(source: str, response: object, count: int) -> list[bytes]:
    if isinstance(response, RpcError):
        raise BadAnswer(source, "the multicall does not answer")
    return [WORD] * count


async def test_few_exhausting_contracts_hide_no_honest_token_for_ever(endpoint: TronNode) -> None:
    skipped, reads = SkippedContracts(), [Call(token, "balanceOf(address)", (ALICE,)) for token in TOKENS]
    results: dict[Call, object] = {}
    for reading in range(READINGS):
        calls = UntrustedCalls(reads, 1000 + reading * (OVER_BLOCKS + 1), MULTICALL, skipped)
        await calls.read(endpoint)
        results = {read: calls.results[read] for read in reads}
    assert {read.contract for read in reads if results[read] == BURNT} == BURNING
    assert all(isinstance(results[read], bytes) for read in reads if read.contract not in BURNING)
