"""What a chain of a third-party package gives is looked at before it is stored: rows of another chain, of other heights
or in other columns would be there for ever. Those of ours are held to it by their tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import TYPE_CHECKING

from chainfolio.errors import BadAnswer
from chainfolio.kinds import ours
from chainfolio.tables import TABLES

if TYPE_CHECKING:
    import pyarrow as pa

    from chainfolio.blocks import Span
    from chainfolio.chains import Chain, Collected


async def checked(
    chain: Chain, asked: Span, read: Callable[[], Awaitable[Collected]], *, whole: bool = True
) -> Collected:
    """What `collect` gives of a span, or `collect_accounts` of one that may end earlier. BadAnswer where it is not what
    was asked for. Nothing is begun before this runs: a task that is cancelled early leaves nothing behind."""
    collected = await read()
    if chain.kind not in ours() and (fault := _fault(chain.key, asked, collected, whole)):
        raise BadAnswer(chain.key, f"its package gives what nobody asked for: {fault}")
    return collected


def _fault(chain: str, asked: Span, collected: Collected, whole: bool) -> str:
    given = collected.span
    if given.first != asked.first or given.last > asked.last or (whole and given.last != asked.last):
        return f"blocks {given.first}..{given.last} in the place of {asked.first}..{asked.last}"
    heights = [block.height for block in collected.chain]
    if any(block.height not in given for block in (*collected.chain, collected.last) if block is not None):
        return f"a block outside of {given.first}..{given.last}"
    if any(later <= former for former, later in pairwise(heights)):
        return "blocks out of order"
    return next(filter(None, (_rows_fault(chain, given, name, rows) for name, rows in collected.tables.items())), "")


def _rows_fault(chain: str, given: Span, name: str, rows: pa.Table) -> str:
    import pyarrow.compute as pc

    if name not in TABLES or rows.schema != TABLES[name].schema():
        return f"rows of `{name}`, which is no table here or one of other columns"
    if not len(rows):
        return ""
    if not pc.all(pc.equal(rows["chain"], chain)).as_py():
        return f"rows of `{name}` that belong to another chain"
    ends = pc.min_max(rows["height"])
    if ends["min"].as_py() < given.first or ends["max"].as_py() > given.last:
        return f"rows of `{name}` outside of blocks {given.first}..{given.last}"
    return ""
