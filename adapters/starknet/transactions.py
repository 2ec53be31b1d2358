"""The parties of a transaction, the function that it calls, and its fee, version and nonce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from chainfolio.adapters.starknet.felts import FeltNumbers, FormattedFelts, format_felt
from chainfolio.adapters.starknet.forms import Receipt, Transaction
from chainfolio.adapters.starknet.functions import SELECTOR_SIZE
from chainfolio.errors import BadAnswer

ZERO_ADDRESS: Final = format_felt(0)
MAX_CALLS: Final = 10_000
MAX_NONCE: Final = 2**63
QUERY_VERSION: Final = 2**128  # added to the version of a transaction that is simulated only
FREE_TYPES: Final = ("L1_HANDLER", "DEPLOY")  # types that no account of the chain pays for


class Parties(NamedTuple):
    """The addresses of a transaction; `function` is the suffix of the selector of the called function."""

    sender: str
    recipient: str | None
    created: str | None
    function: bytes | None


def parties(felts: FormattedFelts, transaction: Transaction, receipt: Receipt) -> Parties:
    """Return sender, recipient, created account and called function of a transaction.

    An invocation has the recipient and function of its last call; without calls, its sender is the recipient. The
    sender of a message from Ethereum is the contract there. A deployment without an account has ZERO_ADDRESS.

    Raises:
        BadAnswer: The type is unknown, or a field that the type needs is missing or invalid.
    """
    match transaction.type:
        case "INVOKE" | "INVOKE_FUNCTION":
            sender = transaction.sender_address or transaction.contract_address
            if sender is None:
                raise BadAnswer(felts.source, "a transaction without a signature")
            recipient, function = _last_call(felts, transaction)
            return Parties(felts[sender], recipient or felts[sender], None, function)
        case "L1_HANDLER":
            if transaction.contract_address is None or not transaction.calldata:
                raise BadAnswer(felts.source, "a message from Ethereum that says neither from whom nor to whom")
            sender, recipient = felts[transaction.calldata[0]], felts[transaction.contract_address]
            return Parties(sender, recipient, None, _function(felts, transaction.entry_point_selector))
        case "DECLARE":
            return Parties(felts[transaction.sender_address or "0x1"], None, None, None)
        case "DEPLOY_ACCOUNT" | "DEPLOY":
            created = receipt.contract_address or transaction.contract_address
            if created is None:
                raise BadAnswer(felts.source, "a transaction that deploys and does not say where")
            sender = felts[created] if transaction.type == "DEPLOY_ACCOUNT" else ZERO_ADDRESS
            return Parties(sender, None, felts[created], None)
    raise BadAnswer(felts.source, f"a transaction of an unknown type, {transaction.type[:40]!r}")


def sender_fee(numbers: FeltNumbers, transaction: Transaction, receipt: Receipt) -> tuple[int, str]:
    """Return the fee that the sender paid, and its unit; 0 for types that no account pays for.

    Raises:
        BadAnswer: The fee is invalid.
    """
    fee, unit = receipt.fee(numbers)
    return (0 if transaction.type in FREE_TYPES else fee), unit


def version(numbers: FeltNumbers, transaction: Transaction) -> int:
    """Return the version of a transaction.

    Raises:
        BadAnswer: The transaction was simulated only, or the version is above 255.
    """
    number = numbers[transaction.version]
    if number >= QUERY_VERSION:
        raise BadAnswer(numbers.source, "a transaction that was only tried")
    if number > 255:
        raise BadAnswer(numbers.source, f"a transaction of version {number}")
    return number


def nonce(numbers: FeltNumbers, transaction: Transaction) -> int | None:
    """Return the nonce of a transaction; None if its type has none, or if it is 2^63 or more."""
    number = None if transaction.nonce is None else numbers[transaction.nonce]
    return None if number is None or number >= MAX_NONCE else number


def _last_call(felts: FormattedFelts, transaction: Transaction) -> tuple[str | None, bytes | None]:
    """Return recipient and function of an account's last call; earlier calls are mostly approvals.

    Without a list of calls, the recipient is None and the function is the entry point of the transaction.
    """
    calldata = transaction.calldata
    start = _last_call_index(felts.numbers, calldata) if transaction.sender_address and calldata else 0
    if start:
        return felts[calldata[start]], _function(felts, calldata[start + 1])
    return None, _function(felts, transaction.entry_point_selector)


def _function(felts: FormattedFelts, selector: str | None) -> bytes | None:
    return None if selector is None else bytes.fromhex(felts[selector][-2 * SELECTOR_SIZE :])


def _last_call_index(numbers: FeltNumbers, calldata: Sequence[str]) -> int:
    """Return the index of the last call's recipient; 0 if the calldata is no list of calls.

    New accounts list each call with its arguments. Old ones list all calls, each with the offset and the number of its
    arguments, and then the arguments of all calls.
    """
    count = numbers[calldata[0]]
    if not 0 < count <= MAX_CALLS:
        return 0
    start, end = 0, 1
    for _ in range(count):
        if end + 2 >= len(calldata):
            break
        start, end = end, end + 3 + numbers[calldata[end + 2]]
    else:
        if end == len(calldata):
            return start
    arguments = 1 + 4 * count
    is_old = len(calldata) > arguments and numbers[calldata[arguments]] == len(calldata) - 1 - arguments
    return arguments - 4 if is_old else 0
