"""Compute the resources for five whole chains, a million wallets and 10,000 requests a second.

`docs/build_scale.py` writes the tables of docs/scale.md from this module. Inputs are of three kinds: figures of
bench/README.md, round estimates of the chains, and prices by the terms of a public list. Replace them with yours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

DAY_S: Final = 86_400
HOURS: Final = 730  # of a month
GB: Final = 10**9


@dataclass(frozen=True, slots=True)
class Chain:
    """A whole chain, in round numbers.

    Attributes:
        blocks: Blocks of its history.
        events: Rows of its history: transfers, approvals and native transfers.
        day_blocks: Blocks of a day.
        day_events: Rows of a day.
        share: Bytes of a row and processor time of a row, relative to a transfer of an EVM chain.
        node_vcpu: Virtual processors of an archive node.
        node_tb: Its disk in TB.
    """

    name: str
    blocks: int
    events: int
    day_blocks: int
    day_events: int
    share: float
    node_vcpu: int
    node_tb: float


CHAINS: Final = (
    Chain("Ethereum", 24_000_000, 8_000_000_000, 7_200, 7_000_000, 1.0, 8, 3.0),
    Chain("Base", 39_000_000, 25_000_000_000, 43_200, 70_000_000, 1.0, 16, 9.0),
    Chain("BNB", 75_000_000, 30_000_000_000, 115_200, 75_000_000, 1.0, 16, 12.0),
    Chain("Solana", 380_000_000, 250_000_000_000, 216_000, 250_000_000, 1.5, 64, 400.0),
    Chain("Tron", 78_000_000, 20_000_000_000, 28_800, 16_000_000, 1.2, 16, 4.0),
)


@dataclass(frozen=True, slots=True)
class MeasuredFigures:
    """Figures of bench/README.md, of a machine with two cores. Each names its row there.

    Attributes:
        events_s: Rows that one process on two cores indexes in a second (`rate`, 10 x the blocks and events).
        event_bytes: Bytes of a row, whole data folder (`rate`).
        events_per_request: Rows for each request to a node: 220,000 for 41 (`progress`, --estimate).
        blocks_per_request: Blocks for each request: 2,000 for 41, the same row.
        wallet_ms: Time of a wallet in batches of 1,000, on both cores (`wallets`).
        wallet_requests: Requests of a wallet in such batches (`wallets`).
        api_core_s: Requests that one core answers in a second (`serving`, SQLite, 1 process on one core).
    """

    events_s: float = 187_000
    event_bytes: float = 22.2
    events_per_request: float = 220_000 / 41
    blocks_per_request: float = 2_000 / 41
    wallet_ms: float = 3.34
    wallet_requests: float = 0.003
    api_core_s: float = 3_722


@dataclass(frozen=True, slots=True)
class Assumptions:
    """The assumed load, and values that no benchmark measures.

    Attributes:
        wallets: Wallets that are watched, each on every chain.
        requests_s: Requests to the API in a second.
        holdings: Holdings of a wallet and chain, each a row of a daily snapshot.
        snapshot_bytes: Bytes of such a row.
        batch: Operations of credits in one transaction of PostgreSQL.
        transactions_s: Transactions that one PostgreSQL commits in a second, with its disk.
        ledger_bytes: Bytes of a movement of credits, with its indexes. Each request has one.
        answer_bytes: Bytes of an answer, compressed.
        utilisation: Share of processors that is used at the usual load.
        chain_processes: Processes that index one chain.
        node_copies: Nodes of each chain.
        node_rows_s: Rows that a node serves in a second. The measured node replays answers, and is no limit.
    """

    wallets: int = 1_000_000
    requests_s: int = 10_000
    holdings: int = 8
    snapshot_bytes: float = 40.0
    batch: int = 64
    transactions_s: int = 1_000
    ledger_bytes: int = 250
    answer_bytes: int = 3_000
    utilisation: float = 0.5
    chain_processes: int = 8
    node_copies: int = 2
    node_rows_s: int = 20_000


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in USD of public lists of 2026, for on-demand use in one region, without discounts.

    Attributes:
        vcpu_h: An hour of a virtual processor with 4 GB of memory.
        object_gb_month: A GB in an object store, for a month.
        puts_1000: A thousand writes to it.
        disk_gb_month: A GB on a network disk, for a month.
        nvme_tb_month: A TB of local NVMe, for a month.
        archive_tb_month: A TB of an archive of old blocks on plain disks, for a month.
        egress_gb: A GB sent to the internet.
    """

    vcpu_h: float = 0.05
    object_gb_month: float = 0.023
    puts_1000: float = 0.005
    disk_gb_month: float = 0.08
    nvme_tb_month: float = 110.0
    archive_tb_month: float = 20.0
    egress_gb: float = 0.09


MEASURED: Final = MeasuredFigures()
ASSUMED: Final = Assumptions()
PRICES: Final = Prices()


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """Resources that one chain needs.

    Attributes:
        lake_gb: Size of its tables after the back-fill.
        backfill_days: Days of the back-fill with `chain_processes`, at the rate of the nodes at most.
        backfill_requests: Requests to nodes for it.
        follow_share: Share of one process that following the head takes.
        day_requests: Requests of a day for following, if each block is asked for when it appears.
        year_gb: Growth of the tables in a year.
    """

    chain: Chain
    lake_gb: float
    backfill_days: float
    backfill_requests: int
    follow_share: float
    day_requests: int
    year_gb: float


