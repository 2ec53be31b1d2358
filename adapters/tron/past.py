"""Balances of the native coin at a past block, from the few nodes that keep them.

A node answers with the block in which the balance last changed. A node without this history does not refuse: it answers
zero. A balance of zero is therefore never trusted: other nodes are asked then, and nodes that answered nothing else are
not asked for a while. All balances of one call are from one node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
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
PAUSE_S: Final = 3600  # without requests to a node, after it had no balance of any account
NO_BALANCES: Final = "it gives no balance of any account at a past block"


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
    """Reads past balances from the nodes of a chain."""

    node: Node
    clock: Clock
    _with_history: set[str] = field(default_factory=set)  # URLs of nodes that gave a balance
    _paused_until_s: dict[str, float] = field(default_factory=dict)  # by URL of a node: time of the clock

    async def at(self, accounts: Collection[str], block: Block) -> Mapping[str, int]:
        """Return the coins of accounts at a block, in sun, from one node, without zero and unknown ones.

        A node that never gave a balance is not asked for PAUSE_S after it gave none or refused. Failed reads are no
        sign of that: the result is empty, and the next call asks again.
        """
        try:
            return await self.node.with_any(partial(self._read, sorted(accounts), block), kind="past")
        except (BadAnswer, Unavailable):  # the balance can also be computed from later transfers
            return {}

    async def _read(self, accounts: Sequence[str], block: Block, endpoint: TronNode) -> Mapping[str, int]:
        """Return the coins of accounts at a block from one node, without zeros.

        Raises UnsupportedMethod if the node has never given a balance and gives none, or did so moments ago.
        """
        if self.clock.monotonic_s() < self._paused_until_s.get(endpoint.url, 0):
            raise UnsupportedMethod(endpoint.name, NO_BALANCES)
        try:
            balances = await asyncio.gather(*(_read_balance(endpoint, each, block) for each in accounts))
            coins = {account: sun for account, sun in zip(accounts, balances, strict=True) if sun}
            if not coins and endpoint.url not in self._with_history:
                raise UnsupportedMethod(endpoint.name, NO_BALANCES)
        except UnsupportedMethod:
            if endpoint.url not in self._with_history:
                self._paused_until_s[endpoint.url] = self.clock.monotonic_s() + PAUSE_S
            raise
        self._with_history.add(endpoint.url)
        return coins


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
