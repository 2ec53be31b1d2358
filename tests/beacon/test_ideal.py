"""Ideal attestation rewards, read from a node's list without decoding it: the same as all of it says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.adapters.beacon.ideal import MAX_MATCHES, decode_ideal_rewards
from chainfolio.errors import BadAnswer

ETH = 10**9


def ideal_rewards(balances: list[int], *, as_text: bool = True) -> list[dict[str, Any]]:
    """Return a node's list of ideal rewards for some effective balances."""
    number_type = str if as_text else int
    return [
        {
            "effective_balance": number_type(each),
            "head": number_type(each % 97),
            "target": number_type(each % 89),
            "source": "-3",
        }
        for each in balances
    ]


def total(balance: int) -> int:
    """Return the list's reward of a balance."""
    return balance % 97 + balance % 89 - 3


@given(
    st.lists(st.integers(0, 2048), max_size=60, unique=True),
    st.sets(st.integers(0, 2048), max_size=12),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_the_entries_of_some_balances_are_what_the_whole_list_says(
    listed_eth: list[int], requested_eth: set[int], as_text: bool, indent: int | None
) -> None:
    body = json.dumps(ideal_rewards([each * ETH for each in listed_eth], as_text=as_text), indent=indent).encode()
    balances = {each * ETH for each in requested_eth}
    assert decode_ideal_rewards("node", body, balances) == {
        each: total(each) for each in balances if each // ETH in listed_eth
    }
    assert decode_ideal_rewards("node", body, None) == {each * ETH: total(each * ETH) for each in listed_eth}


def test_digits_that_mean_something_else_are_no_entry() -> None:
    entries = ideal_rewards([132 * ETH, 32 * ETH])
    entries[0]["note"] = f"{32 * ETH}"
    entries += [{"effective_balance": "1", "head": f"{32 * ETH}", "target": "0", "source": "0"}] * (MAX_MATCHES + 5)
    for each in (entries, entries[::-1]):
        assert decode_ideal_rewards("node", json.dumps(each).encode(), {32 * ETH}) == {32 * ETH: total(32 * ETH)}


@pytest.mark.parametrize(
    "body",
    [b"{}", b"[1]", b'"32000000000"', b'[{"effective_balance":"32000000000"}]', b'["\xff32000000000"]', b"null"],
)
def test_a_list_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(BadAnswer, match="of the wrong shape"):
        decode_ideal_rewards("node", body, {32 * ETH})


def test_a_list_of_digits_alone_takes_no_longer_than_its_bytes() -> None:
    body = b'["' + b"32000000000" * 500_000 + b'"]'
    with pytest.raises(BadAnswer):
        decode_ideal_rewards("node", body, {32 * ETH})
