"""The rows of accounts alone are those of a whole index, or the result names what may be missing: on a real node."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.starknet.chain import StarknetChain, build
from chainfolio.adapters.starknet.datasets import DATASETS
from chainfolio.adapters.starknet.settings import StarknetSettings
from chainfolio.blocks import Span
from chainfolio.capabilities import Capability, require_capability
from chainfolio.chain_results import SpanTables
from chainfolio.environment import Environment
from chainfolio.localchain.errors import InstallFailed, NoSuchNode
from chainfolio.localchain.starknet.devnet import COIN, Devnet
from chainfolio.localchain.starknet.world import World
from chainfolio.localchain.starknet.world import world as deployed
from tests.starknet.conftest import facts_file

pytestmark = pytest.mark.node
NAMES = ("transactions", "native", "transfers", "approvals")
ART, PIECE = 70, 5
Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Pay wallet 1 from wallet 0 in every kind of token; wallet 1 allows wallet 2, who takes; some blocks are empty."""
    try:
        with Devnet() as devnet:
            world = deployed(devnet)
            of, (me, to, third) = world.tokens, (int(each, 16) for each in world.accounts[:3])
            devnet.mine(20)
            devnet.execute(0, (of["YNG"], "mint", [to, 500, 0]), (COIN, "transfer", [to, 3, 0]))
            devnet.mine(30)
            devnet.execute(0, (of["OLD"], "transfer", [to, 40, 0]))
            devnet.mine(11)
            devnet.execute(1, (of["OLD"], "transfer", [me, 40, 0]), (of["YNG"], "transfer", [third, 7, 0]))
            devnet.execute(0, (of["ART"], "mint", [to, ART, 0]), (of["PIECES"], "mint", [to, PIECE, 0, 9, 0, 0]))
            devnet.mine(7)
            devnet.execute(1, (of["YNG"], "approve", [third, 100, 0]), (of["ART"], "setApprovalForAll", [third, 1]))
            devnet.mine(3)
            devnet.execute(2, (COIN, "transfer", [me, 11, 0]))
            yield world
    except (InstallFailed, NoSuchNode) as error:
        pytest.skip(f"a Starknet node cannot be installed here: {error}")


def facts(folder: Path, *unnamed: str) -> str:
    """The facts of the devnet, with tokens whose balances are followed."""
    path = facts_file(folder)
    path.write_text(path.read_text().replace("[native]", f"unnamed = {list(unnamed)}\n[native]", 1))
    return str(path)


@pytest.fixture
async def chain(world: World, tmp_path: Path) -> AsyncIterator[StarknetChain]:
    """The chain of that node; balances of the older layout are followed."""
    of = world.tokens
    settings = StarknetSettings(
        adapter="starknet",
        rpc=[world.devnet.url + "/rpc"],
        facts=facts(tmp_path, of["OLD"], of["ART"]),
    )
    chain = build("starknet", settings, Environment(), configs=tmp_path)
    yield chain
    await chain.close()


async def alone(chain: StarknetChain, span: Span, *accounts: str) -> list[SpanTables]:
    """Return all pieces of the history of accounts."""
    reader, pieces, first = require_capability(chain, Capability.ACCOUNT_HISTORY), list[SpanTables](), span.first
    while first <= span.last:
        pieces.append(await reader.collect_accounts(Span(first, span.last), accounts, NAMES))
        assert pieces[-1].span.first == first
        first = pieces[-1].span.last + 1
    return pieces


def rows(pieces: list[SpanTables]) -> Rows:
    """The rows of all pieces."""
    return {
        name: [row for each in pieces for row in each.tables[name].to_pylist()]
        for name in ("transactions", "transfers", "approvals")
    }


async def rows_of_whole_index(chain: StarknetChain, span: Span, *accounts: str) -> Rows:
    """The rows of the same accounts from every block."""
    result = await chain.collect(span, NAMES)
    by_table = {each.table.name: each for each in DATASETS.values() if each.account_columns}
    return {name: each.rows_of_accounts(result.tables[name], accounts).to_pylist() for name, each in by_table.items()}


@pytest.mark.slow("the Starknet node and its contracts are installed and deployed first")
@pytest.mark.parametrize("number", [0, 1, 2])
async def test_an_account_alone_has_the_rows_of_a_whole_index(world: World, chain: StarknetChain, number: int) -> None:
    heads, account = await chain.heads(), world.accounts[number]
    span = Span(0, heads.finalized)
    pieces = await alone(chain, span, account)
    assert rows(pieces) == await rows_of_whole_index(chain, span, account)
    assert {each.read_methods["transactions"] for each in pieces} == {"search"}


@pytest.mark.slow("the Starknet node and its contracts are installed and deployed first")
async def test_blocks_that_may_still_go_are_searched_by_their_hashes(world: World, chain: StarknetChain) -> None:
    heads, account, begin = await chain.heads(), world.accounts[1], await chain.block(0)
    span = Span(1, heads.latest.height)
    result = await require_capability(chain, Capability.ACCOUNT_HISTORY).collect_accounts(
        span, (account,), NAMES, begin
    )
    assert rows([result]) == await rows_of_whole_index(chain, span, account)
    assert (result.read_methods["native"], result.is_linked, len(result.blocks)) == ("search", True, len(span))


async def test_what_others_did_with_a_token_that_names_nobody_is_missing_and_that_is_said(
    world: World, tmp_path: Path
) -> None:
    """Balances of such tokens are not searched, but for the coin: one transfer to wallet 1 is not found."""
    url, account = world.devnet.url + "/rpc", world.accounts[1]
    settings = StarknetSettings(adapter="starknet", rpc=[url], facts=facts(tmp_path))
    chain = build("starknet", settings, Environment(), configs=tmp_path)
    heads = await chain.heads()
    span = Span(0, heads.finalized)
    pieces, expected = (
        await alone(chain, span, account, world.accounts[2]),
        await rows_of_whole_index(chain, span, account),
    )
    account_rows = rows(pieces)
    missing = [row for row in expected["transfers"] if row not in account_rows["transfers"]]
    silent = {world.tokens[each] for each in ("OLD", "ART", "PIECES")}
    assert {(row["token"] in silent, row["recipient"]) for row in missing} == {(True, account)}
    assert (
        account_rows["transactions"]
        == (await rows_of_whole_index(chain, span, account, world.accounts[2]))["transactions"]
    )
    assert {each.account for piece in pieces for each in piece.unexplained} == {account, world.accounts[2]}
    assert "1 such tokens" in pieces[0].unexplained[0].reason
    await chain.close()
