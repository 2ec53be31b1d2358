"""Settings: one TOML file, read strictly, `CHAINFOLIO_…` variables over it, secrets as `env:NAME`.

An unknown key is an error with a suggestion; nothing starts with an option that was silently ignored.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec

from chainfolio.chain_settings import (
    DEFAULT_KIND,
    ChainSettings,
    decode_settings,
    doc,
    explain_error,
    is_http,
    list_keys,
    masked,
)
from chainfolio.errors import BadRequest, BadSettings
from chainfolio.kinds import ChainKind, kind_of


class Server(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The address on which the API listens, and the limits of its answers."""

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
    """Limits of one key, and of one process."""

    per_minute: Annotated[int, doc("requests of one key in any minute, over all routes")] = 360
    at_block_per_minute: Annotated[int, doc("the same for `/portfolio/at-block`, counted separately")] = 100
    waiting_per_key: Annotated[int, doc("requests of one key that wait for fresh data at once, in each process")] = 8
    queued_per_key: Annotated[
        int, doc("requests of one key that stand in line for that, in each process; more are answered 429")
    ] = 64
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
    """A store by its address; empty: a file in `data`."""

    url: Annotated[
        str,
        doc("`sqlite:///PATH`, or for `[state]` also `postgresql://USER:PASSWORD@HOST/NAME`; empty: a file in `data`"),
    ] = ""

    def __repr__(self) -> str:
        return f"Store(url={masked(self.url)!r})"


