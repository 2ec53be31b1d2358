"""Balances of the native coin at a past block, from the few nodes that keep them.

A node answers with the block in which the balance last changed. A node without this history does not refuse: it answers
zero. A balance of zero is therefore never trusted, and nodes that answered nothing else are not asked for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from chainfolio.adapters.tron.addresses import hex_address
from chainfolio.adapters.tron.forms import HEIGHT_DIGITS, Hash, Uint63
from chainfolio.adapters.tron.node import Node, TronNode
from chainfolio.blocks import Block
from chainfolio.environment import Clock
from chainfolio.errors import BadAnswer, Unavailable, UnsupportedMethod
from chainfolio.transport.rest import ResourceNotFound

PATH: Final = "/wallet/getaccountbalance"
PAUSE_S: Final = 3600  # without requests, after nodes had no balance of any account


class BlockIdentifier(msgspec.Struct):
    """A block by its id and its height."""

    hash: Hash
    number: Uint63 = 0


class PastBalance(msgspec.Struct):
    """A balance in sun, and the block in which it last changed."""

    block_identifier: BlockIdentifier
    balance: Uint63 = 0


@dataclass(slots=True)
class PastCoins:
    """Reads past balances from the nodes of a chain.

    Attributes:
        has_history: Whether nodes have given a balance: then a zero is one of the account.
        paused_until_s: Time of the clock before which no request is sent.
    """

    node: Node
    clock: Clock
    has_history: bool = False
    paused_until_s: float = 0

    async def at(self, accounts: Collection[str], block: Block) -> Mapping[str, int]:
        """Return the coins of accounts at a block, in sun, without zero and unknown ones.

        Nodes that never gave a balance are not asked for PAUSE_S after they gave none or refused. Failed reads are no
        sign of that: the result is empty, and the next call asks again.
        """
        if self.clock.monotonic_s() < self.paused_until_s:
            return {}
        coins: Mapping[str, int] = {}
        try:
            coins = await self.node.with_any(partial(_read_balances, sorted(accounts), block), kind="past")
        except UnsupportedMethod:
            pass
        except (BadAnswer, Unavailable):  # the balance can also be computed from later transfers
            return {}
        self.has_history |= bool(coins)
        if not self.has_history:
            self.paused_until_s = self.clock.monotonic_s() + PAUSE_S
        return coins


async def _read_balances(accounts: Collection[str], block: Block, endpoint: TronNode) -> Mapping[str, int]:
    balances = await asyncio.gather(*(_read_balance(endpoint, each, block) for each in accounts))
    return {account: sun for account, sun in zip(accounts, balances, strict=True) if sun}


async def _read_balance(endpoint: TronNode, account: str, block: Block) -> int:
    """Return an account's sun at a block.

    Raises:
        UnsupportedMethod: The node does not serve past balances.
        BadAnswer: It answers about a later block.
        SourceError: The balance could not be read.
    """
    body = {
        "account_identifier": {"address": hex_address(account)},
        "block_identifier": {"hash": block.hash, "number": block.height},
    }
    try:
        response = await endpoint.read_typed(PATH, body, PastBalance)
    except ResourceNotFound:
        raise UnsupportedMethod(endpoint.name, "it serves no past balances (404)") from None
    changed_at = response.block_identifier
    is_block = int(changed_at.hash[:HEIGHT_DIGITS], 16) == changed_at.number
    is_not_later = changed_at.hash == block.hash or changed_at.number < block.height
    if response.balance < 0 or not is_block or not is_not_later:
        raise BadAnswer(
            endpoint.name, f"gives what {account} had at block {changed_at.number} for block {block.height}"
        )
    return response.balance
