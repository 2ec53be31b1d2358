"""Chains, accounts and assets in one canonical form each: CAIP-2, CAIP-10 and CAIP-19.

An account is written as its kind of chain writes it (`chainfolio.addresses`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from chainfolio import addresses
from chainfolio.addresses import BUILTIN_RULES, EVM, abbreviated
from chainfolio.errors import BadRequest

ZERO_ADDRESS: Final = "0x" + "0" * 40
SHOWN_NATIVE: Final = ZERO_ADDRESS  # the contract of a native coin, as requests and answers write it
_ASSET: Final = re.compile(
    r"([-a-z0-9]{3,8}:[-_a-zA-Z0-9]{1,32})/([-a-z0-9]{3,8}):([-.%a-zA-Z0-9]{1,128})(?:/([-.%a-zA-Z0-9]{1,78}))?\Z"
)


@dataclass(frozen=True, slots=True)
class Account:
    """An address with its kind of chain: `evm`, `solana`, `tron`, `starknet`, or an installed one."""

    kind: str
    address: str

    def __str__(self) -> str:
        return self.address

    def on(self, chain: str) -> str:
        """Return the CAIP-10 name of the account on a chain, given by its CAIP-2 name."""
        return f"{chain}:{self.address}"


@lru_cache(8192)
def account(text: str) -> Account:
    """Return the canonical account of an address as users write it, by the first kind that accepts it.

    Raises:
        BadRequest: It is not an address of any installed kind.
    """
    refusal: BadRequest | None = None
    try:
        for rules in BUILTIN_RULES.values():
            if (address := rules.canonical(text)) is not None:
                return Account(rules.kind, address)
    except BadRequest as error:
        refusal = error
    for rules in addresses.installed():
        if (address := rules.canonical(text)) is not None:
            return Account(rules.kind, address)
    raise refusal or BadRequest(
        "address",
        f"{abbreviated(text)} is not an address of any kind known here",
        remedy=", ".join(f"{rules.name} {rules.form}" for rules in addresses.all_rules()),
    )


def evm_address(text: str) -> str:
    """Return the canonical form of an EVM address: lower case. Raises BadRequest for any other text."""
    return EVM.address(text)


class Asset(NamedTuple):
    """A CAIP-19 asset: `chain` is CAIP-2, `kind` the namespace (slip44, erc20), `reference` the contract.

    A tuple, because assets are keys of every dictionary that is looked up for each holding.
    """

    chain: str
    kind: str
    reference: str
    token_id: str = ""

    def __str__(self) -> str:
        tail = f"/{self.token_id}" if self.token_id else ""
        return f"{self.chain}/{self.kind}:{self.reference}{tail}"

    @property
    def is_native(self) -> bool:
        """True for the coin in which the chain's fees are paid."""
        return self.kind == "slip44"

    @property
    def is_collectible(self) -> bool:
        """True for one item of a collection."""
        return bool(self.token_id)

    @property
    def collection(self) -> Asset:
        """The collection of a collectible; any other asset itself."""
        return self._replace(token_id="") if self.token_id else self

    @property
    def shown_contract(self) -> str:
        """The contract as answers show it; the native coin has the zero address. For documents only."""
        return SHOWN_NATIVE if self.is_native else self.reference


def asset(text: str) -> Asset:
    """Return an asset from its CAIP-19 text.

    EVM contracts are lower-cased, other references stay unchecked.

    Raises:
        BadRequest: The text is not a CAIP-19 name, or its EVM contract is no address.
    """
    match = _ASSET.match(text)
    if not match:
        raise BadRequest(
            "asset", f"{abbreviated(text)} is not a CAIP-19 asset", remedy="for example eip155:1/erc20:0xa0b8…"
        )
    chain, kind, reference, token_id = match.groups()
    if chain.startswith("eip155:") and kind != "slip44":
        reference = evm_address(reference)
    return Asset(chain, kind, reference, token_id or "")
