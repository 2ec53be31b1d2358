"""The chain itself: blocks at some heights, each with payments. The same seed and the same steps make the same one."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from random import Random

from chainfolio.plugins.chain import Block

START_US = 1_735_689_600_000_000  # 2025-01-01
BLOCK_TIME_US = 3_600_000_250  # times are no whole seconds
BIRTH = 2  # the height at which the tokens are issued
SKIPPED = 4  # about one height in so many has no block
COINS, SUPPLY = 10**12, 10**15
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def address(chance: Random) -> str:
    """An address that looks like chance."""
    return "inv1" + "".join(chance.choices(LETTERS, k=20))


NOBODY = "inv1" + "a" * 20  # who issues coins and tokens
NAMES = Random("names")
ACCOUNTS = tuple(address(NAMES) for _ in range(8))  # the last one never has anything
TOKENS = {address(NAMES): (f"TOK{number}", f"Token {number}", decimals) for number, decimals in enumerate((9, 6, 0))}


@dataclass(frozen=True, slots=True)
class Payment:
    """Coins, or units of a token, from one account to another; `tx_index` and `item` are its position in its block."""

    tx_hash: str
    tx_index: int
    item: int
    sender: str
    recipient: str
    token: str | None
    raw: int

    @property
    def coins(self) -> int:
        """Sum of the coins that the transaction moves."""
        return 0 if self.token else self.raw


@dataclass(frozen=True, slots=True)
class Minted:
    """A block with its payments."""

    block: Block
    payments: tuple[Payment, ...]

    @property
    def transactions(self) -> tuple[Payment, ...]:
        """The first payment of each transaction, which says who signed it."""
        return tuple(each for each in self.payments if each.item == 0)


Deed = tuple[str, str, str | None, int]  # sender, recipient, token, raw


class Ledger:
    """All blocks by height, and the newest height: there is always a block at it."""

    def __init__(self, seed: str, heights: int) -> None:
        self.minted: dict[int, Minted] = {}
        self._add(0, [[(NOBODY, account, None, COINS) for account in ACCOUNTS[:-1]]], seed)
        self._add(BIRTH, [[(NOBODY, each, token, SUPPLY) for each in ACCOUNTS[:-1]] for token in TOKENS], seed)
        if heights:
            self.trade(heights, seed)

    @property
    def head(self) -> Block:
        """The newest block."""
        return self.minted[max(self.minted)].block

    def blocks_at(self, heights: Iterable[int]) -> list[Minted]:
        """The blocks that there are at some heights, in order."""
        return [self.minted[height] for height in sorted(heights) if height in self.minted]

    def trade(self, heights: int, seed: str) -> None:
        """Add heights, most of them with a block with payments; the last one has a block."""
        chance, first = Random(seed), self.head.height + 1
        for height in range(first, first + heights):
            if height == first + heights - 1 or chance.randrange(SKIPPED):
                self._add(height, [self._transaction(chance) for _ in range(chance.randrange(1, 4))], seed)

    def mine(self, heights: int, seed: str = "") -> None:
        """More heights without any payment."""
        first = self.head.height + 1
        for height in range(first, first + heights):
            if height == first + heights - 1 or height % SKIPPED:
                self._add(height, [], seed)

    def reorg(self, depth: int, seed: str) -> None:
        """Other blocks at the newest heights, some at heights that had none."""
        first = self.head.height - depth + 1
        self.minted = {height: each for height, each in self.minted.items() if height < first}
        missing = depth - 1 + first - self.head.height
        self.trade(missing, seed)

    def fork(self) -> Ledger:
        """Copy the chain."""
        return copy.deepcopy(self)

    def balance(self, account: str, token: str | None, height: int) -> int | None:
        """Return an account's balance at a height, after the newest block up to it; None before the token exists."""
        moves = [each for each in self._payments(height) if each.token == token]
        if not moves:
            return None
        return sum(each.raw * ((each.recipient == account) - (each.sender == account)) for each in moves)

    def _payments(self, height: int) -> Iterator[Payment]:
        return (each for at, minted in self.minted.items() if at <= height for each in minted.payments)

    def _transaction(self, chance: Random) -> list[Deed]:
        """Payments of one transaction: coins, and a token that its sender has."""
        sender, recipient = chance.sample(ACCOUNTS[:-1], 2)
        token, top = chance.choice(list(TOKENS)), self.head.height
        token_balance = self.balance(sender, token, top) or 0
        payments: list[Deed] = [(sender, recipient, None, chance.randrange(1, 10**6))]
        return [*payments, (sender, recipient, token, 1 + token_balance // 3)] if token_balance else payments

    def _add(self, height: int, transactions: list[list[Deed]], seed: str) -> None:
        parent = self.head.hash if self.minted else ""
        name = sha256(repr((parent, height, transactions, seed)).encode()).hexdigest()
        payments = tuple(
            Payment(sha256(f"{name}/{index}".encode()).hexdigest(), index, item, *payment)
            for index, payments in enumerate(transactions)
            for item, payment in enumerate(payments)
        )
        self.minted[height] = Minted(Block(height, name, parent, START_US + height * BLOCK_TIME_US), payments)
