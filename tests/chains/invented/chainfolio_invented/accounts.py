"""Account reads: coins and tokens. There are no protocols here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chainfolio.plugins.chain import (
    AccountState,
    Asset,
    Block,
    Describe,
    Interactions,
    Issue,
    Plan,
    PlanGroup,
    Read,
    ReadLabel,
    Unknown,
    read_all,
)

from .ledger import Ledger


@dataclass(frozen=True, slots=True)
class Balance(Read[int | Unknown]):
    """A read of an account's balance of a token, or of the native coin (None). Answered with an int or Unknown."""

    account: str
    token: str | None

    @property
    def label(self) -> ReadLabel:
        """Name of the read in answers."""
        return "balance", self.token, None, (self.account,)

    def answered(self, ledger: Ledger, height: int) -> int | None:
        """The answer of the ledger; None where there is no such token."""
        return ledger.balance(self.account, self.token, height)


class Accounts:
    """Reads accounts, at whatever block the reads are answered."""

    events: Sequence[str] = ()
    issues: Sequence[Issue] = ()
    finds_tokens = False

    def unread_protocols(self, account: str, interactions: Interactions) -> Iterator[Issue]:
        """Return no unread protocols."""
        return iter(())

    def at(self, block: Block) -> Accounts:
        """Return this reader: it stores no state of a block."""
        return self

    def read(
        self,
        account: str,
        interactions: Interactions,
        assets: Sequence[Asset],
        describe: Describe | None = None,
        prefetch: Plan[None] | None = None,
    ) -> Plan[AccountState]:
        """Balances, and what the tokens are called that are held."""
        group = PlanGroup(self.__class__.__name__)
        state = group.add(self._state(account, assets, describe))
        if prefetch is not None:
            group.add(prefetch)
        yield from group.run()
        return state.value

    def _state(self, account: str, assets: Sequence[Asset], describe: Describe | None) -> Plan[AccountState]:
        reads = [Balance(account, None), *(Balance(account, asset.reference) for asset in assets)]
        native, *token_balances = yield from read_all(reads)
        balances = dict(zip(assets, token_balances, strict=True))
        if describe is not None:
            yield from describe([asset for asset, raw in balances.items() if raw])
        return AccountState(native, balances, (), ())
