"""Answers that are short enough for a model: a summary, the greatest rows, and the rest as a sum."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from chainfolio import amounts
from chainfolio.portfolio.numbers import UNKNOWN
from chainfolio.printable import clean

MAX_BYTES: Final = 6_000  # of an answer: some 1,500 tokens
MAX_DETAIL_BYTES: Final = 32_000  # with `detail`
TOP: Final = 15  # rows of an answer without `detail`
MAX_ISSUES: Final = 5
MAX_TEXT: Final = 160
MAX_NAME: Final = 40
Row = Mapping[str, object]  # what JSON can write


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer before it is shortened.

    Attributes:
        summary: The most important figures, by name.
        at: The newest block of each chain that was read, and its age in seconds.
        rows: The rows, the most important one first.
        summed: The field of rows whose sum is shown for rows that are left out; empty if there is none.
    """

    summary: Row
    at: Row
    completeness: str
    rows: Sequence[Row] = ()
    issues: Sequence[str] = ()
    summed: str = ""
    hints: Sequence[str] = field(default_factory=list)

    def text(self, *, detail: bool = False) -> str:
        """Return the answer as JSON of at most MAX_BYTES, with `detail` MAX_DETAIL_BYTES.

        The last rows are summed to fit; without `detail`, at most TOP rows are shown.
        """
        limit = MAX_DETAIL_BYTES if detail else MAX_BYTES
        count = len(self.rows) if detail else min(TOP, len(self.rows))
        while len((text := self._text(count, detail=detail)).encode()) > limit and count:
            count -= max(1, count // 8)
        return text

    def _text(self, count: int, *, detail: bool) -> str:
        """Return the answer as JSON with the first `count` rows; the others are summed as `rest`.

        At most MAX_ISSUES issues are shown, and the number of others.
        """
        document: dict[str, object] = {
            "summary": self.summary,
            "at": self.at,
            "completeness": self.completeness,
            "rows": self.rows[:count],
        }
        if rest := self.rows[count:]:
            document["rest"] = self._rest(rest, detail=detail)
        if self.issues:
            shown = [clean(each, MAX_TEXT) for each in self.issues[:MAX_ISSUES]]
            more = len(self.issues) - len(shown)
            document["issues"] = [*shown, *([f"and {more} more"] if more else [])]
        if self.hints:
            document["hints"] = self.hints
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"))

    def _rest(self, rows: Sequence[Row], *, detail: bool) -> Row:
        """Return the number of rows that are left out, the sum of their values, and how to see more."""
        rest: dict[str, object] = {"rows": len(rows)}
        if self.summed:
            values = [str(row[self.summed]) for row in rows]
            known = [Decimal(value) for value in values if value not in (UNKNOWN, "None")]
            rest[self.summed] = amounts.text(amounts.total(known))
            rest["unknown"] = len(values) - len(known)
        rest["more"] = "narrow the question by chain or days" if detail else "ask again with detail=true"
        return rest


def quoted(text: str, longest: int = MAX_NAME) -> str:
    """Return a text of strangers in quotes, as one harmless line that cannot end the quotes."""
    return f"“{clean(text, longest).replace('“', '').replace('”', '')}”"
