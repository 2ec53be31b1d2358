"""Replay recordings of protocols' own code, `shared/contracts/*/recorded.json`, to decoders."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.evm.positions.interactions import ContractInteractions
from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.outcomes import Outcome
from chainfolio.adapters.evm.reads import Call, NativeBalance
from chainfolio.indexer.families import families
from chainfolio.localchain.evm import call_data, result
from chainfolio.plans import Output, Plan, run_offline
from chainfolio.protocols import DecodedPosition, InstalledProtocol
from chainfolio.reads import AtParent
from tests.protocols.scripted import NO_CODE, outcomes

# The folder of the recordings: next to the project, or the one that the variable names.
FOLDER = Path(os.environ.get("PUBLISHED_CONTRACTS", Path(__file__).parents[3] / "shared" / "contracts"))
needs_contracts = pytest.mark.skipif(not FOLDER.is_dir(), reason="the recordings of published contracts are not here")
ETHER = "0x" + "0" * 40
# Results by contract and function: instead of, or in addition to, recorded ones; a function gets the arguments.
Overrides = Mapping[tuple[str, str], Any]


@cache
def recorded(name: str) -> dict[str, Any]:
    """The recording in a folder."""
    content: dict[str, Any] = json.loads((FOLDER / name / "recorded.json").read_text())
    return content


class RecordedState:
    """The state of a recording at one time; `roles` maps roles to addresses."""

    def __init__(self, name: str, index: int) -> None:
        content = recorded(name)
        entry = content["moments"][index]
        self.roles: dict[str, str] = {role: address.lower() for role, address in content["addresses"].items()}
        self.time_s: int = entry["timestamp"]
        self._answers = {
            (call["to"].lower(), call["data"]): call["answer"]
            for call in content["calls"]
            if call["moment"] == entry["moment"] and call.get("answer")
        }

    def value(self, role: str, signature: str, *args: Any) -> Any:
        """Return a recorded result.

        Raises:
            KeyError: It was not recorded.
        """
        return result(signature, self._answers[self.roles[role], call_data(signature, *args)])

    def outcomes(
        self,
        family: str,
        contracts: Mapping[str, Sequence[str]],
        account: str,
        interactions: ContractInteractions,
        overrides: Overrides | None = None,
        is_fork: bool = False,
    ) -> list[Outcome]:
        """Run one family, whose file names these roles of the recording, for an account."""
        role_addresses = {
            role: tuple(self.roles.get(part, part) for part in parts) for role, parts in contracts.items()
        }
        row = InstalledProtocol("published", families()[family], role_addresses, {}, is_fork)
        return self.run(outcomes(Protocols([row]), self.roles.get(account, account), interactions), overrides)

    def run(self, plan: Plan[Output], overrides: Overrides | None = None) -> Output:
        """Run a plan on the recorded answers."""
        replaced = {(self.roles.get(to, to), function): value for (to, function), value in (overrides or {}).items()}
        return run_offline(plan, lambda read: self._answer(read, replaced))

    def _answer(self, read: Any, overrides: Overrides) -> Any:
        while isinstance(read, AtParent):
            read = read.read
        if isinstance(read, NativeBalance):
            return overrides.get((read.account, "native"), NO_CODE)
        assert isinstance(read, Call)
        override = overrides.get((read.to, read.signature.partition("(")[0]))
        if override is not None:
            return override(*read.args) if isinstance(override, Callable) else override  # type: ignore[arg-type]
        answer = self._answers.get((read.to, call_data(read.signature, *read.args)))
        assert answer is not None, f"{read} was not recorded"
        return result(read.signature, answer)


def exchanged(*contracts: str, tokens: Sequence[str | None] = (None,)) -> ContractInteractions:
    """The interactions of an account that exchanged tokens (None: native coins) with contracts."""
    return ContractInteractions(exchanged={contract: frozenset(tokens) for contract in contracts})


def amounts(positions: Sequence[DecodedPosition], *sides: str) -> dict[str, int]:
    """The raw amounts of sides of positions that are not zero, by token."""
    total: dict[str, int] = {}
    for position in positions:
        for side in sides:
            for part in getattr(position, side):
                total[part.token] = total.get(part.token, 0) + part.raw
    return {token: raw for token, raw in total.items() if raw}


def positions(results: Sequence[Outcome]) -> list[DecodedPosition]:
    """The positions of outcomes."""
    return [position for outcome in results for position in outcome.positions]
