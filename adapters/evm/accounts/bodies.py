"""Read the transactions of accounts, with receipts, from the blocks in which the accounts were active."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from chainfolio.adapters.evm import logs as columns
from chainfolio.adapters.evm.accounts.header_cache import HeaderCache
from chainfolio.adapters.evm.accounts.receipt_logs import ReceiptLogs, logs_naming, logs_of_receipt
from chainfolio.adapters.evm.accounts.transactions_by_index import HashesByHeight, read_by_index
from chainfolio.adapters.evm.datasets.internal import TracedBlock
from chainfolio.adapters.evm.datasets.transactions import (
    ExecutedTransaction,
    FullBlock,
    Receipt,
    Transaction,
    comparison_key,
    match_receipt,
)
from chainfolio.adapters.evm.datasets.withdrawals import GWEI
from chainfolio.adapters.evm.facts import MINTS, WITHDRAWALS, Facts
from chainfolio.adapters.evm.logs import Logs
from chainfolio.adapters.evm.node import Header, Node, raw_blocks, results_of
from chainfolio.adapters.evm.proven import are_receipts_proven, comparable_logs, proven_receipts
from chainfolio.adapters.evm.roots import check_header, check_transactions, check_withdrawals
from chainfolio.errors import BadAnswer, Reorged, UnsupportedMethod
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed

FIRST_BATCH, MAX_BATCH = 50, 500  # full blocks of the first request, and of any
BY_INDEX = "by_place"  # capability: 0 if the endpoint does not serve transactions by index
ANSWER_BYTES = 15_000_000  # target size of one answer: about 50 blocks of a busy chain


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """A block with those of its transactions that concern some accounts.

    Attributes:
        full: The block; with `header` set, it has only the transactions that were known by hash.
        transactions: The transactions that an account sent or received.
        logs: The logs of the read receipts that name an account.
        tx_hashes: The hashes of all transactions of the block.
        source: The endpoint of the receipts.
        is_proven: True if all receipts of the block were read and proven.
        header: The header of a block that was read by index; None if the full block was read.
    """

    full: FullBlock
    transactions: tuple[ExecutedTransaction, ...]
    logs: Logs
    tx_hashes: tuple[str, ...]
    source: str
    is_proven: bool = False
    header: Header | None = None

    @property
    def traced_block(self) -> TracedBlock:
        """The block as a subject of traces."""
        return TracedBlock(self.full.height, self.full.time_s, self.full.hash.lower(), self.tx_hashes)

    def coin_change(self, account: str) -> int:
        """Return how the transactions' values, fees and mints changed an account's raw coins."""
        total = 0
        for tx in self.transactions:
            is_sender = tx.transaction.sender.lower() == account
            raw = int(tx.transaction.value, 16) if tx.status != 0 and tx.recipient else 0
            total += raw * ((tx.recipient == account) - is_sender) + (tx.minted - tx.fee) * is_sender
        return total

    def sent_count(self, account: str) -> int:
        """Return the number of transactions that an account sent."""
        return sum(tx.transaction.sender.lower() == account for tx in self.transactions)

    def withdrawn_coins(self, account: str) -> int:
        """Return the raw coins that validators withdrew to an account."""
        withdrawals = self.full.withdrawals or ()
        return GWEI * sum(int(each.amount, 16) for each in withdrawals if each.address.lower() == account)

    def comparison_key(self) -> Hashable:
        """Return the content that endpoints must agree about."""
        withdrawals = tuple((each.address.lower(), int(each.amount, 16)) for each in self.full.withdrawals or ())
        transactions = tuple(comparison_key(each) for each in self.transactions)
        return self.full.hash.lower(), withdrawals, transactions, tuple(comparable_logs(self.logs))


def receipt_logs(bodies: Collection[Body]) -> ReceiptLogs:
    """Return the logs in the receipts of some blocks."""
    return ReceiptLogs(
        columns.join([body.logs for body in bodies]),
        {body.full.height: body.source for body in bodies},
        frozenset(body.full.height for body in bodies if body.is_proven),
    )


@dataclass(frozen=True, slots=True)
class KnownHashes:
    """The hashes of the accounts' transactions by height, and headers that were read before."""

    hashes: HashesByHeight
    headers: HeaderCache


