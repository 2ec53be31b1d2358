"""Estimate the cost of reading accounts, from their nonces and one window of logs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from chainfolio.adapters.evm.accounts import state
from chainfolio.adapters.evm.accounts.boundary_check import read_boundaries
from chainfolio.adapters.evm.accounts.logs import AccountLogs
from chainfolio.adapters.evm.accounts.transactions import TransactionReader
from chainfolio.adapters.evm.accounts.windows import MAX_PIECES
from chainfolio.adapters.evm.datasets.registry import DATASETS
from chainfolio.adapters.evm.node import raw_blocks
from chainfolio.blocks import Span
from chainfolio.chain_results import Forecast
from chainfolio.errors import HistoryUnavailable, UnsupportedMethod
from chainfolio.transport.endpoint import Endpoint

BLOCK_METHOD = "eth_getBlockByNumber"
SAMPLE_DIVISOR, MAX_WHOLE_SPAN = 10, 10_000  # a tenth of a span is sampled; shorter spans are read whole
PROBE_BATCH = 30  # calls in one batch, to learn whether the endpoint accepts so many
DEFAULT_BATCH, BATCH_FILL = 500, 0.85  # calls of a batch if no endpoint has a limit; share of a batch that is used
SETUP_REQUESTS = 12  # to learn an endpoint's capabilities, and for blocks that are not final
REREAD_CALLS = 60  # that read parts of a window of logs again
LOG_UNITS, OTHER_UNITS = 60, 20  # compute units of one `eth_getLogs`, and of any other call
LOG_BYTES, STATE_BYTES, RECEIPT_BYTES = 900, 250, 3_000  # estimates, including the request
HEADER_DIVISOR = 8  # a header with transaction hashes is so much smaller than its block
PROBES_PER_CHANGE = 4  # nonce and coins before and after a block that logs name
READ_FACTOR, SAMPLED_FACTOR = 2.0, 3.0  # accuracy of estimates from the whole span, and from a sample


async def forecast(
    account_logs: AccountLogs,
    transactions: TransactionReader,
    span: Span,
    accounts: Sequence[str],
    datasets: Sequence[str],
) -> Forecast:
    """Estimate the cost of reading accounts in a span of final blocks, with at most 20 requests.

    If no endpoint has the state that a search for transactions needs, their datasets are `unread`.

    Raises:
        SourceError: No endpoint gives a block or a window of logs.
    """
    node = transactions.node
    window, logs = await account_logs.read_window(_sample(span), accounts)
    blocks = await node.with_any(lambda endpoint: raw_blocks(endpoint, [span.last], BLOCK_METHOD, True))
    block_bytes = len(blocks[0])
    log_heights = sorted(set(logs.height.tolist()))
    await node.with_any(lambda endpoint: _probe_batch(endpoint, span, log_heights), kind="headers")
    share = len(span) / len(window)
    height_count, log_count = math.ceil(len(log_heights) * share), math.ceil(len(logs) * share)
    needs_logs, needs_transactions = (
        any(DATASETS[name].by_account == source for name in datasets) for source in ("logs", "places")
    )
    unread: tuple[str, ...] = ()
    tx_count, method = 0, ""
    if needs_transactions:
        boundaries = await read_boundaries(node, span, accounts, {})
        tx_count = sum(max(0, each.after.nonce - each.before.nonce) for each in boundaries)
        try:
            method = (await transactions.find_active_blocks(Span(span.last, span.last), accounts)).method
        except (HistoryUnavailable, UnsupportedMethod):
            unread = tuple(sorted(name for name in datasets if DATASETS[name].by_account == "places"))
    pieces = math.ceil(len(span) / len(window) * min(MAX_PIECES, account_logs.piece_count(window)))
    log_calls = 3 * pieces + REREAD_CALLS * math.ceil(pieces / MAX_PIECES) if needs_logs else 0
    header_calls = height_count if needs_logs else 0
    state_calls = _state_calls(span, tx_count, height_count) if method == state.METHOD else 0
    calls = log_calls + header_calls + state_calls + 2 * tx_count
    batch = min((each.capabilities.get("max_batch", DEFAULT_BATCH) for each in node.endpoints), default=DEFAULT_BATCH)
    return Forecast(
        rows=(log_count if needs_logs else 0) + tx_count,
        requests=SETUP_REQUESTS + math.ceil(calls / (BATCH_FILL * batch)),
        calls=calls,
        units=LOG_UNITS * log_calls + OTHER_UNITS * (calls - log_calls),
        bytes=(
            LOG_BYTES * log_count
            + header_calls * block_bytes // HEADER_DIVISOR
            + STATE_BYTES * (state_calls + log_calls)
            + tx_count * (block_bytes + RECEIPT_BYTES)
        ),
        sampled=len(window),
        factor=READ_FACTOR if window == span else SAMPLED_FACTOR,
        unread=unread,
    )


def _sample(span: Span) -> Span:
    """Return the middle of a span, or all of it if it is short."""
    if len(span) <= MAX_WHOLE_SPAN:
        return span
    size = max(MAX_WHOLE_SPAN, len(span) // SAMPLE_DIVISOR)
    first = span.first + (len(span) - size) // 2
    return Span(first, first + size - 1)


async def _probe_batch(endpoint: Endpoint, span: Span, heights: Sequence[int]) -> None:
    """Read `PROBE_BATCH` headers in one batch, so that the endpoint's limit becomes known."""
    await raw_blocks(endpoint, [*heights, *range(span.first, span.last + 1)][:PROBE_BATCH], BLOCK_METHOD, False)


def _state_calls(span: Span, tx_count: int, hint_count: int) -> int:
    """Estimate the calls of a search by state: four per change that logs hint at, more for others.

    At least a tenth of the transactions count as others.
    """
    unhinted = max(tx_count - hint_count, tx_count // 10)
    rounds = math.ceil(math.log2(max(2, len(span) / max(1, tx_count))))
    return PROBES_PER_CHANGE * tx_count + PROBES_PER_CHANGE * rounds * unhinted
