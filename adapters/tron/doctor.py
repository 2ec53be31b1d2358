"""Rows of `chainfolio doctor` about endpoints: identity, height, and the served parts of the API."""

from __future__ import annotations

from typing import Any

from chainfolio.adapters.tron.history import LISTS, list_transactions
from chainfolio.adapters.tron.node import Node, TronNode
from chainfolio.adapters.tron.state import newest_block
from chainfolio.chain_results import Heads
from chainfolio.errors import SourceError
from chainfolio.transport.endpoint_report import report_endpoints

ANY_ACCOUNT = "T9yD14Nj9j7xAB4dbGeiX9h8unkKHxuWwb"


async def examine(node: Node, *, trongrid: bool) -> list[dict[str, Any]]:
    """Return one row per endpoint, in the order of the settings. Errors are part of the rows.

    Columns of Tron are `tokens`, `accountLists` and `oldBlocks`: True if the endpoint serves them.

    Args:
        node: The endpoints.
        trongrid: Try the lists of accounts, which only TronGrid serves.
    """
    unproven = ["receipts and state: their answers carry no proof"]

    async def abilities(single: Node, heads: Heads) -> dict[str, object]:
        (endpoint,) = single.endpoints
        return {
            "tokens": await _serves_calls(endpoint),
            "accountLists": trongrid and await _serves_lists(endpoint),
            "oldBlocks": await _has_old_blocks(endpoint),
        }

    return await report_endpoints(node, unproven, lambda each: Node(node.facts, [each], node.environment), abilities)


async def _serves_calls(endpoint: TronNode) -> bool:
    """Return True if contracts can be called by `/jsonrpc`, which nodes do not serve by default."""
    try:
        await newest_block(endpoint)
    except SourceError:
        return False
    return True


async def _serves_lists(endpoint: TronNode) -> bool:
    """Return True if TronGrid's lists of accounts are served."""
    try:
        await list_transactions(endpoint, LISTS[0], ANY_ACCOUNT, 0, 1)
    except SourceError:
        return False
    return True


async def _has_old_blocks(endpoint: TronNode) -> bool:
    """Return True if old blocks and their receipts are served: light nodes have none."""
    try:
        await endpoint.read_typed("/wallet/gettransactioninfobyblocknum", {"num": 1}, list[Any])
        return await endpoint.header("/wallet/getblock", 1) is not None
    except SourceError:
        return False
