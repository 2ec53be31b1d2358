"""Find coins that the protocol itself paid to accounts, which no transaction or trace records.

The search follows an account's coins, less all that known transactions and calls explain: this difference only rises
in blocks with such payments. It takes rounds that grow with the logarithm of the window (see `search`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from chainfolio.adapters.evm.accounts import state
from chainfolio.adapters.evm.accounts.bodies import Body
from chainfolio.adapters.evm.accounts.boundary_check import Boundaries, net_coins
from chainfolio.adapters.evm.accounts.search import Change, Probe, find_changes
from chainfolio.adapters.evm.datasets.internal import CoinTransfer
from chainfolio.adapters.evm.datasets.withdrawals import GWEI
from chainfolio.adapters.evm.facts import WITHDRAWALS, Facts
from chainfolio.adapters.evm.node import Header, Node
from chainfolio.blocks import Span
from chainfolio.transport.endpoint import Endpoint


def withdrawn_coins(headers: Sequence[Header], account: str, facts: Facts) -> int:
    """Return the raw coins that validators withdrew to an account; 0 on chains without withdrawals."""
    if WITHDRAWALS not in facts.pays:
        return 0
    withdrawals = (each for header in headers for each in header.withdrawals or ())
    return GWEI * sum(int(each.amount, 16) for each in withdrawals if each.address.lower() == account)


async def find_payments(
    node: Node,
    span: Span,
    boundaries: Sequence[Boundaries],
    bodies: Mapping[int, Body],
    transfers: Mapping[int, Sequence[CoinTransfer]],
) -> list[Change[int]]:
    """Find the blocks in which accounts' coins changed by more, or less, than is explained.

    `before` and `after` of a change are raw coins less those that are explained up to that height.

    Args:
        node: The chain's endpoints.
        span: The window to search.
        boundaries: The accounts to search.
        bodies: The known transactions by height.
        transfers: The known internal transfers by height.

    Raises:
        HistoryUnavailable: No endpoint has such state.
    """
    explained = {each.account: _ExplainedCoins(each.account, bodies, transfers) for each in boundaries}

    async def at(endpoint: Endpoint) -> list[Change[int]]:
        async def read(probes: Sequence[Probe]) -> list[int]:
            coins = await state.read_coins(endpoint, probes)
            return [
                raw - explained[account].sum_at(height) for raw, (account, height) in zip(coins, probes, strict=True)
            ]

        changes: list[Change[int]] = []
        pending: Span | None = span
        while pending is not None:
            window, window_changes = await find_changes(
                read,
                [*explained],
                pending,
                batch_size=lambda: state.batch_size(endpoint, 1),
                max_changes=lambda: state.MAX_CHANGES,
            )
            changes += window_changes
            pending = Span(window.last + 1, span.last) if window.last < span.last else None
        return changes

    return await node.with_any(at, kind="account payments")


class _ExplainedCoins:
    """The sum of known changes of one account's coins, by height."""

    def __init__(
        self, account: str, bodies: Mapping[int, Body], transfers: Mapping[int, Sequence[CoinTransfer]]
    ) -> None:
        """Sum the changes of an account's coins, in wei, in the order of the heights of `bodies`."""
        self.heights = sorted(bodies)
        changes = (
            bodies[height].coin_change(account) + net_coins(transfers.get(height, ()), account)
            for height in self.heights
        )
        self.sums = [0, *accumulate(changes)]

    def sum_at(self, height: int) -> int:
        """Return the sum of the changes up to and including a height."""
        return self.sums[bisect_right(self.heights, height)]
