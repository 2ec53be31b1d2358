"""A limit on the time of reading one chain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from chainfolio.errors import Unavailable


@asynccontextmanager
async def time_limit(chain: str, limit_s: float) -> AsyncIterator[None]:
    """Limit the time of the block.

    Raises:
        Unavailable: The block took longer; the error names the chain.
    """
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError:
        raise Unavailable(chain, f"it could not be read within {limit_s:g} s", retry_after_s=5) from None
