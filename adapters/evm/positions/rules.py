"""Building blocks of protocol decoders: rules that match accounts, and reads of positions.

A decoder knows its protocol's contracts and arithmetic, nothing else: it does not choose accounts or blocks, knows no
token names or prices, and sends no requests. The core records what it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Collection as AbstractCollection
from dataclasses import dataclass, field
from typing import Any, TypeVar

from chainfolio.adapters.evm.positions.events import EventSignature, Parameter, parse_event
from chainfolio.adapters.evm.reads import AbiValue, Call, NativeBalance, Read
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.errors import ChainfolioError
from chainfolio.plans import Plan, Reverted, Rounds, Unknown
from chainfolio.protocols import ProtocolFamily, position_type_problem
from chainfolio.reads import AtParent, ContractRead

Value = TypeVar("Value")

# A decoder yields reads, is sent their values, and returns a DecodedPosition, several of them, TokenAmounts, or None.
DecoderPlan = Rounds["DecoderRead", AbiValue, Any]


class ReadError(ChainfolioError):
    """A read that a decoder needs has no value: the position is unknown, not empty.

    `failed`: True if the read itself failed, which says nothing about the contract; False if the contract refused it.
    """

    def __init__(self, reason: str, failed: bool = False) -> None:
        super().__init__(reason)
        self.failed = failed


@dataclass(frozen=True, slots=True)
class Token:
    """Match accounts that touched a fungible token of the protocol.

    Without a `question`, the token is one of the protocol's contracts in `role`. With one (a call without arguments
    that returns an address), the token's answer is; without a role, any answer matches. With `together`, the tokens
    that gave the same answer are one match, whose contract is that answer. A rule without a role matches contracts that
    anybody can deploy: its decoder has to verify every claim (`ProtocolMatch.is_listed`, `ProtocolMatch.has_deposited`,
    `is_backed`). `everywhere`: only for files without contracts, since a file that names contracts means only these.
    `facts`: further calls without arguments that return an address; they are read together with the question, which
    saves a round.

    `through`: the answer is not in `role` itself; the contracts in `role` lead to it by these calls, one after another
    (without arguments, each returning an address or a list of them). The decoder runs while they are read: it gets
    nothing of the file, and `is_fork` is True.
    """

    role: str = ""
    question: str = ""
    together: bool = False
    everywhere: bool = False
    facts: tuple[str, ...] = ()
    through: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Counterparty:
    """Match accounts that sent tokens to a contract in `role`, or received tokens from it."""

    role: str


@dataclass(frozen=True, slots=True)
class Collection:
    """Match accounts once for each token that they ever received of an ERC-721 collection in `role`.

    With a `question` (a call without arguments that returns an address), the collection's answer is in `role` instead
    of the collection, and all tokens of the collection are one match (`ProtocolMatch.ids`). Anybody can deploy a
    collection that answers so: the decoder has to verify every claim, for all tokens together.
    """

    role: str
    question: str = ""


@dataclass(frozen=True, slots=True)
class EveryAccount:
    """Match every account with every contract in `role`, for protocols that leave no trace in the index."""

    role: str


@dataclass(frozen=True, slots=True)
class Event:
    """Match accounts that an event of a contract in `role` names, like a deposit on their behalf.

    Args:
        role: The role of the contracts in the protocol's file.
        signature: The declaration, `Deposit(address indexed user, uint256 indexed pid, uint256 amount)`.
        owner: Position, from 0, of the indexed address that is the account.
        values: Positions of the parameters that the decoder gets as `ProtocolMatch.values`.

    Raises:
        ValueError: A position names no such parameter, or `signature` is no event.
    """

    role: str
    signature: str
    owner: int
    values: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check the positions; ValueError if one has no readable value, or the owner is no indexed address."""
        parameters = self.parsed.parameters
        for position in (self.owner, *self.values):
            if not 0 <= position < len(parameters) or not parameters[position].is_readable:
                raise ValueError(f"no value stands at position {position} of {self.signature}")
        if parameters[self.owner] != Parameter("address", indexed=True):
            raise ValueError(f"position {self.owner} of {self.signature} is no indexed address")

    @property
    def parsed(self) -> EventSignature:
        """The parsed signature."""
        return parse_event(self.signature)


Rule = Token | Counterparty | Collection | EveryAccount | Event


@dataclass(frozen=True, slots=True)
class ProtocolMatch:
    """A match of an account with a protocol: the input of a decoder.

    Attributes:
        account: The account whose position is read.
        contract: The contract of the rule; the common answer if tokens are matched `together`.
        answer: The contract's answer to the rule's question.
        facts: Its answers to the rule's `facts`.
        id: The token of a collection that a file names.
        ids: The tokens of a collection that no file names.
        tokens: The tokens matched together, or (Counterparty) exchanged with the contract.
        values: The values of events (Event), each tuple once.
        has_all_events: True if all events of the family's rules are indexed up to the block that is read.
        contracts: All addresses of the protocol on the chain, by role.
        options: The options of the protocol's file.
        time_s: Time of the block that is read, in Unix seconds.
        sent: The tokens (None: native coins) that the account sent, more than zero each, by recipient.
        is_confirmed: False if only an unlisted token links the account to a contract of the file; anybody can deploy a
            token that logs a transfer between any two addresses.
        is_inner: True if the account holds the share inside another share, so that it cannot have deposited itself.
        is_fork: True if the code of the protocol's contracts is unreviewed, as for hundreds of listed forks: real
            balances and the account's own actions have to support what they claim.
    """

    account: str
    contract: str
    answer: str = ""
    facts: tuple[str, ...] = ()
    id: int = 0
    ids: tuple[int, ...] = ()
    tokens: tuple[str, ...] = ()
    values: tuple[tuple[AbiValue, ...], ...] = ()
    has_all_events: bool = False
    contracts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    time_s: int = 0
    sent: Mapping[str, frozenset[str | None]] = field(default_factory=dict)
    is_confirmed: bool = True
    is_inner: bool = False
    is_fork: bool = False

    def is_listed(self, role: str) -> bool:
        """Return True if the protocol's file names the contract in a role."""
        return self.contract in self.contracts.get(role, ())

    def has_deposited(self, token: str) -> bool:
        """Return True if the account itself sent some of a token to the contract.

        Only the token's own transfers count, which the contract cannot forge: if it claims a hostile token, the claim
        is worth as much as that token.
        """
        return (None if token == ZERO_ADDRESS else token) in self.sent.get(self.contract, ())


