"""Fees by receipts: each counts once, whether or not an event shows its payment."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.adapters.starknet.facts import FEE_TOKENS
from chainfolio.blocks import Span
from chainfolio.chain_results import IndexedTransaction
from tests.chains.starknet import ETHER as SUBJECTS_ETHER
from tests.chains.starknet import Deed, StarknetSubject
from tests.starknet.fakes import COIN, TOKEN, WALLET, FakeNode, event, invoked
from tests.starknet.test_interfaces import Run, node, run

__all__ = ["node", "run"]  # fixtures
ALL = ("blocks", "transactions", "native", "transfers")
ETHER, SEQUENCER, OTHER, FEE = FEE_TOKENS["WEI"], "0x1176", "0xb0b", 100
IN_ETHER = {"amount": hex(FEE), "unit": "WEI"}
IN_STRK = {"amount": hex(FEE), "unit": "FRI"}
Movement = tuple[int, int, int, int, int]  # log index (-1: made from the receipt), token, sender, recipient, amount


def fee_event(
    token: str = ETHER, sender: str = WALLET, recipient: str = SEQUENCER, raw: int = FEE, keys: int = 1
) -> Any:
    """The event of a payment."""
    return event(sender, recipient, hex(raw), "0x0", keys=keys, token=token)


def movement(
    log_index: int, token: str = ETHER, sender: str = WALLET, recipient: str = SEQUENCER, raw: int = FEE
) -> Movement:
    """A row as the tests compare it."""
    return log_index, int(token, 16), int(sender, 16), int(recipient, 16), raw


async def collected(node: FakeNode, *transactions: Any) -> tuple[list[int], list[Movement]]:
    """Return the fees and the movements of a block with these transactions."""
    node.transactions[5] = list(transactions)
    tables = (await node.chain().collect(Span(5, 5), ALL)).tables
    fees = [int.from_bytes(row["fee"], "big") for row in tables["transactions"].to_pylist()]
    rows = tables["transfers"].to_pylist()
    return fees, [
        (
            row["log_index"],
            int(row["token"] or COIN, 16),
            int(row["sender"], 16),
            int(row["recipient"], 16),
            int.from_bytes(row["raw"], "big"),
        )
        for row in rows
    ]


EARLY: dict[str, Any] = {
    "type": "INVOKE_FUNCTION",
    "version": "0x0",
    "sender_address": None,
    "contract_address": WALLET,
}
DECLARED: dict[str, Any] = {"type": "DECLARE", "version": "0x1"}
OPENED: dict[str, Any] = {
    "type": "DEPLOY_ACCOUNT",
    "version": "0x1",
    "sender_address": None,
    "contract_address": WALLET,
}
MESSAGE: dict[str, Any] = {
    "type": "L1_HANDLER",
    "version": "0x0",
    "sender_address": None,
    "contract_address": TOKEN,
    "calldata": [WALLET],
    "entry_point_selector": "0x1",
}
DEPLOYED: dict[str, Any] = {"type": "DEPLOY", "version": "0x0", "sender_address": None, "contract_address": WALLET}


@pytest.mark.parametrize(
    ("transaction", "movements"),
    [
        pytest.param(invoked(1, fee_event(), fee=IN_ETHER, version="0x1"), [movement(0)], id="event"),
        pytest.param(invoked(1, fee_event(keys=3), fee=IN_ETHER, version="0x1"), [movement(0)], id="event with keys"),
        pytest.param(invoked(1, fee=IN_ETHER, **EARLY), [movement(-1)], id="no event"),
        pytest.param(invoked(1, fee=hex(FEE), **EARLY), [movement(-1)], id="receipt without a unit"),
        pytest.param(invoked(1, fee=IN_ETHER, status="REVERTED", version="0x1"), [movement(-1)], id="reverted"),
        pytest.param(invoked(1, fee=IN_ETHER, **DECLARED), [movement(-1)], id="declaration"),
        pytest.param(invoked(1, fee=IN_ETHER, **OPENED), [movement(-1)], id="account that deploys itself"),
        pytest.param(invoked(1, fee=IN_ETHER, **MESSAGE), [], id="message from Ethereum"),
        pytest.param(invoked(1, fee=IN_ETHER, **DEPLOYED), [], id="deployment without an account"),
        pytest.param(invoked(1, fee="0x0", **EARLY), [], id="fee of zero"),
        pytest.param(
            invoked(1, fee_event(token=WALLET), fee=IN_ETHER, **EARLY),
            [movement(-1), movement(0, WALLET)],
            id="event forged by the account",
        ),
        pytest.param(
            invoked(1, fee_event(token=COIN, keys=3), fee=IN_ETHER, **EARLY),
            [movement(-1), movement(0, COIN)],
            id="same amount of another token",
        ),
        pytest.param(
            invoked(1, fee_event(sender=OTHER), fee=IN_ETHER, **EARLY),
            [movement(-1), movement(0, sender=OTHER)],
            id="payment by somebody else",
        ),
        pytest.param(
            invoked(1, fee_event(sender=OTHER, recipient=WALLET), fee_event(), fee=IN_ETHER, version="0x1"),
            [movement(0, sender=OTHER, recipient=WALLET), movement(1)],
            id="paymaster repays the sender",
        ),
        pytest.param(
            invoked(1, fee_event(recipient=OTHER), fee=IN_ETHER, **EARLY),
            [movement(-1), movement(0, recipient=OTHER)],
            id="payment to the sequencer of other blocks",
        ),
        pytest.param(
            invoked(1, fee_event(raw=FEE + 1), fee=IN_ETHER, **EARLY),
            [movement(-1), movement(0, raw=FEE + 1)],
            id="another amount",
        ),
        pytest.param(
            invoked(1, fee_event(), fee_event(), fee=IN_ETHER, version="0x1"),
            [movement(0), movement(1)],
            id="gift to the sequencer beside the fee",
        ),
    ],
)
async def test_fee_in_ether_is_one_movement(transaction: Any, movements: list[Movement]) -> None:
    fees, rows = await collected(FakeNode(), transaction)
    assert fees == [0], "the column is of the native coin"
    assert sorted(rows) == sorted(movements)


@pytest.mark.parametrize(
    ("transaction", "fee", "movements"),
    [
        pytest.param(invoked(1, fee_event(COIN, keys=3), fee=IN_STRK), FEE, [], id="event"),
        pytest.param(invoked(1, fee=IN_STRK), FEE, [], id="no event"),
        pytest.param(invoked(1, fee=IN_STRK, status="REVERTED"), FEE, [], id="reverted"),
        pytest.param(
            invoked(1, fee_event(WALLET), fee=IN_STRK), FEE, [movement(0, WALLET)], id="forged by the account"
        ),
        pytest.param(
            invoked(1, fee_event(COIN, OTHER), fee_event(COIN), fee=IN_STRK),
            FEE,
            [movement(0, COIN, OTHER)],
            id="payment by somebody else",
        ),
        pytest.param(invoked(1, fee=IN_STRK, **MESSAGE), 0, [], id="message from Ethereum"),
    ],
)
async def test_fee_in_strk_is_in_its_transaction_alone(transaction: Any, fee: int, movements: list[Movement]) -> None:
    assert await collected(FakeNode(), transaction) == ([fee], movements)


@pytest.mark.parametrize(
    ("events", "movements"),
    [
        pytest.param([fee_event()], [movement(0)], id="event"),
        pytest.param([], [movement(-1, recipient="0x0")], id="no event"),
    ],
)
async def test_fee_counts_once_if_the_node_names_no_sequencer(events: list[Any], movements: list[Movement]) -> None:
    node = FakeNode()
    block_at = node.whole
    node.whole = lambda height: {**block_at(height), "sequencer_address": "0x0"}  # type: ignore[method-assign]
    assert await collected(node, invoked(1, *events, fee=IN_ETHER, version="0x1")) == ([0], movements)


async def test_fee_goes_to_the_sequencer_of_its_block() -> None:
    node = FakeNode()
    header = node.header
    node.header = lambda height: {**header(height), "sequencer_address": hex(height)}  # type: ignore[method-assign]
    node.transactions = {height: [invoked(height, fee=IN_ETHER, **EARLY)] for height in (5, 6)}
    tables = (await node.chain().collect(Span(5, 6), ALL)).tables
    assert [int(row["recipient"], 16) for row in tables["transfers"].to_pylist()] == [5, 6]


async def test_transactions_of_mainnet_block_2800_pay_what_their_receipts_say() -> None:
    """Transactions 49, 51 and 57 of that block: version 0, with no event of the payment."""
    account, dai = "0x383d2992adab63c24b518c466f0ab5c3fabcfa01d17e26bf72505edd18f1b5b", FEE_TOKENS["FRI"][:-2] + "aa"
    recipient, amount_sent, fees = (
        "0x3251a0192aecf2407641afc435d300d723690c2cda1767f0ef42f0a6ec01a13",
        50 * 10**18,
        (
            "0x119bdabd32b8e",
            "0x11a978cbc0584",
            "0xf1610235ca07",
        ),
    )
    early: dict[str, Any] = {**EARLY, "contract_address": account}
    transfer = event(account, recipient, hex(amount_sent), "0x0", token=dai)
    transactions = [invoked(at, *([transfer] if at == 1 else []), fee=fee, **early) for at, fee in enumerate(fees, 1)]
    paid_fees, rows = await collected(FakeNode(), *transactions)
    assert paid_fees == [0, 0, 0]
    assert sorted(row[4] for row in rows if row[1] == int(ETHER, 16)) == sorted(int(fee, 16) for fee in fees)
    assert [row for row in rows if row[1] != int(ETHER, 16)] == [movement(0, dai, account, recipient, amount_sent)]


async def test_lookup_of_a_message_from_ethereum_agrees_with_its_row() -> None:
    transaction = invoked(1, fee=IN_STRK, **MESSAGE)
    node = FakeNode(
        starknet_getTransactionByHash=lambda params: transaction["transaction"],
        starknet_getTransactionReceipt=lambda params: {**transaction["receipt"], "block_number": 5},
    )
    [details] = await node.chain().look_up([IndexedTransaction(f"0x{1:064x}", 5, 0, 0, node.hash(5), final=True)])
    assert await collected(node, transaction) == ([details.fee], [])


async def test_history_of_an_account_has_fees_that_neither_event_nor_nonce_shows() -> None:
    early = FakeNode()

    def balance(params: Any) -> list[str]:
        is_ether = int(params[0]["contract_address"], 16) == int(ETHER, 16)
        return [hex(10**6 - FEE * (early.height(params[1]) >= 20)) if is_ether else "0x0", "0x0"]

    early.answers = {**early.answers, "starknet_getNonce": lambda params: "0x0", "starknet_call": balance}
    early.transactions = {20: [invoked(1, fee=IN_ETHER, **EARLY)]}
    chain = early.chain()
    await chain.heads()
    result = await chain.collect_accounts(Span(0, 90), [f"0x{int(WALLET, 16):064x}"], ("native", "transfers"))
    [row] = result.tables["transfers"].to_pylist()
    assert (row["height"], row["token"], int.from_bytes(row["raw"], "big")) == (20, ETHER, FEE)
    assert result.read_methods == {"native": "search", "transfers": "search"}


@pytest.mark.slow("both ways store the rows of one reader", only=["way1"])
@pytest.mark.parametrize(
    "command", [("index", "starknet"), ("watch", StarknetSubject.accounts[0], "--chain", "starknet")]
)
def test_fees_without_an_event_explain_the_balance(
    node: tuple[StarknetSubject, str], run: Run, command: tuple[str, ...]
) -> None:
    subject, _ = node
    wallet = int(subject.accounts[0], 16)
    subject.ledger.is_early = True
    subject.ledger.add("early", (wallet, [Deed("moves", SUBJECTS_ETHER, 0, wallet, 10**18)]), fee=3 * 10**14)
    subject.ledger.add("early", (wallet, [Deed("moves", SUBJECTS_ETHER, wallet, 0xB0B, 10**17)]), fee=2 * 10**14)
    subject.ledger.is_early = False
    subject.mine(20)
    run(*command)
    [chain] = run("reconcile", subject.accounts[0], "--chain", "starknet")
    assert {each["status"] for each in chain["assets"]} == {"equal"}
    [ether] = [each for each in chain["assets"] if each["asset"].endswith(FEE_TOKENS["WEI"])]
    assert ether["movements"] == "899500000000000000"
    [ether] = [each for each in run("pnl", subject.accounts[0])["holdings"] if each["contract"] == FEE_TOKENS["WEI"]]
    assert ether["amount"] == "0.8995"
    newest = run("transactions", subject.accounts[0])["transactions"][:2]
    assert [sorted(each["balance"] for each in transaction["assetsOut"]) for transaction in newest] == [
        ["0.0002", "0.1"],
        ["0.0003"],
    ]
