"""Follow `Token.through`: from contracts of files, call by call, to the contracts they lead to.

For example from a market's data provider to its pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from chainfolio.adapters.evm.positions.matching import Decoder, family_of
from chainfolio.adapters.evm.positions.rules import ReadError, Token
from chainfolio.adapters.evm.reads import Call
from chainfolio.plans import Plan, Unknown, read_all
from chainfolio.protocols import InstalledProtocol

MAX_LIST_LENGTH: Final = 16  # of a list of contracts that a call returns


@dataclass(slots=True)
class ContractProtocols:
    """The protocols of contracts that were led to, by decoder, question and contract.

    `failed`: contracts whose read failed.

    Families that share a decoder count as one here, so that a contract belongs to one protocol, however many lists
    name it.
    """

    rows: dict[tuple[Decoder, str, str], InstalledProtocol] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def protocol_of(self, decoder: Decoder, questions: Sequence[str], contract: str) -> InstalledProtocol | None:
        """Return the protocol of a contract; None if no file leads to it.

        Raises:
            ReadError: It is unknown, because a read failed that may lead there.
        """
        for question in questions:
            if (row := self.rows.get((decoder, question, contract))) is not None:
                return row
        if self.failed:
            raise ReadError(f"{self.failed[0]} could not be asked", failed=True)
        return None


def follow_leads(leads: Sequence[tuple[InstalledProtocol, Token, str]]) -> Plan[ContractProtocols]:
    """Read all paths together and return the protocols of the contracts at their ends.

    Of a list, the first MAX_LIST_LENGTH contracts are followed. Contracts that refuse a call lead nowhere; those that
    could not be read are in `failed`. If several paths of a decoder end at one contract, the first one counts.
    """
    protocols, pending = ContractProtocols(), [(row, rule, contract, 0) for row, rule, contract in leads]
    while pending:
        calls = [Call(contract, rule.through[step]) for _, rule, contract, step in pending]
        followed = []
        for (row, rule, contract, step), result in zip(pending, (yield from read_all(calls)), strict=True):
            if isinstance(result, Unknown) and result.cause == "read":
                protocols.failed.append(contract)
            contracts = [result] if isinstance(result, str) else result if isinstance(result, tuple) else ()
            followed += [(row, rule, next_contract, step + 1) for next_contract in contracts[:MAX_LIST_LENGTH]]
        pending = [(row, rule, contract, step) for row, rule, contract, step in followed if step < len(rule.through)]
        for row, rule, contract, step in followed:
            if step == len(rule.through):
                protocols.rows.setdefault((family_of(row).position, rule.question, contract), row)
    return protocols
