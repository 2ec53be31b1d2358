"""The plan for a large installation: its page follows from the inputs, and the inputs from measured figures."""

from __future__ import annotations

from dataclasses import fields

import pytest

from bench import scale
from docs.build_scale import PAGE, page
from tests.e2e.running import ROOT

RESULTS = (ROOT / "bench" / "README.md").read_text()


def test_the_page_is_what_the_module_computes() -> None:
    assert PAGE.read_text() == page(), "run python -m docs.build_scale"


@pytest.mark.parametrize(
    ("row", "figure"),
    [
        ("memory at 10 x the blocks and events", f"{scale.MEASURED.events_s / 1000:.0f} k events/s"),
        ("bytes per event, whole data folder", str(scale.MEASURED.event_bytes)),
        ("--estimate: 2,000 blocks", "events 220,000 for 220,000 (+0%), requests 40 for 41"),
        ("ms per wallet in batches of 1, 10, 100, 1,000", str(scale.MEASURED.wallet_ms)),
        ("requests per wallet in batches of 1, 10, 100, 1,000", str(scale.MEASURED.wallet_requests)),
        ("requests/s on sqlite, 1 process on one core", f"| {scale.MEASURED.api_core_s}"),
    ],
)
def test_a_unit_cost_is_a_figure_of_the_benchmarks(row: str, figure: str) -> None:
    (line,) = [line for line in RESULTS.splitlines() if row in line]
    assert figure in line


def test_twice_the_load_needs_twice_as_much() -> None:
    single = scale.load()
    two = scale.load(assumed=scale.Assumptions(requests_s=20_000, wallets=2_000_000))
    assert two.ledger_day_gb == 2 * single.ledger_day_gb
    assert two.snapshot_hours == pytest.approx(2 * single.snapshot_hours)
    assert two.api_vcpus == 11 == -(-2 * 10_000 * 2 // 3_722)


def test_a_chain_is_filled_at_the_rate_of_the_slower_part() -> None:
    chain = scale.Chain("small", 1_000_000, 187_000 * 86_400, 7_200, 1, 1.0, 1, 1.0)
    fast_nodes = scale.Assumptions(chain_processes=2, node_rows_s=10**9)
    assert scale.plan(chain, assumed=fast_nodes).backfill_days == pytest.approx(1.0)
    slow_nodes = scale.Assumptions(chain_processes=2, node_rows_s=93_500 // 2)
    assert scale.plan(chain, assumed=slow_nodes).backfill_days == pytest.approx(2.0)
    assert scale.plan(chain).lake_gb == pytest.approx(187_000 * 86_400 * 22.2 / 1e9)
    assert scale.queue_rows_s(1000, 500, 10.0) == 50_000


def test_a_bill_without_prices_is_zero() -> None:
    free = scale.Prices(**{field.name: 0.0 for field in fields(scale.Prices)})
    assert set(scale.bill(prices=free).values()) == {0.0}
    assert all(value > 0 for value in scale.bill().values())
