"""Secrets and signatures of webhooks, as standardwebhooks.com defines them."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

PURPOSE: Final = "alerts"  # of the key from which secrets are derived: the database has none of them
PREFIX: Final = "whsec_"


def secret_of(key: bytes, target_id: str, number: int) -> bytes:
    """Return a secret of a target: 32 bytes derived from the key of the state store."""
    return hmac.digest(key, f"{target_id}:{number}".encode(), "sha256")


def as_text(secret: bytes) -> str:
    """Return a secret as receivers configure it."""
    return PREFIX + base64.b64encode(secret).decode()


def headers(secrets: Sequence[bytes], event_id: str, at_s: int, body: bytes) -> dict[str, str]:
    """Return the headers of a webhook, with one signature for each valid secret."""
    content = f"{event_id}.{at_s}.".encode() + body
    signatures = (base64.b64encode(hmac.new(each, content, sha256).digest()).decode() for each in secrets)
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": " ".join(f"v1,{each}" for each in signatures),
    }
