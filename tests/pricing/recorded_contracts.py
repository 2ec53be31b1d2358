"""Recorded answers of published contracts on a local chain, by the moments of the recording."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chainfolio.localchain.evm import call_data, result
from chainfolio.plans import Reverted
from chainfolio.reads import AtParent

FOLDER = Path(__file__).parents[3] / "shared" / "contracts"
TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"


@dataclass(frozen=True)
class Event:
    """A log: where, its topics, and its data as words."""

    block: int
    at: str
    topics: Sequence[str]
    data: Sequence[int]


@dataclass
class RecordedContracts:
    """A recording.

    `overrides` answers calls that were not recorded, by contract and signature, with facts that the events prove.
    """

    name: str
    overrides: dict[tuple[str, str], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        path = FOLDER / self.name / "recorded.json"
        if not path.exists():
            pytest.skip(f"no recording of {self.name} beside the project")
        self._all = json.loads(path.read_text())
        self.addresses: Mapping[str, str] = {name: at.lower() for name, at in self._all["addresses"].items()}
        self.blocks: list[int] = [each["block"] for each in self._all["moments"]]
        moments = [each["moment"] for each in self._all["moments"]]
        self._answers = {
            (moments.index(call["moment"]), call["to"].lower(), call["data"]): call["answer"]
            for call in self._all["calls"]
        }

    def answer(self, read: Any, moment: int) -> Any:
        """Return a contract's answer at a moment; reads of the parent block are answered by the moment before."""
        if isinstance(read, AtParent):
            return self.answer(read.read, moment - 1)
        if (read.to, read.signature) in self.overrides:
            override = self.overrides[read.to, read.signature]
            return override(moment, *read.args) if callable(override) else override
        raw = self._answers.get((moment, read.to, call_data(read.signature, *read.args)))
        assert raw is not None, f"{read} was not recorded at moment {moment}"
        return result(read.signature, raw) if raw != "0x" else Reverted()

    def call(self, moment: int, name: str, signature: str, *args: Any) -> Any:
        """Return the recorded answer of a contract by its name."""
        return result(signature, self._answers[moment, self.addresses[name], call_data(signature, *args)])

    def events(self, topic: str, name: str = "") -> Iterator[Event]:
        """The logs that begin with a topic, of one contract if it is named."""
        for each in self._all["events"]:
            data = each["data"][2:]
            data_words = [int(data[at : at + 64], 16) for at in range(0, len(data), 64)]
            if each["topics"][0].startswith(topic) and (not name or each["address"].lower() == self.addresses[name]):
                yield Event(each["block"], each["address"].lower(), each["topics"], data_words)

    def balance(self, moment: int, token: str, holder: str) -> int:
        """Return the balance of `holder`, computed from its transfers up to the moment."""
        total, account = 0, holder[2:].lower()
        for each in self.events(TRANSFER):
            if each.at == token and each.block <= self.blocks[moment] and each.data:
                total += each.data[0] * (each.topics[2].endswith(account) - each.topics[1].endswith(account))
        return total
