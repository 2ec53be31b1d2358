"""Positions of liquidity on Solana: opened, added to, earning, partly removed, claimed, closed."""

from __future__ import annotations

import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest
from solders.keypair import Keypair

from chainfolio.adapters.solana.layouts import TOKEN, TOKEN_2022
from chainfolio.adapters.solana.program_calls import parse_calls
from chainfolio.adapters.solana.transactions import to_base58
from chainfolio.errors import BadAnswer
from tests.gains.solana import (
    COIN,
    SOL,
    Drain,
    Ix,
    SolanaWallet,
    Stage,
    address,
    anchor_data,
    assert_equal,
    batch,
    burn,
    create,
    issue,
    pay,
    read,
    u128,
    usd_value,
)

USDC = 10**6
Amounts = Mapping[str, int]


@dataclass
class Pool(ABC):
    """A pool and one position in it. Accounts that a test does not need have one name."""

    stage: Stage
    me: str
    pool: str = field(default_factory=lambda: str(Keypair().pubkey()))
    position: str = field(default_factory=lambda: str(Keypair().pubkey()))
    nft: str = field(default_factory=lambda: str(Keypair().pubkey()))
    program: ClassVar[str]

    def __post_init__(self) -> None:
        for symbol in (SOL, "USDC", "RAY"):
            self.stage.put(self.pool, symbol, 10**12)

    @property
    def home(self) -> str:
        """The token account of the NFT."""
        return self.stage.home(self.me, self.nft)

    def gives(self, amounts: Amounts) -> list[Ix]:
        """The wallet pays the pool."""
        return [pay(self.stage, self.me, self.pool, symbol, raw) for symbol, raw in amounts.items()]

    def takes(self, amounts: Amounts) -> list[Ix]:
        """The pool pays the wallet."""
        return [pay(self.stage, self.pool, self.me, symbol, raw) for symbol, raw in amounts.items()]

    def vault(self, symbol: str) -> str:
        """The account of the pool with a token."""
        return pay(self.stage, self.pool, self.me, symbol, 0).accounts[0]

    def call(self, name: str, account_at: Mapping[int, str], *parts: bytes, inner: Sequence[Ix | Drain] = ()) -> Ix:
        """Return a call with accounts by their index; all other accounts are fillers."""
        accounts = [account_at.get(i, address("other")) for i in range(14)]
        return Ix(self.program, accounts, anchor_data(name, *parts), inner)

    def born(self) -> list[Ix]:
        """The accounts of a new position are created, and its NFT."""
        return [
            create(self.me, self.position, self.program, 3_000_000),
            create(self.me, self.nft, TOKEN_2022, 2_000_000),
            issue(self.stage, self.nft, self.me, 1),
        ]

    def dead(self) -> list[Ix | Drain]:
        """The accounts are closed, and the NFT is destroyed."""
        return [
            burn(self.stage, self.nft, self.me, 1),
            Drain(self.position, self.me),
            Drain(self.nft, self.me),
        ]

    @abstractmethod
    def open(self) -> list[Ix]:
        """Open an empty position."""

    @abstractmethod
    def add(self, units: int, amounts: Amounts) -> Ix:
        """Add liquidity."""

    @abstractmethod
    def remove(self, units: int, of: int, amounts: Amounts) -> Ix:
        """Remove liquidity, of so much that there is."""

    @abstractmethod
    def claim(self, amounts: Amounts) -> list[Ix]:
        """Claim fees and rewards."""

    @abstractmethod
    def close(self) -> Ix:
        """Close the empty position."""


