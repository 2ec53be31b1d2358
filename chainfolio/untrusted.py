"""Reads of untrusted contracts, on chains whose nodes decide how long a call may run.

Any sender can send a token whose contract runs for as long as a node permits. Such reads travel in separate requests,
with a time limit. Contracts that exhausted it are not read for some blocks: neither again in the same answer, which
takes several rounds, nor in the next one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from chainfolio.plans import Unknown

MAX_SECONDS: Final = 5.0  # of all untrusted reads of one round
MAX_SKIPPED: Final = 100_000  # contracts that are remembered
OVER: Final = Unknown("its contract is untrusted, and untrusted contracts used up what they may cost", cause="contract")
BURNT: Final = Unknown("its contract is untrusted and did not answer within what a call may use", cause="contract")


@dataclass(slots=True)
class SkippedContracts:
    """The untrusted contracts of one chain that are not read at some heights, each with the reason."""

    _contracts: dict[str, tuple[range, Unknown]] = field(default_factory=dict)

    def skip(self, contracts: Iterable[str], height: int, blocks: int, reason: Unknown) -> None:
        """Skip contracts that did not answer, at this height and `blocks` heights after it."""
        if len(self._contracts) > MAX_SKIPPED:
            self._contracts.clear()
        self._contracts |= dict.fromkeys(contracts, (range(height, height + blocks + 1), reason))

    def answer(self, contract: str, height: int) -> Unknown | None:
        """Return why a contract is not read at a height, None if it is."""
        heights, reason = self._contracts.get(contract, (range(0), OVER))
        return reason if height in heights else None
