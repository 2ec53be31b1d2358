"""Who signed a transaction: recovered from the signatures, and compared with whom the transaction is of.

An account may give others permission to sign for it. So who signed is the owner, or one of those whom the account
names; several who signed together are said by as many signatures.
"""

from __future__ import annotations

from typing import Final

from adapters.tron.addresses import in_hex, of_hex, shown
from adapters.tron.forms import Transaction, Wallet
from adapters.tron.node import TronNode
from chainfolio.errors import BadAnswer

SIZE: Final = 65
EARLIER: Final = 27  # how Ethereum counts what the last byte says


def signers(source: str, done: Transaction) -> list[str]:
    """Who signed, in the order of the signatures; BadAnswer where one of them is none."""
    return [_signer(source, done.txID, each) for each in done.signature]


def _signer(source: str, tx_hash: str, written: str) -> str:
    from eth_keys.datatypes import Signature
    from eth_keys.exceptions import BadSignature, ValidationError  # type: ignore[attr-defined]

    try:
        data = bytes.fromhex(written)[:SIZE]
        version = data[64] - EARLIER if data[64] >= EARLIER else data[64]
        key = Signature(data[:64] + bytes([version])).recover_public_key_from_msg_hash(bytes.fromhex(tx_hash))
    except (ValueError, IndexError, BadSignature, ValidationError):
        raise BadAnswer(source, f"transaction {tx_hash} has a signature that is none") from None
    return shown(key.to_canonical_address())


async def check(endpoint: TronNode, done: Transaction, owner: str, *, is_first: bool) -> None:
    """Whether a transaction was signed by its owner, or by those who may sign for it by the account's own word now.
    BadAnswer where somebody else did. The first block's nobody signed."""
    if is_first:
        return
    found = signers(endpoint.name, done)
    if not found:
        raise BadAnswer(endpoint.name, f"transaction {done.txID} is not signed")
    if found == [owner]:
        return
    wallet = await endpoint.told("/wallet/getaccount", {"address": in_hex(owner)}, Wallet)
    wallet.check(endpoint.name, owner)
    others = {*found} - {owner} - _permitted(endpoint.name, wallet)
    if others:
        raise BadAnswer(endpoint.name, f"transaction {done.txID} of {owner} was signed by {', '.join(sorted(others))}")


def _permitted(source: str, wallet: Wallet) -> set[str]:
    permissions = [*wallet.active_permission, *([wallet.owner_permission] if wallet.owner_permission else [])]
    return {of_hex(source, key.address) for each in permissions for key in each.keys}
