"""The part of the engine from which gains and performance are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.engine.prices.request_rates import RequestRates
    from chainfolio.engine.results import TransactionFilter, TransactionsPage
    from chainfolio.indexer.parts import DecodedChains


class RecordSource(Protocol):
    """Reads the records of accounts from the index."""

    @property
    def system(self) -> DecodedChains:
        """The chains, settings and stores."""

    @property
    def rates(self) -> RequestRates:
        """The rates of currencies."""

    def is_trusted_contract(self, chain_contract: str, /) -> bool:
        """Return True if a contract (`chain:contract`) is trusted."""

    def is_priced_contract(self, chain_contract: str, /) -> bool | None:
        """Return True if a contract (`chain:contract`) has a price by the settings, except in a failed read.

        None if only a read can tell.
        """

    async def records(
        self, accounts: Sequence[Account], record_filter: TransactionFilter, /
    ) -> tuple[TransactionsPage, Mapping[str, int]]:
        """Return one page of records, and the heads of the chains at which it was read.

        Raises:
            NotFound: The accounts have too many transactions.
            NotIndexed: The index does not cover the page.
            NotSupported: None of the accounts is on one of the chains.
            SourceError: A node could not be read.
        """
