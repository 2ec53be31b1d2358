"""Events follow from what is indexed: on a real chain that grows, is reorganised, and becomes final."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chainfolio.alerts import transactions
from chainfolio.alerts.rules import NewRule, add, new_rule
from chainfolio.alerts.scan import Scanner
from chainfolio.alerts.service import LOCK, AlertService
from chainfolio.assets import account
from chainfolio.engine.results import TransactionFilter
from chainfolio.engine.service import Engine
from chainfolio.environment import Environment
from chainfolio.errors import ChainfolioError, CorruptFile, NotFound, NotIndexed
from chainfolio.indexer import follow
from chainfolio.indexer.wiring import System
from chainfolio.localchain.evm import Tx, tx
from chainfolio.settings import Settings
from chainfolio.storage.state import alerts
from tests.alerts.receivers import Desk, desk
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import IndexOf, index

pytestmark = pytest.mark.node
DATASETS = ("blocks", "transactions", "native", "transfers", "approvals", "logs")


@dataclass
class World:
    """A chain with its index, an engine over it, and rules."""

    living: EvmSubject
    indexed: IndexOf[Any]
    engine: Engine
    at: Desk
    follower: follow.Follower

    async def rule(self, kind: str, subject: str, over: str | None = None) -> alerts.Rule:
        """A rule of a new account from the newest block on."""
        new = NewRule(kind, subject, "file", "/dev/null", over)
        new.check(is_operator=True)
        state = self.at.state
        owner = state.create_account("team")[0].id
        ids = state.new_id("alr"), state.new_id("tgt")
        rule, target = new_rule(new, ids, owner, await self.engine.heads.newest_of(account(subject)), 0)
        return state.database.write(lambda tx: add(tx, rule, target, 100))

    async def scan(self) -> int:
        """Read once, as a process that was just started."""
        return await Scanner(self.engine, self.at.state).run_once()

    async def grow(self, blocks: int, seed: int) -> None:
        """Trade, and index it."""
        self.living.trade(blocks, seed)
        await self.follower.step()

    async def hashes(self, wallet: str, above: int) -> Counter[str]:
        """The transactions of a wallet above a height, as `/v1/transactions` answers them."""
        page, _ = await self.engine.records([account(wallet)], TransactionFilter(1000, 0))
        return Counter(each.hash for each in page.document.transactions if each.block_number > above)

    def events(self, rule: alerts.Rule) -> list[dict[str, Any]]:
        """The bodies of a rule's events, the oldest first."""
        return [json.loads(each.body) | {"id": each.id} for each in self.at.deliveries_of(rule)]

    def valid(self, rule: alerts.Rule) -> Counter[str]:
        """The transactions of a rule's events without those that were corrected."""
        events = self.events(rule)
        corrected = {each["data"]["corrects"] for each in events if each["type"] == "event.corrected"}
        return Counter(
            each["data"]["hash"] for each in events if each["type"] != "event.corrected" and each["id"] not in corrected
        )


