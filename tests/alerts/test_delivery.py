"""Events reach their receivers at least once and in order, in spite of faults of receivers and processes."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks import Webhook

from chainfolio.alerts.delivery import DELAYS_S, TRIED_US
from chainfolio.alerts.rules import secrets_of
from chainfolio.alerts.signing import PURPOSE
from chainfolio.errors import BadRequest, NotFound, StoreUnavailable
from chainfolio.settings import Alerts
from chainfolio.storage.state import alerts, deliveries
from chainfolio.storage.state.database import Transaction
from tests.alerts.receivers import Desk, Receiver, desk, receiver
from tests.depth import IS_DEEP
from tests.storage.stores import Stores

HOUR_US = 3_600_000_000


def secrets(at: Desk, rule: alerts.Rule) -> list[str]:
    target = at.state.database.read(lambda tx: alerts.target(tx, rule.target_id))
    assert target is not None
    return secrets_of(target, at.state.secret(PURPOSE), at.clock.now_us())


def rotate(at: Desk, rule: alerts.Rule, overlap_us: int = 24 * HOUR_US) -> None:
    now_us = at.clock.now_us()
    at.state.database.write(lambda tx: alerts.rotate(tx, rule.account_id, rule.target_id, overlap_us, now_us))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_events_come_signed_and_in_order(stores: Stores, kind: str) -> None:
    async with receiver() as receiving, desk(stores.url(kind)) as at:
        at.clock.now_s = time.time()
        rule = at.rule(receiving.url)
        ids = at.add_events(rule, 250)
        assert await at.deliverer.run_once() == 250
        assert receiving.ids == ids
        for headers, body in receiving.requests[:3]:
            content = Webhook(secrets(at, rule)[0]).verify(body, headers)
            assert (content["type"], content["data"]["rule"]) == ("credits.low", rule.id)
        assert {each.state for each in at.deliveries_of(rule)} == {"done"}
        assert await at.deliverer.run_once() == 0


async def test_two_rotations_in_a_day_end_no_secret_early(tmp_path: Path) -> None:
    async with receiver() as receiving, desk(tmp_path) as at:
        at.clock.now_s = time.time() - 3600
        rule = at.rule(receiving.url)
        (first,) = secrets(at, rule)
        rotate(at, rule)
        at.clock.now_s += 3600
        rotate(at, rule, HOUR_US)
        third, second, still_first = secrets(at, rule)
        assert still_first == first
        at.add_events(rule)
        await at.deliverer.run_once()
        headers, body = receiving.requests[0]
        for secret in (first, second, third):
            Webhook(secret).verify(body, headers)
        at.clock.now_s += 3600 + 1
        assert secrets(at, rule) == [third, first]
        at.clock.now_s += 22 * 3600
        assert secrets(at, rule) == [third]
        for _ in range(alerts.MAX_SECRETS - 1):
            rotate(at, rule)
        with pytest.raises(BadRequest, match="secrets are valid"):
            rotate(at, rule)


async def test_a_failing_receiver_is_tried_for_three_days_and_then_the_events_are_listed_as_dead(
    tmp_path: Path,
) -> None:
    async def failing(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=500)

    async with receiver(failing) as receiving, desk(tmp_path) as at:
        rule = at.rule(receiving.url)
        first, second = at.add_events(rule, 2)
        begin_us, attempts = at.clock.now_us(), 0
        while at.deliveries_of(rule)[0].state == "pending":
            attempts += await at.deliverer.run_once()
            at.clock.now_s += 1.11 * DELAYS_S[min(attempts, len(DELAYS_S)) - 1]
        assert receiving.ids[: attempts - 1] == [first] * (attempts - 1)
        assert at.clock.now_us() - begin_us >= TRIED_US
        assert 20 < attempts < 40
        dead = at.deliveries_of(rule)[0]
        assert (dead.state, dead.status, dead.error) == ("dead", 500, "answered 500")
        await at.deliverer.run_once()
        assert [each.state for each in at.deliveries_of(rule)] == ["dead", "dead"]
        receiving.conduct, receiving.requests = Receiver.conduct, []
        for each in at.deliveries_of(rule, "dead"):
            at.replay(rule.account_id, each.id)
        await at.deliverer.run_once()
        at.clock.now_s += DELAYS_S[-1] * 2
        await at.deliverer.run_once()
        assert receiving.ids == [first, second]


async def test_a_failing_receiver_delays_no_other_one_and_a_retry_goes_first(tmp_path: Path) -> None:
    calls = 0

    async def second_time(_: web.BaseRequest) -> web.StreamResponse:
        nonlocal calls
        calls += 1
        return web.Response(status=503 if calls == 1 else 204, headers={"Retry-After": "100"})

    async with receiver(second_time) as slow, receiver() as fast, desk(tmp_path) as at:
        first = at.rule(slow.url)
        other_rule = at.rule(fast.url, account=first.account_id)
        ids, other_ids = at.add_events(first, 3), at.add_events(other_rule, 3)
        await at.deliverer.run_once()
        assert (slow.ids, fast.ids) == (ids[:1], other_ids)
        at.clock.now_s += 50
        assert await at.deliverer.run_once() == 0  # the receiver asked for more time
        at.clock.now_s += 60
        await at.deliverer.run_once()
        assert slow.ids == [ids[0], *ids]


async def test_a_receiver_that_wants_no_more_is_not_tried_again(tmp_path: Path) -> None:
    async def respond_gone(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=410)

    async with receiver(respond_gone) as receiving, desk(tmp_path) as at:
        rule = at.rule(receiving.url)
        at.add_events(rule, 2)
        await at.deliverer.run_once()
        assert [each.state for each in at.deliveries_of(rule)] == ["dead", "dead"]


async def test_a_late_result_changes_no_event_of_another_account(tmp_path: Path) -> None:
    async with receiver() as receiving, desk(tmp_path) as at:
        own_rule = at.rule(receiving.url)
        at.add_events(own_rule, 2)
        now_us = at.clock.now_us()
        ((target, events),) = at.state.database.write(lambda tx: deliveries.claim(tx, now_us, now_us + 1, 9, 9))
        at.remove(own_rule.account_id, own_rule.id)
        later_us = now_us + 40 * 24 * HOUR_US
        assert at.state.database.write(lambda tx: deliveries.purge(tx, later_us, 24 * HOUR_US, 100)) == 2
        other_rule = at.rule(receiving.url)
        at.add_events(other_rule, 2)
        results = [deliveries.Attempt(each.id, now_us, "done", 200) for each in events]
        at.state.database.write(lambda tx: deliveries.record(tx, target, results, now_us, 0))
        assert [each.state for each in at.deliveries_of(other_rule)] == ["pending", "pending"]


async def test_only_the_last_claim_stores_failures_and_any_stores_deliveries(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        rule = at.rule("http://127.0.0.1:9/")
        first, second = at.add_events(rule, 2)
        now_us = at.clock.now_us()

        def claim(at_us: int) -> alerts.Target:
            ((target, _),) = at.state.database.write(lambda tx: deliveries.claim(tx, at_us, at_us + 10, 9, 9))
            return target

        late, new = claim(now_us), claim(now_us + 10)
        results = [deliveries.Attempt(first, now_us, "done"), deliveries.Attempt(second, now_us, "dead", None, "no")]
        at.state.database.write(lambda tx: deliveries.record(tx, late, results, now_us, 0))
        assert [each.state for each in at.deliveries_of(rule)] == ["done", "pending"]
        at.state.database.write(lambda tx: deliveries.record(tx, new, results[1:], now_us, 0))
        assert [each.state for each in at.deliveries_of(rule)] == ["done", "dead"]


async def test_the_log_is_bounded_by_age_and_number_but_keeps_what_may_be_corrected(tmp_path: Path) -> None:
    config = Alerts(keep_days=10, max_deliveries=3)
    async with receiver() as receiving, desk(tmp_path, config=config) as at:
        rule = at.rule(receiving.url)
        old = at.add_events(rule, 5)
        await at.deliverer.run_once()
        at.clock.now_s += 3601
        assert len(at.deliveries_of(rule)) == 5
        await at.deliverer.run_once()
        assert len(at.deliveries_of(rule)) == 5  # too young
        at.clock.now_s += 5 * 86400
        new = at.add_events(rule, 2)
        await at.deliverer.run_once()
        assert [each.id for each in at.deliveries_of(rule)] == [old[4], *new]
        at.clock.now_s += 11 * 86400
        await at.deliverer.run_once()
        assert at.deliveries_of(rule) == []


async def test_removing_a_rule_ends_its_deliveries_and_nobody_removes_anothers(tmp_path: Path) -> None:
    async with receiver() as receiving, desk(tmp_path) as at:
        own_rule, other_rule = at.rule(receiving.url), at.rule(receiving.url)
        at.add_events(own_rule)
        (event,) = at.deliveries_of(own_rule)
        for account, rule in ((other_rule.account_id, own_rule.id), (own_rule.account_id, "alr_none")):
            with pytest.raises(NotFound):
                at.remove(account, rule)
        with pytest.raises(NotFound):
            at.replay(other_rule.account_id, event.id)
        at.remove(own_rule.account_id, own_rule.id)
        await at.deliverer.run_once()
        assert receiving.requests == []
        assert at.deliveries_of(own_rule)[0].error == "the rule was removed"
        with pytest.raises(BadRequest, match="target was removed"):
            at.replay(own_rule.account_id, event.id)


async def test_a_result_that_cannot_be_stored_ends_no_other_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def briefly(_: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(0.3)
        return web.Response()

    async with receiver() as quick, receiver(briefly) as slow, desk(tmp_path) as at:
        bad, good = at.rule(quick.url), at.rule(slow.url)
        at.add_events(bad)
        at.add_events(good)
        record = deliveries.record

        def failing(tx: Transaction, target: alerts.Target, *rest: Any) -> None:
            if target.id == bad.target_id:
                raise StoreUnavailable("state", "gone")
            record(tx, target, *rest)

        monkeypatch.setattr(deliveries, "record", failing)
        assert await at.deliverer.run_once() == 1
        assert [each.state for each in (*at.deliveries_of(bad), *at.deliveries_of(good))] == ["pending", "done"]
        monkeypatch.undo()
        at.clock.now_s += 60
        assert await at.deliverer.run_once() == 1
        assert quick.ids[0] == quick.ids[1]


async def test_the_log_is_purged_while_deliveries_do_not_end(tmp_path: Path) -> None:
    config, rounds, max_deliveries = Alerts(keep_days=4), 0, 0

    async def busy(_: web.BaseRequest) -> web.StreamResponse:
        nonlocal max_deliveries
        max_deliveries = max(max_deliveries, len(at.deliveries_of(rule)))
        if len(receiving.requests) < 6:
            at.clock.now_s += 3 * 86_400
            at.add_events(rule)
        return web.Response()

    def progressed() -> None:
        nonlocal rounds
        rounds += 1

    async with receiver(busy) as receiving, desk(tmp_path, config=config) as at:
        rule = at.rule(receiving.url)
        at.add_events(rule)
        await at.deliverer.run_once(progressed)
        assert len(receiving.requests) == 6
        assert max_deliveries < 5
        assert rounds >= 6


async def test_no_event_of_a_rule_that_was_removed_meanwhile_is_stored(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        rule, other_rule = at.rule("http://127.0.0.1:9/"), at.rule("http://127.0.0.1:9/")
        at.remove(rule.account_id, rule.id)
        at.add_events(rule)
        at.add_events(other_rule)
        assert at.deliveries_of(rule) == []
        assert len(at.deliveries_of(other_rule)) == 1


async def test_an_event_wakes_a_target_that_a_deliverer_puts_to_rest_at_the_same_time(stores: Stores) -> None:
    async with desk(stores.url("postgresql")) as at:
        rule = at.rule("http://127.0.0.1:9/")
        at.add_events(rule)
        (event,) = at.deliveries_of(rule)
        now_us = at.clock.now_us()
        ((target, _),) = at.state.database.write(lambda tx: deliveries.claim(tx, now_us, now_us + 1, 9, 9))
        result = [deliveries.Attempt(event.id, now_us, "done")]
        at.state.database.write(lambda tx: deliveries.record(tx, target, result, now_us, 0))
        resting = threading.Event()

        def set_idle(tx: Transaction) -> None:
            assert deliveries.claim(tx, now_us, now_us + 1, 9, 9) == []
            resting.set()
            time.sleep(0.3)  # the event is stored meanwhile, or waits

        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(at.state.database.write, set_idle))
            assert await asyncio.to_thread(resting.wait, 10)
            group.create_task(asyncio.to_thread(at.add_events, rule))
        assert at.state.database.write(lambda tx: deliveries.claim(tx, now_us, now_us + 1, 9, 9))


async def test_a_rule_is_removed_while_a_result_of_its_target_is_stored(stores: Stores) -> None:
    async with desk(stores.url("postgresql")) as at:
        rule = at.rule("http://127.0.0.1:9/")
        (event,) = at.add_events(rule)
        now_us, claimed = at.clock.now_us(), threading.Event()

        def deliver(tx: Transaction) -> None:
            ((target, _),) = deliveries.claim(tx, now_us, now_us + 1, 9, 9)
            claimed.set()
            time.sleep(0.3)  # the rule is removed meanwhile, or waits
            result = [deliveries.Attempt(event, now_us, "done")]
            deliveries.record(tx, target, result, now_us, 0)

        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(at.state.database.write, deliver))
            assert await asyncio.to_thread(claimed.wait, 10)
            group.create_task(asyncio.to_thread(at.remove, rule.account_id, rule.id))
        assert [each.state for each in at.deliveries_of(rule)] == ["done"]


@pytest.mark.parametrize(
    "kills",
    [2, pytest.param(200 if IS_DEEP else 40, marks=pytest.mark.slow("many kills of a deliverer take a minute"))],
)
async def test_a_killed_deliverer_loses_nothing(tmp_path: Path, kills: int) -> None:
    count = 12 * kills

    async def briefly(_: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(0.002)
        return web.Response()

    async with receiver(briefly) as receiving, desk(tmp_path) as at:
        at.clock.now_s = time.time()
        rule = at.rule(receiving.url)
        ids = at.add_events(rule, count)
        command = [sys.executable, "-m", "tests.alerts.delivering", str(tmp_path)]
        for _ in range(kills):
            request_count = len(receiving.requests)
            process = await asyncio.create_subprocess_exec(*command)
            while len(receiving.requests) < request_count + 5 and process.returncode is None:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
            await process.wait()
        await (await asyncio.create_subprocess_exec(*command)).wait()
        assert [each.state for each in at.deliveries_of(rule)] == ["done"] * min(count, 1000)
        firsts = list(dict.fromkeys(receiving.ids))
        assert firsts == ids
        assert all(receiving.ids.count(each) <= kills + 1 for each in ids[:50])


async def test_a_command_and_a_file_get_the_event_as_json(tmp_path: Path) -> None:
    script, output = tmp_path / "append.py", tmp_path / "of command.jsonl"
    script.write_text("import sys; open(sys.argv[1], 'a').write(sys.stdin.read())")
    async with desk(tmp_path, timeout_s=20) as at:
        command = at.rule(f"{sys.executable} {script} '{output}'", "command")
        file = at.rule(str(tmp_path / "of file.jsonl"), "file")
        at.add_events(command, 2)
        at.add_events(file, 2)
        assert await at.deliverer.run_once() == 4
    numbers = {}
    for path in (output, output.with_stem("of file")):
        numbers[path.stem] = [json.loads(line)["data"]["number"] for line in path.read_text().splitlines()]
    assert numbers == {"of command": [0, 1], "of file": [2, 3]}


@pytest.mark.parametrize(
    ("kind", "address", "error"),
    [
        ("command", "no-such-program-here", "cannot be run"),
        ("command", "false", "ended with 1"),
        ("command", "'unbalanced", "cannot be run"),
        ("command", "sleep 60", "no answer within"),
        ("file", "/nowhere/alerts.jsonl", "cannot be written"),
    ],
)
async def test_a_command_or_file_that_fails_is_tried_again(tmp_path: Path, kind: str, address: str, error: str) -> None:
    async with desk(tmp_path, timeout_s=0.5 if "no answer" in error else 20) as at:
        rule = at.rule(address, kind)
        at.add_events(rule)
        await at.deliverer.run_once()
        (event,) = at.deliveries_of(rule)
        assert (event.state, event.attempts) == ("pending", 1)
        assert error in event.error
