"""The settings as types, and the rules of their values. `settings_file.py` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from chainfolio.chain_settings import ChainSettings, doc, masked


class Server(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The address on which the API listens, and the limits of its answers."""

    host: Annotated[str, doc("address to listen on")] = "127.0.0.1"
    port: Annotated[int, doc("port to listen on; 0: any free one")] = 8080
    workers: Annotated[int, doc("processes that answer on this port")] = 1
    metrics_port: Annotated[int, doc("port for Prometheus; 0: none. The second worker has the next one, and so on")] = 0
    stop_notice_s: Annotated[
        int,
        doc(
            "seconds after SIGTERM in which `/readyz` is 503 and requests are still accepted, so that balancers send "
            "new ones elsewhere"
        ),
    ] = 0
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
    export_s: Annotated[int, doc("seconds within which a file of `/v1/export` is made")] = 600
    head_s: Annotated[int, doc("seconds within which the head of a request has to arrive")] = 10
    body_s: Annotated[int, doc("seconds within which its body has to arrive")] = 30
    write_s: Annotated[int, doc("seconds for which a client may read nothing of its answer")] = 30


class Store(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A store by its address; empty: a file in `data`."""

    url: Annotated[
        str,
        doc("`sqlite:///PATH` or `postgresql://USER:PASSWORD@HOST/NAME`; empty: a file in `data`"),
    ] = ""

    def __repr__(self) -> str:
        return f"Store(url={masked(self.url)!r})"


class Lake(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The place of finalised data."""

    uri: Annotated[str, doc("a folder, or `s3://BUCKET/PREFIX`; empty: `lake` in `data`")] = ""
    endpoint: Annotated[
        str, doc("URL of the S3 service; empty: `AWS_ENDPOINT_URL`, else Amazon's. Credentials: `AWS_…` variables")
    ] = ""
    region: Annotated[str, doc("region of the bucket; empty: `AWS_REGION`, else `us-east-1`")] = ""
    keep_replaced_h: Annotated[
        int, doc("hours for which replaced files and entries of logs stay, for queries of other engines")
    ] = 24


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

    method: Annotated[str, doc("lot sold first: `fifo`, `lifo`, `hifo`, `lofo`, `average`, `uk` or `ca`")] = "fifo"
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


class Images(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """URL templates of pictures for `includeImages`; without one, a picture is drawn from the name."""

    token: Annotated[str, doc("of tokens, as `https://logos.example.org/{chain}/{address}.png`")] = ""
    protocol: Annotated[str, doc("of protocols, with `{key}`")] = ""
    chain: Annotated[str, doc("of chains, with `{key}`")] = ""


class Nfts(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Gateways to metadata of collectibles outside the chain. Without a gateway they are not read."""

    gateways: Annotated[
        dict[str, str],
        doc(
            "`ipfs` and `ar` to a URL with `{path}`, as `https://ipfs.example.org/ipfs/{path}`; `https` to a URL with "
            "`{url}`, or to `{url}` alone, which asks the hosts that the collections name"
        ),
    ] = {}
    timeout_s: Annotated[int, doc("seconds for all metadata of one answer; one file has half of them")] = 10


class Alerts(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Alert rules, and the deliveries of their events."""

    allow_hosts: Annotated[
        list[str],
        doc("hosts, addresses and networks that webhooks may reach although they are private, as `10.1.0.0/16`"),
    ] = []
    timeout_s: Annotated[int, doc("seconds within which a receiver has to answer")] = 15
    check_s: Annotated[int, doc("seconds between two checks of a condition, such as a price")] = 60
    max_rules: Annotated[int, doc("rules of one account")] = 100
    keep_days: Annotated[int, doc("days for which deliveries are listed; at least 4")] = 30
    max_deliveries: Annotated[int, doc("deliveries of one account that are listed; above it, old ones are deleted")] = (
        100_000
    )


class Sql(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Limits and price of queries over `/v1/sql`. `chainfolio sql` has its own."""

    seconds: Annotated[int, doc("seconds after which a query is ended; its start and its result may take 10 more")] = 30
    memory_mib: Annotated[int, doc("MiB of memory for the work of a query; its process may use up to 400 more")] = 512
    max_rows: Annotated[int, doc("rows of one result at most")] = 100_000
    max_mib: Annotated[int, doc("MiB of one result at most")] = 64
    at_once: Annotated[int, doc("queries at once in each process; up to 16 more wait, and others are answered 503")] = 2
    mib_per_credit: Annotated[int, doc("a query costs a credit for each started part of so many MiB that it reads")] = (
        64
    )
    max_saved: Annotated[int, doc("saved queries of one account")] = 100


class Schedule(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The times of recurring jobs, as cron expressions.

    They have five fields, or six with the seconds first; an empty one turns a job off.
    """

    time_zone: Annotated[str, doc("zone in which the expressions are read, for example `Europe/Zurich`")] = "UTC"
    jitter_s: Annotated[int, doc("each firing is delayed by a random time of at most so many seconds")] = 0
    misfire_grace_s: Annotated[
        int, doc("a firing that could not be kept is made up for within so many seconds; after that it is left out")
    ] = 3600
    coalesce: Annotated[bool, doc("whether several firings that are late become one run")] = True
    snapshots: Annotated[str, doc("take the daily snapshots that are missing")] = "*/5 * * * *"
    places: Annotated[str, doc("index the histories of subscribed addresses")] = "*/15 * * * *"
    prices: Annotated[str, doc("move used prices of final blocks to the lake")] = "* * * * *"
    materialise: Annotated[str, doc("materialise histories and merge small files, where enough is pending")] = (
        "*/30 * * * * *"
    )
    vacuum: Annotated[str, doc("delete replaced files")] = "0 * * * *"
    check: Annotated[str, doc("compare stored files with their checksums")] = "30 3 * * *"


class Telemetry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The collector of OpenTelemetry that gets traces and metrics. It needs the extra `otel`."""

    endpoint: Annotated[
        str,
        doc("URL of a collector that takes OTLP over HTTP; empty: off. Credentials: `OTEL_EXPORTER_OTLP_HEADERS`"),
    ] = ""
    service: Annotated[str, doc("name of the service in traces and metrics")] = "chainfolio"
    sample: Annotated[int, doc("one trace in so many is sent; metrics count all")] = 1


JOBS = ("snapshots", "places", "prices", "materialise", "vacuum", "check")  # settings that are cron expressions


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
    proven: Annotated[
        list[str], doc("families of protocols that are marked as unproven, and whose recordings you have checked")
    ] = []
    quotas: Quotas = Quotas()
    accounts: Accounts = Accounts()
    snapshots: Snapshots = Snapshots()
    pnl: Pnl = Pnl()
    images: Images = Images()
    nfts: Nfts = Nfts()
    alerts: Alerts = Alerts()
    sql: Sql = Sql()
    schedule: Schedule = Schedule()
    telemetry: Telemetry = Telemetry()
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


SECTIONS = (
    "server",
    "limits",
    "state",
    "tail",
    "lake",
    "quotas",
    "accounts",
    "snapshots",
    "pnl",
    "images",
    "nfts",
    "alerts",
    "sql",
    "schedule",
    "telemetry",
)
