"""Decode names and attributes of collectibles from untrusted JSON, with bounds on sizes and texts.

The JSON is that of the metadata extensions of ERC-721 and ERC-1155, which Metaplex uses too. A contract returns it
inside a `data:` URI, or returns the address of a file; the URI is never opened here.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from chainfolio.printable import MAX_NAME, clean

MAX_URI: Final = 65_536  # characters of a `data:` URI
MAX_JSON: Final = 262_144  # bytes
MAX_ATTRIBUTES: Final = 50
MAX_ATTRIBUTE: Final = 128  # characters of a name or a value
MAX_ADDRESS: Final = 2_000  # characters of a URI of another scheme
MAX_IDS: Final = 16  # places of a URI that its number is written to
MAX_SHOWN_URI: Final = 256
NO_URI: Final = "its contract gives it no metadata"
_DECODER: Final = msgspec.json.Decoder(float_hook=str)  # floats would change numbers


class MetadataError(ValueError):
    """Metadata that cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class NftMetadata:
    """Metadata of one collectible.

    Attributes:
        uri: Where they are, shortened; empty if they are in the `data:` URI itself, or there are none.
        name: Empty if they have none.
        attributes: Names and values.
        omitted_count: Attributes above `MAX_ATTRIBUTES`, or whose values are no single text, number or truth value.
        problem: Why they are not known; empty if they are.
        is_unread: A read failed, so that another try may give them.
    """

    uri: str = ""
    name: str = ""
    attributes: tuple[tuple[str, str], ...] = ()
    omitted_count: int = 0
    problem: str = ""
    is_unread: bool = False


def resolved_uri(uri: str, token_id: str) -> str:
    """Return a URI with `{id}` replaced as ERC-1155 requires: 64 lower-case hexadecimal digits.

    Raises:
        MetadataError: It is too long.
    """
    text = uri.strip()
    limit = MAX_URI if is_data(text) else MAX_ADDRESS
    if len(text) > limit:
        raise MetadataError(f"its URI has {len(text):,} characters, more than {limit:,}")
    return text.replace("{id}", f"{int(token_id):064x}", MAX_IDS) if token_id.isdecimal() else text


def shown_uri(uri: str) -> str:
    """Return a URI as one printable line, shortened."""
    return clean(uri, MAX_SHOWN_URI)


def is_data(uri: str) -> bool:
    """Return True for a `data:` URI."""
    return uri[:5].lower() == "data:"


def read_data(uri: str) -> bytes:
    """Return the content of a `data:` URI (RFC 2397) of a JSON or text type.

    Raises:
        MetadataError: It is too large, of another type, or no valid base64.
    """
    if len(uri) > MAX_URI:
        raise MetadataError(f"its data: URI has {len(uri):,} characters, more than {MAX_URI:,}")
    head, comma, body = uri.partition(",")
    media_type, *parameters = [part.strip().lower() for part in head.removeprefix(head[:5]).split(";")]
    if not comma or not is_json_type(media_type):
        raise MetadataError("its data: URI is not JSON")
    try:
        content = unquote_to_bytes(body)
    except UnicodeEncodeError:
        raise MetadataError("its data: URI is no text") from None
    if "base64" not in parameters:
        return content
    try:
        return base64.b64decode(content + b"=" * (-len(content) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise MetadataError("its data: URI is no valid base64") from None


def is_json_type(media_type: str) -> bool:
    """Return True for the media types of JSON, text and binary data, and for an empty one."""
    return media_type in ("", "application/json", "text/json", "text/plain", "application/octet-stream") or (
        media_type.startswith("application/") and media_type.endswith("+json")
    )


def parse(content: bytes, uri: str = "") -> NftMetadata:
    """Return name and attributes in a JSON file of metadata.

    Args:
        content: The file.
        uri: The address of the file, which the result shows shortened.

    Raises:
        MetadataError: It is too large, no JSON, nested too deeply, or no object.
    """
    if len(content) > MAX_JSON:
        raise MetadataError(f"its metadata have {len(content):,} bytes, more than {MAX_JSON:,}")
    try:
        document = _DECODER.decode(content.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, ValueError, RecursionError, OverflowError):
        raise MetadataError("its metadata are no JSON") from None
    if not isinstance(document, dict):
        raise MetadataError("its metadata are no JSON object")
    pairs, omitted_count = _attributes(document.get("attributes"))
    return NftMetadata(shown_uri(uri), _text(document.get("name"), MAX_NAME) or "", pairs, omitted_count)


def _attributes(value: object) -> tuple[tuple[tuple[str, str], ...], int]:
    """Return names and values of at most MAX_ATTRIBUTES attributes, and the number of the others.

    Attributes are a list of traits or a mapping. Those without a usable name or value are among the others.
    """
    if isinstance(value, dict):
        entries: list[tuple[object, object]] = list(value.items())
    elif isinstance(value, list):
        entries = [_trait(each) for each in value]
    else:
        return (), 0
    texts = [(_text(name, MAX_ATTRIBUTE), _text(each, MAX_ATTRIBUTE)) for name, each in entries[:MAX_ATTRIBUTES]]
    pairs = tuple((name, each) for name, each in texts if name is not None and each)
    return pairs, len(entries) - len(pairs)


def _trait(value: object) -> tuple[object, object]:
    """Return name and value of a trait; a trait without a name is a property, whose name is empty."""
    return (value.get("trait_type", ""), value.get("value")) if isinstance(value, dict) else ("", value)


def _text(value: object, max_length: int) -> str | None:
    """Return a text, number or truth value as printable text; None for anything else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        value = str(value) if value.bit_length() <= 512 else ""
    return clean(value, max_length) if isinstance(value, str) else None
