"""What a protocol decoder is made of: rules that say whom it concerns, and generators that each read one position.

A decoder knows its protocol's contracts and arithmetic, nothing else: not which accounts there are, which block is
read, what a token is called or worth, nor how its reads travel. What it read is written down for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeVar

from chainfolio.asking import Reverted, Unknown
from chainfolio.calls import Reads
from chainfolio.errors import ChainfolioError

Value = TypeVar("Value")


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
    `name`: where it has one of its own; else it is called by what was supplied.
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


@dataclass(frozen=True, slots=True)
class Token:
    """An account is concerned by a fungible token that it met.

    The token is one of the protocol's contracts in `role`; with a `question` (a call without arguments that answers
    with an address), the token's answer is: any answer, where there is no role. With `together` the tokens that gave
    one answer are one meeting, whose contract is that answer. `deposited`: only tokens to which the account sent what
    they answer: whoever mints such a token could else claim anything of it.
    """

    role: str = ""
    question: str = ""
    together: bool = False
    deposited: bool = False


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


Rule = Token | Counterparty | Collection | Always


@dataclass(frozen=True, slots=True)
class Met:
    """One meeting of an account with a protocol: what a decoder starts from.

    `contract` is the one that the rule named, or what it answered where several were met `together`; `answer` what it
    said to the rule's question; `tokens` those that were met together or (Counterparty) that moved between the two;
    `id` the token of a collection. `contracts` are all addresses of the protocol on the chain by role, `options` what
    its file says about how it differs from others.
    """

    account: str
    contract: str
    answer: str = ""
    id: int = 0
    tokens: tuple[str, ...] = ()
    contracts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of protocol; its forks are files that name it.

    `position` reads one meeting. `unwrap` reads what an amount of a share is worth in what lies behind it, or None
    where the token is none of the family's after all; a share that lies in a wallet is a position of type `kind`.
    A family may have either or both; where it has both, what lies in the wallet is for `position`.
    """

    name: str
    rules: tuple[Rule, ...]
    position: Callable[[Met], Reads] | None = None
    unwrap: Callable[[Met, int], Reads] | None = None
    kind: str = ""


def known(answer: Any) -> Any:
    """An answer that a decoder cannot do without; Unread where there is none."""
    if isinstance(answer, Reverted):
        raise Unread("a contract refused to say what the position is made of")
    if isinstance(answer, Unknown):
        raise Unread(f"a contract could not be read: {answer.reason}")
    return answer


def all_known(answers: Sequence[Any]) -> Sequence[Any]:
    """Answers that a decoder cannot do without; Unread where one is missing."""
    return [known(answer) for answer in answers]


def said(answer: Any, otherwise: Value) -> Any | Value:
    """An answer, or what stands for a contract that refuses; Unread where the read itself failed.

    Only a revert is a contract's word: a read that failed says nothing.
    """
    return otherwise if isinstance(answer, Reverted) else known(answer)
