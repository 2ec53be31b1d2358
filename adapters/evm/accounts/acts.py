"""Heights at which logs name accounts as the actor: a search by the state begins there."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.evm.accounts.naming import PLACES, names
from adapters.evm.logs import Logs
from chainfolio.blocks import Span

MOST = 100_000  # heights of all accounts


class Acts:
    """Heights of acts by account, as far as logs were read in this process. They are hints: none has to be there."""

    def __init__(self) -> None:
        self._heights: dict[str, set[int]] = {}
        self._size = 0

    def keep(self, logs: Logs, accounts: Sequence[str]) -> None:
        """Remember the heights at which logs name each account in the topic after the event: who sends or approves."""
        for account in accounts:
            heights = {int(height) for height in logs.height[names(logs, [account], PLACES[:1])]}
            if self._size + len(heights) > MOST:
                self._heights, self._size = {}, 0
            self._heights.setdefault(account, set()).update(heights)
            self._size += len(heights)

    def of(self, accounts: Sequence[str], span: Span) -> dict[str, list[int]]:
        """Return the heights in a span by account, in order."""
        return {account: sorted(at for at in self._heights.get(account, ()) if at in span) for account in accounts}
