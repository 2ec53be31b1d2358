"""Transfers among the logs of one transaction: recognised logs, and the token that moved by an amount."""

from __future__ import annotations

import pytest

from chainfolio.adapters.evm.events import TRANSFER
from chainfolio.adapters.evm.positions.token_transfers import (
    ZERO_TOPIC,
    TokenTransfer,
    token_of_amount,
    token_transfers,
)
from chainfolio.position_changes import EventLog

USDC, DAI, MARKET, ALICE = (f"0x{number:040x}" for number in range(1, 5))


def topic(address: str) -> str:
    return "0x" + "0" * 24 + address[2:]


def transfer(token: str, sender: str, recipient: str, raw: int) -> EventLog:
    return EventLog(token, (TRANSFER, topic(sender), topic(recipient)), raw.to_bytes(32, "big"))


LOGS = [transfer(USDC, MARKET, ALICE, 5), transfer(DAI, MARKET, ALICE, 7), transfer(USDC, ALICE, MARKET, 7)]


@pytest.mark.parametrize(
    ("raw", "is_paid", "token"), [(5, True, USDC), (7, True, DAI), (7, False, USDC), (5, False, ""), (6, True, "")]
)
def test_the_token_is_that_which_moved_by_the_amount_in_the_direction(raw: int, is_paid: bool, token: str) -> None:
    assert token_of_amount(LOGS, MARKET, raw, is_paid=is_paid) == token


def test_logs_of_another_shape_are_no_transfers_of_fungible_tokens() -> None:
    good = transfer(USDC, MARKET, ALICE, 5)
    non_transfers = [
        EventLog(USDC, (*good.topics, topic(ALICE)), b""),  # a collectible
        EventLog(USDC, good.topics, good.data * 2),
        EventLog(USDC, good.topics, b""),
        EventLog(USDC, (ZERO_TOPIC, *good.topics[1:]), good.data),
        EventLog(USDC, (), good.data),
    ]
    assert list(token_transfers([*non_transfers, good])) == [TokenTransfer(USDC, topic(MARKET), topic(ALICE), 5)]


def test_what_the_zero_address_sends_is_created_and_what_it_receives_destroyed() -> None:
    assert TokenTransfer(USDC, ZERO_TOPIC, topic(ALICE), 5).created == 5
    assert TokenTransfer(USDC, topic(ALICE), ZERO_TOPIC, 5).created == -5
    assert TokenTransfer(USDC, topic(ALICE), topic(MARKET), 5).created == 0
