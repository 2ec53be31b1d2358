"""Check that transactions of accounts are complete, by their state at both ends of a window.

A list of transactions can be silently incomplete: one page only, behind the head, or from a node without an index. The
nonce counts the sent transactions, and the native coins are the sum of all transfers. Both cost one request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chainfolio.adapters.evm.accounts import state
from chainfolio.adapters.evm.accounts.active_blocks import AccountState
from chainfolio.adapters.evm.accounts.bodies import Body
from chainfolio.adapters.evm.datasets.internal import CoinTransfer
from chainfolio.adapters.evm.node import Node
from chainfolio.blocks import Span
from chainfolio.errors import HistoryUnavailable, UnsupportedMethod
from chainfolio.transport.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The state of one account before a window and at its end."""

    account: str
    before: AccountState
    after: AccountState

    def missing_count(self, bodies: Mapping[int, Body]) -> int:
        """Return how many more transactions the account sent than `bodies` have; negative if fewer."""
        own_count = sum(body.sent_count(self.account) for body in bodies.values())
        return self.after.nonce - self.before.nonce - own_count

    def unexplained_coins(self, bodies: Mapping[int, Body], transfers: Mapping[int, Sequence[CoinTransfer]]) -> int:
        """Return the change of raw coins that transactions and transfers do not explain; may be negative."""
        explained = sum(body.coin_change(self.account) for body in bodies.values())
        explained += sum(net_coins(each, self.account) for each in transfers.values())
        return self.after.coins - self.before.coins - explained


async def read_boundaries(
    node: Node, span: Span, accounts: Sequence[str], hashes: Mapping[int, str]
) -> list[Boundaries]:
    """Read the accounts' states before a window and at its end; an empty list if no endpoint has them.

    Args:
        node: The chain's endpoints.
        span: The window.
        accounts: Addresses in lower case.
        hashes: Block hashes by height, for blocks that are not final.

    Raises:
        SourceError: No endpoint answers.
    """
    low = max(0, span.first - 1)

    async def at(endpoint: Endpoint) -> list[AccountState]:
        probes = [(account, height) for account in accounts for height in (low, span.last)]
        return await state.read_states(endpoint, probes, hashes)

    try:
        states = await node.with_any(at, kind="account ends")
    except (HistoryUnavailable, UnsupportedMethod):
        return []
    return [Boundaries(*each) for each in zip(accounts, states[::2], states[1::2], strict=True)]


def net_coins(transfers: Sequence[CoinTransfer], account: str) -> int:
    """Return the raw coins that transfers gave to an account, less those that they took."""
    return sum(each.raw * ((each.recipient == account) - (each.sender == account)) for each in transfers)
