"""Loops that wait for answers have a bound, and it is written here: a node that lies must not prolong them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("adapters", "transport", "indexer", "pricing", "engine", "exports", "agents", "alerts", "chainfolio")
SERVICE = "ends with its task; each turn sleeps or waits for a step"
HALVES = "halves the heights between two ends"
PIECES = "each piece ends behind its beginning, up to the end of the span"
# Each function with such a `while`, and its bound for any answers.
BOUNDS = {
    "adapters/beacon/selection.py::_scan_registry": "MAX_VALIDATORS",
    "adapters/beacon/correlation.py::_balance_when_slashed": HALVES,
    "adapters/beacon/epochs.py::settle_epochs": "takes the epochs that it is given",
    "adapters/beacon/events.py::_listen": SERVICE,
    "adapters/beacon/registry.py::_read_pages": "MAX_VALIDATORS",
    "adapters/evm/accounts/bodies.py::at": "takes the heights that it is given",
    "adapters/evm/accounts/history.py::_recover_logs": PIECES,
    "adapters/evm/accounts/logs.py::_read_span": PIECES,
    "adapters/evm/accounts/otterscan.py::find_active_blocks": "each page follows the one before; MAX_TRANSACTIONS",
    "adapters/evm/accounts/payments.py::at": PIECES,
    "adapters/evm/accounts/search.py::find_changes": "halves intervals, of which `max_changes` are kept",
    "adapters/evm/accounts/windows.py::read": "asks for strictly less, down to one block",
    "adapters/evm/spans.py::_logs": "cuts pieces that are refused, down to one block",
    "adapters/solana/stake_histories.py::_read_histories": "MAX_STAKES",
    "adapters/starknet/changes.py::find_changes": "halves intervals, down to one block; MAX_INTERVALS",
    "adapters/starknet/changes.py::count_transactions": HALVES,
    "adapters/starknet/history.py::_search_endpoint": HALVES,
    "adapters/starknet/event_search.py::search_filter": "smaller pages, fewer accounts, fewer blocks; MAX_PAGES each",
    "adapters/starknet/node.py::_search_accepted": "doubles its step below the head; then halves",
    "alerts/delivery.py::run_once": "ends when nothing is due; a failed target is due later",
    "alerts/transactions.py::_transactions": "each page begins behind the one before; asks the index",
    "chainfolio/block_search.py::block_before": "MAX_SKIPPED; each round cuts the heights between two blocks",
    "chainfolio/block_search.py::blocks_before": "MAX_SKIPPED; each round cuts the heights between two blocks",
    "chainfolio/chain_blocks.py::newest_block_in": "MAX_SKIPPED",
    "chainfolio/plans.py::run_batched": "MAX_ROUNDS and MAX_READS of each plan",
    "chainfolio/supervisor.py::_run": SERVICE,
    "chainfolio/supervisor.py::repeated": SERVICE,
    "engine/history/day_blocks.py::final_before": "takes the days that it is given",
    "engine/stored_prices/past_prices.py::_read": "fewer blocks each round, or an error",
    "engine/requests/transactions.py::transaction_pages": "each page begins behind the one before; asks the index",
    "engine/reconcile/reconciler.py::_search": "halves the movements of each asset; --max-requests",
    "engine/reconcile/current_balances.py::_histories": PIECES,
    "engine/snapshots/replay.py::_collect_recent": PIECES,
    "engine/history/schedule.py::run": SERVICE,
    "engine/history/joint_reads.py::_exchange": "fewer blocks each round, or an error",
    "chainfolio/supervisor.py::_wait_until_done": "ends with the thread or task that it waits for",
    "engine/lake_sql.py::_checked": "each query compares files once, after the queries before it",
    "indexer/collect.py::_chunks": "takes the pieces of its span",
    "indexer/collect.py::_of_accounts": PIECES,
    "indexer/collect.py::work_here": "takes the pieces of its span",
    "indexer/collect.py::work_in": "takes the pieces of its span",
    "indexer/follow.py::_add_group": PIECES,
    "indexer/follow.py::_undo": HALVES,
    "indexer/follow.py::run": SERVICE,
    "indexer/queue_follower.py::_follow": SERVICE,
    "indexer/queue_follower.py::_keep": SERVICE,
    "indexer/queue_worker.py::_locked": "LOCK_WAIT_S",
    "indexer/queue_worker.py::_look_after": SERVICE,
    "indexer/queue_worker.py::run": SERVICE,
    "indexer/reorg_recovery.py::_first_gone": HALVES,
    "indexer/worker.py::_chain": SERVICE,
    "indexer/worker.py::_follow": SERVICE,
    "indexer/worker.py::_keep": SERVICE,
    "indexer/worker.py::_recovered_from_reorg": SERVICE,
    "indexer/worker_process.py::_serve": "ends with the connection of its parent",
    "transport/endpoint.py::ask_unchecked": "takes the given requests; a refused part is halved, down to one",
    "transport/exchange.py::take": "the room of a body",
    "transport/http_endpoint.py::_first_response": "MAX_SENT; each try has its time",
    "transport/http_connection.py::_connect_first": "takes the addresses that it is given",
    "transport/http_connection.py::read_until": "the length of a line",
    "transport/pacing.py::turn": SERVICE,
    "transport/plain_http.py::_read": "the room of a body",
    "transport/plain_http.py::_read_chunks": "the length of a head",
    "transport/plain_http.py::_read_bytes": "the length of the body",
    "transport/pool.py::_poll": "takes its endpoints",
    "transport/pool.py::with_any": "takes its endpoints, BEHIND_TRIES times",
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def loops(node: ast.AST, function: str = "") -> Iterator[str]:
    """Return the innermost function of each `while` that awaits something."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.While) and any(isinstance(each, ast.Await | ast.AsyncFor) for each in ast.walk(child)):
            yield function
        yield from loops(child, child.name if isinstance(child, Function) else function)


def test_every_loop_that_waits_for_answers_has_a_bound() -> None:
    loop_counts = Counter[str]()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            loop_counts.update(f"{name}::{function}" for function in loops(ast.parse(path.read_text())))
    missing = sorted(loop_counts.keys() - BOUNDS.keys())
    assert missing == [], "a node that never stops answering must not keep it going: bound it, and name the bound here"
    assert sorted(BOUNDS.keys() - loop_counts.keys()) == [], "these loops are gone"