@asynccontextmanager
async def world(tmp_path: Path, blocks: int = 12) -> AsyncIterator[World]:
    with evm(blocks) as living:
        async with index(living, tmp_path, datasets=DATASETS[:5]) as indexed, desk(tmp_path) as at:
            chain = indexed.chain
            chain.settings = msgspec.structs.replace(chain.settings, datasets=list(indexed.datasets))
            prices = {"eip155:31337/slip44:60": "2000"}
            system = System(Settings(chains={indexed.key: chain.settings}, prices=prices), Environment())
            system._lake, system._tail, system._chains = indexed.lake, indexed.tail, {indexed.key: chain}
            await indexed.fill_final()
            follower = indexed.follower()
            await follower.step()
            yield World(living, indexed, Engine(system), at, follower)


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_each_transaction_gives_one_event_through_growth_reorganisations_and_finality(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        start = here.living.height
        wallets = here.living.accounts[:4]
        rules = {wallet: await here.rule("transaction", wallet) for wallet in wallets}
        assert await here.scan() == 0

        async def check() -> None:
            await here.scan()
            for wallet, rule in rules.items():
                assert here.valid(rule) == await here.hashes(wallet, start), wallet
            assert await here.scan() == 0

        await here.grow(4, 1)
        await check()
        here.living.reorg(3)
        await here.follower.step()
        await check()
        assert any(each["type"] == "event.corrected" for rule in rules.values() for each in here.events(rule))
        # Blocks that become final before they are read, and a reorganisation that no follower saw.
        await here.grow(3, 2)
        here.living.reorg(2)
        await here.follower.step()
        here.living.mine(300)
        await here.follower.step()
        assert here.indexed.tail.blocks(here.indexed.key)[0].height > start + 6
        await check()
        assert sum(len(here.events(rule)) for rule in rules.values()) > 10
        assert here.at.state.database.read(alerts.cursors)[here.indexed.key, ""].height == here.living.height


async def test_rules_are_about_values_approvals_and_assets_that_another_took(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        alice, bob, carol = [*here.living.deployment.accounts.values()][:3]
        kinds = ("incoming", "outgoing", "approval", "approval-used", "transaction")
        of_alice = {kind: await here.rule(kind, alice.lower(), "1000" if "ing" in kind else None) for kind in kinds}
        to_bob = await here.rule("incoming", bob.lower(), "1999.99")
        node = here.living.node
        weth = here.living.deployment.tokens["WETH"].address
        sent = [
            Tx(alice, bob, value=10**18, gas=21_000),
            Tx(alice, bob, value=10**17, gas=21_000),
            tx(alice, weth, "deposit()", value=10**16),
            tx(alice, weth, "approve(address,uint256)", carol, 10**15),
            tx(carol, weth, "transferFrom(address,address,uint256)", alice, bob, 10**15),
            tx(alice, weth, "approve(address,uint256)", carol, 0),
        ]
        with node.by_hand():
            for each in sent:
                node.send(each)
                node.mine()
        await here.follower.step()
        await here.scan()
        counts = {kind: len(here.events(rule)) for kind, rule in of_alice.items()}
        assert counts == {"incoming": 0, "outgoing": 1, "approval": 1, "approval-used": 1, "transaction": 6}
        (large,) = here.events(to_bob)
        assert (large["type"], large["data"]["valueUsd"], large["data"]["bound"]) == (
            "value.incoming",
            "2000",
            "over 1999.99",
        )
        (grant,) = here.events(of_alice["approval"])
        assert (grant["data"]["spender"], grant["data"]["raw"]) == (carol.lower(), str(10**15))
        (used,) = here.events(of_alice["approval-used"])
        assert used["data"]["from"] == carol.lower()
        assert used["data"]["assetsOut"][0]["amount"] == "0.001"


async def test_two_processes_store_each_event_once_and_a_kill_between_reads_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as here:
        start, wallet = here.living.height, here.living.accounts[0]
        rule = await here.rule("transaction", wallet)
        await here.grow(3, 5)
        store = Scanner._store

        async def killed(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Scanner, "_store", killed)
        with pytest.raises(KeyboardInterrupt):
            await here.scan()

        async def late(self: Scanner, *arguments: Any) -> Any:
            monkeypatch.setattr(Scanner, "_store", store)
            await here.scan()  # of another process, meanwhile
            return await store(self, *arguments)

        monkeypatch.setattr(Scanner, "_store", late)
        await here.scan()
        assert here.valid(rule) == await here.hashes(wallet, start)
        assert len(here.events(rule)) == sum(here.valid(rule).values())
        await here.grow(3, 6)
        service = AlertService(here.engine, lambda: here.at.state)
        with here.indexed.tail.hold(LOCK, "it"):  # another process reads
            assert await service.scan() == 0
        assert await service.scan() > 0
        assert here.valid(rule) == await here.hashes(wallet, start)
        with here.indexed.tail.hold(LOCK, "it"):
            assert await service.scan() == 0


async def test_a_scan_in_the_middle_of_a_rollback_corrects_nothing_that_it_did_not_read(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        start, wallet = here.living.height, here.living.accounts[0]
        rule = await here.rule("transaction", wallet)
        await here.grow(6, 1)
        await here.scan()
        before = here.events(rule)
        assert len(before) > 4
        for height in (start, start + 2, start + 5):  # a watch rolls back blocks that stay on the chain
            here.indexed.tail.rollback(here.indexed.key, height)
            await here.scan()
            await here.follower.step()
            await here.scan()
            assert here.events(rule) == before
        here.living.reorg(3)
        here.indexed.tail.rollback(here.indexed.key, start + 3)
        await here.scan()
        assert here.events(rule) == before
        await here.follower.step()
        await here.scan()
        assert here.valid(rule) == await here.hashes(wallet, start)
        assert any(each["type"] == "event.corrected" for each in here.events(rule))


async def test_a_rule_that_cannot_be_evaluated_loses_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path) as here:
        start = here.living.height
        alice, bob, carol = [*here.living.deployment.accounts.values()][:3]
        rule, approval = await here.rule("transaction", alice.lower()), await here.rule("approval", alice.lower())
        weth = here.living.deployment.tokens["WETH"].address
        with here.living.node.by_hand():
            for each in (Tx(alice, bob, value=5, gas=21_000), tx(alice, weth, "approve(address,uint256)", carol, 7)):
                here.living.node.send(each)
                here.living.node.mine()
        await here.follower.step()

        def problems() -> list[str]:
            stored = {each.id: each.problem for each in here.at.state.database.read(alerts.rules)}
            return [stored[rule.id], stored[approval.id]]

        async def failing(*_: object) -> None:
            raise error

        error: ChainfolioError
        cursors = here.at.state.database.read(alerts.cursors)
        read = transactions._transactions
        for error in (CorruptFile("part", "broken"), NotIndexed(here.indexed.key, "logs", 1, 2)):
            monkeypatch.setattr(transactions, "_transactions", failing)
            assert await here.scan() == 0
            assert here.at.state.database.read(alerts.cursors) == cursors
            assert problems() == [f"{here.indexed.key}: {error.message}"] * 2
        monkeypatch.setattr(transactions, "_transactions", read)
        assert await here.scan() == 3
        assert problems() == ["", ""]
        # The wallet has too many transactions now: what was stored stays, and other rules go on.
        events = here.events(rule)
        error = NotFound("too many transactions")
        monkeypatch.setattr(transactions, "_transactions", failing)
        here.indexed.tail.rollback(here.indexed.key, start)
        await here.scan()
        await here.follower.step()
        assert await here.scan() == 0
        assert here.events(rule) == events
        assert len(here.events(approval)) == 1
        assert problems() == [f"{here.indexed.key}, transactions: {error.message}", ""]
        here.living.mine(1)
        await here.follower.step()
        await here.scan()
        assert problems()[0]  # the wallet has nothing in that block: the rule was not evaluated


async def test_a_price_that_changed_corrects_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path) as here:
        start = here.living.height
        alice, bob = [*here.living.deployment.accounts.values()][:2]
        rule = await here.rule("incoming", bob.lower(), "1")
        with here.living.node.by_hand():
            here.living.node.send(Tx(alice, bob, value=10**18, gas=21_000))
            here.living.node.mine()
        await here.follower.step()
        assert await here.scan() == 1
        monkeypatch.setattr(transactions, "is_crossed", lambda *_: False)
        here.indexed.tail.rollback(here.indexed.key, start)
        await here.scan()
        await here.follower.step()
        assert await here.scan() == 0
        assert len(here.events(rule)) == 1
