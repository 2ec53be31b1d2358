"""A wallet of a real node whose endpoints fail over in the middle of a read: the same bytes always."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from solders.keypair import Keypair
from solders.pubkey import Pubkey

from chainfolio.adapters.solana.chain import SolanaChain, build
from chainfolio.adapters.solana.settings import SolanaSettings
from chainfolio.contracts import Snapshot
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.environment import Environment
from chainfolio.errors import Unavailable
from chainfolio.localchain.solana.dated import dated
from chainfolio.localchain.solana.node import SolanaNode
from chainfolio.localchain.solana.programs import (
    FEE,
    TOKEN,
    TOKEN_2022,
    account_opening,
    associated_account,
    create_mint,
    create_stake,
    create_vote_account,
    send_coins,
    token_issue,
)
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.facts import ChainFacts
from chainfolio.portfolio.valuation import valuate
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.transport.exchange import HttpResponse
from chainfolio.transport.http import HttpTransport
from tests.clocks import FastClock
from tests.solana.conftest import ROOT, facts_of
from tests.solana.test_interfaces import later

pytestmark = pytest.mark.node


@dataclass
class Ending:
    """A transport to two endpoints; the first to answer breaks after `after` requests about state."""

    after: int
    state_requests: int = 0
    broken: str = ""
    used: set[str] = field(default_factory=set)
    _real: HttpTransport = field(default_factory=HttpTransport)

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        """One exchange, unless the endpoint is the broken one."""
        call = json.loads(body)
        if "AccountsByOwner" in body.decode() or "getMultipleAccounts" in body.decode():
            self.state_requests += len(call) if isinstance(call, list) else 1
            if self.state_requests > self.after and not self.broken:
                self.broken = url
        if url == self.broken:
            raise Unavailable(source, "the connection broke")
        self.used.add(url)
        return await self._real.post(source, url, body, timeout_s)

    async def close(self) -> None:
        """Let go of connections."""
        await self._real.close()


@pytest.fixture(scope="module")
def owner(node: SolanaNode) -> Pubkey:
    """A wallet with coins, tokens of both programs and stake."""
    new = Keypair().pubkey()
    send_coins(node, new, 10**9)
    for token, program in ((create_mint(node, 6), TOKEN), (create_mint(node, 2, FEE), TOKEN_2022)):
        node.send(
            [
                account_opening(node, new, token, program),
                token_issue(node, token, associated_account(new, token, program), 777, program),
            ]
        )
    create_stake(node, new, 10**10, create_vote_account(node))
    later(node)
    return new


async def answered(chain: SolanaChain, owner: Pubkey, folder: Path) -> bytes:
    """The portfolio of the wallet as it is written, but for the newest slot: the node goes on."""
    tail = Tail(folder / "tail.db")
    try:
        snapshot: Snapshot = await Snapshotter(
            chain, Lake(str(folder / "lake")), tail, TokenBook(chain.key, None, {}), ()
        ).take([str(owner)], live=True)
    finally:
        tail.close()
        await chain.close()
    facts = {chain.key: ChainFacts(chain.key, "Solana", 101)}
    encoded = msgspec.json.encode(portfolio(str(owner), valuate([snapshot]), facts, updated_ms=0))
    return re.sub(rb'"(blockNumber|blocksBehind)":"?\d+"?', rb'"\1":0', encoded)


async def test_endpoints_that_are_exchanged_in_the_middle_of_a_read_give_the_same_bytes(
    node: SolanaNode, owner: Pubkey, tmp_path: Path
) -> None:
    facts = str(facts_of(node.rpc("getGenesisHash"), tmp_path))
    with dated(node) as second:
        settings = SolanaSettings(adapter="solana", rpc=[node.url, second], facts=facts, commitment="confirmed")
        answers, both = set(), 0
        for after in (1, 3, 5, 1_000):
            transport = Ending(after)
            chain = build(
                "solana", settings, Environment(clock=FastClock()), configs=ROOT / "configs", transport=transport
            )
            answers.add(await answered(chain, owner, tmp_path / str(after)))
            both += len(transport.used) == 2
    assert len(answers) == 1
    assert b'"10"' in answers.pop()
    assert both, "both endpoints answered where one broke"
