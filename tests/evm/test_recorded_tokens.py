"""Names, symbols and decimals of 75 real tokens."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.adapters.evm.tokens import decimals_of, text
from chainfolio.printable import MAX_NAME, MAX_SYMBOL, clean
from tests.evm.recorded import lines, needs_recordings

pytestmark = needs_recordings


@pytest.fixture(scope="module")
def tokens() -> list[Any]:
    return lines("token_metadata.jsonl.gz")


def raw(token: Any, name: str) -> bytes:
    return bytes.fromhex(token["raw"][name][2:])


def test_there_are_75(tokens: list[Any]) -> None:
    assert len(tokens) == 75


def test_names_and_symbols_are_what_the_contracts_say(tokens: list[Any]) -> None:
    """Cleaning removes only invisible characters; of these names it removes only outer whitespace."""
    for token in tokens:
        want = token["expected"]
        assert text(raw(token, "name"), MAX_NAME) == want["name"].strip()
        assert text(raw(token, "symbol"), MAX_SYMBOL) == want["symbol"].strip()


def test_decimals_are_what_the_contracts_say(tokens: list[Any]) -> None:
    for token in tokens:
        assert decimals_of(raw(token, "decimals")) == token["expected"]["decimals"]


def test_cleaning_twice_is_cleaning_once(tokens: list[Any]) -> None:
    for token in tokens:
        cleaned = text(raw(token, "name"), MAX_NAME)
        assert clean(cleaned, MAX_NAME) == cleaned
