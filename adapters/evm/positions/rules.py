"""What a protocol decoder is made of: rules that say whom it concerns, and generators that each read one position.

A decoder knows its protocol's contracts and arithmetic, nothing else: not which accounts there are, which block is
read, what a token is called or worth, nor how its reads travel. What it read is written down for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Collection as AbstractCollection
from dataclasses import dataclass, field
from typing import Any, TypeVar

from adapters.evm.positions.events import Declared, Parameter, declared
from adapters.evm.reads import Call, NativeBalance, Read
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.errors import ChainfolioError
from chainfolio.plans import Plan, Reverted, Unknown
from chainfolio.protocols import ProtocolFamily, problem_of_type
from chainfolio.reads import AtParent

Value = TypeVar("Value")

# What a decoder is: it yields calls, is sent their values, and returns a Found, several, parts, or None.
DecoderPlan = Plan["Ask", Any, Any]


class Unread(ChainfolioError):
    """A read that a decoder cannot do without gave nothing: the position is unknown, not empty.

    `failed`: the read itself failed, which says nothing about the contract; else the contract did not answer it.
    """

    def __init__(self, reason: str, failed: bool = False) -> None:
        super().__init__(reason)
        self.failed = failed


@dataclass(frozen=True, slots=True)
class Token:
    """An account is concerned by a fungible token that it met.

    The token is one of the protocol's contracts in `role`; with a `question` (a call without arguments that answers
    with an address), the token's answer is: any answer, where there is no role. With `together` the tokens that gave
    one answer are one meeting, whose contract is that answer. A rule without a role concerns whatever anybody deploys:
    its decoder has to verify every claim (`ProtocolMatch.is_listed`, `ProtocolMatch.deposited`, `covered`).
    `everywhere`: only for files without contracts, since a file that names its contracts does not mean everybody's.
    `facts`: what else the token answers (calls without arguments, an address each): asked together with the question,
    it saves a round.

    `through`: the answer is not in `role` itself: it is what the contracts in `role` lead to, call by call (without
    arguments; an address or a list of them). While that is asked, the decoder runs already: it is told nothing of the
    file, and that it reads a fork.
    """

    role: str = ""
    question: str = ""
    together: bool = False
    everywhere: bool = False
    facts: tuple[str, ...] = ()
    through: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Counterparty:
    """An account is concerned by a contract in `role` to which, or from which, tokens of its went."""

    role: str


@dataclass(frozen=True, slots=True)
class Collection:
    """An account is concerned by each token of an ERC-721 collection in `role` that was ever sent to it.

    With a `question` (a call without arguments that answers with an address), it is not the collection that is in
    `role` but its answer, and all tokens of the collection are one meeting (`ProtocolMatch.ids`). Anybody can deploy a
    collection that answers so: the decoder has to verify every claim, and for all of them together."""

    role: str
    question: str = ""


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
    are handed over as `ProtocolMatch.values`. ValueError where the event has no such ones.
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
class ProtocolMatch:
    """One meeting of an account with a protocol: what a decoder starts from.

    `contract` is the one that the rule named, or what it answered where several were met `together`; `answer` what it
    said to the rule's question, `facts` what it said beside; `tokens` those that were met together or (Counterparty)
    that moved between the two; `id` the token of a collection, `ids` those of one that no file names; `values` what
    events said (Event), each tuple once, and `covered` whether all events that the family's rules name are indexed up
    to the block that is read. `contracts` are all addresses of the protocol on the chain by role, `options` what its
    file says about how it differs from others; `time_s` when the block that is read was made, in Unix seconds.

    `sent`: which tokens (None: native coins) the account sent to whom, more than nothing of each. `is_sure`: whether
    more than a token that nobody lists brings the account and a contract of the file together; anybody can write a
    token that logs a transfer between any two. `is_inner`: whether the account holds the share inside another one, and
    so cannot have deposited into it itself. `is_fork`: nobody read the code of the protocol's contracts, as it is with
    hundreds that are listed: real assets and the account's own acts have to bear out what they claim.
    """

    account: str
    contract: str
    answer: str = ""
    facts: tuple[str, ...] = ()
    id: int = 0
    ids: tuple[int, ...] = ()
    tokens: tuple[str, ...] = ()
    values: tuple[tuple[Any, ...], ...] = ()
    covered: bool = False
    contracts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    time_s: int = 0
    sent: Mapping[str, frozenset[str | None]] = field(default_factory=dict)
    is_sure: bool = True
    is_inner: bool = False
    is_fork: bool = False

    def is_listed(self, role: str) -> bool:
        """Whether the protocol's file names the contract in a role."""
        return self.contract in self.contracts.get(role, ())

    def deposited(self, token: str) -> bool:
        """Whether the account sent some of a token to the contract itself. Only the token's own transfers tell, which
        the contract cannot forge: one that claims a hostile token is worth what that token is."""
        return (None if token == ZERO_ADDRESS else token) in self.sent.get(self.contract, ())


