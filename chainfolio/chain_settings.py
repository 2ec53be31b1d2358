"""The settings of one chain that all kinds share. Each kind adds its own keys in a subclass."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, TypeVar
from urllib.parse import urlsplit

import msgspec

from chainfolio.errors import BadSettings

DEFAULT_KIND = "evm"
ENDPOINT_WORDS = frozenset({"http", "https", "url", "urls", "endpoint", "endpoints", "node", "nodes"})
EVERYTHING, ACCOUNTS = "chain", "accounts"  # values of `index`
SettingsT = TypeVar("SettingsT", bound="ChainSettings")


def doc(description: str) -> msgspec.Meta:
    """Describe a key: the settings reference and `chainfolio init` show the description."""
    return msgspec.Meta(description=description)


class ChainSettings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One chain, by its key: which kind it is of, from which block it is indexed, and how much of it.

    A kind of chain adds its own keys in a subclass, and may say which of them hold endpoints (`ENDPOINTS`, one key),
    addresses that may have a secret in them (`SECRETS`) and paths (`PATHS`).
    """

    ENDPOINTS: ClassVar[str] = ""
    SECRETS: ClassVar[tuple[str, ...]] = ()
    PATHS: ClassVar[tuple[str, ...]] = ()

    adapter: Annotated[str, doc("the kind of chain")] = DEFAULT_KIND
    start_block: Annotated[int, doc("first block to index")] = 0
    reorg_depth: Annotated[
        int, doc("so many final blocks may be forgotten without you, when the chain changed them")
    ] = 1024
    index: Annotated[
        str, doc('`"chain"`: everything of it; `"accounts"`: only the histories of accounts that are watched')
    ] = EVERYTHING
    datasets: Annotated[list[str], doc("what to index; empty: every usual dataset")] = []
    contracts: Annotated[list[str], doc("index only these token contracts; empty: all")] = []
    registry_lists: Annotated[
        int, doc("where transfers are not indexed, tokens that so many public lists name are looked for; 0: none")
    ] = 2
    span: Annotated[int, doc("blocks in one request to index")] = 100
    concurrency: Annotated[int, doc("requests on their way at once")] = 2
    worker_processes: Annotated[int, doc("processes of `chainfolio index` that work on this chain side by side")] = 1
    at_block: Annotated[bool, doc("whether `/portfolio/at-block` serves this chain; `ethereum` and `monad` always")] = (
        False
    )

    def __repr__(self) -> str:
        """Return all values, with secrets masked."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        for name in self.SECRETS:
            value = values[name]
            values[name] = [masked(url) for url in value] if isinstance(value, list) else masked(value)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    def check(self, section: str) -> None:
        """Check every value; each kind also checks its own keys.

        Raises:
            BadSettings: names the first invalid value.
        """
        if self.span < 1 or self.concurrency < 1 or self.worker_processes < 1:
            raise BadSettings(section, "span, concurrency and worker_processes are at least 1")
        if self.index not in (EVERYTHING, ACCOUNTS):
            raise BadSettings(f"{section}.index", f'`{self.index}` is neither "{EVERYTHING}" nor "{ACCOUNTS}"')
        if self.start_block < 0 or self.reorg_depth < 0 or self.registry_lists < 0:
            raise BadSettings(section, "start_block, reorg_depth and registry_lists are at least 0")

    @property
    def endpoints(self) -> list[str]:
        """The URLs of its endpoints; empty if its kind has no such key."""
        return list(getattr(self, self.ENDPOINTS)) if self.ENDPOINTS else []

    @property
    def chosen(self) -> list[str]:
        """The canonical contracts to which its datasets are limited; empty for all."""
        return self.contracts

    def at(self: SettingsT, endpoint: str) -> SettingsT:
        """Return the settings with one endpoint only."""
        return msgspec.structs.replace(self, **{self.ENDPOINTS: [endpoint]})

    def share(self: SettingsT, processes: int) -> SettingsT:
        """Return the settings of one of several processes: its part of the concurrent requests."""
        return msgspec.structs.replace(self, concurrency=max(1, self.concurrency // processes))

    def with_absolute_paths(self: SettingsT, folder: Path) -> SettingsT:
        """Return the settings with relative paths resolved against a folder."""
        paths = {name: getattr(self, name) for name in self.PATHS}
        return msgspec.structs.replace(
            self, **{name: str(folder / path) for name, path in paths.items() if path and "://" not in path}
        )


def decode_settings(kind: type[ChainSettings], table: Mapping[str, object], source: str, section: str) -> ChainSettings:
    """Decode one `[chains.KEY]` with the type of its kind.

    Raises:
        BadSettings: names file and section, with the nearest key for an unknown one.
    """
    try:
        return msgspec.convert(table, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadSettings(source, explain_error(str(error), partial(_nearest, kind), section)) from None


def list_keys(kind: type[msgspec.Struct]) -> set[str]:
    """Return the keys of a type whose values are lists; in a variable they are separated by commas."""
    return {field.name for field in msgspec.structs.fields(kind) if "list[" in str(field.type)}


def explain_error(text: str, meant: Callable[[str, str], str], section: str = "") -> str:
    """Rewrite a message of msgspec for users.

    It names an unknown key with what may be meant, and other values with their place.

    Args:
        text: The message.
        meant: Gets an unknown key and its section (empty: at the top of the file); returns a suggestion or "".
        section: Where the key is, if the message does not say it.
    """
    if "unknown field" not in text:
        return text.replace("Object", "Settings").replace("`$.", f"`{section}." if section else "`$.")
    key = text.split("`")[1]
    path = section or (text.split(" - at ")[-1].strip("`").replace("$", "").lstrip(".") if " - at " in text else "")
    hint = meant(key, path)
    return f"unknown key `{key}`" + (f" in [{path}]" if path else "") + (f"; did you mean {hint}?" if hint else "")


def _nearest(kind: type[ChainSettings], key: str, section: str) -> str:
    """Return the key of a kind of chain that resembles an unknown one; an empty text if there is none."""
    if key in ENDPOINT_WORDS and kind.ENDPOINTS:
        return f"`{kind.ENDPOINTS}`"
    matches = difflib.get_close_matches(key, kind.__struct_fields__, 1)
    return f"`{matches[0]}`" if matches else ""


def masked(url: str) -> str:
    """Return a URL that is safe to show: scheme, host and port only, because the rest may be a key.

    A URL without a host (`sqlite:///…`) is shown whole, unless it has `@` or `?`. The host is hidden too if an `@`
    follows it. Text that does not begin with a scheme is hidden whole. An empty URL stays empty.
    """
    scheme, mark, tail = url.partition("://")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return url and "…"
    authority = re.split(r"[/?#]", tail)[0]
    host = authority.rpartition("@")[2]
    if mark and "@" in tail[len(authority) :]:  # what looks like the host may be a part of the password
        return f"{scheme}://…"
    if mark and not host:  # a path of this machine; or a socket, before which a password may stand
        return f"{scheme}://…" if "@" in tail or "?" in tail else url
    return f"{scheme}://{host}/…" if host else url and "…"


def is_http(url: str) -> bool:
    """Return True if the text is a valid HTTP URL."""
    try:
        parts = urlsplit(url)
        is_complete = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        return is_complete and url.isprintable() and " " not in url
    except ValueError:  # a port that is none, brackets that do not close
        return False
