"""A beacon chain as `chainfolio.chains.Chain`: heights are slots, and a missed slot has no block."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from chainfolio.adapters.beacon.accounts import NO_ACCOUNTS, NoAccounts
from chainfolio.adapters.beacon.collector import Collector
from chainfolio.adapters.beacon.datasets import DATASETS
from chainfolio.adapters.beacon.doctor import examine
from chainfolio.adapters.beacon.epochs import SETTLEMENT_DELAY
from chainfolio.adapters.beacon.events import Announcements
from chainfolio.adapters.beacon.facts import Facts, read_facts
from chainfolio.adapters.beacon.node import BeaconNode, Nodes
from chainfolio.adapters.beacon.reader import Reader
from chainfolio.adapters.beacon.responses import (
    FAR_FUTURE,
    ValidatorState,
)
from chainfolio.adapters.beacon.settings import BeaconSettings
from chainfolio.adapters.beacon.slots import Slots
from chainfolio.adapters.beacon.spec import SECOND_US
from chainfolio.adapters.beacon.stakes import stakes
from chainfolio.assets import Asset
from chainfolio.blocks import Block, Span
from chainfolio.capabilities import Capability
from chainfolio.chain_results import ChainInfo, EndpointHealth, SpanTables
from chainfolio.contracts import Holding, Token
from chainfolio.datasets import Dataset
from chainfolio.environment import Environment
from chainfolio.errors import NotFound, SourceError
from chainfolio.plans import Plan, Unknown
from chainfolio.reads import Read, ReadResult, Value
from chainfolio.transport.http import HttpTransport, WebTransport
from chainfolio.validators import SlotClock, Stake, ValidatorNow

if TYPE_CHECKING:
    from chainfolio.positions import TokenUri
    from chainfolio.protocols import InstalledProtocols

SLIP44: Final = 60
GWEI_DECIMALS: Final = 9


def build(
    key: str,
    settings: BeaconSettings,
    environment: Environment,
    *,
    configs: Path,
    transport: WebTransport | None = None,
) -> BeaconChain:
    """Build one chain from its settings and its facts. No request is sent yet.

    Raises:
        BadSettings: The file of its facts is invalid, or missing although the settings name it.
    """
    transport = transport or HttpTransport(environment.answers, connections=settings.requests)
    nodes = [
        BeaconNode(
            url,
            transport,
            environment,
            timeout_s=settings.timeout_s,
            concurrency=settings.requests,
            max_rps=settings.max_rps,
        )
        for url in settings.rpc
    ]
    facts = read_facts(key, settings, configs)
    return BeaconChain(key, settings, facts, Nodes(key, nodes, environment, facts.genesis, hedge=settings.hedge))


class BeaconChain(Slots):
    """One beacon chain behind its nodes.

    Its methods raise SourceError if no node answers. `announcements` is None until the first wait for one.
    """

    kind = "beacon"
    datasets: Mapping[str, Dataset] = DATASETS
    default_datasets = tuple(name for name in DATASETS if name != "blocks")
    capabilities = frozenset([Capability.HEAD_EVENTS, Capability.VALIDATORS])

    def __init__(self, key: str, settings: BeaconSettings, facts: Facts, nodes: Nodes) -> None:
        """Prepare a chain over its nodes; no request is sent, and announcements are not listened to yet."""
        super().__init__(key, nodes)
        self.settings, self.facts = settings, facts
        self.caip2 = f"beacon:{key}"
        native = Token(Asset(self.caip2, "slip44", str(SLIP44)), "ETH", "Ether", GWEI_DECIMALS)
        self.info = ChainInfo(facts.name or key, facts.chain_id, native, "none", 12_000)
        self.announcements: Announcements | None = None
        self._collector = Collector(self, settings)

    @property
    def requests(self) -> int:
        """Number of requests to nodes so far."""
        return self.nodes.requests

    async def announced(self, within_s: float) -> bool:
        """Wait for an announcement of a node, at most `within_s` seconds. Return True if there was one.

        A new or broken connection counts as well. The first call reads the chain's spec, which `within_s` does not
        bound, and starts to listen.

        Raises:
            SourceError: No node gives the spec.
            WrongChain: A node's spec is that of another chain.
        """
        if self.announcements is None:
            spec = await self.spec()
            self.announcements = Announcements(self.nodes, spec.slot_us / SECOND_US)
        return await self.announcements.wait(within_s)

    @property
    def listener_failures(self) -> int:
        """Number of restarts of the listener after an error that is not a node's."""
        return self.announcements.failures if self.announcements is not None else 0

    async def collect(
        self,
        span: Span,
        datasets: Sequence[str],
        contracts: Sequence[str] = (),
        before: Block | None = None,
        events: Sequence[str] = (),
    ) -> SpanTables:
        """Return the rows of datasets in a span of slots.

        Args:
            span: Slots, both ends included.
            datasets: Names of datasets.
            contracts: Indexes, public keys and withdrawal addresses of validators; all if empty.
            before: The block before the span, None if the first link is not checked.
            events: Not used.

        Raises:
            Reorged: The first block does not follow `before`.
            Unavailable: The chain changed meanwhile.
            NoQuorum: Nodes disagree about a final block.
        """
        return await self._collector.collect(span, datasets, contracts, before)

    # --- validators --------------------------------------------------------------------------------------------------

    settled_after = SETTLEMENT_DELAY  # epochs after which the rewards of one are known

    @property
    def execution(self) -> str:
        """Key of the chain to which validators withdraw; empty if unknown."""
        return self.settings.execution or self.facts.execution

    @property
    def shows_stake(self) -> bool:
        """True if portfolios of the execution chain show the stake of the account's validators."""
        return self.settings.stake_in_portfolios

    async def stakes(self, owners: Collection[str], candidates: Collection[str], block: Block) -> Sequence[Stake]:
        """Return the stakes of withdrawal addresses at a block of the execution chain.

        Sorted by public key, with balances in gwei; pending deposits without a validator are included.
        """
        return await stakes(Reader(self.nodes, await self.spec(), None), owners, candidates, block)

    async def slot_clock(self) -> SlotClock:
        """Return the clock of slots and epochs."""
        spec = await self.spec()
        return SlotClock(spec.genesis.genesis_time, spec.slot_us // SECOND_US, spec.slots_per_epoch)

    async def validator(self, name: int | str) -> ValidatorNow:
        """Return a validator in the newest state, by its index or its public key (lower case).

        Epochs that are not set are None; balances are in gwei.

        Raises:
            NotFound: There is none.
            SourceError: No node answers.
        """
        await self.spec()
        # A list with one id: for an index that does not exist, the request of a single one gives 404 or 400.
        body, path = {"ids": [str(name)]}, "/eth/v1/beacon/states/head/validators"
        states = await self.nodes.read(path, list[ValidatorState], body)
        state = next((each for each in states if name in (each.index, each.validator.pubkey.lower())), None)
        if state is None:
            raise NotFound(f"no validator {name}")
        fields = state.validator
        return ValidatorNow(
            state.index,
            fields.pubkey.lower(),
            state.status,
            fields.slashed,
            state.balance,
            fields.effective_balance,
            fields.withdrawal_credentials.lower(),
            *(
                None if each == FAR_FUTURE else each
                for each in (fields.activation_epoch, fields.exit_epoch, fields.withdrawable_epoch)
            ),
        )

    async def validators_of(self, filters: Sequence[str]) -> tuple[int, ...]:
        """Return the ascending indexes for indexes, public keys and withdrawal addresses.

        An index is returned unchecked; unknown keys and addresses give none.
        """
        await self.spec()
        return await self._collector.selector.indexes(filters)

    # --- accounts, which do not exist --------------------------------------------------------------------------------

    async def answer(self, reads: Sequence[Read[Value]], block: Block) -> list[Value]:
        """Return Unknown for every read."""
        return cast(list[Value], [NO_ACCOUNTS] * len(reads))

    async def answer_each(
        self, requests: Sequence[tuple[Block, Sequence[Read[Value]]]]
    ) -> list[list[Value] | SourceError]:
        """Return Unknown for every read at every block."""
        return [await self.answer(reads, block) for block, reads in requests]

    def account_reader(self, installed: InstalledProtocols, trusted: Collection[Asset] = ()) -> NoAccounts:
        """Return a reader without results."""
        return NoAccounts()

    def wallet_reads(self, holding: Holding) -> Sequence[tuple[str, ReadResult]]:
        """Return no reads."""
        return ()

    def balances(self, pairs: Sequence[tuple[str, Asset]]) -> Plan[Sequence[Unknown]]:
        """Return Unknown for every pair."""
        yield from ()
        return [NO_ACCOUNTS] * len(pairs)

    def describe(self, assets: Sequence[Asset]) -> Plan[Mapping[Asset, Token]]:
        """Return tokens without names: there are none."""
        yield from ()
        return {asset: Token(asset, "", "", None) for asset in assets}

    def token_uris(self, collectibles: Sequence[Asset]) -> Plan[Sequence[TokenUri]]:
        """Return no URIs: there are no collectibles."""
        yield from ()
        return [""] * len(collectibles)

    # --- nodes -------------------------------------------------------------------------------------------------------

    async def probe(self, first: int) -> None:
        """Check that the nodes are of the right network."""
        await self.spec()

    async def examine(self) -> list[dict[str, Any]]:
        """Return a row of `doctor` per node."""
        return [await examine(node) for node in self.nodes.endpoints]

    def health(self) -> list[EndpointHealth]:
        """Return the health of each node."""
        best = self.nodes.best_height
        return [node.health_report(best) for node in self.nodes.endpoints]

    async def close(self) -> None:
        """Stop the listener and all requests, and close connections."""
        if self.announcements is not None:
            await self.announcements.close()
        self._collector.close()
        await self.nodes.close()
