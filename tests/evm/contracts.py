"""Contracts that a fake node can call: directly, or by the scanner in an override or creation code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from chainfolio.adapters.evm.scanner import CREATION_CODE, SCANNER, SCANNER_AT

Contract = Callable[[bytes], bytes]
READ_COST = 3_000  # gas of a read that gives an answer


class RpcRefusal(Exception):
    """An error object with which a node answers."""

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


def balances(amounts: dict[str, int]) -> Contract:
    """An ERC-20 as far as balanceOf."""
    return lambda data: amounts.get("0x" + data[16:36].hex(), 0).to_bytes(32, "big")


@dataclass
class Contracts:
    """Contracts by address, native balances, and the behaviour of the node for calls."""

    code: dict[str, Contract] = field(default_factory=dict)
    native: dict[str, int] = field(default_factory=dict)
    overrides: str = "yes"  # yes, ignored, refused
    creations: str = "yes"  # yes, refused, reverted (as revert data), nonsense (reverted with something else)
    gas_cap: int = 50_000_000
    costs: dict[str, int] = field(default_factory=dict)  # gas of a read that gives an answer, if not READ_COST
    gas_used: int = 0  # by the reads of the scanner

    def call(self, request: dict[str, Any], override: dict[str, Any]) -> str:
        """The result of eth_call, or Refused."""
        data = bytes.fromhex(request["data"][2:])
        limit = min(self.gas_cap, int(request.get("gas", hex(self.gas_cap)), 16))
        if override:
            if self.overrides == "refused":
                raise RpcRefusal(-32602, "too many arguments, want at most 2")
            if self.overrides == "yes":
                assert override == {SCANNER_AT: {"code": SCANNER}}
                return "0x" + b"".join(self._scanned(data, limit)).hex()
        if "to" not in request:
            return self._created(request["data"], limit)
        try:
            return "0x" + self._run(request["to"], data).hex()
        except Reverts:
            raise RpcRefusal(3, "execution reverted", "0x") from None
        except Burns:
            raise RpcRefusal(-32000, "out of gas") from None

    def _run(self, to: str, data: bytes) -> bytes:
        return self.code[to](data) if to in self.code else b""

    def _scanned(self, data: bytes, limit: int) -> Iterator[bytes]:
        """Yield the entries of a scan, as the source of the scanner defines them."""
        gas, keep, at = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:6], "big"), 6
        start = self.gas_used
        while at < len(data):
            size = int.from_bytes(data[at : at + 2], "big")
            calldata = None if size == 0xFFFF else data[at + 2 : at + 2 + size]
            at += 2 + (0 if calldata is None else size)
            count = int.from_bytes(data[at : at + 2], "big")
            at += 2
            for _ in range(count):
                address = "0x" + data[at : at + 20].hex()
                at += 20
                if self.gas_used - start + gas + gas // 32 + 60_000 > limit:
                    return
                status, answer = self._entry(address, calldata)
                self.gas_used += gas if status == 3 else self.costs.get(address, READ_COST)
                yield bytes([status]) + min(len(answer), 0xFFFFFF).to_bytes(3, "big") + answer[:keep]

    def _entry(self, address: str, calldata: bytes | None) -> tuple[int, bytes]:
        if calldata is None:
            return 1, self.native.get(address, 0).to_bytes(32, "big")
        try:
            return (1 if address in self.code else 2), self._run(address, calldata)
        except Reverts:
            return 0, b""
        except Burns:
            return 3, b""

    def _created(self, code: str, limit: int) -> str:
        if self.creations == "refused":
            raise RpcRefusal(-32602, "missing required field 'to'")
        if self.creations == "nonsense":
            raise RpcRefusal(3, "execution reverted: no", "0x08c379a0")
        assert code.startswith(CREATION_CODE)
        result = "0x" + b"".join(self._scanned(bytes.fromhex(code[len(CREATION_CODE) :]), limit)).hex()
        if self.creations == "reverted":
            raise RpcRefusal(3, "execution reverted", result)
        return result
