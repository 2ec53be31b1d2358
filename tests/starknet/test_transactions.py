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
class TransactionWorld:
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
def cases() -> Iterator[TransactionWorld]:
    """Make the events of the world, each in a separate block."""
    try:
        with Devnet() as devnet:
            world = deployed(devnet)
            account = devnet.open_account(0, 77, GIFT)
            opened = devnet.rpc("starknet_blockNumber")
            payload = [int(account, 16), SENT % 2**128, SENT >> 128]
            message = devnet.message(BRIDGE, world.tokens["YNG"], selector("handle_deposit"), payload)
            respelled = hex(int(devnet.deploy(0, "respelled_token"), 16))
            class_hash = devnet.rpc("starknet_getClassHashAt", "latest", respelled)
            devnet.execute(0, (world.tokens["YNG"], "upgrade", [int(class_hash, 16)]))
            replaced = devnet.rpc("starknet_blockNumber")
            yield TransactionWorld(world, account, opened, f"0x{int(message, 16):064x}", replaced)
    except (InstallFailed, NoSuchNode) as error:
        pytest.skip(f"a Starknet node cannot be installed here: {error}")


@pytest.fixture
async def chain(cases: TransactionWorld, tmp_path: Path) -> AsyncIterator[StarknetChain]:
    """The chain of that node."""
    url = cases.world.devnet.url + "/rpc"
    settings = StarknetSettings(adapter="starknet", rpc=[url], facts=str(facts_file(tmp_path)))
    chain = build("starknet", settings, Environment(), configs=tmp_path)
    yield chain
    await chain.close()


async def rows(chain: StarknetChain, table: str, height: int) -> list[dict[str, Any]]:
    """The rows of one block."""
    table_rows: list[dict[str, Any]] = (await chain.collect(Span(height, height), EVERYTHING)).tables[table].to_pylist()
    return table_rows


async def at(chain: StarknetChain, height: int, plan: Any) -> Any:
    """Run a plan at a block and return its result."""
    block = await chain.block(height)
    report = (await run_batched({"all": plan}, lambda reads: chain.answer(list(reads), block)))["all"]
    assert report.error is None, report.error
    return report.result


async def test_an_account_that_was_deployed_paid_for_itself(cases: TransactionWorld, chain: StarknetChain) -> None:
    [row] = await rows(chain, "transactions", cases.opened)
    assert (row["sender"], row["recipient"], row["created"]) == (
        cases.account,
        None,
        cases.account,
    )
    assert (row["type"], row["status"], row["nonce"]) == (1, 1, 0)
    [gift] = await rows(chain, "transfers", cases.opened - 1)
    assert (gift["standard"], gift["recipient"], int.from_bytes(gift["raw"], "big")) == (
        "native",
        cases.account,
        GIFT,
    )
    assert not await rows(chain, "transfers", cases.opened), "its only movement is the fee"
    pair = [(cases.account, chain.info.native.asset)]
    balances_at = [await at(chain, height, chain.balances(pair)) for height in (cases.opened - 1, cases.opened)]
    assert balances_at == [[GIFT], [GIFT - int.from_bytes(row["fee"], "big")]]
    assert balances_at[1] != balances_at[0]


async def test_a_message_from_ethereum_is_signed_there_and_costs_nothing_here(
    cases: TransactionWorld, chain: StarknetChain
) -> None:
    [row] = await rows(chain, "transactions", cases.opened + 1)
    assert (row["hash"], row["sender"], row["recipient"]) == (
        cases.message,
        BRIDGE,
        cases.token,
    )
    assert (row["input"], row["fee"], row["type"]) == (selector_suffix(selector("handle_deposit")), bytes(32), 0)
    [transfer] = await rows(chain, "transfers", cases.opened + 1)
    assert (transfer["standard"], transfer["token"], transfer["sender"]) == ("erc20", cases.token, NOBODY)
    assert (transfer["recipient"], int.from_bytes(transfer["raw"], "big")) == (cases.account, SENT)


async def test_declarations_of_either_cairo_pay_and_deployments_without_an_account_do_not(
    cases: TransactionWorld, chain: StarknetChain
) -> None:
    first = await rows(chain, "transactions", 0)
    created = [row["created"] for row in first if row["created"]]
    assert {*cases.world.accounts, COIN} <= {*created}
    assert {row["sender"] for row in first if row["created"]} == {NOBODY}
    result = await chain.collect(Span(1, cases.opened), EVERYTHING)
    everyone = [
        each for each in result.tables["transactions"].to_pylist() if not (each["recipient"] or each["created"])
    ]
    declared = sorted(each["type"] for each in everyone)
    assert declared == [1, 1, 1, 2], "three classes of Cairo 0, and one of Cairo 2"
    assert all(int.from_bytes(each["fee"], "big") and each["sender"] == cases.world.accounts[0] for each in everyone)


async def test_a_token_whose_class_was_replaced_is_asked_as_it_was_at_each_block(
    cases: TransactionWorld, chain: StarknetChain
) -> None:
    pair = [(cases.account, chain.info.token_asset(cases.token))]
    await chain.heads()
    balances_by_block = []
    for height in (cases.replaced - 1, cases.replaced, cases.replaced - 1):
        balances_by_block.append(await at(chain, height, balances(chain.facts, pair)))
        balances_by_block.append(await at(chain, height, chain.balances(pair)))
    assert balances_by_block == [[SENT]] * 2 + [[2 * SENT]] * 2 + [[SENT]] * 2


async def test_a_contract_of_cairo_2_that_panics_has_refused(cases: TransactionWorld, chain: StarknetChain) -> None:
    """The contract panics because the account does not hold so much."""
    block = await chain.block(cases.replaced - 1)
    [result] = await answer(chain.node, [Call(cases.token, "transfer", (5, 1, 0))], block)
    assert result == Reverted()
