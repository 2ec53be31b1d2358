"""Answers are short, exact and harmless: what does not fit is counted and summed."""

from __future__ import annotations

import json
from decimal import Decimal

from hypothesis import example, given
from hypothesis import strategies as st

from chainfolio.agents.compact import MAX_BYTES, MAX_DETAIL_BYTES, TOP, Answer, quoted
from chainfolio.amounts import EXACT

ROWS = [{"token": f"“t{at}”", "value": "N/A" if at % 7 == 0 else f"{at}.000000000000000001"} for at in range(500)]


def test_rows_that_are_left_out_are_counted_and_summed_exactly() -> None:
    answer = json.loads(Answer({"assets": 500}, {}, "complete", ROWS, (), "value").text())
    assert answer["rows"] == ROWS[:TOP]
    omitted = [row["value"] for row in ROWS[TOP:]]
    priced = [Decimal(value) for value in omitted if value != "N/A"]
    assert Decimal(answer["rest"]["value"]) == sum(priced)
    assert (answer["rest"]["rows"], answer["rest"]["unknown"]) == (485, len(omitted) - len(priced))
    assert answer["rest"]["more"] == "ask again with detail=true"


@given(
    st.lists(st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=300), min_size=1), max_size=200),
    st.booleans(),
)
@example([{"a": "€" * 300}] * 40, False)  # characters of three bytes
@example([{"a": "€" * 300}] * 100, True)
def test_an_answer_has_its_bound_whatever_the_rows_hold(rows: list[dict[str, str]], detail: bool) -> None:
    text = Answer({"n": len(rows)}, {}, "complete", rows, ["x" * 500] * 20).text(detail=detail)
    assert len(text.encode()) <= (MAX_DETAIL_BYTES if detail else MAX_BYTES)
    document = json.loads(text)
    assert len(document["rows"]) + document.get("rest", {"rows": 0})["rows"] == len(rows)
    assert document["issues"][-1] == "and 15 more"


@given(st.text())
def test_a_quoted_text_is_one_short_line_that_cannot_leave_its_quotes(text: str) -> None:
    quoted_text = quoted(text)
    assert (quoted_text[0], quoted_text[-1]) == ("“", "”")
    assert not set(quoted_text[1:-1]) & set("“”\n\r\x1b\u202e")
    assert len(quoted_text) <= 42


def test_sums_are_exact() -> None:
    big = str(EXACT.scaleb(Decimal(2**256 - 1), -18))
    answer = Answer({}, {}, "complete", [{"value": big}] * 17, (), "value").text()
    assert Decimal(json.loads(answer)["rest"]["value"]) == EXACT.multiply(Decimal(big), Decimal(2))
