"""Each read ends with an answer or a typed error if any field of an answer is replaced or left out."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.adapters.tron.addresses import hex_address
from chainfolio.adapters.tron.events import APPROVAL, BATCH, SINGLE
from chainfolio.adapters.tron.protobuf import encode_field
from chainfolio.blocks import Span
from chainfolio.chain_results import IndexedTransaction
from chainfolio.interactions import Interactions
from chainfolio.plans import Plan, run_batched
from chainfolio.protocols import InstalledProtocols
from tests.mutants import check_mutants
from tests.tron.fakes import ALICE, BOB, TRANSFER, USDT, FakeNode, event, make_transaction, make_transfer

DATASETS = ("blocks", "transactions", "native", "internal", "transfers", "approvals")


def busy() -> FakeNode:
    """Return a node with a block of many kinds of transactions, and an account with many assets."""
    node = FakeNode(
        wallet__getassetissuebyid=lambda body: {"id": body["value"], "name": "41", "abbr": "42", "precision": 6},
        wallet__getexchangebyid=lambda body: {
            "exchange_id": body["id"],
            "first_token_id": "5f",
            "second_token_id": b"1000001".hex(),
        },
        wallet__getReward=lambda body: {"reward": 3},
    )
    node.head, node.solid = 8, 7
    to_word = "{:064x}".format
    inner = {
        "caller_address": hex_address(USDT),
        "transferTo_address": hex_address(BOB),
        "note": "63616c6c",
        "callValueInfo": [{"callValue": 3}, {"callValue": 4, "tokenId": "1002000"}],
    }
    logs = [
        event(TRANSFER, ALICE, BOB, data=to_word(4)),
        event(SINGLE, ALICE, ALICE, BOB, data=to_word(4) + to_word(5)),
        event(BATCH, ALICE, ALICE, BOB, data="".join(map(to_word, (64, 128, 1, 1, 1, 10)))),
        event(APPROVAL, ALICE, BOB, data=to_word(4)),
    ]
    node.transactions[5] = [
        make_transfer(ALICE, BOB, 5, fee=3),
        make_transaction(
            31,
            (1, ALICE),
            (2, USDT),
            (4, b"abcd"),
            receipt={"result": "SUCCESS", "energy_usage_total": 5},
            log=logs,
            internal_transactions=[inner],
        ),
        make_transaction(44, (1, ALICE), (2, 3), (3, b"_"), (4, 500), exchange_received_amount=9),
        make_transaction(6, (1, ALICE), (4, 7), assetIssueID="1000009"),
        make_transaction(30, (1, ALICE), (2, encode_field(5, 4)), contract_address=hex_address(USDT)),
    ]
    node.give(
        ALICE,
        balance=5,
        assetV2=[{"key": "1002000", "value": 3}],
        votes=[{"vote_address": hex_address(BOB), "vote_count": 3}],
        frozenV2=[{"amount": 3, "type": "ENERGY"}],
        unfrozenV2=[{"unfreeze_amount": 3, "unfreeze_expire_time": 5}],
        account_resource={"frozen_balance_for_energy": {"frozen_balance": 2, "expire_time": 3}},
        allowance=4,
        owner_permission={"keys": [{"address": hex_address(ALICE), "weight": 1}]},
    )
    return node


async def read_all(node: FakeNode) -> None:
    """Make every read of a chain."""
    chain = node.chain()
    heads = await chain.heads()
    await chain.collect(Span(5, 6), DATASETS)
    reader = chain.account_reader(InstalledProtocols())
    tokens = [chain.facts.token_asset(each) for each in (USDT, "1002000")]

    def describe_tokens(assets: Any) -> Plan[None]:
        yield from chain.describe(list(assets))

    plan = {"account": reader.at(heads.latest).read(ALICE, Interactions(), tokens, describe_tokens)}
    report = (await run_batched(plan, lambda reads: chain.answer(reads, heads.latest)))["account"]
    if report.error is not None:
        raise report.error
    await chain.look_up([IndexedTransaction(node.transactions[5][0]["txID"], 5, 0, 0, None, True)])


QUESTIONS: dict[str, Any] = {
    "/wallet/getblock": {"detail": False},
    "/walletsolidity/getblock": {"detail": False},
    "/wallet/getblockbynum": {"num": 5},
    "/wallet/gettransactioninfobyblocknum": {"num": 5},
    "/wallet/gettransactionbyid": None,
    "/wallet/gettransactioninfobyid": None,
    "/wallet/getaccount": {"address": hex_address(ALICE)},
    "/wallet/getassetissuebyid": {"value": "1002000"},
    "/wallet/getexchangebyid": {"id": 3},
    "/wallet/getReward": {},
    "/jsonrpc": [
        {"id": 1, "method": "eth_call", "params": [{"to": "0x", "data": f"0x70a08231{'0' * 64}"}, "latest"]},
        {"id": 2, "method": "eth_getBlockByNumber", "params": ["latest", False]},
    ],
}


@pytest.mark.parametrize("path", QUESTIONS)
async def test_no_answer_breaks_a_read(path: str) -> None:
    node = busy()
    question = QUESTIONS[path] or {"value": node.transactions[5][0]["txID"]}
    await check_mutants(node, path, question, lambda: read_all(node))
