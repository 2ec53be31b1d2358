"""Reads in recordings: the call as hex, and its one answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from chainfolio.adapters.evm.call import decode, encode, encode_answer
from chainfolio.adapters.evm.reads import Call, NativeBalance, Read
from chainfolio.errors import BadRequest
from chainfolio.plans import Reverted, Unknown
from chainfolio.reads import AtParent
from chainfolio.reads import Read as ChainRead

NOT_RECORDED: Final = "it was not recorded"
Key: TypeAlias = tuple[str, ...]  # of a read: an account, or a contract, a function and its call data
ReadResult: TypeAlias = Any  # values by the outputs of a function, Reverted or Unknown


class Exchange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One read and its answer: return data (`gives`), revert data (`refuses`) or a reason (`unknown`).

    `gives` is ABI-encoded by the outputs of `function`; for an account's native coins it is a decimal number.
    """

    to: str
    function: str = ""
    data: str = ""
    gives: str | None = None
    refuses: str | None = None
    unknown: str | None = None
    cause: str = ""


@dataclass(slots=True)
class RecordedResults:
    """Recorded results by read.

    Attributes:
        results: The results.
        requested: The reads that were requested so far.
        invalid: Why other requested reads cannot be encoded.
    """

    results: dict[Key, ReadResult] = field(default_factory=dict)
    requested: dict[Key, Read] = field(default_factory=dict)
    invalid: list[str] = field(default_factory=list)

    def answer(self, request: ChainRead[object]) -> ReadResult:
        """Return the recorded result, or Unknown if there is none; the request is remembered."""
        read = at_block(request)
        try:
            key = key_of(read)
        except BadRequest as error:
            self.invalid.append(error.reason)
            return Unknown(error.reason)
        self.requested[key] = read
        return self.results.get(key, Unknown(NOT_RECORDED))

    @property
    def missing(self) -> tuple[str, ...]:
        """The requested reads that were not recorded, as text, and the invalid ones."""
        unrecorded = [describe(read) for key, read in self.requested.items() if key not in self.results]
        return tuple(sorted({*unrecorded, *self.invalid}))


def at_block(read: ChainRead[object]) -> Read:
    """Return the read at the block of the recording.

    Recordings have no other block, so earlier blocks are assumed to be equal and price guards do not act.
    """
    while isinstance(read, AtParent):
        read = read.read
    assert isinstance(read, Read), "decoders yield reads of an EVM chain"
    return read


def key_of(read: Read) -> Key:
    """Return the identity of a read.

    Raises:
        BadRequest: Its signature or arguments cannot be encoded.
    """
    if isinstance(read, NativeBalance):
        return (read.account,)
    try:
        return read.to, read.signature, "0x" + encode(read.signature, read.args).hex()
    except Exception as error:  # a third-party decoder may ask for anything
        reason = f"{describe(read)} cannot be asked: {type(error).__name__}: {error}"
        raise BadRequest("decoder", reason, remedy="correct the signature or the arguments in the decoder") from None


def describe(read: Read) -> str:
    """Return a read as text for users."""
    if isinstance(read, NativeBalance):
        return f"the balance of {read.account}"
    return f"{read.signature} of {read.to} with ({', '.join(map(str, read.args))})"


def exchange_of(read: Read, result: ReadResult) -> Exchange:
    """Return a read with its result in recorded form."""
    to, function, data = (*key_of(read), "", "")[:3]
    if isinstance(result, Reverted):
        return Exchange(to, function, data, refuses="0x" + result.data.hex())
    if isinstance(result, Unknown):
        return Exchange(to, function, data, unknown=result.reason, cause=result.cause)
    if isinstance(read, NativeBalance):
        return Exchange(to, gives=str(result))
    return Exchange(to, function, data, gives="0x" + encode_answer(function, result).hex())


def results_of(exchanges: Iterable[Exchange]) -> RecordedResults:
    """Return the results of a recording; Unknown for data that does not fit its function.

    Raises:
        ValueError: A read has no or several answers, or a malformed one.
    """
    results: dict[Key, ReadResult] = {}
    for each in exchanges:
        key = (each.to, each.function, each.data) if each.function else (each.to,)
        if sum(answer is not None for answer in (each.gives, each.refuses, each.unknown)) != 1:
            raise ValueError(f"{each.function} of {each.to} has not one answer")
        results[key] = _result(each)
    return RecordedResults(results)


def _result(each: Exchange) -> ReadResult:
    """Return the result of a recorded exchange: a value, Reverted or Unknown.

    Raises ValueError for an unknown cause.
    """
    if each.refuses is not None:
        return Reverted(bytes.fromhex(each.refuses.removeprefix("0x")))
    if each.unknown is not None:
        if each.cause not in ("absent", "contract"):
            raise ValueError(f"`{each.cause}` is no cause of an answer")
        return Unknown(each.unknown, "absent" if each.cause == "absent" else "contract")
    assert each.gives is not None
    if not each.function:
        return int(each.gives)
    return decode(Call(each.to, each.function), bytes.fromhex(each.gives.removeprefix("0x")))


def sort_key(each: Exchange) -> tuple[str, str, str]:
    """Return the key by which a recording sorts its reads."""
    return each.to, each.function, each.data
