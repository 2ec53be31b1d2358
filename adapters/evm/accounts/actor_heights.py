"""Heights at which logs name accounts as the actor: hints from which a search by state starts."""

from __future__ import annotations

from collections.abc import Sequence

from chainfolio.adapters.evm.accounts.topic_filters import ACCOUNT_TOPICS, names_account
from chainfolio.adapters.evm.logs import Logs
from chainfolio.blocks import Span

MAX_HEIGHTS = 100_000  # of all accounts


class ActorHeights:
    """Heights by account, from the logs that this process has read. They are hints and may be incomplete."""

    def __init__(self) -> None:
        self._heights: dict[str, set[int]] = {}
        self._size = 0

    def add(self, logs: Logs, accounts: Sequence[str]) -> None:
        """Store the heights of logs with an account in topic 1, the sender or approver.

        All heights are dropped before they exceed `MAX_HEIGHTS`.
        """
        for account in accounts:
            heights = {int(height) for height in logs.height[names_account(logs, [account], ACCOUNT_TOPICS[:1])]}
            if self._size + len(heights) > MAX_HEIGHTS:
                self._heights, self._size = {}, 0
            self._heights.setdefault(account, set()).update(heights)
            self._size += len(heights)

    def in_span(self, accounts: Sequence[str], span: Span) -> dict[str, list[int]]:
        """Return the stored heights in a span by account, in order."""
        return {
            account: sorted(each for each in self._heights.get(account, ()) if each in span) for account in accounts
        }
