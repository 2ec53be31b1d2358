"""Names that tokens give themselves, made safe to show: they are hostile until cleaned."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

MAX_SYMBOL: Final = 32
MAX_NAME: Final = 96
MOST: Final = 4096  # characters that are looked at
# What a spreadsheet takes for the beginning of a formula, full-width characters too, and what it does not.
FORMULA: Final = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def clean(text: str, longest: int) -> str:
    """Return a text as one printable line of at most `longest` characters; a longer one ends with `…`.

    Control and format characters, which reorder or hide text, are removed, and white space becomes single spaces.
    """
    folded = unicodedata.normalize("NFC", text[:MOST])
    characters = [char if char != "\t" else " " for char in folded if _is_printable(char)]
    line = " ".join("".join(characters).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def harmless(text: str) -> str:
    """Return a text of several lines without characters that control a terminal, or reorder or hide text."""
    return "".join(char for char in text if char == "\n" or _is_printable(char))


def spreadsheet_text(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: such texts get an apostrophe in front."""
    is_formula = text.startswith(FORMULA) and not NUMBER.fullmatch(text)
    quote = "'" if is_formula else ""
    return f"{quote}{text}".replace("\r", " ")  # no reader agrees on it inside a cell


def _is_printable(char: str) -> bool:
    category = unicodedata.category(char)
    return (category[0] not in "C" and category not in ("Zl", "Zp")) or char == "\t"
