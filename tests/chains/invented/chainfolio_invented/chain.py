"""The chain as Chainfolio reads it. It inherits nothing: it has what `chainfolio.chains.Chain` asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from chainfolio.plugins.chain import (
    Asset,
    Block,
    Budget,
    Capability,
    ChainInfo,
    EndpointHealth,
    Heads,
    Holding,
    IndexedTransaction,
    NoBlock,
    NodeBehind,
    Plan,
    Read,
    ReadLabel,
    ReadResult,
    Reorged,
    SourceError,
    Span,
    SpanTables,
    Token,
    TransactionDetails,
    Unknown,
    Value,
    read_all,
)
from chainfolio.plugins.dataset import ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS, BLOCKS, TRANSACTIONS, TRANSFERS, Dataset

from .accounts import Accounts, Balance
from .ledger import BLOCK_TIME_US, TOKENS, Ledger, Minted

if TYPE_CHECKING:
    from chainfolio.plugins.chain import ChainSettings, InstalledProtocols

FINALITY = 64
HEIGHTS = 40  # of which payments of accounts are listed at once
SLIP44 = 7777
ENDPOINT = "memory"
# The datasets of movements, and the standard of their rows in `transfers`.
STANDARDS = {"native": "native", "transfers": "token"}

DATASETS = {
    "blocks": Dataset("blocks", BLOCKS),
    "transactions": Dataset(
        "transactions",
        TRANSACTIONS,
        history=ACCOUNT_TRANSACTIONS.name,
        in_activity=True,
        loss="transactions are not indexed",
        by_account="places",
        account_columns=("sender", "recipient"),
    ),
    "native": Dataset(
        "native",
        TRANSFERS,
        standards=("native",),
        history=ACCOUNT_TRANSFERS.name,
        in_activity=True,
        loss="native coins are not indexed",
        by_account="places",
        account_columns=("sender", "recipient"),
    ),
    "transfers": Dataset(
        "transfers",
        TRANSFERS,
        filtered_by="contract",
        history=ACCOUNT_TRANSFERS.name,
        in_activity=True,
        by_account="logs",
        account_columns=("sender", "recipient"),
    ),
}


@dataclass(frozen=True, slots=True)
class About(Read[tuple[str, str, int] | Unknown]):
    """A read: symbol, name and decimals of a token, or Unknown."""

    token: str

    @property
    def label(self) -> ReadLabel:
        """As answers show it."""
        return "about", self.token, None, ()


OnRead = Callable[[Span | None, Sequence[str]], None]


class InventedChain:
    """A chain in memory. `on_read` hears of each request before it is answered; of one for a span, with its tokens."""

    kind = "invented"
    datasets: Mapping[str, Dataset] = DATASETS
    default_datasets = tuple(DATASETS)
    capabilities = frozenset([Capability.PAST_BALANCES, Capability.TRANSACTIONS, Capability.ACCOUNT_HISTORY])

    def __init__(
        self,
        key: str,
        settings: ChainSettings,
        ledger: Callable[[], Ledger],
        on_read: OnRead = lambda span, contracts: None,
    ) -> None:
        self.key, self.settings, self.caip2 = key, settings, f"invented:{key}"
        native = Token(Asset(self.caip2, "slip44", str(SLIP44)), "INV", "Invention", 9)
        self.info = ChainInfo("Invented", SLIP44, native, "token", BLOCK_TIME_US // 1000)
        self.requests = 0
        self._ledger, self._on_read, self._final = ledger, on_read, -1

    def _ask(self, span: Span | None = None, contracts: Sequence[str] = ()) -> Ledger:
        """One request: the ledger as it is now."""
        self.requests += 1
        self._on_read(span, contracts)
        return self._ledger()

    async def heads(self) -> Heads:
        """The newest block; what lies `FINALITY` heights below it is final, whether or not there is a block."""
        head = self._ask().head
        self._final = max(self._final, head.height - FINALITY, 0)
        return Heads(head, self._final)

    def is_final(self, height: int) -> bool:
        """Whether what lies at a height cannot change any more."""
        return height <= self._final

    async def block(self, height: int) -> Block:
        """The block at a height."""
        ledger = self._ask()
        if height > ledger.head.height:
            raise NodeBehind(self.key, f"block {height} is not there yet")
        if height not in ledger.minted:
            raise NoBlock(self.key, height)
        return ledger.minted[height].block

    async def blocks(self, heights: Sequence[int]) -> list[Block]:
        """The blocks that there are at some heights."""
        ledger = self._ask()
        if heights and max(heights) > ledger.head.height:
            raise NodeBehind(self.key, f"block {max(heights)} is not there yet")
        return [each.block for each in ledger.within(heights)]

    async def collect(
        self,
        span: Span,
        datasets: Sequence[str],
        contracts: Sequence[str] = (),
        before: Block | None = None,
        events: Sequence[str] = (),
    ) -> SpanTables:
        """The blocks, transactions and payments in a span. Nothing filters coins."""
        ledger = self._ask(span, contracts)
        if span.last > ledger.head.height:
            raise NodeBehind(self.key, f"block {span.last} is not there yet")
        found = ledger.within(range(span.first, span.last + 1))
        blocks = [each.block for each in found]
        if before is not None and blocks and blocks[0].parent != before.hash:
            raise Reorged(self.key, before.height, before.hash)
        standards = {STANDARDS[name] for name in datasets if name in STANDARDS}
        tables = {"transfers": self._payments(found, standards, contracts)}
        if "blocks" in datasets:
            tables["blocks"] = self._blocks(found)
        if "transactions" in datasets:
            tables["transactions"] = self._transactions(found)
        return SpanTables(span, tables, blocks[-1] if blocks else None, blocks, len(tables["transfers"]), 0, True)

    async def collect_accounts(
        self,
        span: Span,
        accounts: Sequence[str],
        datasets: Sequence[str],
        before: Block | None = None,
        budget: Budget | None = None,
    ) -> SpanTables:
        """The payments of some accounts, of `HEIGHTS` heights at once."""
        if budget is not None:
            budget.charge(1, 1)
        part = Span(span.first, min(span.last, span.first + HEIGHTS - 1))
        found = await self.collect(part, datasets, (), before)
        tables = {
            name: next(each for each in DATASETS.values() if each.table.name == name).rows_of_accounts(rows, accounts)
            for name, rows in found.tables.items()
        }
        linked, events = before is not None, sum(map(len, tables.values()))
        return replace(
            found,
            tables=tables,
            blocks=found.blocks if linked else [],
            event_count=events,
            is_linked=linked,
            read_methods=dict.fromkeys(datasets, "list"),
        )

    def _blocks(self, found: Iterable[Minted]) -> pa.Table:
        """Nobody mines here, and there is no gas."""
        rows = [
            {
                "chain": self.key,
                "height": each.block.height,
                "time": each.block.time,
                "hash": each.block.hash,
                "parent": each.block.parent,
                "tx_count": len(each.transactions),
            }
            for each in found
        ]
        return pa.Table.from_pylist(rows, BLOCKS.schema())

    def _transactions(self, found: Iterable[Minted]) -> pa.Table:
        """They cost nothing and call nothing; neither nonces nor types are known here."""
        rows = [
            {
                "chain": self.key,
                "height": each.block.height,
                "time": each.block.time,
                "tx_index": paid.tx_index,
                "hash": paid.tx_hash,
                "sender": paid.sender,
                "recipient": paid.recipient,
                "status": 1,
                "raw": paid.coins.to_bytes(32, "big"),
                "fee": bytes(32),
            }
            for each in found
            for paid in each.transactions
        ]
        return pa.Table.from_pylist(rows, TRANSACTIONS.schema())

    def _payments(self, found: Iterable[Minted], standards: set[str], contracts: Sequence[str]) -> pa.Table:
        rows = [
            {
                "chain": self.key,
                "height": each.block.height,
                "time": each.block.time,
                "tx_index": paid.tx_index,
                "log_index": -1,
                "item": paid.item,
                "tx_hash": paid.tx_hash,
                "token": paid.token,
                "standard": STANDARDS["transfers"] if paid.token else STANDARDS["native"],
                "sender": paid.sender,
                "recipient": paid.recipient,
                "raw": paid.raw.to_bytes(32, "big"),
            }
            for each in found
            for paid in each.payments
            if not (paid.token and contracts and paid.token not in contracts)
        ]
        return pa.Table.from_pylist([row for row in rows if row["standard"] in standards], TRANSFERS.schema())

    async def answer(self, reads: Sequence[Read[Value]], block: Block) -> list[Value]:
        """What some reads say after a block."""
        ledger = self._ask()
        minted = ledger.minted.get(block.height)
        if minted is None or minted.block.hash != block.hash:
            raise Reorged(self.key, block.height, block.hash)
        return cast(list[Value], [self._read(ledger, read, block.height) for read in reads])

    def _read(self, ledger: Ledger, read: Read[object], height: int) -> object:
        if isinstance(read, About):
            return TOKENS.get(read.token, Unknown("there is no such token", "absent"))
        if not isinstance(read, Balance):
            return Unknown(f"{self.kind} chains know no {type(read).__name__}")
        held = read.answered(ledger, height)
        return Unknown("there is no such token", "absent") if held is None else held

    async def answer_each(
        self, requests: Sequence[tuple[Block, Sequence[Read[Value]]]]
    ) -> list[list[Value] | SourceError]:
        """The same at several blocks."""
        results: list[list[Value] | SourceError] = []
        for block, reads in requests:
            try:
                results.append(await self.answer(reads, block))
            except SourceError as error:
                results.append(error)
        return results

    async def look_up(self, transactions: Sequence[IndexedTransaction]) -> list[TransactionDetails]:
        """Transactions that the index knows. They cost nothing, and none fails."""
        ledger = self._ask()
        return [self._details(ledger, each) for each in transactions]

    def _details(self, ledger: Ledger, known: IndexedTransaction) -> TransactionDetails:
        minted = ledger.minted.get(known.height)
        found = next((each for each in minted.transactions if each.tx_hash == known.tx_hash), None) if minted else None
        if found is None:
            raise Reorged(self.key, known.height, known.tx_hash)
        return TransactionDetails(found.sender, found.recipient, None, found.coins, 0, False, None)

    def account_reader(self, installed: InstalledProtocols, trusted: Collection[Asset] = ()) -> Accounts:
        """What reads accounts; there are no protocols here."""
        return Accounts()

    def wallet_reads(self, holding: Holding) -> Sequence[tuple[str, ReadResult]]:
        """Answers list no reads of this chain."""
        return ()

    def balances(self, pairs: Sequence[tuple[str, Asset]]) -> Plan[Sequence[int | Unknown]]:
        """How much accounts have of coins and tokens."""
        asked = [Balance(account, None if asset.is_native else asset.reference) for account, asset in pairs]
        return (yield from read_all(asked))

    def describe(self, assets: Sequence[Asset]) -> Plan[Mapping[Asset, Token]]:
        """Symbol, name and decimals of tokens, in one round."""
        told = yield from read_all([About(asset.reference) for asset in assets])
        return {
            asset: Token(asset, "", "", None) if isinstance(each, Unknown) else Token(asset, *each)
            for asset, each in zip(assets, told, strict=True)
        }

    def token_uris(self, collectibles: Sequence[Asset]) -> Plan[Sequence[str]]:
        """There are no collectibles here."""
        yield from ()
        return [""] * len(collectibles)

    async def probe(self, first: int) -> None:
        """Nothing has to be found out: there is one endpoint, and it serves all datasets."""

    async def examine(self) -> list[dict[str, Any]]:
        """The one endpoint."""
        heads = await self.heads()
        return [
            {"endpoint": ENDPOINT, "ok": True, "problem": "", "head": heads.latest.height, "final": heads.finalized}
        ]

    def health(self) -> list[EndpointHealth]:
        """The one endpoint."""
        head = self._ledger().head
        return [EndpointHealth(ENDPOINT, head.height, head.time_us, 0, requests=self.requests)]

    async def close(self) -> None:
        """There is nothing to let go of."""
