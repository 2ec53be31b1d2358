"""Settings: one TOML file, read strictly, `CHAINFOLIO_…` variables over it, secrets as `env:NAME`.

An unknown key is an error with a suggestion; nothing starts with an option that was silently ignored.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec

from chainfolio.errors import BadSettings


def doc(description: str) -> msgspec.Meta:
    """What a key means: the settings reference and `chainfolio init` show it."""
    return msgspec.Meta(description=description)


class Server(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Where the API listens, and what it answers at most."""

    host: Annotated[str, doc("address to listen on")] = "127.0.0.1"
    port: Annotated[int, doc("port to listen on; 0: any free one")] = 8080
    workers: Annotated[int, doc("processes that answer on this port")] = 1
    metrics_port: Annotated[int, doc("port for Prometheus; 0: none. The second worker has the next one, and so on")] = 0
    cors: Annotated[bool, doc("whether pages of other hosts may call the API")] = True
    cors_origins: Annotated[
        list[str], doc("the hosts whose pages may, for example `https://app.example.org`; none named: all")
    ] = []
    unpriced: Annotated[
        str, doc("`N/A`, or `zero`: a number that is not known is `0`, for clients that compute with all of them")
    ] = "N/A"
    max_addresses: Annotated[int, doc("addresses in one request at most")] = 10
    max_transactions: Annotated[int, doc("an address with more transactions is answered 404 by `/transactions`")] = (
        100_000
    )
    cache_s: Annotated[int, doc("seconds for which a portfolio is answered again without reading it anew")] = 60


