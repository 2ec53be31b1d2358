"""Check rows of third-party chains before they are stored.

Rows of another chain, other heights or other columns could not be removed later. Tests check our own chains.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import TYPE_CHECKING

from chainfolio.errors import BadAnswer
from chainfolio.kinds import builtin_kinds
from chainfolio.tables import TABLES

if TYPE_CHECKING:
    import pyarrow as pa

    from chainfolio.blocks import Span
    from chainfolio.chain_results import SpanTables
    from chainfolio.chains import Chain


async def read_checked(
    chain: Chain, span: Span, read: Callable[[], Awaitable[SpanTables]], *, is_complete: bool = True
) -> SpanTables:
    """Read a span and check the result.

    Args:
        read: Calls `collect` or `collect_accounts`. It is called here, so an early cancellation starts nothing.
        is_complete: The result must reach the end of the span. `collect_accounts` may end earlier.

    Raises:
        BadAnswer: The result of a third-party chain is not what was requested.
    """
    collected = await read()
    if chain.kind not in builtin_kinds() and (fault := _fault(chain.key, span, collected, is_complete)):
        raise BadAnswer(chain.key, f"its package gives data that was not requested: {fault}")
    return collected


def _fault(chain: str, span: Span, collected: SpanTables, is_complete: bool) -> str:
    """Return the first fault of collected blocks and rows, empty if there is none.

    Args:
        span: The requested span. What was read begins there.
        collected: What was read.
        is_complete: True if it must have the whole span; False if it may end earlier.
    """
    read_span = collected.span
    if read_span.first != span.first or read_span.last > span.last or (is_complete and read_span.last != span.last):
        return f"blocks {read_span.first}..{read_span.last} in the place of {span.first}..{span.last}"
    heights = [block.height for block in collected.blocks]
    if any(block.height not in read_span for block in (*collected.blocks, collected.last) if block is not None):
        return f"a block outside of {read_span.first}..{read_span.last}"
    if any(later <= former for former, later in pairwise(heights)):
        return "blocks out of order"
    return next(
        filter(None, (_rows_fault(chain, read_span, name, rows) for name, rows in collected.tables.items())), ""
    )


def _rows_fault(chain: str, span: Span, name: str, rows: pa.Table) -> str:
    """Return why rows do not belong to a span of the chain, empty if they do."""
    import pyarrow.compute as pc

    if name not in TABLES or rows.schema != TABLES[name].schema():
        return f"rows of `{name}`, which is no table here or one of other columns"
    if not len(rows):
        return ""
    if not pc.all(pc.equal(rows["chain"], chain)).as_py():
        return f"rows of `{name}` that belong to another chain"
    ends = pc.min_max(rows["height"])
    if ends["min"].as_py() < span.first or ends["max"].as_py() > span.last:
        return f"rows of `{name}` outside of blocks {span.first}..{span.last}"
    return ""
