"""Chains and blocks that a request names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainfolio.blocks import Block
from chainfolio.capabilities import Capability
from chainfolio.errors import (
    BadRequest,
    HistoryUnavailable,
    NoBlock,
    NodeBehind,
    NotSupported,
)

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.indexer.parts import Chains
    from chainfolio.storage.tail import Tail


def configured_chain(system: Chains, chain: str, subject: str) -> Chain:
    """Return the chain with a key, if it has accounts.

    Args:
        subject: What was requested (such as "approvals"), for the errors.

    Raises:
        NotSupported: The chain is not configured, or it has validators and no accounts.
    """
    if chain not in system.settings.chains:
        remedy = f"the operator adds [chains.{chain}] to the settings"
        raise NotSupported(f"{subject} of {chain}", f"No chain {chain} is configured", remedy=remedy)
    configured = system.chain(chain)
    if Capability.VALIDATORS in configured.capabilities:
        raise NotSupported(f"{subject} of {chain}", f"The chain {chain} has validators, and no accounts")
    return configured


async def checked_block(tail: Tail, chain: Chain, height: int) -> Block:
    """Return a block of a chain, which need not be indexed.

    Raises:
        BadRequest: The height is above the head, or has no block.
        HistoryUnavailable: The node lacks the block although its head is higher.
        SourceError: The node could not be read.
    """
    await _check_height(tail, chain, height)
    return await block_at(chain, height)


async def block_at(chain: Chain, height: int) -> Block:
    """Return a block of a chain.

    Raises:
        BadRequest: The height was skipped: the chain has no block there.
        HistoryUnavailable: The node lacks the block although its head has reached it.
        SourceError: The node could not be read, or has not reached the height.
    """
    try:
        return await chain.block(height)
    except NoBlock as error:
        raise BadRequest("blockNumber", error.reason, remedy=error.remedy) from None
    except NodeBehind as error:
        if (await chain.heads()).latest.height < height:
            raise
        raise HistoryUnavailable(error.source, height, error.reason) from error


async def _check_height(tail: Tail, chain: Chain, height: int) -> None:
    """Raise BadRequest if a height is above the head; the node is read only if it is not followed yet."""
    top = tail.top(chain.key)
    if top is not None and height <= top.height:
        return
    head = (await chain.heads()).latest.height
    if height > head:
        raise BadRequest("blockNumber", f"block {height} is above the head of {chain.key}, which is block {head}")
