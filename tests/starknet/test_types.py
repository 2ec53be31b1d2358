"""What transactions of recorded blocks called, by name, and the type that it stands for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from adapters.starknet.felts import Padded, packed, padded, selector
from adapters.starknet.forms import Body, Receipt
from adapters.starknet.kind import KIND
from adapters.starknet.rows import PAID
from adapters.starknet.transactions import parties
from engine.functions import load
from tests.starknet.recorded import needs_recordings, rows, whole

FUNCTIONS = load(Path(__file__).parents[2] / "configs" / "functions.toml", KIND.selector)


def called(body: Body) -> bytes | None:
    """The function that a transaction called."""
    return parties(Padded("node"), body, Receipt("0x1", "0x0", []))[3]


@needs_recordings
@pytest.mark.parametrize(
    ("block", "called"),
    [
        ("mainnet_64820", {"mint": 107, "swap": 7, "transfer": 5, "setApprovalForAll": 2}),
        ("mainnet_2500", {"handle_deposit": 7}), ("sepolia_7", {"transfer": 1, "handle_deposit": 1}),
    ],
)  # fmt: skip
def test_calls_of_recorded_transactions_have_their_names(block: str, called: dict[str, int]) -> None:
    at = PAID.index("input")
    found = Counter(FUNCTIONS.names.get(row[at] or b"", "") for row in rows(whole(block)).paid)
    assert {name: found[name] for name in called} == called


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("multi_route_swap", "SWAP"), ("enter_delegation_pool", "STAKE"), ("exit_delegation_pool_intent", "UNSTAKE"),
        ("claim_rewards", "CLAIM"), ("initiate_token_withdraw", "BRIDGEOUT"), ("handle_token_deposit", "BRIDGEIN"),
    ],
)  # fmt: skip
def test_a_call_stands_for_a_type(name: str, type_: str) -> None:
    assert FUNCTIONS.types[KIND.selector(f"starknet:{name}()")] == type_


def test_the_last_call_of_a_transaction_says_what_it_is_in_both_layouts() -> None:
    approve, swap = (padded(selector(each)) for each in ("approve", "swap"))
    today = ["0x2", "0xa", approve, "0x1", "0x7", "0xb", swap, "0x2", "0x8", "0x9"]
    older = ["0x2", "0xa", approve, "0x0", "0x1", "0xb", swap, "0x1", "0x2", "0x3", "0x7", "0x8", "0x9"]
    for said in (today, older):
        body = Body("INVOKE", sender_address="0x1", calldata=said)
        assert FUNCTIONS.names[called(body) or b""] == "swap"


def test_a_message_from_ethereum_says_what_it_calls_and_a_declaration_calls_nothing() -> None:
    handled = padded(selector("handle_deposit"))
    message = Body("L1_HANDLER", contract_address="0x1", calldata=["0x2"], entry_point_selector=handled)
    assert FUNCTIONS.names[called(message) or b""] == "handle_deposit"
    assert called(Body("DECLARE", sender_address="0x1")) is None
    assert called(Body("INVOKE", sender_address="0x1", calldata=[hex(packed("junk"))])) is None
