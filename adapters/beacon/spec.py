"""What the node says of its network: slots, seconds, forks and quotients. Nothing of it is known beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chainfolio.adapters.beacon.answers import FAR_FUTURE, FORKS, Genesis
from chainfolio.adapters.beacon.node import Nodes
from chainfolio.errors import BadAnswer, UnsupportedMethod

SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Spec:
    """One network."""

    source: str
    genesis: Genesis
    values: Mapping[str, Any]
    _read: dict[str, int] = field(default_factory=dict)
    _begins: dict[str, int] = field(default_factory=dict)  # forks, and the epoch of each

    def number(self, name: str) -> int:
        """One value; BadAnswer where the node does not say it."""
        found = self._read.get(name)
        if found is None:
            found = self._read[name] = self._number(name)
        return found

    def _number(self, name: str) -> int:
        written = self.values.get(name)
        if not isinstance(written, str) or not written.isdecimal() or len(written) > 78:
            raise BadAnswer(self.source, f"its specification has no number {name}")
        return int(written)

    @property
    def slots(self) -> int:
        """Slots in an epoch."""
        return self.number("SLOTS_PER_EPOCH")

    @property
    def slot_us(self) -> int:
        """How long a slot takes."""
        return self.number("SECONDS_PER_SLOT") * SECOND_US

    @property
    def chain_id(self) -> int:
        """The number of the chain whose deposit contract it listens to."""
        return self.number("DEPOSIT_CHAIN_ID")

    def epoch(self, slot: int) -> int:
        """The epoch of a slot."""
        return slot // self.slots

    def time_us(self, slot: int) -> int:
        """When a slot begins."""
        return self.genesis.genesis_time * SECOND_US + slot * self.slot_us

    def fork(self, epoch: int) -> str:
        """The fork at an epoch; Unsupported where the node's schedule has one by then that is not known here."""
        if not self._begins:
            names = [name for name in self.values if name.endswith("_FORK_EPOCH")]
            self._begins.update((name.removesuffix("_FORK_EPOCH").lower(), self.number(name)) for name in names)
        begun = {name for name, first in self._begins.items() if first <= epoch and first != FAR_FUTURE}
        if unknown := sorted(begun - set(FORKS)):
            raise UnsupportedMethod(
                self.source, f"the fork `{unknown[0]}` is not known here", remedy="upgrade Chainfolio, then index on"
            )
        return next((name for name in reversed(FORKS) if name in begun), FORKS[0])

    def is_at_least(self, fork: str, epoch: int) -> bool:
        """Whether a fork has begun by an epoch."""
        return FORKS.index(self.fork(epoch)) >= FORKS.index(fork)

    def slashing_quotient(self, epoch: int) -> int:
        """By what the effective balance is divided for the first penalty of who is slashed."""
        name = "MIN_SLASHING_PENALTY_QUOTIENT"
        fork = self.fork(epoch)
        if fork in ("phase0", "altair"):
            return self.number(name if fork == "phase0" else f"{name}_ALTAIR")
        return self.number(f"{name}_ELECTRA" if self.is_at_least("electra", epoch) else f"{name}_BELLATRIX")

    def inactivity_quotient(self, epoch: int) -> int:
        """By what the penalty for inactivity is divided."""
        suffix = "BELLATRIX" if self.is_at_least("bellatrix", epoch) else "ALTAIR"
        return self.number(f"INACTIVITY_PENALTY_QUOTIENT_{suffix}")


async def read(nodes: Nodes) -> Spec:
    """What the nodes say."""
    genesis = await nodes.data("/eth/v1/beacon/genesis", Genesis)
    values = await nodes.data("/eth/v1/config/spec", dict[str, Any])
    spec = Spec(nodes.key, genesis, values)
    if min(spec.slots, spec.slot_us) < 1:
        raise BadAnswer(nodes.key, "its specification has epochs or slots of no length")
    return spec
