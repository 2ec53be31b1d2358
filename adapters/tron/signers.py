"""Who signed transactions: recovered from the signatures, and compared with whom each transaction is of.

An account may let others sign for it. So who signed is the owner, or those whom the account names. It tells whom it
names now: who was named when a transaction was made may be named no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Final, NamedTuple

from coincurve import PublicKey
from sha3 import keccak_256

from adapters.tron.addresses import ZERO, in_hex, of_hex, shown
from adapters.tron.forms import Transaction, Wallet
from adapters.tron.node import TronNode

SIZE: Final = 65
EARLIER: Final = 27  # how Ethereum counts what the last byte says
PACKED: Final = 4  # what the last byte is more where a key is written short, which changes nothing here
IN_A_TURN: Final = 500  # signatures of which signers are recovered at once: 17 milliseconds
MOST: Final = 100_000  # accounts of which it is remembered whom they name
SAMPLED_SHARE: Final = 0.01  # of transactions whose signers are recovered if they are sampled
Signers = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class SignatureCheck:
    """Chooses the transactions whose signers are recovered.

    Attributes:
        mode: As the setting `signatures`: `off`, `sample` or `all`.
        random: Makes the sample, so that a node cannot foresee which of its transactions are not checked.
    """

    mode: str
    random: Random

    def selects(self, tx_hash: str, watched: Container[str]) -> bool:
        """Return True if the signers of a transaction are recovered.

        Args:
            tx_hash: The transaction.
            watched: Hashes of the transactions that touch watched accounts.
        """
        if self.mode != "sample":
            return self.mode == "all"
        return tx_hash in watched or self.random.random() < SAMPLED_SHARE


async def signers(done: Sequence[Transaction]) -> list[Signers]:
    """Who signed each of some transactions. Others have their turn in between."""
    found: list[Signers] = []
    in_this_turn = 0
    for each in done:
        found.append(recovered(each))
        in_this_turn += len(each.signature)
        if in_this_turn >= IN_A_TURN:
            await asyncio.sleep(0)
            in_this_turn = 0
    return found


def recovered(done: Transaction) -> Signers:
    """Who signed, in the order of the signatures; None for one of which no key comes."""
    name = bytes.fromhex(done.txID)
    return tuple(_signer(name, bytes.fromhex(each)) for each in done.signature)


def _signer(name: bytes, signature: bytes) -> str | None:
    if len(signature) < SIZE:
        return None
    last = signature[64]
    last -= EARLIER if last >= EARLIER else 0
    last -= PACKED if last >= PACKED else 0
    if last >= PACKED:
        return None
    try:
        key = PublicKey.from_signature_and_message(signature[:64] + bytes((last,)), name, hasher=None)
    except ValueError:
        return None
    return _address(key.format(compressed=False))


@lru_cache(65_536)
def _address(key: bytes) -> str:
    return shown(keccak_256(key[1:]).digest()[12:])


class Signed(NamedTuple):
    """A transaction of an account in a block, and who signed it."""

    owner: str
    height: int
    tx_hash: str
    by: Signers

    @property
    def others(self) -> set[str | None]:
        """Who signed beside the owner."""
        return {*self.by} - {self.owner}

    @property
    def reason(self) -> str:
        """Why it is not explained, as a sentence for people."""
        if None in self.by:
            return f"transaction {self.tx_hash} has a signature of which no key comes"
        by = ", ".join(sorted(str(each) for each in self.others)) or "nobody"
        return f"transaction {self.tx_hash} was signed by {by}, whom the account does not name now"


class Named(NamedTuple):
    """Whom an account names, by its word at this height or later."""

    accounts: frozenset[str]
    height: int


class Permissions:
    """Who may sign for whom. An account is asked once, and again where somebody else signed in a newer block."""

    def __init__(self) -> None:
        self._named: dict[str, Named] = {}

    async def strange(self, endpoint: TronNode, signed: Sequence[Signed]) -> list[Signed]:
        """Those of some transactions that neither their owners signed nor whom these name. What is of nobody, nobody
        signs."""
        doubtful = sorted((each for each in signed if each.owner != ZERO), key=lambda each: each.height)
        newest = {each.owner: each.height for each in doubtful if self._asks(each)}
        told = await asyncio.gather(*(_named(endpoint, owner) for owner in newest))
        for (owner, height), accounts in zip(newest.items(), told, strict=True):
            self._named.pop(owner, None)
            self._named[owner] = Named(accounts, max(height, endpoint.health.height or 0))
        found = [each for each in doubtful if not self._may(each)]
        while len(self._named) > MOST:
            del self._named[next(iter(self._named))]
        return found

    def _asks(self, each: Signed) -> bool:
        """Whether the account has to tell whom it names by now."""
        known = self._named.get(each.owner)
        return None not in each.others and not self._may(each) and (known is None or known.height < each.height)

    def _may(self, each: Signed) -> bool:
        known = self._named.get(each.owner)
        return bool(each.by) and each.others <= (known.accounts if known else frozenset())


async def _named(endpoint: TronNode, owner: str) -> frozenset[str]:
    """Whom an account names now; nobody where it never changed who may sign."""
    wallet = await endpoint.told("/wallet/getaccount", {"address": in_hex(owner)}, Wallet)
    wallet.check(endpoint.name, owner)
    permissions = [*wallet.active_permission, *([wallet.owner_permission] if wallet.owner_permission else [])]
    return frozenset(of_hex(endpoint.name, key.address) for each in permissions for key in each.keys)
