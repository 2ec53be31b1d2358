"""Third-party texts in our messages, marked so that only logs show them.

Their authors are nodes, providers and reverting contracts. A provider's text may hold addresses, keys and project
names; a contract's text anything that its author chose.
"""

from __future__ import annotations

import re
from typing import Final

OPEN, CLOSE = "⟨", "⟩"
ELSEWHERE: Final = "(in the server's log)"
_QUOTED = re.compile(f"{OPEN}[^{CLOSE}]*(?:{CLOSE}|$)")


def quoted(text: str) -> str:
    """Mark a text as a quotation."""
    return OPEN + text.replace(OPEN, "<").replace(CLOSE, ">") + CLOSE


def public(text: str) -> str:
    """Return a message without the quotations in it."""
    return _QUOTED.sub(ELSEWHERE, text) if OPEN in text else text
