"""What others say (a node, a contract that reverts) inside our own sentences: marked, so that it reaches logs alone.

A provider's words may hold addresses, keys and names of projects, a contract's whatever its author wants to be read.
"""

from __future__ import annotations

import re
from typing import Final

OPEN, CLOSE = "⟨", "⟩"
ELSEWHERE: Final = "(in the server's log)"
_QUOTED = re.compile(f"{OPEN}[^{CLOSE}]*(?:{CLOSE}|$)")


def quoted(words: str) -> str:
    """Somebody's words, marked as theirs."""
    return OPEN + words.replace(OPEN, "<").replace(CLOSE, ">") + CLOSE


def public(text: str) -> str:
    """A sentence of ours as anybody may read it: without the words of others."""
    return _QUOTED.sub(ELSEWHERE, text) if OPEN in text else text
