"""What a protocol decoder is made of: rules that say whom it concerns, and generators that each read one position.

A decoder knows its protocol's contracts and arithmetic, nothing else: not which accounts there are, which block is
read, what a token is called or worth, nor how its reads travel. What it read is written down for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeVar

from chainfolio.asking import Asking, Reverted, Unknown
from chainfolio.calls import Call, Read
from chainfolio.errors import ChainfolioError
from chainfolio.events import Declared, Parameter, declared

Value = TypeVar("Value")

# What a decoder is: it yields calls, is sent their values, and returns a Found, several, parts, or None.
Decoding = Asking["Call | Maybe", Any, Any]


class Unread(ChainfolioError):
    """A read that a decoder cannot do without gave nothing: the position is unknown, not empty."""


@dataclass(frozen=True, slots=True)
class Part:
    """`raw` units of a token inside a position; the zero address is the native coin."""

    token: str
    raw: int


@dataclass(frozen=True, slots=True)
class Found:
    """One position as its decoder found it. Parts of zero may be left in; borrowed parts are positive.

    `instead`: tokens of the account that this position is another view of; they are no longer shown as loose ones.
    `name`: where it has one of its own; else it is called by what was supplied. `unknown`: what of it could not be
    read, where the rest of it is worth showing.
    """

    kind: str
    supplied: tuple[Part, ...] = ()
    borrowed: tuple[Part, ...] = ()
    rewards: tuple[Part, ...] = ()
    name: str = ""
    health: Decimal | None = None
    unlock_s: int = 0
    vault: str = ""
    pool: str = ""
    instead: tuple[str, ...] = ()
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Token:
    """An account is concerned by a fungible token that it met.

    The token is one of the protocol's contracts in `role`; with a `question` (a call without arguments that answers
    with an address), the token's answer is: any answer, where there is no role. With `together` the tokens that gave
    one answer are one meeting, whose contract is that answer. `deposited`: only tokens to which the account sent what
    they answer: whoever mints such a token could else claim anything of it; and only for files without contracts.
    `facts`: what else the token answers (calls without arguments, an address each) that never changes; asked once with
    the question, it saves a round ever after.
    """

    role: str = ""
    question: str = ""
    together: bool = False
    deposited: bool = False
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Counterparty:
    """An account is concerned by a contract in `role` to which, or from which, tokens of its went."""

    role: str


@dataclass(frozen=True, slots=True)
class Collection:
    """An account is concerned by each token of an ERC-721 collection in `role` that was ever sent to it."""

    role: str


@dataclass(frozen=True, slots=True)
class Always:
    """Every account is concerned by every contract in `role`: for protocols that leave no trace in the index."""

    role: str


@dataclass(frozen=True, slots=True)
class Event:
    """An account is concerned by a contract in `role` that wrote an event with it: where nothing else moves between
    the two, as when somebody deposits for others.

    `signature` is the event as it is declared (`Deposit(address indexed user, uint256 indexed pid, uint256 amount)`).
    `owner` is the position, from 0, of the indexed address that is the account; `of` are those of parameters that
    are handed over as `Met.values`. ValueError where the event has no such ones.
    """

    role: str
    signature: str
    owner: int
    of: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        parameters = self.declared.parameters
        for at in (self.owner, *self.of):
            if not 0 <= at < len(parameters) or not parameters[at].is_readable:
                raise ValueError(f"no value stands at position {at} of {self.signature}")
        if parameters[self.owner] != Parameter("address", indexed=True):
            raise ValueError(f"position {self.owner} of {self.signature} is no indexed address")

    @property
    def declared(self) -> Declared:
        """The event, parsed."""
        return declared(self.signature)


Rule = Token | Counterparty | Collection | Always | Event


@dataclass(frozen=True, slots=True)
class Met:
    """One meeting of an account with a protocol: what a decoder starts from.

    `contract` is the one that the rule named, or what it answered where several were met `together`; `answer` what it
    said to the rule's question, `facts` what it said beside; `tokens` those that were met together or (Counterparty)
    that moved between the two; `id` the token of a collection; `values` what events said (Event), each tuple once, and
    `covered` whether all events that the family's rules name are indexed up to the block that is read. `contracts` are
    all addresses of the protocol on the chain by role, `options` what its file says about how it differs from others;
    `time_s` when the block that is read was made, in Unix seconds.
    """

    account: str
    contract: str
    answer: str = ""
    facts: tuple[str, ...] = ()
    id: int = 0
    tokens: tuple[str, ...] = ()
    values: tuple[tuple[Any, ...], ...] = ()
    covered: bool = False
    contracts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    time_s: int = 0


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of protocol; its forks are files that name it.

    `position` reads one meeting. `unwrap` reads what an amount of a share is worth in what lies behind it, or None
    where the token is none of the family's after all; a share that lies in a wallet is a position of type `kind`.
    A family may have either or both; where it has both, what lies in the wallet is for `position`.
    """

    name: str
    rules: tuple[Rule, ...]
    position: Callable[[Met], Decoding] | None = None
    unwrap: Callable[[Met, int], Decoding] | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Maybe:
    """A call that a contract may refuse: answered with None where it does, or where there is none such."""

    call: Call


def reading(decoder: Callable[..., Asking[Call | Maybe, Any, Value]], *given: Any) -> Asking[Read, Any, Value]:
    """A decoder as an asking: it is sent values, and goes on only where it got all that it cannot do without.

    Unread where a contract refuses what was no `Maybe`, and where a read fails, which says nothing of the contract.
    """
    running = decoder(*given)
    values: list[Any] | None = None
    while True:
        try:
            asks = next(running) if values is None else running.send(values)
        except StopIteration as stop:
            result: Value = stop.value
            return result
        calls = [ask.call if isinstance(ask, Maybe) else ask for ask in asks]
        answers = yield calls
        values = [
            _value(call, answer, isinstance(ask, Maybe)) for ask, call, answer in zip(asks, calls, answers, strict=True)
        ]


def _value(call: Call, answer: Any, refusable: bool) -> Any:
    refused = isinstance(answer, Reverted) or (isinstance(answer, Unknown) and answer.cause != "read")
    if refused and refusable:
        return None
    if isinstance(answer, Reverted | Unknown):
        why = answer.reason if isinstance(answer, Unknown) else "it refuses"
        raise Unread(f"{call.to} did not say {call.signature.partition('(')[0]}: {why}")
    return answer
