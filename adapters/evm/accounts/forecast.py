"""The cost of reading some accounts, from about a dozen requests: their nonces at both ends, and a window of logs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from adapters.evm.accounts import state
from adapters.evm.accounts.ends import ends_of
from adapters.evm.accounts.windows import PIECES
from adapters.evm.datasets.every import DATASETS
from adapters.evm.node import raw_blocks
from chainfolio.blocks import Span
from chainfolio.chains import Forecast
from chainfolio.errors import HistoryUnavailable, Unsupported
from transport.endpoint import Endpoint

if TYPE_CHECKING:
    from adapters.evm.accounts.history import AccountHistory

METHOD = "eth_getBlockByNumber"
SAMPLED, SHORT = 10, 10_000  # one block of so many is in the window of logs; a span of so few is read whole
TOGETHER = 30  # calls in one batch, to learn whether the endpoint takes so many
BATCH, FILLED = 500, 0.85  # calls of a batch where no endpoint has refused any, and how full batches are
GREETING = 12  # requests that find out what the endpoint has, and read blocks that are not final
AGAIN = 60  # calls that read parts of a window of logs again
LOG_UNITS, UNITS = 60, 20  # compute units of `eth_getLogs`, and of other calls
LOG_BYTES, STATE_BYTES, RECEIPT_BYTES = 900, 250, 3_000  # about, with the request
HEADER_SHARE = 8  # a header with the hashes of its transactions is so much smaller than its block
PROBED = 4  # calls for a change whose height logs name: nonce and coins before and after its block
NEAR, FAR = 2.0, 3.0  # how far figures may be off: of accounts whose nonces are known, and of others


async def forecast(history: AccountHistory, span: Span, accounts: Sequence[str], datasets: Sequence[str]) -> Forecast:
    """The cost of some datasets of some accounts in a span of final blocks. It takes at most 20 requests.

    Raises:
        SourceError: no endpoint gives a block or a window of logs.
    """
    node = history.chain.node
    sample = span
    if len(span) > SHORT:
        middle = span.first + (len(span) - max(SHORT, len(span) // SAMPLED)) // 2
        sample = Span(middle, middle + max(SHORT, len(span) // SAMPLED) - 1)
    window, logs = await history.logs.window(sample, accounts)
    body = len((await node.with_any(lambda endpoint: raw_blocks(endpoint, [span.last], METHOD, True)))[0])
    with_logs = sorted(set(logs.height.tolist()))
    await node.with_any(lambda endpoint: _batch(endpoint, span, with_logs), kind="headers")
    share = len(span) / len(window)
    heights, log_count = math.ceil(len(with_logs) * share), math.ceil(len(logs) * share)
    wanted = {DATASETS[name].by_account for name in datasets}
    unread: tuple[str, ...] = ()
    sent, way = 0, ""
    if "places" in wanted:
        ends = await ends_of(node, span, accounts, {})
        sent = sum(max(0, each.after.nonce - each.before.nonce) for each in ends)
        try:
            way = (await history.places.touched(Span(span.last, span.last), accounts)).way
        except (HistoryUnavailable, Unsupported):
            unread = tuple(sorted(name for name in datasets if DATASETS[name].by_account == "places"))
    pieces = math.ceil(len(span) / len(window) * min(PIECES, history.logs.pieces(window)))
    of_logs = 3 * pieces + AGAIN * math.ceil(pieces / PIECES) if "logs" in wanted else 0
    headers = heights if "logs" in wanted else 0
    of_state = _probes(span, sent, heights) if way == state.WAY else 0
    calls = of_logs + headers + of_state + 2 * sent
    batch = min((each.capabilities.get("max_batch", BATCH) for each in node.endpoints), default=BATCH)
    return Forecast(
        rows=(log_count if "logs" in wanted else 0) + sent,
        requests=GREETING + math.ceil(calls / (FILLED * batch)),
        calls=calls,
        units=LOG_UNITS * of_logs + UNITS * (calls - of_logs),
        bytes=(
            LOG_BYTES * log_count
            + headers * body // HEADER_SHARE
            + STATE_BYTES * (of_state + of_logs)
            + sent * (body + RECEIPT_BYTES)
        ),
        sampled=len(window),
        factor=NEAR if window == span else FAR,
        unread=unread,
    )


async def _batch(endpoint: Endpoint, span: Span, heights: Sequence[int]) -> None:
    """Read some headers at once, so that the endpoint says how many calls it takes in one batch."""
    others = range(span.first, span.last + 1)
    await raw_blocks(endpoint, [*heights, *others][:TOGETHER], METHOD, False)


def _probes(span: Span, sent: int, heights: int) -> int:
    """Calls of a search by the state: four for each change that logs name, more for one that is searched."""
    far = max(sent - heights, sent // 10)
    rounds = math.ceil(math.log2(max(2, len(span) / max(1, sent))))
    return PROBED * sent + PROBED * rounds * far
