"""Every field of every answer of Starknet, replaced and left out: a read ends with an answer or with a typed error."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.adapters.starknet.events import APPROVAL, TRANSFER_BATCH, TRANSFER_SINGLE
from chainfolio.adapters.starknet.felts import selector
from chainfolio.blocks import Span
from chainfolio.capabilities import Capability, require_capability
from chainfolio.chain_results import IndexedTransaction
from chainfolio.interactions import Interactions
from chainfolio.plans import Plan, run_batched
from chainfolio.protocols import InstalledProtocols
from tests.mutants import check_mutants
from tests.starknet.fakes import COIN, TOKEN, WALLET, FakeNode, event, invoked

DATASETS = ("blocks", "transactions", "native", "transfers", "approvals")
ME, POOL = f"0x{int(WALLET, 16):064x}", f"0x{0x9001:064x}"


def hex_event(name: str, *words: str) -> dict[str, Any]:
    """An event of a token with two of its parties in the keys."""
    return {"from_address": TOKEN, "keys": [hex(int(name, 16)), *words[:2]], "data": list(words[2:])}


def called(params: Any) -> Any:
    """Answer calls of contracts: the wallet has delegated to a pool."""
    of_pool = {
        selector("get_pool_member_info_v1"): ["0x0", WALLET, "0x5", "0x3", "0x0", "0x2", "0x0", "0x64"],
        selector("contract_parameters_v1"): ["0x77", "0x1", "0x1", COIN, "0x0"],
        selector("staker_pool_info"): ["0x1", "0x1", POOL, COIN, "0x5"],
    }
    return of_pool.get(int(params[0]["entry_point_selector"], 16), ["0x5", "0x0"])


def busy() -> FakeNode:
    """A node with a block of many kinds of things."""
    node = FakeNode(starknet_call=called)
    node.head, node.final = 8, 7
    deployed = {"type": "DEPLOY_ACCOUNT", "contract_address": WALLET}
    handled: dict[str, Any] = {
        "type": "L1_HANDLER",
        "sender_address": "0x9",
        "contract_address": TOKEN,
        "calldata": ["0x5"],
        "entry_point_selector": "0x7",
    }
    events = (
        event(WALLET, "0xb", "0x5", "0x0", keys=3, token=COIN),
        event(WALLET, "0xb", "0x5", "0x0"),
        hex_event(APPROVAL, WALLET, "0xb", "0x5", "0x0"),
        hex_event(TRANSFER_SINGLE, WALLET, WALLET, "0xb", "0x5", "0x0", "0x1", "0x0"),
        hex_event(TRANSFER_BATCH, WALLET, WALLET, "0xb", "0x1", "0x5", "0x0", "0x1", "0x1", "0x0"),
    )
    node.transactions[5] = [
        invoked(1, *events, calldata=["0x1", TOKEN, "0x7", "0x1", "0x5"], transaction_hash="0x1"),
        invoked(2, fee="0x5"),
        invoked(3, **deployed),
        invoked(4, **handled),
    ]
    node.answers = {
        **node.answers,
        "starknet_getTransactionByHash": lambda params: node.transactions[5][0]["transaction"],
        "starknet_getTransactionReceipt": lambda params: {
            **node.transactions[5][0]["receipt"],
            "block_number": 5,
            "block_hash": node.hash(5),
        },
    }
    return node


async def used(node: FakeNode) -> None:
    """Everything that is read of a chain."""
    chain = node.chain()
    heads = await chain.heads()
    await chain.collect(Span(5, 6), DATASETS)
    await require_capability(chain, Capability.ACCOUNT_HISTORY).collect_accounts(Span(0, 7), (ME,), DATASETS)
    reader = chain.account_reader(InstalledProtocols())
    tokens = [chain.facts.token_asset(f"0x{int(TOKEN, 16):064x}")]

    def describe(assets: Any) -> Plan[None]:
        yield from chain.describe(list(assets))

    interactions = Interactions(sent_to={POOL: frozenset()})
    plan = {"account": reader.at(heads.latest).read(ME, interactions, tokens, describe)}
    report = (await run_batched(plan, lambda reads: chain.answer(reads, heads.latest)))["account"]
    if report.error is not None:
        raise report.error
    await chain.look_up([IndexedTransaction(f"0x{1:064x}", 5, 0, 0, None, True)])


AT = {"block_number": 5}
QUESTIONS: dict[str, Any] = {
    "starknet_chainId": [],
    "starknet_getBlockWithTxHashes": [AT],
    "starknet_getBlockWithReceipts": [AT],
    "starknet_getNonce": [AT, WALLET],
    "starknet_getTransactionByHash": ["0x1"],
    "starknet_getTransactionReceipt": ["0x1"],
    "starknet_getEvents": [{"from_block": AT, "to_block": AT, "keys": [[hex(int(APPROVAL, 16))], [WALLET]]}],
    **{
        f"starknet_call {name}": [{"entry_point_selector": hex(selector(name)), "contract_address": TOKEN}, AT]
        for name in ("balanceOf", "get_pool_member_info_v1", "contract_parameters_v1", "staker_pool_info")
    },
}


async def test_the_honest_answers_are_all_read() -> None:
    node = busy()
    await used(node)
    assert {each.partition(" ")[0] for each in QUESTIONS} <= {*node.asked}


@pytest.mark.parametrize("question", QUESTIONS)
async def test_no_answer_breaks_a_read(question: str) -> None:
    node, params, method = busy(), QUESTIONS[question], question.partition(" ")[0]

    def is_like(call_params: Any) -> bool:
        return method != "starknet_call" or call_params[0]["entry_point_selector"] == params[0]["entry_point_selector"]

    await check_mutants(node, method, params, lambda: used(node), is_like)
