"""Whether what was found of accounts can be all of it: their state at both ends of a window, held against what was
found between them.

A list of what accounts did can be short without a word: of one page, behind the head, of a node that has no index for
it. Nonces count what an account sent, and its native coins are the sum of what came and went; both cost one request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adapters.evm.accounts import state
from adapters.evm.accounts.bodies import Body
from adapters.evm.accounts.touched import Status
from adapters.evm.datasets.internal import Moved
from adapters.evm.node import Node
from chainfolio.blocks import Span
from chainfolio.errors import HistoryUnavailable, Unsupported
from transport.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class Ends:
    """One account before a window and at its end."""

    account: str
    before: Status
    after: Status

    def unsent(self, bodies: Mapping[int, Body]) -> int:
        """How many more transactions the account sent than were found."""
        sent = [done for body in bodies.values() for done in body.own if done.sent.sender.lower() == self.account]
        return self.after.nonce - self.before.nonce - len(sent)

    def unmoved(self, bodies: Mapping[int, Body], inside: Mapping[int, Sequence[Moved]]) -> int:
        """How many more coins came than what was found explains; less than nothing where they went."""
        paid = sum(body.paid(self.account) for body in bodies.values())
        moved = sum(gained(moves, self.account) for moves in inside.values())
        return self.after.coins - self.before.coins - paid - moved


async def ends_of(node: Node, span: Span, accounts: Sequence[str], hashes: Mapping[int, str]) -> list[Ends]:
    """The accounts at both ends of a window, by any endpoint that has such state; none where none has."""
    low = max(0, span.first - 1)

    async def at(endpoint: Endpoint) -> list[Status]:
        return await state.statuses(
            endpoint, [(each, height) for each in accounts for height in (low, span.last)], hashes
        )

    try:
        found = await node.with_any(at, kind="account ends")
    except (HistoryUnavailable, Unsupported):
        return []
    return [Ends(*each) for each in zip(accounts, found[::2], found[1::2], strict=True)]


def gained(moves: Sequence[Moved], account: str) -> int:
    """What some movements changed of an account's coins."""
    return sum(each.raw * ((each.recipient == account) - (each.sender == account)) for each in moves)
