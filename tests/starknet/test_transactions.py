"""Every type of transaction that a real node makes, and a contract of Cairo 2 whose class is replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.starknet.accounts import balances
from chainfolio.adapters.starknet.chain import StarknetChain, build
from chainfolio.adapters.starknet.felts import selector
from chainfolio.adapters.starknet.functions import selector_suffix
from chainfolio.adapters.starknet.settings import StarknetSettings
from chainfolio.adapters.starknet.state import Call, answer
from chainfolio.blocks import Span
from chainfolio.environment import Environment
from chainfolio.localchain.errors import InstallFailed, NoSuchNode
from chainfolio.localchain.starknet.devnet import COIN, Devnet
from chainfolio.localchain.starknet.world import World
from chainfolio.localchain.starknet.world import world as deployed
from chainfolio.plans import Reverted, run_batched
from tests.starknet.conftest import facts_file

pytestmark = pytest.mark.node
EVERYTHING = ("blocks", "transactions", "native", "transfers", "approvals")
BRIDGE = "0x" + "8359e4b0152ed5a731162d3c7b0d8d56edb165a0".zfill(64)
NOBODY = f"0x{0:064x}"
GIFT, SENT = 10**18, 2**128 + 5


@dataclass(frozen=True)
class Made:
    """A world with a new account, a message from Ethereum in the next block, and in the last one another class for a
    token."""

    world: World
    account: str
    opened: int
    message: str
    replaced: int

    @property
    def token(self) -> str:
        """The token in Cairo 2."""
        return self.world.tokens["YNG"]


@pytest.fixture(scope="module")
def made() -> Iterator[Made]:
    """What happened, each in a block of its own."""
    try:
        with Devnet() as devnet:
            world = deployed(devnet)
            account = devnet.open_account(0, 77, GIFT)
            opened = devnet.rpc("starknet_blockNumber")
            payload = [int(account, 16), SENT % 2**128, SENT >> 128]
            message = devnet.message(BRIDGE, world.tokens["YNG"], selector("handle_deposit"), payload)
            other = hex(int(devnet.deploy(0, "respelled_token"), 16))
            class_hash = devnet.rpc("starknet_getClassHashAt", "latest", other)
            devnet.execute(0, (world.tokens["YNG"], "upgrade", [int(class_hash, 16)]))
            replaced = devnet.rpc("starknet_blockNumber")
            yield Made(world, account, opened, f"0x{int(message, 16):064x}", replaced)
    except (InstallFailed, NoSuchNode) as error:
        pytest.skip(f"a Starknet node cannot be installed here: {error}")


@pytest.fixture
async def chain(made: Made, tmp_path: Path) -> AsyncIterator[StarknetChain]:
    """The chain of that node."""
    url = made.world.devnet.url + "/rpc"
    settings = StarknetSettings(adapter="starknet", rpc=[url], facts=str(facts_file(tmp_path)))
    chain = build("starknet", settings, Environment(), configs=tmp_path)
    yield chain
    await chain.close()


async def rows(chain: StarknetChain, table: str, height: int) -> list[dict[str, Any]]:
    """The rows of one block."""
    found: list[dict[str, Any]] = (await chain.collect(Span(height, height), EVERYTHING)).tables[table].to_pylist()
    return found


async def at(chain: StarknetChain, height: int, plan: Any) -> Any:
    """What a plan finds at a block."""
    block = await chain.block(height)
    report = (await run_batched({"all": plan}, lambda reads: chain.answer(list(reads), block)))["all"]
    assert report.error is None, report.error
    return report.result


async def test_an_account_that_was_deployed_paid_for_itself(made: Made, chain: StarknetChain) -> None:
    [row] = await rows(chain, "transactions", made.opened)
    assert (row["sender"], row["recipient"], row["created"]) == (made.account, None, made.account)
    assert (row["type"], row["status"], row["nonce"]) == (1, 1, 0)
    [gift] = await rows(chain, "transfers", made.opened - 1)
    assert (gift["standard"], gift["recipient"], int.from_bytes(gift["raw"], "big")) == ("native", made.account, GIFT)
    assert not await rows(chain, "transfers", made.opened), "its only movement is the fee"
    pair = [(made.account, chain.info.native.asset)]
    left = [await at(chain, height, chain.balances(pair)) for height in (made.opened - 1, made.opened)]
    assert left == [[GIFT], [GIFT - int.from_bytes(row["fee"], "big")]]
    assert left[1] != left[0]


async def test_a_message_from_ethereum_is_signed_there_and_costs_nothing_here(made: Made, chain: StarknetChain) -> None:
    [row] = await rows(chain, "transactions", made.opened + 1)
    assert (row["hash"], row["sender"], row["recipient"]) == (made.message, BRIDGE, made.token)
    assert (row["input"], row["fee"], row["type"]) == (selector_suffix(selector("handle_deposit")), bytes(32), 0)
    [moved] = await rows(chain, "transfers", made.opened + 1)
    assert (moved["standard"], moved["token"], moved["sender"]) == ("erc20", made.token, NOBODY)
    assert (moved["recipient"], int.from_bytes(moved["raw"], "big")) == (made.account, SENT)


async def test_declarations_of_either_cairo_pay_and_deployments_without_an_account_do_not(
    made: Made, chain: StarknetChain
) -> None:
    first = await rows(chain, "transactions", 0)
    created = [row["created"] for row in first if row["created"]]
    assert {*made.world.accounts, COIN} <= {*created}
    assert {row["sender"] for row in first if row["created"]} == {NOBODY}
    found = await chain.collect(Span(1, made.opened), EVERYTHING)
    everyone = [each for each in found.tables["transactions"].to_pylist() if not (each["recipient"] or each["created"])]
    declared = sorted(each["type"] for each in everyone)
    assert declared == [1, 1, 1, 2], "three classes of Cairo 0, and one of Cairo 2"
    assert all(int.from_bytes(each["fee"], "big") and each["sender"] == made.world.accounts[0] for each in everyone)


async def test_a_token_whose_class_was_replaced_is_asked_as_it_was_at_each_block(
    made: Made, chain: StarknetChain
) -> None:
    pair = [(made.account, chain.info.token_asset(made.token))]
    await chain.heads()
    found = []
    for height in (made.replaced - 1, made.replaced, made.replaced - 1):
        found.append(await at(chain, height, balances(chain.facts, pair)))
        found.append(await at(chain, height, chain.balances(pair)))
    assert found == [[SENT]] * 2 + [[2 * SENT]] * 2 + [[SENT]] * 2


async def test_a_contract_of_cairo_2_that_panics_has_refused(made: Made, chain: StarknetChain) -> None:
    """It panics because nobody has so much."""
    block = await chain.block(made.replaced - 1)
    [said] = await answer(chain.node, [Call(made.token, "transfer", (5, 1, 0))], block)
    assert said == Reverted()
