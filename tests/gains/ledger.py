"""A ledger of a wallet, independent of Chainfolio: balances from the chain, costs first in, first out."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from chainfolio.localchain.deploy import FEED_DECIMALS, Deployment
from chainfolio.localchain.evm import Tx, tx
from chainfolio.localchain.node import LocalNode

ETH = "ETH"
STABLE = {"USDC", "DAI"}  # their value is that of a trade


@dataclass
class Ledger:
    """Lots by asset as quantity and cost, and the sums of what was closed, earned and paid in fees."""

    lots: dict[str, deque[tuple[int, Fraction]]] = field(default_factory=dict)
    closed: Fraction = Fraction(0)
    income: Fraction = Fraction(0)

    def buy(self, asset: str, raw: int, cost: Fraction) -> None:
        """Add a lot."""
        self.lots.setdefault(asset, deque()).append((raw, cost))

    def earn(self, asset: str, raw: int, value: Fraction) -> None:
        """Add a lot that is income."""
        self.income += value
        self.buy(asset, raw, value)

    def sell(self, asset: str, raw: int, proceeds: Fraction) -> None:
        """Take the oldest lots for what was paid for them."""
        self.closed += proceeds
        while raw:
            lot_raw, cost = self.lots[asset].popleft()
            part = min(lot_raw, raw)
            self.closed -= cost * part / lot_raw
            if lot_raw > part:
                self.lots[asset].appendleft((lot_raw - part, cost * (lot_raw - part) / lot_raw))
            raw -= part

    def cost_of(self, asset: str, raw: int) -> Fraction:
        """The cost of the oldest lots that hold so much."""
        total = Fraction(0)
        for lot_raw, cost in self.lots[asset]:
            part = min(lot_raw, raw)
            total += cost * part / lot_raw
            raw -= part
        return total

    def quantity(self, asset: str) -> int:
        """Raw units of all lots."""
        return sum(raw for raw, _ in self.lots.get(asset, ()))

    @property
    def cost(self) -> Fraction:
        """The cost of all lots."""
        return sum((cost for lots in self.lots.values() for _, cost in lots), Fraction(0))


@dataclass
class Wallet:
    """A new wallet on the local chain, and its ledger. `assets`: tokens to follow, by symbol."""

    node: LocalNode
    deployment: Deployment
    address: str
    assets: Mapping[str, str]
    ledger: Ledger = field(default_factory=Ledger)
    fee: Fraction = Fraction(0)  # USD for the last transactions

    def price(self, symbol: str) -> Fraction:
        """USD for one raw unit, by the feed of now; rewards are worth two."""
        if symbol not in self.deployment.tokens and symbol != ETH:
            return Fraction(2, 10**18)
        feed = "ETH" if symbol == "WETH" else symbol
        answer = self.node.call(self.deployment.contracts[f"{feed} FluxAggregator"], "latestAnswer()(int256)")
        decimals = 18 if symbol == ETH else self.deployment.tokens[symbol].decimals
        return Fraction(answer, 10 ** (FEED_DECIMALS + decimals))

    def value(self, symbol: str, raw: int) -> Fraction:
        """USD for raw units, by the feed of now."""
        return raw * self.price(symbol)

    def balances(self) -> dict[str, int]:
        """Return the wallet's balances by asset; the wrapped coin counts as the coin."""
        balances = {ETH: int(self.node.rpc("eth_getBalance", self.address, "latest"), 16)}
        for symbol, token in self.assets.items():
            key = ETH if symbol == "WETH" else symbol
            raw = self.node.call(token, "balanceOf(address)(uint256)", self.address)
            balances[key] = balances.get(key, 0) + raw
        return balances

    def get(self, symbol: str, raw: int) -> None:
        """Receive something from a friend, at the price of now."""
        friend = self.deployment.accounts["ivan"]
        if symbol == ETH:
            self.node.settle([Tx(friend, self.address, value=raw)])
        else:
            token = self.deployment.tokens[symbol].address
            self.node.settle([tx(friend, token, "transfer(address,uint256)", self.address, raw)])
        key = ETH if symbol == "WETH" else symbol
        self.ledger.buy(key, raw, self.value(symbol, raw))

    def do(self, *transactions: Tx) -> dict[str, int]:
        """Send transactions, each in a block; return what they moved besides fees, which are sold at once."""
        before = self.balances()
        fees, self.fee = 0, Fraction(0)
        for each in transactions:
            self.node.settle([each])
            (hash,) = self.node.block()["transactions"]
            receipt = self.node.rpc("eth_getTransactionReceipt", hash)
            if receipt["from"].lower() == self.address.lower():
                fee = int(receipt["gasUsed"], 16) * int(receipt["effectiveGasPrice"], 16)
                fees += fee
                self.fee += self.value(ETH, fee)
                self.ledger.sell(ETH, fee, self.value(ETH, fee))
        after = self.balances()
        after[ETH] += fees
        return {symbol: after[symbol] - raw for symbol, raw in before.items() if after[symbol] != raw}

    def withdraw(self, went_in: Mapping[str, int], came_out: Mapping[str, int]) -> None:
        """Record the withdrawal of a part of a pool position, whose shortfall was exchanged for its surplus.

        The value of the exchange is that of the stable currency in it, else that of the surplus.
        """
        shortfall = {
            symbol: raw - came_out.get(symbol, 0) for symbol, raw in went_in.items() if raw > came_out.get(symbol, 0)
        }
        surplus = {
            symbol: raw - went_in.get(symbol, 0) for symbol, raw in came_out.items() if raw > went_in.get(symbol, 0)
        }
        deciding = (
            shortfall if shortfall.keys() <= STABLE & came_out.keys() and not surplus.keys() <= STABLE else surplus
        )
        value = sum((self.value(symbol, raw) for symbol, raw in deciding.items()), Fraction(0))
        for symbol, raw in surplus.items():
            if shortfall:
                self.ledger.buy(symbol, raw, value / len(surplus))
            else:
                self.ledger.earn(symbol, raw, self.value(symbol, raw))
        for symbol, raw in shortfall.items():
            self.ledger.sell(symbol, raw, value / len(shortfall))
