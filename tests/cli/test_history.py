"""`chainfolio history`: a table, a chart and files, at a node that is named on the command line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from chainfolio.cli import plot
from chainfolio.engine.history.day_blocks import days_from, midnight_us
from chainfolio.environment import Environment
from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.evm import Tx
from chainfolio.localchain.node import LocalNode
from chainfolio.storage.tail import Tail
from tests.cli.conftest import Run

pytestmark = pytest.mark.node
FIRST = date(2024, 2, 27)
DAYS = days_from(FIRST, date(2024, 3, 4))
TOP = 10**6


@pytest.fixture(scope="module")
def past() -> Iterator[tuple[LocalNode, str]]:
    """Yield a node with a week of blocks, and a wallet that is paid one Ether every day."""
    with LocalNode(timestamp=midnight_us(FIRST) // TOP - 80_000) as node:
        alice, wallet = deploy(node).accounts["alice"], "0x" + "77" * 20
        for day in DAYS:
            for at_s in (midnight_us(day) // TOP - 1, midnight_us(day) // TOP):
                node.rpc("evm_setNextBlockTimestamp", at_s)
                node.settle([Tx(alice, wallet, value=10**18, gas=21_000)])
        node.mine(200)
        yield node, wallet


@pytest.fixture
def history_command(past: tuple[LocalNode, str]) -> list[str]:
    """The command for that week; one Ether is 2,000 USD."""
    node, wallet = past
    return ["history", wallet, "--rpc", node.url, "--from", str(FIRST), "--to", str(DAYS[-1])]


@pytest.fixture(autouse=True)
def priced(here: Path) -> None:
    Path("chainfolio.toml").write_text('[prices]\n"eip155:31337/slip44:60" = "2000"\n')


def values(ran: Any) -> dict[str, str | None]:
    assert ran.code == 0, ran
    (history,) = ran.json
    return {each["day"]: each["value"] for each in history["days"]}


def test_every_day_is_worth_what_was_there_as_it_began(run: Run, history_command: list[str]) -> None:
    day_values = values(run(*history_command, "--json"))
    assert day_values == {str(day): str((2 * at + 1) * 2000) for at, day in enumerate(DAYS)}
    assert "2024-02-29" in day_values


def test_the_prices_of_final_blocks_that_a_command_used_are_in_the_lake_when_it_has_ended(
    run: Run, history_command: list[str]
) -> None:
    assert run(*history_command, "--json").code == 0
    (totals,) = run("sql", "SELECT count(*) AS days, min(usd) AS usd, max(source) AS source FROM prices", "--json").json
    assert totals == {"days": len(DAYS), "usd": "2000", "source": "fixed"}
    tail = Tail(Path("data") / "tail.db", reader=True)
    assert not tail.has_prices("local")
    tail.close()


def test_a_second_run_asks_the_node_for_nothing_of_the_past(run: Run, history_command: list[str]) -> None:
    first = run(*history_command, "--json", "--explain")
    second = run(*history_command, "--json", "--explain")
    assert second.json == first.json
    assert "eth_call" in first.err
    assert "eth_call" not in second.err
    assert "eth_getBlockByNumber" not in second.err


def test_the_chart_has_a_line_and_its_days(run: Run, history_command: list[str]) -> None:
    ran = run(*history_command, "--plot")
    assert ran.code == 0
    assert any("⠀" < char <= "⣿" for char in ran.out)
    assert "26,000.00" in ran.out
    assert str(FIRST) in ran.out
    assert str(DAYS[-1]) in ran.out
    assert "not known" not in ran.out


def test_days_before_the_chain_are_gaps_and_not_zero(run: Run, history_command: list[str]) -> None:
    history_command[history_command.index("--from") + 1] = str(FIRST - timedelta(days=3))
    day_values = values(run(*history_command, "--json"))
    early = [str(FIRST - timedelta(days=count)) for count in (3, 2, 1)]
    assert [day_values[day] for day in early] == [None] * 3
    output = run(*history_command, "--plot").out
    assert f"not known: {early[0]} to {early[2]}" in output
    assert "3 values absent: no chain had begun" in output


def test_files_hold_the_exact_values(run: Run, history_command: list[str]) -> None:
    expected = values(run(*history_command, "--json"))
    ran = run(*history_command, "-o", "a.csv", "-o", "a.parquet", "-o", "a.svg", "-o", "b.svg", "-o", "a.png")
    assert ran.code == 0, ran.err
    rows = list(csv.DictReader(io.StringIO(Path("a.csv").read_text())))
    assert {row["day"]: row["value"] for row in rows} == expected
    frame = pl.read_parquet("a.parquet")
    assert dict(zip(map(str, frame["day"]), frame["value"], strict=True)) == expected
    assert frame["value_usd"].to_list() == [Decimal(str(value)) for value in expected.values()]
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    assert Path("a.svg").read_bytes() == Path("b.svg").read_bytes()
    assert "0x777777" in Path("a.svg").read_text()


def test_weeks_and_months_are_fewer_days(run: Run, history_command: list[str]) -> None:
    assert list(values(run(*history_command, "--json", "--interval", "week"))) == ["2024-02-27", "2024-03-05"][:1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", "2024-02-30"], "is not a day"),
        (["--from", "2023-02-29"], "is not a day"),
        (["--from", "20240201"], "is not a day"),
        (["--to", "2999-01-01"], "is in the future"),
        (["--from", "2024-03-02", "--to", "2024-03-01"], "is after 2024-03-01"),
        (["--from", "0001-01-01"], "days are more than 20,000"),
        (["-o", "a.gif"], "ends with none of"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(
    run: Run, past: tuple[LocalNode, str], options: list[str], message: str
) -> None:
    ran = run("history", past[1], "--rpc", past[0].url, *options)
    assert ran.code == 2
    assert message in ran.err


def test_a_picture_names_a_few_days_and_those_that_are_not_known() -> None:
    year, week = days_from(date(2025, 1, 1), date(2025, 12, 31)), days_from(date(2025, 1, 29), date(2025, 2, 4))
    assert plot.marks(year) == ([date(2025, month, 1) for month in (1, 3, 5, 7, 9, 11)], "%Y-%m")
    assert plot.marks(week) == (week, "%Y-%m-%d")
    assert plot.marks(week[:1]) == (week[:1], "%Y-%m-%d")
    assert plot.runs([*week[:2], *week[3:5], week[6]]) == [
        (week[0], week[1]),
        (week[3], week[4]),
        (week[6], week[6]),
    ]


def test_a_day_that_is_known_between_two_that_are_not_is_seen_in_a_picture(here: Path) -> None:
    days = days_from(date(2025, 1, 1), date(2025, 4, 1))
    alone = [(day, Decimal(5) if at == 50 else None) for at, day in enumerate(days)]
    pair = [(day, Decimal(5) if at in (50, 51) else None) for at, day in enumerate(days)]
    plot.write(here / "alone.svg", {"0x01": alone})
    plot.write(here / "pair.svg", {"0x01": pair})
    pictures = [(here / name).read_text() for name in ("alone.svg", "pair.svg")]
    dots, ticks = zip(*((picture.count("<use "), picture.count("tick")) for picture in pictures), strict=True)
    assert ticks[0] == ticks[1]
    assert dots[0] == dots[1] + 1
    assert all("not known" in picture for picture in pictures)


def test_without_the_library_a_picture_is_refused_with_the_remedy(
    run: Run, history_command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    ran = run(*history_command, "-o", "a.png")
    assert ran.code == 7
    assert 'pip install "chainfolio[plot]"' in ran.err


def test_a_run_says_how_far_it_is_and_what_is_probably_left(run: Run, history_command: list[str]) -> None:
    from chainfolio.cli.history import _Progress

    progress = _Progress(Environment().clock, [], 10, quiet=True)
    progress.done = 5
    assert progress._text(10.0) == "5 of 10 values, 0 requests, about 0 more, 10 s left"


def test_a_coin_without_a_price_makes_the_value_unknown_and_not_zero(
    run: Run, history_command: list[str], past: tuple[LocalNode, str]
) -> None:
    Path("chainfolio.toml").write_text("")
    first, second = run(*history_command, "--json"), run(*history_command, "--json")
    assert first.json == second.json
    (account,) = first.json
    for at, day in enumerate(account["days"]):
        (part,) = day["chains"]
        assert (day["value"], day["completeness"], part["value"], part["completeness"]) == (None, "unpriced") * 2
        assert f"no source has a price of {2 * at + 1} eth at block {part['block']}" in day["reason"]
    output = run(*history_command)
    assert "0.00" not in output.out
    assert output.out.count("unpriced") == 2 * len(DAYS) - 2  # a row a day, and 5 of 7 reasons
    assert f"not known: {DAYS[0]} to {DAYS[-1]}" in run(*history_command, "--plot").out
    empty_account_command = [*history_command]
    empty_account_command[1] = "0x" + "78" * 20
    assert set(values(run(*empty_account_command, "--json")).values()) == {"0"}, (
        "who holds nothing has nothing, whatever it costs"
    )
