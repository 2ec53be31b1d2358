"""Address formats of each kind of chain, as values: canonical form, short form, and burn addresses.

The kinds that the service serves are here, so that their addresses are recognised whether or not such a chain is
configured. A kind from an installed package (entry point `chainfolio.chains`) brings its rules as its attribute
`addresses`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from chainfolio.errors import BadRequest

CHAINS: Final = "chainfolio.chains"
STARKNET_PRIME: Final = 2**251 + 17 * 2**192 + 1
SHOWN: Final = 4  # characters that wallets show of either end
_EVM: Final = re.compile(r"0[xX][0-9a-fA-F]{40}\Z")
_STARKNET: Final = re.compile(r"0[xX][0-9a-fA-F]{41,64}\Z")
_TRON_HEX: Final = re.compile(r"(?:41|0[xX])[0-9a-fA-F]{40}\Z")
_BASE58: Final = "[1-9A-HJ-NP-Za-km-z]"
_BASE58_KEY: Final = re.compile(_BASE58 + r"{32,44}\Z")


@dataclass(frozen=True, slots=True)
class AddressRules:
    """The address format of one kind of chain.

    `canonical` returns the canonical form of an address, None if the text is of another kind, and raises BadRequest
    if it is of this kind and invalid. `pattern` is a regular expression without anchors that every spelling matches,
    `form` describes it in words. `burn_addresses` are the addresses that mint and burn tokens: they hold nothing.
    `prefix` is the number of leading characters that all addresses share, which wallets leave out.
    """

    kind: str
    name: str
    form: str
    pattern: str
    canonical: Callable[[str], str | None]
    burn_addresses: frozenset[str] = frozenset()
    prefix: int = 0

    def address(self, text: str) -> str:
        """Return the canonical form of an address of this kind.

        Raises:
            BadRequest: the text is anything else.
        """
        address = self.canonical(text)
        if address is None:
            article = "an" if self.name[0] in "AEIOU" else "a"
            raise BadRequest("address", f"{abbreviated(text)} is not {article} {self.name} address", remedy=self.form)
        return address

    def visible_part(self, address: str) -> str:
        """Return the characters of an address that a wallet shows: two with the same ones are easily confused."""
        return address[self.prefix : self.prefix + SHOWN] + address[-SHOWN:]


def _evm(text: str) -> str | None:
    return text.lower() if _EVM.match(text) else None


def _starknet(text: str) -> str | None:
    """Return the canonical form (64 digits) of a Starknet address, None for other texts.

    Raises BadRequest for 0 and for numbers that are not below the prime.
    """
    if not _STARKNET.match(text):
        return None
    value = int(text, 16)
    if not 0 < value < STARKNET_PRIME:
        raise BadRequest("address", f"{text} is not a Starknet address: outside the field")
    return f"0x{value:064x}"


def _solana(text: str) -> str | None:
    import base58

    data = _decoded(text)
    return base58.b58encode(data).decode() if data is not None and len(data) == 32 else None


def _tron(text: str) -> str | None:
    """Return the canonical form of a Tron address, None for other texts.

    Raises BadRequest if a base58 text has another length or prefix, or a wrong checksum.
    """
    import base58

    if _TRON_HEX.match(text):  # as contracts write it; if the kind is not known, 0x means an EVM address
        return base58.b58encode_check(bytes.fromhex(f"41{text[2:]}")).decode()
    data = _decoded(text)
    if data is None or len(data) == 32:
        return None
    if len(data) != 25 or data[0] != 0x41:
        raise BadRequest("address", f"{abbreviated(text)} is base58 but neither a Solana nor a Tron address")
    try:
        return base58.b58encode_check(base58.b58decode_check(text)).decode()
    except ValueError:
        raise BadRequest("address", f"{text} is not a Tron address: its checksum is wrong") from None


def _decoded(text: str) -> bytes | None:
    """Return the bytes of a base58 text of the length of an address; None for other texts."""
    import base58

    return base58.b58decode(text) if _BASE58_KEY.match(text) else None


EVM: Final = AddressRules(
    "evm", "EVM", "0x + 40 hex digits", "0[xX][0-9a-fA-F]{40}", _evm, frozenset(["0x" + "0" * 40]), prefix=2
)
SOLANA: Final = AddressRules("solana", "Solana", "base58", f"{_BASE58}{{32,44}}", _solana)
TRON: Final = AddressRules(
    "tron",
    "Tron",
    "T…",
    f"T{_BASE58}{{33}}|(?:41|0[xX])[0-9a-fA-F]{{40}}",
    _tron,
    frozenset(["T9yD14Nj9j7xAB4dbGeiX9h8unkKHxuWwb"]),
    prefix=1,
)
STARKNET: Final = AddressRules(
    "starknet",
    "Starknet",
    "0x + 64 hex digits",
    "0[xX][0-9a-fA-F]{41,64}",
    _starknet,
    frozenset(["0x" + "0" * 64]),
    prefix=2,
)
BUILTIN_RULES: Final = {rules.kind: rules for rules in (EVM, SOLANA, TRON, STARKNET)}


@lru_cache(1)
def installed() -> tuple[AddressRules, ...]:
    """Return the rules of kinds from installed packages, without packages that cannot be used."""
    from importlib.metadata import entry_points

    rules_of_packages = []
    for entry in sorted(entry_points(group=CHAINS), key=lambda each: each.name):
        if entry.name not in BUILTIN_RULES:
            try:
                rules = getattr(entry.load(), "addresses", None)
            except Exception:  # third-party code: a configured chain of this kind reports it
                continue
            if isinstance(rules, AddressRules):
                rules_of_packages.append(rules)
    return tuple(rules_of_packages)


def all_rules() -> tuple[AddressRules, ...]:
    """Return the rules of all kinds whose addresses are read, built-in ones first."""
    return *BUILTIN_RULES.values(), *installed()


@lru_cache(1)
def burn_addresses() -> frozenset[str]:
    """Return the addresses of all kinds that mint and burn tokens, and hold nothing."""
    return frozenset().union(*(rules.burn_addresses for rules in all_rules()))


def rules_of(kind: str) -> AddressRules:
    """Return the rules of a kind of chain.

    Raises:
        BadRequest: no such kind is installed.
    """
    kind_rules = BUILTIN_RULES.get(kind) or next((rules for rules in installed() if rules.kind == kind), None)
    if kind_rules is None:
        raise BadRequest("kind", f"no kind of chain `{kind}` is installed")
    return kind_rules


def abbreviated(text: str) -> str:
    """Return a text from outside as errors quote it, at most 70 characters."""
    return repr(text if len(text) <= 70 else text[:67] + "...")
