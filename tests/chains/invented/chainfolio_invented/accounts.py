"""What is read of an account: coins and tokens. There are no protocols here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chainfolio.plugins.chain import AccountState, Asset, Block, Describe, Interactions, Issue, Plan, Report, batched

from .ledger import Ledger


@dataclass(frozen=True, slots=True)
class Balance:
    """A read: how much of a token, or of the native coin (None), an account has. Answered with an int or Unknown."""

    account: str
    token: str | None

    def answered(self, ledger: Ledger, height: int) -> int | None:
        """The answer of the ledger; None where there is no such token."""
        return ledger.balance(self.account, self.token, height)


class Accounts:
    """Reads accounts, at whatever block the reads are answered."""

    events: Sequence[str] = ()
    issues: Sequence[Issue] = ()
    finds_tokens = False

    def unread_protocols(self, account: str, interactions: Interactions) -> Iterator[Issue]:
        """Nothing is unknown."""
        return iter(())

    def at(self, block: Block) -> Accounts:
        """The same: nothing is remembered of a block."""
        return self

    def read(
        self,
        account: str,
        interactions: Interactions,
        assets: Sequence[Asset],
        describe: Describe | None = None,
        prefetch: Plan[Any, Any, None] | None = None,
    ) -> Plan[Any, Any, AccountState]:
        """Balances, and what the tokens are called that are held."""
        state: Plan[Any, Any, Any] = self._state(account, assets, describe)
        reports: Mapping[str, Report[Any]] = yield from batched(
            {"state": state, **({"expected": prefetch} if prefetch else {})}
        )
        for report in reports.values():
            if report.error is not None:
                raise report.error
        read = reports["state"].result
        assert isinstance(read, AccountState), "a plan without an error has a result"
        return read

    def _state(self, account: str, wanted: Sequence[Asset], named: Describe | None) -> Plan[Any, Any, AccountState]:
        native, *held = yield [Balance(account, None), *(Balance(account, asset.reference) for asset in wanted)]
        balances = dict(zip(wanted, held, strict=True))
        if named is not None:
            yield from named([asset for asset, raw in balances.items() if raw])
        return AccountState(native, balances, (), ())
