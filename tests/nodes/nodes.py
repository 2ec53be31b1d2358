"""Nodes of other makers in place of anvil: other names are translated, missing methods stay missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chainfolio.localchain import install
from chainfolio.localchain.errors import InstallFailed
from chainfolio.localchain.node import GAS_LIMIT, LocalNode

HERE = Path(__file__).parent
PATIENCE_S = 90.0  # of each step of the installation
MNEMONIC = "test test test test test test test test test test test junk"  # the one of anvil and hardhat


def home() -> Path:
    """Return the folder of their installation: NODES_HOME, or next to the local chain."""
    chosen = os.environ.get("NODES_HOME")
    return Path(chosen) if chosen else install.home() / "nodes"


_failed: dict[str, InstallFailed] = {}


def installed(maker: str) -> Path:
    """The folder of a maker's node; an installation that failed is not tried again."""
    if maker in _failed:
        raise _failed[maker]
    try:
        return install.packages(HERE / maker / "package.json", home() / maker, PATIENCE_S)
    except InstallFailed as error:
        _failed[maker] = error
        raise


class Other(LocalNode):
    """Common parts of both. `renamed` are anvil's methods under other names."""

    renamed: Mapping[str, str] = {}

    def _prepare(self) -> None:
        """Do nothing: neither has a fixed time between blocks."""

    def rpc(self, method: str, *params: Any) -> Any:
        """Send one request. Receipts of a block are read one by one, for tests that need the truth about it."""
        if method == "eth_getBlockReceipts":
            transactions = super().rpc("eth_getBlockByNumber", params[0], False)["transactions"]
            return numbered(self.batch(("eth_getTransactionReceipt", [tx_hash]) for tx_hash in transactions))
        return super().rpc(self.renamed.get(method, method), *params)


def numbered(receipts: list[Any]) -> list[Any]:
    """Number the logs of receipts within their block: Ganache starts anew in each receipt, but not in its logs."""
    logs = [log for receipt in receipts for log in receipt["logs"]]
    for number, log in enumerate(logs):
        log["logIndex"] = hex(number)
    return receipts


class Hardhat(Other):
    """`hardhat node`: the same EVM as anvil's behind another server."""

    renamed: Mapping[str, str] = {"anvil_setCode": "hardhat_setCode"}

    def _command(self, cache: str) -> list[str]:
        folder = installed("hardhat")
        config = folder / "hardhat.config.js"
        shutil.copyfile(HERE / "hardhat" / config.name, config)
        modules = folder / "node_modules"
        newer = (modules / "node" / "bin" / "node", *modules.glob("node-*/bin/node"))
        program = next(str(path) for path in newer if path.exists())
        quiet = ["env", "-C", str(folder), "CI=1", "HARDHAT_DISABLE_TELEMETRY_PROMPT=true"]
        listen = ["--hostname", "127.0.0.1", "--port", str(self.port), "--network", "node"]
        return [*quiet, program, str(modules / "hardhat" / "dist" / "src" / "cli.js"), "node", *listen]

    def mine(self, n: int = 1, seconds: int | None = None) -> int:
        """Blocks."""
        apart = seconds or self.seconds_per_block
        for _ in range(n):  # `hardhat_mine` makes up most of several blocks, and those do not link
            self.rpc("evm_setNextBlockTimestamp", int(self.block()["timestamp"], 16) + apart)
            self.rpc("evm_mine")
        return self.height


class Ganache(Other):
    """Ganache: a separate EVM, of the Shanghai fork, without a maintainer."""

    renamed: Mapping[str, str] = {"anvil_setCode": "evm_setAccountCode"}

    def _command(self, cache: str) -> list[str]:
        folder = installed("ganache")
        options = {
            "--server.host": "127.0.0.1",
            "--server.port": self.port,
            "--chain.chainId": self.chain_id,
            "--chain.networkId": self.chain_id,
            "--chain.hardfork": "shanghai",
            "--miner.blockGasLimit": hex(GAS_LIMIT),
            "--wallet.mnemonic": MNEMONIC,
            "--wallet.defaultBalance": 10_000,
            "--database.dbPath": str(Path(cache, "db")),
            "--chain.time": "2023-11-14T22:13:20Z",
        }
        cli = str(folder / "node_modules" / "ganache" / "dist" / "node" / "cli.js")
        return ["node", cli, *(str(part) for pair in options.items() for part in pair)]

    def rpc(self, method: str, *params: Any) -> Any:
        """One request; whether blocks are made by hand is another method here."""
        if method == "evm_setAutomine":
            return super().rpc("miner_start" if params[0] else "miner_stop")
        return super().rpc(method, *params)

    def mine(self, n: int = 1, seconds: int | None = None) -> int:
        """Blocks."""
        self.rpc("evm_mine", {"blocks": n})
        return self.height
