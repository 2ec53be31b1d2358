"""Events of any shape: rows for token events, none for other events, and never another error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.adapters.starknet.events import (
    APPROVAL_EVENTS,
    APPROVAL_FOR_ALL,
    NAME_SUFFIXES,
    TRANSFER_EVENTS,
    ApprovalEvent,
    decode_approval,
    decode_transfers,
)
from chainfolio.adapters.starknet.felts import FormattedFelts, selector
from chainfolio.adapters.starknet.forms import Event, FullBlock, Receipt, Transaction, TransactionWithReceipt
from chainfolio.adapters.starknet.rows import build_rows
from chainfolio.addresses import STARKNET_PRIME
from chainfolio.errors import BadAnswer
from tests.starknet.recorded import FACTS

WORDS = st.one_of(
    st.integers(0, STARKNET_PRIME - 1).map(hex), st.integers(0, 5).map(hex), st.integers(2**127, 2**129).map(hex)
)
NAMES = ("Transfer", "TransferSingle", "TransferBatch", "Approval", "ApprovalForAll")


def event(name: str, keys: list[str], data: list[str]) -> Event:
    """An event of that name."""
    return Event("0x1", [hex(selector(name)), *keys], data)


@given(st.sampled_from(NAMES), st.lists(WORDS, max_size=8), st.lists(WORDS, max_size=12))
def test_events_of_any_shape_are_rows_or_nothing(name: str, keys: list[str], data: list[str]) -> None:
    forms, log_event = FormattedFelts("node"), event(name, keys, data)
    event_kind = forms[log_event.keys[0]]
    assert log_event.keys[0][-8:] in NAME_SUFFIXES
    assert event_kind in TRANSFER_EVENTS | APPROVAL_EVENTS
    if event_kind in TRANSFER_EVENTS:
        for _, _, _, raw, token_id, _, _ in decode_transfers(forms, event_kind, log_event):
            assert 0 <= raw < 2**256
            assert token_id is None or 0 <= token_id < 2**256
        return
    approval = decode_approval(forms, event_kind, log_event)
    if approval is not None:
        amounts = (approval.raw, approval.token_id, approval.approved)
        assert sum(each is not None for each in amounts) == 1


@pytest.mark.parametrize("bad", ["0x", "12", hex(STARKNET_PRIME), "-0x1", "0xzz", ""])
def test_a_word_that_is_no_felt_is_refused(bad: str) -> None:
    forms = FormattedFelts("node")
    for name in ("Approval", "ApprovalForAll"):
        log_event = event(name, ["0xa", bad], ["0x1"])
        with pytest.raises(BadAnswer, match="no felt"):
            decode_approval(forms, forms[log_event.keys[0]], log_event)


@pytest.mark.parametrize("approved", ["0x2", hex(2**200)])
def test_an_operator_that_is_neither_allowed_nor_not_is_no_row(approved: str) -> None:
    forms = FormattedFelts("node")
    assert decode_approval(forms, APPROVAL_FOR_ALL, event("ApprovalForAll", [], ["0xa", "0xb", approved])) is None


def test_approvals_of_every_layout_and_width() -> None:
    forms = FormattedFelts("node")
    owner, spender = (f"0x{each:064x}" for each in (0xA, 0xB))
    for keys, data in (([], ["0xa", "0xb", "0x5"]), (["0xa", "0xb"], ["0x5"]), (["0xa", "0xb"], ["0x5", "0x0"])):
        log_event = event("Approval", keys, data)
        assert decode_approval(forms, forms[log_event.keys[0]], log_event) == ApprovalEvent("erc20", owner, spender, 5)
    log_event = event("Approval", ["0xa", "0xb", "0x5", "0x1"], [])
    assert decode_approval(forms, forms[log_event.keys[0]], log_event) == ApprovalEvent(
        "erc721", owner, spender, None, 2**128 + 5
    )


@given(st.sampled_from(NAMES), st.lists(WORDS, max_size=5), st.lists(WORDS, max_size=5))
def test_what_is_learnt_before_changes_no_row(name: str, keys: list[str], data: list[str]) -> None:
    log_event, learnt = event(name, keys, data), FormattedFelts("node")
    learnt.preload([*log_event.keys, *log_event.data])
    event_kind = learnt[log_event.keys[0]]
    if event_kind in TRANSFER_EVENTS:
        assert list(decode_transfers(learnt, event_kind, log_event)) == list(
            decode_transfers(FormattedFelts("node"), event_kind, log_event)
        )
    else:
        assert decode_approval(learnt, event_kind, log_event) == decode_approval(
            FormattedFelts("node"), event_kind, log_event
        )


def test_an_event_without_end_is_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    learnt: list[str] = []
    monkeypatch.setattr(FormattedFelts, "preload", lambda _, words: learnt.extend(words))
    endless = [event("Transfer", [], [hex(each) for each in range(500_000)]), event("Transfer", [], ["f" * 5_000_000])]
    body = Transaction("INVOKE", sender_address="0x1", calldata=["0x2710", *["0x1"] * 30_000])
    block = FullBlock(
        "0x2", "0x1", 5, 1_700_000_000, transactions=[TransactionWithReceipt(body, Receipt("0x3", "0x0", endless))]
    )
    block_rows = build_rows("node", 5, block, FACTS)
    assert (len(block_rows.transactions), block_rows.movements) == (1, [])
    assert len(learnt) < 20
