"""A beacon chain has validators and no accounts: what asks for accounts hears that nothing is known of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Issue
from chainfolio.interactions import Interactions
from chainfolio.plans import Plan, Unknown
from chainfolio.positions import AccountState, Describe

NONE = Unknown("a beacon chain has no accounts", "absent")


class NoAccounts:
    """Reads nothing."""

    events: Sequence[str] = ()
    issues: Sequence[Issue] = ()

    def unread_protocols(self, account: str, interactions: Interactions) -> Iterator[Issue]:
        """Nothing is unknown."""
        return iter(())

    def at(self, block: Block) -> NoAccounts:
        """The same at every block."""
        return self

    def read(
        self,
        account: str,
        interactions: Interactions,
        assets: Sequence[Asset],
        describe: Describe | None = None,
        prefetch: Plan[object, object, None] | None = None,
    ) -> Plan[object, object, AccountState]:
        """No balance, in no round."""
        yield from ()
        return AccountState(NONE, dict.fromkeys(assets, NONE), (), ())
