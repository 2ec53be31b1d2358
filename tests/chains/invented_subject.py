"""The invented kind's subject: a ledger in memory, and a reading of it that shares no code with its adapter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from chainfolio.blocks import Span
from chainfolio.capabilities import Capability
from tests.chains.invented.chainfolio_invented.chain import InventedChain
from tests.chains.invented.chainfolio_invented.kind import InventedSettings
from tests.chains.invented.chainfolio_invented.ledger import ACCOUNTS, BIRTH, TOKENS, Ledger, Payment
from tests.chains.subject import Asked, Row

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
        self.asked = Asked()
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
        return self.adapter(KEY, settings, lambda: self.ledger, self._heard)

    def _heard(self, span: Span | None, contracts: Sequence[str]) -> None:
        self.asked.count()
        if span is not None:
            self.asked.spans.append((span, tuple(contracts)))

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
        """The same ledger once more, with another end."""
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
        """The same of a token, once it is there."""
        return self._sum(account, token, height) if height >= BIRTH else None

    def allowance(self, owner: str, token: str, spender: str, height: int) -> int:
        """Nobody can allow anything here."""
        return 0

    def _sum(self, account: str, token: str | None, height: int) -> int:
        held = 0
        for _, paid in self._payments(Span(0, height)):
            if paid.token == token:
                held += paid.raw if paid.recipient == account else 0
                held -= paid.raw if paid.sender == account else 0
        return held

    def _payments(self, span: Span) -> Iterator[tuple[int, Payment]]:
        for height in range(span.first, span.last + 1):
            if height in self.ledger.minted:
                for paid in self.ledger.minted[height].payments:
                    yield height, paid

    def rows(self, span: Span) -> Mapping[str, list[Row]]:
        """Payment by payment; what this chain does not have is null."""
        names = ("blocks", "transactions", "transfers", *self.no_rows)
        found: dict[str, list[Row]] = {name: [] for name in names}
        hashes: dict[int, set[str]] = {}
        for height, paid in self._payments(span):
            place = {"chain": KEY, "height": height, "time": self.ledger.minted[height].block.time}
            if paid.item == 0:
                signed = {"sender": paid.sender, "recipient": paid.recipient, "created": None, "status": 1}
                sums = {"raw": bytes.fromhex(f"{0 if paid.token else paid.raw:064x}"), "fee": b"\0" * 32}
                none = dict.fromkeys(("nonce", "type", "gas_used", "gas_price", "input"))
                found["transactions"].append(
                    {**place, "tx_index": paid.tx_index, "hash": paid.tx_hash, **signed, **sums, **none}
                )
            hashes.setdefault(height, set()).add(paid.tx_hash)
            place |= {"tx_index": paid.tx_index, "log_index": -1, "item": paid.item, "tx_hash": paid.tx_hash}
            parties = {"operator": None, "sender": paid.sender, "recipient": paid.recipient}
            what = {"standard": "token" if paid.token else "native", "token": paid.token, "token_id": None}
            amount = {"raw": bytes.fromhex(f"{paid.raw:064x}"), "layout": None}
            found["transfers"].append({**place, **what, **parties, **amount})
        for height in range(span.first, span.last + 1):
            if height in self.ledger.minted:
                block = self.ledger.minted[height].block
                row: Row = {"chain": KEY, "height": height, "time": block.time, "hash": block.hash}
                row |= {"parent": block.parent, "tx_count": len(hashes.get(height, ()))}
                found["blocks"].append({**row, **dict.fromkeys(("miner", "gas_used", "gas_limit", "base_fee"))})
        return found


@contextmanager
def invented(blocks: int) -> Iterator[InventedSubject]:
    """An invented subject with so many heights of trading."""
    yield InventedSubject(blocks)
