"""Add a chain to the settings file: the lines of its section, and an atomic write."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from pathlib import Path
from typing import Final

import msgspec

from chainfolio.api.errors import Problem
from chainfolio.api.first_run import Preview
from chainfolio.chain_settings import ACCOUNTS, DEFAULT_KIND, masked
from chainfolio.errors import BadSettings
from chainfolio.kinds import kind_of
from chainfolio.settings_file import load
from chainfolio.storage.disk import sync

HEAD: Final = "# Settings of Chainfolio. `chainfolio init --config OTHER.toml` writes every key with its meaning.\n"
CHANGED: Final = "the settings file has changed since you saw it: look at it again"
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\"\n]+")  # to the end of the text: a key may have any sign
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_WRITABLE: Final = 0o222


def section(key: str, kind: str, rpc: str) -> str:
    """Return the section of a chain with one endpoint, indexed for single accounts only."""
    name = key if _BARE_KEY.fullmatch(key) else _text(key)
    adapter = [] if kind == DEFAULT_KIND else [f"adapter = {_text(kind)}"]
    endpoints = f"{kind_of(kind).settings.ENDPOINTS} = [{_text(rpc)}]"
    return "\n".join([f"[chains.{name}]", *adapter, endpoints, f"index = {_text(ACCOUNTS)}", ""])


def preview(path: Path, key: str, kind: str, rpc: str) -> Preview:
    """Return the file as it is and the lines of the new section, both with masked URLs.

    Raises:
        Problem: 409 if the file cannot be read.
    """
    before = _read(path)
    shown = section(key, kind, rpc if rpc.startswith("env:") else masked(rpc))
    return Preview(str(path.resolve()), _masked(before or ""), shown, _seen(before))


def write(path: Path, key: str, kind: str, rpc: str, seen: str) -> None:
    """Append the section to the file, or create it; only its owner may read it afterwards.

    A reader sees the old file or the new one, never half.

    Args:
        path: The settings file.
        key: The key of the chain.
        kind: The name of its kind.
        rpc: Its endpoint, or `env:NAME`.
        seen: `Preview.seen` of the file that may be replaced.

    Raises:
        Problem: 409 if the file is another one than `seen`, is read-only, or would not be valid with the section.
    """
    path = path.resolve()  # a link stays one
    before = _read(path)
    _check_writable(path)
    if _seen(before) != seen:
        raise Problem(409, CHANGED)
    text = f"{HEAD}\n" if before is None else f"{before.rstrip()}\n\n" if before.strip() else ""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        _create(draft, text + section(key, kind, rpc))
        _check(draft)
        if before is None:
            os.link(draft, path)  # fails if another process has created the file meanwhile
        elif _seen(_read(path)) != seen:
            raise Problem(409, CHANGED)
        else:
            draft.replace(path)
        sync(path.parent)
    except FileExistsError:
        raise Problem(409, CHANGED) from None
    except OSError as error:
        raise _unwritable(path, error.strerror or "it cannot be written") from None
    finally:
        draft.unlink(missing_ok=True)


def _create(path: Path, text: str) -> None:
    """Create a file that only its owner may read, durable on return."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _check(draft: Path) -> None:
    """Raise a 409 Problem if the settings would not be valid."""
    try:
        load(draft)
    except BadSettings as error:
        raise Problem(409, f"the file with these lines would not be valid: {error.reason}") from None


def _check_writable(path: Path) -> None:
    """Raise a 409 Problem for a read-only file or folder, for the superuser too."""
    for each in (path, path.parent):
        if each.exists() and not each.stat().st_mode & _WRITABLE:
            raise _unwritable(path, f"{each} is read-only")


def _unwritable(path: Path, reason: str) -> Problem:
    return Problem(409, f"{path} was not changed: {reason}. Add the lines yourself, and start the server again")


def _read(path: Path) -> str | None:
    """Return the text of the file, None if there is none. Raises a 409 Problem if it cannot be read."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(409, f"{path} cannot be read: {type(error).__name__}") from None


def _seen(text: str | None) -> str:
    return "" if text is None else hashlib.sha256(text.encode()).hexdigest()


def _masked(text: str) -> str:
    """Return the text with every URL shortened to scheme and host."""
    return _URL.sub(lambda match: masked(match[0]), text)


def _text(value: str) -> str:
    """Return a TOML string: JSON has the same escapes."""
    return msgspec.json.encode(value).decode()
