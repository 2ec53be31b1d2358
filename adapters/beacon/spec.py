"""The specification of a network as its node gives it: slots, seconds, forks and quotients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chainfolio.adapters.beacon.responses import FAR_FUTURE, FORKS, Genesis
from chainfolio.errors import BadAnswer, UnsupportedMethod

SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Spec:
    """The genesis and the constants of one network."""

    source: str
    genesis: Genesis
    values: Mapping[str, object]
    _numbers: dict[str, int] = field(default_factory=dict)
    _fork_epochs: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """Return a constant.

        Raises:
            BadAnswer: The node does not give it.
        """
        if name not in self._numbers:
            text = self.values.get(name)
            if not isinstance(text, str) or not text.isdecimal() or len(text) > 78:
                raise BadAnswer(self.source, f"its specification has no number {name}")
            self._numbers[name] = int(text)
        return self._numbers[name]

    @property
    def slots_per_epoch(self) -> int:
        """Slots in an epoch."""
        return self.number("SLOTS_PER_EPOCH")

    @property
    def slot_us(self) -> int:
        """Duration of a slot, in microseconds."""
        return self.number("SECONDS_PER_SLOT") * SECOND_US

    @property
    def chain_id(self) -> int:
        """Id of the execution chain that has the deposit contract."""
        return self.number("DEPOSIT_CHAIN_ID")

    def epoch(self, slot: int) -> int:
        """Return the epoch of a slot."""
        return slot // self.slots_per_epoch

    def time_us(self, slot: int) -> int:
        """Return when a slot begins, in microseconds since 1970."""
        return self.genesis.genesis_time * SECOND_US + slot * self.slot_us

    def fork(self, epoch: int) -> str:
        """Return the name of the fork that is active in an epoch, such as `electra`.

        Raises:
            UnsupportedMethod: The fork is unknown to this version.
        """
        if not self._fork_epochs:
            names = [name for name in self.values if name.endswith("_FORK_EPOCH")]
            self._fork_epochs.update((name.removesuffix("_FORK_EPOCH").lower(), self.number(name)) for name in names)
        active = {name for name, first in self._fork_epochs.items() if first <= epoch and first != FAR_FUTURE}
        if unknown := sorted(active - set(FORKS)):
            raise UnsupportedMethod(
                self.source, f"the fork `{unknown[0]}` is not known here", remedy="upgrade Chainfolio, then index on"
            )
        return next((name for name in reversed(FORKS) if name in active), FORKS[0])

    def is_at_least(self, fork: str, epoch: int) -> bool:
        """Return True if a fork or a later one is active in an epoch."""
        return FORKS.index(self.fork(epoch)) >= FORKS.index(fork)

    def slashing_quotient(self, epoch: int) -> int:
        """Return the divisor of the effective balance for the initial penalty of a slashed validator."""
        name = "MIN_SLASHING_PENALTY_QUOTIENT"
        fork = self.fork(epoch)
        if fork in ("phase0", "altair"):
            return self.number(name if fork == "phase0" else f"{name}_ALTAIR")
        return self.number(f"{name}_ELECTRA" if self.is_at_least("electra", epoch) else f"{name}_BELLATRIX")

    def inactivity_quotient(self, epoch: int) -> int:
        """Return the divisor of the inactivity penalty."""
        suffix = "BELLATRIX" if self.is_at_least("bellatrix", epoch) else "ALTAIR"
        return self.number(f"INACTIVITY_PENALTY_QUOTIENT_{suffix}")
