"""What each type of transaction asks for: who asks, of whom, and what it moves when it succeeds.

All is read from the bytes that were signed. What the chain itself takes or gives (stakes, rewards, deposits into its
exchanges, new tokens) goes to the zero address or comes from there; how much it gives, only the receipt says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from adapters.tron.addresses import ZERO, of_bytes, of_hex
from adapters.tron.forms import Info
from adapters.tron.functions import SYSTEM, selector
from adapters.tron.protobuf import Fields, data, fields, number, repeated

TRX_ID: Final = b"_"  # the native coin, in exchanges
CREATE, TRIGGER = 30, 31
FAILED: Final = "FAILED"  # what receipts say
BY_NAME: Final = "a token of the chain that is named and has no number"


class Pair(NamedTuple):
    """The other token of an exchange than this one."""

    exchange: int
    token: str | None


class Move(NamedTuple):
    """So much of the native coin (`token` is None), of a token by its number, or of what an exchange gives."""

    token: str | Pair | None
    sender: str
    recipient: str
    raw: int


class Asked(NamedTuple):
    """What a transaction asked for. `untold`: what it moved that nobody can tell from what nodes say."""

    owner: str
    recipient: str | None = ZERO
    created: str | None = None
    raw: int = 0
    input: bytes | None = None
    moves: tuple[Move, ...] = ()
    untold: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """The fields of a contract, as what they are."""

    source: str
    packed: bytes
    of: Fields

    def address(self, key: int) -> str:
        """An address; ValueError where it is none."""
        return of_bytes(data(self.of, key))

    def party(self, key: int) -> str:
        """An address that need not be there: the zero address where it is not, or where the chain looks at none."""
        try:
            return self.address(key)
        except ValueError:
            return ZERO

    def raw(self, key: int) -> int:
        """An amount; ValueError where it is less than nothing."""
        found = number(self.of, key)
        if found < 0:
            raise ValueError(f"an amount of {found}")
        return found

    def carried(self, key: int) -> int:
        """What a call of a contract carries: less than nothing, which early blocks have, is nothing."""
        return max(0, number(self.of, key))

    def token(self, key: int) -> str | None:
        """The number of a token, None for the native coin; KeyError where it is named as tokens were before they had
        numbers."""
        written = data(self.of, key)
        if written == TRX_ID:
            return None
        if not written.isdigit():
            raise KeyError(BY_NAME)
        return written.decode()


def message(source: str, packed: bytes) -> Message:
    """A message; ValueError where it is none."""
    return Message(source, packed, fields(packed))


Read = Callable[[Message, Info], Asked]


def _transfer(told: Message, info: Info) -> Asked:
    owner, to, raw = told.address(1), told.address(2), told.raw(3)
    return Asked(owner, to, raw=raw, moves=(Move(None, owner, to, raw),))


def _asset(told: Message, info: Info) -> Asked:
    owner, to = told.address(2), told.address(3)
    return _named(owner, to, lambda: (Move(told.token(1), owner, to, told.raw(4)),))


def _named(owner: str, recipient: str, moves: Callable[[], tuple[Move, ...]]) -> Asked:
    """What moves tokens by their numbers."""
    try:
        return Asked(owner, recipient, moves=moves())
    except KeyError as error:
        return Asked(owner, recipient, untold=str(error.args[0]))


def _trigger(told: Message, info: Info) -> Asked:
    owner, contract, raw, tokens = told.address(1), told.address(2), told.carried(3), told.carried(5)
    moves = (Move(None, owner, contract, raw),) if raw else ()
    if tokens:
        moves = (*moves, Move(str(told.raw(6)), owner, contract, tokens))
    return Asked(owner, contract, None, raw, data(told.of, 4) or None, moves)


def _create(told: Message, info: Info) -> Asked:
    """Who fails may not be told where the contract would have been."""
    owner, contract = told.address(1), message(told.source, b"".join(repeated(told.packed, 2)))
    raw, tokens = contract.carried(5), told.carried(3)
    if not info.contract_address:
        if info.result != FAILED:
            raise ValueError("a contract without an address")
        return Asked(owner, None, raw=raw)
    created = of_hex(told.source, info.contract_address)
    moves = (Move(None, owner, created, raw),) if raw else ()
    if tokens:
        moves = (*moves, Move(str(told.raw(4)), owner, created, tokens))
    return Asked(owner, None, created, raw, None, moves)


def _staked(receiver: int = 0) -> Read:
    """Coins that are staked, in one or the other version."""

    def read(told: Message, info: Info) -> Asked:
        owner, raw = told.address(1), told.raw(2)
        to = told.party(receiver)
        return Asked(owner, to, moves=(Move(None, owner, ZERO, raw),))

    return read


def _given(amount: Callable[[Info], int], receiver: int = 0) -> Read:
    """Coins that come back or are earned: how many, the receipt says."""

    def read(told: Message, info: Info) -> Asked:
        owner, raw = told.address(1), amount(info)
        to = told.party(receiver)
        return Asked(owner, to, moves=(Move(None, ZERO, owner, raw),) if raw else ())

    return read


def _to(key: int = 0, owner: int = 1) -> Read:
    """What moves nothing and is about somebody."""

    def read(told: Message, info: Info) -> Asked:
        return Asked(told.address(owner), told.party(key))

    return read


def _exchanged(received: Callable[[Info], int], sign: int) -> Read:
    """What goes into an exchange, or both parts that come from it: of the other token, the receipt says how much."""

    def read(told: Message, info: Info) -> Asked:
        owner, exchange = told.address(1), told.raw(2)

        def moves() -> tuple[Move, ...]:
            token, raw, other = told.token(3), told.raw(4), received(info)
            given = Move(token, owner, ZERO, raw) if sign >= 0 else Move(token, ZERO, owner, raw)
            taken = (owner, ZERO) if sign > 0 else (ZERO, owner)
            return given, Move(Pair(exchange, token), *taken, other)

        return _named(owner, ZERO, moves)

    return read


def _new_exchange(told: Message, info: Info) -> Asked:
    owner = told.address(1)
    return _named(
        owner, ZERO, lambda: tuple(Move(told.token(key), owner, ZERO, told.raw(key + 1)) for key in (2, 4))
    )  # fmt: skip


def _issue(told: Message, info: Info) -> Asked:
    """A new token of the chain: what of it is not frozen is its owner's."""
    owner = told.address(1)
    if not info.assetIssueID.isdecimal():
        return Asked(owner)
    frozen = [message(told.source, each).raw(1) for each in repeated(told.packed, 5)]
    return Asked(owner, moves=(Move(info.assetIssueID, ZERO, owner, max(0, told.raw(4) - sum(frozen))),))


