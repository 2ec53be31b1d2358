"""`chainfolio top`: lag, rates, errors, jobs and time per operation of running processes.

All are read from the metrics of the processes.

It reads the metrics of `serve` and `worker` beside them (`server.metrics_port`), and needs no store. In a terminal the
view is renewed until you press Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

from chainfolio.cli.common import Commands, settings, show_json, show_table
from chainfolio.cli.groups import GROUPS
from chainfolio.errors import BadAnswer, BadRequest, Unavailable
from chainfolio.printable import harmless

CLEAR: Final = "\x1b[H\x1b[2J"
TIMEOUT_S: Final = 5.0
MAX_BYTES: Final = 16 * 2**20
HEIGHTS: Final = ("chainfolio_head_block", "chainfolio_indexed_block")
Labels = frozenset[tuple[str, str]]
Samples = Mapping[str, Mapping[Labels, float]]


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("top", parents=[common], help=GROUPS["top"], description=__doc__)
    command.add_argument("--metrics", nargs="+", metavar="URL", help="addresses of metrics (default: of the settings)")
    command.add_argument("--interval", type=float, default=2.0, metavar="S", help="seconds between two reads (2)")
    command.add_argument("--once", action="store_true", help="print one view, and end")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the view every --interval seconds; once with --once, --json or without a terminal.

    The exit code is 0.

    Raises:
        BadRequest: The interval or an address is wrong, or there is no address.
        Unavailable: No process answers.
    """
    if not 0.1 <= options.interval <= 3600:
        raise BadRequest("interval", f"{options.interval:g} is not between 0.1 and 3600 seconds")
    urls = options.metrics or configured_urls(options)
    if bad := [url for url in urls if not url.startswith(("http://", "https://"))]:
        raise BadRequest("metrics", f"{bad[0]} is no URL", remedy="--metrics http://127.0.0.1:9464/metrics")
    before, began_s = read_all(urls), time.monotonic()
    while True:
        time.sleep(options.interval)
        after, ended_s = read_all(urls), time.monotonic()
        view = summarise(before, after, ended_s - began_s)
        if options.json:
            show_json(view)
        else:
            _show(view, clear=not options.once and sys.stdout.isatty())
        if options.once or options.json or not sys.stdout.isatty():
            return 0
        before, began_s = after, ended_s


def configured_urls(options: argparse.Namespace) -> list[str]:
    """Return the metrics addresses of the settings, one per process of `serve`; BadRequest without one."""
    server = settings(options).server
    if not server.metrics_port:
        raise BadRequest(
            "metrics", "no process serves metrics", remedy="set server.metrics_port, or give --metrics URL"
        )
    host = "127.0.0.1" if server.host in ("0.0.0.0", "::") else server.host
    host = f"[{host}]" if ":" in host else host
    return [f"http://{host}:{server.metrics_port + number}/metrics" for number in range(server.workers)]


def read_all(urls: Sequence[str]) -> dict[str, Samples]:
    """Return the samples by address, without addresses that do not answer.

    Raises:
        BadAnswer: An answer is larger than MAX_BYTES.
        Unavailable: No address answers.
    """
    samples: dict[str, Samples] = {}
    reason = ""
    for url in urls:
        try:
            with urlopen(url, timeout=TIMEOUT_S) as response:
                answer = response.read(MAX_BYTES + 1)
            if len(answer) > MAX_BYTES:
                raise BadAnswer(url, f"its metrics have more than {MAX_BYTES >> 20} MiB")
            samples[url] = parse(answer.decode())
        except (OSError, URLError, ValueError) as error:
            reason = f"{url}: {getattr(error, 'reason', error)}"
    if not samples:
        raise Unavailable("metrics", reason, remedy="is the process running, and is server.metrics_port its port?")
    return samples


def parse(text: str) -> Samples:
    """Return the samples of Prometheus' text, by name and labels. Raises ValueError for another text."""
    from prometheus_client.parser import text_string_to_metric_families

    samples: dict[str, dict[Labels, float]] = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples[sample.name][frozenset(sample.labels.items())] = sample.value
    return samples


def summarise(before: Mapping[str, Samples], after: Mapping[str, Samples], seconds: float) -> dict[str, Any]:
    """Return the view of all processes: values of `after`, and rates since `before`.

    Keys are `processes` (addresses), `seconds`, the lists `chains`, `endpoints`, `operations` and `jobs`, and
    `creditsPerSecond` by kind.
    """
    rates, values = _rates(before, after, seconds), _merged(after)
    chains = sorted({dict(labels)["chain"] for labels in values.get("chainfolio_head_block", {})})
    return {
        "processes": sorted(after),
        "seconds": round(seconds, 3),
        "chains": [_chain(chain, values, rates) for chain in chains],
        "endpoints": list(_rows("chainfolio_node_requests_total", ("chain", "endpoint"), rates, _endpoint(values))),
        "operations": list(_operations(rates)),
        "creditsPerSecond": {dict(k)["kind"]: v for k, v in rates.get("chainfolio_credits_total", {}).items()},
        "jobs": list(_jobs(values)),
    }


def _merged(processes: Mapping[str, Samples]) -> Samples:
    """Return the largest value of each sample over all processes."""
    merged: dict[str, dict[Labels, float]] = defaultdict(dict)
    for samples in processes.values():
        for name, values in samples.items():
            for labels, value in values.items():
                merged[name][labels] = max(value, merged[name].get(labels, value))
    return merged


