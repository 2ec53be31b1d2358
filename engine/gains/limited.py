"""Reports of gains for requests that must end soon: of accounts with few transactions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from chainfolio.engine.account_support import split_supported
from chainfolio.engine.gains.account_gains import TOO_MANY
from chainfolio.engine.gains.pnl import PnlRequest, ReportSource, pnl
from chainfolio.engine.rows import ChainIndex, rows_of
from chainfolio.errors import NotFound
from chainfolio.portfolio.compose import issue_documents
from chainfolio.tables import ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chainfolio.assets import Account
    from chainfolio.indexer.parts import IndexedChains
    from chainfolio.portfolio.pnl.report import PnlDocument


async def limited_report(source: ReportSource, accounts: Sequence[Account], request: PnlRequest) -> PnlDocument:
    """Return the gains of accounts of one owner. Accounts without a chain of their kind are issues.

    Raises:
        NotSupported: No chain of the kind of any account is configured.
        NotFound: An account has more than `pnl.max_transactions` transactions.
        NotIndexed: The index does not reach back to the beginning.
        BadRequest: The request is inconsistent.
        SourceError: A node could not be read.
    """
    request.check()
    kinds = {chain.kind for chain in source.system.account_chains}
    supported, unsupported = split_supported(accounts, kinds, "the gains")
    for account in supported:
        await asyncio.to_thread(_check_count, source.system, account)
    report = await pnl(source, supported, request)
    if not unsupported:
        return report
    issues = (*issue_documents(list(unsupported.values())), *report.issues)
    return msgspec.structs.replace(report, issues=issues, completeness="partial")


def _check_count(system: IndexedChains, account: Account) -> None:
    """Raise NotFound if an account has more transactions than gains are computed for."""
    limit = system.settings.pnl.max_transactions
    for chain in system.account_chains:
        for table in (ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS):
            if chain.kind != account.kind:
                continue
            index = ChainIndex(system.lake, system.tail, chain.key)
            try:
                rows_of(index, table, [account.address], ["height"], max_transactions=limit)
            except NotFound:
                reason = TOO_MANY.format(most=limit, address=account.address)
                raise NotFound(reason, remedy="the operator raises pnl.max_transactions") from None
