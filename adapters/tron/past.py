"""What accounts had of the native coin at a past block, where a node keeps that: few do, and it says nothing of tokens.

A node answers with the block in which the balance last changed. One that keeps no such history does not refuse: it
answers as of an account that never had anything. So nothing is never believed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

import msgspec

from adapters.tron.addresses import in_hex
from adapters.tron.forms import HALF, Hash, Number
from adapters.tron.node import Node, TronNode
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer, NodeBehind, Unsupported

PATH: Final = "/wallet/getaccountbalance"


class Place(msgspec.Struct):
    """A block, by both its names."""

    hash: Hash
    number: Number = 0


class Changed(msgspec.Struct):
    """To what a balance changed, and where."""

    block_identifier: Place
    balance: Number = 0


async def coins_at(node: Node, accounts: Collection[str], block: Block) -> Mapping[str, int]:
    """What accounts had at a block; those of which the node tells nothing are left out."""
    try:
        return await node.with_any(partial(_all, sorted(accounts), block), kind="past")
    except (BadAnswer, NodeBehind, Unsupported):  # what moved since tells it too
        return {}


async def _all(accounts: Collection[str], block: Block, endpoint: TronNode) -> Mapping[str, int]:
    found = await asyncio.gather(*(_one(endpoint, each, block) for each in accounts))
    return {account: sun for account, sun in zip(accounts, found, strict=True) if sun}


async def _one(endpoint: TronNode, account: str, block: Block) -> int:
    asked = {
        "account_identifier": {"address": in_hex(account)},
        "block_identifier": {"hash": block.hash, "number": block.height},
    }
    told = await endpoint.told(PATH, asked, Changed)
    since = told.block_identifier
    is_block = int(since.hash[:HALF], 16) == since.number and (since.hash == block.hash or since.number < block.height)
    if told.balance < 0 or not is_block:
        raise BadAnswer(endpoint.name, f"gives what {account} had at block {since.number} for block {block.height}")
    return told.balance
