"""API keys as text and as what is kept of them, and the secret under which they are kept."""

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
from storage.disk import sync

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
    """A new key: prefix, 30 random base62 characters (178 bits), checksum."""
    body = PREFIX + "".join(random.choices(BASE62, k=SECRET_LENGTH))
    return body + _checksum(body)


def well_formed(token: str) -> bool:
    """Whether a text can be a key: its shape and its checksum, nothing secret."""
    body, checksum = token[:-CHECKSUM_LENGTH], token[-CHECKSUM_LENGTH:]
    return (
        token.isascii()
        and token.startswith(PREFIX)
        and len(token) == len(PREFIX) + SECRET_LENGTH + CHECKSUM_LENGTH
        and checksum == _checksum(body)
    )


def _checksum(body: str) -> str:
    value, digits = zlib.crc32(body.encode()), ""
    for _ in range(CHECKSUM_LENGTH):
        value, digit = divmod(value, len(BASE62))
        digits = BASE62[digit] + digits
    return digits


def digest(pepper: bytes, token: str) -> bytes:
    """What is kept of a key: neither a stolen database nor a stolen pepper alone gives anybody the key."""
    return hmac.digest(pepper, token.encode(), hashlib.sha256)


def pepper(path: Path, *, accounts: bool) -> bytes:
    """The secret under which keys are hashed, from a file that only its owner can read; made where there is none.

    Without it all keys are worthless, so it belongs into the backup, apart from the database. Where there are
    `accounts` already none is made: StoreError.
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
            # A link, not a rename: of two processes that start at once, the second must take the first one's.
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
