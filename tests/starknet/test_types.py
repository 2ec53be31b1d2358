"""The calls of transactions of recorded blocks, by name, and the types of these transactions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest

from chainfolio.adapters.starknet.felts import FormattedFelts, encode_short_string, format_felt, selector
from chainfolio.adapters.starknet.forms import Receipt, Transaction
from chainfolio.adapters.starknet.kind import KIND
from chainfolio.adapters.starknet.transactions import parties
from chainfolio.addresses import STARKNET
from chainfolio.assets import Asset
from chainfolio.contracts import TransactionDetails
from chainfolio.engine.transactions.function_names import load
from chainfolio.portfolio.activity import Activity, AddressFacts, Movement, signs, type_of
from tests.starknet.recorded import FACTS, needs_recordings, recorded_block, rows

ENDS: tuple[tuple[Literal["in", "out"], str, str], ...] = (
    ("out", "sender", "recipient"),
    ("in", "recipient", "sender"),
)
FUNCTIONS = load(Path(__file__).parents[2] / "configs" / "functions.toml", KIND.selector)


def called(body: Transaction) -> bytes | None:
    """The function that a transaction called."""
    return parties(FormattedFelts("node"), body, Receipt("0x1", "0x0", []))[3]


@needs_recordings
@pytest.mark.parametrize(
    ("block", "called"),
    [
        ("mainnet_64820", {"mint": 107, "swap": 7, "transfer": 5, "setApprovalForAll": 2}),
        ("mainnet_2500", {"handle_deposit": 7}),
        ("sepolia_7", {"transfer": 1, "handle_deposit": 1}),
    ],
)
def test_calls_of_recorded_transactions_have_their_names(block: str, called: dict[str, int]) -> None:
    call_counts = Counter(FUNCTIONS.names.get(row.input or b"", "") for row in rows(recorded_block(block)).transactions)
    assert {name: call_counts[name] for name in called} == called


def types(block: str) -> Counter[str]:
    """The types of the transactions of a recorded block, to those who sent them."""
    read = rows(recorded_block(block))
    moves: dict[int, list[dict[str, Any]]] = {}
    for row in read.movements:
        moves.setdefault(row.tx_index, []).append(row._asdict())
    return Counter(type_in(row._asdict(), moves.get(row.tx_index, [])) for row in read.transactions)


def type_in(transaction: dict[str, Any], moves: list[dict[str, Any]]) -> str:
    """The type of a transaction to its sender."""
    account = transaction["sender"]
    movements = tuple(
        Movement(
            move["log_index"], move["item"], direction, "erc20", asset_of(move), move["raw"], move[counterparty_key]
        )
        for move in moves
        for direction, end, counterparty_key in ENDS
        if move[end] == account
    )
    selector = transaction["input"] or b""
    details = TransactionDetails(account, transaction["recipient"], transaction["created"], 0, 0, False, selector)
    activity = Activity("starknet", account, 1, 1, transaction["tx_index"], transaction["hash"], movements, (), details)
    function, called = FUNCTIONS.names.get(selector, ""), FUNCTIONS.types.get(selector, "")
    collectors = FACTS.info.fee_collectors
    type_signs = signs(activity, function, AddressFacts((), (), STARKNET.burn_addresses, collectors), called=called)
    return type_of(type_signs, function)


def asset_of(move: dict[str, Any]) -> Asset:
    """Return the asset that moved. The chain asks contracts for its kind; unknown ones that mint are collections."""
    asset = Asset("starknet:SN_MAIN", "erc20", move["token"])
    if move["token"] in FACTS.searched_tokens or move["sender"] not in STARKNET.burn_addresses:
        return asset
    return asset._replace(kind="erc721", token_id=str(move["raw"]))


@needs_recordings
def test_a_fee_in_ether_takes_no_part_in_the_type_of_a_recorded_transaction() -> None:
    """Count types: with the fee, a transfer of ether, 105 mints were an INTERACTION and 23 calls a TRANSFEROUT."""
    type_counts = types("mainnet_64820") + types("sepolia_7")
    assert type_counts["MINT"] == 107
    assert type_counts["TRANSFEROUT"] == 2


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("multi_route_swap", "SWAP"),
        ("enter_delegation_pool", "STAKE"),
        ("exit_delegation_pool_intent", "UNSTAKE"),
        ("claim_rewards", "CLAIM"),
        ("initiate_token_withdraw", "BRIDGEOUT"),
        ("handle_token_deposit", "BRIDGEIN"),
    ],
)
def test_a_call_stands_for_a_type(name: str, type_: str) -> None:
    assert FUNCTIONS.types[KIND.selector(f"starknet:{name}()")] == type_


def test_the_last_call_of_a_transaction_says_what_it_is_in_both_layouts() -> None:
    approve, swap = (format_felt(selector(each)) for each in ("approve", "swap"))
    today = ["0x2", "0xa", approve, "0x1", "0x7", "0xb", swap, "0x2", "0x8", "0x9"]
    older = ["0x2", "0xa", approve, "0x0", "0x1", "0xb", swap, "0x1", "0x2", "0x3", "0x7", "0x8", "0x9"]
    for calldata in (today, older):
        body = Transaction("INVOKE", sender_address="0x1", calldata=calldata)
        assert FUNCTIONS.names[called(body) or b""] == "swap"


def test_a_message_from_ethereum_says_what_it_calls_and_a_declaration_calls_nothing() -> None:
    handled = format_felt(selector("handle_deposit"))
    message = Transaction("L1_HANDLER", contract_address="0x1", calldata=["0x2"], entry_point_selector=handled)
    assert FUNCTIONS.names[called(message) or b""] == "handle_deposit"
    assert called(Transaction("DECLARE", sender_address="0x1")) is None
    assert called(Transaction("INVOKE", sender_address="0x1", calldata=[hex(encode_short_string("junk"))])) is None
