"""JSON from outside is what it says, once, and nothing else."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.documents import ValidationError, strict


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part."""

    name: str
    size: int = 0


class Outer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole."""

    parts: list[Inner] = []


@given(
    st.lists(st.tuples(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), st.integers(0, 9)))
)
def test_what_fits_is_read(parts: list[tuple[str, int]]) -> None:
    document = {"parts": [{"name": name, "size": size} for name, size in parts]}
    for ascii_only in (True, False):
        outer = strict(json.dumps(document, ensure_ascii=ascii_only).encode(), Outer)
        assert [(part.name, part.size) for part in outer.parts] == parts


@pytest.mark.parametrize(
    ("document", "path", "message"),
    [
        (b'{"parts":[],"parts":[]}', [], "`parts` is given more than once"),
        (b'{"parts":[{"name":"a","n\\u0061me":"b"}]}', [], "`name` is given more than once"),
        (b'{"parts":[{"name":"a\\u0000"}]}', [], "NUL"),
        (b'{"parts":[{"name":"a","other":1}]}', ["parts", "0"], "unknown field"),
        (b'{"parts":[{"name":1}]}', ["parts", "0", "name"], "Expected `str`"),
        (b'{"parts":[{"name":"\xff"}]}', [], "UTF-8"),
        (b'{"parts":' + b"[" * 200_000, [], ""),
        (b"[" * 200_000, [], ""),
        (b'{"parts":[{"name":"a","size":' + b"9" * 5000 + b"}]}", ["parts", "0", "size"], ""),
        (b'{"parts":NaN}', [], ""),
        (b"{} {}", [], ""),
        (b"", [], ""),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(document: bytes, path: list[str], message: str) -> None:
    with pytest.raises(ValidationError) as error:
        strict(document, Outer)
    assert message in str(error.value)
    assert not path or error.value.path == path


def test_a_backslash_before_zeros_is_no_nul() -> None:
    assert strict(b'{"parts":[{"name":"\\\\u0000"}]}', Outer).parts[0].name == "\\u0000"
