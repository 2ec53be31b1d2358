"""Measured figures are stored, read again, and put between the markers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench import figures
from bench.figures import BEGIN, END, Figure

FAST = Figure("rate", "wall", "1.0 s", "≤ 2 s", True, {"walls_s": [1.0, 1.1]})
SLOW = Figure("lookup", "ratio", "1/3", "≤ 1/50", False)


@pytest.fixture(autouse=True)
def results_of_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_RESULTS", str(tmp_path / "results"))


def appended(figure: Figure, day: int) -> list[str]:
    return figures.append([figure], at=datetime(2030, 1, day, tzinfo=UTC)).read_text().splitlines()


def test_a_figure_comes_back_from_its_line_with_date_and_machine() -> None:
    [(date, machine, figure)] = figures.parse(appended(FAST, 1))
    assert (date, figure) == ("2030-01-01T00:00:00+00:00", FAST)
    assert {"cores", "cpu", "ram_gb", "python"} <= machine.keys()


def test_a_line_of_an_older_release_is_read_too() -> None:
    line = '{"date": "2030-01-01", "machine": {}, "bench": "rate", "name": "wall", "value": "1 s"}'
    assert figures.parse([line]) == [("2030-01-01", {}, Figure("rate", "wall", "1 s"))]


def test_only_the_last_run_of_each_benchmark_counts_in_the_order_of_the_benchmarks() -> None:
    appended(SLOW, 1)
    appended(Figure("rate", "gone", "9 s"), 1)
    latest = figures.latest(appended(FAST, 2))
    assert [figure.name for _, _, figure in latest] == ["wall", "ratio"]


def test_a_bar_that_is_not_met_is_said_plainly(tmp_path: Path) -> None:
    appended(FAST, 1)
    appended(SLOW, 2)
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    figures.rewrite(readme)
    text = readme.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "| rate | wall | 1.0 s | ≤ 2 s | yes |" in text
    assert "| lookup | ratio | 1/3 | ≤ 1/50 | **no** |" in text
    assert "2030-01-01 to 2030-01-02" in text


def test_a_benchmark_that_was_not_run_here_keeps_its_rows(tmp_path: Path) -> None:
    appended(SLOW, 1)
    readme = tmp_path / "README.md"
    rows = ["| rate | wall | 2.0 s |", "| rate | rows | 7 |", "| lookup | gone | 1/9 |", "| other | it | 1 |"]
    readme.write_text("\n".join([BEGIN, "of another day", "", "| bench | what |", "|---|---|", *rows, END]))
    figures.rewrite(readme)
    rows = [line for line in readme.read_text().splitlines() if line.startswith("| ") and "bench" not in line]
    lookup = "| lookup | ratio | 1/3 | ≤ 1/50 | **no** |"
    assert rows == ["| rate | wall | 2.0 s |", "| rate | rows | 7 |", lookup, "| other | it | 1 |"]


def test_rewriting_twice_is_rewriting_once() -> None:
    rewritten = figures.between(f"{BEGIN}{END}", "table")
    assert figures.between(rewritten, "table") == rewritten


@pytest.mark.parametrize("text", ["no markers", f"{END} {BEGIN}"])
def test_a_text_without_its_markers_is_left_alone(text: str) -> None:
    with pytest.raises(ValueError, match=r"substring|markers"):
        figures.between(text, "table")


def test_the_readme_has_its_markers() -> None:
    assert "table" in figures.between(figures.README.read_text(), "table")


def test_a_spread_is_median_least_most_and_count() -> None:
    assert figures.spread([3.0, 1.0, 2.0]) == "2.00 [1.00–3.00] (n=3)"


def test_the_table_for_people_has_a_line_a_figure() -> None:
    assert [line.split()[0] for line in figures.table([FAST, SLOW]).splitlines()[2:]] == ["rate", "lookup"]
