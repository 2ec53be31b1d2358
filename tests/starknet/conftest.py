"""A real Starknet node with a few transfers, and the chain that reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from chainfolio.adapters.starknet.chain import StarknetChain, build
from chainfolio.adapters.starknet.settings import StarknetSettings
from chainfolio.environment import Environment
from chainfolio.localchain.errors import InstallFailed, NoSuchNode
from chainfolio.localchain.starknet.devnet import Devnet

FACTS = """
key = "starknet"
kind = "starknet"
chain_id = 2
name = "Starknet devnet"
network = "SN_GOERLI"
fee_unit = "WEI"
finality = 2
[native]
symbol = "ETH"
name = "Ether"
decimals = 18
slip44 = 60
also_at = "0x049d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7"
"""
AMOUNTS = (10**17, 2 * 10**17, 3)


@dataclass(frozen=True)
class TransferWorld:
    """A devnet on which account 0 sent AMOUNTS to account 1, each in a separate block."""

    devnet: Devnet
    accounts: list[str]
    hashes: list[str]

    def balance(self, account: str, height: int) -> int:
        """Return the node's native balance, read without our code."""
        felts = self.devnet.rpc(
            "starknet_call",
            {
                "contract_address": "0x49d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7",
                "entry_point_selector": "0x2e4263afad30923c891518314c3c95dbe830a16874e8abc5777a9a20b54c76e",
                "calldata": [hex(int(account, 16))],
            },
            {"block_number": height},
        )
        return int(felts[0], 16) + (int(felts[1], 16) << 128)


@pytest.fixture(scope="session")
def transfers() -> Iterator[TransferWorld]:
    """One for all tests of this folder that change nothing."""
    try:
        with Devnet() as devnet:
            accounts = [f"0x{int(each['address'], 16):064x}" for each in devnet.accounts]
            hashes = devnet.transfer(*((0, accounts[1], amount) for amount in AMOUNTS))
            yield TransferWorld(devnet, accounts, hashes)
    except (InstallFailed, NoSuchNode) as error:
        pytest.skip(f"a Starknet node cannot be installed here: {error}")


def facts_file(folder: Path) -> Path:
    """The facts of the devnet."""
    path = folder / "facts.toml"
    path.write_text(FACTS)
    return path


@pytest.fixture
async def chain(transfers: TransferWorld, tmp_path: Path) -> AsyncIterator[StarknetChain]:
    """The chain of that node."""
    settings = StarknetSettings(
        adapter="starknet", rpc=[transfers.devnet.url + "/rpc"], facts=str(facts_file(tmp_path))
    )
    chain = build("starknet", settings, Environment(), configs=tmp_path)
    yield chain
    await chain.close()