def covered(paid: int, raw: int, held: int, supply: int) -> bool:
    """Whether `paid` for `raw` of `supply` shares leaves the other holders their part of the `held` assets."""
    return 0 <= raw <= supply and paid * supply <= (held + 1) * raw  # one unit: vaults round with virtual shares


@dataclass(frozen=True)
class Family(ProtocolFamily):
    """One kind of protocol on EVM chains.

    `position` reads one meeting. `unwrap` reads what an amount of a share is worth in what lies behind it, or None
    where the token is none of the family's after all; a share that lies in a wallet is a position of `position_type`.
    A family may have either or both; where it has both, what lies in the wallet is for `position`.
    """

    rules: tuple[Rule, ...]
    position: Callable[[ProtocolMatch], DecoderPlan] | None = None
    unwrap: Callable[[ProtocolMatch, int], DecoderPlan] | None = None
    position_type: str = ""
    kind: str = field(default="evm", kw_only=True)

    @property
    def finding_roles(self) -> tuple[str, ...]:
        """The roles that its rules look for."""
        return tuple(dict.fromkeys(rule.role for rule in self.rules if rule.role))

    def finds_anybody(self, roles: AbstractCollection[str]) -> bool:
        """Whether accounts can be found where a file names contracts in these roles and no others."""
        return not self.rules or any(
            rule.role in roles if rule.role else not (isinstance(rule, Token) and rule.everywhere and roles)
            for rule in self.rules
        )

    @property
    def problem(self) -> str:
        """What is wrong with a family that somebody wrote; empty where nothing is."""
        sound = isinstance(self.rules, Sequence) and all(isinstance(each, Rule) for each in self.rules)
        decoders = [each for each in (self.position, self.unwrap) if each is not None]
        if not sound or not decoders or not all(map(callable, decoders)):
            return "it needs a name, rules, and a function as `position` or `unwrap`"
        wrong_type = problem_of_type(self.position_type) if self.position is None else ""
        return super().problem or wrong_type


@dataclass(frozen=True, slots=True)
class MayRefuse:
    """A call that a contract may refuse: answered with None where it does, or where there is none such."""

    call: Call


@dataclass(frozen=True, slots=True)
class Before:
    """A call at the state that the block began with, which nobody could change in the block; `blocks` 2: at the one
    before that. Answered with None where the contract does not answer it there, and with the `Unknown` where the state
    could not be read, which says nothing of the contract."""

    call: Call
    blocks: int = 1

    @property
    def read(self) -> AtParent:
        """The same as it travels."""
        return AtParent(self.call if self.blocks == 1 else Before(self.call, self.blocks - 1).read)


Ask = Read | MayRefuse | Before


def reading(decoder: Callable[..., Plan[Ask, Any, Value]], *given: Any) -> Plan[Any, Any, Value]:
    """A decoder as a plan: it is sent values, and goes on only where it got all that it cannot do without.

    Unread where a contract refuses what was no `MayRefuse`, and where a read fails, which says nothing of the contract.
    """
    running = decoder(*given)
    values: list[Any] | None = None
    while True:
        try:
            reads = next(running) if values is None else running.send(values)
        except StopIteration as stop:
            result: Value = stop.value
            return result
        answers = yield [_read(ask) for ask in reads]
        values = [_value(ask, answer) for ask, answer in zip(reads, answers, strict=True)]


def _read(ask: Ask) -> Any:
    return ask.call if isinstance(ask, MayRefuse) else ask.read if isinstance(ask, Before) else ask


def _value(ask: Ask, answer: Any) -> Any:
    if isinstance(ask, Before) and isinstance(answer, Unknown) and answer.cause in ("read", "gone"):
        return answer
    refused = isinstance(answer, Reverted) or (isinstance(answer, Unknown) and answer.cause != "read")
    if isinstance(ask, MayRefuse | Before):
        if refused:
            return None
        call: Read = ask.call
    else:
        call = ask
    if isinstance(answer, Reverted | Unknown):
        why = answer.reason if isinstance(answer, Unknown) else "it refuses"
        failed = isinstance(answer, Unknown) and answer.cause == "read"
        if isinstance(call, NativeBalance):
            raise Unread(f"the native balance of {call.account} could not be read: {why}", failed)
        raise Unread(f"{call.to} did not say {call.signature.partition('(')[0]}: {why}", failed)
    return answer
