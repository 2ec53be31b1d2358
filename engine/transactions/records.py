"""Records of accounts over the chains that a request names, without costs and gains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from chainfolio.chains import Chain
from chainfolio.engine import reconciliations as reconciled
from chainfolio.engine.account_support import addresses_of, split_supported
from chainfolio.engine.chain_blocks import configured_chain
from chainfolio.engine.results import TransactionFilter, TransactionsPage
from chainfolio.engine.snapshots import account_index
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.stored_heads import StoredHeads
from chainfolio.engine.transactions.lookups import Lookups
from chainfolio.engine.transactions.pages import Statement
from chainfolio.engine.transactions.subjects import Subject
from chainfolio.portfolio.activity import Functions
from chainfolio.portfolio.compose import issue_documents
from chainfolio.portfolio.facts import ChainFacts
from chainfolio.portfolio.transactions import Transactions

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.indexer.parts import DecodedChains


@dataclass(frozen=True, slots=True)
class RecordReader:
    """Reads pages of records.

    Attributes:
        snapshotter_of: Returns the snapshotter of a chain.
        facts: What documents show of chains, by key.
        max_lookups: Maximum number of third-party transactions that are read from nodes; None for any number.
        progress: Gets the number of records that were read, and of those that will be.
    """

    system: DecodedChains
    snapshotter_of: Callable[[Chain], Snapshotter]
    facts: Mapping[str, ChainFacts]
    functions: Functions
    max_lookups: int | None
    progress: Callable[[int, int], None]

    async def read(
        self, accounts: Sequence[Account], filters: TransactionFilter, stored_heads: StoredHeads | None
    ) -> tuple[TransactionsPage, Mapping[str, int]]:
        """Return a page, and the heads of the chains by which it was read. Errors as of `Engine.records`."""
        system = self.system
        named = [configured_chain(system, key, "transactions") for key in filters.networks]
        kinds = {chain.kind for chain in system.account_chains}
        accounts, unsupported = split_supported(accounts, kinds, "the transactions")
        subjects = [
            Subject(self.snapshotter_of(chain), self.facts[chain.key], system.response_datasets(chain, each), each)
            for chain in named or system.account_chains
            if (each := tuple(addresses_of(chain, accounts)))
        ]
        statement = Statement(
            system.registry,
            self.functions,
            system.settings.server.max_transactions,
            filters,
            stored_heads=stored_heads,
            lookups=Lookups(self.max_lookups),
            progress=self.progress,
        )
        records, end = await statement.page(subjects)
        issues = [*unsupported.values(), *(issue for subject in subjects for issue in subject.issues)]
        issues += statement.reward_issues
        for subject in subjects:
            chain = subject.snapshotter.chain
            issues += account_index.unexplained_issues(system.tail, chain, subject.accounts)
            issues += reconciled.issues(system.tail, chain.key, subject.accounts, natives=True)
        issues += statement.issues
        is_partial = any(issue.makes_partial for issue in issues)
        completeness: Literal["complete", "partial"] = "partial" if is_partial else "complete"
        document = Transactions(tuple(records), completeness, issue_documents(issues))
        return TransactionsPage(document, end, statement.strengths), statement.heads
