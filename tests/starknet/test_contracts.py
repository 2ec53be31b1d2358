"""Real contracts on a real node: what they say of approvals and collectibles, in rows and at a block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.starknet.accounts import balances, describe
from chainfolio.adapters.starknet.chain import StarknetChain, build
from chainfolio.adapters.starknet.settings import StarknetSettings
from chainfolio.assets import Asset
from chainfolio.blocks import Block, Span
from chainfolio.capabilities import Capability, require_capability
from chainfolio.environment import Environment
from chainfolio.localchain.errors import InstallFailed, NoSuchNode
from chainfolio.localchain.starknet.devnet import COIN, Devnet
from chainfolio.localchain.starknet.world import World
from chainfolio.localchain.starknet.world import world as deployed
from chainfolio.plans import run_batched
from tests.starknet.conftest import facts_file

pytestmark = pytest.mark.node
EVERYTHING = ("blocks", "transactions", "native", "transfers", "approvals")
ART, PIECE = 7_000, 2**130 + 1  # numbers of collectibles; the other one needs both halves


@dataclass(frozen=True)
class ApprovedToken:
    """Whom an owner allowed something."""

    token: str
    owner: str
    spender: str
    token_id: int | None = None


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Approve, from wallet 0, tokens of both layouts and the coin, one of a collection, all of it, and all editions."""
    try:
        with Devnet() as devnet:
            world = deployed(devnet)
            me, to = (int(each, 16) for each in world.accounts[:2])
            of = world.tokens
            world.devnet.execute(
                0,
                *((of.get(each, each), "approve", [to, 5, 1]) for each in ("OLD", "YNG", COIN)),
                (of["ART"], "mint", [me, ART, 0]),
                (of["ART"], "approve", [to, ART, 0]),
                (of["PIECES"], "mint", [me, PIECE % 2**128, PIECE >> 128, 9, 0, 0]),
                (of["PIECES"], "safeTransferFrom", [me, to, PIECE % 2**128, PIECE >> 128, 4, 0, 0]),
                *((of[each], "setApprovalForAll", [to, 1]) for each in ("ART", "PIECES")),
            )
            world.devnet.execute(0, (of["OLD"], "approve", [to, 0, 0]), (of["PIECES"], "setApprovalForAll", [to, 0]))
            yield world
    except (InstallFailed, NoSuchNode) as error:
        pytest.skip(f"a Starknet node cannot be installed here: {error}")


@pytest.fixture
async def chain(world: World, tmp_path: Path) -> AsyncIterator[StarknetChain]:
    """The chain of that node."""
    settings = StarknetSettings(adapter="starknet", rpc=[world.devnet.url + "/rpc"], facts=str(facts_file(tmp_path)))
    chain = build("starknet", settings, Environment(), configs=tmp_path)
    yield chain
    await chain.close()


async def at(chain: StarknetChain, block: Block, plan: Any) -> Any:
    """Run a plan at a block and return its result."""
    report = (await run_batched({"all": plan}, partial(_answer, chain, block)))["all"]
    assert report.error is None, report.error
    return report.result


async def _answer(chain: StarknetChain, block: Block, reads: Any) -> list[Any]:
    return await chain.answer(reads, block)


async def rows(chain: StarknetChain, table: str, height: int) -> list[dict[str, Any]]:
    """The rows of one block."""
    table_rows: list[dict[str, Any]] = (await chain.collect(Span(height, height), EVERYTHING)).tables[table].to_pylist()
    return table_rows


