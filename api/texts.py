"""Names and labels: trimmed of Unicode white space, normalised to NFC, and counted in code points."""

from __future__ import annotations

import unicodedata
from typing import Final

MAX_CHARS: Final = 255


def tidy(field: str, text: str, *, min_chars: int = 0) -> str:
    """Return the text trimmed and normalised to NFC.

    Raises:
        ValueError: It has fewer than `min_chars` or more than `MAX_CHARS` code points.
    """
    trimmed = text.strip()
    # NFC shortens a text at most fourfold and is slow for long texts, so reject those first.
    tidied = unicodedata.normalize("NFC", trimmed).strip() if len(trimmed) <= 4 * MAX_CHARS else trimmed
    if not min_chars <= len(tidied) <= MAX_CHARS:
        bounds = f"{min_chars} to {MAX_CHARS}" if min_chars else f"at most {MAX_CHARS}"
        raise ValueError(f"`{field}` has {bounds} characters after trimming, not {len(tidied)}")
    return tidied
