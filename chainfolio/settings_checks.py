"""Checks of the values of settings; `chainfolio.settings` has their types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date

import msgspec

from chainfolio.chain_settings import is_http
from chainfolio.errors import BadRequest, BadSettings
from chainfolio.settings import (
    JOBS,
    Accounts,
    Alerts,
    Images,
    Lake,
    Nfts,
    Pnl,
    Schedule,
    Server,
    Settings,
    Snapshots,
    Telemetry,
)

UNPRICED = ("N/A", "zero")
MAX_WATCHED_DAYS = 3650
MAX_JITTER_S = 3600
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")


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
    _check_lake(settings.lake)
    _check_accounts(settings.accounts)
    _check_snapshots(settings.snapshots)
    _check_pnl(settings.pnl)
    if settings.images != Images():
        _check_images(settings.images)
    _check_nfts(settings.nfts)
    _check_alerts(settings.alerts)
    if min(msgspec.structs.astuple(settings.sql)) < 1:
        raise BadSettings("sql", "every one is at least 1")
    if settings.schedule != Schedule():
        _check_schedule(settings.schedule)
    _check_telemetry(settings.telemetry)
    if settings.log_level not in LOG_LEVELS:
        raise BadSettings("log_level", f"`{settings.log_level}` is none of {', '.join(LOG_LEVELS)}")


def _check_server(server: Server) -> None:
    """Raise BadSettings for an invalid port, `unpriced`, origin or limit of the server."""
    if not 0 <= server.port <= 65535:
        raise BadSettings("server.port", f"{server.port} is not a port")
    if server.unpriced not in UNPRICED:
        raise BadSettings("server.unpriced", f"`{server.unpriced}` is none of {', '.join(UNPRICED)}")
    for origin in server.cors_origins:
        if not (is_http(origin) and re.fullmatch(r"https?://[^/?#@]+", origin)):
            remedy = "scheme and host alone, as `https://app.example.org`"
            raise BadSettings("server.cors_origins", f"`{origin}` is no origin of pages", remedy=remedy)
    if min(server.workers, server.max_addresses, server.max_transactions) < 1:
        raise BadSettings("server", "workers, max_addresses and max_transactions are at least 1")
    if min(server.cache_s, server.stop_notice_s) < 0:
        raise BadSettings("server", "cache_s and stop_notice_s are at least 0")


def _check_images(images: Images) -> None:
    """Raise BadSettings for a template that is no URL, or gives equal pictures to all."""
    for name, places in {"token": ("{chain}", "{address}"), "protocol": ("{key}",), "chain": ("{key}",)}.items():
        template: str = getattr(images, name)
        if template and not (is_http(template) and all(place in template for place in places)):
            remedy = f"an http or https URL with {' and '.join(places)}"
            raise BadSettings(f"images.{name}", f"`{template}` is no template of pictures", remedy=remedy)


def _check_nfts(nfts: Nfts) -> None:
    """Raise BadSettings for a gateway of an unknown scheme, or without its place after the host.

    The URL is not shown: it may hold a key.
    """
    for scheme, template in nfts.gateways.items():
        place = {"ipfs": "{path}", "ar": "{path}", "https": "{url}"}.get(scheme)
        if place is None:
            raise BadSettings("nfts.gateways", f"`{scheme}` is none of ipfs, ar, https")
        is_direct = scheme == "https" and template == place
        if not is_direct and not (is_http(template) and re.fullmatch(r"https?://[^/?#@{}]+/.*", template)):
            raise BadSettings(f"nfts.gateways.{scheme}", "not the URL of a gateway", remedy=f"an http URL with {place}")
        if template.count(place) != 1:
            raise BadSettings(f"nfts.gateways.{scheme}", f"it has to contain {place} once")
    if nfts.timeout_s < 1:
        raise BadSettings("nfts.timeout_s", "at least 1")


def _check_lake(lake: Lake) -> None:
    """Raise BadSettings for an address or an endpoint that no lake has. Values are not shown: they may hold a key."""
    if lake.keep_replaced_h < 1:
        raise BadSettings("lake.keep_replaced_h", "at least 1: the longest read has to end within this time")
    scheme, mark, place = lake.uri.partition("://")
    if mark and scheme not in ("file", "s3"):
        raise BadSettings("lake.uri", f"`{scheme}://` is not supported", remedy="a folder, or s3://BUCKET/PREFIX")
    if scheme == "s3" and not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,62}(/[\w=+-][\w.=+-]*)*/?", place):
        remedy = "s3://BUCKET/PREFIX alone; credentials come from the environment: AWS_ACCESS_KEY_ID and others"
        raise BadSettings("lake.uri", "not the address of a bucket", remedy=remedy)
    if lake.endpoint and not (is_http(lake.endpoint) and re.fullmatch(r"https?://[^/?#@]+/?", lake.endpoint)):
        remedy = "scheme and host alone, as `https://s3.example.org`; credentials come from the environment"
        raise BadSettings("lake.endpoint", "not the URL of an S3 service", remedy=remedy)
    if not re.fullmatch(r"[a-z0-9-]{0,40}", lake.region):
        raise BadSettings("lake.region", "not a region", remedy="for example eu-central-1")
    if (lake.endpoint or lake.region) and scheme != "s3":
        raise BadSettings("lake.endpoint", "the lake is a local folder", remedy="set lake.uri to s3://BUCKET/PREFIX")


def _check_telemetry(telemetry: Telemetry) -> None:
    """Raise BadSettings for an invalid endpoint or number.

    The endpoint is not shown: it may hold a key.
    """
    endpoint = telemetry.endpoint
    if endpoint and not (is_http(endpoint) and re.fullmatch(r"https?://[^/?#@]+(/[^?#@]*)?", endpoint)):
        remedy = "without credentials, as `http://127.0.0.1:4318`; those come from OTEL_EXPORTER_OTLP_HEADERS"
        raise BadSettings("telemetry.endpoint", "not the URL of a collector", remedy=remedy)
    if telemetry.sample < 1:
        raise BadSettings("telemetry.sample", "at least 1")


def _check_accounts(accounts: Accounts) -> None:
    """Raise BadSettings for an address to watch, a maximum or a number of days that is not valid."""
    _check_addresses("accounts.watch", accounts.watch)
    for name in ("max_watched", "max_watched_by_account"):
        if getattr(accounts, name) < 0:
            raise BadSettings(f"accounts.{name}", "at least 0")
    if not 1 <= accounts.watched_days <= MAX_WATCHED_DAYS:
        raise BadSettings("accounts.watched_days", f"1 to {MAX_WATCHED_DAYS}")


def _check_snapshots(snapshots: Snapshots) -> None:
    """Raise BadSettings for an invalid address or first day of snapshots."""
    _check_addresses("snapshots.addresses", snapshots.addresses)
    try:
        if snapshots.since and date.fromisoformat(snapshots.since).isoformat() != snapshots.since:
            raise ValueError
    except ValueError:
        raise BadSettings("snapshots.since", f"`{snapshots.since}` is not a day", remedy="YYYY-MM-DD") from None


def _check_addresses(name: str, addresses: list[str]) -> None:
    """Raise BadSettings if one of the addresses is of no known kind."""
    from chainfolio.assets import account  # here, for few settings have any

    for each in addresses:
        try:
            account(each)
        except BadRequest as error:
            raise BadSettings(name, error.reason, remedy=error.remedy) from None


def _check_pnl(pnl: Pnl) -> None:
    """Raise BadSettings for an unknown method or treatment, or a negative limit."""
    from chainfolio.contracts import GAIN_METHODS, TRADE_VALUES

    if pnl.method not in GAIN_METHODS:
        raise BadSettings("pnl.method", f"`{pnl.method}` is none of {', '.join(GAIN_METHODS)}")
    if pnl.trade_value not in TRADE_VALUES:
        raise BadSettings("pnl.trade_value", f"`{pnl.trade_value}` is none of {', '.join(TRADE_VALUES)}")
    if pnl.treat_liquidity not in ("container", "disposal"):
        raise BadSettings("pnl.treat_liquidity", f"`{pnl.treat_liquidity}` is neither container nor disposal")
    if pnl.max_transactions < 0:
        raise BadSettings("pnl.max_transactions", "at least 0")


def _check_alerts(alerts: Alerts) -> None:
    """Raise BadSettings for a limit out of range, or an empty host."""
    if min(alerts.timeout_s, alerts.check_s, alerts.max_rules, alerts.max_deliveries) < 1 or alerts.timeout_s > 300:
        raise BadSettings("alerts", "timeout_s is 1 to 300, the other numbers at least 1")
    if alerts.keep_days < 4:
        raise BadSettings("alerts.keep_days", "at least 4: deliveries are tried for three days")
    if not all(alerts.allow_hosts):
        raise BadSettings("alerts.allow_hosts", "a host is empty", remedy="as hooks.internal or 10.0.0.0/8")


def _check_schedule(schedule: Schedule) -> None:
    """Raise BadSettings for an invalid job or time of the schedule."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # here, for few settings have any

    from chainfolio.cron import CronError, parse_cron

    try:
        ZoneInfo(schedule.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        remedy = "a name as Europe/Zurich; the system, or the package tzdata, has the zones"
        raise BadSettings("schedule.time_zone", f"`{schedule.time_zone}` is no time zone", remedy=remedy) from None
    if not 0 <= schedule.jitter_s <= MAX_JITTER_S:
        raise BadSettings("schedule.jitter_s", f"0 to {MAX_JITTER_S}")
    if schedule.misfire_grace_s < 1:
        raise BadSettings("schedule.misfire_grace_s", "at least 1")
    for name in JOBS:
        if text := getattr(schedule, name):
            try:
                parse_cron(text)
            except CronError as error:
                remedy = 'for example "30 3 * * *", each day at half past three; empty: never'
                raise BadSettings(f"schedule.{name}", f"`{text}`: {error}", remedy=remedy) from None


def _check_rates(rates: Mapping[str, str]) -> None:
    """Raise BadSettings for a rate of an unknown currency or of USD, or one that is no decimal above zero."""
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
