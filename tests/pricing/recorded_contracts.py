"""What published contracts answered on a local chain, read in place: reads are answered as they were at a moment."""

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
    words: Sequence[int]


@dataclass
class RecordedContracts:
    """A recording. `more` answers what was not called, by contract and signature: facts that the events prove."""

    name: str
    more: dict[tuple[str, str], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        path = FOLDER / self.name / "recorded.json"
        if not path.exists():
            pytest.skip(f"no recording of {self.name} beside the project")
        self._all = json.loads(path.read_text())
        self.addresses: Mapping[str, str] = {name: at.lower() for name, at in self._all["addresses"].items()}
        self.blocks: list[int] = [each["block"] for each in self._all["moments"]]
        words = [each["moment"] for each in self._all["moments"]]
        self._said = {
            (words.index(call["moment"]), call["to"].lower(), call["data"]): call["answer"]
            for call in self._all["calls"]
        }

    def answer(self, read: Any, moment: int) -> Any:
        """What the contract said at a moment; of the state before, what it said at the moment before."""
        if isinstance(read, AtParent):
            return self.answer(read.read, moment - 1)
        if (read.to, read.signature) in self.more:
            said = self.more[read.to, read.signature]
            return said(moment, *read.args) if callable(said) else said
        raw = self._said.get((moment, read.to, call_data(read.signature, *read.args)))
        assert raw is not None, f"{read} was not recorded at moment {moment}"
        return result(read.signature, raw) if raw != "0x" else Reverted()

    def call(self, moment: int, name: str, signature: str, *args: Any) -> Any:
        """What a contract was recorded to answer."""
        return result(signature, self._said[moment, self.addresses[name], call_data(signature, *args)])

    def events(self, topic: str, name: str = "") -> Iterator[Event]:
        """The logs that begin with a topic, of one contract if it is named."""
        for each in self._all["events"]:
            data = each["data"][2:]
            found = [int(data[at : at + 64], 16) for at in range(0, len(data), 64)]
            if each["topics"][0].startswith(topic) and (not name or each["address"].lower() == self.addresses[name]):
                yield Event(each["block"], each["address"].lower(), each["topics"], found)

    def held(self, moment: int, token: str, holder: str) -> int:
        """How much of a token an account has, by all transfers until then."""
        total, who = 0, holder[2:].lower()
        for each in self.events(TRANSFER):
            if each.at == token and each.block <= self.blocks[moment] and each.words:
                total += each.words[0] * (each.topics[2].endswith(who) - each.topics[1].endswith(who))
        return total