def plan(chain: Chain, measured: MeasuredFigures = MEASURED, assumed: Assumptions = ASSUMED) -> ChainPlan:
    """Return the resources that a chain needs.

    Processes count as half of their number: the measured one used two cores. The nodes may be slower.
    """
    process_rows_s = measured.events_s / chain.share * assumed.chain_processes / 2
    rate = min(process_rows_s, assumed.node_rows_s * assumed.node_copies)
    requests = max(chain.events / measured.events_per_request, chain.blocks / measured.blocks_per_request)
    return ChainPlan(
        chain,
        lake_gb=chain.events * measured.event_bytes * chain.share / GB,
        backfill_days=chain.events / rate / DAY_S,
        backfill_requests=math.ceil(requests),
        follow_share=chain.day_events * chain.share / measured.events_s / DAY_S,
        day_requests=2 * chain.day_blocks,
        year_gb=365 * chain.day_events * measured.event_bytes * chain.share / GB,
    )


@dataclass(frozen=True, slots=True)
class Load:
    """Resources that wallets and requests need.

    Attributes:
        snapshot_hours: Hours on two cores for the daily snapshots of all wallets on one chain.
        snapshot_requests: Requests to the nodes of one chain for them.
        snapshot_day_gb: Growth of the snapshots in a day, all chains, in GB.
        api_vcpus: Virtual processors that answer, at the usual utilisation.
        credit_transactions_s: Transactions of credits in a second.
        databases: PostgreSQL servers that credits need.
        ledger_day_gb: Growth of the ledger in a day, in GB.
        egress_month_gb: GB that are sent in a month.
    """

    snapshot_hours: float
    snapshot_requests: int
    snapshot_day_gb: float
    api_vcpus: int
    credit_transactions_s: float
    databases: int
    ledger_day_gb: float
    egress_month_gb: float


def load(measured: MeasuredFigures = MEASURED, assumed: Assumptions = ASSUMED, chains: int = len(CHAINS)) -> Load:
    """Return the resources of wallets and requests. A request reserves credits, and then settles them."""
    transactions_s = 2 * assumed.requests_s / assumed.batch
    return Load(
        snapshot_hours=assumed.wallets * measured.wallet_ms / 1000 / 3600,
        snapshot_requests=math.ceil(assumed.wallets * measured.wallet_requests),
        snapshot_day_gb=assumed.wallets * chains * assumed.holdings * assumed.snapshot_bytes / GB,
        api_vcpus=math.ceil(assumed.requests_s / measured.api_core_s / assumed.utilisation),
        credit_transactions_s=transactions_s,
        databases=math.ceil(transactions_s / assumed.transactions_s / assumed.utilisation),
        ledger_day_gb=assumed.requests_s * DAY_S * assumed.ledger_bytes / GB,
        egress_month_gb=assumed.requests_s * HOURS * 3600 * assumed.answer_bytes / GB,
    )


def bill(
    measured: MeasuredFigures = MEASURED, assumed: Assumptions = ASSUMED, prices: Prices = PRICES
) -> dict[str, float]:
    """Return the monthly bill by item in USD.

    It is for the time after the back-fill, with a year of snapshots and a month of ledger.
    """
    plans = [plan(chain, measured, assumed) for chain in CHAINS]
    need = load(measured, assumed)
    nodes_vcpu = sum(chain.node_vcpu for chain in CHAINS) * assumed.node_copies
    disks = [(min(chain.node_tb, 12.0), max(chain.node_tb - 12.0, 0.0)) for chain in CHAINS]
    tables_gb = sum(each.lake_gb + each.year_gb for each in plans) + 365 * need.snapshot_day_gb
    follow_vcpus = sum(math.ceil(each.follow_share / assumed.utilisation) * 2 for each in plans)
    snapshot_vcpus = math.ceil(need.snapshot_hours * len(plans) / 24) * 2
    commits = sum(each.chain.day_blocks for each in plans) * 30.4 / 100  # a file for about a hundred blocks
    return {
        "nodes: processors": nodes_vcpu * prices.vcpu_h * HOURS,
        "nodes: NVMe": sum(fast for fast, _ in disks) * assumed.node_copies * prices.nvme_tb_month,
        "nodes: one archive of old blocks": sum(old for _, old in disks) * prices.archive_tb_month,
        "workers that follow": follow_vcpus * prices.vcpu_h * HOURS,
        "workers for snapshots": snapshot_vcpus * prices.vcpu_h * HOURS,
        "API": need.api_vcpus * prices.vcpu_h * HOURS,
        "PostgreSQL: processors": (need.databases + 1) * 2 * 8 * prices.vcpu_h * HOURS,
        "PostgreSQL: a month of ledger": 2 * 30.4 * need.ledger_day_gb * prices.disk_gb_month,
        "object store: tables": tables_gb * prices.object_gb_month,
        "object store: writes": commits * 10 / 1000 * prices.puts_1000,
        "answers sent": need.egress_month_gb * prices.egress_gb,
    }


def queue_rows_s(workers: int, jobs: int, look_every_s: float) -> float:
    """Return the rows of jobs that a queue's database reads in a second while workers look for due work."""
    return workers * jobs / look_every_s
