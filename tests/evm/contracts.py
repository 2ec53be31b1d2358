"""Contracts that a fake node can call: plainly, or by the scanner, put there by an override or by creation code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from chainfolio.adapters.evm.scanner import CREATION_CODE, SCANNER, SCANNER_AT

Contract = Callable[[bytes], bytes]
READ_COST = 3_000  # gas of a read that gives an answer


class Refused(Exception):
    """What a node answers with an error object."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data

    def error(self) -> dict[str, Any]:
        extra = {} if self.data is None else {"data": self.data}
        return {"code": self.code, "message": self.message, **extra}


class Reverts(Exception):
    """A contract that refuses."""


class Burns(Exception):
    """A contract that uses up whatever gas it gets."""


def gives(value: int) -> Contract:
    """A contract that answers everything with one word."""
    return lambda data: value.to_bytes(32, "big")


def balances(held: dict[str, int]) -> Contract:
    """An ERC-20 as far as balanceOf."""
    return lambda data: held.get("0x" + data[16:36].hex(), 0).to_bytes(32, "big")


@dataclass
class Contracts:
    """What lies at which address, who holds how many native coins, and what the node makes of calls."""

    code: dict[str, Contract] = field(default_factory=dict)
    native: dict[str, int] = field(default_factory=dict)
    overrides: str = "yes"  # yes, ignored, refused
    creations: str = "yes"  # yes, refused, reverted (as revert data), nonsense (reverted with something else)
    gas_cap: int = 50_000_000
    costs: dict[str, int] = field(default_factory=dict)  # gas of a read that gives an answer, if not READ_COST
    gas_used: int = 0  # by the reads of the scanner

    def call(self, asked: dict[str, Any], override: dict[str, Any]) -> str:
        """The result of eth_call, or Refused."""
        data = bytes.fromhex(asked["data"][2:])
        limit = min(self.gas_cap, int(asked.get("gas", hex(self.gas_cap)), 16))
        if override:
            if self.overrides == "refused":
                raise Refused(-32602, "too many arguments, want at most 2")
            if self.overrides == "yes":
                assert override == {SCANNER_AT: {"code": SCANNER}}
                return "0x" + b"".join(self._scanned(data, limit)).hex()
        if "to" not in asked:
            return self._created(asked["data"], limit)
        try:
            return "0x" + self._run(asked["to"], data).hex()
        except Reverts:
            raise Refused(3, "execution reverted", "0x") from None
        except Burns:
            raise Refused(-32000, "out of gas") from None

    def _run(self, to: str, data: bytes) -> bytes:
        return self.code[to](data) if to in self.code else b""

    def _scanned(self, data: bytes, limit: int) -> Iterator[bytes]:
        """What the scanner does, as its source says it."""
        gas, keep, at = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:6], "big"), 6
        start = self.gas_used
        while at < len(data):
            size = int.from_bytes(data[at : at + 2], "big")
            sent = None if size == 0xFFFF else data[at + 2 : at + 2 + size]
            at += 2 + (0 if sent is None else size)
            count = int.from_bytes(data[at : at + 2], "big")
            at += 2
            for _ in range(count):
                who = "0x" + data[at : at + 20].hex()
                at += 20
                if self.gas_used - start + gas + gas // 32 + 60_000 > limit:
                    return
                status, answer = self._entry(who, sent)
                self.gas_used += gas if status == 3 else self.costs.get(who, READ_COST)
                yield bytes([status]) + min(len(answer), 0xFFFFFF).to_bytes(3, "big") + answer[:keep]

    def _entry(self, who: str, sent: bytes | None) -> tuple[int, bytes]:
        if sent is None:
            return 1, self.native.get(who, 0).to_bytes(32, "big")
        try:
            return (1 if who in self.code else 2), self._run(who, sent)
        except Reverts:
            return 0, b""
        except Burns:
            return 3, b""

    def _created(self, code: str, limit: int) -> str:
        if self.creations == "refused":
            raise Refused(-32602, "missing required field 'to'")
        if self.creations == "nonsense":
            raise Refused(3, "execution reverted: no", "0x08c379a0")
        assert code.startswith(CREATION_CODE)
        found = "0x" + b"".join(self._scanned(bytes.fromhex(code[len(CREATION_CODE) :]), limit)).hex()
        if self.creations == "reverted":
            raise Refused(3, "execution reverted", found)
        return found
