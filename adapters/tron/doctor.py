"""What `chainfolio doctor` shows of a chain's endpoints: who they are, how far they are, what they serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adapters.tron.history import LISTS, listed
from adapters.tron.node import Node, TronNode
from adapters.tron.state import newest
from chainfolio.chains import Heads
from chainfolio.errors import SourceError
from transport.examination import examined

if TYPE_CHECKING:
    from adapters.tron.chain import TronChain


async def examine(chain: TronChain) -> list[dict[str, Any]]:
    """A row for each endpoint, in the order of the settings."""
    node, unproven = chain.node, ["receipts and state: their answers carry no proof"]

    async def abilities(one: Node, heads: Heads) -> dict[str, Any]:
        (endpoint,) = one.endpoints
        return {
            "tokens": await _serves_tokens(endpoint),
            "accountLists": chain.settings.trongrid and await _lists(endpoint),
            "oldBlocks": await _has_old_blocks(endpoint),
        }

    return await examined(node, unproven, lambda each: Node(node.facts, [each], node.seams), abilities)


async def _serves_tokens(endpoint: TronNode) -> bool:
    """Whether contracts can be called by `/jsonrpc`, which nodes do not serve unless they are told to."""
    try:
        await newest(endpoint)
    except SourceError:
        return False
    return True


async def _lists(endpoint: TronNode) -> bool:
    """Whether TronGrid's lists of accounts are served."""
    try:
        await listed(endpoint, LISTS[0], "T9yD14Nj9j7xAB4dbGeiX9h8unkKHxuWwb", 0, 1)
    except SourceError:
        return False
    return True


async def _has_old_blocks(endpoint: TronNode) -> bool:
    """Whether the receipts of old blocks are there: light nodes have none."""
    try:
        await endpoint.told("/wallet/gettransactioninfobyblocknum", {"num": 1}, list[Any])
        return await endpoint.header("/wallet/getblock", 1) is not None
    except SourceError:
        return False