def _rates(before: Mapping[str, Samples], after: Mapping[str, Samples], seconds: float) -> Samples:
    """Return the growth of each sample per second, summed over processes.

    A process without an earlier read adds 0. A counter that fell is one of a restarted process, and grew from 0; a
    height that fell adds 0.
    """
    rates: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
    for url, samples in after.items():
        for name, values in samples.items():
            for labels, value in values.items():
                earlier = before.get(url, {}).get(name, {}).get(labels, 0.0 if url in before else value)
                if name in HEIGHTS:  # a height falls in a reorganisation, and begins at any value
                    grown = max(value - earlier, 0.0) if earlier else 0.0
                else:
                    grown = value - earlier if value >= earlier else value
                rates[name][labels] += grown / seconds
    return rates


def _of(samples: Samples, name: str, **labels: str) -> float | None:
    """Return the sum of the samples that have these labels; None if there are none."""
    wanted = set(labels.items())
    values = [value for each, value in samples.get(name, {}).items() if wanted <= each]
    return sum(values) if values else None


def _chain(chain: str, values: Samples, rates: Samples) -> dict[str, Any]:
    """Return `head`, `indexed` and `lag` of a chain (0 if unknown), `blocksPerSecond` and `isHalted`."""
    head, indexed = (_of(values, f"chainfolio_{name}_block", chain=chain) or 0.0 for name in ("head", "indexed"))
    return {
        "chain": chain,
        "head": int(head),
        "indexed": int(indexed),
        "lag": max(int(head - indexed), 0),
        "blocksPerSecond": _rounded(_of(rates, "chainfolio_indexed_block", chain=chain)),
        "isHalted": bool(_of(values, "chainfolio_halted", chain=chain)),
    }


def _endpoint(values: Samples) -> Any:
    """Return a function from the labels of an endpoint to its latency (ms) and lag; None if unknown."""

    def more(labels: dict[str, str]) -> dict[str, Any]:
        latency_s = _of(values, "chainfolio_node_latency_seconds", **labels)
        lag = _of(values, "chainfolio_node_lag_blocks", **labels)
        return {
            "latencyMs": None if latency_s is None else round(latency_s * 1000, 1),
            "lagBlocks": None if lag is None else int(lag),
        }

    return more


def _rows(name: str, keys: Sequence[str], rates: Samples, more: Any) -> Iterator[dict[str, Any]]:
    """Yield requests and errors per second for each set of labels, sorted, with what `more` adds for them."""
    for labels, rate in sorted(rates.get(name, {}).items(), key=lambda item: sorted(item[0])):
        found = {key: dict(labels)[key] for key in keys}
        errors = _of(rates, "chainfolio_node_errors_total", **found)
        yield {**found, "requestsPerSecond": _rounded(rate), "errorsPerSecond": _rounded(errors or 0.0), **more(found)}


def _operations(rates: Samples) -> Iterator[dict[str, Any]]:
    """Yield the operations of the API; `busy` is their time in seconds, summed over one second."""
    for labels, count in sorted(rates.get("chainfolio_api_seconds_count", {}).items(), key=lambda item: -item[1]):
        operation = dict(labels)["operation"]
        busy = _of(rates, "chainfolio_api_seconds_sum", operation=operation) or 0.0
        failed = sum(
            rate
            for each, rate in rates.get("chainfolio_api_requests_total", {}).items()
            if dict(each)["operation"] == operation and dict(each)["status"] >= "500"
        )
        yield {
            "operation": operation,
            "requestsPerSecond": _rounded(count),
            "errorsPerSecond": _rounded(failed),
            "meanMs": round(busy / count * 1000, 2) if count else None,
            "busy": _rounded(busy),
        }


def _jobs(values: Samples) -> Iterator[dict[str, Any]]:
    """Yield the recurring jobs by name and chain: if they run, if the last run failed, and its seconds."""
    for labels, is_running in sorted(
        values.get("chainfolio_job_running", {}).items(), key=lambda item: sorted(item[0])
    ):
        job = dict(labels)
        took_s = _of(values, "chainfolio_job_seconds", **job)
        yield {
            "job": job["job"],
            "chain": job["chain"],
            "isRunning": bool(is_running),
            "hasFailed": bool(_of(values, "chainfolio_job_failed", **job)),
            "runs": int(_of(values, "chainfolio_job_runs_total", **job) or 0),
            "lastSeconds": _rounded(took_s),
        }


def _rounded(value: float | None) -> float | None:
    """Return a rate or a duration with three digits."""
    return None if value is None else round(value, 3)


def _show(view: Mapping[str, Any], *, clear: bool) -> None:
    """Print the parts of a view that have rows as tables; with `clear`, clear the terminal first."""
    if clear:
        sys.stdout.write(CLEAR)
    for part in ("chains", "endpoints", "operations", "jobs"):
        if rows := view[part]:
            columns = [(name, "left" if isinstance(value, str) else "right") for name, value in rows[0].items()]
            show_table(part, columns, [[_cell(value) for value in row.values()] for row in rows])
    sys.stdout.flush()


def _cell(value: object) -> str:
    """Return a value as it is shown in a table; empty for False and None."""
    if isinstance(value, bool):
        return "yes" if value else ""
    return "" if value is None else harmless(f"{value:,}" if isinstance(value, (int, float)) else str(value))
