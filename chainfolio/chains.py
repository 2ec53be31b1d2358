"""The contract of a chain: the methods by which any kind of chain is indexed and queried.

The contract is structural: a class that has these members is a chain, and inherits nothing. A height need not have a
block (slots are skipped, proposals are missed). Abilities that not every chain has are in `chainfolio.capabilities`,
the values that methods return in `chainfolio.chain_results`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from chainfolio.assets import Asset
from chainfolio.blocks import Block, Span
from chainfolio.capabilities import Capability
from chainfolio.chain_results import ChainInfo, EndpointHealth, Heads, SpanTables
from chainfolio.chain_settings import ChainSettings
from chainfolio.contracts import Holding, Token
from chainfolio.errors import SourceError
from chainfolio.plans import Plan
from chainfolio.reads import Read, ReadResult, Value

if TYPE_CHECKING:
    from chainfolio.datasets import Dataset
    from chainfolio.positions import AccountReader, BalanceResult, TokenUri
    from chainfolio.protocols import InstalledProtocols


class Chain(Protocol):
    """One chain behind its nodes. Errors are those of `chainfolio.errors`, without URLs of endpoints."""

    @property
    def key(self) -> str:
        """The key in the settings: `ethereum`."""

    @property
    def kind(self) -> str:
        """The kind of chain and of its accounts: `evm`."""

    @property
    def caip2(self) -> str:
        """The CAIP-2 name: `eip155:1`."""

    @property
    def info(self) -> ChainInfo:
        """The facts about the chain."""

    @property
    def settings(self) -> ChainSettings:
        """The settings of the chain: the keys of all kinds, and those of its kind."""

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """The datasets that the chain has, by name, in the order of dependence."""

    @property
    def default_datasets(self) -> tuple[str, ...]:
        """The datasets that are indexed if the settings name none."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities that the chain has."""

    @property
    def requests(self) -> int:
        """The number of requests to nodes so far."""

    async def heads(self) -> Heads:
        """Read the newest block and the newest final height."""

    def is_final(self, height: int) -> bool:
        """Return True if `height` is final according to the last `heads`."""

    async def block(self, height: int) -> Block:
        """Read the block at a height; NodeBehind if the chain has not reached it, NoBlock if it was skipped."""

    async def blocks(self, heights: Sequence[int]) -> list[Block]:
        """Read the blocks at some heights, in order and in few requests; heights without a block are left out."""

    async def collect(
        self,
        span: Span,
        datasets: Sequence[str],
        contracts: Sequence[str] = (),
        before: Block | None = None,
        events: Sequence[str] = (),
    ) -> SpanTables:
        """Read and check the rows of some datasets in a span.

        Args:
            span: The heights.
            datasets: Names of datasets.
            contracts: Filter of datasets that support one; empty for all contracts.
            before: The block that the first one must link to.
            events: Filter of the dataset `events`.
        """

    async def answer(self, reads: Sequence[Read[Value]], block: Block) -> list[Value]:
        """Return the results of reads, all at the hash of one block. A failed read is Unknown, never zero."""

    async def answer_each(
        self, requests: Sequence[tuple[Block, Sequence[Read[Value]]]]
    ) -> list[list[Value] | SourceError]:
        """Return the results of reads at several blocks; a SourceError in place of a failed block."""

    def account_reader(self, installed: InstalledProtocols, trusted: Collection[Asset] = ()) -> AccountReader:
        """Return a reader of accounts; `trusted` tokens need no check. BadSettings if a protocol is invalid."""

    def wallet_reads(self, holding: Holding) -> Sequence[tuple[str, ReadResult]]:
        """Return the reads that prove a wallet's balance, each with the name of its number."""

    def balances(self, pairs: Sequence[tuple[str, Asset]]) -> Plan[Sequence[BalanceResult]]:
        """Read balances in one round, in order: an int (for a collectible its count), Unknown or Reverted."""

    def describe(self, assets: Sequence[Asset]) -> Plan[Mapping[Asset, Token]]:
        """Read symbol, name and decimals of tokens from their contracts."""

    def token_uris(self, collectibles: Sequence[Asset]) -> Plan[Sequence[TokenUri]]:
        """Read the URIs of the metadata of collectibles, in one round and in order; `""` for none."""

    async def probe(self, first: int) -> None:
        """Check which of the optional datasets the nodes serve from a height on."""

    async def examine(self) -> list[dict[str, object]]:
        """Return one row per endpoint for `doctor`; each has `endpoint`, `ok` and `problem`."""

    def health(self) -> list[EndpointHealth]:
        """Return the state of each endpoint, in the order of the settings."""

    async def close(self) -> None:
        """Close all connections."""


def errors_by_endpoint(chain: Chain) -> dict[str, dict[str, int]]:
    """Return the number of errors so far, by endpoint and kind of error."""
    return {each.endpoint: dict(each.errors) for each in chain.health() if each.errors}
