"""The slots of a beacon chain and the blocks at them; a missed slot has no block."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from chainfolio.adapters.beacon.node import BeaconNode, Nodes, read_spec
from chainfolio.adapters.beacon.reader import gather_all
from chainfolio.adapters.beacon.responses import (
    Checkpoints,
    Header,
    StateResponse,
)
from chainfolio.adapters.beacon.spec import Spec
from chainfolio.blocks import Block
from chainfolio.chain_results import Heads
from chainfolio.errors import BadAnswer, NoBlock, NodeBehind, Unavailable
from chainfolio.transport.rest import ResourceNotFound


class Slots:
    """Reads heads and blocks. Its methods raise SourceError if no node answers.

    Attributes:
        head: The newest block of the last `heads`; None before.
    """

    def __init__(self, key: str, nodes: Nodes) -> None:
        self.key, self.nodes = key, nodes
        self.head: Block | None = None
        self._spec: Spec | None = None
        self._final = -1

    async def spec(self) -> Spec:
        """Return the specification of the network; the first call reads it, and checks nodes that answer.

        Raises:
            WrongChain: A node is of another network than the facts.
        """
        if self._spec is None:
            spec = await read_spec(self.nodes)
            for node in self.nodes.endpoints:  # all are checked, to report a wrong setting at once
                with suppress(Unavailable):
                    await node.ensure_handshake()
            self._spec = spec
        return self._spec

    async def heads(self) -> Heads:
        """Return the newest block and the first slot of the newest final epoch, which never falls.

        Both are stored.
        """
        spec = await self.spec()

        async def read(node: BeaconNode) -> tuple[int, Block]:
            checkpoints = await node.read("/eth/v1/beacon/states/head/finality_checkpoints", Checkpoints)
            head = self._block_of(spec, await node.read("/eth/v1/beacon/headers/head", Header))
            node.health.height, node.health.head_us = head.height, head.time_us
            return checkpoints.finalized.epoch, head

        epoch, head = await self.nodes.with_any(read, kind="heads")
        self.head = head
        self._final = max(self._final, epoch * spec.slots_per_epoch)
        return Heads(head, self._final)

    def is_final(self, height: int) -> bool:
        """Return True if a slot is final according to the last `heads`."""
        return height <= self._final

    def _block_of(self, spec: Spec, header: Header) -> Block:
        message = header.header.message
        return Block(message.slot, header.root.lower(), message.parent_root.lower(), spec.time_us(message.slot))

    async def block(self, height: int) -> Block:
        """Return the block at a slot.

        Raises:
            NoBlock: The slot was missed.
            NodeBehind: The chain has not reached the slot.
            Unavailable: The node's answer is not final or not canonical, although the slot is.
        """
        spec = await self.spec()
        try:
            response = await self.nodes.fetch(f"/eth/v1/beacon/headers/{height}", Header)
        except ResourceNotFound:
            await self.check_reached(height)
            raise NoBlock(self.key, height) from None
        return self._checked_block(spec, height, response)

    def _checked_block(self, spec: Spec, height: int, response: StateResponse[Header]) -> Block:
        """Return the block of a header.

        Raises BadAnswer for another slot, Unavailable if it is not canonical, or not final any more.
        """
        block = self._block_of(spec, response.data)
        if block.height != height:
            raise BadAnswer(self.key, f"the header of slot {block.height} in the place of {height}")
        if not response.data.canonical:
            raise Unavailable(self.key, f"the header of slot {height} is not on the node's own chain")
        if self.is_final(height) and response.finalized is False:
            raise Unavailable(self.key, f"the node calls slot {height} not final any more: one of its nodes is behind")
        return block

    async def check_reached(self, height: int) -> None:
        """Check that the chain has reached a slot; the head is read again if the last one read is older.

        Raises:
            NodeBehind: The newest block is of an earlier slot.
        """
        newest = self.head
        if newest is None or height > newest.height:
            newest = (await self.heads()).latest
        if height > newest.height:
            reason = f"slot {height} is not there yet: the newest block is that of slot {newest.height}"
            raise NodeBehind(self.key, reason)

    async def blocks(self, heights: Sequence[int]) -> list[Block]:
        """Return the blocks at some slots, in order and without missed ones.

        All errors of `block` but NoBlock are raised.
        """
        if heights:
            await self.check_reached(max(heights))

        async def read(height: int) -> Block | None:
            try:
                return await self.block(height)
            except NoBlock:
                return None

        return [block for block in await gather_all(read(height) for height in heights) if block is not None]
