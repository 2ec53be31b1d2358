"""Cron expressions: what they mean, and which are refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from chainfolio.cron import Cron, CronError, parse_cron
from chainfolio.errors import BadSettings
from chainfolio.settings import JOBS, Schedule, Settings
from chainfolio.settings_checks import check
from chainfolio.settings_file import load

ALL_MONTHS, ALL_DAYS, ALL_WEEKDAYS = tuple(range(1, 13)), tuple(range(1, 32)), tuple(range(7))


@pytest.mark.parametrize(
    ("text", "cron"),
    [
        ("30 3 * * *", Cron((0,), (30,), (3,), ALL_DAYS, ALL_MONTHS, ALL_WEEKDAYS)),
        ("*/30 0 0 1 1 *", Cron((0, 30), (0,), (0,), (1,), (1,), ALL_WEEKDAYS)),
        ("0 0 * * 5-7", Cron((0,), (0,), (0,), ALL_DAYS, ALL_MONTHS, (0, 5, 6))),
        ("0 0 * * SUN,tue", Cron((0,), (0,), (0,), ALL_DAYS, ALL_MONTHS, (0, 2))),
        ("5/20 1-7/3 * feb-mar *", Cron((0,), (5, 25, 45), (1, 4, 7), ALL_DAYS, (2, 3), ALL_WEEKDAYS)),
        ("0 0 29 2 *", Cron((0,), (0,), (0,), (29,), (2,), ALL_WEEKDAYS)),
    ],
)
def test_an_expression_is_parsed_as_crontab_means_it(text: str, cron: Cron) -> None:
    assert parse_cron(text) == cron


BAD = {
    "": "five fields",
    "* * * *": "five fields",
    "* " * 200: "five fields",
    "60 * * * *": "minute has `60`",
    "* 24 * * *": "hour has `24`",
    "* * 0 * *": "day has `0`",
    "* * * 13 *": "month has `13`",
    "* * * * 8": "day of the week has `8`",
    "* * * * jan": "day of the week has `jan`",
    "*/0 * * * *": "step of 0",
    "*/99 * * * *": "step of 99",
    "5-1 * * * *": "ends before it begins",
    "1,,2 * * * *": "no value, range or step",
    "-1 * * * *": "no value, range or step",
    "*-5 * * * *": "no value, range or step",
    "1.5 * * * *": "no value, range or step",
    "@daily": "five fields",
    "0 0 31 2 *": "never fires",
    "0 0 30 2 *": "never fires",
    "0 0 31 4,6,9,11 *": "never fires",
    "0 0 13 * 5": "restrict one of them",
}


@pytest.mark.parametrize(("text", "message"), BAD.items())
def test_a_wrong_expression_or_one_that_never_fires_is_refused(text: str, message: str) -> None:
    with pytest.raises(CronError, match=message):
        parse_cron(text)


@pytest.mark.parametrize("name", JOBS)
def test_the_setting_with_a_wrong_expression_is_named(name: str) -> None:
    with pytest.raises(BadSettings, match=rf"schedule\.{name}: `0 0 31 2 \*`: it never fires"):
        check(Settings(schedule=msgspec.structs.replace(Schedule(), **{name: "0 0 31 2 *"})))
    check(Settings(schedule=msgspec.structs.replace(Schedule(), **{name: ""})))


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (Schedule(time_zone="Europe/Nowhere"), "schedule.time_zone: `Europe/Nowhere` is no time zone"),
        (Schedule(time_zone="../etc/passwd"), "schedule.time_zone"),
        (Schedule(time_zone=""), "schedule.time_zone"),
        (Schedule(jitter_s=-1), "schedule.jitter_s"),
        (Schedule(jitter_s=3601), "schedule.jitter_s"),
        (Schedule(misfire_grace_s=0), "schedule.misfire_grace_s"),
    ],
)
def test_other_wrong_settings_of_the_schedule_are_named(schedule: Schedule, message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        check(Settings(schedule=schedule))


def test_the_defaults_are_valid_and_variables_override_them(tmp_path: Path) -> None:
    for name in JOBS:
        parse_cron(getattr(Schedule(), name))
    (tmp_path / "c.toml").write_text('[schedule]\ntime_zone = "Europe/Zurich"\nprices = "0 4 * * mon"\n')
    loaded = load(tmp_path / "c.toml", {"CHAINFOLIO_SCHEDULE_CHECK": "0 5 * * *"}).schedule
    assert (loaded.time_zone, loaded.prices, loaded.check) == ("Europe/Zurich", "0 4 * * mon", "0 5 * * *")
    with pytest.raises(BadSettings, match=r"schedule\.check"):
        load(tmp_path / "c.toml", {"CHAINFOLIO_SCHEDULE_CHECK": "daily"})