def _participated(told: Message, info: Info) -> Asked:
    """Coins for a token that is being issued."""
    owner, issuer, raw = told.address(1), told.address(2), told.raw(4)
    moves = (Move(None, owner, issuer, raw),)
    return Asked(owner, issuer, raw=raw, moves=moves, untold="how many tokens came for the coins")


def _untold(what: str) -> Read:
    """What moves something of its owner; where it has none, of nobody who is known."""
    return lambda told, info: Asked(told.party(1), untold=what)


@dataclass(frozen=True, slots=True)
class Type:
    """A type of transaction: what the system calls it, and how its contract is read. Without a name it has an input of
    its own, or none."""

    name: str
    read: Read


def _withdrawn(info: Info) -> int:
    return info.withdraw_expire_amount


TYPES: Final[Mapping[int, Type]] = {
    0: Type("createAccount", _to(2)),
    1: Type("", _transfer),
    2: Type("", _asset),
    3: Type("voteAsset", _to()),
    4: Type("voteWitness", _to()),
    5: Type("createWitness", _to()),
    6: Type("issueAsset", _issue),
    8: Type("updateWitness", _to()),
    9: Type("participateAssetIssue", _participated),
    10: Type("updateAccount", _to(owner=2)),
    11: Type("freezeBalance", _staked(15)),
    12: Type("unfreezeBalance", _given(lambda info: info.unfreeze_amount, 15)),
    13: Type("withdrawBalance", _given(lambda info: info.withdraw_amount)),
    14: Type("unfreezeAsset", _untold("how many tokens came back")),
    15: Type("updateAsset", _to()),
    16: Type("createProposal", _to()),
    17: Type("approveProposal", _to()),
    18: Type("deleteProposal", _to()),
    19: Type("setAccountId", _to(owner=2)),
    CREATE: Type("", _create),
    TRIGGER: Type("", _trigger),
    33: Type("updateSetting", _to(2)),
    41: Type("createExchange", _new_exchange),
    42: Type("injectExchange", _exchanged(lambda info: info.exchange_inject_another_amount, 1)),
    43: Type("withdrawExchange", _exchanged(lambda info: info.exchange_withdraw_another_amount, -1)),
    44: Type("exchangeTokens", _exchanged(lambda info: info.exchange_received_amount, 0)),
    45: Type("updateEnergyLimit", _to(2)),
    46: Type("updateAccountPermission", _to()),
    48: Type("clearAbi", _to(2)),
    49: Type("updateBrokerage", _to()),
    51: Type("transferShielded", _untold("what was shielded")),
    52: Type("sellOnMarket", _untold("what the market took and gave")),
    53: Type("cancelOrderOnMarket", _untold("what the market gave back")),
    54: Type("freezeBalanceV2", _staked()),
    55: Type("unfreezeBalanceV2", _given(_withdrawn)),
    56: Type("withdrawExpireUnfreeze", _given(_withdrawn)),
    57: Type("delegateResource", _to(4)),
    58: Type("undelegateResource", _to(4)),
    59: Type("cancelAllUnfreezeV2", _given(_withdrawn)),
}
INPUTS: Final = {number: selector(f"{SYSTEM}{each.name}()") for number, each in TYPES.items() if each.name}
