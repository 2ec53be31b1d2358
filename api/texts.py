"""Names and labels: trimmed of Unicode white space, NFC, and counted in code points."""

from __future__ import annotations

import unicodedata
from typing import Final

MAX_CHARS: Final = 255


def tidy(field: str, text: str, *, min_chars: int = 0) -> str:
    """The text as it is kept; ValueError where it is too short or too long."""
    trimmed = text.strip()
    # Composing makes a text four times shorter at most, and takes long for one that is long: look before.
    tidied = unicodedata.normalize("NFC", trimmed).strip() if len(trimmed) <= 4 * MAX_CHARS else trimmed
    if not min_chars <= len(tidied) <= MAX_CHARS:
        bounds = f"{min_chars} to {MAX_CHARS}" if min_chars else f"at most {MAX_CHARS}"
        raise ValueError(f"`{field}` has {bounds} characters after trimming, not {len(tidied)}")
    return tidied