@dataclass(frozen=True, slots=True)
class BodyReader:
    """Reads blocks with the transactions of accounts.

    Attributes:
        node: The chain's endpoints.
        integrity: The setting of the chain.
    """

    node: Node
    integrity: str

    @property
    def _is_proven(self) -> bool:
        """True if blocks and receipts are proven by the hash of their block."""
        return are_receipts_proven(self.node.facts, self.integrity)

    async def read(
        self,
        heights: Sequence[int],
        accounts: Collection[str],
        hashes: Mapping[int, str],
        known_hashes: KnownHashes | None = None,
    ) -> dict[int, Body]:
        """Return blocks by height, with the transactions of some accounts and their receipts.

        Args:
            heights: The blocks to read.
            accounts: Addresses in lower case.
            hashes: Block hashes by height, for blocks that are not final.
            known_hashes: The transactions of final blocks, if their hashes are known; otherwise, and if blocks are
                proven, full blocks are searched. `hashes` is not compared with them.

        Raises:
            Reorged: A block no longer has its hash in `hashes`.
            BadAnswer: Blocks, transactions and receipts do not belong together.
            SourceError: No endpoint gives them.
        """
        if not heights:
            return {}

        async def at(endpoint: Endpoint) -> list[Body]:
            if known_hashes and not self._is_proven and endpoint.capabilities.get(BY_INDEX, 1):
                try:
                    return await self._read_known(endpoint, heights, accounts, known_hashes)
                except UnsupportedMethod as refusal:
                    endpoint.errors.note(refusal)
                    endpoint.learn(BY_INDEX, 0)
            bodies: list[Body] = []
            count, size = FIRST_BATCH, 0
            while part := heights[len(bodies) : len(bodies) + count]:
                answers = await raw_blocks(endpoint, part, "eth_getBlockByNumber", True)
                size += sum(map(len, answers))
                bodies += await self._parse_bodies(endpoint, part, answers, accounts, hashes)
                count = max(1, min(MAX_BATCH, ANSWER_BYTES * len(bodies) // size))
            return bodies

        bodies = await self.node.agreed(
            at,
            key=Body.comparison_key,
            describe=lambda question: f"the transactions of block {heights[question]}",
            is_final=lambda question: self.node.is_final(heights[question]),
            kind="account bodies",
        )
        return dict(zip(heights, bodies, strict=True))

    async def _parse_bodies(
        self,
        endpoint: Endpoint,
        heights: Sequence[int],
        answers: Sequence[bytes],
        accounts: Collection[str],
        hashes: Mapping[int, str],
    ) -> list[Body]:
        """Check full blocks and read the receipts of the accounts' transactions.

        Raises BadAnswer for another block, Reorged for another hash than in `hashes`.
        """
        blocks = []
        for height, answer in zip(heights, answers, strict=True):
            full = typed(endpoint.name, answer, FullBlock)
            if int(full.number, 16) != height:
                raise BadAnswer(endpoint.name, f"another block in answer to block {height}")
            if hashes.get(height, full.hash.lower()) != full.hash.lower():
                raise Reorged(endpoint.name, height, hashes[height])
            check_withdrawals(self.node.facts, endpoint.name, full, hashed=self.node.hashed)
            blocks.append(_without_unpaid(self.node.facts, full))
        indexed = [(full, range(len(full.transactions))) for full in blocks]
        receipts = await self._proven_receipts(endpoint, blocks, answers) if self._is_proven else {}
        contents = await self._own_transactions(endpoint, accounts, indexed, receipts)
        return [
            Body(
                full,
                *contents[full.hash],
                tuple(tx.hash.lower() for tx in full.transactions),
                endpoint.name,
                self._is_proven,
            )
            for full in blocks
        ]

    async def _proven_receipts(
        self, endpoint: Endpoint, blocks: Sequence[FullBlock], answers: Sequence[bytes]
    ) -> dict[str, list[bytes]]:
        """Return all receipts of blocks by block hash; blocks and receipts are proven by that hash.

        Raises:
            Contradiction: Header, transactions or receipts do not match the hash or its roots.
            BadAnswer: The receipts are those of another block.
        """
        headers = []
        for full, answer in zip(blocks, answers, strict=True):
            header = typed(endpoint.name, answer, Header)
            check_header(self.node.facts, endpoint.name, answer)
            check_transactions(self.node.facts, endpoint.name, answer, header.transactionsRoot)
            header.hash = header.hash.lower()
            header.transactions = [msgspec.Raw(msgspec.json.encode(tx.hash)) for tx in full.transactions]
            headers.append(header)
        receipts = await proven_receipts(self.node.facts, endpoint, headers)
        return {
            full.hash: [bytes(each) for each in typed(endpoint.name, block_receipts, list[msgspec.Raw])]
            for full, block_receipts in zip(blocks, receipts, strict=True)
        }

    async def _read_known(
        self, endpoint: Endpoint, heights: Sequence[int], accounts: Collection[str], known_hashes: KnownHashes
    ) -> list[Body]:
        """Read bodies by the indices of transactions whose hashes are known; they are not proven by roots.

        Raises:
            UnsupportedMethod: The endpoint does not serve transactions by index.
            BadAnswer: A block lacks one of them.
        """
        blocks = await read_by_index(self.node, endpoint, heights, known_hashes.hashes, known_hashes.headers)
        indexed = [(_without_unpaid(self.node.facts, each.block), each.indices) for each in blocks]
        contents = await self._own_transactions(endpoint, accounts, indexed, {})
        return [
            Body(each.block, *contents[each.block.hash], each.tx_hashes, endpoint.name, header=each.header)
            for each in blocks
        ]

    async def _own_transactions(
        self,
        endpoint: Endpoint,
        accounts: Collection[str],
        blocks: Sequence[tuple[FullBlock, Sequence[int]]],
        known_receipts: Mapping[str, Sequence[bytes]],
    ) -> dict[str, tuple[tuple[ExecutedTransaction, ...], Logs]]:
        """Return the accounts' executed transactions, and the receipts' logs that name them, by block hash.

        Receipts are read only of transactions that may concern the accounts.

        Args:
            endpoint: The endpoint that gives receipts.
            accounts: Addresses in lower case.
            blocks: Blocks with the indices of their transactions.
            known_receipts: All receipts of blocks that were already read, by block hash.

        Raises:
            BadAnswer: A receipt is another transaction's.
        """
        indexed = [(full, *each) for full, indices in blocks for each in zip(indices, full.transactions, strict=True)]
        candidates = [each for each in indexed if each[0].hash in known_receipts or _may_concern(each[2], accounts)]
        requests = [
            Request("eth_getTransactionReceipt", (tx.hash,))
            for full, _, tx in candidates
            if full.hash not in known_receipts
        ]
        answers = iter(await results_of(endpoint, requests))
        executed: dict[str, list[ExecutedTransaction]] = {full.hash: [] for full, _ in blocks}
        logs: dict[str, list[Logs]] = {full.hash: [] for full, _ in blocks}
        bloom = self.integrity != "off"
        for full, index, tx in candidates:
            receipt = known_receipts[full.hash][index] if full.hash in known_receipts else next(answers)
            tx_executed = match_receipt(endpoint.name, full, index, tx, typed(endpoint.name, receipt, Receipt))
            if {tx.sender.lower(), tx_executed.recipient} & set(accounts):
                executed[full.hash].append(tx_executed)
            receipt_logs = logs_of_receipt(endpoint.name, full, tx_executed, receipt, bloom=bloom)
            logs[full.hash].append(logs_naming(receipt_logs, [*accounts]))
        return {block_hash: (tuple(each), columns.join(logs[block_hash])) for block_hash, each in executed.items()}


def _without_unpaid(facts: Facts, full: FullBlock) -> FullBlock:
    """Remove withdrawals and mints from a block, in place, if the chain's protocol does not pay them."""
    if WITHDRAWALS not in facts.pays:
        full.withdrawals = None
    if MINTS not in facts.pays:
        for tx in full.transactions:
            tx.mint = None
    return full


def _may_concern(tx: Transaction, accounts: Collection[str]) -> bool:
    """Return True if a transaction may concern the accounts; True for contract creations."""
    return tx.to is None or tx.sender.lower() in accounts or tx.to.lower() in accounts
