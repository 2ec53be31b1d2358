"""Reorganisations: a thousand blocks at once, one that Ethereum refused, a contract with another class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.starknet.chain import StarknetChain, build
from chainfolio.adapters.starknet.settings import StarknetSettings
from chainfolio.blocks import Span
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer
from chainfolio.indexer.follow import Follower
from chainfolio.localchain.errors import InstallFailed, NoSuchNode
from chainfolio.localchain.starknet.devnet import Devnet
from chainfolio.plans import run_batched
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from tests.json_rpc import Refuse
from tests.starknet.conftest import facts_file
from tests.starknet.fakes import COIN, TOKEN, WALLET, FakeNode, event, invoked

MINE = f"0x{int(WALLET, 16):064x}"
DATASETS = ("blocks", "transactions", "native", "transfers", "approvals")
DEEP = 1_000


class LongNode(FakeNode):
    """A node with so many blocks that hashes of three digits would repeat."""

    def hash(self, height: int) -> str:
        return hex(10_000 * (self.forks.get(height, 0) + 1) + height)


async def test_a_thousand_blocks_that_are_taken_back_leave_no_trace(tmp_path: Path) -> None:
    node = LongNode()
    node.head, node.final = 1_100, 40
    transfer = event(WALLET, "0xb", "0x5", "0x0", keys=3, token=COIN)
    node.transactions = {height: [invoked(height, transfer)] for height in range(50, 1_100, 100)}
    chain, tail, lake = node.chain(), Tail(tmp_path / "tail.db"), Lake(str(tmp_path / "lake"))
    follower = Follower(chain, lake, tail, Environment(), DATASETS)
    await follower.step()
    assert tail.top("starknet") == await chain.block(1_100)
    before = [row["height"] for row in _rows(tail)]
    node.forks = dict.fromkeys(range(1_101 - DEEP, 1_101), 1)
    node.transactions = {700: [invoked(7_000, event(WALLET, "0xb", "0x6", "0x0", keys=3, token=COIN))]}
    node.transactions[50] = [invoked(50, transfer)]
    node.head = 1_101
    node.forks[1_101] = 1
    await follower.step()
    assert follower.status.reorgs == 1
    assert before == list(range(50, 1_100, 100))
    assert [row["height"] for row in _rows(tail)] == [50, 700]
    assert tail.top("starknet") == await chain.block(1_101)
    tail.close()
    await chain.close()


@pytest.mark.slow("a fake node takes back a thousand blocks above")
@pytest.mark.node
async def test_blocks_that_a_real_node_takes_back_leave_no_trace(tmp_path: Path) -> None:
    """Each has a transfer: an empty one has its number for a hash there, whatever the branch."""
    facts = facts_file(tmp_path)
    facts.write_text(facts.read_text().replace("finality = 2", "finality = 100"))
    try:
        with Devnet() as devnet:
            to = devnet.accounts[1]["address"]
            devnet.transfer(*((0, to, 1_000 + each) for each in range(1, 8)))
            rpc = StarknetSettings(adapter="starknet", rpc=[devnet.url + "/rpc"], facts=str(facts))
            chain, tail = build("starknet", rpc, Environment(), configs=tmp_path), Tail(tmp_path / "tail.db")
            follower = Follower(chain, Lake(str(tmp_path / "lake")), tail, Environment(), DATASETS)
            await follower.step()
            assert _transfers(tail) == [(each, 1_000 + each) for each in range(1, 8)]
            devnet.forget(2)
            devnet.transfer(*((0, to, 2_000 + each) for each in range(2, 9)))
            await follower.step()
            assert (follower.status.reorgs, tail.top("starknet")) == (1, await chain.block(8))
            assert _transfers(tail) == [(1, 1_001), *((each, 2_000 + each) for each in range(2, 9))]
            tail.close()
            await chain.close()
    except (InstallFailed, NoSuchNode) as error:
        pytest.skip(f"a Starknet node cannot be installed here: {error}")


def _transfers(tail: Tail) -> list[tuple[int, int]]:
    """The heights and amounts of what was sent, but for what the node made at its start."""
    return [(row["height"], int.from_bytes(row["raw"], "big")) for row in _rows(tail) if row["height"]]


def _rows(tail: Tail) -> list[dict[str, Any]]:
    from chainfolio.indexer import arrow_ipc
    from chainfolio.tables import TRANSFERS

    streams = (stream for _, stream in tail.rows("starknet", "transfers", 0, 2**40))
    rows: list[dict[str, Any]] = arrow_ipc.load(streams, TRANSFERS).sort_by("height").to_pylist()
    return rows


@pytest.mark.parametrize("status", ["REJECTED", "REVERTED", "ABORTED"])
async def test_a_block_that_ethereum_or_the_sequencer_threw_away_is_none(status: str) -> None:
    node = FakeNode()
    node.answers = {
        **node.answers,
        "starknet_getBlockWithReceipts": lambda params: {**node.whole(5), "status": status},
    }
    with pytest.raises(BadAnswer, match="thrown away"):
        await node.chain().collect(Span(5, 5), DATASETS)


async def test_a_contract_whose_class_was_replaced_is_asked_as_it_was_at_each_block() -> None:
    """Before block 50 it counts in one felt and spells with capitals, then in two and with underscores."""
    from chainfolio.adapters.starknet.accounts import balances
    from chainfolio.adapters.starknet.felts import selector

    def called(params: Any) -> Any:
        young = node.height(params[1]) >= 50
        if params[0]["entry_point_selector"] != hex(selector("balance_of" if young else "balanceOf")):
            raise Refuse(21, "Requested entrypoint does not exist in the contract")
        return ["0x7", "0x1"] if young else [hex(2**130)]

    node = FakeNode(starknet_call=called)
    chain = node.chain()
    await chain.heads()
    pair = [(MINE, chain.info.token_asset(f"0x{int(TOKEN, 16):064x}"))]
    balances_by_block = []
    for height in (49, 50, 49):
        balances_by_block.append(await _at(chain, height, balances(chain.facts, pair)))
        balances_by_block.append(await _at(chain, height, chain.balances(pair)))
    assert balances_by_block == [[2**130]] * 2 + [[2**128 + 7]] * 2 + [[2**130]] * 2


async def _at(chain: StarknetChain, height: int, plan: Any) -> Any:
    block = await chain.block(height)
    report = (await run_batched({"all": plan}, lambda reads: chain.answer(list(reads), block)))["all"]
    return report.result


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (-32005, "rate limit exceeded"),
        (429, "Too many requests, reason: call rate limit exhausted, retry in 10s"),
        (-32429, "You've exceeded the rate limit"),
        (-32097, "Rate limit reached"),
        (-32090, "Too many requests, upgrade your tier"),
        (-32001, "daily request count exceeded, request rate limited"),
        (-32007, "50/second request limit reached"),
        (-32000, "Your app has exceeded its compute units per second capacity"),
        (-32003, "monthly quota reached"),
        (-32029, "throttled"),
    ],
)
def test_each_providers_limit_is_waited_for(code: int, message: str) -> None:
    from chainfolio.adapters.starknet.refusals import error_from
    from chainfolio.transport.exchange import RateLimited
    from chainfolio.transport.wire import RpcError

    assert type(error_from("node", "starknet_call", RpcError(code, message), 7)) is RateLimited


async def test_who_takes_no_batch_is_asked_one_by_one_from_then_on() -> None:
    class Single(FakeNode):
        batches = 0

        async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> Any:
            if body.startswith(b"["):
                from chainfolio.transport.exchange import HttpResponse

                self.batches += 1
                body_bytes = (
                    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batch requests are not supported"}}'
                )
                return HttpResponse(200, None, body_bytes)
            return await super().post(source, url, body, timeout_s)

    node = Single()
    chain = node.chain()
    await chain.heads()
    assert [each.height for each in await chain.blocks([1, 2, 3])] == [1, 2, 3]
    assert [each.height for each in await chain.blocks([4, 5])] == [4, 5]
    assert (node.batches, chain.health()[0].max_batch) == (1, 1)
