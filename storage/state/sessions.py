"""Sessions of the dashboard: keys that expire, made from another key or a link that works once."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from chainfolio.storage.state import accounts, schema
from chainfolio.storage.state.accounts import SESSION_NAME, Key, Principal, is_session
from chainfolio.storage.state.database import Statement, Transaction, argument, literal

LINK_NAME: Final = "dashboard link"
LINK_US: Final = 10 * 60 * 1_000_000
SESSION_US: Final = 12 * 3600 * 1_000_000
MINUTE_US: Final = 60 * 1_000_000
MAX_SESSIONS: Final = 20  # of one account; the next one ends the oldest
MAX_PER_MINUTE: Final = 5  # new ones of one account
KEEP_US: Final = 30 * 24 * 3600 * 1_000_000  # how long `key list` shows a session or link after its end
SLICE: Final = 500

_KEYS = schema.keys
_CHILD: Final = f"{SESSION_NAME} of "
_ENDED = Statement(
    sa.select(_KEYS.c.id)
    .where(
        sa.or_(
            _KEYS.c.name.in_([literal(SESSION_NAME), literal(LINK_NAME)]),
            sa.func.substr(_KEYS.c.name, literal(1), literal(len(_CHILD))) == literal(_CHILD),
        ),
        sa.or_(_KEYS.c.expires_us < argument("before"), _KEYS.c.revoked_us < argument("before")),
    )
    .suffix_with(sa.text("LIMIT :most"))
)
_DROP = Statement(_KEYS.delete().where(_KEYS.c.id == argument("key_id")))


class TooManySessions(Exception):
    """An account has begun its sessions of this minute; the next one may begin in `wait_s` seconds."""

    def __init__(self, wait_s: int) -> None:
        super().__init__(f"at most {MAX_PER_MINUTE} sessions of an account begin in a minute")
        self.wait_s = wait_s


def key_for_session(tx: Transaction, principal: Principal, now_us: int, *, needs_link: bool) -> Key | None:
    """Return the principal's key if it may begin a session; None if not.

    The key of a session may not begin another one. Authentication has checked that the key is valid.

    Args:
        needs_link: Only the key of a dashboard link may begin a session.

    Raises:
        TooManySessions: The account began `MAX_PER_MINUTE` sessions in the last minute. It has the wait in seconds.
    """
    keys = accounts.keys(tx, principal.account_id)
    key = next(key for key in keys if key.id == principal.key_id)
    if is_session(key.name) or (needs_link and key.name != LINK_NAME):
        return None
    # Not those far ahead: after the clock was set back, they would prevent every login until it has caught up.
    recent = [each.created_us for each in keys if is_session(each.name) and abs(now_us - each.created_us) < MINUTE_US]
    if len(recent) >= MAX_PER_MINUTE:
        left_us = recent[-MAX_PER_MINUTE] + MINUTE_US - now_us
        raise TooManySessions(max(1, -(-left_us // 1_000_000)))
    return key


def begin(tx: Transaction, parent: Key, id: str, hint: str, hash: bytes, now_us: int) -> bool:
    """Add the key of a session that begins with `parent`, and end the oldest sessions beyond the maximum.

    A link is revoked by this; return False if another request was faster. A session ends before any other parent does.
    """
    name, end_us = SESSION_NAME, now_us + SESSION_US
    if parent.name == LINK_NAME:
        if not accounts.revoke_key(tx, parent.id, now_us):
            return False
    else:
        name, end_us = _name_of_child(parent.id), min(end_us, parent.expires_us or end_us)
    valid = [key.id for key in accounts.keys(tx, parent.account_id) if _is_open_session(key, now_us)]
    for old in valid[: max(0, len(valid) + 1 - MAX_SESSIONS)]:
        accounts.revoke_key(tx, old, now_us)
    accounts.add_key(tx, Key(id, parent.account_id, name, hint, now_us, end_us, None), hash)
    return True


def revoke_with_sessions(tx: Transaction, key_id: str, now_us: int) -> bool:
    """Revoke a key and the sessions that began with it. Return False without such a valid key."""
    owner = accounts.owner_of(tx, key_id)
    if owner is None:
        return False
    accounts.lock(tx, owner)  # a session that begins now waits, and then finds its key revoked
    if not accounts.revoke_key(tx, key_id, now_us):
        return False
    for key in accounts.keys(tx, owner):
        if key.name == _name_of_child(key_id) and _is_open_session(key, now_us):
            accounts.revoke_key(tx, key.id, now_us)
    return True


def drop_ended(tx: Transaction, now_us: int) -> bool:
    """Delete some sessions and links that ended long ago; return True if there may be more."""
    ended = tx.rows(_ENDED, before=now_us - KEEP_US, most=SLICE)
    tx.run_many(_DROP, ended)
    return len(ended) == SLICE


def is_session_key(tx: Transaction, principal: Principal) -> bool:
    """Return True if the key of a principal is that of a session."""
    return any(key.id == principal.key_id and is_session(key.name) for key in accounts.keys(tx, principal.account_id))


def _name_of_child(key_id: str) -> str:
    return f"{_CHILD}{key_id}"


def _is_open_session(key: Key, now_us: int) -> bool:
    return is_session(key.name) and key.revoked_us is None and (key.expires_us or 0) > now_us
