"""How each kind of chain writes addresses, as values: their one form, what wallets show of them, whose they cannot be.

The kinds that the service serves are here, so that their addresses are read whether or not such a chain is configured.
A kind from an installed package (entry point `chainfolio.chains`) brings its own rules as its attribute `addresses`.
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
    """How one kind of chain writes the addresses of accounts and contracts.

    `canonical` gives the one form of an address, or None where the text is of another kind; BadRequest where it is of
    this kind and wrong. `pattern` is a regular expression without anchors that every spelling matches, `form` says the
    same in words. `nobody` are the addresses from which tokens are minted and to which they are burnt: who has one
    holds nothing. `prefix` is how many characters every address begins with, which wallets leave out.
    """

    kind: str
    name: str
    form: str
    pattern: str
    canonical: Callable[[str], str | None]
    nobody: frozenset[str] = frozenset()
    prefix: int = 0

    def address(self, written: str) -> str:
        """The one form of an address of this kind; BadRequest for anything else."""
        address = self.canonical(written)
        if address is None:
            article = "an" if self.name[0] in "AEIOU" else "a"
            raise BadRequest("address", f"{shown(written)} is not {article} {self.name} address", remedy=self.form)
        return address

    def look(self, address: str) -> str:
        """What a wallet shows of an address: two with the same look are taken for each other."""
        return address[self.prefix : self.prefix + SHOWN] + address[-SHOWN:]


def _evm(written: str) -> str | None:
    return written.lower() if _EVM.match(written) else None


def _starknet(written: str) -> str | None:
    if not _STARKNET.match(written):
        return None
    value = int(written, 16)
    if not 0 < value < STARKNET_PRIME:
        raise BadRequest("address", f"{written} is not a Starknet address: outside the field")
    return f"0x{value:064x}"


def _solana(written: str) -> str | None:
    import base58

    data = _decoded(written)
    return base58.b58encode(data).decode() if data is not None and len(data) == 32 else None


def _tron(written: str) -> str | None:
    import base58

    if _TRON_HEX.match(written):  # with 0x as contracts write it: where the kind is not known that is an EVM address
        return base58.b58encode_check(bytes.fromhex(f"41{written[2:]}")).decode()
    data = _decoded(written)
    if data is None or len(data) == 32:
        return None
    if len(data) != 25 or data[0] != 0x41:
        raise BadRequest("address", f"{shown(written)} is base58 but neither a Solana nor a Tron address")
    try:
        return base58.b58encode_check(base58.b58decode_check(written)).decode()
    except ValueError:
        raise BadRequest("address", f"{written} is not a Tron address: its checksum is wrong") from None


def _decoded(written: str) -> bytes | None:
    """The bytes of a base58 text as long as an address is; None where it is none."""
    import base58

    return base58.b58decode(written) if _BASE58_KEY.match(written) else None


EVM: Final = AddressRules(
    "evm", "EVM", "0x + 40 hex digits", "0[xX][0-9a-fA-F]{40}", _evm, frozenset(["0x" + "0" * 40]), prefix=2
)
SOLANA: Final = AddressRules("solana", "Solana", "base58", f"{_BASE58}{{32,44}}", _solana)
TRON: Final = AddressRules(
    "tron", "Tron", "T…", f"T{_BASE58}{{33}}|(?:41|0[xX])[0-9a-fA-F]{{40}}", _tron,
    frozenset(["T9yD14Nj9j7xAB4dbGeiX9h8unkKHxuWwb"]), prefix=1,
)  # fmt: skip
STARKNET: Final = AddressRules(
    "starknet", "Starknet", "0x + 64 hex digits", "0[xX][0-9a-fA-F]{41,64}", _starknet, frozenset(["0x" + "0" * 64]),
    prefix=2,
)  # fmt: skip
KNOWN: Final = {rules.kind: rules for rules in (EVM, SOLANA, TRON, STARKNET)}


@lru_cache(1)
def installed() -> tuple[AddressRules, ...]:
    """The rules of the kinds that installed packages bring; of a package that cannot be used, none."""
    from importlib.metadata import entry_points

    found = []
    for entry in sorted(entry_points(group=CHAINS), key=lambda each: each.name):
        if entry.name not in KNOWN:
            try:
                rules = getattr(entry.load(), "addresses", None)
            except Exception:  # third-party code: whoever configures such a chain is told what is wrong with it
                continue
            if isinstance(rules, AddressRules):
                found.append(rules)
    return tuple(found)


def every() -> tuple[AddressRules, ...]:
    """The rules of all kinds whose addresses are read, those that the service serves first."""
    return *KNOWN.values(), *installed()


@lru_cache(1)
def nobody() -> frozenset[str]:
    """The addresses of any kind that mint and burn, and hold nothing."""
    return frozenset().union(*(rules.nobody for rules in every()))


def rules_of(kind: str) -> AddressRules:
    """The rules of a kind of chain; BadRequest where no such kind is installed."""
    known = KNOWN.get(kind) or next((rules for rules in installed() if rules.kind == kind), None)
    if known is None:
        raise BadRequest("kind", f"no kind of chain `{kind}` is installed")
    return known


def shown(written: str) -> str:
    """A text from outside as errors quote it."""
    return repr(written if len(written) <= 70 else written[:67] + "...")
