"""An execution chain and its beacon chain, both real nodes: block n of the first is in slot n of the
other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chainfolio.localchain.beacon import BeaconRuntime
from chainfolio.localchain.node import GENESIS_TIME, LocalNode
from tests.beacon.conftest import started

SLOT_S = 6  # of the minimal preset
COLLECTOR = "0x" + "fe" * 20


def owner(validator: int) -> str:
    """To whom a validator of the local beacon chain withdraws."""
    return f"0xaa{'00' * 15}{validator:08x}"


@dataclass
class Both:
    """The two nodes, at the same height."""

    execution: LocalNode
    beacon: BeaconRuntime

    def advance(self, slots: int, miss: Sequence[int] = ()) -> int:
        """So many slots more with a block of each chain; those of `miss` have a block of neither."""
        for _ in range(slots):
            slot = self.slot + 1
            if slot in miss:
                self.execution.rpc("evm_increaseTime", SLOT_S)
                self.beacon.advance(1, [slot])
                continue
            self.execution.rpc("evm_setNextBlockTimestamp", GENESIS_TIME + slot * SLOT_S)
            self.execution.mine()
            self.carried()
        return self.slot

    def carried(self, fee_recipient: str = COLLECTOR) -> int:
        """The beacon chain's next block carries the newest block of the execution chain; its slot."""
        block, slot = self.execution.block(), self.slot + 1
        assert int(block["timestamp"], 16) == GENESIS_TIME + slot * SLOT_S
        self.beacon.do(
            "payload",
            slot=slot,
            blockNumber=int(block["number"], 16),
            blockHash=block["hash"],
            feeRecipient=fee_recipient,
        )
        return self.beacon.advance(1)

    @property
    def slot(self) -> int:
        """The newest slot."""
        return int(self.beacon.call("/eth/v1/node/syncing")["data"]["head_slot"])

    def validator(self, slot: int | str, index: int) -> dict[str, Any]:
        """A validator as the node tells it after a slot."""
        state: dict[str, Any] = self.beacon.call(f"/eth/v1/beacon/states/{slot}/validators/{index}")["data"]
        return state

    def settings(self, folder: Path, extra: str = "", *, beacon: bool = True) -> Path:
        """A file of settings for both."""
        config = folder / "chainfolio.toml"
        beacon_toml = f'[chains.own]\nadapter = "beacon"\nrpc = ["{self.beacon.url}"]\nexecution = "local"\n{extra}'
        config.write_text(
            f'data = "{folder}/data"\n[chains.local]\nrpc = ["{self.execution.url}"]\n{beacon_toml if beacon else ""}'
        )
        return config


@contextmanager
def running(*, fork: str = "electra", validators: int = 64) -> Iterator[Both]:
    """Both nodes at their genesis; skips where the beacon runtime cannot be installed."""
    beacon = started(fork=fork, validators=validators, genesis_s=GENESIS_TIME)
    try:
        with LocalNode(seconds_per_block=SLOT_S) as execution:
            yield Both(execution, beacon)
    finally:
        beacon.__exit__(None, None, None)