class Whirlpool(Pool):
    program = "whirLbMiicVdio4qvUfM5KAg6Ct8VwpYzGff3uctyCc"

    def open(self) -> list[Ix]:
        account_at = {0: self.me, 1: self.me, 2: self.position, 3: self.nft, 4: self.home}
        return [self.call("open_position_with_token_extensions", account_at, bytes(9), inner=self.born())]

    def add(self, units: int, amounts: Amounts) -> Ix:
        return self.call("increase_liquidity_v2", {6: self.home}, u128(units), inner=self.gives(amounts))

    def remove(self, units: int, of: int, amounts: Amounts) -> Ix:
        return self.call("decrease_liquidity_v2", {6: self.home}, u128(units), inner=self.takes(amounts))

    def claim(self, amounts: Amounts) -> list[Ix]:
        fees = {symbol: raw for symbol, raw in amounts.items() if symbol != "RAY"}
        reward = {"RAY": amounts["RAY"]}
        return [
            self.call("collect_fees_v2", {3: self.home}, inner=self.takes(fees)),
            self.call("collect_reward_v2", {3: self.home}, b"\0", inner=self.takes(reward)),
        ]

    def close(self) -> Ix:
        account_at = {2: self.position, 3: self.nft, 4: self.home}
        return self.call("close_position_with_token_extensions", account_at, inner=self.dead())


class Clmm(Pool):
    program = "CAMMCzo5YL8w4VFF8KVHrK22GGUsp5VTaW7grrKgrWqK"

    def open(self) -> list[Ix]:
        account_at = {0: self.me, 1: self.me, 2: self.nft, 3: self.home, 8: self.position}
        return [self.call("open_position_with_token22_nft", account_at, bytes(16), u128(1), inner=self.born())]

    def add(self, units: int, amounts: Amounts) -> Ix:
        return self.call("increase_liquidity_v2", {1: self.home}, u128(units), inner=self.gives(amounts))

    def remove(self, units: int, of: int, amounts: Amounts) -> Ix:
        account_at = {1: self.home, 5: self.vault(SOL), 6: self.vault("USDC")}
        return self.call("decrease_liquidity_v2", account_at, u128(units), inner=self.takes(amounts))

    def claim(self, amounts: Amounts) -> list[Ix]:
        return [self.remove(0, 1, amounts)]

    def close(self) -> Ix:
        return self.call("close_position", {1: self.nft, 2: self.home, 3: self.position}, inner=self.dead())


class Damm(Pool):
    program = "cpamdpZCGKUy5JxQXB4dcpGPiikHawvSWAd6mEn1sGG"

    def open(self) -> list[Ix]:
        account_at = {0: self.me, 1: self.nft, 2: self.home, 4: self.position}
        return [self.call("create_position", account_at, inner=self.born())]

    def add(self, units: int, amounts: Amounts) -> Ix:
        return self.call("add_liquidity", {1: self.position, 8: self.home}, u128(units), inner=self.gives(amounts))

    def remove(self, units: int, of: int, amounts: Amounts) -> Ix:
        account_at, inner = {2: self.position, 9: self.home}, self.takes(amounts)
        if units == of:
            return self.call("remove_all_liquidity", account_at, bytes(16), inner=inner)
        return self.call("remove_liquidity", account_at, u128(units), inner=inner)

    def claim(self, amounts: Amounts) -> list[Ix]:
        fees = {symbol: raw for symbol, raw in amounts.items() if symbol != "RAY"}
        return [
            self.call("claim_position_fee", {9: self.home}, inner=self.takes(fees)),
            self.call("claim_reward", {6: self.home}, b"\0\0", inner=self.takes({"RAY": amounts["RAY"]})),
        ]

    def close(self) -> Ix:
        return self.call("close_position", {0: self.nft, 1: self.home, 3: self.position}, inner=self.dead())


