"""The alerts of `deploy/prometheus-rules.yml`: their metrics and labels exist, and the runbook explains each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from chainfolio.api.metrics import Traffic
from chainfolio.engine.bounds import BoundMetrics
from chainfolio.engine.history.schedule import DailySnapshots
from chainfolio.indexer.disk_trend import DiskTrend, LakeMetrics
from chainfolio.indexer.metrics import JobMetrics, TaskMetrics, WorkerMetrics
from tests.e2e.running import ROOT

RULES = yaml.safe_load((ROOT / "deploy" / "prometheus-rules.yml").read_text())
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", RUNBOOK, re.M | re.S))
OF_PROMETHEUS = {"up": {"job", "instance"}}
METRIC = re.compile(r"\b(?:chainfolio_\w+|up)\b")
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}
COMMON = {"instance"}  # Prometheus adds it to every sample
MAX_SUMMARY = 100


def metrics() -> Iterator[tuple[str, set[str]]]:
    """The names of all samples that the collectors yield, with their labels."""
    empty_worker: Any = SimpleNamespace(status={}, system=SimpleNamespace(chains=[]), tasks=[], jobs={})
    guard: Any = type("NoConnections", (), {"ended": {}, "__len__": lambda _: 0})()
    collectors: list[Any] = [
        Traffic(guard=guard),
        BoundMetrics(list),
        DailySnapshots(empty_worker),
        LakeMetrics(lambda: DiskTrend({"blocks": 1}, 1, 1)),
        WorkerMetrics(empty_worker),
        TaskMetrics(empty_worker),
        JobMetrics(empty_worker),
    ]
    for collector in collectors:
        for family in collector.collect():
            labels = {"exported_job" if label == "job" else label for label in family._labelnames}
            for suffix in SUFFIXES[family.type]:
                yield family.name + suffix, labels | COMMON | ({"le"} if suffix == "_bucket" else set())


METRICS = dict(metrics()) | OF_PROMETHEUS


@pytest.mark.parametrize("rule", ALERTS.values(), ids=ALERTS)
def test_an_alert_uses_metrics_and_labels_that_exist(rule: dict[str, Any]) -> None:
    names = set(METRIC.findall(rule["expr"]))
    assert names
    assert names <= METRICS.keys()
    labels = set.union(*(METRICS[name] for name in names))
    selected = re.findall(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)\s*\"", rule["expr"])
    grouped = [name for group in re.findall(r"\bby \(([^)]*)\)", rule["expr"]) for name in group.split(", ")]
    assert {*selected, *grouped} <= labels
    label_names = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert label_names <= (set(grouped) if grouped else labels), "a sum has only the labels that it is grouped by"


@pytest.mark.parametrize("rule", ALERTS.values(), ids=ALERTS)
def test_an_alert_is_explained_in_the_runbook(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"
    assert len(rule["annotations"]["summary"]) <= MAX_SUMMARY
    section = SECTIONS[rule["alert"]]
    assert "\n* " in section, "it says what to do"
    assert ("**Critical.**" in section) == (rule["labels"]["severity"] == "critical")
    assert rule["labels"]["severity"] in ("critical", "warning")


def test_the_runbook_explains_nothing_else() -> None:
    assert list(SECTIONS)
    assert set(SECTIONS) == set(ALERTS)
    assert len(ALERTS) == sum(len(group["rules"]) for group in RULES["groups"]), "no alert is there twice"


def test_metrics_of_the_pages_exist() -> None:
    pages = [RUNBOOK, *(path.read_text() for path in (ROOT / "docs" / "how-to").glob("*.md"))]
    names = {name for page in pages for name in re.findall(r"`(chainfolio_[a-z_]+)`", page)}
    assert names
    assert sorted(names - METRICS.keys() - {"chainfolio_jobs"}) == []  # a schema of PostgreSQL


def test_a_metric_that_does_not_exist_is_noticed() -> None:
    assert "chainfolio_node_cordoned" not in METRICS
    assert METRIC.findall("rate(chainfolio_gone_total[5m]) > up") == ["chainfolio_gone_total", "up"]
