"""Sessions of the dashboard: keys that expire, made from another key or a link that works once."""

from __future__ import annotations

from typing import Final

from chainfolio.storage.state import accounts
from chainfolio.storage.state.accounts import Key
from chainfolio.storage.state.database import Transaction

LINK_NAME: Final = "dashboard link"
SESSION_NAME: Final = "dashboard session"
LINK_US: Final = 10 * 60 * 1_000_000
SESSION_US: Final = 12 * 3600 * 1_000_000
MAX_SESSIONS: Final = 20  # of one account; the next one ends the oldest


def is_exchangeable(tx: Transaction, account_id: str, key_id: str, now_us: int) -> bool:
    """Return True if a valid key may begin a session. A link is revoked by this, a session never may."""
    key = next(key for key in accounts.keys(tx, account_id) if key.id == key_id)
    if key.name == LINK_NAME:
        return accounts.revoke_key(tx, key_id, now_us)  # False if another request was faster
    return key.name != SESSION_NAME


def add(tx: Transaction, session: Key, hash: bytes) -> None:
    """Add the key of a session, and revoke the oldest ones of the account beyond the maximum."""
    now_us = session.created_us
    valid = [
        key.id
        for key in accounts.keys(tx, session.account_id)
        if key.name == SESSION_NAME and key.revoked_us is None and (key.expires_us or 0) > now_us
    ]
    for id in valid[: max(0, len(valid) + 1 - MAX_SESSIONS)]:
        accounts.revoke_key(tx, id, now_us)
    accounts.add_key(tx, session, hash)


def is_session(tx: Transaction, account_id: str, key_id: str) -> bool:
    """Return True if a key of the account is that of a session."""
    return any(key.id == key_id and key.name == SESSION_NAME for key in accounts.keys(tx, account_id))
