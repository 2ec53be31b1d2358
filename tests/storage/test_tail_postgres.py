"""The tail loses nothing on a PostgreSQL that is down, read-only, restarted, upgraded or shared."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from chainfolio.blocks import Block, Span, Spans
from chainfolio.errors import Locked, StoreError
from chainfolio.storage import tail_postgres
from chainfolio.storage.lake import Lake
from chainfolio.storage.state import open_database
from chainfolio.storage.tail import Tail, TailBlock
from chainfolio.storage.watches import WatchedAccount
from chainfolio.tables import BLOCKS
from tests.depth import IS_DEEP
from tests.storage import appender
from tests.storage.stores import NO_POSTGRES, Server, Stores, own_server

CRASHES = 100 if IS_DEEP else 5


@pytest.fixture(scope="module")
def machine() -> Iterator[Server]:
    with own_server() as server:
        if server is None:
            pytest.skip(NO_POSTGRES)
        yield server


@pytest.fixture
def url(machine: Server) -> str:
    """A database of a server that the test may stop."""
    return machine.new_database("own")


@pytest.fixture
def tail(url: str) -> Iterator[Tail]:
    opened = Tail(url)
    yield opened
    opened.close()


def entry(height: int) -> TailBlock:
    return TailBlock(Block(height, f"{height}", f"{height - 1}", height), {"logs": b"\x00" * 9})


def restart(machine: Server) -> None:
    machine.stop()
    machine.start()


def run(url: str, sql: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.encode())


def change(tail: Tail, interrupt: Callable[[], None], statements: list[str]) -> None:
    """One transaction with an interruption in its middle."""
    with tail._write("a") as tx:
        tx.run("DELETE FROM blocks")
        interrupt()
        for sql in statements:
            tx.run(sql)


def test_a_restarted_server_is_used_again_and_the_locks_stay_ours(machine: Server, tail: Tail) -> None:
    tail.put("a", [entry(1)])
    with tail.lock("a"):
        restart(machine)
        assert tail.top("a") == entry(1).block
        restart(machine)
        tail.put("a", [entry(2)])
        second_tail = Tail(str(tail.place))
        with pytest.raises(Locked, match="chain a is held by process"), second_tail.lock("a"):
            pass
        second_tail.close()
    with tail.lock("a"):
        tail.put("a", [entry(3)])
    assert [each.height for each in tail.blocks("a")] == [1, 2, 3]


def test_a_lock_that_somebody_else_had_meanwhile_is_lost_for_its_chain_alone(machine: Server, tail: Tail) -> None:
    with tail.lock("a"), tail.lock("b"):
        batch = tail.open_batch("a", Span(0, 9), ["logs"])
        restart(machine)
        second_tail = Tail(str(tail.place))
        with second_tail.lock("a"):
            second_tail.close_batch(second_tail.open_batches("a")[0])
        second_tail.close()
        with pytest.raises(Locked, match="the lock a was lost") as caught:
            tail.close_batch(batch)
        assert "continues from what is stored" in caught.value.remedy
        with pytest.raises(Locked, match="the lock a was lost"):
            tail.open_batch("a", Span(10, 19), ["logs"])
        tail.put("b", [entry(1)])
    with tail.lock("a"):
        assert tail.open_batch("a", Span(10, 19), ["logs"]).number == 2


def test_a_server_that_restarts_in_the_middle_of_a_write_keeps_none_of_it(machine: Server, tail: Tail) -> None:
    tail.put("a", [entry(1)])
    for changes in (["DELETE FROM rows"], []):  # without, the commit is the next that is sent
        with pytest.raises(Locked, match="cannot be reached"):
            change(tail, lambda: restart(machine), changes)
        assert tail.top("a") == entry(1).block
    assert tail.rows("a", "logs", 0, 9) == [(1, b"\x00" * 9)]


def test_a_server_that_is_away_is_said_to_be_away_and_used_once_it_is_back(machine: Server, tail: Tail) -> None:
    machine.stop()
    try:
        calls: list[Callable[[], object]] = [
            lambda: tail.top("a"),
            lambda: tail.put("a", [entry(1)]),
            lambda: Tail(str(tail.place)),
        ]
        for call in calls:
            with pytest.raises(Locked, match=r"postgresql://\S+ cannot be reached") as caught:
                call()
            assert caught.value.remedy == "check that PostgreSQL runs, and tail.url"
        with pytest.raises(Locked, match="cannot be reached"), tail.lock("a"):
            pass
    finally:
        machine.start()
    with tail.lock("a"):
        tail.put("a", [entry(1)])


def test_a_password_is_in_no_message() -> None:
    with pytest.raises(Locked, match="cannot be reached") as caught:
        Tail("postgresql://somebody:secret-word@127.0.0.1:1/nothing")
    assert "secret-word" not in f"{caught.value} {caught.value.remedy} {caught.value.__cause__!r}"


def test_a_read_only_server_is_read_and_says_that_it_cannot_be_written(machine: Server, url: str, tail: Tail) -> None:
    tail.put("a", [entry(1)])
    run(url, "ALTER DATABASE own SET default_transaction_read_only = on")
    with Reopened(url) as reopened:
        assert reopened.top("a") == entry(1).block
        with pytest.raises(StoreError, match="is read-only") as caught:
            reopened.put("a", [entry(2)])
        assert caught.value.remedy == "let tail.url name the primary server, which can be written"
        with pytest.raises(StoreError, match="is read-only"), reopened.lock("a"):
            pass
    run(machine.url, "ALTER DATABASE own RESET default_transaction_read_only")
    with tail.lock("a"):  # the refused attempt left no lock
        pass


class Reopened:
    """A tail once more, closed at the end of the block."""

    def __init__(self, url: str) -> None:
        self._tail = Tail(url)

    def __enter__(self) -> Tail:
        return self._tail

    def __exit__(self, *_: object) -> None:
        self._tail.close()


def test_a_later_revision_is_refused_with_the_fix(url: str, tail: Tail) -> None:
    run(url, "UPDATE tail_version SET version_num = '0002'")
    with pytest.raises(StoreError, match="has revision 0002, this release reads revision 0001") as caught:
        Tail(url)
    assert "use the release of Chainfolio that wrote it" in caught.value.remedy


def test_a_migration_that_fails_half_way_leaves_nothing(url: str) -> None:
    run(url, "CREATE TABLE prices (x bigint)")
    with pytest.raises(StoreError, match="DuplicateTable"):
        Tail(url)
    with psycopg.connect(url) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    assert names == [("prices",)]


def test_a_user_without_rights_is_told_which_ones_it_needs(machine: Server, url: str) -> None:
    run(url, "DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN")
    with pytest.raises(StoreError, match="does not let the user do this") as caught:
        Tail(url.replace("chainfolio@", "guest@"))
    assert "CREATE and USAGE" in caught.value.remedy
    run(url, "GRANT CREATE ON SCHEMA public TO guest")
    with Reopened(url.replace("chainfolio@", "guest@")) as tail, tail.lock("a"):
        tail.put("a", [entry(1)])


def test_state_and_tail_share_a_database(stores: Stores) -> None:
    location = stores.url("postgresql")  # it has the tables of the state
    with Reopened(location) as tail:
        tail.put("a", [entry(1)])
        assert tail.top("a") == entry(1).block


def test_both_databases_have_the_same_tables_columns_and_keys(stores: Stores, tail: Tail) -> None:
    lite = Tail(stores.tail("sqlite"))
    columns = lite._read(
        'SELECT m.name, p.name, p.type, p."notnull" OR p.pk, p.pk FROM sqlite_schema m, pragma_table_info(m.name) p '
        "WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, p.cid"
    )
    lite.close()
    postgres_columns = tail._read(
        "SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, "
        "coalesce(array_position(i.indkey::int2[], a.attnum), -1) + 1 FROM pg_class c "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 "
        "LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary "
        "WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace "
        "AND c.relname NOT IN ('tail_version', 'holders') ORDER BY c.relname COLLATE \"C\", a.attnum"
    )
    types = {"bigint": "INTEGER", "text": "TEXT", "bytea": "BLOB"}
    assert [(*each[:2], types[each[2]], int(each[3]), each[4]) for each in postgres_columns] == columns


def test_texts_have_the_order_of_their_bytes_in_a_database_of_any_language(machine: Server, url: str) -> None:
    run(machine.url, "DROP DATABASE IF EXISTS english WITH (FORCE)")
    run(machine.url, "CREATE DATABASE english TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en'")
    with Reopened(url.replace("/own?", "/english?")) as tail:
        tail.watch("a", [WatchedAccount(each, 1) for each in ("a", "B", "b", "A")])
        assert [each.account for each in tail.watches("a")] == ["A", "B", "a", "b"]


def test_prices_that_are_stored_again_use_up_no_numbers(tail: Tail) -> None:
    for _ in range(5):
        tail.store_prices("a", Block(1, "", "", 1), {"x": b"1"})
    tail.store_prices("a", Block(1, "", "", 1), {"y": b"2"})
    assert [number for number, *_ in tail.pending_prices("a", 9)] == [1, 2]


def test_writers_of_several_connections_take_turns(url: str, tail: Tail) -> None:
    def write(first: int) -> None:
        with Reopened(url) as writer_tail:
            for at in range(first, first + 25):
                writer_tail.add_ranges("a", [("logs", "")], Span(at, at))
                writer_tail.open_batch("a", Span(at, at), ["logs"])

    threads = [threading.Thread(target=write, args=(25 * part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tail.indexed_ranges("a", "logs") == Spans([Span(0, 99)])
    assert [each.number for each in tail.open_batches("a")] == list(range(1, 101))


def test_a_writer_that_is_frozen_in_a_transaction_keeps_others_waiting_only_for_a_while(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [each.replace("=10000", "=200") for each in tail_postgres._OPTIONS]
    monkeypatch.setattr(tail_postgres, "_OPTIONS", tuple(options))
    with Reopened(url) as frozen, Reopened(url) as second_tail:
        with pytest.raises(Locked, match="is busy"):
            change(
                frozen, lambda: second_tail.put("a", [entry(1)]), []
            )  # it waits for the server to end the transaction
        assert frozen.top("a") == entry(1).block
        frozen.put("a", [entry(2)])


def test_the_lock_of_a_frozen_process_is_taken_and_it_writes_nothing_more(
    url: str, tail: Tail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_postgres, "FROZEN_S", 0.5)
    monkeypatch.setattr(tail_postgres, "BEAT_S", 60.0)
    with Reopened(url) as frozen:
        with frozen.lock("a"):  # a process without beats
            batch = frozen.open_batch("a", Span(0, 9), ["logs"])
            with pytest.raises(Locked, match="chain a is held by process"), tail.lock("a"):
                pass
            with tail.hold("a", "chain a", wait=True):
                tail.close_batch(tail.open_batches("a")[0])
            with pytest.raises(Locked, match="the lock a was lost"):
                frozen.close_batch(batch)
            with pytest.raises(Locked, match="the lock a was lost"):
                frozen.put("a", [entry(1)])
            frozen.put("b", [entry(1)])
        with frozen.lock("a"):
            assert frozen.open_batch("a", Span(10, 19), ["logs"]).number == 2


def test_a_process_that_lives_keeps_its_lock_without_writing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_postgres, "FROZEN_S", 1.0)
    monkeypatch.setattr(tail_postgres, "BEAT_S", 0.1)
    with Reopened(url) as holder, Reopened(url) as second_tail, holder.lock("a"):
        for _ in range(20):
            with pytest.raises(Locked, match="chain a is held by process"), second_tail.lock("a"):
                pass
            time.sleep(0.1)
        holder.put("a", [entry(1)])


@pytest.mark.slow("many crashes; another test restarts in the middle of a write")
def test_a_server_that_crashes_again_and_again_loses_and_doubles_nothing(
    machine: Server, tail: Tail, tmp_path: Path
) -> None:
    location, chance, ends = str(tail.place), random.Random(7), threading.Event()

    def work() -> None:
        while not ends.is_set():
            with suppress(StoreError):
                appender.write(tmp_path, location, batches=6)

    writers = [threading.Thread(target=work) for _ in range(2)]
    for writer in writers:
        writer.start()
    for _ in range(CRASHES):
        time.sleep(chance.uniform(0.05, 0.7))
        restart(machine)
    ends.set()
    for writer in writers:
        writer.join()
    appender.write(tmp_path, location, batches=3)
    (indexed,) = tail.indexed_ranges("a", "blocks")
    heights = Lake(str(tmp_path / "lake")).scan(BLOCKS, chain="a").collect()["height"].to_list()
    assert sorted(heights) == list(range(indexed.last + 1))
    assert indexed.last > 20 * CRASHES, "the writers came on between the crashes"
    assert tail.open_batches("a") == []


def test_a_server_of_another_timeline_is_not_trusted_with_our_locks(
    machine: Server, tail: Tail, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tail.lock("a"):
        monkeypatch.setattr(tail_postgres, "_TIMELINE", "SELECT '00000002'")  # what a promoted replica says
        restart(machine)
        with pytest.raises(Locked, match="the lock a was lost"):
            tail.put("a", [entry(1)])
    with tail.lock("a"):
        tail.put("a", [entry(1)])


def test_a_closed_store_opens_no_new_connection(url: str) -> None:
    """A thread may use the store later than its task, which was cancelled and whose owner closed the store."""
    tail = Tail(url)
    state = open_database(url)
    state.read(lambda tx: None)
    tail.close()
    state.close()
    with pytest.raises(StoreError, match="tail: it was closed"):
        tail.top("a")
    with pytest.raises(StoreError, match="state: it was closed"):
        state.read(lambda tx: None)
