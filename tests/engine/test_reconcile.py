"""Differences between balances of a real chain and indexed movements, found in their first block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from eth_utils.crypto import keccak

from chainfolio.blocks import Block, Span
from chainfolio.engine.reconcile.estimate import estimate
from chainfolio.engine.reconcile.reconciler import Reconciler
from chainfolio.engine.reconciliations import Reconciliation, stored_results
from chainfolio.errors import BadRequest, NotIndexed, OverBudget, Reorged
from chainfolio.indexer.rewind import rewind
from chainfolio.localchain.deploy import WAD, Deployment, deploy
from chainfolio.localchain.evm import Tx, tx
from chainfolio.localchain.hostile import BALANCES, deploy_hostile
from chainfolio.localchain.node import LocalNode
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail, TailBlock
from tests.chains.index import EVERYTHING, Index, IndexOf
from tests.engine.drifting import drifting
from tests.evm.limited import SEARCH, SIMULATION, TRACES, Fault, Provider, changing, served
from tests.evm.paying import root_of
from tests.evm.programs import program, send

pytestmark = pytest.mark.node
WHOLE = (*EVERYTHING, "internal")
MOVEMENTS = ("internal", "native", "transactions", "transfers")  # the datasets whose rows change balances
BEHIND = 80  # blocks behind the last deed: more than are final
Planted = tuple[int, int, str]  # the block, the amount, the cause


@dataclass
class Lived:
    """A chain, and what was planted in it."""

    node: LocalNode
    deployment: Deployment
    hostile: dict[str, str]
    planted: dict[str, dict[str, list[Planted]]] = field(default_factory=dict)

    start: int = 0  # the last block before anybody did something

    def __post_init__(self) -> None:
        self.start = self.node.height

    def address(self, name: str) -> str:
        return self.deployment.accounts[name].lower()

    def plant(self, name: str, asset: str, height: int, amount: int, cause: str) -> None:
        """Add an expected difference of an account."""
        self.planted.setdefault(self.address(name), {}).setdefault(asset, []).append((height, amount, cause))


def erc20(token: str) -> str:
    return f"eip155:31337/erc20:{token}"


COIN = "eip155:31337/slip44:60"


@pytest.fixture(scope="module")
def lived() -> Iterator[Lived]:
    with LocalNode() as node:
        deployed = deploy(node)
        lived = Lived(node, deployed, deploy_hostile(node, deployed.accounts["grace"]))
        honestly(lived)
        node.mine(40)
        tokens(lived)
        node.mine(30)
        coins(lived)
        node.mine(BEHIND)
        yield lived


def honestly(lived: Lived) -> None:
    """Alice and bob trade as people do: wrap, pay, fail, collect."""
    node, deployed = lived.node, lived.deployment
    alice, bob = (deployed.accounts[name] for name in ("alice", "bob"))
    weth, dai = (deployed.tokens[symbol].address for symbol in ("WETH", "DAI"))
    node.settle([tx(alice, weth, "deposit()", value=3 * WAD), Tx(alice, bob, value=5), Tx(alice, alice, value=7)])
    node.settle(
        [tx(bob, dai, "transfer(address,uint256)", alice, 9), tx(bob, dai, "transfer(address,uint256)", bob, 4)]
    )
    with node.by_hand():
        node.send(tx(alice, weth, "withdraw(uint256)", 10**30, value=0, gas=200_000))  # fails, and is paid for
        node.mine()
    single, edition = (deployed.contracts[name] for name in ("Collectible", "Edition"))
    node.settle([tx(alice, single, "mint(address,uint256)", alice, number) for number in (7, 8, 9)])
    node.settle([tx(alice, edition, "mintBatch(address,uint256[],uint256[])", alice, [1, 2], [10, 20])])
    node.settle(
        [
            tx(alice, single, "transferFrom(address,address,uint256)", alice, bob, 8),
            tx(alice, single, "burn(uint256)", 9),
            tx(alice, edition, "safeTransferFrom(address,address,uint256,uint256,bytes)", alice, bob, 1, 4, b""),
        ]
    )


def tokens(lived: Lived) -> None:
    """Tokens of each unusual kind, for alice and carol; bob's stay plain."""
    node = lived.node
    owner, alice, carol = (lived.deployment.accounts[name] for name in ("deployer", "alice", "carol"))
    grows, charges, moves, pretends = (drifting(node, owner) for _ in range(4))
    node.settle([tx(owner, grows, "mint(address,uint256)", account, 1_000) for account in (alice, carol)])
    for rate in (11, 12, 13):
        node.mine(5)
        height = node.settle([tx(owner, grows, "rebase(uint256)", rate * WAD // 10)])
        for name in ("alice", "carol"):
            lived.plant(name, erc20(grows), height, 100, "rebasing")
    node.settle([tx(owner, charges, "charge(uint256)", 500), tx(owner, charges, "mint(address,uint256)", alice, 1_000)])
    height = node.settle([tx(alice, charges, "transfer(address,uint256)", carol, 400)])
    lived.plant("carol", erc20(charges), height, -20, "fee_on_transfer")
    node.settle([tx(owner, moves, "mint(address,uint256)", alice, 5)])
    node.mine(9)
    lived.plant(
        "alice",
        erc20(moves),
        node.settle([tx(owner, moves, "put(address,uint256)", alice, 905)]),
        900,
        "without_events",
    )
    height = node.settle([tx(owner, pretends, "pretend(address,uint256)", carol, 10**20)])
    lived.plant("carol", erc20(pretends), height, -(10**20), "events_without_effect")


def coins(lived: Lived) -> None:
    """Plant coin movements without a transaction: a call to dave, a withdrawal of erin, fees of frank."""
    node, deployer = lived.node, lived.deployment.accounts["deployer"]
    dave, erin, frank = (lived.deployment.accounts[name] for name in ("dave", "erin", "frank"))
    for value in (3, 4):
        height = node.settle([Tx(deployer, None, "0x" + program([send(dave, value)]).hex(), value=value)])
        lived.plant("dave", COIN, height, value, "missing_trace")
        node.mine(6)
    node.rpc("anvil_setBalance", erin, hex(int(node.rpc("eth_getBalance", erin, "latest"), 16) + 32 * WAD))
    lived.plant("erin", COIN, node.height, 32 * WAD, "withdrawal")
    node.mine()
    heidi = lived.deployment.accounts["heidi"]
    height = node.settle([Tx(deployer, deployer, value=1)])
    node.rpc("anvil_setBalance", heidi, hex(int(node.rpc("eth_getBalance", heidi, "latest"), 16) + 7 * 10**9))
    lived.plant("heidi", COIN, height, 7 * 10**9, "withdrawal")
    node.mine()
    node.rpc("anvil_setCoinbase", frank)
    before = int(node.rpc("eth_getBalance", frank, "latest"), 16)
    height = node.settle([Tx(deployer, deployer, value=1)])
    node.rpc("anvil_setCoinbase", "0x" + "00" * 20)
    lived.plant("frank", COIN, height, int(node.rpc("eth_getBalance", frank, "latest"), 16) - before, "block_reward")


def withdrawals(lived: Lived) -> Fault:
    """Anvil has no validators: the block in which coins came to heidi names a withdrawal."""
    ((height, amount, _),) = lived.planted[lived.address("heidi")][COIN]
    withdrawal = {
        "index": "0x0",
        "validatorIndex": "0x1",
        "address": lived.address("heidi"),
        "amount": hex(amount // 10**9),
    }

    def add_withdrawal(ask: dict[str, Any]) -> dict[str, Any] | None:
        if ask["method"] != "eth_getBlockByNumber" or ask["params"][0] != hex(height):
            return None
        return {
            "result": {
                **lived.node.rpc(ask["method"], *ask["params"]),
                "withdrawals": [withdrawal],
                "withdrawalsRoot": root_of([withdrawal]),
            }
        }

    return add_withdrawal


@asynccontextmanager
async def indexed(
    lived: Lived, folder: Path, datasets: Sequence[str] = WHOLE, without: Sequence[str] = (), **provider: Any
) -> AsyncIterator[Index]:
    """The whole chain in an index, up to its newest final block."""
    pays = ["withdrawals"] if "fault" in provider else []
    async with served(lived.node, lived.deployment, Provider(lived.node.url, without, **provider), pays=pays) as chain:
        tail = Tail(folder / "tail.db")
        try:
            index = IndexOf(chain, Lake(str(folder / "lake")), tail, tuple(datasets))
            await index.fill_final()
            yield index
        finally:
            tail.close()


async def reconciled(index: Index, accounts: Sequence[str], **bounds: Any) -> list[Reconciliation]:
    return await Reconciler(index.chain, index.lake, index.tail, checkpoints=6).run(accounts, **bounds)


def differences(reconciliation: Reconciliation) -> dict[str, list[Planted]]:
    by_asset: dict[str, list[Planted]] = {}
    for each in reconciliation.differences:
        assert each.after == each.block - 1
        by_asset.setdefault(each.asset, []).append((each.block, int(each.amount), each.cause))
    return by_asset


async def test_every_planted_difference_is_found_in_its_first_block_and_named_and_none_is_invented(
    lived: Lived, tmp_path: Path
) -> None:
    """With traces only what the index cannot know is left: the moves inside calls are rows."""
    hostile = ("deployer", "grace")  # whom hostile tokens tell of
    accounts = [each.lower() for name, each in lived.deployment.accounts.items() if name not in hostile]
    async with indexed(lived, tmp_path, fault=withdrawals(lived)) as index:
        results = await reconciled(index, accounts)
        for each in results:
            expected = lived.planted.get(each.address, {})
            if each.address == lived.address("dave"):
                expected = {}
            assert differences(each) == expected, each.address
            assert each.counts["equal"] > 3
            assert each.counts["unreadable"] == each.counts["unindexed"] == 0
            assert each.is_equal == (not expected)
        assert (results[0].first_block, results[0].last_block) == (0, lived.node.height - 8)
        alice = {each.asset: each for each in results[accounts.index(lived.address("alice"))].assets}
        single = f"eip155:31337/erc721:{lived.deployment.contracts['Collectible'].lower()}"
        assert [alice[f"{single}/{number}"].balance for number in (7, 8, 9)] == ["1", "0", "0"]


async def test_without_traces_coins_moved_by_calls_are_missed_and_found_in_the_block_of_each(
    lived: Lived, tmp_path: Path
) -> None:
    dave = lived.address("dave")
    async with indexed(lived, tmp_path, EVERYTHING) as index:
        (reconciliation,) = await reconciled(index, [dave])
        assert differences(reconciliation) == lived.planted[dave]
        assert {each.reason for each in reconciliation.differences} == {
            "the chain has the movement (dataset `internal`), and the index does not"
        }
        assert "`internal` is not indexed at" in " ".join(reconciliation.notes)
    async with indexed(lived, tmp_path, EVERYTHING, without=(*TRACES, *SEARCH, *SIMULATION)) as index:
        (reconciliation,) = await reconciled(index, [dave])
        assert differences(reconciliation) == lived.planted[dave]


async def test_blocks_that_nobody_indexed_are_named_as_such(lived: Lived, tmp_path: Path) -> None:
    alice, height = lived.address("alice"), lived.start
    async with served(lived.node, lived.deployment, Provider(lived.node.url)) as chain:
        tail = Tail(tmp_path / "tail.db")
        index = IndexOf(chain, Lake(str(tmp_path / "lake")), tail, WHOLE)
        last = (await chain.heads()).finalized
        with pytest.raises(NotIndexed):
            await reconciled(index, [alice])
        await index.fill(0, height)
        await index.fill(height + 2, last)
        (reconciliation,) = await reconciled(index, [alice])
        unindexed = [each for each in reconciliation.differences if each.block == height + 1]
        assert {each.cause for each in unindexed} == {"not_indexed"}
        assert {each.asset.split("/")[1].split(":")[0] for each in unindexed} == {"slip44", "erc20"}
        rest_by_asset = {
            asset: planted for asset, planted in differences(reconciliation).items() if planted[0][0] != height + 1
        }
        assert rest_by_asset == lived.planted[alice]
        gaps = [f"`{name}` is not indexed at 1 of the {last + 1:,} blocks" for name in MOVEMENTS]
        assert sorted(gaps) == sorted(note for note in reconciliation.notes if "not indexed" in note)
        await index.fill(height + 1, height + 1)
        (filled_in,) = await reconciled(index, [alice])
        assert not [note for note in filled_in.notes if "not indexed" in note]
        tail.close()


async def test_a_row_that_the_index_lacks_in_a_block_that_it_read_is_named(lived: Lived, tmp_path: Path) -> None:
    """A node that left out a log without a word, when it was indexed."""
    alice, height = lived.address("alice"), lived.start + 2
    async with indexed(lived, tmp_path) as index:
        index.lake.delete_span(index.key, Span(height, height))
        (reconciliation,) = await reconciled(index, [alice])
        missing_rows = [each for each in reconciliation.differences if each.block == height]
        assert [(each.cause, each.amount) for each in missing_rows] == [("missing_row", "9")]


def transfer_at(lived: Lived, height: int, token: str) -> dict[str, Any]:
    (log,) = lived.node.rpc("eth_getLogs", {"fromBlock": hex(height), "toBlock": hex(height), "address": token})
    assert log["topics"][0] == "0x" + keccak(text="Transfer(address,address,uint256)").hex()
    return dict(log)


def leaving_out(lived: Lived, omitted: dict[str, Any]) -> Fault:
    """A node that never gives a log where logs are asked for."""

    def remaining_logs(logs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            log
            for log in logs
            if (log["blockNumber"], log["logIndex"]) != (omitted["blockNumber"], omitted["logIndex"])
        ]

    return changing(lived.node, eth_getLogs=remaining_logs)


async def test_a_log_that_the_node_leaves_out_again_and_again_is_named_by_the_receipts(
    lived: Lived, tmp_path: Path
) -> None:
    """The token charges fees on transfers, but is not blamed for the log that the node left out."""
    charges = next(
        (asset, *planted[0])
        for asset, planted in lived.planted[lived.address("carol")].items()
        if planted[0][2] == "fee_on_transfer"
    )
    omitted = transfer_at(lived, charges[1], charges[0].rpartition(":")[2])
    async with indexed(lived, tmp_path, fault=leaving_out(lived, omitted)) as index:
        (reconciliation,) = await reconciled(index, [lived.address("alice")])
        (difference,) = (each for each in reconciliation.differences if each.asset == charges[0])
        expected_reason = (
            f"the node left out log {int(omitted['logIndex'], 16)} of transaction {omitted['transactionHash']} when"
        )
        assert (difference.block, difference.amount, difference.cause) == (charges[1], "-400", "missing_row")
        assert difference.reason.startswith(expected_reason)
        assert any('integrity = "roots"' in note.replace("`", "") for note in reconciliation.notes)


async def test_without_receipts_no_token_is_blamed_for_what_a_node_may_have_left_out(
    lived: Lived, tmp_path: Path
) -> None:
    carol = lived.address("carol")

    def refuse_receipts(ask: dict[str, Any]) -> dict[str, Any] | None:
        if ask["method"] not in ("eth_getBlockReceipts", "eth_getTransactionReceipt"):
            return None
        return {"error": {"code": -32601, "message": f"the method {ask['method']} does not exist"}}

    async with indexed(lived, tmp_path, ("transfers",), fault=refuse_receipts) as index:
        (reconciliation,) = await reconciled(index, [carol])
        reason_by_cause = {each.cause: each.reason for each in reconciliation.differences if each.cause != "rebasing"}
        assert set(reason_by_cause) == {"unknown"}
        assert "its receipts, which have all, could not be read" in reason_by_cause["unknown"]


async def test_a_token_that_does_not_say_its_balance_is_unreadable_and_not_equal(lived: Lived, tmp_path: Path) -> None:
    """Tokens that misbehave in every way that the local chain knows tell of a transfer to grace."""
    grace = lived.address("grace")
    async with indexed(lived, tmp_path) as index:
        (reconciliation,) = await reconciled(index, [grace])
        status = {each.asset: each.status for each in reconciliation.assets}
        balances = {name: status[erc20(token.lower())] for name, token in lived.hostile.items() if name in BALANCES}
        sound = {"balance of 64 bytes", "balance of max uint256"}
        assert {
            name for name, balance_status in balances.items() if balance_status == "unreadable"
        } == BALANCES.keys() - sound
        assert not reconciliation.is_equal


async def test_without_an_archive_the_end_is_compared_and_no_block_is_made_up(lived: Lived, tmp_path: Path) -> None:
    first_readable = lived.node.height - 20

    def pruned(ask: dict[str, Any]) -> dict[str, Any] | None:
        if ask["method"] not in ("eth_call", "eth_getBalance"):
            return None
        at = ask["params"][1]
        block = lived.node.rpc("eth_getBlockByHash", at["blockHash"], False) if isinstance(at, dict) else None
        if block is None or int(block["number"], 16) >= first_readable:
            return None
        return {"error": {"code": -32000, "message": "missing trie node: state is not available"}}

    bob, carol = lived.address("bob"), lived.address("carol")
    async with indexed(lived, tmp_path, fault=pruned) as index:
        plain, limited = await reconciled(index, [bob, carol])
        assert limited.unread_checkpoints == tuple(height for height in limited.checkpoints if height < first_readable)
        assert {each.cause for each in limited.differences} == {"unknown"}
        assert {each.asset for each in limited.differences} >= set(lived.planted[carol])
        assert all(each.after < first_readable <= each.block for each in limited.differences)
        assert any("archive" in note for note in limited.notes)
        assert not plain.is_equal, "of genesis nobody knows"
        (coin,) = (each for each in plain.assets if each.asset == COIN)
        assert (coin.status, coin.opening) == ("differs", None)
        assert {each.status for each in plain.assets if each.asset != COIN} == {"equal"}


async def test_a_part_of_the_range_begins_with_what_was_there(lived: Lived, tmp_path: Path) -> None:
    carol = lived.address("carol")
    async with indexed(lived, tmp_path) as index:
        second = next(iter(lived.planted[carol].values()))[1][0]
        (reconciliation,) = await reconciled(index, [carol], first=second, last=second)
        assert [(each.block, each.amount) for each in reconciliation.differences] == [(second, "100")]
        (reconciliation,) = await reconciled(index, [carol], first=second + 1, last=second + 4)
        assert reconciliation.is_equal
        coin = next(each for each in reconciliation.assets if each.asset == COIN)
        assert int(coin.opening or 0) + int(coin.movements) == int(coin.balance or 0) > WAD
        with pytest.raises(BadRequest, match="above the head"):
            await reconciled(index, [carol], last=10**6)
        with pytest.raises(BadRequest, match="the last of the range"):
            await reconciled(index, [carol], first=10**6)


async def test_a_result_is_kept_until_a_block_of_its_range_goes(lived: Lived, tmp_path: Path) -> None:
    alice, bob = lived.address("alice"), lived.address("bob")
    async with indexed(lived, tmp_path) as index:
        results = await reconciled(index, [alice, bob])
        assert [each.address for each in stored_results(index.tail, index.key)] == sorted([alice, bob])
        (stored,) = stored_results(index.tail, index.key, [alice])
        assert stored.differences == results[0].differences
        assert {each.status for each in stored.assets} == {"differs"}
        rewind(index.lake, index.tail, index.key, results[0].last_block + 1)
        assert len(stored_results(index.tail, index.key)) == 2
        rewind(index.lake, index.tail, index.key, results[0].last_block)
        assert stored_results(index.tail, index.key) == []


async def test_a_range_whose_last_block_has_left_the_chain_is_refused(lived: Lived, tmp_path: Path) -> None:
    async with indexed(lived, tmp_path) as index:
        last = (await index.chain.heads()).finalized
        below = await index.chain.block(last)
        sibling = Block(last + 1, "0x" + "0b" * 32, below.hash, below.time_us + 1)
        index.tail.put(index.key, [TailBlock(sibling, {})], datasets=WHOLE)
        with pytest.raises(Reorged, match=str(last + 1)):
            await reconciled(index, [lived.address("alice")])
        assert stored_results(index.tail, index.key) == []
        await reconciled(index, [lived.address("alice")], last=last)


async def test_a_budget_ends_it_before_more_is_asked(lived: Lived, tmp_path: Path) -> None:
    async with indexed(lived, tmp_path) as index:
        reconciler = Reconciler(index.chain, index.lake, index.tail, max_requests=4)
        before = index.chain.requests
        with pytest.raises(OverBudget, match="budget of 4 requests"):
            await reconciler.run([lived.address("alice")])
        assert index.chain.requests - before <= 8
        assert stored_results(index.tail, index.key) == []
        await Reconciler(index.chain, index.lake, index.tail, max_requests=1_000).run([lived.address("alice")])
        assert len(stored_results(index.tail, index.key)) == 1


@pytest.mark.slow("other shares of the same history", fast=["32-alice"])
@pytest.mark.parametrize("name", ["bob", "alice"])
@pytest.mark.parametrize("steps", [4, 32])
async def test_an_estimate_is_as_near_as_it_says_and_keeps_nothing(
    lived: Lived, tmp_path: Path, name: str, steps: int
) -> None:
    """Bob has nothing that differs, Alice several assets."""
    async with indexed(lived, tmp_path) as index:
        reconciler = Reconciler(index.chain, index.lake, index.tail, steps)
        figures = await estimate(reconciler, [lived.address(name)], None, None, index.environment.clock)
        assert (figures["state"], figures["differing"] > 0) == ("estimated", name == "alice")
        assert stored_results(index.tail, index.key) == []
        before, size = index.chain.requests, spent(index)
        await Reconciler(index.chain, index.lake, index.tail, steps).run([lived.address(name)])
        real = {"requests": index.chain.requests - before, "bytes": spent(index) - size}
        for figure, cost in real.items():
            assert cost / figures["factor"] <= figures[figure] <= cost * figures["factor"], (figure, figures, real)


def spent(index: Index) -> int:
    return sum(each.cost.sent_bytes + each.cost.received_bytes for each in index.chain.health())
