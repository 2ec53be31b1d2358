"""The chain's adapter. It inherits nothing: it has what `chainfolio.chains.Chain` requires."""

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
HEIGHTS = 40  # of which payments of accounts are listed in one read
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
class TokenDetails(Read[tuple[str, str, int] | Unknown]):
    """A read: symbol, name and decimals of a token, or Unknown."""

    token: str

    @property
    def label(self) -> ReadLabel:
        """Name of the read in answers."""
        return "about", self.token, None, ()


OnRead = Callable[[Span | None, Sequence[str]], None]


class InventedChain:
    """A chain in memory. `on_read` is called with each request before its answer; for a span, with its tokens."""

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
        """Return True if the block at a height cannot change any more."""
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
        return [each.block for each in ledger.blocks_at(heights)]

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
        minted_blocks = ledger.blocks_at(range(span.first, span.last + 1))
        blocks = [each.block for each in minted_blocks]
        if before is not None and blocks and blocks[0].parent != before.hash:
            raise Reorged(self.key, before.height, before.hash)
        standards = {STANDARDS[name] for name in datasets if name in STANDARDS}
        tables = {"transfers": self._payments(minted_blocks, standards, contracts)}
        if "blocks" in datasets:
            tables["blocks"] = self._blocks(minted_blocks)
        if "transactions" in datasets:
            tables["transactions"] = self._transactions(minted_blocks)
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
        result = await self.collect(part, datasets, (), before)
        tables = {
            name: next(each for each in DATASETS.values() if each.table.name == name).rows_of_accounts(rows, accounts)
            for name, rows in result.tables.items()
        }
        linked, events = before is not None, sum(map(len, tables.values()))
        return replace(
            result,
            tables=tables,
            blocks=result.blocks if linked else [],
            event_count=events,
            is_linked=linked,
            read_methods=dict.fromkeys(datasets, "list"),
        )

    def _blocks(self, minted_blocks: Iterable[Minted]) -> pa.Table:
        """Return block rows without miner and gas, which this chain does not have."""
        rows = [
            {
                "chain": self.key,
                "height": each.block.height,
                "time": each.block.time,
                "hash": each.block.hash,
                "parent": each.block.parent,
                "tx_count": len(each.transactions),
            }
            for each in minted_blocks
        ]
        return pa.Table.from_pylist(rows, BLOCKS.schema())

    def _transactions(self, minted_blocks: Iterable[Minted]) -> pa.Table:
        """They cost nothing and call nothing; neither nonces nor types are known here."""
        rows = [
            {
                "chain": self.key,
                "height": each.block.height,
                "time": each.block.time,
                "tx_index": payment.tx_index,
                "hash": payment.tx_hash,
                "sender": payment.sender,
                "recipient": payment.recipient,
                "status": 1,
                "raw": payment.coins.to_bytes(32, "big"),
                "fee": bytes(32),
            }
            for each in minted_blocks
            for payment in each.transactions
        ]
        return pa.Table.from_pylist(rows, TRANSACTIONS.schema())

    def _payments(self, minted_blocks: Iterable[Minted], standards: set[str], contracts: Sequence[str]) -> pa.Table:
        rows = [
            {
                "chain": self.key,
                "height": each.block.height,
                "time": each.block.time,
                "tx_index": payment.tx_index,
                "log_index": -1,
                "item": payment.item,
                "tx_hash": payment.tx_hash,
                "token": payment.token,
                "standard": STANDARDS["transfers"] if payment.token else STANDARDS["native"],
                "sender": payment.sender,
                "recipient": payment.recipient,
                "raw": payment.raw.to_bytes(32, "big"),
            }
            for each in minted_blocks
            for payment in each.payments
            if not (payment.token and contracts and payment.token not in contracts)
        ]
        return pa.Table.from_pylist([row for row in rows if row["standard"] in standards], TRANSFERS.schema())

    async def answer(self, reads: Sequence[Read[Value]], block: Block) -> list[Value]:
        """Answer reads at a block."""
        ledger = self._ask()
        minted = ledger.minted.get(block.height)
        if minted is None or minted.block.hash != block.hash:
            raise Reorged(self.key, block.height, block.hash)
        return cast(list[Value], [self._read(ledger, read, block.height) for read in reads])

    def _read(self, ledger: Ledger, read: Read[object], height: int) -> object:
        if isinstance(read, TokenDetails):
            return TOKENS.get(read.token, Unknown("there is no such token", "absent"))
        if not isinstance(read, Balance):
            return Unknown(f"{self.kind} chains know no {type(read).__name__}")
        result = read.answered(ledger, height)
        return Unknown("there is no such token", "absent") if result is None else result

    async def answer_each(
        self, requests: Sequence[tuple[Block, Sequence[Read[Value]]]]
    ) -> list[list[Value] | SourceError]:
        """Answer the same reads at several blocks."""
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

    def _details(self, ledger: Ledger, indexed: IndexedTransaction) -> TransactionDetails:
        minted = ledger.minted.get(indexed.height)
        transaction = (
            next((each for each in minted.transactions if each.tx_hash == indexed.tx_hash), None) if minted else None
        )
        if transaction is None:
            raise Reorged(self.key, indexed.height, indexed.tx_hash)
        return TransactionDetails(transaction.sender, transaction.recipient, None, transaction.coins, 0, False, None)

    def account_reader(self, installed: InstalledProtocols, trusted: Collection[Asset] = ()) -> Accounts:
        """Return the reader of accounts; there are no protocols here."""
        return Accounts()

    def wallet_reads(self, holding: Holding) -> Sequence[tuple[str, ReadResult]]:
        """Answers list no reads of this chain."""
        return ()

    def balances(self, pairs: Sequence[tuple[str, Asset]]) -> Plan[Sequence[int | Unknown]]:
        """Return the balances of accounts in coins and tokens."""
        reads = [Balance(account, None if asset.is_native else asset.reference) for account, asset in pairs]
        return (yield from read_all(reads))

    def describe(self, assets: Sequence[Asset]) -> Plan[Mapping[Asset, Token]]:
        """Symbol, name and decimals of tokens, in one round."""
        details = yield from read_all([TokenDetails(asset.reference) for asset in assets])
        return {
            asset: Token(asset, "", "", None) if isinstance(each, Unknown) else Token(asset, *each)
            for asset, each in zip(assets, details, strict=True)
        }

    def token_uris(self, collectibles: Sequence[Asset]) -> Plan[Sequence[str]]:
        """There are no collectibles here."""
        yield from ()
        return [""] * len(collectibles)

    async def probe(self, first: int) -> None:
        """Return the single endpoint's abilities without a request: it serves all datasets."""

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
