"""Every state of a validator and every kind of credentials, on a real server over a local chain; and what
others deposit for a validator."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.beacon.epochs import Deposits
from chainfolio.adapters.beacon.reader import Reader
from chainfolio.cli.main import main
from chainfolio.errors import HistoryUnavailable
from chainfolio.indexer.wiring import System
from chainfolio.localchain.beacon import BeaconRuntime
from chainfolio.settings_file import load
from chainfolio.staking_tables import DEPOSITS, STAKE_CHANGES, STAKE_REQUESTS, VALIDATORS
from tests.beacon.conftest import ETH, started, stored
from tests.beacon.test_served import GWEI, served

pytestmark = pytest.mark.node
EXITED, SLASHED, COMPOUNDING, TOPPED_UP, LEFT = 9, 11, 20, 3, 21
NEW, OF_BLS = 64, 65  # validators that are deposited
BLS = "0x00" + "b1" * 31
STRANGERS = "0x01" + "00" * 11 + "57" * 20
NINE = {
    "pending_initialized": "pending",
    "pending_queued": "pending",
    **{
        each: each
        for each in (
            "active_ongoing",
            "active_exiting",
            "active_slashed",
            "exited_unslashed",
            "exited_slashed",
            "withdrawal_possible",
            "withdrawal_done",
        )
    },
}


@contextmanager
def lived() -> Iterator[BeaconRuntime]:
    """A chain to which each kind of change has been sent."""
    running = started(validators=NEW)
    try:
        running.advance(16)
        running.do("exit", validators=[EXITED])
        running.do("slash", validators=[SLASHED])
        running.do("deposit", amount=32 * ETH)
        running.do("deposit", amount=32 * ETH, credentials=BLS)
        running.do("deposit", validator=TOPPED_UP, amount=2 * ETH)
        running.do("deposit", validator=TOPPED_UP, amount=ETH, credentials=STRANGERS)
        running.do("withdraw", validator=LEFT, amount=0)
        running.do("consolidate", source=COMPOUNDING, target=COMPOUNDING)
        yield running
    finally:
        running.__exit__(None, None, None)


@pytest.fixture
def node() -> Iterator[BeaconRuntime]:
    with lived() as running:
        yield running


@pytest.fixture(scope="module")
def grown_node() -> Iterator[BeaconRuntime]:
    """Yield that chain 80 slots later; tests only read it."""
    with lived() as running:
        running.advance(80)
        yield running


def settings_of(node: BeaconRuntime, folder: Path, extra: str = "") -> Path:
    config = folder / "chainfolio.toml"
    config.write_text(f'[chains.own]\nadapter = "beacon"\nrpc = ["{node.url}"]\n{extra}')
    return config


def states(node: BeaconRuntime) -> dict[int, dict[str, Any]]:
    """The validators that are looked at, as the node tells them now."""
    indexes = ",".join(map(str, (EXITED, SLASHED, NEW, OF_BLS)))
    rows = node.call(f"/eth/v1/beacon/states/head/validators?id={indexes}")["data"]
    return {int(each["index"]): each for each in rows}


async def test_the_nine_states_of_a_node_are_the_eight_of_the_service(node: BeaconRuntime, tmp_path: Path) -> None:
    statuses: dict[str, str] = {}
    async with served(load(settings_of(node, tmp_path))) as client:
        for _ in range(400):
            await asyncio.to_thread(node.advance, 1)
            for index, state in (await asyncio.to_thread(states, node)).items():
                if state["status"] not in statuses:
                    status, document = await client.get(f"/details/index/{index}")
                    assert status == 200, document
                    statuses[state["status"]] = document["validator"]["status"]
                    assert document["validator"]["slashed"] == state["validator"]["slashed"]
            if len(statuses) == len(NINE):
                break
    assert statuses == NINE


async def test_credentials_of_every_prefix_say_to_whom_they_withdraw(grown_node: BeaconRuntime, tmp_path: Path) -> None:
    node = grown_node
    async with served(load(settings_of(node, tmp_path))) as client:
        for index, prefix in ((OF_BLS, 0), (NEW, 1), (COMPOUNDING, 2)):
            status, document = await client.get(f"/details/index/{index}")
            validator = node.call(f"/eth/v1/beacon/states/head/validators/{index}")["data"]["validator"]
            credential = validator["withdrawal_credentials"]
            assert status == 200, document
            assert int(credential[2:4], 16) == prefix
            assert document["withdrawalCredentials"] == {
                "prefix": prefix,
                "credential": credential,
                "address": f"0x{credential[-40:]}" if prefix else None,
            }


@pytest.mark.slow("a history of its own for each way to choose", fast=["address"])
@pytest.mark.parametrize("chosen", ["", "index", "key", "address"])
def test_a_deposit_that_somebody_else_makes_is_a_row_of_its_validator(
    grown_node: BeaconRuntime, tmp_path: Path, chosen: str
) -> None:
    node = grown_node
    states = node.call(f"/eth/v1/beacon/states/head/validators?id={TOPPED_UP},{LEFT}")["data"]
    (credentials, pubkey), (other_credentials, exited_key) = (
        (each["validator"]["withdrawal_credentials"], each["validator"]["pubkey"]) for each in states
    )
    names = {
        "index": [str(TOPPED_UP), str(LEFT)],
        "key": [pubkey, exited_key],
        "address": [f"0x{credentials[-40:]}", f"0x{other_credentials[-40:]}"],
    }.get(chosen)
    config = settings_of(node, tmp_path, f"validators = {json.dumps(names)}\n" if names else "")
    assert main(["index", "own", "--config", str(config), "--json"]) == 0
    system = System(load(config))
    rows = [each for each in stored(system, DEPOSITS) if each["pubkey"] == pubkey]
    rows.sort(key=lambda each: each["item"])
    assert [(each["credentials"], each["gwei"], each["kind"], each["number"]) for each in rows] == [
        (credentials, 2 * ETH, "request", NEW + 2),
        (STRANGERS, ETH, "request", NEW + 3),
    ]
    credited = [each for each in stored(system, STAKE_CHANGES) if each["validator"] == TOPPED_UP]
    assert sum(each["gwei"] for each in credited if each["kind"] == "deposit") == 3 * ETH
    exits = [each["kind"] for each in stored(system, STAKE_REQUESTS) if each["pubkey"] == exited_key]
    assert exits == ["exit"]


async def test_the_deposits_of_others_are_in_the_answer_of_the_validator(
    grown_node: BeaconRuntime, tmp_path: Path
) -> None:
    config = settings_of(grown_node, tmp_path, f'validators = ["{TOPPED_UP}"]\n')
    assert await asyncio.to_thread(main, ["index", "own", "--config", str(config), "--json"]) == 0
    async with served(load(config)) as client:
        status, page = await client.get(f"/deposits/index/{TOPPED_UP}")
        assert (status, page["totalRows"]) == (200, 2)
        assert [(each["amount"], each["withdrawalAddress"]) for each in page["data"]] == [
            (str(ETH * GWEI), "0x" + STRANGERS[-40:]),
            (str(2 * ETH * GWEI), page["data"][1]["withdrawalAddress"]),
        ]
        assert page["data"][1]["withdrawalAddress"] != "0x" + STRANGERS[-40:]


@pytest.mark.slow("a history of its own for each way to choose")
@pytest.mark.parametrize("chosen", ["index", "key", "address", "index and address"])
def test_a_validator_that_was_chosen_before_there_was_one_has_all_its_rows_from_its_first_deposit(
    node: BeaconRuntime, tmp_path: Path, chosen: str
) -> None:
    node.advance(1)
    first, second = (
        each
        for each in node.call("/eth/v1/beacon/states/head/pending_deposits")["data"]
        if int(each["amount"]) == 32 * ETH
    )
    names = {"index": str(NEW), "key": first["pubkey"], "address": f"0x{first['withdrawal_credentials'][-40:]}"}
    config = settings_of(node, tmp_path, f"validators = {json.dumps([names[each] for each in chosen.split(' and ')])}")
    for slots in (4, 3, 80):  # it waits in the queue for most of the first pieces
        assert main(["index", "own", "--config", str(config), "--json"]) == 0
        node.advance(slots)
    assert main(["index", "own", "--config", str(config), "--json"]) == 0
    system = System(load(config))
    assert node.call(f"/eth/v1/beacon/states/head/validators/{NEW}")["data"]["validator"]["pubkey"] == first["pubkey"]
    (row,) = (each for each in stored(system, DEPOSITS) if each["pubkey"] == first["pubkey"])
    assert (row["height"], row["gwei"], row["kind"], row["number"]) == (17, 32 * ETH, "request", NEW)
    (credited,) = (each for each in stored(system, STAKE_CHANGES) if each["validator"] == NEW)
    assert (credited["kind"], credited["gwei"]) == ("deposit", 32 * ETH)
    assert {each["validator"] for each in stored(system, VALIDATORS)} == {NEW}
    # While its index was free, the other new key might have got it; the top-ups are not by the owner.
    other_keys = {each["pubkey"] for each in stored(system, DEPOSITS)} - {first["pubkey"]}
    assert other_keys <= ({second["pubkey"]} if "index" in chosen else set())


async def test_the_first_deposit_of_a_validator_chosen_by_its_index_is_in_its_answer(
    node: BeaconRuntime, tmp_path: Path
) -> None:
    config = settings_of(node, tmp_path, f'validators = ["{NEW}"]\n')
    for slots in (8, 80):
        await asyncio.to_thread(node.advance, slots)
        assert await asyncio.to_thread(main, ["index", "own", "--config", str(config), "--json"]) == 0
    async with served(load(config)) as client:
        status, page = await client.get(f"/deposits/index/{NEW}")
        assert (status, [each["amount"] for each in page["data"]]) == (200, [str(32 * ETH * GWEI)]), page


def address_in(credentials: str) -> str:
    return f"0x{credentials[-40:]}"


def without_queue(
    read_deposits: Callable[[Reader, int], Awaitable[Deposits]],
) -> Callable[[Reader, int], Awaitable[Deposits]]:
    """Read deposits as of a node that says what was credited, and not what waits now."""

    async def pending_deposits(reader: Reader, slot: int) -> Deposits:
        if reader.selection == ():
            raise HistoryUnavailable("a node", slot, "404 for a slot that it has passed")
        return await read_deposits(reader, slot)

    return pending_deposits


@pytest.mark.slow("a history of its own for each way to choose")
@pytest.mark.parametrize("pieces", [(4, 3, 80), (90,)], ids=["while it waits", "afterwards"])
@pytest.mark.parametrize("tells_queue", [True, False])
def test_what_others_deposit_for_a_validator_that_waits_is_a_row_where_it_was_chosen_by_its_address(
    node: BeaconRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: tuple[int, ...], tells_queue: bool
) -> None:
    """Make a second deposit with other credentials while the first waits: the registry has no validator yet."""
    node.advance(1)
    waiting = node.call("/eth/v1/beacon/states/head/pending_deposits")["data"]
    first = next(each for each in waiting if int(each["amount"]) == 32 * ETH)
    config = settings_of(node, tmp_path, f'validators = ["{address_in(first["withdrawal_credentials"])}"]\n')
    if len(pieces) > 1:
        assert main(["index", "own", "--config", str(config), "--json"]) == 0
    node.do("deposit", pubkey=first["pubkey"], amount=ETH, credentials=STRANGERS)
    node.do("deposit", amount=32 * ETH, credentials=STRANGERS)  # a validator of theirs
    if not tells_queue:
        monkeypatch.setattr(Reader, "pending_deposits", without_queue(Reader.pending_deposits))
    for slots in pieces:
        node.advance(slots)
        assert main(["index", "own", "--config", str(config), "--json"]) == 0
    system = System(load(config))
    assert node.call(f"/eth/v1/beacon/states/head/validators/{NEW}")["data"]["validator"]["pubkey"] == first["pubkey"]
    rows = [each for each in stored(system, DEPOSITS) if each["pubkey"] == first["pubkey"]]
    assert sorted((each["gwei"], each["credentials"]) for each in rows) == [
        (ETH, STRANGERS),
        (32 * ETH, first["withdrawal_credentials"]),
    ]
    other_keys = {each["pubkey"] for each in stored(system, DEPOSITS)} - {first["pubkey"]}
    assert bool(other_keys) == (len(pieces) > 1 and not tells_queue)  # it may be theirs, as far as anybody says
    credited = [each for each in stored(system, STAKE_CHANGES) if each["validator"] == NEW]
    assert sum(each["gwei"] for each in credited if each["kind"] == "deposit") == 33 * ETH
