"""What reads of untrusted contracts may cost: gas for each read, for each contract, and for all of one answer.

Anybody can send a token whose contract uses up all gas that it gets. Such reads travel in calls of their own behind all
others, and what they may use is bounded by their number, not by what the contracts do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from chainfolio.plans import Unknown

READ_GAS: Final = 300_000
MAX_ANSWER: Final = 4096  # bytes that are read of one answer
MAX_CALL_GAS: Final = 30_000_000  # of one scanner call
BASE_GAS, AVERAGE_GAS = 3_000_000, 30_000  # of one scanner call, and for each of its reads
MAX_CALL_READS: Final = (MAX_CALL_GAS - BASE_GAS) // AVERAGE_GAS
TRIES: Final = 2  # how often all reads could be sent, if each attempt used its whole gas

OVER: Final = Unknown("its contract is untrusted, and untrusted contracts used up what they may cost", cause="contract")
BURNT: Final = Unknown(f"its contract is untrusted and used up {READ_GAS:,} gas without an answer", cause="contract")


def call_gas(read_count: int) -> int:
    """Return the gas of one scanner call with that many reads."""
    return BASE_GAS + AVERAGE_GAS * read_count


@dataclass(slots=True)
class Budget:
    """The gas that reads of untrusted contracts may still use in one answer, and the contracts that are read no more
    because one of their reads used up its gas."""

    gas: int
    burnt: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, read_count: int) -> Budget:
        """Return the budget of an answer with that many untrusted reads."""
        calls = -(-read_count // MAX_CALL_READS)
        return cls(TRIES * (calls * BASE_GAS + AVERAGE_GAS * read_count))

    def stop(self, contract: str) -> None:
        """Charge a read that used up its gas, and read its contract no more."""
        self.gas -= READ_GAS
        self.burnt.add(contract)

    def answer(self, contract: str) -> Unknown | None:
        """Return why a contract is read no more, None if it still may be."""
        if contract in self.burnt:
            return BURNT
        return OVER if self.gas < call_gas(1) else None
