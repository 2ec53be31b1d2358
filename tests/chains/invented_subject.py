"""The invented kind's subject: a ledger in memory, and a reading of it that shares no code with its adapter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from chainfolio.blocks import Span
from chainfolio.capabilities import Capability
from tests.chains.invented.chainfolio_invented.chain import InventedChain
from tests.chains.invented.chainfolio_invented.kind import InventedSettings
from tests.chains.invented.chainfolio_invented.ledger import ACCOUNTS, BIRTH, TOKENS, Ledger, Payment
from tests.chains.subject import RequestLog, Row

KEY = "moon"


class InventedSubject:
    """A ledger that is traded on, forked and reorganised."""

    adapter = InventedChain
    asks_each_block = False
    lacks = frozenset(Capability) - {
        Capability.ACCOUNT_HISTORY,
        Capability.PAST_BALANCES,
        Capability.TRANSACTIONS,
    }
    no_rows = frozenset(["approvals", "logs"])
    datasets = ("blocks", "transactions", "native", "transfers")
    standards = frozenset(["native", "token"])
    approval_standards: frozenset[str] = frozenset()
    accounts: Sequence[str] = ACCOUNTS
    tokens: Sequence[str] = tuple(TOKENS)
    plain = tokens
    events: Sequence[str] = ()
    birth = BIRTH

    def __init__(self, blocks: int) -> None:
        self.request_log = RequestLog()
        self.ledger = Ledger(KEY, blocks)
        self._spare: Ledger | None = None
        self._reorgs = 0

    @property
    def height(self) -> int:
        """The newest block's height."""
        return self.ledger.head.height

    def chain(self, *, contracts: Sequence[str] = (), span: int = 25) -> InventedChain:
        """A new adapter; what it asks is counted."""
        settings = InventedSettings(adapter="invented", contracts=list(contracts), span=span, concurrency=3)
        return self.adapter(KEY, settings, lambda: self.ledger, self._count_read)

    def _count_read(self, span: Span | None, contracts: Sequence[str]) -> None:
        self.request_log.count()
        if span is not None:
            self.request_log.spans.append((span, tuple(contracts)))

    # --- control -----------------------------------------------------------------------------------------------------

    def mine(self, blocks: int) -> None:
        """Empty blocks, and heights without any."""
        self.ledger.mine(blocks)

    def trade(self, blocks: int, seed: int) -> None:
        """Payments, and heights without a block."""
        self.ledger.trade(blocks, str(seed))

    def reorg(self, depth: int) -> None:
        """Other blocks at the newest heights."""
        self._reorgs += 1
        self.ledger.reorg(depth, f"reorg {self._reorgs}")

    def fork(self, depth: int) -> None:
        """Copy the ledger, with another end."""
        assert self._spare is None, "there is a second ledger already"
        self._spare = self.ledger.fork()
        if depth:
            self._spare.reorg(depth, "fork")

    def switch(self) -> None:
        """The other ledger is the chain now."""
        assert self._spare is not None, "there is no second ledger"
        self.ledger, self._spare = self._spare, self.ledger

    # --- the truth ---------------------------------------------------------------------------------------------------

    def native(self, account: str, height: int) -> int:
        """Received less sent, coin by coin."""
        return self._sum(account, None, height)

    def balance(self, account: str, token: str, height: int) -> int | None:
        """Return the balance of a token, or None before it exists."""
        return self._sum(account, token, height) if height >= BIRTH else None

    def allowance(self, owner: str, token: str, spender: str, height: int) -> int:
        """Return 0: this chain has no allowances."""
        return 0

    def _sum(self, account: str, token: str | None, height: int) -> int:
        balance = 0
        for _, payment in self._payments(Span(0, height)):
            if payment.token == token:
                balance += payment.raw if payment.recipient == account else 0
                balance -= payment.raw if payment.sender == account else 0
        return balance

    def _payments(self, span: Span) -> Iterator[tuple[int, Payment]]:
        for height in range(span.first, span.last + 1):
            if height in self.ledger.minted:
                for payment in self.ledger.minted[height].payments:
                    yield height, payment

    def rows(self, span: Span) -> Mapping[str, list[Row]]:
        """Payment by payment; what this chain does not have is null."""
        names = ("blocks", "transactions", "transfers", *self.no_rows)
        rows_by_table: dict[str, list[Row]] = {name: [] for name in names}
        hashes: dict[int, set[str]] = {}
        for height, payment in self._payments(span):
            block_columns = {"chain": KEY, "height": height, "time": self.ledger.minted[height].block.time}
            if payment.item == 0:
                signed = {"sender": payment.sender, "recipient": payment.recipient, "created": None, "status": 1}
                sums = {"raw": bytes.fromhex(f"{0 if payment.token else payment.raw:064x}"), "fee": b"\0" * 32}
                none = dict.fromkeys(("nonce", "type", "gas_used", "gas_price", "input"))
                rows_by_table["transactions"].append(
                    {**block_columns, "tx_index": payment.tx_index, "hash": payment.tx_hash, **signed, **sums, **none}
                )
            hashes.setdefault(height, set()).add(payment.tx_hash)
            block_columns |= {
                "tx_index": payment.tx_index,
                "log_index": -1,
                "item": payment.item,
                "tx_hash": payment.tx_hash,
            }
            parties = {"operator": None, "sender": payment.sender, "recipient": payment.recipient}
            token_columns = {
                "standard": "token" if payment.token else "native",
                "token": payment.token,
                "token_id": None,
            }
            amount = {"raw": bytes.fromhex(f"{payment.raw:064x}"), "layout": None}
            rows_by_table["transfers"].append({**block_columns, **token_columns, **parties, **amount})
        for height in range(span.first, span.last + 1):
            if height in self.ledger.minted:
                block = self.ledger.minted[height].block
                row: Row = {"chain": KEY, "height": height, "time": block.time, "hash": block.hash}
                row |= {"parent": block.parent, "tx_count": len(hashes.get(height, ()))}
                rows_by_table["blocks"].append({**row, **dict.fromkeys(("miner", "gas_used", "gas_limit", "base_fee"))})
        return rows_by_table


@contextmanager
def invented(blocks: int) -> Iterator[InventedSubject]:
    """An invented subject with so many heights of trading."""
    yield InventedSubject(blocks)
