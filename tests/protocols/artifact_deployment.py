"""A local chain with contracts from published artifacts (`shared/contracts/*/*.json`), for decoders."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from eth_abi.exceptions import DecodingError

from chainfolio.adapters.evm.positions.interactions import ContractInteractions
from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.outcomes import Outcome, read_underlying
from chainfolio.adapters.evm.positions.shares import Shares
from chainfolio.adapters.evm.reads import Call, NativeBalance
from chainfolio.indexer.families import families
from chainfolio.localchain.errors import RpcError
from chainfolio.localchain.evm import MAX, Tx, call_data, result, tx, words
from chainfolio.localchain.node import LocalNode
from chainfolio.plans import Output, Plan, Reverted, Unknown, run_offline
from chainfolio.protocols import InstalledProtocol
from chainfolio.reads import AtParent
from tests.protocols.published import FOLDER, Overrides
from tests.protocols.scripted import NO_CODE, outcomes

DAY, WEEK = 86_400, 604_800
ETH = 10**18
GAS = 30_000_000
Contracts = Mapping[str, Sequence[str]]


@cache
def published(path: str) -> dict[str, Any]:
    """An artifact by protocol and name, as "stargate/StargatePool"."""
    plain, packed = FOLDER / f"{path}.json", FOLDER / f"{path}.json.gz"
    content: dict[str, Any] = json.loads(
        gzip.decompress(packed.read_bytes()) if packed.exists() else plain.read_bytes()
    )
    return content


def _type(parameter: Mapping[str, Any]) -> str:
    """The type of a parameter as signatures write it."""
    kind: str = parameter["type"]
    if not kind.startswith("tuple"):
        return kind
    return "(" + ",".join(map(_type, parameter["components"])) + ")" + kind.removeprefix("tuple")


class PublishedChain:
    """A node, and helpers to deploy artifacts, use them, and run one decoder on the newest block."""

    def __init__(self, node: LocalNode) -> None:
        self.node = node
        self.owner, self.alice, self.bob, self.carol = (account.lower() for account in node.accounts[:4])

    def create(self, code: str) -> str:
        """Create a contract from its creation code and return its address."""
        return str(self._mined(Tx(self.owner, None, "0x" + code.removeprefix("0x"), gas=GAS))["contractAddress"])

    def deploy(self, path: str, *args: Any) -> str:
        """Deploy an artifact; its interface gives the types of the constructor's arguments."""
        content = published(path)
        inputs = [entry.get("inputs", ()) for entry in content["abi"] if entry["type"] == "constructor"]
        return self.create(content["bytecode"] + words([_type(each) for each in (inputs or [()])[0]], *args))

    def answering(self, value: int) -> str:
        """Create a contract that answers any call with one word."""
        body = f"7f{value:064x}5f5260205ff3"
        return self.create(f"60{len(body) // 2:02x}8060095f395ff3{body}")

    def proxied(self, path: str, signature: str, *args: Any) -> str:
        """Deploy an artifact behind an ERC-1967 proxy, initialised by a call."""
        code = self.deploy(path)
        return self.deploy("common/ERC1967Proxy", code, bytes.fromhex(call_data(signature, *args)[2:]))

    def token(self, symbol: str, **amounts: int) -> str:
        """Create an ERC-20 of 18 decimals; `amounts` go to the named accounts, the rest to the owner."""
        token = self.deploy("common/ERC20PresetFixedSupply", symbol, symbol, 10**30, self.owner)
        for name, raw in amounts.items():
            self.do(self.owner, token, "transfer(address,uint256)", getattr(self, name), raw)
        return token

    def do(self, sender: str, to: str, signature: str, *args: Any, value: int = 0) -> None:
        """Send a call in a transaction and mine one block with it."""
        self._mined(tx(sender, to, signature, *args, value=value, gas=GAS))

    def approve(self, sender: str, spender: str, *tokens: str) -> None:
        """Allow a contract to take all of these tokens."""
        for token in tokens:
            self.do(sender, token, "approve(address,uint256)", spender, MAX)

    def read(self, to: str, signature: str, *args: Any, sender: str | None = None) -> Any:
        """Read a contract at the newest block."""
        return self.node.call(to, signature, *args, sender=sender)

    def balance(self, token: str, account: str) -> int:
        """The balance of a token."""
        return int(self.read(token, "balanceOf(address)(uint256)", account))

    def wait(self, seconds: int) -> None:
        """Mine one block that is this many seconds later."""
        self.node.mine(1, seconds)

    @property
    def time_s(self) -> int:
        """The time of the newest block."""
        return int(self.node.block()["timestamp"], 16)

    def outcomes(
        self,
        family: str,
        contracts: Contracts,
        account: str,
        interactions: ContractInteractions,
        *,
        options: Mapping[str, str] | None = None,
        overrides: Overrides | None = None,
        is_fork: bool = False,
    ) -> list[Outcome]:
        """Run one family, whose file names these contracts, for an account."""
        protocols = Protocols([_row(family, contracts, options, is_fork)])
        return self.run(outcomes(protocols, account, interactions), overrides)

    def unwrapped(
        self,
        family: str,
        contracts: Contracts,
        token: str,
        raw: int,
        *,
        overrides: Overrides | None = None,
        is_fork: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> Any:
        """Return what `raw` of a share stands for; None if no rule matches the token."""
        shares = Shares(Protocols([_row(family, contracts, options, is_fork)]))
        self.run(shares.read_answers([token]), overrides)
        share = shares.share(self.alice, token, {})
        return None if share is None else self.run(read_underlying(share, raw), overrides)

    def run(self, plan: Plan[Output], overrides: Overrides | None = None) -> Output:
        """Run a plan on the newest block."""
        height = self.node.height
        return run_offline(plan, lambda read: self._answer(read, overrides or {}, height))

    def _answer(self, read: Any, overrides: Overrides, height: int) -> Any:
        while isinstance(read, AtParent):
            read, height = read.read, height - 1
        if isinstance(read, NativeBalance):
            return int(self.node.rpc("eth_getBalance", read.account, hex(height)), 16)
        assert isinstance(read, Call)
        override = overrides.get((read.to, read.signature.partition("(")[0]))
        if override is not None:
            return override(*read.args) if isinstance(override, Callable) else override  # type: ignore[arg-type]
        request = {"to": read.to, "data": call_data(read.signature, *read.args)}
        try:
            answer = self.node.rpc("eth_call", request, hex(height))
        except RpcError:
            return Reverted()
        try:
            return NO_CODE if answer == "0x" else result(read.signature, answer)
        except DecodingError:
            return Unknown("its result is too short", "contract")

    def _mined(self, transaction: Tx) -> dict[str, Any]:
        tx_hash = self.node.send(transaction)
        self.node.mine()
        receipt: dict[str, Any] = self.node.rpc("eth_getTransactionReceipt", tx_hash)
        assert receipt["status"] == "0x1", f"{transaction.label} failed"
        return receipt


def _row(family: str, contracts: Contracts, options: Mapping[str, str] | None, is_fork: bool) -> InstalledProtocol:
    role_addresses = {role: tuple(addresses) for role, addresses in contracts.items()}
    return InstalledProtocol("published", families()[family], role_addresses, options or {}, is_fork)
