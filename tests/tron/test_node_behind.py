"""State is read from a node that had the requested block before, also if no wallet is read."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.adapters.tron.addresses import decode_address
from chainfolio.adapters.tron.reads import Call, WalletRead
from chainfolio.errors import NodeBehind
from tests.tron.fakes import ALICE, USDT, FakeNode

BALANCE = Call(USDT, "balanceOf(address)", (ALICE,))
UNTRUSTED = Call(USDT, "balanceOf(address)", (ALICE,), untrusted=True)


def set_tokens(node: FakeNode, raw: int) -> None:
    """Let ALICE have tokens and coins."""
    node.tokens[f"0x{decode_address(USDT).hex()}", decode_address(ALICE).hex()] = raw
    node.give(ALICE, balance=raw)


@pytest.mark.parametrize("has_seen_block", [True, False], ids=["went-back", "never-had-it"])
@pytest.mark.parametrize("read", [BALANCE, UNTRUSTED, WalletRead(ALICE)], ids=["call", "untrusted", "wallet"])
async def test_a_node_behind_the_block_gives_no_state(read: Any, has_seen_block: bool) -> None:
    node = FakeNode()
    set_tokens(node, 5)
    block = (await FakeNode().chain().heads()).latest
    chain = node.chain()
    if has_seen_block:
        await chain.heads()
    node.head = block.height - 1
    with pytest.raises(NodeBehind):
        await chain.answer([read], block)


@pytest.mark.parametrize("path", ["/jsonrpc", "/wallet/getaccount"], ids=["call", "wallet"])
async def test_state_before_the_node_received_the_block_is_not_returned(path: str) -> None:
    node = FakeNode()
    set_tokens(node, 5)
    block = (await node.chain().heads()).latest
    node.head -= 1
    honest = node.answers[path]

    def receive_block(body: Any) -> Any:
        node.head = block.height - 1
        answer = honest(body)
        node.head = block.height
        return answer

    node.answers = {**node.answers, path: receive_block}
    with pytest.raises(NodeBehind):
        await node.chain().answer([WalletRead(ALICE) if "getaccount" in path else BALANCE], block)
