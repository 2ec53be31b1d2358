"""Approvals as a real node mined them: newest first, each once on a walk while blocks arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import cast

import pytest

from chainfolio.contracts import Token
from chainfolio.engine.approvals.allowances import KnownSpenders, read_page
from chainfolio.engine.approvals.pages import approvals_page, assets
from chainfolio.engine.results import Approval, EventPosition
from chainfolio.engine.snapshots.index_view import MAX_UNINDEXED_BLOCKS
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.engine.stored_heads import StoredHead
from chainfolio.errors import BadRequest, NotIndexed, Unavailable
from chainfolio.localchain.evm import tx
from chainfolio.pricing.fixed import build_fixed
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import Index, index

pytestmark = pytest.mark.node
LOGS = ("transfers", "approvals")
APPROVAL = "0x8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925"


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(30) as chain:
        chain.trade(40, 1)
        yield chain


def details(subject: EvmSubject, owners: list[str]) -> list[tuple[int, int, str, str, str, str, int]]:
    """Read every ERC-20 approval of some owners from the node, newest first."""
    logs = subject.node.rpc("eth_getLogs", {"fromBlock": "0x0", "toBlock": "latest", "topics": [APPROVAL]})
    rows = [
        (
            int(log["blockNumber"], 16),
            int(log["logIndex"], 16),
            log["transactionHash"],
            log["address"],
            "0x" + log["topics"][1][-40:],
            "0x" + log["topics"][2][-40:],
            int(log["data"], 16),
        )
        for log in logs
        if len(log["topics"]) == 3
    ]
    return sorted((row for row in rows if row[4] in owners), reverse=True)


def fields_of(items: list[Approval]) -> list[tuple[int, int, str, str, str, str, int]]:
    return [
        (i.position.height, i.position.log_index, i.position.tx_hash, i.token, i.owner, i.spender, i.raw) for i in items
    ]


def walk(indexed: Index, owners: list[str], limit: int, height: int) -> list[Approval]:
    approvals: list[Approval] = []
    start: EventPosition | int | None = height
    while start is not None:
        items, start = approvals_page(indexed.lake, indexed.tail, indexed.key, owners, limit, start)
        assert len(items) <= limit
        approvals += items
    return approvals


@pytest.mark.slow("other sizes of the same pages", only=["1", "100"])
@pytest.mark.parametrize("limit", [1, 3, 25, 100])
async def test_a_walk_meets_every_approval_once_newest_first(subject: EvmSubject, tmp_path: Path, limit: int) -> None:
    names = ["alice", "bob"]
    owners = [subject.deployment.accounts[name].lower() for name in names]
    async with index(subject, tmp_path, datasets=LOGS) as indexed:
        await indexed.fill_final()
        await indexed.follower().step()
        assert indexed.tail.rows(indexed.key, "approvals", 0, 2**40)
        assert indexed.stored("approvals").num_rows
        for chosen in (owners, owners[:1]):
            assert len(details(subject, chosen)) > 3
            assert fields_of(walk(indexed, chosen, limit, subject.height)) == details(subject, chosen)
        assert walk(indexed, ["0x" + "12" * 20], limit, subject.height) == []


async def test_times_are_those_of_the_blocks(subject: EvmSubject, tmp_path: Path) -> None:
    alice = subject.deployment.accounts["alice"].lower()
    async with index(subject, tmp_path, datasets=LOGS) as indexed:
        await indexed.fill_final()
        await indexed.follower().step()
        (newest,), _ = approvals_page(indexed.lake, indexed.tail, indexed.key, [alice], 1, subject.height)
        block = subject.node.block(newest.position.height)
        assert newest.time_us == int(block["timestamp"], 16) * 1_000_000


async def test_blocks_that_come_and_become_final_during_a_walk_change_none_of_it(tmp_path: Path) -> None:
    with evm(10) as subject:
        subject.trade(30, 2)
        owners = [account.lower() for account in subject.deployment.accounts.values()]
        async with index(subject, tmp_path, datasets=LOGS) as indexed:
            await indexed.fill_final()
            follower = indexed.follower()
            await follower.step()
            before, approvals = details(subject, owners), []
            items, start = approvals_page(indexed.lake, indexed.tail, indexed.key, owners, 2, subject.height)
            approvals += items
            for seed in range(4):
                subject.trade(5, seed + 10)
                await follower.step()
                await follower.finalise_all()
                if seed % 2:
                    await indexed.materialise()  # what is sorted by account now, and what is not yet, are one list
                assert start is not None
                items, start = approvals_page(indexed.lake, indexed.tail, indexed.key, owners, 2, start)
                approvals += items
            while start is not None:
                items, start = approvals_page(indexed.lake, indexed.tail, indexed.key, owners, 5, start)
                approvals += items
            assert fields_of(approvals) == before


async def test_a_cursor_into_a_block_that_left_the_chain_is_refused(tmp_path: Path) -> None:
    with evm(10) as subject:
        alice, weth = subject.deployment.accounts["alice"], subject.token("WETH")
        for raw in (1, 2, 3):
            subject.node.send(tx(alice, weth, "approve(address,uint256)", subject.deployment.accounts["bob"], raw))
        async with index(subject, tmp_path, datasets=LOGS) as indexed:
            await indexed.fill_final()
            follower = indexed.follower()
            await follower.step()
            items, start = approvals_page(indexed.lake, indexed.tail, indexed.key, [alice.lower()], 1, subject.height)
            assert (items[0].raw, start is not None) == (3, True)
            subject.node.reorg(2)
            subject.mine(3)
            await follower.step()
            assert start is not None
            with pytest.raises(BadRequest, match="begin again"):
                approvals_page(indexed.lake, indexed.tail, indexed.key, [alice.lower()], 1, start)
            items, _ = approvals_page(indexed.lake, indexed.tail, indexed.key, [alice.lower()], 1, subject.height)
            assert fields_of(items) == details(subject, [alice.lower()])[:1]


async def test_what_is_not_indexed_is_said_and_never_shown_as_nothing(subject: EvmSubject, tmp_path: Path) -> None:
    alice, stranger = subject.deployment.accounts["alice"].lower(), "0x" + "12" * 20
    async with index(subject, tmp_path, datasets=LOGS) as indexed:
        with pytest.raises(NotIndexed) as error:
            approvals_page(indexed.lake, indexed.tail, indexed.key, [alice], 5, subject.height)
        assert (error.value.first, error.value.last) == (0, subject.height)
        floor = subject.height - 30
        await indexed.fill(floor, subject.height)
        with pytest.raises(NotIndexed) as error:
            approvals_page(indexed.lake, indexed.tail, indexed.key, [stranger], 5, subject.height)
        assert (error.value.first, error.value.last) == (0, floor - 1)
        expected = [row for row in details(subject, [alice]) if row[0] >= floor]
        items, start = approvals_page(indexed.lake, indexed.tail, indexed.key, [alice], 100, subject.height)
        assert fields_of(items) == expected
        assert start is not None
        with pytest.raises(NotIndexed):
            approvals_page(indexed.lake, indexed.tail, indexed.key, [alice], 100, start)
        with pytest.raises(NotIndexed) as error:
            approvals_page(
                indexed.lake, indexed.tail, indexed.key, [alice], 5, subject.height + MAX_UNINDEXED_BLOCKS + 1
            )
        assert (error.value.first, error.value.last) == (subject.height + 1, subject.height + MAX_UNINDEXED_BLOCKS + 1)
        await indexed.fill(0, floor - 11)
        with pytest.raises(NotIndexed) as error:
            approvals_page(indexed.lake, indexed.tail, indexed.key, [alice], 100, start)
        assert (error.value.first, error.value.last) == (floor - 10, floor - 1)
        await indexed.fill(floor - 10, floor - 1)
        assert fields_of(walk(indexed, [alice], 7, subject.height)) == details(subject, [alice])


async def test_other_tokens_of_an_index_by_contract_are_not_known(subject: EvmSubject, tmp_path: Path) -> None:
    alice, weth = subject.deployment.accounts["alice"].lower(), subject.token("WETH")
    async with index(subject, tmp_path, datasets=LOGS, contracts=[weth]) as indexed:
        await indexed.fill(0, subject.height, contracts=[weth])
        with pytest.raises(NotIndexed):
            approvals_page(indexed.lake, indexed.tail, indexed.key, [alice], 5, subject.height)


async def test_an_asset_is_what_its_owner_holds_now_or_is_not_there(subject: EvmSubject, tmp_path: Path) -> None:
    alice, stranger = subject.deployment.accounts["alice"].lower(), "0x" + "12" * 20
    usdc, dai, weth = (subject.token(symbol) for symbol in ("USDC", "DAI", "WETH"))
    async with index(subject, tmp_path, datasets=LOGS) as indexed:
        await indexed.fill_final()
        await indexed.follower().step()
        facts = indexed.chain.facts
        asset = facts.token_asset
        token_list = {
            asset(usdc): Token(asset(usdc), "USDC", "USD Coin", 6),
            asset(dai): Token(asset(dai), "DAI", "Dai", 18),
        }
        prices = build_fixed({str(asset(usdc)): "0.5", str(asset(weth)): "2000"}, "test")
        book = TokenBook(facts.key, indexed.lake, token_list)
        snapshotter = Snapshotter(indexed.chain, indexed.lake, indexed.tail, book, (prices,))
        await indexed.chain.heads()
        before = indexed.chain.requests
        owner_assets = await assets(
            snapshotter, [(owner, token) for owner in (alice, stranger) for token in (usdc, dai, weth)]
        )
        # DAI is listed but has no price: an asset has everything or is absent. WETH has its own symbol and decimals.
        assert set(owner_assets) == {(account, token) for account in (alice, stranger) for token in (usdc, weth)}
        assert indexed.chain.requests - before <= 2
        balance = Decimal(subject.balance(alice, usdc, subject.height) or 0).scaleb(-6)
        usdc_asset = owner_assets[alice, usdc]
        assert balance
        assert (usdc_asset.balance, usdc_asset.price, usdc_asset.value) == (balance, Decimal("0.5"), balance / 2)
        assert (usdc_asset.symbol, usdc_asset.name, usdc_asset.decimals) == ("USDC", "USD Coin", 6)
        assert owner_assets[stranger, usdc].balance == 0


async def test_a_page_whose_node_fails_has_no_assets_and_an_issue(
    subject: EvmSubject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, usdc = subject.deployment.accounts["alice"].lower(), subject.token("USDC")
    async with index(subject, tmp_path, datasets=LOGS) as indexed:
        asset = indexed.chain.info.token_asset(usdc)
        token_list = {asset: Token(asset, "USDC", "USD Coin", 6)}
        book = TokenBook(indexed.chain.key, indexed.lake, token_list)
        snapshotter = Snapshotter(indexed.chain, indexed.lake, indexed.tail, book, ())

        async def failing_heads() -> None:
            raise Unavailable("node", "refused the connection")

        head = StoredHead((await indexed.chain.heads()).latest)
        await indexed.fill(0, head.block.height)
        monkeypatch.setattr(indexed.chain, "heads", failing_heads)
        assert await assets(snapshotter, []) == {}
        page = await read_page(snapshotter, head, [alice], 3, None, (), cast("KnownSpenders", None))
        assert len(page.items) == 3
        assert page.assets == {}
        (issue,) = page.issues
        assert (issue.adapter, issue.subject) == (indexed.chain.key, "assets")
        assert "refused the connection" in issue.reason


async def test_any_walk_over_any_owners_is_what_was_mined(subject: EvmSubject, tmp_path: Path) -> None:
    chance = Random(7)
    owners = [account.lower() for account in subject.deployment.accounts.values()]
    async with index(subject, tmp_path, datasets=LOGS) as indexed:
        await indexed.fill_final()
        await indexed.materialise()
        await indexed.follower().step()
        for _ in range(15):
            chosen = chance.sample(owners, chance.randrange(1, len(owners)))
            approvals = await asyncio.to_thread(walk, indexed, chosen, chance.randrange(1, 20), subject.height)
            assert fields_of(approvals) == details(subject, chosen)
