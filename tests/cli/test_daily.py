"""Daily snapshots are taken of the addresses of the settings and of subscribed ones."""

from __future__ import annotations

import random
from datetime import date
from pathlib import Path

import pytest

from chainfolio.assets import account
from chainfolio.cli.daily import keep_places, opened, schedule
from chainfolio.engine.history.day_blocks import midnight_us
from chainfolio.engine.service import Engine
from chainfolio.environment import Environment
from chainfolio.errors import BadSettings
from chainfolio.indexer.schedule import JobSchedule
from chainfolio.indexer.wiring import System
from chainfolio.settings import Settings, Snapshots
from chainfolio.settings_checks import check
from chainfolio.settings_file import load
from chainfolio.storage.state import State, subscriptions
from tests.cli.conftest import ALICE
from tests.indexer.clock import ManualClock

BOB = "0x" + "b0" * 20
CAROL = "0x" + "ca" * 20
DAY = date(2024, 2, 29)


async def test_they_are_those_of_the_settings_and_of_every_subscription_that_has_not_lapsed(tmp_path: Path) -> None:
    clock = ManualClock(midnight_us(DAY) / 1_000_000 + 3600)
    config = Settings(data=str(tmp_path), snapshots=Snapshots([ALICE], "2024-01-01"))
    system = System(config, Environment(clock=clock))
    database = opened(config)
    daily = schedule(Engine(system).history, JobSchedule(), database)
    assert await daily.first_days() == {account(ALICE): date(2024, 1, 1)}
    assert not (tmp_path / "state.db").exists()
    with_state = State.open(config.state_url, bytes(32), clock, random.Random(1))
    first_owner, second_owner = (with_state.create_account(name)[0].id for name in ("one", "other"))
    now_us, year_us = clock.now_us(), 400 * 86_400_000_000
    for owner, address, began_us in (
        (first_owner, BOB, now_us - 86_400_000_000),
        (second_owner, BOB, now_us),
        (first_owner, CAROL, 0),
    ):
        with_state.database.write(
            lambda tx, owner=owner, address=address, began_us=began_us: subscriptions.add(  # type: ignore[misc]
                tx, owner, {address: ""}, began_us or now_us - year_us
            )
        )
    assert await daily.first_days() == {account(ALICE): date(2024, 1, 1), account(BOB): date(2024, 2, 28)}
    with_state.close()
    if (store := database()) is not None:
        store.close()
    await system.close()


async def test_every_running_subscription_gets_its_place_again_and_again(tmp_path: Path) -> None:
    (tmp_path / "chainfolio.toml").write_text(
        f'data = "{tmp_path}"\n[chains.ethereum]\nrpc = ["http://127.0.0.1:9"]\nindex = "accounts"\n'
    )
    config, clock = load(tmp_path / "chainfolio.toml"), ManualClock()
    system = System(config, Environment(clock=clock))
    state = State.open(config.state_url, bytes(32), clock, random.Random(1))
    owner = state.create_account("one")[0].id

    async def watched_accounts() -> list[str]:
        await keep_places(system, lambda: state.database)
        return [each.account for each in system.tail.owned_watches("ethereum", clock.now_us())]

    assert await watched_accounts() == []
    for address, expected in ((BOB, [BOB]), (CAROL, sorted([BOB, CAROL]))):
        state.database.write(
            lambda tx, address=address: subscriptions.add(  # type: ignore[misc]
                tx, owner, {address: ""}, clock.now_us()
            )
        )
        assert await watched_accounts() == await watched_accounts() == expected
    state.close()
    await system.close()


@pytest.mark.parametrize(
    ("snapshots", "message"),
    [
        (Snapshots(["0x12"]), "snapshots.addresses"),
        (Snapshots([ALICE], "2023-02-29"), "snapshots.since: `2023-02-29` is not a day"),
        (Snapshots([ALICE], "20240101"), "snapshots.since: `20240101` is not a day"),
    ],
)
def test_what_cannot_be_meant_in_the_settings_is_named(snapshots: Snapshots, message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        check(Settings(snapshots=snapshots))