def summary(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row of an approval without its place."""
    raw, number = (None if row[each] is None else int.from_bytes(row[each], "big") for each in ("raw", "token_id"))
    return row["standard"], row["token"], row["owner"], row["spender"], raw, number, row["approved"]


async def test_approvals_of_both_layouts_are_rows(world: World, chain: StarknetChain) -> None:
    head = (await chain.heads()).latest.height
    me, to = world.accounts[:2]
    of, pair = world.tokens, (me, to)
    unlimited = 2**128 + 5
    assert [summary(each) for each in await rows(chain, "approvals", head - 1)] == [
        ("erc20", of["OLD"], *pair, unlimited, None, None),
        ("erc20", of["YNG"], *pair, unlimited, None, None),
        ("erc20", COIN, *pair, unlimited, None, None),
        ("erc721", of["ART"], *pair, None, ART, None),
        ("operator", of["ART"], *pair, None, None, True),
        ("operator", of["PIECES"], *pair, None, None, True),
    ]
    assert [summary(each)[:2] for each in await rows(chain, "approvals", head)] == [
        ("erc20", of["OLD"]),
        ("operator", of["PIECES"]),
    ]


async def test_collectibles_are_rows_by_their_standards(world: World, chain: StarknetChain) -> None:
    head = (await chain.heads()).latest.height
    movements = [
        (each["standard"], each["token"], int.from_bytes(each["token_id"], "big"), int.from_bytes(each["raw"], "big"))
        for each in await rows(chain, "transfers", head - 1)
        if each["token_id"] is not None
    ]
    art, pieces = world.tokens["ART"], world.tokens["PIECES"]
    assert movements == [("erc721", art, ART, 1), ("erc1155", pieces, PIECE, 9), ("erc1155", pieces, PIECE, 4)]


async def test_what_is_left_is_what_contracts_say_at_that_block(world: World, chain: StarknetChain) -> None:
    head = (await chain.heads()).latest.height
    me, to = world.accounts[:2]
    tokens = (world.tokens["OLD"], world.tokens["YNG"], COIN)
    approved = [ApprovedToken(token, me, to) for token in tokens]
    approving = require_capability(chain, Capability.APPROVALS)
    before, now = [
        await at(chain, await chain.block(height), approving.allowances(approved)) for height in (head - 1, head)
    ]
    assert [each.raw for each in before] == [2**128 + 5] * 3
    assert [each.raw for each in now] == [0, 2**128 + 5, 2**128 + 5]
    assert now[0].supply == 10**24
    assert now[1].balance == 0
    assert now[2].balance == int(world.devnet.http(f"/account_balance?address={hex(int(me, 16))}")["amount"])


async def test_operators_are_asked_for_what_they_may_move_now(world: World, chain: StarknetChain) -> None:
    head = (await chain.heads()).latest.height
    me, to = world.accounts[:2]
    art, pieces = world.tokens["ART"], world.tokens["PIECES"]
    approved = [
        ApprovedToken(art, me, to, ART),
        ApprovedToken(art, me, to),
        ApprovedToken(pieces, me, to),
        ApprovedToken(art, me, to, 9),
    ]
    ids = {me: {pieces: {PIECE, 5}}}
    before, now = [
        await at(
            chain, await chain.block(height), require_capability(chain, Capability.APPROVALS).operators(approved, ids)
        )
        for height in (head - 1, head)
    ]
    assert [(each.standard, each.movable) for each in before[:3]] == [("erc721", 1), ("erc721", 1), ("erc1155", 1)]
    assert (now[2], now[3]) == (None, None)  # revoked, and never there
    assert now[:2] == before[:2]


async def test_collectibles_are_held_by_whom_their_contracts_say(world: World, chain: StarknetChain) -> None:
    block = (await chain.heads()).latest
    me, to, stranger = world.accounts[:3]
    art = Asset(chain.caip2, "erc721", world.tokens["ART"], str(ART))
    piece = Asset(chain.caip2, "erc1155", world.tokens["PIECES"], str(PIECE))
    pairs = [(account, asset) for asset in (art, piece) for account in (me, to, stranger)]
    assert await at(chain, block, balances(chain.facts, pairs)) == [1, 0, 0, 5, 4, 0]


async def test_names_are_read_in_one_felt_and_as_byte_arrays(world: World, chain: StarknetChain) -> None:
    block = (await chain.heads()).latest
    assets = [chain.info.token_asset(world.tokens[each]) for each in ("OLD", "YNG")]
    described = await at(chain, block, describe(chain.facts, assets))
    assert [(each.symbol, each.name, each.decimals) for each in described.values()] == [
        ("OLD", "old token", 6),
        ("YNG", "Young Token", 6),
    ]
