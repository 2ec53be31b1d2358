"""Names that tokens give themselves, made safe to show: they are hostile until cleaned."""

from __future__ import annotations

import unicodedata
from typing import Final

MAX_SYMBOL: Final = 32
MAX_NAME: Final = 96
MOST: Final = 4096  # characters that are looked at


def clean(text: str, longest: int) -> str:
    """Return a text as one printable line of at most `longest` characters.

    Control and format characters, which reorder or hide text, are removed.
    """
    folded = unicodedata.normalize("NFC", text[:MOST])
    characters = [char if char != "\t" else " " for char in folded if _is_printable(char)]
    line = " ".join("".join(characters).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def harmless(text: str) -> str:
    """Return a text of several lines without characters that control a terminal, or reorder or hide text."""
    return "".join(char for char in text if char == "\n" or _is_printable(char))


def _is_printable(char: str) -> bool:
    category = unicodedata.category(char)
    return (category[0] not in "C" and category not in ("Zl", "Zp")) or char == "\t"
