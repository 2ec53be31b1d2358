"""Limits on reads of untrusted contracts: gas for each read, for each contract, and for one answer.

Anybody can send a token whose contract uses up all gas that it gets. Such reads are sent in separate calls after all
others, and their gas is bounded by their number, not by what the contracts do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from chainfolio.plans import Unknown
from chainfolio.untrusted import OVER

READ_GAS: Final = 300_000
MAX_ANSWER: Final = 4096  # bytes that are read of one answer
MAX_CALL_GAS: Final = 30_000_000  # of one scanner call
BASE_GAS, AVERAGE_GAS = 3_000_000, 15_000  # of one scanner call, and for each of its reads
MAX_CALL_READS: Final = (MAX_CALL_GAS - BASE_GAS) // AVERAGE_GAS
MAX_CALL_ROUNDS: Final = 2  # rounds of one answer in which untrusted contracts are read by scanner calls
SPLIT: Final = 4  # calls into which the rest of such a call is split
TRIES: Final = 2  # attempts of all reads for which the gas suffices
BURNT_BLOCKS: Final = 300  # an hour of Ethereum: a contract that used up the gas of a read is skipped for so long

BURNT: Final = Unknown(f"its contract is untrusted and used up {READ_GAS:,} gas without an answer", cause="contract")


def call_gas(read_count: int) -> int:
    """Return the gas of one scanner call with that many reads."""
    return BASE_GAS + AVERAGE_GAS * read_count


@dataclass(slots=True)
class Budget:
    """The remaining gas of reads of untrusted contracts in one answer.

    `burnt`: contracts that are no longer read because a read used up its gas.
    """

    gas: int
    burnt: set[str] = field(default_factory=set)
    call_rounds: int = 0
    is_called: bool = False  # this round had a scanner call

    @classmethod
    def of(cls, read_count: int) -> Budget:
        """Return the budget of an answer with that many untrusted reads."""
        calls = -(-read_count // MAX_CALL_READS)
        return cls(TRIES * (calls * BASE_GAS + AVERAGE_GAS * read_count))

    def charge(self, gas: int, *, is_single: bool = False) -> None:
        """Charge the gas that a call could use.

        `is_single`: it is the call of one read, not one of the scanner, whose rounds are counted.
        """
        self.gas -= gas
        self.is_called = self.is_called or not is_single

    def end_round(self) -> None:
        """Count a round with scanner calls."""
        self.call_rounds += self.is_called
        self.is_called = False

    def refusal(self, contract: str, *, is_alone: bool = False) -> Unknown | None:
        """Return why a contract may not be read in this round; None if it may.

        All contracts share the gas and the rounds. Only `burnt` is by contract. Nothing is charged.

        Args:
            is_alone: The read is a separate call. It needs `READ_GAS`, and the limit of rounds does not apply.
        """
        if contract in self.burnt:
            return BURNT
        if is_alone:
            return OVER if self.gas < READ_GAS else None
        is_over = self.gas < call_gas(1) or self.call_rounds >= MAX_CALL_ROUNDS
        return OVER if is_over else None
