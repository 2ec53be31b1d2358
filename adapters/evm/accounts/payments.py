"""What the protocol itself paid accounts: no transaction and no trace tells of it, and only the blocks say so.

What an account has, less all that is known to have come and gone, rises only where something else came. So the blocks
are found as in `search`, over this difference: in rounds that grow with the logarithm of the window.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from adapters.evm.accounts import state
from adapters.evm.accounts.bodies import Body
from adapters.evm.accounts.ends import Ends, gained
from adapters.evm.accounts.search import Change, Probe, changes
from adapters.evm.datasets.internal import Moved
from adapters.evm.datasets.withdrawals import GWEI
from adapters.evm.facts import WITHDRAWALS, Facts
from adapters.evm.node import Header, Node
from chainfolio.blocks import Span
from transport.endpoint import Endpoint


def paid_in(headers: Sequence[Header], account: str, facts: Facts) -> int:
    """What validators withdrew to an account in some blocks."""
    if WITHDRAWALS not in facts.pays:
        return 0
    every = (each for header in headers for each in header.withdrawals or ())
    return GWEI * sum(int(each.amount, 16) for each in every if each.address.lower() == account)


async def payments(
    node: Node, span: Span, ends: Sequence[Ends], bodies: Mapping[int, Body], inside: Mapping[int, Sequence[Moved]]
) -> list[Change[int]]:
    """The blocks of a window in which accounts got more, or less, than bodies and calls explain."""
    known = {each.account: _Known(each.account, bodies, inside) for each in ends}
    accounts = [*known]

    async def at(endpoint: Endpoint) -> list[Change[int]]:
        async def read(probes: Sequence[Probe]) -> list[int]:
            coins = await state.coins(endpoint, probes)
            return [raw - known[account].until(height) for raw, (account, height) in zip(coins, probes, strict=True)]

        found: list[Change[int]] = []
        left: Span | None = span
        while left is not None:
            window, some = await changes(
                read, accounts, left, at_once=lambda: state.at_once(endpoint, 1), most=lambda: state.MOST
            )
            found += some
            left = Span(window.last + 1, span.last) if window.last < span.last else None
        return found

    return await node.with_any(at, kind="account payments")


class _Known:
    """What is known to have changed the coins of one account, up to each height."""

    def __init__(self, account: str, bodies: Mapping[int, Body], inside: Mapping[int, Sequence[Moved]]) -> None:
        self.heights = sorted(bodies)
        steps = (bodies[height].paid(account) + gained(inside.get(height, ()), account) for height in self.heights)
        self.sums = [0, *accumulate(steps)]

    def until(self, height: int) -> int:
        """All of it, up to a height."""
        return self.sums[bisect_right(self.heights, height)]
