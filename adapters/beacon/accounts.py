"""The reader of accounts of a beacon chain, which has none: every balance is Unknown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Issue
from chainfolio.interactions import Interactions
from chainfolio.plans import Plan, Unknown
from chainfolio.positions import AccountState, Describe

NO_ACCOUNTS = Unknown("a beacon chain has no accounts", "absent")


class NoAccounts:
    """An `AccountReader` and `BlockReader` without results."""

    events: Sequence[str] = ()
    issues: Sequence[Issue] = ()

    def unread_protocols(self, account: str, interactions: Interactions) -> Iterator[Issue]:
        """Yield nothing."""
        return iter(())

    def at(self, block: Block) -> NoAccounts:
        """Return this reader for any block."""
        return self

    def read(
        self,
        account: str,
        interactions: Interactions,
        assets: Sequence[Asset],
        describe: Describe | None = None,
        prefetch: Plan[None] | None = None,
    ) -> Plan[AccountState]:
        """Return Unknown for every balance, without a read."""
        yield from ()
        return AccountState(NO_ACCOUNTS, dict.fromkeys(assets, NO_ACCOUNTS), (), ())