def is_backed(payout: int, raw: int, assets: int, supply: int) -> bool:
    """Return True if `payout` for `raw` of `supply` shares leaves other holders their part of `assets`."""
    return 0 <= raw <= supply and payout * supply <= (assets + 1) * raw  # one unit: vaults round with virtual shares


@dataclass(frozen=True)
class Family(ProtocolFamily):
    """One kind of protocol on EVM chains. A family has `position`, `unwrap`, or both.

    `position` decodes one match. `unwrap` reads the tokens that an amount of a share stands for, or None if the token
    does not belong to the family; a share in a wallet is then a position of `position_type`. If a family has both,
    `position` decodes the shares in a wallet.
    """

    rules: tuple[Rule, ...]
    position: Callable[[ProtocolMatch], DecoderPlan] | None = None
    unwrap: Callable[[ProtocolMatch, int], DecoderPlan] | None = None
    position_type: str = ""
    kind: str = field(default="evm", kw_only=True)

    @property
    def lookup_roles(self) -> tuple[str, ...]:
        """The roles of its rules."""
        return tuple(dict.fromkeys(rule.role for rule in self.rules if rule.role))

    def can_find_accounts(self, roles: AbstractCollection[str]) -> bool:
        """Return True if a file that names contracts in these roles only can match accounts."""
        return not self.rules or any(
            rule.role in roles if rule.role else not (isinstance(rule, Token) and rule.everywhere and roles)
            for rule in self.rules
        )

    @property
    def problem(self) -> str:
        """The problem of a family as it was written; empty if there is none."""
        has_rules = isinstance(self.rules, Sequence) and all(isinstance(rule, Rule) for rule in self.rules)
        decoders = [decoder for decoder in (self.position, self.unwrap) if decoder is not None]
        if not has_rules or not decoders or not all(map(callable, decoders)):
            return "it needs a name, rules, and a function as `position` or `unwrap`"
        type_problem = position_type_problem(self.position_type) if self.position is None else ""
        return super().problem or type_problem


@dataclass(frozen=True, slots=True)
class MayRefuse:
    """A call that a contract may refuse.

    The value is None if it reverts, if there is no contract, or if the contract does not have the function: then it
    returns nothing, or something that does not fit the signature. A call that cannot be made, because an argument is
    beyond its type, is no refusal: the position is unknown.
    """

    call: Call


@dataclass(frozen=True, slots=True)
class AtEarlierBlock:
    """A call at an earlier block, whose state no transaction of the block that is read could change.

    `blocks`: how many blocks earlier. The value is None if the contract refuses the call there, and the `Unknown` if
    the state could not be read, which says nothing about the contract.
    """

    call: Call
    blocks: int = 1

    @property
    def read(self) -> AtParent[AbiValue]:
        """The read that the chain answers."""
        return AtParent(self.call if self.blocks == 1 else AtEarlierBlock(self.call, self.blocks - 1).read)


DecoderRead = Read | MayRefuse | AtEarlierBlock


def run_decoder(decoder: Callable[..., Rounds[DecoderRead, AbiValue, Value]], *args: object) -> Plan[Value]:
    """Run a decoder as a plan: it is sent values, and continues only if it has all values that it needs.

    Raises:
        ReadError: A contract refused a call that is no `MayRefuse`, or a read failed or could not be made.
    """
    running = decoder(*args)
    values: list[AbiValue] | None = None
    while True:
        try:
            reads = next(running) if values is None else running.send(values)
        except StopIteration as stop:
            result: Value = stop.value
            return result
        results = yield [_chain_read(read) for read in reads]
        values = [_value(read, result) for read, result in zip(reads, results, strict=True)]


def _chain_read(read: DecoderRead) -> ContractRead:
    """Return the read that the chain answers for a decoder's read."""
    return read.call if isinstance(read, MayRefuse) else read.read if isinstance(read, AtEarlierBlock) else read


def _value(read: DecoderRead, result: AbiValue) -> AbiValue:
    """Return the value that a decoder is sent for a result; None for a refused read that may be refused.

    Raises:
        ReadError: A needed read has no value, a read could not be made, or the node failed.
    """
    if isinstance(read, AtEarlierBlock) and isinstance(result, Unknown) and result.cause in ("read", "gone"):
        return result
    failed = isinstance(result, Unknown) and result.cause == "read"
    if not isinstance(result, Reverted | Unknown):
        return result
    if isinstance(read, MayRefuse | AtEarlierBlock):
        is_refused = isinstance(result, Reverted) or result.cause != "argument"
        if is_refused and not failed:
            return None
        call: Read = read.call
    else:
        call = read
    reason = result.reason if isinstance(result, Unknown) else "it refuses"
    if isinstance(call, NativeBalance):
        raise ReadError(f"the native balance of {call.account} could not be read: {reason}", failed)
    raise ReadError(f"{call.to} did not say {call.signature.partition('(')[0]}: {reason}", failed)
