"""Balances of the native coin at a past block, from the few nodes that keep them.

A node answers with the block in which the balance last changed. A node without this history does not refuse: it answers
zero. A balance of zero is therefore never trusted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

import msgspec

from chainfolio.adapters.tron.addresses import hex_address
from chainfolio.adapters.tron.forms import HEIGHT_DIGITS, Hash, Uint63
from chainfolio.adapters.tron.node import Node, TronNode
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer, NodeBehind, UnsupportedMethod

PATH: Final = "/wallet/getaccountbalance"


class BlockIdentifier(msgspec.Struct):
    """A block by its id and its height."""

    hash: Hash
    number: Uint63 = 0


class PastBalance(msgspec.Struct):
    """A balance in sun, and the block in which it last changed."""

    block_identifier: BlockIdentifier
    balance: Uint63 = 0


async def coins_at(node: Node, accounts: Collection[str], block: Block) -> Mapping[str, int]:
    """Return the coins of accounts at a block, in sun. Accounts with zero or unknown coins are omitted.

    Raises:
        Unavailable: No endpoint answers.
    """
    try:
        return await node.with_any(partial(_read_balances, sorted(accounts), block), kind="past")
    except (BadAnswer, NodeBehind, UnsupportedMethod):  # the balance can also be computed from later transfers
        return {}


async def _read_balances(accounts: Collection[str], block: Block, endpoint: TronNode) -> Mapping[str, int]:
    balances = await asyncio.gather(*(_read_balance(endpoint, each, block) for each in accounts))
    return {account: sun for account, sun in zip(accounts, balances, strict=True) if sun}


async def _read_balance(endpoint: TronNode, account: str, block: Block) -> int:
    """Return an account's sun at a block; raise BadAnswer if the node answers about a later block."""
    body = {
        "account_identifier": {"address": hex_address(account)},
        "block_identifier": {"hash": block.hash, "number": block.height},
    }
    response = await endpoint.read_typed(PATH, body, PastBalance)
    changed_at = response.block_identifier
    is_block = int(changed_at.hash[:HEIGHT_DIGITS], 16) == changed_at.number
    is_not_later = changed_at.hash == block.hash or changed_at.number < block.height
    if response.balance < 0 or not is_block or not is_not_later:
        raise BadAnswer(
            endpoint.name, f"gives what {account} had at block {changed_at.number} for block {block.height}"
        )
    return response.balance
