"""Names and labels: trimmed of Unicode white space, NFC, and counted in code points."""

from __future__ import annotations

import unicodedata
from typing import Final

LONGEST: Final = 255


def tidy(what: str, text: str, *, least: int = 0) -> str:
    """The text as it is kept; ValueError where it is too short or too long."""
    trimmed = text.strip()
    # Composing makes a text four times shorter at most, and takes long for one that is long: look before.
    tidied = unicodedata.normalize("NFC", trimmed).strip() if len(trimmed) <= 4 * LONGEST else trimmed
    if not least <= len(tidied) <= LONGEST:
        wanted = f"{least} to {LONGEST}" if least else f"at most {LONGEST}"
        raise ValueError(f"`{what}` has {wanted} characters after trimming, not {len(tidied)}")
    return tidied
