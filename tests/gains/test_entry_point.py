"""ERC-4337 on the published code of release 0.8, whose package is fetched when this is run: gas and its deposit."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey

from chainfolio.adapters.evm.protocols.entry_point import OPERATION
from chainfolio.localchain import install
from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import Tx, call_data, created_address, topic_of, tx, words
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import ETH, Wallet
from tests.gains.scripted import contract
from tests.gains.test_erc4337 import FILE

pytestmark = pytest.mark.node
FILE_OF_RELEASES = Path(__file__).parents[2] / "configs" / "protocols" / "erc4337.toml"
MANIFEST = Path(__file__).with_name("entry_points.json")
PACKED = "(address,uint256,bytes,bytes,bytes32,uint256,bytes32,bytes,bytes)"
EXECUTE = "execute(address,uint256,bytes)"
OWNER = PrivateKey(bytes.fromhex("11" * 32))
GAS_LIMIT, GAS_PRICE = 1_500_000, 5 * 10**9
NO_SIGNATURE = b""


def create(world: World, name: str, *addresses: str) -> str:
    """Deploy an artifact of the package and return its address."""
    folder = install.archives(MANIFEST, install.home() / "entry_points") / "node_modules" / "@account-abstraction"
    code = json.loads((folder / "contracts" / "artifacts" / f"{name}.json").read_text())["bytecode"]
    owner = world.deployment.accounts["deployer"]
    nonce = int(world.node.rpc("eth_getTransactionCount", owner, "latest"), 16)
    world.node.settle([Tx(owner, None, code + words(["address"] * len(addresses), *addresses), gas=15_000_000)])
    return created_address(owner, nonce).lower()


@dataclass
class SmartAccount:
    """A wallet of the package's code, which its first operation creates."""

    world: World
    entry_point: str
    factory: str
    me: Wallet
    costs: list[int] = field(default_factory=list)

    @classmethod
    def new(cls, world: World) -> SmartAccount:
        """Return a wallet with ten ether that has no code yet."""
        entry_point = create(world, "EntryPoint")
        factory = create(world, "SimpleAccountFactory", entry_point)
        world.files["erc4337"] = FILE.format(entry_point)
        owner = OWNER.public_key.to_address()
        address = world.node.call(factory, "getAddress(address,uint256)(address)", owner, 0).lower()
        me = Wallet(world.node, world.deployment, address, world.wallet().assets)
        me.get(ETH, 10 * WAD)
        return cls(world, entry_point, factory, me)

    @property
    def deposit(self) -> int:
        """What the entry point keeps for the wallet."""
        raw: int = self.world.node.call(self.entry_point, "balanceOf(address)(uint256)", self.me.address)
        return raw

    def run(self, target: str, value: int, data: str) -> dict[str, int]:
        """Let a bundler send an operation that calls a contract; return what it moved apart from gas and deposit."""
        node, me, before = self.world.node, self.me, self.deposit
        bundler = self.world.deployment.accounts["alice"]
        operation = self._signed(call_data(EXECUTE, target, value, bytes.fromhex(data.removeprefix("0x"))))
        changes = me.do(
            tx(bundler, self.entry_point, f"handleOps({PACKED}[],address)", [operation], bundler, gas=6_000_000)
        )
        (hash,) = node.block()["transactions"]
        logs = node.rpc("eth_getTransactionReceipt", hash)["logs"]
        (event,) = [each for each in logs if each["topics"][0] == OPERATION]
        assert (event["topics"][2], event["address"]) == (topic_of(me.address), self.entry_point)
        _, is_successful, cost, _ = (int(event["data"][2 + 64 * at : 66 + 64 * at], 16) for at in range(4))
        assert is_successful
        self.costs.append(cost)
        me.ledger.sell(ETH, cost, me.value(ETH, cost))
        changes[ETH] = changes.get(ETH, 0) + self.deposit - before + cost
        return {symbol: raw for symbol, raw in changes.items() if raw}

    @property
    def cost_usd(self) -> Fraction:
        """The value of the gas of the last operation."""
        return self.me.value(ETH, self.costs[-1])

    def _signed(self, data: str) -> tuple[Any, ...]:
        """Return an operation with the owner's signature of the hash that the entry point computes."""
        node, address = self.world.node, self.me.address
        is_new = node.rpc("eth_getCode", address, "latest") == "0x"
        owner, factory = OWNER.public_key.to_address(), bytes.fromhex(self.factory[2:])
        creation = bytes.fromhex(call_data("createAccount(address,uint256)", owner, 0)[2:])
        nonce = node.call(self.entry_point, "getNonce(address,uint192)(uint256)", address, 0)
        limits = GAS_LIMIT.to_bytes(16, "big") * 2
        prices = (10**9).to_bytes(16, "big") + GAS_PRICE.to_bytes(16, "big")
        first = address, nonce, factory + creation if is_new else b"", bytes.fromhex(data[2:])
        unsigned = (*first, limits, 100_000, prices, b"", NO_SIGNATURE)
        digest = node.call(self.entry_point, f"getUserOpHash({PACKED})(bytes32)", unsigned)
        signature = OWNER.sign_msg_hash(digest).to_bytes()
        return (*unsigned[:-1], signature[:64] + bytes([27 + signature[64]]))


def test_gas_of_operations_is_a_fee_and_what_is_prepaid_stays_held(stage: World) -> None:
    smart_account = SmartAccount.new(stage)
    me, shop = smart_account.me, contract(stage)
    for _ in range(2):
        buys = shop.note(shop.pay(me, "DAI", 2_000 * WAD))
        assert smart_account.run(shop.address, WAD, buys.data) == {ETH: -WAD, "DAI": 2_000 * WAD}
        me.ledger.sell(ETH, WAD, me.value(ETH, WAD))
        me.ledger.buy("DAI", 2_000 * WAD, me.value("DAI", 2_000 * WAD) + smart_account.cost_usd)
    for target, value, data in (
        (smart_account.entry_point, WAD, call_data("depositTo(address)", me.address)),
        (me.address, 0, call_data("withdrawDepositTo(address,uint256)", me.address, WAD // 2)),
    ):
        before = smart_account.deposit
        assert smart_account.run(target, value, data) == {}
        assert abs(smart_account.deposit - before) > WAD // 3
    assert "erc4337" in stage.portfolio(me).asset_by_protocols
    report, records = stage.read(me)
    assert_equal(report, me)
    assert [each.type for each in records][1:3] == ["SWAP"] * 2


def test_file_has_the_entry_points_of_all_releases_on_every_chain() -> None:
    constants = install.ensure() / "node_modules" / "viem" / "account-abstraction" / "constants" / "address.ts"
    addresses = re.findall(r"entryPoint\d+Address =\s+'(0x[0-9a-fA-F]{40})'", constants.read_text())
    assert len(addresses) >= 4
    contracts = tomllib.loads(FILE_OF_RELEASES.read_text())["contracts"]
    for chain, of_chain in contracts.items():
        assert of_chain["entry_point"] == [each.lower() for each in addresses], chain
