"""The Ethereum Name Service on a local node.

It deploys the published contracts; those that clients look for have the addresses that they have on Ethereum.
"""

import json
from dataclasses import dataclass
from typing import Any

from chainfolio.localchain import install
from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.evm import Tx, created_address, keccak, tx, words
from chainfolio.localchain.node import LocalNode

REGISTRY = "0x00000000000C2E074eC69A0dFb2997BA6C7d2e1e"
UNIVERSAL_RESOLVER = "0xeEeEEEeE14D718C2B47D9923Deab1335E144EeEe"
MANIFEST = install.SOURCES / "names.json"
GAS = 8_000_000
YEAR_S = 365 * 24 * 3600
ROOT = bytes(32)


def label(text: str) -> bytes:
    """Return the hash of one label."""
    return keccak(text.encode())


def namehash(name: str) -> bytes:
    """Return the node of a name (EIP-137)."""
    node = ROOT
    for each in reversed(name.split(".")):
        node = keccak(node + label(each))
    return node


@dataclass(frozen=True)
class Names:
    """The service on a node. Its deployer also registers names."""

    node: LocalNode
    deployer: str
    registrar: str
    resolver: str
    reverse: str

    def register(self, name: str, owner: str, address: str | None = None, seconds: int = YEAR_S) -> None:
        """Register a name under .eth or below its owner's name, and point it to `address` if there is one."""
        first, _, parent = name.partition(".")
        if parent == "eth":
            number = int.from_bytes(label(first), "big")
            self._send(self.deployer, self.registrar, "register(uint256,address,uint256)", number, owner, seconds)
        else:
            signature = "setSubnodeOwner(bytes32,bytes32,address)"
            self._send(owner, REGISTRY, signature, namehash(parent), label(first), owner)
        if address is not None:
            self._send(owner, REGISTRY, "setResolver(bytes32,address)", namehash(name), self.resolver)
            self.point(name, owner, address)

    def point(self, name: str, owner: str, address: str) -> None:
        """Set the address of a name of an owner; the name must have the resolver."""
        self._send(owner, self.resolver, "setAddr(bytes32,address)", namehash(name), address)

    def set_reverse(self, account: str, name: str) -> None:
        """Set the reverse record of an account to any name."""
        self._send(account, self.reverse, "setName(string)", name)

    def _send(self, sender: str, to: str, function: str, *arguments: object) -> None:
        self.node.settle([tx(sender, to, function, *arguments, gas=GAS)])


def deploy_names(node: LocalNode) -> Names:
    """Deploy the service; the first account of the node owns its root and its registrar."""
    return _Deployer(node).names()


class _Deployer:
    def __init__(self, node: LocalNode) -> None:
        self.node, self.account = node, node.accounts[0]
        self.folder = install.archives(MANIFEST, install.home() / "names") / "node_modules" / "@ensdomains"

    def names(self) -> Names:
        """Deploy and connect the contracts, with the deployer as the controller of `.eth`."""
        node, give, account = self.node, "setSubnodeOwner(bytes32,bytes32,address)", self.account
        node.rpc("anvil_setCode", REGISTRY, self._published("ens", "ENSRegistry")["deployedBytecode"])
        owner_of_root = "0x" + keccak(ROOT + bytes(32)).hex()
        node.rpc("anvil_setStorageAt", REGISTRY, owner_of_root, "0x" + account[2:].zfill(64))
        universal = self._create(artifact("UniversalResolver").creation(words(["address"], REGISTRY)))
        node.rpc("anvil_setCode", UNIVERSAL_RESOLVER, node.rpc("eth_getCode", universal, "latest"))
        resolver = self._create(self._creation("resolver", "PublicResolver", ["address"], REGISTRY))
        base = ("ethregistrar", "BaseRegistrarImplementation", ["address", "bytes32"], REGISTRY, namehash("eth"))
        registrar = self._create(self._creation(*base))
        self._send(REGISTRY, give, ROOT, label("eth"), registrar)
        self._send(registrar, "addController(address)", account)
        self._send(REGISTRY, give, ROOT, label("reverse"), account)
        reverse = self._create(self._creation("ens", "ReverseRegistrar", ["address", "address"], REGISTRY, resolver))
        self._send(REGISTRY, give, namehash("reverse"), label("addr"), reverse)
        return Names(node, account, registrar, resolver, reverse)

    def _send(self, to: str, function: str, *arguments: object) -> None:
        self.node.settle([tx(self.account, to, function, *arguments, gas=GAS)])

    def _create(self, creation: str) -> str:
        nonce = int(self.node.rpc("eth_getTransactionCount", self.account, "latest"), 16)
        self.node.settle([Tx(self.account, None, creation, gas=GAS)])
        return created_address(self.account, nonce)

    def _creation(self, package: str, contract: str, types: list[str], *arguments: object) -> str:
        return str(self._published(package, contract)["bytecode"]) + words(types, *arguments)

    def _published(self, package: str, contract: str) -> dict[str, Any]:
        path = self.folder / package / "build" / "contracts" / f"{contract}.json"
        published: dict[str, Any] = json.loads(path.read_text())
        return published
