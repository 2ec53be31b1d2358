"""Tables for people: a row is one line that fits the terminal, with a note if it is shortened."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from chainfolio.cli.table import DIGITS, Column, Group, print_wrapped, shortened_amount, show_groups

ADDRESS = "0x" + "ab" * 20
COLUMNS = (
    Column("asset"),
    Column("holder"),
    Column("balance", "amount"),
    Column("price USD", "amount", rank=1),
    Column("worth USD", "number"),
    Column("why", "note"),
)
ROW = ("weth", ADDRESS, "1234567.123456789012345678", "2023.0829301", "2,497,634,112.55", "no price is known now")
WIDE = ("漢字" * 10, "two words", str(2**256), "", "-", "")


def printed_lines(capsys: pytest.CaptureFixture[str], *groups: Group) -> list[str]:
    show_groups(f"{ADDRESS}, {ADDRESS}: a title", COLUMNS, groups)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_a_row_is_one_line_and_no_line_is_wider_than_the_terminal(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = printed_lines(capsys, Group(f"Uniswap V3 {ADDRESS}", [ROW, WIDE]), Group("", [ROW]))
    assert max(map(cell_len, lines)) <= width
    assert len([line for line in lines if line.startswith("  weth ")]) == 2
    assert len([line for line in lines if line.endswith("2,497,634,112.55  [1]")]) == 2
    assert lines.count("  [1] no price is known now") == 1


def test_what_is_shortened_or_left_out_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = " ".join(" ".join(printed_lines(capsys, Group("", [ROW]))).split())
    assert "… stands for what is shortened; without the columns: price USD (all of it is in --json)" in text
    assert "0xabab…abab" in text
    monkeypatch.setenv("COLUMNS", "200")
    text = " ".join(printed_lines(capsys, Group("", [ROW])))
    assert "…" not in text
    assert "1234567.123456789012345678" in text


def test_digits_go_before_addresses_and_addresses_before_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for width, address, price in ((120, ADDRESS, True), (110, ADDRESS, True), (80, "0xabab…abab", True)):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = printed_lines(capsys, Group("", [ROW]))
        assert any(address in line and "2,497" in line for line in lines), width
        assert any(("price USD" in line) is price for line in lines if line.startswith("asset")), width


@pytest.mark.parametrize(
    ("exact", "short"),
    [
        ("0", "0"),
        ("12", "12"),
        ("1.5", "1.5"),
        ("unlimited", "unlimited"),
        ("?", "?"),
        ("-", "-"),
        ("1029566.039999", "1029566.03…"),
        ("-0.00033618", "-0.00033618"),
        ("0.000336189", "0.0003361…"),
        ("0.000000001234567", "1.234…e-9"),
        (str(2**256), "1.157…e77"),
        ("1.23456", "1.234…"),
        ("1,234.56789", "1,234.56…"),
    ],
)
def test_an_amount_is_cut_and_never_rounded_up(exact: str, short: str) -> None:
    assert shortened_amount(exact, 5 if short == "-0.00033618" else 4) == short


@given(st.decimals(allow_nan=False, allow_infinity=False, places=18), st.sampled_from(DIGITS))
def test_a_shortened_amount_is_close_to_the_exact_one_and_not_larger(amount: Decimal, digits: int) -> None:
    exact = f"{amount:f}"
    read = Decimal(shortened_amount(exact, digits).replace("…", ""))
    assert abs(read) <= abs(amount)
    assert abs(amount - read) <= abs(amount) / 10 ** (digits - 2)


def test_a_text_is_broken_between_words_and_a_command_stays_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_wrapped(f"one two three four five six seven eight {ADDRESS} nine", indent=2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "  one two three four five six seven"
    assert f"    {ADDRESS}" in lines


def test_no_cell_steers_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_groups("t", (Column("a"), Column("b")), [Group("x\x1b[2J", [("US\u202eD\x07", "1\n2")])])
    assert not {"\x1b", "\u202e", "\x07"} & set(capsys.readouterr().out)
