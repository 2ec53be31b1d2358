"""A wallet that trades for two days on a real chain, indexed, so that a period of it can be closed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from chainfolio.cli.demo import prepare
from chainfolio.cli.main import main
from chainfolio.localchain import actions as do
from chainfolio.localchain.actions import Scene
from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.evm import Tx, tx
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import trade

WALLET = "0x00000000000000000000000000000000000c105e"
SAVINGS = "0x0000000000000000000000000000000000005afe"
PERIOD = ("--from", "2023-11-15", "--to", "2023-11-16", "--at", "17:00 Europe/Zurich", "--currency", "CHF")
POLICY = "[prices]\nmax_age_hours = 100\n"
SEND = "transfer(address,uint256)"
UNITS = {"USDC": 10**6, "DAI": 10**18}
HOUR_S = 3600
HOURS = 60
HABITS = (do.swap_ether_v2, do.wrap, do.swap_v2, do.swap_for_ether_v2, do.unwrap)


@dataclass(frozen=True)
class ClosedWorld:
    """A folder with settings, accounts, policy and a key, and the node of its chain."""

    folder: Path
    node: LocalNode

    def make(self, pack: str, *more: str, policy: str = "policy.toml") -> int:
        """Run `close make` for the usual period, and return its exit code."""
        with chdir(self.folder):
            files = ("--accounts", "accounts.txt", "--policy", policy, "--out", pack)
            return main(("close", "make", *files, *PERIOD, *more))


@contextmanager
def closed_world(folder: Path) -> Iterator[ClosedWorld]:
    """Trade for 60 hours, index the chain, and yield the folder while the node runs."""
    with LocalNode() as node:
        deployment = deploy(node)
        wallets = (WALLET, SAVINGS)
        for wallet in wallets:
            node.rpc("anvil_impersonateAccount", wallet)
        frank, contracts = deployment.accounts["frank"], deployment.contracts
        given = [tx(frank, contracts[name], SEND, WALLET, 500 * unit) for name, unit in UNITS.items()]
        node.settle([Tx(frank, WALLET, value=50 * 10**18), *given])
        scene = Scene(node, deployment, Random(5), {"own": WALLET}, {})
        for hour in range(HOURS):
            txs = HABITS[hour % len(HABITS)](scene, WALLET)
            if hour % 20 == 9:
                txs.append(Tx(WALLET, SAVINGS, value=10**18))
            if hour % 20 == 15:
                txs.append(tx(WALLET, contracts["USDC"], SEND, deployment.accounts["grace"], 10**6))
            node.settle(txs)
            node.mine(1, HOUR_S)
        node.mine(20)
        prepare(folder, node, deployment, 0)
        (folder / "accounts.txt").write_text(f"{WALLET}  # trading\n{SAVINGS}\n")
        (folder / "policy.toml").write_text(POLICY)
        for name in ("key", "other_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / name)]
            subprocess.run(command, check=True)
        with chdir(folder):
            assert main(("index", "local")) == 0
        yield ClosedWorld(folder, node)


@contextmanager
def trading_world(folder: Path) -> Iterator[ClosedWorld]:
    """Let the wallets of the demo trade for 60 hours, index the chain, and yield the folder while the node runs.

    `names.json` has the wallets by name.
    """
    with LocalNode() as node:
        deployment = deploy(node)
        trade(node, deployment, HOURS, seconds_per_block=HOUR_S, may_fail=True)
        node.mine(20)
        prepare(folder, node, deployment, 0)
        (folder / "names.json").write_text(json.dumps({**deployment.accounts}))
        with chdir(folder):
            assert main(("index", "local")) == 0
        yield ClosedWorld(folder, node)
