"""Reads as recordings keep them: what was asked, as hex, and the one answer to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from adapters.evm.call import decode, encode, encode_answer
from adapters.evm.reads import Call, NativeBalance, Read
from chainfolio.errors import BadRequest
from chainfolio.plans import Reverted, Unknown
from chainfolio.reads import AtParent

NOT_RECORDED: Final = "it was not recorded"
Key = tuple[str, ...]  # of a read: an account, or a contract, a function and its call data


class Exchange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One read and its answer: return data (`gives`), revert data (`refuses`) or why there is neither (`unknown`).

    `gives` has the words of the outputs that `function` names; of an account's native coins, the number of units.
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
    """Results by read, and which reads were made."""

    results: dict[Key, Any] = field(default_factory=dict)
    made: dict[Key, Read] = field(default_factory=dict)
    impossible: list[str] = field(default_factory=list)

    def answer(self, asked: Read | AtParent) -> Any:
        """The result that was recorded; Unknown where there is none."""
        read = at_block(asked)
        try:
            key = key_of(read)
        except BadRequest as error:
            self.impossible.append(error.reason)
            return Unknown(error.reason)
        self.made[key] = read
        return self.results.get(key, Unknown(NOT_RECORDED))

    @property
    def missing(self) -> tuple[str, ...]:
        """The reads that were made and not recorded."""
        lost = [words_of(read) for key, read in self.made.items() if key not in self.results]
        return tuple(sorted({*lost, *self.impossible}))


def at_block(read: Read | AtParent) -> Read:
    """The read at the block of the recording: no other one is kept, so blocks before are taken to have been the same,
    and positions are what leaving pays."""
    while isinstance(read, AtParent):
        read = read.read
    return read


def key_of(read: Read) -> Key:
    """What tells reads apart; BadRequest where one cannot be encoded."""
    if isinstance(read, NativeBalance):
        return (read.account,)
    try:
        return read.to, read.signature, "0x" + encode(read.signature, read.args).hex()
    except Exception as error:  # a third-party decoder may ask for anything
        reason = f"{words_of(read)} cannot be asked: {type(error).__name__}: {error}"
        raise BadRequest("decoder", reason, remedy="correct the signature or the arguments in the decoder") from None


def words_of(read: Read) -> str:
    """A read for people."""
    if isinstance(read, NativeBalance):
        return f"the balance of {read.account}"
    return f"{read.signature} of {read.to} with ({', '.join(map(str, read.args))})"


def exchange_of(read: Read, result: Any) -> Exchange:
    """A read with its result, as it is recorded."""
    to, function, data = (*key_of(read), "", "")[:3]
    if isinstance(result, Reverted):
        return Exchange(to, function, data, refuses="0x" + result.data.hex())
    if isinstance(result, Unknown):
        return Exchange(to, function, data, unknown=result.reason, cause=result.cause)
    if isinstance(read, NativeBalance):
        return Exchange(to, gives=str(result))
    return Exchange(to, function, data, gives="0x" + encode_answer(function, result).hex())


def results_of(exchanges: Iterable[Exchange]) -> RecordedResults:
    """The results of a recording; ValueError where one cannot be meant."""
    results: dict[Key, Any] = {}
    for each in exchanges:
        key = (each.to, each.function, each.data) if each.function else (each.to,)
        if sum(answer is not None for answer in (each.gives, each.refuses, each.unknown)) != 1:
            raise ValueError(f"{each.function} of {each.to} has not one answer")
        results[key] = _result(each)
    return RecordedResults(results)


def _result(each: Exchange) -> Any:
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


def place_of(each: Exchange) -> tuple[str, str, str]:
    """The order of a recording."""
    return each.to, each.function, each.data
