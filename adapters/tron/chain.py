"""One Tron chain as the indexer sees it: where it stands, what lies in a span, what accounts have now."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from adapters.tron import facts as chain_facts
from adapters.tron.approvals import Approvals
from adapters.tron.datasets import DATASETS
from adapters.tron.facts import Facts
from adapters.tron.node import Node, TronNode
from adapters.tron.roots import Roots
from adapters.tron.settings import TronSettings
from adapters.tron.signers import Permissions, SignatureCheck
from chainfolio import kinds
from chainfolio.assets import Asset
from chainfolio.behind_nodes import BehindNodes
from chainfolio.blocks import Block, Span
from chainfolio.chains import Capability, Collected, KnownTransaction
from chainfolio.contracts import Holding, Token, TransactionDetails
from chainfolio.errors import Unavailable
from chainfolio.kinds import EndpointMemory
from chainfolio.plans import Plan
from chainfolio.seams import Seams
from transport.http import HttpTransport, WebTransport

# State and blocks are loaded when they are asked for.
if TYPE_CHECKING:
    from adapters.tron.accounts import Accounts
    from chainfolio.budgets import Budget
    from chainfolio.protocols import InstalledProtocols
    from chainfolio.reads import ReadResult

KEY, GRID = "tron-pro-api-key", ".trongrid.io"
PER_BLOCK = 4  # requests at once for each that is allowed: a block is two, and one more is asked ahead


class TronChain(BehindNodes[Node], Approvals):
    """A Tron chain behind its nodes. It keeps no old state. `exchanges` are those of the chain itself that it has met,
    each with its two tokens."""

    kind = "tron"
    datasets = DATASETS
    usual = tuple(name for name, each in DATASETS.items() if each.is_usual)
    capabilities = frozenset([Capability.ACCOUNT_HISTORY, Capability.APPROVALS, Capability.TRANSACTIONS])

    def __init__(self, facts: Facts, node: Node, settings: TronSettings, seams: Seams) -> None:
        self.facts, self.node, self.settings = facts, node, settings
        self.key, self.caip2, self.info = facts.key, facts.caip2, facts.info
        self.exchanges: dict[int, tuple[str | None, str | None]] = {}
        self.roots, self.may_sign = Roots(), Permissions()
        self.signature_check = SignatureCheck(settings.signatures, seams.random)
        self.keeps_coins = True  # until its nodes tell nothing of somebody who had some

    async def collect(
        self,
        span: Span,
        datasets: Sequence[str],
        contracts: Sequence[str] = (),
        before: Block | None = None,
        events: Sequence[str] = (),
    ) -> Collected:
        """The rows of whole blocks in a span."""
        from adapters.tron.spans import collect

        return await collect(self, span, datasets, contracts, before)

    async def collect_accounts(
        self,
        span: Span,
        accounts: Sequence[str],
        datasets: Sequence[str],
        before: Block | None = None,
        budget: Budget | None = None,
    ) -> Collected:
        """The rows that concern some accounts, from the blocks in which they did something."""
        from adapters.tron.history import collect_accounts

        return await collect_accounts(self, span, accounts, datasets, before, budget)

    async def look_up(self, known: Sequence[KnownTransaction]) -> list[TransactionDetails]:
        """Transactions that the index knows, in order."""
        from adapters.tron.lookup import look_up

        return await look_up(self.node, known)

    async def answer(self, reads: Sequence[Any], block: Block) -> list[Any]:
        """The results of some reads, now: no older than a block. Accounts say at which block they were read."""
        from adapters.tron.state import answer

        return await answer(self.node, reads, block, self.facts.multicall)

    async def coins_at(self, accounts: Collection[str], block: Block) -> Mapping[str, int]:
        """What accounts had of the native coin at a past block, where a node keeps that; else it is not asked again."""
        from adapters.tron.past import coins_at

        if not self.keeps_coins:
            return {}
        try:
            found = await coins_at(self.node, accounts, block)
        except Unavailable:
            return {}
        self.keeps_coins = bool(found)
        return found

    def account_reader(self, installed: InstalledProtocols, listed: Collection[Asset] = ()) -> Accounts:
        """What reads accounts, with protocols by the decoders of the kind whose calls its contracts understand."""
        from adapters.tron.accounts import Accounts
        from adapters.tron.families import Families

        if not installed.rows:
            return Accounts(self.facts)
        families = Families.of(kinds.families_of(self.kind), self.facts, installed, listed)
        return Accounts(self.facts, families, (), installed.issues)

    def wallet_reads(self, holding: Holding) -> Sequence[tuple[str, ReadResult]]:
        """The read behind a loose holding."""
        from adapters.tron.accounts import read_of
        from chainfolio.reads import ReadResult

        return [("balance", ReadResult(read_of(holding.account, holding.token.asset), holding.raw))]

    def balances(self, pairs: Sequence[tuple[str, Asset]]) -> Plan[Any, Any, Sequence[Any]]:
        """How much accounts have of assets."""
        from adapters.tron.accounts import balances

        return balances(pairs)

    def describe(self, assets: Sequence[Asset]) -> Plan[Any, Any, Mapping[Asset, Token]]:
        """What some tokens say of themselves."""
        from adapters.tron.accounts import describe

        return describe(assets)

    async def examine(self) -> list[dict[str, Any]]:
        """What `doctor` shows of each endpoint."""
        from adapters.tron.doctor import examine

        return await examine(self)


def build(
    key: str,
    settings: TronSettings,
    seams: Seams,
    *,
    configs: Path,
    transport: WebTransport | None = None,
    memory: EndpointMemory | None = None,
) -> TronChain:
    """Build one chain from its settings and its file of facts."""
    facts = chain_facts.of(key, settings.facts, configs)
    endpoints = [_endpoint(url, settings, seams, transport) for url in settings.rpc]
    return TronChain(facts, Node(facts, endpoints, seams, hedge=settings.hedge), settings, seams)


def _endpoint(url: str, settings: TronSettings, seams: Seams, transport: WebTransport | None) -> TronNode:
    """One endpoint. The key goes to its provider alone, and never without TLS."""
    parts = urlsplit(url)
    is_providers = parts.scheme == "https" and f".{parts.hostname}".endswith(GRID)
    key = settings.api_key if is_providers else ""
    way = transport or HttpTransport(seams.answers, headers={KEY: key} if key else None)
    return TronNode(
        url, way, seams, timeout_s=settings.timeout_s, concurrency=settings.concurrency * PER_BLOCK,
        max_rps=settings.max_rps, secret=key,
    )  # fmt: skip
