"""Answers that commands share: which are stored, for how long, and when they are dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from chainfolio.errors import NodeBehind
from chainfolio.kinds import AnswerStore
from chainfolio.storage.tail import Tail
from chainfolio.transport.recent_answers import RECENT_US, Answer, RecentAnswers
from chainfolio.transport.wire import Request

HEAD = Request("eth_getBlockByNumber", ("latest", False))
CHAIN = Request("eth_chainId")
STATE = Request("eth_call", ({"to": "0x1"}, {"blockHash": "0xa"}))
OTHER_STATE = Request("eth_call", ({"to": "0x1"}, {"blockHash": "0xb"}))
NEWEST = Request("eth_call", ({"to": "0x1"}, "latest"))


@dataclass
class Commands:
    """Successive commands with the same store. `log` has the requests of all commands."""

    tail: Tail
    now_us: int = 10**12
    log: list[Request] = field(default_factory=list)
    refused_methods: set[Request | str] = field(default_factory=set)

    def next(self, endpoint: str = "one") -> RecentAnswers:
        store = AnswerStore(self.tail.recent_answers, self.tail.add_answers, self.tail.drop_answers)
        return RecentAnswers(endpoint, store, lambda: self.now_us)

    async def ask(self, requests: Sequence[Request]) -> list[Answer]:
        self.log += requests
        return [
            NodeBehind("one", "it is gone") if each.method in self.refused_methods else str(len(self.log)).encode()
            for each in requests
        ]

    def take_requests(self) -> list[Request]:
        requests, self.log = self.log, []
        return requests


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(Tail(tmp_path / "tail.db"))


async def test_the_next_command_reads_at_a_block_once(commands: Commands) -> None:
    first = await commands.next().through([STATE, NEWEST], commands.ask)
    assert commands.take_requests() == [STATE, NEWEST]
    repeated = await commands.next().through([NEWEST, OTHER_STATE, STATE], commands.ask)
    assert commands.take_requests() == [NEWEST, OTHER_STATE], "what is read at the newest block may change"
    assert repeated[2] == first[0]
    await commands.next("two").through([STATE], commands.ask)
    assert commands.take_requests() == [STATE], "another endpoint has not answered it"


async def test_a_head_is_used_for_a_minute_and_only_as_a_whole(commands: Commands) -> None:
    handshake = [CHAIN, HEAD, HEAD]
    first = await commands.next().through(handshake, commands.ask, is_handshake=True)
    commands.take_requests()
    assert await commands.next().through(handshake, commands.ask, is_handshake=True) == first
    await commands.next().through([HEAD], commands.ask)
    assert commands.take_requests() == [HEAD], "a header that is read by itself is no handshake"
    await commands.next().through([*handshake, Request("more")], commands.ask, is_handshake=True)
    assert commands.take_requests() == [*handshake, Request("more")]
    commands.now_us += RECENT_US + 1
    await commands.next().through(handshake, commands.ask, is_handshake=True)
    assert commands.take_requests() == handshake


async def test_a_refusal_drops_the_head(commands: Commands) -> None:
    await commands.next().through([CHAIN, HEAD], commands.ask, is_handshake=True)
    commands.refused_methods = {"eth_call"}
    commands.take_requests()
    (answer,) = await commands.next().through([STATE], commands.ask)
    assert isinstance(answer, NodeBehind)
    await commands.next().through([STATE], commands.ask)
    await commands.next().through([CHAIN, HEAD], commands.ask, is_handshake=True)
    assert commands.take_requests() == [STATE, STATE, CHAIN, HEAD], "the block may have left the chain"