class Dlmm(Pool):
    program = "LBUZKhRxPF3XUpBCjp4YzTKgLccjZhTSDM9YuVaPwxo"
    bins = (-5, 10)

    def open(self) -> list[Ix]:
        inner = [create(self.me, self.position, self.program, 5_000_000)]
        data = struct.pack("<ii", self.bins[0], self.bins[1] - self.bins[0] + 1)
        return [self.call("initialize_position2", {1: self.position, 3: self.me}, data, inner=inner)]

    def add(self, units: int, amounts: Amounts) -> Ix:
        return self.call("add_liquidity_by_strategy2", {0: self.position}, bytes(40), inner=self.gives(amounts))

    def remove(self, units: int, of: int, amounts: Amounts) -> Ix:
        data = struct.pack("<iiH", *self.bins, 10_000 * units // of)
        return self.call("remove_liquidity_by_range2", {0: self.position}, data, inner=self.takes(amounts))

    def claim(self, amounts: Amounts) -> list[Ix]:
        fees = {symbol: raw for symbol, raw in amounts.items() if symbol != "RAY"}
        return [
            self.call("claim_fee2", {1: self.position}, bytes(8), inner=self.takes(fees)),
            self.call("claim_reward2", {1: self.position}, bytes(16), inner=self.takes({"RAY": amounts["RAY"]})),
        ]

    def close(self) -> Ix:
        return self.call("close_position2", {0: self.position}, inner=[Drain(self.position, self.me)])


class Copy(Clmm):
    """A copy of Raydium's program, which its file names."""

    program = "HpNfyc2Saw7RKkQd8nEL4khUcuPhQ7WwY1B2qjx8jxFq"


class Batched(Damm):
    """A pool that moves both tokens in one instruction of the token program."""

    def gives(self, amounts: Amounts) -> list[Ix]:
        return [batch(*super().gives(amounts))]

    def takes(self, amounts: Amounts) -> list[Ix]:
        return [batch(*super().takes(amounts))]


POOLS = [Whirlpool, Clmm, Damm, Dlmm, Copy, Batched]


def through_router(*calls: Ix) -> Ix:
    """A call of a router of no file that calls a protocol."""
    return Ix(address("a router"), (), b"anything", calls)


@pytest.fixture
def me() -> SolanaWallet:
    """A wallet that bought eleven SOL for less than they are worth now."""
    wallet = SolanaWallet.new(Stage(), SOL=COIN // 10, USDC=5_000 * USDC)
    wallet.trade("USDC", 880 * USDC, SOL, 11 * COIN)
    return wallet


@pytest.mark.parametrize("is_routed", [False, True], ids=["called", "through a router"])
@pytest.mark.parametrize("kind", POOLS, ids=lambda kind: kind.__name__)
def test_life_of_a_position(me: SolanaWallet, tmp_path: Path, kind: type[Pool], is_routed: bool) -> None:
    pool = kind(me.stage, me.address)

    def do(*calls: Ix) -> None:
        me.do(*([through_router(*calls)] if is_routed else calls))

    do(*pool.open())
    do(pool.add(1_000, {SOL: 5 * COIN, "USDC": 500 * USDC}))
    do(*pool.claim({SOL: COIN // 100, "USDC": 2 * USDC, "RAY": 3 * USDC}))
    for symbol, raw in ((SOL, COIN // 100), ("USDC", 2 * USDC), ("RAY", 3 * USDC)):
        me.ledger.earn(symbol, raw, usd_value(symbol, raw))
    do(pool.remove(400, 1_000, {SOL: 15 * COIN // 10, "USDC": 250 * USDC}))
    me.withdraw({SOL: 2 * COIN, "USDC": 200 * USDC}, {SOL: 15 * COIN // 10, "USDC": 250 * USDC})
    do(pool.add(200, {SOL: COIN, "USDC": 100 * USDC}))
    do(pool.remove(800, 800, {SOL: 44 * COIN // 10, "USDC": 350 * USDC}), pool.close())
    me.withdraw({SOL: 4 * COIN, "USDC": 400 * USDC}, {SOL: 44 * COIN // 10, "USDC": 350 * USDC})
    report, _ = read(me.stage, tmp_path, me)
    assert_equal(report, me)


@pytest.mark.parametrize("content", [(3,), (4, 10, 12), (5, 1, 12)], ids=["header", "data", "accounts"])
def test_batch_that_breaks_off_is_refused(me: SolanaWallet, content: tuple[int, ...]) -> None:
    entry = me.stage.send(me.address, batch(pay(me.stage, me.address, address("friend"), "USDC", USDC)))
    entry["transaction"]["message"]["instructions"][0]["data"] = to_base58(bytes([255, *content]))
    with pytest.raises(BadAnswer, match="breaks off"):
        parse_calls("node", json.dumps(entry).encode(), [TOKEN])
