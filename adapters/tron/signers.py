"""Recover the signers of transactions, and compare them with the owners and their permitted keys.

An account may let other keys sign for it. Nodes show the keys that are permitted now: one that was permitted when a
transaction was made may have been removed since.
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

from chainfolio.adapters.tron.addresses import ZERO, encode_address, hex_address, parse_address
from chainfolio.adapters.tron.forms import Transaction, Wallet
from chainfolio.adapters.tron.node import TronNode

SIGNATURE_SIZE: Final = 65
ETHEREUM_OFFSET: Final = 27  # Ethereum adds it to the recovery id
COMPRESSED_OFFSET: Final = 4  # added to the recovery id for compressed keys, which have the same address
SIGNATURES_PER_TURN: Final = 500  # recovered before other tasks run: 17 milliseconds
MAX_ACCOUNTS: Final = 100_000  # whose permitted keys are cached
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
        """Return True if the signers of a transaction are to be recovered.

        Always in the mode `all`, never in `off`. In the mode `sample`: if it is watched, else by chance, so that the
        result may differ from call to call.

        Args:
            tx_hash: The transaction.
            watched: Hashes of the transactions that touch watched accounts.
        """
        if self.mode != "sample":
            return self.mode == "all"
        return tx_hash in watched or self.random.random() < SAMPLED_SHARE


async def recover_all(transactions: Sequence[Transaction]) -> list[Signers]:
    """Return the signers of each transaction, in order; yield to other tasks every SIGNATURES_PER_TURN."""
    recovered: list[Signers] = []
    signature_count = 0
    for transaction in transactions:
        recovered.append(recover_signers(transaction))
        signature_count += len(transaction.signature)
        if signature_count >= SIGNATURES_PER_TURN:
            await asyncio.sleep(0)
            signature_count = 0
    return recovered


def recover_signers(transaction: Transaction) -> Signers:
    """Return the signers in the order of the signatures; None for a signature that gives no key."""
    tx_hash = bytes.fromhex(transaction.txID)
    return tuple(_recover_signer(tx_hash, bytes.fromhex(each)) for each in transaction.signature)


def _recover_signer(tx_hash: bytes, signature: bytes) -> str | None:
    """Return the address that made a signature; None for a malformed one."""
    if len(signature) < SIGNATURE_SIZE:
        return None
    recovery_id = signature[64]
    recovery_id -= ETHEREUM_OFFSET if recovery_id >= ETHEREUM_OFFSET else 0
    recovery_id -= COMPRESSED_OFFSET if recovery_id >= COMPRESSED_OFFSET else 0
    if recovery_id >= COMPRESSED_OFFSET:
        return None
    try:
        key = PublicKey.from_signature_and_message(signature[:64] + bytes((recovery_id,)), tx_hash, hasher=None)
    except ValueError:
        return None
    return _key_address(key.format(compressed=False))


@lru_cache(65_536)
def _key_address(key: bytes) -> str:
    return encode_address(keccak_256(key[1:]).digest()[12:])


class SignedTransaction(NamedTuple):
    """A transaction of an account in a block, and its signers."""

    owner: str
    height: int
    tx_hash: str
    signers: Signers

    @property
    def other_signers(self) -> set[str | None]:
        """The signers without the owner; None stands for signatures that give no key."""
        return {*self.signers} - {self.owner}

    @property
    def reason(self) -> str:
        """The reason why the transaction is unexplained, as a sentence for people."""
        if None in self.signers:
            return f"transaction {self.tx_hash} has a signature of which no key comes"
        by = ", ".join(sorted(str(each) for each in self.other_signers)) or "no key"
        return f"transaction {self.tx_hash} was signed by {by}, whom the account does not name now"


class PermittedKeys(NamedTuple):
    """The addresses that may sign for an account, read at this height or later."""

    addresses: frozenset[str]
    height: int


class Permissions:
    """Caches the permitted keys of accounts. They are read again if another key signs in a newer block."""

    def __init__(self) -> None:
        self._permitted: dict[str, PermittedKeys] = {}

    async def filter_unauthorized(
        self, endpoint: TronNode, transactions: Sequence[SignedTransaction]
    ) -> list[SignedTransaction]:
        """Return the transactions, by height, that were signed neither by their owners nor by permitted keys.

        Transactions without an owner (of the zero address) have no signers and are left out.

        Raises:
            SourceError: The permitted keys of an account could not be read.
        """
        pending = sorted((each for each in transactions if each.owner != ZERO), key=lambda each: each.height)
        newest = {each.owner: each.height for each in pending if self._is_outdated(each)}
        permitted = await asyncio.gather(*(_read_permitted(endpoint, owner) for owner in newest))
        for (owner, height), addresses in zip(newest.items(), permitted, strict=True):
            self._permitted.pop(owner, None)
            self._permitted[owner] = PermittedKeys(addresses, max(height, endpoint.health.height or 0))
        unauthorized = [each for each in pending if not self._is_authorized(each)]
        while len(self._permitted) > MAX_ACCOUNTS:
            del self._permitted[next(iter(self._permitted))]
        return unauthorized

    def _is_outdated(self, transaction: SignedTransaction) -> bool:
        """Return True if newer permitted keys of the owner could authorize the signers."""
        permitted = self._permitted.get(transaction.owner)
        return (
            None not in transaction.other_signers
            and not self._is_authorized(transaction)
            and (permitted is None or permitted.height < transaction.height)
        )

    def _is_authorized(self, transaction: SignedTransaction) -> bool:
        permitted = self._permitted.get(transaction.owner)
        addresses = permitted.addresses if permitted else frozenset()
        return bool(transaction.signers) and transaction.other_signers <= addresses


async def _read_permitted(endpoint: TronNode, owner: str) -> frozenset[str]:
    """Return the addresses that may sign for an account now; empty if its permissions were never changed."""
    wallet = await endpoint.read_typed("/wallet/getaccount", {"address": hex_address(owner)}, Wallet)
    wallet.check(endpoint.name, owner)
    permissions = [*wallet.active_permission, *([wallet.owner_permission] if wallet.owner_permission else [])]
    return frozenset(parse_address(endpoint.name, key.address) for each in permissions for key in each.keys)
