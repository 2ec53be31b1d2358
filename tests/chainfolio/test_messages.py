"""The words of others inside our sentences: marked where they come in, and gone where anybody reads."""

from __future__ import annotations

import pytest

from chainfolio.messages import public, quoted

CANARY = "daily limit of project CANARY (ops@corp.example) reached at http://10.0.0.5:8545/v3/short77"


@pytest.mark.parametrize(
    ("text", "public_text"),
    [
        ("timed out", "timed out"),
        (quoted(CANARY), "(in the server's log)"),
        (f"no state at block 5: {quoted(CANARY)}", "no state at block 5: (in the server's log)"),
        (f"{quoted(CANARY)}; and {quoted(CANARY)}, twice", "(in the server's log); and (in the server's log), twice"),
        (f"cut off: {quoted(CANARY)}"[:40], "cut off: (in the server's log)"),
        (quoted("a⟩ b ⟨c"), "(in the server's log)"),
        (quoted(""), "(in the server's log)"),
    ],
)
def test_words_of_others_are_not_public(text: str, public_text: str) -> None:
    assert public(text) == public_text