class Limits(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What one key, and one process, may have at a time."""

    per_minute: Annotated[int, doc("requests of one key in any minute, over all routes")] = 360
    at_block_per_minute: Annotated[int, doc("the same for `/portfolio/at-block`, counted separately")] = 100
    waiting_per_key: Annotated[int, doc("requests of one key that wait for fresh data at once, in each process")] = 8
    in_flight: Annotated[int, doc("requests at once in each process; more are answered 503 at once")] = 1000
    in_flight_per_account: Annotated[
        int, doc("requests of one account at once, in each process; more are answered 429")
    ] = 128
    hold_s: Annotated[int, doc("seconds after which credits reserved by a process that died are given back")] = 600
    connections: Annotated[
        int, doc("clients connected to each process; never so many that no file could be opened")
    ] = 2000
    connections_per_address: Annotated[
        int, doc("connections of one IPv4 address or IPv6 /64; raise it behind a proxy")
    ] = 256
    request_s: Annotated[int, doc("seconds within which a request is answered, or refused and not charged")] = 60
    head_s: Annotated[int, doc("seconds within which the head of a request has to arrive")] = 10
    body_s: Annotated[int, doc("seconds within which its body has to arrive")] = 30
    write_s: Annotated[int, doc("seconds for which a client may read nothing of its answer")] = 30


class Store(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A store by its address; empty means beside the others in `data`."""

    url: Annotated[
        str,
        doc("`sqlite:///PATH`, or for `[state]` also `postgresql://USER:PASSWORD@HOST/NAME`; empty: a file in `data`"),
    ] = ""

    def __repr__(self) -> str:
        return f"Store(url={masked(self.url)!r})"


class Lake(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Where finalised data lives."""

    uri: Annotated[str, doc("a folder, or `s3://BUCKET/PREFIX`; empty: `lake` in `data`")] = ""


class Chain(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One chain, by its key: which endpoints, from which block, and how much of it. What the chain is like is in its
    facts (`configs/chains`)."""

    adapter: Annotated[str, doc("the kind of chain")] = "evm"
    facts: Annotated[str, doc("file with the chain's facts; empty: `configs/chains/KEY.toml`")] = ""
    chain_id: Annotated[int, doc("refuse to start where the facts have another chain id; 0: do not compare")] = 0
    rpc: Annotated[list[str], doc("endpoints, each an `http://` or `https://` address or `env:NAME`")] = []
    explorer: Annotated[str, doc("an explorer's API for internal transfers, where no endpoint can trace")] = ""
    start_block: Annotated[int, doc("first block to index")] = 0
    integrity: Annotated[str, doc('how answers are checked: `"off"`, `"bloom"`, `"roots"`')] = "bloom"
    sample: Annotated[int, doc('with `"roots"`: one block in so many is proven whole')] = 100
    quorum: Annotated[int, doc("so many endpoints have to give the same answer")] = 1
    hedge: Annotated[bool, doc("ask a second endpoint where the first is unusually slow")] = True
    reorg_depth: Annotated[
        int, doc("so many final blocks may be forgotten without you, when the chain changed them")
    ] = 1024
    datasets: Annotated[list[str], doc("what to index; empty: every usual dataset")] = []
    contracts: Annotated[list[str], doc("index only these token contracts; empty: all")] = []
    span: Annotated[int, doc("blocks in one request for logs")] = 100
    concurrency: Annotated[int, doc("requests on their way at once")] = 2
    worker_processes: Annotated[int, doc("processes of `chainfolio index` that work on this chain side by side")] = 1
    max_rps: Annotated[int, doc("requests a second to each endpoint at most; 0: no limit")] = 0
    timeout_s: Annotated[int, doc("seconds after which a request to an endpoint is given up")] = 60
    at_block: Annotated[bool, doc("whether `/portfolio/at-block` serves this chain; `ethereum` and `monad` always")] = (
        False
    )

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        shown["rpc"] = [masked(url) for url in self.rpc]
        shown["explorer"] = masked(self.explorer)
        return f"Chain({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class Quotas(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How much an account may keep where the operator gave it no quota of its own."""

    addressbook: Annotated[int, doc("entries in the address book, without a paid plan")] = 50
    addressbook_paid: Annotated[int, doc("entries in the address book, with a paid plan")] = 10_000
    bundles: Annotated[int, doc("bundles")] = 5
    bundle_size: Annotated[int, doc("addresses in one bundle")] = 10


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The whole file. A relative path is one from the folder of the settings file."""

    data: Annotated[str, doc("folder of everything that is stored locally")] = "data"
    server: Server = Server()
    limits: Limits = Limits()
    state: Annotated[Store, doc("accounts, keys, credits and what tenants keep")] = Store()
    tail: Annotated[Store, doc("blocks that are not final yet, and which blocks are indexed")] = Store()
    lake: Lake = Lake()
    chains: dict[str, Chain] = {}
    prices: Annotated[dict[str, str], doc("asset to its price in USD, as text; before every other source")] = {}
    rates: Annotated[dict[str, str], doc("currency to its rate, as text: units per USD, of a coin USD per unit")] = {}
    prices_file: Annotated[str, doc("file with price feeds; empty: `configs/prices.toml`")] = ""
    protocols: Annotated[str, doc("folder with your own protocol files, beside `configs/protocols`")] = ""
    quotas: Quotas = Quotas()
    examples: Annotated[
        dict[str, str], doc("what the documentation page shows in place of its own examples, such as an address")
    ] = {}
    log_level: Annotated[str, doc('`"debug"`, `"info"`, `"warning"`, `"error"` or `"critical"`')] = "info"

    @property
    def data_dir(self) -> Path:
        """Where everything local lies."""
        return Path(self.data)

    @property
    def lake_uri(self) -> str:
        """The lake's address: `lake.uri`, else `<data>/lake`."""
        return self.lake.uri or str(self.data_dir / "lake")

    @property
    def state_url(self) -> str:
        """The state store's address: `state.url`, else SQLite in `<data>/state.db`."""
        return self.state.url or f"sqlite:///{self.data_dir / 'state.db'}"

    @property
    def tail_url(self) -> str:
        """The tail's address: `tail.url`, else SQLite in `<data>/tail.db`."""
        return self.tail.url or f"sqlite:///{self.data_dir / 'tail.db'}"


INTEGRITY = ("off", "bloom", "roots")
ADAPTERS = ("evm",)
LISTS = ("rpc", "datasets", "contracts", "cors_origins")
UNPRICED = ("N/A", "zero")
SECTIONS = ("server", "limits", "state", "tail", "lake", "quotas")
RENAMED = {"witnesses": "quorum", "lanes": "worker_processes", "heal_depth": "reorg_depth"}  # keys of earlier releases
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
# Ours, but no settings: where the file is, what a client's command shows, how tests run.
NOT_SETTINGS = ("CHAINFOLIO_CONFIG", "CHAINFOLIO_KEY", "CHAINFOLIO_LOCALCHAIN_HOME", "CHAINFOLIO_TESTS")


def masked(url: str) -> str:
    """An address as it may be shown: of what lies on another host only scheme and host, for the rest may be a key."""
    scheme, mark, rest = url.partition("://")
    host = re.split(r"[/?#]", rest)[0].rpartition("@")[2]
    if mark and not host:  # a path of this machine; or a socket, before which a password may stand
        return f"{scheme}://…" if "@" in rest or "?" in rest else url
    return f"{scheme}://{host}/…" if host else url and "…"


def load(path: Path | None, env: Mapping[str, str] = os.environ) -> Settings:
    """The settings in a file (none: all defaults) with the environment over them; BadSettings names key and file."""
    tree: dict[str, Any] = {}
    if path is not None:
        try:
            tree = tomllib.loads(path.read_bytes().decode())
        except FileNotFoundError:
            raise BadSettings(
                str(path), "there is no such settings file", remedy="give an existing one with --config"
            ) from None
        except OSError as error:
            raise BadSettings(str(path), f"cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadSettings(str(path), f"not valid TOML: {error}") from None
    overriding = _override(tree, env)
    settings = _typed(_secrets(tree, env, ""), ", ".join([*([str(path)] if path else []), *overriding]))
    check(settings)
    return settings if path is None else _placed(settings, path.parent)


def _placed(settings: Settings, folder: Path) -> Settings:
    """The settings with every relative path taken from a folder: that of the settings file, wherever a command runs."""

    def path(written: str) -> str:
        return str(folder / written) if written and "://" not in written else written

    def store(given: Store) -> Store:
        scheme, mark, file = given.url.partition("sqlite:///")
        return Store(f"{mark}{folder / file}") if mark and not scheme and file else given

    return msgspec.structs.replace(
        settings, data=path(settings.data), prices_file=path(settings.prices_file), protocols=path(settings.protocols),
        state=store(settings.state), tail=store(settings.tail), lake=Lake(path(settings.lake.uri)),
        chains={
            key: msgspec.structs.replace(chain, facts=path(chain.facts)) for key, chain in settings.chains.items()
        },
    )  # fmt: skip


def _override(tree: dict[str, Any], env: Mapping[str, str]) -> list[str]:
    """Which variables were put into the tree. CHAINFOLIO_SERVER_PORT=1 is server.port; a longer path needs `__` between
    its words, as in CHAINFOLIO_CHAINS__ETHEREUM__RPC=a,b."""
    asked = _asked([tree, *(value for name, value in env.items() if name.startswith("CHAINFOLIO_"))])
    names = sorted(name for name in env if name.startswith("CHAINFOLIO_") and name not in {*NOT_SETTINGS, *asked})
    for name in names:
        body = name.removeprefix("CHAINFOLIO_").lower()
        keys = body.split("__") if "__" in body else _known_path(body)
        spot = tree
        for key in keys[:-1]:
            spot = spot.setdefault(key, {})
            if not isinstance(spot, dict):
                raise BadSettings(name, f"{key} is not a section")
        spot[keys[-1]] = env[name].split(",") if keys[-1] in LISTS else env[name]
    return names


def _known_path(body: str) -> list[str]:
    section, _, key = body.partition("_")
    return [section, key] if section in SECTIONS and key else [body]


def _asked(node: Any) -> set[str]:
    """Every variable that is named by `env:NAME`: it is a value, and no setting, whatever it is called."""
    if isinstance(node, dict):
        return _asked(list(node.values()))
    if isinstance(node, list):
        return {name for each in node for name in _asked(each)}
    return {node.removeprefix("env:")} if isinstance(node, str) and node.startswith("env:") else set()


def _secrets(node: Any, env: Mapping[str, str], path: str) -> Any:
    """Every `env:NAME` string replaced; a missing variable is an error that names where it was asked for."""
    if isinstance(node, dict):
        return {key: _secrets(value, env, f"{path}.{key}".lstrip(".")) for key, value in node.items()}
    if isinstance(node, list):
        return [_secrets(value, env, path) for value in node]
    if isinstance(node, str) and node.startswith("env:"):
        name = node.removeprefix("env:")
        if name not in env:
            raise BadSettings(path, f"the environment variable {name} is not set")
        return env[name]
    return node


def _typed(tree: dict[str, Any], source: str) -> Settings:
    try:
        return msgspec.convert(tree, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise BadSettings(source, _explain(str(error))) from None


def _explain(text: str) -> str:
    """msgspec's message in a user's words, with the nearest known key for an unknown one."""
    if "unknown field" not in text:
        return text.replace("Object", "Settings")
    key = text.split("`")[1]
    known = [f for kind in (Settings, Server, Limits, Store, Lake, Chain, Quotas) for f in kind.__struct_fields__]
    if key in RENAMED:
        return f"the key `{key}` is called `{RENAMED[key]}` now"
    near = difflib.get_close_matches(key, known, 1)
    place = text.split(" - at ")[-1].strip("`").replace("$", "").lstrip(".") if " - at " in text else ""
    where = f" in [{place.replace('[...]', '.*')}]" if place else ""
    return f"unknown key `{key}`{where}" + (f"; did you mean `{near[0]}`?" if near else "")


def check(settings: Settings) -> None:
    """Whether every value can be meant; BadSettings names the first that cannot."""
    for name, chain in settings.chains.items():
        if chain.adapter not in ADAPTERS:
            raise BadSettings(
                f"chains.{name}.adapter", f"unknown adapter `{chain.adapter}`", remedy=f"one of {', '.join(ADAPTERS)}"
            )
        if chain.integrity not in INTEGRITY:
            raise BadSettings(f"chains.{name}.integrity", f"`{chain.integrity}` is none of {', '.join(INTEGRITY)}")
        for url in chain.rpc:
            if not _is_http(url):
                raise BadSettings(f"chains.{name}.rpc", "an endpoint is an http:// or https:// address")
        if chain.explorer and not _is_http(chain.explorer):
            raise BadSettings(f"chains.{name}.explorer", "an explorer's interface is an http:// or https:// address")
        if chain.span < 1 or chain.concurrency < 1 or chain.timeout_s < 1:
            raise BadSettings(f"chains.{name}", "span, concurrency and timeout_s are at least 1")
        if chain.sample < 1 or chain.quorum < 1 or chain.reorg_depth < 0:
            raise BadSettings(f"chains.{name}", "sample and quorum are at least 1, reorg_depth at least 0")
        if chain.quorum > max(1, named := len(set(chain.rpc))):
            raise BadSettings(
                f"chains.{name}.quorum", f"{chain.quorum} endpoints have to agree, and rpc names {named}",
                remedy="name at least so many different endpoints, one more to decide between two, or lower quorum",
            )  # fmt: skip
        if chain.start_block < 0 or chain.max_rps < 0 or chain.worker_processes < 1:
            raise BadSettings(f"chains.{name}", "start_block and max_rps are at least 0, worker_processes at least 1")
    server = settings.server
    if not 0 <= server.port <= 65535:
        raise BadSettings("server.port", f"{server.port} is not a port")
    if server.unpriced not in UNPRICED:
        raise BadSettings("server.unpriced", f"`{server.unpriced}` is none of {', '.join(UNPRICED)}")
    for origin in server.cors_origins:
        if not (_is_http(origin) and re.fullmatch(r"https?://[^/?#@]+", origin)):
            remedy = "scheme and host alone, as `https://app.example.org`"
            raise BadSettings("server.cors_origins", f"`{origin}` is no origin of pages", remedy=remedy)
    if min(server.workers, server.max_addresses, server.max_transactions) < 1 or server.cache_s < 0:
        raise BadSettings("server", "workers, max_addresses and max_transactions are at least 1, cache_s at least 0")
    if min(msgspec.structs.astuple(settings.limits)) < 1:
        raise BadSettings("limits", "every one is at least 1")
    if settings.rates:
        _check_rates(settings.rates)
    quotas = settings.quotas
    if min(quotas.addressbook, quotas.addressbook_paid) < 0 or quotas.bundles < 0 or quotas.bundle_size < 1:
        raise BadSettings("quotas", "addressbook and bundles are at least 0, bundle_size at least 1")
    if settings.log_level not in LOG_LEVELS:
        raise BadSettings("log_level", f"`{settings.log_level}` is none of {', '.join(LOG_LEVELS)}")


def _check_rates(rates: Mapping[str, str]) -> None:
    from chainfolio.contracts import CURRENCIES  # here, for few settings have any

    for currency, rate in rates.items():
        if currency == "USD" or currency not in CURRENCIES:
            raise BadSettings(f"rates.{currency}", "no such currency", remedy=f"one of {', '.join(CURRENCIES[1:])}")
        if not _is_rate(rate):
            raise BadSettings(f"rates.{currency}", f"`{rate}` is no rate", remedy='a decimal above zero, as "0.92"')


def _is_rate(written: str) -> bool:
    return bool(re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", written)) and not re.fullmatch(r"[0.]+", written)


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        return whole and url.isprintable() and " " not in url
    except ValueError:  # a port that is none, brackets that do not close
        return False
