"""Daily history of a wallet on a real node, by the command line and the API."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from solders.keypair import Keypair
from solders.pubkey import Pubkey

from chainfolio.api.serve import listening
from chainfolio.capabilities import Capability, find_capability
from chainfolio.chains import Chain
from chainfolio.cli.serve import indexing
from chainfolio.cli.state_store import open_state
from chainfolio.engine.history.joint_reads import JointChain
from chainfolio.engine.snapshots.mixed_reads import with_mixed_reads
from chainfolio.localchain.solana.dated import dated
from chainfolio.localchain.solana.node import SolanaNode
from chainfolio.localchain.solana.programs import (
    account_opening,
    associated_account,
    create_mint,
    send_coins,
    token_issue,
    token_transfer,
)
from chainfolio.pricing.http_reads import Http
from chainfolio.settings_file import load
from tests.api.sessions import client_session
from tests.solana.conftest import Run, started
from tests.solana.fakes import FakeNode
from tests.solana.test_interfaces import NATIVE, asset_balances

pytestmark = pytest.mark.node
DAY_S = 86_400
LONG = 10  # days that the chain is older than it thinks


@dataclass(frozen=True)
class Lived:
    """A wallet that had 3 coins and 10 tokens on a first day, and 4 and 7.5 two days later."""

    owner: str
    token: str
    first: date
    url: str
    node: SolanaNode


@pytest.fixture(scope="module")
def lived() -> Iterator[Lived]:
    """Yield a wallet with two days of transfers, and its node."""
    # At noon: slots before the end of a jump in time say a time up to an hour too early, and no day is to begin there.
    begun_s = int(time.time())
    ago_s = LONG * DAY_S + begun_s % DAY_S - DAY_S // 2
    with started() as node, dated(node, ago_s) as url:
        wallet, recipient, token = Keypair(), Keypair().pubkey(), create_mint(node, 6)
        owner = wallet.pubkey()
        send_coins(node, owner, 3 * 10**9)
        source, destination = associated_account(owner, token), associated_account(recipient, token)
        node.send(
            [
                account_opening(node, owner, token),
                account_opening(node, recipient, token),
                token_issue(node, token, source, 10_000_000),
            ]
        )
        node.rpc("surfnet_timeTravel", {"absoluteTimestamp": (begun_s + 2 * DAY_S) * 1000})
        node.send([token_transfer(token, source, destination, owner, 2_500_000, 6)], wallet)
        send_coins(node, owner, 10**9)
        node.rpc("surfnet_timeTravel", {"absoluteTimestamp": (begun_s + 4 * DAY_S) * 1000})
        first = datetime.fromtimestamp(begun_s - ago_s, UTC).date()
        yield Lived(str(owner), str(token), first, url, node)


@pytest.fixture
def run(lived: Lived, running: Callable[..., Run]) -> Run:
    """Runs a command that prints one document."""
    return running(lived.node.rpc("getGenesisHash"), lived.url)


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_past_days_are_what_there_is_now_without_what_moved_since(run: Run, lived: Lived) -> None:
    run("watch", lived.owner)
    days = [lived.first + timedelta(days=number) for number in range(5)]
    command = ("history", lived.owner, "--from", str(days[0]), "--to", str(days[-1]))
    [history] = run(*command)
    statuses = [(each["day"], each["completeness"], each["reason"]) for each in history["days"]]
    assert statuses[0] == (str(days[0]), "unreadable", "solana: no node has blocks that are so old any more")
    blocks = [each["chains"][0]["block"] for each in history["days"][1:]]
    missing = "solana: no source has a price of {} sol at block {}"
    assert statuses[1:] == [
        (str(day), "unpriced", missing.format(coins_held, block))
        for day, coins_held, block in zip(days[1:], (3, 3, 4, 4), blocks, strict=True)
    ]
    assert {each["value"] for each in history["days"]} == {None}, "coins without a price are not worth nothing"
    held_then = [
        asset_balances(run("portfolio", lived.owner, "--chain", "solana", "--block", str(block))[0]) for block in blocks
    ]
    assert held_then == [{NATIVE: "3", lived.token: "10"}] * 2 + [{NATIVE: "4", lived.token: "7.5"}] * 2
    assert run(*command) == [history], "what was kept is told again"


@pytest.mark.slow("tests/engine/test_history.py shows it of stored days")
def test_a_day_is_the_same_whatever_moved_after_it_was_first_read(run: Run, lived: Lived, tmp_path: Path) -> None:
    day = str(lived.first + timedelta(days=2))
    run("watch", lived.owner)
    [before] = run("history", lived.owner, "--from", day, "--to", day)
    send_coins(lived.node, Pubkey.from_string(lived.owner), 10**9)
    lived.node.rpc("surfnet_timeTravel", {"absoluteSlot": lived.node.rpc("getSlot") + 1000})
    shutil.rmtree(tmp_path / "data")
    run("watch", lived.owner)
    assert run("history", lived.owner, "--from", day, "--to", day) == [before]


def test_days_of_a_wallet_that_nobody_watches_are_unreadable_and_say_what_to_do(run: Run, lived: Lived) -> None:
    day = str(lived.first + timedelta(days=2))
    [history] = run("history", lived.owner, "--from", day, "--to", day)
    [each] = history["days"]
    assert (each["value"], each["completeness"]) == (None, "unreadable")
    assert "chainfolio watch ADDRESS reads them" in each["reason"]


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_the_historical_route_answers_for_a_day(run: Run, lived: Lived, tmp_path: Path) -> None:
    await asyncio.to_thread(run, "watch", lived.owner)
    settings = load(tmp_path / "chainfolio.toml", {})
    state = open_state(settings)
    _, key = state.create_account("somebody", "PRO", 10_000, ("portfolio", "at-block", "enterprise"))
    state.close()
    async with (
        listening(await indexing(settings), "127.0.0.1", 0, drain_s=1) as port,
        client_session(headers={"Authorization": f"Bearer {key}"}) as client,
    ):
        base = f"http://127.0.0.1:{port}/v1"
        async with client.post(f"{base}/subscribe-snapshot", json={"addresses": [{"address": lived.owner}]}) as answer:
            assert answer.status in (200, 201), await answer.text()
        url = f"{base}/historical?addresses={lived.owner}&date="
        responses = {}
        for number in (0, 1, 3):
            async with client.get(url + str(lived.first + timedelta(days=number))) as answer:
                responses[number] = answer.status, await answer.json()
    assert asset_balances(responses[1][1][0]) == {NATIVE: "3", lived.token: "10"}
    assert asset_balances(responses[3][1][0]) == {NATIVE: "4", lived.token: "7.5"}
    assert responses[0][0] == 404


def test_chains_that_delegate_have_the_capabilities_of_theirs() -> None:
    chain = FakeNode().chain()
    joint = JointChain(with_mixed_reads(chain, cast("Http", None)), 1)
    reader = find_capability(cast("Chain", joint), Capability.PAST_POSITIONS)
    assert reader is not None
    assert reader.past_positions == chain.past_positions
    assert find_capability(chain, Capability.PROOFS) is None
