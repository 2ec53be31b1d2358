"""The settings of one chain: what all kinds share. Each kind adds its own keys in a type of its own."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

import msgspec

from chainfolio.errors import BadSettings

DEFAULT_KIND = "evm"
ENDPOINT_WORDS = frozenset({"http", "https", "url", "urls", "endpoint", "endpoints", "node", "nodes"})
EVERYTHING, ACCOUNTS = "chain", "accounts"  # what is indexed of a chain
SettingsT = TypeVar("SettingsT", bound="ChainSettings")


def doc(description: str) -> msgspec.Meta:
    """What a key means: the settings reference and `chainfolio init` show it."""
    return msgspec.Meta(description=description)


class ChainSettings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One chain, by its key: which kind it is of, from which block it is indexed, and how much of it.

    A kind of chain adds its own keys in a subclass, and may say which of them hold endpoints (`ENDPOINTS`, one key),
    addresses that may have a secret in them (`SECRETS`) and paths (`PATHS`). `RENAMED` has keys of earlier releases.
    """

    ENDPOINTS: ClassVar[str] = ""
    SECRETS: ClassVar[tuple[str, ...]] = ()
    PATHS: ClassVar[tuple[str, ...]] = ()
    RENAMED: ClassVar[Mapping[str, str]] = {"lanes": "worker_processes", "heal_depth": "reorg_depth"}

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
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        for name in self.SECRETS:
            shown[name] = [masked(url) for url in shown[name]] if isinstance(shown[name], list) else masked(shown[name])
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def check(self, section: str) -> None:
        """Whether every value can be meant; BadSettings names the first that cannot. A kind checks its own, too."""
        if self.span < 1 or self.concurrency < 1 or self.worker_processes < 1:
            raise BadSettings(section, "span, concurrency and worker_processes are at least 1")
        if self.index not in (EVERYTHING, ACCOUNTS):
            raise BadSettings(f"{section}.index", f'`{self.index}` is neither "{EVERYTHING}" nor "{ACCOUNTS}"')
        if self.start_block < 0 or self.reorg_depth < 0 or self.registry_lists < 0:
            raise BadSettings(section, "start_block, reorg_depth and registry_lists are at least 0")

    @property
    def endpoints(self) -> list[str]:
        """The addresses of its endpoints; none where its kind has no such key."""
        return list(getattr(self, self.ENDPOINTS)) if self.ENDPOINTS else []

    @property
    def chosen(self) -> list[str]:
        """What its datasets are indexed of alone, in one form each; none for everything."""
        return self.contracts

    def at(self: SettingsT, endpoint: str) -> SettingsT:
        """The same chain at one endpoint only, whoever serves it."""
        return msgspec.structs.replace(self, **{self.ENDPOINTS: [endpoint]})

    def share(self: SettingsT, processes: int) -> SettingsT:
        """One process's part of what the nodes are asked at once."""
        return msgspec.structs.replace(self, concurrency=max(1, self.concurrency // processes))

    def placed(self: SettingsT, folder: Path) -> SettingsT:
        """The same with every relative path taken from a folder."""
        paths = {name: getattr(self, name) for name in self.PATHS}
        return msgspec.structs.replace(
            self, **{name: str(folder / path) for name, path in paths.items() if path and "://" not in path}
        )


def decoded(kind: type[ChainSettings], table: Mapping[str, Any], source: str, section: str) -> ChainSettings:
    """The settings in one `[chains.KEY]`, by the type of its kind; BadSettings names the file and the section, with the
    nearest key for an unknown one."""
    try:
        return msgspec.convert(table, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadSettings(source, explained(str(error), partial(_nearest, kind), kind.RENAMED, section)) from None


def lists_of(kind: type[msgspec.Struct]) -> set[str]:
    """The keys of a type whose values are lists: in a variable they are written with commas."""
    return {field.name for field in msgspec.structs.fields(kind) if "list[" in str(field.type)}


def explained(
    text: str, meant: Callable[[str, str], str], renamed: Mapping[str, str] | None = None, section: str = ""
) -> str:
    """msgspec's message in a user's words. `meant` is asked for an unknown key and its section (empty: at the top of
    the file) and returns what was probably meant, as it is shown, or an empty text."""
    if "unknown field" not in text:
        return text.replace("Object", "Settings").replace("`$.", f"`{section}." if section else "`$.")
    key = text.split("`")[1]
    if renamed and key in renamed:
        return f"the key `{key}` is called `{renamed[key]}` now"
    place = section or (text.split(" - at ")[-1].strip("`").replace("$", "").lstrip(".") if " - at " in text else "")
    hint = meant(key, place)
    return f"unknown key `{key}`" + (f" in [{place}]" if place else "") + (f"; did you mean {hint}?" if hint else "")


def _nearest(kind: type[ChainSettings], key: str, section: str) -> str:
    """The key of a kind of chain that an unknown one probably stands for; empty if there is none."""
    if key in ENDPOINT_WORDS and kind.ENDPOINTS:
        return f"`{kind.ENDPOINTS}`"
    near = difflib.get_close_matches(key, kind.__struct_fields__, 1)
    return f"`{near[0]}`" if near else ""


def masked(url: str) -> str:
    """An address as it may be shown: of what lies on another host only scheme and host, for the rest may be a key."""
    scheme, mark, rest = url.partition("://")
    host = re.split(r"[/?#]", rest)[0].rpartition("@")[2]
    if mark and not host:  # a path of this machine; or a socket, before which a password may stand
        return f"{scheme}://…" if "@" in rest or "?" in rest else url
    return f"{scheme}://{host}/…" if host else url and "…"


def is_http(url: str) -> bool:
    """Whether a text is an address that can be asked over HTTP."""
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        return whole and url.isprintable() and " " not in url
    except ValueError:  # a port that is none, brackets that do not close
        return False
