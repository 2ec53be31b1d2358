"""The freshness of the data of accounts."""

from __future__ import annotations

from collections.abc import Sequence

from chainfolio.assets import Account
from chainfolio.engine.account_support import split_supported
from chainfolio.engine.results import SyncStatus
from chainfolio.engine.snapshots.account_cache import AccountCache
from chainfolio.indexer import watching
from chainfolio.indexer.parts import IndexedChains
from chainfolio.portfolio.compose import issue_documents


def sync_statuses(system: IndexedChains, cache: AccountCache, accounts: Sequence[Account]) -> list[SyncStatus]:
    """Return the freshness of each account's data, in their order; starts no work.

    Times are in microseconds; None if the account was never read, or its transactions are not indexed. An account of a
    kind without a chain has an issue.

    Raises:
        NotSupported: No chain of the kind of any account is configured.
    """
    _, unsupported = split_supported(accounts, {chain.kind for chain in system.account_chains}, "the status")
    watched, result = watching.watched_accounts(system), []
    for account in accounts:
        running = cache.is_being_read(account) or watching.is_being_read(system, account, watched)
        read_us, indexed_us = cache.updated_us_of(account), watching.indexed_until_us(system, account)
        transactions_us = None if indexed_us is None else max(indexed_us, read_us or 0)
        issue = unsupported.get(account.address)
        result.append(
            SyncStatus(account.address, read_us, transactions_us, running, issue_documents([issue] if issue else []))
        )
    return result
