"""A chain whose protocol pays accounts: withdrawals of validators, and coins minted by deposits.

Anvil has no validators, and its deposits of a rollup run twice. So the coins are put into the state of a block, and its
body, as the provider gives it, says where they came from. All else is the node's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from chainfolio.adapters.evm import rlp
from chainfolio.adapters.evm.roots import list_root
from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import Tx, tx
from chainfolio.localchain.node import LocalNode
from tests.evm.anvil import Local, populated

PAYS = ("withdrawals", "mints")
GWEI = 10**9
STRANGER = "0x" + "77" * 20


def root_of(withdrawals: Sequence[Mapping[str, str]]) -> str:
    """The root of the trie of some withdrawals, which each block names."""
    encoded = [
        rlp.encode(
            [
                *(rlp.number(int(each[name], 16)) for name in ("index", "validatorIndex")),
                bytes.fromhex(each["address"][2:]),
                rlp.number(int(each["amount"], 16)),
            ]
        )
        for each in withdrawals
    ]
    return f"0x{list_root(encoded).hex()}"


@dataclass
class Paying:
    """A chain whose protocol pays, and what its blocks say of that."""

    local: Local
    withdrawn: dict[int, list[dict[str, str]]] = field(default_factory=dict)
    minted: dict[int, int] = field(default_factory=dict)

    @property
    def node(self) -> LocalNode:
        return self.local.node

    def address_of(self, name: str) -> str:
        return self.local.deployment.accounts[name].lower()

    def withdraw(self, *payments: tuple[str, int]) -> None:
        """Mine a block with withdrawals to accounts, in gwei."""
        self.node.mine()
        for account, gwei in payments:
            self._give(account, gwei * GWEI)
        self.withdrawn[self.node.height] = [
            {"index": hex(k), "validatorIndex": "0x1", "address": account, "amount": hex(gwei)}
            for k, (account, gwei) in enumerate(payments)
        ]
        self.node.mine()

    def deposit(self, sender: str, recipient: str, mint: int, value: int) -> None:
        """Run a deposit as the rollup does: mint coins for the sender, who sends a value on."""
        height = self.node.settle([Tx(sender, recipient, value=value)])
        self._give(sender, mint)
        self.minted[height] = mint
        self.node.mine()

    def _give(self, account: str, raw: int) -> None:
        has = int(self.node.rpc("eth_getBalance", account, "latest"), 16)
        self.node.rpc("anvil_setBalance", account, hex(has + raw))

    def answer(self, ask: dict[str, Any]) -> dict[str, Any] | None:
        """The answer of a node whose chain pays."""
        if ask["method"] == "eth_getTransactionByBlockHashAndIndex":
            tx = self.node.rpc(ask["method"], *ask["params"])
            return {"result": self._as_minted(int(tx["blockNumber"], 16), tx)}
        if ask["method"] != "eth_getBlockByNumber" or not ask["params"][0].startswith("0x"):
            return None
        height, is_full = int(ask["params"][0], 16), ask["params"][1]
        block = self.node.rpc(ask["method"], *ask["params"])
        block["withdrawals"] = self.withdrawn.get(height, [])
        block["withdrawalsRoot"] = root_of(block["withdrawals"])
        if is_full:
            block["transactions"] = [self._as_minted(height, tx) for tx in block["transactions"]]
        return {"result": block}

    def _as_minted(self, height: int, tx: dict[str, Any]) -> dict[str, Any]:
        return tx | {"type": "0x7e", "mint": hex(self.minted[height])} if height in self.minted else tx


@contextmanager
def paying_chain() -> Iterator[Paying]:
    """Start a chain that pays withdrawals and mints, with ordinary transactions of alice and bob."""
    with LocalNode() as node:
        local = Paying(populated(node))
        alice, bob = local.address_of("alice"), local.address_of("bob")
        weth = local.local.deployment.tokens["WETH"].address
        for k in range(4):
            node.mine(20 + 7 * k)
            local.withdraw((STRANGER, 5), (alice, 20_000_000 + k), (bob, 7), (alice, 3))
            node.settle([Tx(bob, alice, value=9), tx(alice, weth, "deposit()", value=WAD)])
            node.settle([tx(alice, weth, "withdraw(uint256)", WAD)])
            local.deposit(bob, alice, mint=11, value=4)
            local.deposit(alice, alice, mint=6, value=6)
        local.withdraw((alice, 32 * GWEI))
        node.mine(5)
        yield local
