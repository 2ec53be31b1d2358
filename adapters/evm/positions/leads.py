"""To which contracts those of files lead, call by call: a market's data provider to its pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from adapters.evm.positions.matching import Decoder, family_of
from adapters.evm.positions.rules import Token, Unread
from adapters.evm.reads import Call, Read
from chainfolio.plans import Plan, Unknown
from chainfolio.protocols import InstalledProtocol

MAX_LISTED: Final = 16  # of a list that a contract answers with


@dataclass(slots=True)
class Led:
    """Whose each contract is that was led to, by decoder, question and the contract; and where nobody could be asked.

    Families that share a decoder are one here, so that a contract is one protocol's, however many lists name it."""

    rows: dict[tuple[Decoder, str, str], InstalledProtocol] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def whose(self, decoder: Decoder, questions: Sequence[str], contract: str) -> InstalledProtocol | None:
        """Whose the contract is, None if nobody's; Unread where one that could not be asked may lead there."""
        found = [self.rows[key] for each in questions if (key := (decoder, each, contract)) in self.rows]
        if not found and self.failed:
            raise Unread(f"{self.failed[0]} could not be asked", failed=True)
        return found[0] if found else None


def follow(leads: Sequence[tuple[InstalledProtocol, Token, str]]) -> Plan[Read, Any, Led]:
    """Ask all of them, one call of each path in a round."""
    led, left = Led(), [(row, rule, contract, 0) for row, rule, contract in leads]
    while left:
        calls = [Call(contract, rule.through[step]) for _, rule, contract, step in left]
        reached = []
        for (row, rule, contract, step), answer in zip(left, (yield calls), strict=True):
            if isinstance(answer, Unknown) and answer.cause == "read":
                led.failed.append(contract)
            several = [answer] if isinstance(answer, str) else answer if isinstance(answer, tuple) else ()
            reached += [(row, rule, each, step + 1) for each in several[:MAX_LISTED]]
        left = [each for each in reached if each[3] < len(each[1].through)]
        for row, rule, contract, step in reached:
            if step == len(rule.through):
                led.rows.setdefault((family_of(row).position, rule.question, contract), row)
    return led
