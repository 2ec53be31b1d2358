"""Who asked for a transaction, and what it called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chainfolio.adapters.starknet.felts import Numbers, Padded, padded
from chainfolio.adapters.starknet.forms import Body, Receipt
from chainfolio.adapters.starknet.functions import SELECTOR_SIZE
from chainfolio.errors import BadAnswer

NOBODY: Final = padded(0)
MAX_CALLS: Final = 10_000
MAX_NONCE: Final = 2**63
TRIED: Final = 2**128  # added to the version of a transaction that was only tried
UNCHARGED: Final = ("L1_HANDLER", "DEPLOY")  # types that no account of the chain pays for
Parties = tuple[str, str | None, str | None, bytes | None]


def parties(forms: Padded, body: Body, receipt: Receipt) -> Parties:
    """Who signed, who was called, what was created, and the function that was called, as `functions.shortened` has it.
    A message from Ethereum is signed by the contract there that sent it; nobody signs what is deployed without an
    account."""
    match body.type:
        case "INVOKE" | "INVOKE_FUNCTION":
            signer = body.sender_address or body.contract_address
            if signer is None:
                raise BadAnswer(forms.source, "a transaction that nobody signed")
            called, selector = _called(forms, body)
            return forms[signer], called or forms[signer], None, selector
        case "L1_HANDLER":
            if body.contract_address is None or not body.calldata:
                raise BadAnswer(forms.source, "a message from Ethereum that says neither from whom nor to whom")
            return (
                forms[body.calldata[0]],
                forms[body.contract_address],
                None,
                _function(forms, body.entry_point_selector),
            )
        case "DECLARE":
            return forms[body.sender_address or "0x1"], None, None, None
        case "DEPLOY_ACCOUNT" | "DEPLOY":
            created = receipt.contract_address or body.contract_address
            if created is None:
                raise BadAnswer(forms.source, "a transaction that deploys and does not say where")
            return forms[created] if body.type == "DEPLOY_ACCOUNT" else NOBODY, None, forms[created], None
    raise BadAnswer(forms.source, f"a transaction of an unknown type, {body.type[:40]!r}")


def charged(numbers: Numbers, body: Body, receipt: Receipt) -> tuple[int, str]:
    """Return what the sender paid for a transaction, and in which unit; 0 for types that no account pays for."""
    fee, unit = receipt.fee(numbers)
    return (0 if body.type in UNCHARGED else fee), unit


def version(numbers: Numbers, body: Body) -> int:
    """The version of a transaction."""
    found = numbers[body.version]
    if found >= TRIED:
        raise BadAnswer(numbers.source, "a transaction that was only tried")
    if found > 255:
        raise BadAnswer(numbers.source, f"a transaction of version {found}")
    return found


def nonce(numbers: Numbers, body: Body) -> int | None:
    """The nonce; None where the type has none."""
    found = None if body.nonce is None else numbers[body.nonce]
    return None if found is None or found >= MAX_NONCE else found


def _called(forms: Padded, body: Body) -> tuple[str | None, bytes | None]:
    """Whom the last call of an account's transaction goes to, and which function it calls: what comes before it is
    mostly an approval."""
    place = _last_call(forms.numbers, body.calldata) if body.sender_address and body.calldata else 0
    if place:
        return forms[body.calldata[place]], _function(forms, body.calldata[place + 1])
    return None, _function(forms, body.entry_point_selector)


def _function(forms: Padded, selector: str | None) -> bytes | None:
    return None if selector is None else bytes.fromhex(forms[selector][-2 * SELECTOR_SIZE :])


def _last_call(numbers: Numbers, said: Sequence[str]) -> int:
    """Where the last call says to whom it goes; 0 where there is none. An account of today lists each call with its
    arguments; an older one lists all calls, each with the place and the number of its arguments, and then all
    arguments."""
    count = numbers[said[0]]
    if not 0 < count <= MAX_CALLS:
        return 0
    last, at = 0, 1
    for _ in range(count):
        if at + 2 >= len(said):
            break
        last, at = at, at + 3 + numbers[said[at + 2]]
    else:
        if at == len(said):
            return last
    rest = 1 + 4 * count
    return rest - 4 if len(said) > rest and numbers[said[rest]] == len(said) - 1 - rest else 0
