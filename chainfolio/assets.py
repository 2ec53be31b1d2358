"""Chains, accounts and assets: one canonical form each. CAIP-2 names a chain, CAIP-10 an account, CAIP-19 an asset.

An account is written in the way of its kind of chain (`chainfolio.addresses`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from chainfolio import addresses
from chainfolio.addresses import EVM, KNOWN, shown
from chainfolio.errors import BadRequest

ZERO_ADDRESS: Final = "0x" + "0" * 40
SHOWN_NATIVE: Final = ZERO_ADDRESS  # the contract of a native coin, as requests and answers write it
_ASSET: Final = re.compile(
    r"([-a-z0-9]{3,8}:[-_a-zA-Z0-9]{1,32})/([-a-z0-9]{3,8}):([-.%a-zA-Z0-9]{1,128})(?:/([-.%a-zA-Z0-9]{1,78}))?\Z"
)


@dataclass(frozen=True, slots=True)
class Account:
    """An address and the kind of chain that it belongs to: `evm`, `solana`, `tron`, `starknet`, or an installed one."""

    kind: str
    address: str

    def __str__(self) -> str:
        return self.address

    def on(self, chain: str) -> str:
        """The CAIP-10 name of the account on a chain, which is given by its CAIP-2 name."""
        return f"{chain}:{self.address}"


@lru_cache(8192)
def account(written: str) -> Account:
    """The canonical account behind an address as people write it; BadRequest says what is wrong with it."""
    refused: BadRequest | None = None
    try:
        for rules in KNOWN.values():
            if (address := rules.canonical(written)) is not None:
                return Account(rules.kind, address)
    except BadRequest as error:
        refused = error
    for rules in addresses.installed():
        if (address := rules.canonical(written)) is not None:
            return Account(rules.kind, address)
    raise refused or BadRequest(
        "address",
        f"{shown(written)} is not an address of any kind known here",
        remedy=", ".join(f"{rules.name} {rules.form}" for rules in addresses.every()),
    )


def evm(written: str) -> str:
    """The canonical form of an EVM address; anything else is a BadRequest."""
    return EVM.address(written)


class Asset(NamedTuple):
    """CAIP-19: `chain` is CAIP-2, `kind` the namespace (slip44, erc20, erc721, …), `reference` the contract.

    A tuple, because assets are keys of every dictionary that is looked into for each holding.
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
        """Whether this is the coin its chain pays fees in."""
        return self.kind == "slip44"

    @property
    def is_collectible(self) -> bool:
        """Whether it is one thing of a collection, which is counted and not measured."""
        return bool(self.token_id)

    @property
    def collection(self) -> Asset:
        """What a collectible is one of; any other asset itself."""
        return self._replace(token_id="") if self.token_id else self

    @property
    def shown_contract(self) -> str:
        """The contract as answers show it: that of the native coin is the zero address. Only documents use this."""
        return SHOWN_NATIVE if self.is_native else self.reference


def asset(written: str) -> Asset:
    """An asset from its CAIP-19 text; EVM contracts are lower-cased."""
    match = _ASSET.match(written)
    if not match:
        raise BadRequest(
            "asset", f"{shown(written)} is not a CAIP-19 asset", remedy="for example eip155:1/erc20:0xa0b8…"
        )
    chain, kind, reference, token_id = match.groups()
    if chain.startswith("eip155:") and kind != "slip44":
        reference = evm(reference)
    return Asset(chain, kind, reference, token_id or "")
