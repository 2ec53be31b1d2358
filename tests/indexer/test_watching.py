"""Watched accounts in a running process: they are indexed while it works, and requests add them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chainfolio.assets import Account
from chainfolio.blocks import Span, Spans
from chainfolio.chain_results import SpanTables
from chainfolio.chain_settings import ACCOUNTS, EVERYTHING
from chainfolio.engine.service import Engine
from chainfolio.environment import Environment
from chainfolio.indexer import collect
from chainfolio.indexer.reorg_recovery import recover_reorg
from chainfolio.indexer.repair import repair
from chainfolio.indexer.schedule import JobSchedule
from chainfolio.indexer.scopes import Scope, indexed_for
from chainfolio.indexer.scrub import check_files, list_files
from chainfolio.indexer.watching import index_accounts, watch_accounts, watch_subscriptions
from chainfolio.indexer.wiring import System
from chainfolio.indexer.worker import Worker
from chainfolio.settings import Accounts, Settings
from chainfolio.storage.watches import WatchedAccount
from chainfolio.supervisor import Supervisor
from chainfolio.tables import TABLES
from tests.chains.index import IndexOf, index
from tests.chains.invented.chainfolio_invented.chain import InventedChain
from tests.chains.invented.chainfolio_invented.ledger import ACCOUNTS as WALLETS
from tests.chains.invented_subject import KEY, InventedSubject
from tests.chains.subject import FINALITY
from tests.indexer.test_scopes import plain, whole_histories
from tests.indexer.test_supervised import Quick, wait_until

A, B = WALLETS[:2]
BLOCKS = 160
Invented = IndexOf[InventedChain]


def system_of(live: Invented, scope: str, max_accounts: int = 10, most_of_account: int = 10, days: int = 30) -> System:
    settings = msgspec.structs.replace(live.chain.settings, index=scope)
    live.chain.settings = settings
    settings_of_system = Settings(chains={KEY: settings}, accounts=Accounts([], max_accounts, most_of_account, days))
    system = System(settings_of_system, Environment(clock=Quick(1_800_000_000.0)))
    system._lake, system._tail, system._chains = live.lake, live.tail, {KEY: live.chain}
    return system


@asynccontextmanager
async def working(live: Invented, scope: str) -> AsyncIterator[Engine]:
    system = system_of(live, scope, days=1_000_000)  # the clock runs fast
    supervisor = Supervisor(system.environment.clock)
    worker = Worker(system, JobSchedule(supervisor=supervisor))
    async with worker.running():
        yield Engine(system, worker.status, supervisor)


def is_whole(live: Invented, subject: InventedSubject, account: str) -> Callable[[], bool]:
    def is_known() -> bool:
        return indexed_for(live.tail, KEY, "transfers", account) == Spans([Span(0, subject.height)])

    return is_known


async def test_a_worker_takes_up_what_requests_have_watched_and_follows_it(tmp_path: Path) -> None:
    """Index no other data of the chain, and reorganise its newest block."""
    subject = InventedSubject(BLOCKS)
    async with index(subject, tmp_path) as live:
        async with working(live, ACCOUNTS) as engine:
            await asyncio.sleep(0.05)
            assert live.tail.all_ranges(KEY) == [], "nobody is watched yet, and nothing else is wanted"
            for account in (A, B):
                await engine.watch("acc_1", [Account("invented", account)])
                await wait_until(is_whole(live, subject, account))
                (status,) = await engine.status([Account("invented", account)])
                assert not status.in_progress
                subject.reorg(3)
                subject.trade(5, seed=len(account))
                await wait_until(is_whole(live, subject, account))
        await whole_histories(live, subject)
        assert not live.tail.indexed_ranges(KEY, "transfers"), "nothing of anybody else"
        assert len(live.rows("transfers")) < len(subject.rows(Span(0, subject.height))["transfers"])


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_an_account_that_is_watched_while_the_whole_chain_is_indexed_is_read_first_and_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "BATCH_BLOCKS", 10)
    subject = InventedSubject(400)
    async with index(subject, tmp_path, span=5) as live:
        usual, range_counts = live.chain.collect_accounts, list[int]()

        async def spied(span: Span, accounts: Sequence[str], *more: Any, **named: Any) -> SpanTables:
            range_counts.append(len(live.tail.indexed_ranges(KEY, "transfers")))
            return await usual(span, accounts, *more, **named)

        live.chain.collect_accounts = spied  # type: ignore[method-assign]
        async with working(live, EVERYTHING) as engine:
            await wait_until(lambda: live.tail.all_ranges(KEY))
            live.tail.watch(KEY, [WatchedAccount(A, 0)])
            await wait_until(is_whole(live, subject, A))
            assert 0 < range_counts[0] < subject.height - FINALITY, "in the middle of the index of everything"
            await wait_until(lambda: live.tail.indexed_ranges(KEY, "transfers") == Spans([Span(0, subject.height)]))
            (status,) = await engine.status([Account("invented", A)])
            assert status.transactions_us is not None
        await whole_histories(live, subject)
        assert live.rows("transfers") == plain(subject, live)


async def test_requests_have_no_more_accounts_watched_than_the_operator_lets_them(tmp_path: Path) -> None:
    subject = InventedSubject(BLOCKS)
    async with index(subject, tmp_path) as live:
        system = system_of(live, ACCOUNTS, max_accounts=3, most_of_account=2)
        for owner in ("acc_1", "acc_2"):
            for wallet in WALLETS:
                watch_accounts(system, owner, [Account("invented", wallet), Account("evm", "0x" + "1" * 40)])
                watch_accounts(system, owner, [Account("invented", wallet)])
        watched = [
            (each.owner, each.account) for each in live.tail.owned_watches(KEY, system.environment.clock.now_us())
        ]
        assert sorted(watched) == sorted([("acc_1", WALLETS[0]), ("acc_1", WALLETS[1]), ("acc_2", WALLETS[0])])


async def test_a_subscriber_is_watched_however_many_places_others_have(tmp_path: Path) -> None:
    subject = InventedSubject(BLOCKS)
    async with index(subject, tmp_path) as live:
        system = system_of(live, ACCOUNTS, max_accounts=1, most_of_account=1)
        now_us = system.environment.clock.now_us()
        watch_accounts(system, "acc_1", [Account("invented", each) for each in WALLETS])
        for _ in range(2):
            watch_subscriptions(
                system, [("acc_2", Account("invented", B), now_us + 1000), ("acc_2", Account("evm", "0x1"), 1)]
            )
        assert {each.account for each in system.scope(live.chain).watches} == {A, B}
        await index_accounts(system, live.chain, system.scope(live.chain))
        assert is_whole(live, subject, B)()


async def test_a_place_that_was_synced_ends_after_its_days(tmp_path: Path) -> None:
    subject = InventedSubject(BLOCKS)
    async with index(subject, tmp_path) as live:
        system = system_of(live, ACCOUNTS, max_accounts=1)
        clock = system.environment.clock
        assert isinstance(clock, Quick)
        watch_accounts(system, "acc_1", [Account("invented", A)])
        clock.now_s += 29 * 86_400
        watch_accounts(system, "acc_2", [Account("invented", B)])
        assert [each.account for each in system.scope(live.chain).watches] == [A]
        clock.now_s += 86_400
        assert system.scope(live.chain).watches == ()
        watch_accounts(system, "acc_2", [Account("invented", B)])
        assert [each.account for each in system.scope(live.chain).watches] == [B]


async def test_an_account_that_the_operator_watches_takes_no_place_of_requests(tmp_path: Path) -> None:
    subject = InventedSubject(BLOCKS)
    async with index(subject, tmp_path) as live:
        system = system_of(live, ACCOUNTS)
        live.tail.watch(KEY, [WatchedAccount(A, 0)])
        watch_accounts(system, "acc_1", [Account("invented", A)])
        assert live.tail.owned_watches(KEY, 0) == []


async def test_requests_have_nobody_watched_on_a_chain_that_is_indexed_for_everybody(tmp_path: Path) -> None:
    subject = InventedSubject(BLOCKS)
    async with index(subject, tmp_path) as live:
        await live.fill_final()
        await live.follower().step()
        system = system_of(live, EVERYTHING)
        watch_accounts(system, "acc_1", [Account("invented", A)])
        watch_subscriptions(system, [("acc_1", Account("invented", A), system.environment.clock.now_us() + 1000)])
        assert live.tail.watches(KEY) == []


async def test_a_final_past_that_changed_is_read_again_for_the_accounts(tmp_path: Path) -> None:
    subject = InventedSubject(BLOCKS)
    subject.fork(30)
    async with index(subject, tmp_path) as live:
        system, scope = system_of(live, ACCOUNTS), Scope((WatchedAccount(A, 0),))
        live.tail.watch(KEY, scope.watches)
        await index_accounts(system, live.chain, scope)
        for _ in range(3):  # so that the blocks that change are final, and were followed
            subject.mine(40)
            follower = system.follower(live.chain)
            await follower.step()
            follower.finalise((await live.chain.heads()).finalized)
        subject.ledger.reorg(90, "deep")
        first = await recover_reorg(live.chain, live.lake, live.tail)
        assert first is not None
        assert indexed_for(live.tail, KEY, "transfers", A) == Spans([Span(0, first - 1)])
        await index_accounts(system, live.chain, scope)
        assert is_whole(live, subject, A)()
        await whole_histories(live, subject)


async def test_a_damaged_file_is_made_good_for_the_accounts_that_it_was_of(tmp_path: Path) -> None:
    subject = InventedSubject(BLOCKS)
    async with index(subject, tmp_path) as live:
        system, scope = system_of(live, ACCOUNTS), Scope((WatchedAccount(A, 0), WatchedAccount(B, 20, 60)))
        live.tail.watch(KEY, scope.watches)
        await index_accounts(system, live.chain, scope)
        before, covers = live.rows("transfers"), live.tail.all_ranges(KEY)
        for table in ("transfers", "account_transfers"):
            (file, *_) = (Path(each) for each in live.lake.files(TABLES[table]))
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 8
            file.write_bytes(content)
        damaged = [
            each for each in check_files(live.lake, list_files(live.lake), lambda _: None) if each.state == "damaged"
        ]
        assert len(damaged) == 2
        await repair(live.chain, live.lake, live.tail, live.environment, damaged)
        assert live.rows("transfers") == before
        assert live.tail.all_ranges(KEY) == covers
        await whole_histories(live, subject)
        assert {each.state for each in check_files(live.lake, list_files(live.lake), lambda _: None)} == {"sound"}
