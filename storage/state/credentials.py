"""API keys, their hashes, and the secret under which they are hashed."""

from __future__ import annotations

import hashlib
import hmac
import os
import random
import threading
import zlib
from pathlib import Path
from typing import Final

from chainfolio.errors import StoreError
from chainfolio.storage.disk import sync

BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
PREFIX: Final = "cf_live_"
SECRET_LENGTH: Final = 30
CHECKSUM_LENGTH: Final = 6
PEPPER_BYTES: Final = 32
LOST: Final = (
    "put it back from the backup; where there is none no key works again: put 32 random bytes there "
    "(head -c 32 /dev/urandom), then: chainfolio key accept-secret, and make new keys: chainfolio key create"
)

OTHER: Final = (
    "put the right one back from the backup, or correct `data` or `state.url`; where the right one is lost no key "
    "works again: chainfolio key accept-secret, then make new keys: chainfolio key create"
)


def make_key(random: random.Random) -> str:
    """Return a new key: prefix, 30 random base62 characters (178 bits), checksum."""
    body = PREFIX + "".join(random.choices(BASE62, k=SECRET_LENGTH))
    return body + _checksum(body)


def well_formed(token: str) -> bool:
    """Return True if a text has the shape and the checksum of a key. No secret is needed."""
    body, checksum = token[:-CHECKSUM_LENGTH], token[-CHECKSUM_LENGTH:]
    return (
        token.isascii()
        and token.startswith(PREFIX)
        and len(token) == len(PREFIX) + SECRET_LENGTH + CHECKSUM_LENGTH
        and checksum == _checksum(body)
    )


def _checksum(body: str) -> str:
    """Return the checksum of a key's body, in base 62."""
    value, digits = zlib.crc32(body.encode()), ""
    for _ in range(CHECKSUM_LENGTH):
        value, digit = divmod(value, len(BASE62))
        digits = BASE62[digit] + digits
    return digits


def digest(pepper: bytes, token: str) -> bytes:
    """Return the HMAC of a key under the pepper, which is stored instead of the key."""
    return hmac.digest(pepper, token.encode(), hashlib.sha256)


def pepper(path: Path, *, accounts: bool) -> bytes:
    """Read the secret under which keys are hashed, and create it if it is missing.

    Only its owner can read the file. All keys stop working without it: back it up, apart from the database.

    Args:
        accounts: The store has accounts, so a missing file is an error.

    Raises:
        StoreError: The file is missing although there are accounts, or is damaged.
    """
    if accounts and not path.exists():
        raise StoreError("state", f"there are accounts, and {path}, the secret of their keys, is missing", remedy=LOST)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(os.urandom(PEPPER_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            # A link, not a rename: if two processes start at once, the second must not replace the file of the first.
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        sync(path.parent)
    secret = path.read_bytes()
    if len(secret) != PEPPER_BYTES:
        raise StoreError("state", f"{path} is damaged: {len(secret)} bytes", remedy="restore it from a backup")
    return secret
