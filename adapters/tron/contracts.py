"""Decode each type of transaction: sender, recipient, and its transfers if it succeeds.

Everything comes from the signed bytes. The zero address stands for the chain: stakes and deposits into exchanges go to
it, rewards and new tokens come from it. Only the receipt has the amounts that the chain pays out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from chainfolio.adapters.tron.addresses import ZERO, encode_prefixed, parse_address
from chainfolio.adapters.tron.forms import TransactionInfo
from chainfolio.adapters.tron.functions import SYSTEM, selector
from chainfolio.adapters.tron.protobuf import Fields, bytes_field, bytes_fields, decode_fields, int_field

TRX_ID: Final = b"_"  # the native coin, in exchanges
CREATE, TRIGGER = 30, 31
FAILED: Final = "FAILED"  # as receipts say it
UNNUMBERED_TOKEN: Final = "a token of the chain that is named and has no number"


class CounterToken(NamedTuple):
    """The other of the two tokens of an exchange than this one."""

    exchange: int
    token: str | None


class DirectTransfer(NamedTuple):
    """A transfer that a transaction itself makes.

    `token` is None for the native coin, the number of a TRC-10 token, or the token that an exchange gives or takes.
    """

    token: str | CounterToken | None
    sender: str
    recipient: str
    raw: int


class Operation(NamedTuple):
    """The content of a transaction.

    Attributes:
        owner: The account that sent it.
        recipient: The account or contract that it addresses; None if a contract was to be created.
        created: The contract that it creates.
        raw: Native coins for the recipient, in sun.
        input: Call data, or the selector of a system operation.
        transfers: Made only if the transaction succeeds.
        unexplained: A transfer whose amount nodes do not show, as a text for people; empty if there is none.
    """

    owner: str
    recipient: str | None = ZERO
    created: str | None = None
    raw: int = 0
    input: bytes | None = None
    transfers: tuple[DirectTransfer, ...] = ()
    unexplained: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """A decoded message, with accessors by field number."""

    source: str
    packed: bytes
    fields: Fields

    def address(self, number: int) -> str:
        """Return an address.

        Raises:
            ValueError: The field is no address.
        """
        return encode_prefixed(bytes_field(self.fields, number))

    def optional_address(self, number: int) -> str:
        """Return an address, or the zero address if the field is absent or no address: the chain ignores it."""
        try:
            return self.address(number)
        except ValueError:
            return ZERO

    def raw(self, number: int) -> int:
        """Return an amount.

        Raises:
            ValueError: It is negative.
        """
        raw = int_field(self.fields, number)
        if raw < 0:
            raise ValueError(f"an amount of {raw}")
        return raw

    def call_value(self, number: int) -> int:
        """Return the amount that a contract call carries; 0 if it is negative, as in early blocks."""
        return max(0, int_field(self.fields, number))

    def token(self, number: int) -> str | None:
        """Return the number of a TRC-10 token, None for the native coin.

        Raises:
            KeyError: The token is named, as tokens were before they had numbers.
        """
        token_id = bytes_field(self.fields, number)
        if token_id == TRX_ID:
            return None
        if not token_id.isdigit():
            raise KeyError(UNNUMBERED_TOKEN)
        return token_id.decode()


def decode_message(source: str, packed: bytes) -> Message:
    """Decode a message.

    Raises:
        ValueError: The bytes are no message.
    """
    return Message(source, packed, decode_fields(packed))


Decoder = Callable[[Message, TransactionInfo], Operation]


def _decode_transfer(message: Message, info: TransactionInfo) -> Operation:
    owner, to, raw = message.address(1), message.address(2), message.raw(3)
    return Operation(owner, to, raw=raw, transfers=(DirectTransfer(None, owner, to, raw),))


def _decode_token_transfer(message: Message, info: TransactionInfo) -> Operation:
    owner, to = message.address(2), message.address(3)
    return _with_tokens(owner, to, lambda: (DirectTransfer(message.token(1), owner, to, message.raw(4)),))


def _with_tokens(owner: str, recipient: str, transfers: Callable[[], tuple[DirectTransfer, ...]]) -> Operation:
    """Return an operation with TRC-10 transfers, unexplained if a token has no number."""
    try:
        return Operation(owner, recipient, transfers=transfers())
    except KeyError as error:
        return Operation(owner, recipient, unexplained=str(error.args[0]))


def _decode_trigger(message: Message, info: TransactionInfo) -> Operation:
    """Decode a call of a contract, which may pay it sun and one TRC-10 token."""
    owner, contract = message.address(1), message.address(2)
    raw, token_raw = message.call_value(3), message.call_value(5)
    transfers = (DirectTransfer(None, owner, contract, raw),) if raw else ()
    if token_raw:
        transfers = (*transfers, DirectTransfer(str(message.raw(6)), owner, contract, token_raw))
    return Operation(owner, contract, None, raw, bytes_field(message.fields, 4) or None, transfers)


def _decode_create(message: Message, info: TransactionInfo) -> Operation:
    """Decode the creation of a contract.

    The receipt of a failed one may lack the address: the operation then has no created contract and no transfers.

    Raises:
        ValueError: The receipt of a successful one lacks the address.
    """
    owner, contract = message.address(1), decode_message(message.source, b"".join(bytes_fields(message.packed, 2)))
    raw, token_raw = contract.call_value(5), message.call_value(3)
    if not info.contract_address:
        if info.result != FAILED:
            raise ValueError("a contract without an address")
        return Operation(owner, None, raw=raw)
    created = parse_address(message.source, info.contract_address)
    transfers = (DirectTransfer(None, owner, created, raw),) if raw else ()
    if token_raw:
        transfers = (*transfers, DirectTransfer(str(message.raw(4)), owner, created, token_raw))
    return Operation(owner, None, created, raw, None, transfers)


def _stake(receiver: int = 0) -> Decoder:
    """Return a decoder of a stake. `receiver` is the field with the account that may use it, 0 if none."""

    def decode(message: Message, info: TransactionInfo) -> Operation:
        owner, raw = message.address(1), message.raw(2)
        to = message.optional_address(receiver)
        return Operation(owner, to, transfers=(DirectTransfer(None, owner, ZERO, raw),))

    return decode


def _payout(amount: Callable[[TransactionInfo], int], receiver: int = 0) -> Decoder:
    """Return a decoder of coins that are unstaked or earned, with the amount from the receipt."""

    def decode(message: Message, info: TransactionInfo) -> Operation:
        owner, raw = message.address(1), amount(info)
        to = message.optional_address(receiver)
        return Operation(owner, to, transfers=(DirectTransfer(None, ZERO, owner, raw),) if raw else ())

    return decode


def _no_transfer(recipient: int = 0, owner: int = 1) -> Decoder:
    """Return a decoder of an operation without transfers, by the numbers of its address fields."""

    def decode(message: Message, info: TransactionInfo) -> Operation:
        return Operation(message.address(owner), message.optional_address(recipient))

    return decode


def _exchange(counter_amount: Callable[[TransactionInfo], int], direction: int) -> Decoder:
    """Return a decoder of an operation on an exchange, which stands as ZERO in its transfers.

    Args:
        counter_amount: The amount of the other token, from the receipt.
        direction: 1 deposits both tokens, -1 withdraws both, 0 swaps: the named token goes in, the other comes out.
    """

    def decode(message: Message, info: TransactionInfo) -> Operation:
        owner, exchange = message.address(1), message.raw(2)

        def transfers() -> tuple[DirectTransfer, ...]:
            token, raw, counter_raw = message.token(3), message.raw(4), counter_amount(info)
            parties = (owner, ZERO) if direction >= 0 else (ZERO, owner)
            counterparties = (owner, ZERO) if direction > 0 else (ZERO, owner)
            return (
                DirectTransfer(token, *parties, raw),
                DirectTransfer(CounterToken(exchange, token), *counterparties, counter_raw),
            )

        return _with_tokens(owner, ZERO, transfers)

    return decode


def _decode_new_exchange(message: Message, info: TransactionInfo) -> Operation:
    """Decode the creation of an exchange: the owner pays an amount of each of its two tokens to ZERO."""
    owner = message.address(1)

    def transfers() -> tuple[DirectTransfer, ...]:
        return tuple(DirectTransfer(message.token(key), owner, ZERO, message.raw(key + 1)) for key in (2, 4))

    return _with_tokens(owner, ZERO, transfers)


def _decode_token_issue(message: Message, info: TransactionInfo) -> Operation:
    """Decode the issue of a TRC-10 token: its owner receives the supply that is not frozen.

    Nothing moves if the node names no id of a token.
    """
    owner = message.address(1)
    if not info.assetIssueID.isdecimal():
        return Operation(owner)
    frozen = sum(decode_message(message.source, each).raw(1) for each in bytes_fields(message.packed, 5))
    transfer = DirectTransfer(info.assetIssueID, ZERO, owner, max(0, message.raw(4) - frozen))
    return Operation(owner, transfers=(transfer,))


def _decode_token_purchase(message: Message, info: TransactionInfo) -> Operation:
    """Decode the purchase of a TRC-10 token from its issuer."""
    owner, issuer, raw = message.address(1), message.address(2), message.raw(4)
    transfers = (DirectTransfer(None, owner, issuer, raw),)
    return Operation(owner, issuer, raw=raw, transfers=transfers, unexplained="how many tokens came for the coins")


def _unexplained(reason: str) -> Decoder:
    """Return a decoder of an operation whose transfers nodes do not show. A shielded one has no owner."""
    return lambda message, info: Operation(message.optional_address(1), unexplained=reason)


@dataclass(frozen=True, slots=True)
class ContractType:
    """A type of transaction: its decoder, and the name of its system operation.

    The name is empty for transactions with call data and for plain transfers.
    """

    name: str
    decode: Decoder


def _withdraw_expire_amount(info: TransactionInfo) -> int:
    return info.withdraw_expire_amount


CONTRACT_TYPES: Final[Mapping[int, ContractType]] = {
    0: ContractType("createAccount", _no_transfer(2)),
    1: ContractType("", _decode_transfer),
    2: ContractType("", _decode_token_transfer),
    3: ContractType("voteAsset", _no_transfer()),
    4: ContractType("voteWitness", _no_transfer()),
    5: ContractType("createWitness", _no_transfer()),
    6: ContractType("issueAsset", _decode_token_issue),
    8: ContractType("updateWitness", _no_transfer()),
    9: ContractType("participateAssetIssue", _decode_token_purchase),
    10: ContractType("updateAccount", _no_transfer(owner=2)),
    11: ContractType("freezeBalance", _stake(15)),
    12: ContractType("unfreezeBalance", _payout(lambda info: info.unfreeze_amount, 15)),
    13: ContractType("withdrawBalance", _payout(lambda info: info.withdraw_amount)),
    14: ContractType("unfreezeAsset", _unexplained("how many tokens came back")),
    15: ContractType("updateAsset", _no_transfer()),
    16: ContractType("createProposal", _no_transfer()),
    17: ContractType("approveProposal", _no_transfer()),
    18: ContractType("deleteProposal", _no_transfer()),
    19: ContractType("setAccountId", _no_transfer(owner=2)),
    CREATE: ContractType("", _decode_create),
    TRIGGER: ContractType("", _decode_trigger),
    33: ContractType("updateSetting", _no_transfer(2)),
    41: ContractType("createExchange", _decode_new_exchange),
    42: ContractType("injectExchange", _exchange(lambda info: info.exchange_inject_another_amount, 1)),
    43: ContractType("withdrawExchange", _exchange(lambda info: info.exchange_withdraw_another_amount, -1)),
    44: ContractType("exchangeTokens", _exchange(lambda info: info.exchange_received_amount, 0)),
    45: ContractType("updateEnergyLimit", _no_transfer(2)),
    46: ContractType("updateAccountPermission", _no_transfer()),
    48: ContractType("clearAbi", _no_transfer(2)),
    49: ContractType("updateBrokerage", _no_transfer()),
    51: ContractType("transferShielded", _unexplained("what was shielded")),
    52: ContractType("sellOnMarket", _unexplained("what the market took and gave")),
    53: ContractType("cancelOrderOnMarket", _unexplained("what the market gave back")),
    54: ContractType("freezeBalanceV2", _stake()),
    55: ContractType("unfreezeBalanceV2", _payout(_withdraw_expire_amount)),
    56: ContractType("withdrawExpireUnfreeze", _payout(_withdraw_expire_amount)),
    57: ContractType("delegateResource", _no_transfer(4)),
    58: ContractType("undelegateResource", _no_transfer(4)),
    59: ContractType("cancelAllUnfreezeV2", _payout(_withdraw_expire_amount)),
}
SYSTEM_SELECTORS: Final = {
    number: selector(f"{SYSTEM}{each.name}()") for number, each in CONTRACT_TYPES.items() if each.name
}
