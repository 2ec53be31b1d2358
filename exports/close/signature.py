"""Signatures of files in the format of `ssh-keygen -Y sign`, with keys of Ed25519.

Source: PROTOCOL.sshsig and PROTOCOL.key of OpenSSH. Ed25519 alone, because it gives the same bytes each time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from solders.keypair import Keypair
from solders.pubkey import Pubkey
from solders.signature import Signature

from chainfolio.errors import BadRequest

NAMESPACE: Final = "chainfolio-close"
SIGNATURE_SUFFIX: Final = ".sig"
BY_HAND: Final = f"sign by hand: ssh-keygen -Y sign -f KEY -n {NAMESPACE} PACK/manifest.json"
_MAGIC: Final = b"SSHSIG"
_KEY_MAGIC: Final = b"openssh-key-v1\0"
_KIND: Final = b"ssh-ed25519"
_HASH: Final = b"sha512"
_WIDTH: Final = 70  # columns of a signature's base64, as OpenSSH writes it


def sign(data: bytes, key_file: Path) -> bytes:
    """Return the armored signature of some data by a private key of OpenSSH.

    Raises:
        BadRequest: The file cannot be read, has a passphrase, or holds a key of another type.
    """
    keypair = _private_key(key_file)
    signature = bytes(keypair.sign_message(_signed_part(data)))
    blob = _MAGIC + (1).to_bytes(4, "big")
    blob += b"".join(map(_text, (_public_blob(bytes(keypair.pubkey())), NAMESPACE.encode(), b"", _HASH)))
    return _armored(blob + _text(_text(_KIND) + _text(signature)))


def signer_of(data: bytes, armored: bytes) -> str:
    """Return the public key that signed some data, as `ssh-ed25519 AAAA…`.

    Raises:
        ValueError: The signature is malformed, not in OpenSSH's own form, or not of these data.
    """
    lines = armored.decode("ascii").split("\n")
    try:
        blob = base64.b64decode("".join(lines[1:-2]), validate=True)
    except binascii.Error:
        raise ValueError("the signature is not base64") from None
    if _armored(blob) != armored:
        raise ValueError("the signature is not written as ssh-keygen writes it")
    if blob[:10] != _MAGIC + (1).to_bytes(4, "big"):
        raise ValueError("the signature is of another format")
    key_blob, namespace, reserved, hash_name, signature_blob = _texts(blob[10:], 5)
    kind, key = _texts(key_blob, 2)
    signature_kind, signature = _texts(signature_blob, 2)
    if (namespace, reserved, hash_name) != (NAMESPACE.encode(), b"", _HASH):
        raise ValueError(f"the signature is not one for {NAMESPACE}")
    if (kind, signature_kind, len(key), len(signature)) != (_KIND, _KIND, 32, 64):
        raise ValueError("the signature is not by a key of Ed25519")
    if not Signature.from_bytes(signature).verify(Pubkey(key), _signed_part(data)):
        raise ValueError("the signature is not of these data")
    return _public_text(key)


def public_key_in(text: str) -> str:
    """Return the first public key in a `.pub` file or a file of allowed signers, without its comment.

    Raises:
        BadRequest: The text has no key of Ed25519.
    """
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        for kind, key in pairwise(words):
            if kind == _KIND.decode():
                return f"{kind} {key}"
    raise BadRequest("signer", "the file has no public key of type ssh-ed25519", remedy="name the file KEY.pub")


def fingerprint(public_key: str) -> str:
    """Return the fingerprint of a public key, as `ssh-keygen -l` shows it."""
    blob = base64.b64decode(public_key.split()[1])
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _private_key(path: Path) -> Keypair:
    """Read an OpenSSH private key of Ed25519 without a passphrase; BadRequest for any other file."""
    try:
        lines = path.read_text(encoding="ascii").split()
        blob = base64.b64decode("".join(each for each in lines if not each.startswith("-") and len(each) > 8))
        assert blob.startswith(_KEY_MAGIC)
        cipher, _, _, rest = _texts_and_rest(blob[len(_KEY_MAGIC) :], 3)
        _, private, _ = _texts_and_rest(rest[4:], 2)
        if cipher != b"none":
            raise BadRequest("key", f"{path} has a passphrase", remedy=BY_HAND)
        kind, _, pair = _texts(private[8:], 3)
        assert (kind, len(pair)) == (_KIND, 64)
        return Keypair.from_bytes(pair)
    except OSError as error:
        raise BadRequest("key", f"{path}: {error.strerror}", remedy="ssh-keygen -t ed25519 -f KEY") from None
    except (AssertionError, ValueError):
        remedy = f"ssh-keygen -t ed25519 -f KEY, or {BY_HAND}"
        raise BadRequest("key", f"{path} is no private key of type ssh-ed25519", remedy=remedy) from None


def _signed_part(data: bytes) -> bytes:
    """Return what is signed for some data: the namespace and a hash."""
    return _MAGIC + b"".join(map(_text, (NAMESPACE.encode(), b"", _HASH, hashlib.sha512(data).digest())))


def _public_blob(key: bytes) -> bytes:
    return _text(_KIND) + _text(key)


def _public_text(key: bytes) -> str:
    return f"{_KIND.decode()} {base64.b64encode(_public_blob(key)).decode()}"


def _armored(blob: bytes) -> bytes:
    body = base64.b64encode(blob).decode()
    lines = [body[at : at + _WIDTH] for at in range(0, len(body), _WIDTH)]
    return "\n".join(["-----BEGIN SSH SIGNATURE-----", *lines, "-----END SSH SIGNATURE-----", ""]).encode()


def _text(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _texts(blob: bytes, count: int) -> list[bytes]:
    """Return the first texts of a blob; more may follow."""
    return _texts_and_rest(blob, count)[:-1]


def _texts_and_rest(blob: bytes, count: int) -> list[bytes]:
    """Return the first texts of a blob and what follows; ValueError if it is cut off."""
    return [*_split(blob, count)]


def _split(blob: bytes, count: int) -> Iterator[bytes]:
    for _ in range(count):
        end = 4 + int.from_bytes(blob[:4], "big")
        if len(blob) < end or end < 4:
            raise ValueError("a text is cut off")
        yield blob[4:end]
        blob = blob[end:]
    yield blob
