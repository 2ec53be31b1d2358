"""What attesting could have brought, found in the list of a node without decoding it: the same as all of it says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.adapters.beacon.ideal import MAX_MATCHES, decode_ideal_rewards
from chainfolio.errors import BadAnswer

ETH = 10**9


def listed(balances: list[int], *, as_text: bool = True) -> list[dict[str, Any]]:
    """What a node lists of some effective balances."""
    written = str if as_text else int
    return [
        {"effective_balance": written(each), "head": written(each % 97), "target": written(each % 89), "source": "-3"}
        for each in balances
    ]


def total(balance: int) -> int:
    """What the list says of a balance."""
    return balance % 97 + balance % 89 - 3


@given(
    st.lists(st.integers(0, 2048), max_size=60, unique=True),
    st.sets(st.integers(0, 2048), max_size=12),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_the_entries_of_some_balances_are_what_the_whole_list_says(
    there: list[int], known: set[int], as_text: bool, indent: int | None
) -> None:
    written = json.dumps(listed([each * ETH for each in there], as_text=as_text), indent=indent).encode()
    asked = {each * ETH for each in known}
    assert decode_ideal_rewards("node", written, asked) == {each: total(each) for each in asked if each // ETH in there}
    assert decode_ideal_rewards("node", written, None) == {each * ETH: total(each * ETH) for each in there}


def test_digits_that_mean_something_else_are_no_entry() -> None:
    entries = listed([132 * ETH, 32 * ETH])
    entries[0]["note"] = f"{32 * ETH}"
    entries += [{"effective_balance": "1", "head": f"{32 * ETH}", "target": "0", "source": "0"}] * (MAX_MATCHES + 5)
    for each in (entries, entries[::-1]):
        assert decode_ideal_rewards("node", json.dumps(each).encode(), {32 * ETH}) == {32 * ETH: total(32 * ETH)}


@pytest.mark.parametrize(
    "written",
    [b"{}", b"[1]", b'"32000000000"', b'[{"effective_balance":"32000000000"}]', b'["\xff32000000000"]', b"null"],
)
def test_a_list_that_is_none_is_refused(written: bytes) -> None:
    with pytest.raises(BadAnswer, match="of the wrong shape"):
        decode_ideal_rewards("node", written, {32 * ETH})


def test_a_list_of_digits_alone_takes_no_longer_than_its_bytes() -> None:
    written = b'["' + b"32000000000" * 500_000 + b'"]'
    with pytest.raises(BadAnswer):
        decode_ideal_rewards("node", written, {32 * ETH})