class Lake(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The place of finalised data."""

    uri: Annotated[str, doc("a folder, or `s3://BUCKET/PREFIX`; empty: `lake` in `data`")] = ""


class Accounts(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Accounts whose histories are indexed, independent of what else is indexed."""

    watch: Annotated[list[str], doc("addresses, on every configured chain of their kind")] = []
    max_watched: Annotated[
        int,
        doc(
            "accounts that `/v1/sync-transactions` may have watched on each chain at most; subscribed ones come on top"
        ),
    ] = 1000
    max_watched_by_account: Annotated[int, doc("of these, at most so many for one account of the API")] = 100
    watched_days: Annotated[int, doc("days after its last `/v1/sync-transactions` for which an account is watched")] = (
        30
    )


class Snapshots(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Accounts with a stored snapshot every day at 00:00 UTC, in addition to subscribed ones."""

    addresses: Annotated[list[str], doc("addresses, on every configured chain of their kind")] = []
    since: Annotated[str, doc("first day, `YYYY-MM-DD`; empty: the first that is kept, else today")] = ""


class Pnl(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The gains that `/portfolio` shows."""

    method: Annotated[str, doc("which lot is sold first: `fifo`, `lifo`, `hifo`, `lofo`, `average` or `uk`")] = "fifo"
    max_transactions: Annotated[
        int, doc("an address with more transactions has `N/A` for its gains in `/portfolio`; 0: so have all")
    ] = 1000
    trade_value: Annotated[
        str,
        doc(
            "which side of a trade gives both sides their value: `market` (a stable currency, a feed, the deeper "
            "market; else what came), `received` or `given`"
        ),
    ] = "market"
    treat_liquidity: Annotated[
        str,
        doc("liquidity that is added to a pool keeps its lots (`container`), or is sold for its shares (`disposal`)"),
    ] = "container"


class Quotas(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Limits of what an account may store, if the operator gave it no quota."""

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
    chains: Mapping[str, ChainSettings] = {}
    prices: Annotated[dict[str, str], doc("asset to its price in USD, as text; before every other source")] = {}
    rates: Annotated[
        dict[str, str],
        doc(
            "currency to its rate, as text: units per USD, of a coin USD per unit; any code of ISO 4217 adds a currency"
        ),
    ] = {}
    prices_file: Annotated[str, doc("file with price feeds; empty: `configs/prices.toml`")] = ""
    protocols: Annotated[str, doc("folder with your own protocol files, beside `configs/protocols`")] = ""
    quotas: Quotas = Quotas()
    accounts: Accounts = Accounts()
    snapshots: Snapshots = Snapshots()
    pnl: Pnl = Pnl()
    examples: Annotated[
        dict[str, str], doc("what the documentation page shows in place of its own examples, such as an address")
    ] = {}
    log_level: Annotated[str, doc('`"debug"`, `"info"`, `"warning"`, `"error"` or `"critical"`')] = "info"

    @property
    def data_dir(self) -> Path:
        """The folder of all local data."""
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


UNPRICED = ("N/A", "zero")
MAX_WATCHED_DAYS = 3650
SECTIONS = ("server", "limits", "state", "tail", "lake", "quotas", "accounts", "snapshots", "pnl")
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
# Our variables that are no settings: the path of the file, the key of a client, the options of tests.
NOT_SETTINGS = ("CHAINFOLIO_CONFIG", "CHAINFOLIO_KEY", "CHAINFOLIO_LOCALCHAIN_HOME", "CHAINFOLIO_TESTS")


def load(path: Path | None, env: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings in a file (None: all defaults), overridden by the environment.

    Raises:
        BadSettings: names the key and the file with a mistake.
    """
    tree: dict[str, object] = {}
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
    _lists(tree)
    settings = _typed(_secrets(tree, env, ""), ", ".join([*([str(path)] if path else []), *overriding]))
    check(settings)
    return settings if path is None else _with_absolute_paths(settings, path.parent)


def _with_absolute_paths(settings: Settings, folder: Path) -> Settings:
    """Return the settings with relative paths resolved against `folder`, that of the settings file."""

    def path(text: str) -> str:
        return str(folder / text) if text and "://" not in text else text

    def store(store_settings: Store) -> Store:
        scheme, mark, file = store_settings.url.partition("sqlite:///")
        return Store(f"{mark}{folder / file}") if mark and not scheme and file else store_settings

    return msgspec.structs.replace(
        settings,
        data=path(settings.data),
        prices_file=path(settings.prices_file),
        protocols=path(settings.protocols),
        state=store(settings.state),
        tail=store(settings.tail),
        lake=Lake(path(settings.lake.uri)),
        chains={key: chain.with_absolute_paths(folder) for key, chain in settings.chains.items()},
    )


def _override(tree: dict[str, object], env: Mapping[str, str]) -> list[str]:
    """Write settings from the environment into the tree, and return the names of the variables.

    CHAINFOLIO_SERVER_PORT=1 is server.port; a longer path needs `__` between its parts, as in
    CHAINFOLIO_CHAINS__ETHEREUM__RPC=a,b.

    Raises:
        BadSettings: a part of the path is not a section.
    """
    secrets = _secret_variables([tree, *(value for name, value in env.items() if name.startswith("CHAINFOLIO_"))])
    names = sorted(name for name in env if name.startswith("CHAINFOLIO_") and name not in {*NOT_SETTINGS, *secrets})
    for name in names:
        body = name.removeprefix("CHAINFOLIO_").lower()
        keys = body.split("__") if "__" in body else _known_path(body)
        spot = tree
        for key in keys[:-1]:
            section = spot.setdefault(key, {})
            if not isinstance(section, dict):
                raise BadSettings(name, f"{key} is not a section")
            spot = section
        spot[keys[-1]] = _VariableText(env[name])
    return names


class _VariableText(str):
    """The value of a variable; it may be a list."""


def _lists(tree: dict[str, object]) -> None:
    """Split variables into lists, in the tree, by the types of their keys."""
    chains = tree.get("chains")
    tables = chains.items() if isinstance(chains, dict) else ()
    section_types: dict[str, type[msgspec.Struct]] = {"server": Server, "accounts": Accounts, "snapshots": Snapshots}
    sections: list[tuple[object, type[msgspec.Struct]]] = [
        (tree.get(name), kind) for name, kind in section_types.items()
    ]
    sections += [(table, _kind(key, table).settings) for key, table in tables if isinstance(table, dict)]
    for table, kind in sections:
        if isinstance(table, dict):
            texts = {name: value for name, value in table.items() if isinstance(value, _VariableText)}
            table |= {name: value.split(",") for name, value in texts.items() if name in list_keys(kind)}


def _known_path(body: str) -> list[str]:
    section, _, key = body.partition("_")
    return [section, key] if section in SECTIONS and key else [body]


def _secret_variables(node: object) -> set[str]:
    """Return the variables that are named by `env:NAME`: they are values, and no settings."""
    if isinstance(node, dict):
        return _secret_variables(list(node.values()))
    if isinstance(node, list):
        return {name for each in node for name in _secret_variables(each)}
    return {node.removeprefix("env:")} if isinstance(node, str) and node.startswith("env:") else set()


def _secrets(node: Any, env: Mapping[str, str], path: str) -> Any:
    """Return the tree with every `env:NAME` replaced.

    Raises:
        BadSettings: names the key whose variable is not set.
    """
    if isinstance(node, dict):
        return {key: _secrets(value, env, f"{path}.{key}".lstrip(".")) for key, value in node.items()}
    if isinstance(node, list):
        return [_secrets(value, env, path) for value in node]
    if isinstance(node, str) and node.startswith("env:"):
        name = node.removeprefix("env:")
        if name not in env:
            raise BadSettings(path, f"the environment variable {name} is not set")
        return env[name]
    return str(node) if isinstance(node, _VariableText) else node


class _Chains(msgspec.Struct):
    """The tables of chains before their kinds are known."""

    chains: dict[str, dict[str, object]] = {}


def _typed(tree: dict[str, object], source: str) -> Settings:
    """The tree in its types. Each chain is decoded by the kind that its `adapter` names."""
    try:
        settings = msgspec.convert({**tree, "chains": {}}, Settings, strict=False)
        tables = msgspec.convert(tree, _Chains).chains
    except msgspec.ValidationError as error:
        raise BadSettings(source, explain_error(str(error), _meant)) from None
    return msgspec.structs.replace(settings, chains={key: _chain(key, tables[key], source) for key in tables})


def _meant(key: str, section: str) -> str:
    """Return the key or section that an unknown key probably stands for; empty if none is similar.

    It has its whole path if it is in another section.
    """
    sections = _sections()
    keys = [(each, name) for each, kind in sections.items() for name in kind.__struct_fields__]
    matches = difflib.get_close_matches(key, [name for _, name in keys], 1)
    if not matches:
        return ""
    name = matches[0]
    key_section = section if (section, name) in keys else next(each for each, key_name in keys if key_name == name)
    if not key_section and (name in sections or name == "chains"):
        return f"`[{name}]`"
    if key_section == section:
        return f"`{name}`"
    return f"`{name}` in [{key_section}]" if key_section else f"`{name}` at the top"


def _sections() -> dict[str, type[msgspec.Struct]]:
    """The types of the sections by their names; the top of the file has an empty one."""
    fields = msgspec.structs.fields(Settings)
    typed = {field.name: get_args(field.type)[0] if get_args(field.type) else field.type for field in fields}
    return {"": Settings} | {
        name: kind for name, kind in typed.items() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    }


def _chain(key: str, table: dict[str, object], source: str) -> ChainSettings:
    return decode_settings(_kind(key, table).settings, table, source, f"chains.{key}")


def _kind(key: str, table: Mapping[str, object]) -> ChainKind:
    """Return the kind of chain that a table names.

    Raises:
        BadSettings: names the chain if the kind is not installed.
    """
    try:
        return kind_of(str(table.get("adapter", DEFAULT_KIND)))
    except BadSettings as error:
        raise BadSettings(f"chains.{key}.adapter", error.reason, remedy=error.remedy) from None


def check(settings: Settings) -> None:
    """Check every value.

    Raises:
        BadSettings: names the first value that is not valid.
    """
    for key, chain in settings.chains.items():
        chain.check(f"chains.{key}")
    _check_server(settings.server)
    if min(msgspec.structs.astuple(settings.limits)) < 1:
        raise BadSettings("limits", "every one is at least 1")
    if settings.rates:
        _check_rates(settings.rates)
    quotas = settings.quotas
    if min(quotas.addressbook, quotas.addressbook_paid) < 0 or quotas.bundles < 0 or quotas.bundle_size < 1:
        raise BadSettings("quotas", "addressbook and bundles are at least 0, bundle_size at least 1")
    _check_accounts(settings.accounts)
    _check_snapshots(settings.snapshots)
    _check_pnl(settings.pnl)
    if settings.log_level not in LOG_LEVELS:
        raise BadSettings("log_level", f"`{settings.log_level}` is none of {', '.join(LOG_LEVELS)}")


def _check_server(server: Server) -> None:
    if not 0 <= server.port <= 65535:
        raise BadSettings("server.port", f"{server.port} is not a port")
    if server.unpriced not in UNPRICED:
        raise BadSettings("server.unpriced", f"`{server.unpriced}` is none of {', '.join(UNPRICED)}")
    for origin in server.cors_origins:
        if not (is_http(origin) and re.fullmatch(r"https?://[^/?#@]+", origin)):
            remedy = "scheme and host alone, as `https://app.example.org`"
            raise BadSettings("server.cors_origins", f"`{origin}` is no origin of pages", remedy=remedy)
    if min(server.workers, server.max_addresses, server.max_transactions) < 1 or server.cache_s < 0:
        raise BadSettings("server", "workers, max_addresses and max_transactions are at least 1, cache_s at least 0")


def _check_accounts(accounts: Accounts) -> None:
    _check_addresses("accounts.watch", accounts.watch)
    for name in ("max_watched", "max_watched_by_account"):
        if getattr(accounts, name) < 0:
            raise BadSettings(f"accounts.{name}", "at least 0")
    if not 1 <= accounts.watched_days <= MAX_WATCHED_DAYS:
        raise BadSettings("accounts.watched_days", f"1 to {MAX_WATCHED_DAYS}")


def _check_snapshots(snapshots: Snapshots) -> None:
    _check_addresses("snapshots.addresses", snapshots.addresses)
    try:
        if snapshots.since and date.fromisoformat(snapshots.since).isoformat() != snapshots.since:
            raise ValueError
    except ValueError:
        raise BadSettings("snapshots.since", f"`{snapshots.since}` is not a day", remedy="YYYY-MM-DD") from None


def _check_addresses(name: str, addresses: list[str]) -> None:
    from chainfolio.assets import account  # here, for few settings have any

    for each in addresses:
        try:
            account(each)
        except BadRequest as error:
            raise BadSettings(name, error.reason, remedy=error.remedy) from None


def _check_pnl(pnl: Pnl) -> None:
    from chainfolio.contracts import GAIN_METHODS, TRADE_VALUES

    if pnl.method not in GAIN_METHODS:
        raise BadSettings("pnl.method", f"`{pnl.method}` is none of {', '.join(GAIN_METHODS)}")
    if pnl.trade_value not in TRADE_VALUES:
        raise BadSettings("pnl.trade_value", f"`{pnl.trade_value}` is none of {', '.join(TRADE_VALUES)}")
    if pnl.treat_liquidity not in ("container", "disposal"):
        raise BadSettings("pnl.treat_liquidity", f"`{pnl.treat_liquidity}` is neither container nor disposal")
    if pnl.max_transactions < 0:
        raise BadSettings("pnl.max_transactions", "at least 0")


def _check_rates(rates: Mapping[str, str]) -> None:
    from chainfolio.contracts import CRYPTO
    from chainfolio.currencies import ISO_4217  # here, for few settings have any

    for currency, rate in rates.items():
        if currency == "USD" or currency not in (*ISO_4217, *CRYPTO):
            remedy = f"a code of ISO 4217, as GBP, but USD; or one of {', '.join(CRYPTO)}"
            raise BadSettings(f"rates.{currency}", "no such currency", remedy=remedy)
        if not _is_rate(rate):
            raise BadSettings(f"rates.{currency}", f"`{rate}` is no rate", remedy='a decimal above zero, as "0.92"')


def _is_rate(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", text)) and not re.fullmatch(r"[0.]+", text)
