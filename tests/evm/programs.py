"""Small EVM programs that move native coins in every way, as constructors that run in transactions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Op:
    """One thing to do: its code, with the program that it creates behind the code where it creates one."""

    code: bytes
    child: bytes = b""
    value: int = 0


def send(to: str, value: int) -> Op:
    """A call with coins."""
    return Op(bytes(8).replace(b"\0\0", b"\x60\0") + _push(value) + _address(to) + bytes.fromhex("5af150"))


def borrow_code(to: str, value: int | None = None) -> Op:
    """The code of another contract run in one's own place: by DELEGATECALL, or by CALLCODE with a value."""
    arguments = bytes(8).replace(b"\0\0", b"\x60\0")
    if value is None:
        return Op(arguments + _address(to) + bytes.fromhex("5af450"))
    return Op(arguments + _push(value) + _address(to) + bytes.fromhex("5af250"))


def create(child: bytes, value: int) -> Op:
    """A contract made with coins, by running a program."""
    return Op(b"", child, value)


REVERT, INVALID, STOP = Op(bytes.fromhex("60006000fd")), Op(b"\xfe"), Op(b"\0")


def destroy(heir: str) -> Op:
    """Destroy the contract and send its coins to an heir."""
    return Op(_address(heir) + b"\xff")


def program(ops: Sequence[Op]) -> bytes:
    """Operations as one constructor."""
    ops = [*ops, STOP]
    sizes = [len(_creation(0, op)) if op.child else len(op.code) for op in ops]
    code, tail, at = b"", b"", sum(sizes)
    for op in ops:
        if op.child:
            code += _creation(at, op)
            at, tail = at + len(op.child), tail + op.child
        else:
            code += op.code
    return code + tail


def deployed(runtime: bytes) -> bytes:
    """A constructor that leaves some code behind."""
    return bytes([0x60, len(runtime), 0x80, 0x60, 11, 0x60, 0, 0x39, 0x60, 0, 0xF3]) + runtime


def chance_program(chance: Random, to: Sequence[str], libraries: Sequence[str], depth: int = 3) -> bytes:
    """Anything; what fails inside is left undone, and perhaps the whole of it."""
    ops: list[Op] = []
    for _ in range(chance.randrange(1, 6)):
        kind = chance.randrange(6)
        value = chance.randrange(1, 50)
        if kind <= 1:
            ops.append(send(chance.choice(to), value))
        elif kind == 2:
            ops.append(send(chance.choice(libraries), value))
        elif kind == 3:
            ops.append(borrow_code(chance.choice(libraries), chance.choice([None, value])))
        elif depth:
            ops.append(create(chance_program(chance, to, libraries, depth - 1), value))
    ops += chance.choice([[], [], [], [REVERT], [INVALID], [destroy(chance.choice(to))]])
    return program(ops)


def _creation(at: int, op: Op) -> bytes:
    size = len(op.child).to_bytes(2, "big")
    copied = b"\x61" + size + b"\x61" + at.to_bytes(2, "big") + b"\x60\0\x39"
    return copied + b"\x61" + size + b"\x60\0" + _push(op.value) + b"\xf0\x50"


def _push(value: int) -> bytes:
    return b"\x63" + value.to_bytes(4, "big")


def _address(to: str) -> bytes:
    return b"\x73" + bytes.fromhex(to.removeprefix("0x"))
