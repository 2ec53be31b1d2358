"""A local chain with real contracts and an index, on which tests close positions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from chainfolio.blocks import Block
from chainfolio.cli.demo import index_chain, prepare
from chainfolio.contracts import Position, Snapshot
from chainfolio.engine.wiring import snapshotter_of
from chainfolio.indexer.wiring import System
from chainfolio.localchain.deploy import Deployment
from chainfolio.localchain.evm import Tx, topic
from chainfolio.localchain.node import LocalNode

Result = TypeVar("Result")
TRANSFER = topic("Transfer(address,address,uint256)")
ETHER = "0x" + "0" * 40
# How a simulation reports native coins that move: as a Transfer of this address.
NATIVE_LOGS = "0x" + "ee" * 20


@dataclass(slots=True)
class World:
    """A node, its deployment, and Chainfolio's folder. `files`: further protocol files, by key."""

    node: LocalNode
    deployment: Deployment
    folder: Path
    files: Mapping[str, str] = field(default_factory=dict)

    def run(self, work: Callable[[System], Coroutine[Any, Any, Result]]) -> Result:
        """Index the chain from nothing and do some work on it."""

        async def go() -> Result:
            settings = prepare(self.folder / "data", self.node, self.deployment, 0)
            for key, text in self.files.items():
                (Path(settings.protocols) / f"{key}.toml").write_text(text)
            system = System(settings)
            try:
                await index_chain(system, quiet=True)
                return await work(system)
            finally:
                await system.close()

        return asyncio.run(go())

    def snapshot(self, *accounts: str, height: int | None = None) -> Snapshot:
        """Take a snapshot of accounts at a height, or at the newest block."""

        async def work(system: System) -> Snapshot:
            chain = system.chain("local")
            block = await chain.block(self.node.height if height is None else height)
            return await snapshotter_of(system, chain).take([account.lower() for account in accounts], block)

        return self.run(work)

    def payout(self, account: str, calls: Sequence[Tx], block: Block) -> dict[str, int]:
        """Simulate calls on top of a block, at its time, and return the net transfers to an account.

        Returns:
            Raw amounts by token: positive amounts came in, negative ones went out.
        """
        requests = [
            {"from": call.sender, "to": call.to, "data": call.data, "value": hex(call.value), "gas": hex(5_000_000)}
            for call in calls
        ]
        overrides = {"time": hex(block.time_us // 1_000_000)}
        states = [{"blockOverrides": overrides, "calls": requests}]
        request = {"blockStateCalls": states, "validation": False, "traceTransfers": True}
        (result,) = self.node.rpc("eth_simulateV1", request, hex(block.height))
        totals: dict[str, int] = {}
        for outcome in result["calls"]:
            assert outcome["status"] == "0x1", outcome
            for log in outcome["logs"]:
                if log["topics"][0] == TRANSFER and len(log["topics"]) == 3 and log["data"] != "0x":
                    token = ETHER if log["address"] == NATIVE_LOGS else log["address"]
                    raw = int(log["data"], 16)
                    sides = [("0x" + part[-40:], sign) for part, sign in zip(log["topics"][1:], (-1, 1), strict=True)]
                    totals[token] = totals.get(token, 0) + sum(
                        raw * s for holder, s in sides if holder == account.lower()
                    )
        return {token: raw for token, raw in totals.items() if raw}


def parts(positions: Sequence[Position], *sides: str) -> dict[str, int]:
    """Return the sums of some sides of positions as raw amounts, by token."""
    total: dict[str, int] = {}
    for position in positions:
        for side in sides:
            for part in getattr(position, side):
                contract = part.token.asset.shown_contract
                total[contract] = total.get(contract, 0) + part.raw
    return total
