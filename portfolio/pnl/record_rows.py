"""Read the movements of one record of a transaction: assets, quantities, values and counterparties."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from chainfolio.contracts import TRADE_VALUES
from chainfolio.portfolio.document import IssueDocument
from chainfolio.portfolio.pnl.containers import Holder
from chainfolio.portfolio.pnl.entries import AssetFacts, Entry, money
from chainfolio.portfolio.pnl.trade_value import FEED_STRENGTH, Side, Strength, Strengths
from chainfolio.portfolio.pnl.transaction_records import MovedAsset, TransactionRecord
from chainfolio.portfolio.transactions import UNKNOWN_PROTOCOL

NO_AMOUNT: Final = "its decimals are not known: what moved of it is not counted"


@dataclass(frozen=True, slots=True)
class Treatment:
    """Decisions of an account's owner.

    Attributes:
        deposits_are_disposals: A deposit in a protocol is a sale.
        liquidity_is_disposal: Liquidity that is added to a pool is sold for its shares.
        received_at_spot: Assets sent by others cost their value at that time.
        aliases: Keys of assets that count as another one (the wrapped native coin).
        coins: The symbols of native coins, by key.
        burn_addresses: Addresses that mint and burn.
        gas_holders: Contracts that keep coins of wallets for the gas of their operations (entry points).
        is_trusted: Returns False for contracts whose movements by others may be invented.
        is_priced: Returns False for contracts that the settings name no price of.
        trade_value: Which side of a trade gives both their value, one of `TRADE_VALUES`.
        strengths: The strengths of prices, where they are no feeds.
    """

    deposits_are_disposals: bool = False
    liquidity_is_disposal: bool = False
    received_at_spot: bool = True
    aliases: Mapping[str, str] = field(default_factory=dict)
    coins: Mapping[str, str] = field(default_factory=dict)
    burn_addresses: Collection[str] = frozenset()
    gas_holders: Collection[str] = frozenset()
    is_trusted: Callable[[str], bool] = field(default=lambda contract: True)
    is_priced: Callable[[str], bool] = field(default=lambda contract: True)
    trade_value: str = TRADE_VALUES[0]
    strengths: Strengths = field(default_factory=dict)

    def key_of(self, asset: MovedAsset) -> str:
        """Return the key that an asset counts as."""
        return self.aliases.get(asset.key, asset.key)


@dataclass(frozen=True, slots=True)
class RecordEntries:
    """The entries of some records, and what is known of their assets, by key.

    Attributes:
        facts: How assets are shown.
        issues: An issue for each asset that could not be counted.
        first_blocks: The block of the first record that moved an asset.
        last_blocks: The block of the last one.
        shares: Tokens that stood for deposits: portfolios show the deposits in their place.
        contents: The assets that went into positions, by their open shares.
        pools: The tokens of open pool positions, with the quantities that went in.
        rents: Coins that open accounts need, by asset and wallet: they come back when the accounts are closed.
        created: Tokens that others created for a wallet while contracts held deposits and gave no share, with the
            assets of these deposits. One of them may be such a share.
    """

    entries: list[Entry]
    facts: dict[str, AssetFacts]
    issues: list[IssueDocument]
    first_blocks: dict[str, int] = field(default_factory=dict)
    last_blocks: dict[str, int] = field(default_factory=dict)
    shares: set[str] = field(default_factory=set)
    contents: dict[str, frozenset[str]] = field(default_factory=dict)
    pools: list[dict[str, int]] = field(default_factory=list)
    rents: dict[tuple[str, str], int] = field(default_factory=dict)
    created: dict[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordRows:
    """The rows of one record of one wallet. The facts of their assets go to `result`."""

    record: TransactionRecord
    own_wallets: Collection[str]
    treatment: Treatment
    result: RecordEntries
    _keys: dict[int, str] = field(default_factory=dict)  # by the identity of a row, which the record keeps alive

    def of(self, direction: str) -> Sequence[MovedAsset]:
        """Return the rows of what came ("in") or of what left ("out")."""
        return self.record.assets_in if direction == "in" else self.record.assets_out

    def external(self, direction: str) -> list[MovedAsset]:
        """Return the rows of a direction ("in" or "out") whose other side is no own wallet.

        What left for the gas of operations is no part of them.
        """
        return [
            row
            for row in self.of(direction)
            if (row.sender if direction == "in" else row.recipient) not in self.own_wallets
            and not (direction == "out" and self.is_gas(row))
        ]

    def is_gas(self, row: MovedAsset) -> bool:
        """Return True for a row that pays coins to a contract that keeps them for the gas of operations."""
        return row.recipient in self.treatment.gas_holders and row.key in self.treatment.coins

    @property
    def native(self) -> str:
        """The key of the coin that pays fees."""
        return self.asset_of(self.record.fee)

    @property
    def sender(self) -> str:
        """The account that sent the transaction: the bundler, also if the wallet paid for its operation."""
        fee = self.record.fee
        return fee.sender if fee.recipient in self.treatment.gas_holders else self.record.sender

    @property
    def called(self) -> str:
        """The key that the called contract has as an asset."""
        return f"{self.record.chain}:{self.record.recipient}"

    def is_doubtful(self, row: MovedAsset) -> bool:
        """Return True for an untrusted asset if no own wallet sent the transaction.

        Its contract can log any movement, and the creator of a market sets its price.
        """
        return self.sender not in self.own_wallets and not self.treatment.is_trusted(row.chain_contract)

    @property
    def is_asked(self) -> bool:
        """Return True if an own wallet sent the transaction or was called, or if something left it.

        All else comes from others: anybody can send it, such as a share of a vault or a pool. What others can invent,
        such as a transfer of nothing, did not leave.
        """
        if not {self.sender, self.record.sender, self.record.recipient}.isdisjoint(self.own_wallets):
            return True
        return any(row.raw and not self.is_doubtful(row) for row in self.external("out"))

    def is_gift(self, row: MovedAsset) -> bool:
        """Return True if others sent an asset without a price: one unit of it must not make a sum unknown.

        An asset that the settings price lacks its price because of a failed read. What came over a bridge is no gift.
        """
        is_unpriced = row.value is None and not self.treatment.is_priced(row.chain_contract)
        return is_unpriced and self.record.type != "BRIDGEIN" and not self.is_asked

    def untrusted_assets(self, holders: Callable[[], Mapping[str, Holder]]) -> set[str]:
        """Return the assets whose movements have no value: doubtful ones, and gifts without a price.

        What a contract with an own deposit mints, or another contract of its protocol, may be the share of the deposit,
        and no gift. Other tokens that others create meanwhile go to `created` of the result.

        Args:
            holders: Returns the contracts that hold own deposits and gave no share.
        """
        doubtful = [row for row in (*self.record.assets_in, *self.record.assets_out) if self.is_doubtful(row)]
        gifts = [row for row in self.record.assets_in if self.is_gift(row)]
        deposits = holders() if doubtful or gifts else {}
        rows = [*doubtful, *(row for row in gifts if not self._is_minted_by(row, deposits))]
        deposited = frozenset[str]().union(*(each.assets for each in deposits.values()))
        for row in rows if deposited else ():
            if self._is_created(row) and not row.is_collectible:
                key = self.asset_of(row)
                self.result.created[key] = self.result.created.get(key, frozenset()) | deposited
        return {self.asset_of(row) for row in rows}

    def _is_created(self, row: MovedAsset) -> bool:
        """Return True if a row was created for the wallet."""
        return row.sender in self.treatment.burn_addresses

    def _is_minted_by(self, row: MovedAsset, holders: Mapping[str, Holder]) -> bool:
        """Return True if an asset was minted in a call of a holder or of its protocol, or if it is a holder."""
        protocols = {each.protocol for each in holders.values()} - {UNKNOWN_PROTOCOL.key, ""}
        is_of_holder = self.record.recipient in holders or row.contract in holders
        return self._is_created(row) and (is_of_holder or self.record.protocol in protocols)

    def senders(self, asset: str) -> set[str]:
        """Return who sent an asset that came."""
        return {row.sender for row in self.record.assets_in if self.asset_of(row) == asset}

    def burnt(self, *, is_collectible: bool = False) -> set[str]:
        """Return the tokens, or the collectibles, that left to be destroyed."""
        rows = (row for row in self.record.assets_out if row.recipient in self.treatment.burn_addresses)
        return {self.asset_of(row) for row in rows if row.is_collectible == is_collectible}

    def lent(self, sides: Sequence[Side], direction: str, loans: Collection[tuple[str, str]]) -> set[str]:
        """Return the assets that belong to a loan, if others moved the same way; else none.

        They were minted or burnt in a call of a contract that lent them before.

        Args:
            sides: All net movements of the direction.
            direction: "in" for what came, "out" for what left.
            loans: Contracts that lent an asset when they were called, each with the asset.
        """
        rows = self.external(direction) if len(sides) > 1 and loans else []
        counterparties = {(self.asset_of(row), row.sender if direction == "in" else row.recipient) for row in rows}
        transferred = {asset for asset, address in counterparties if address not in self.treatment.burn_addresses}
        lent = {asset for contract, asset in loans if contract == self.called}
        return {side.asset for side in sides if rows and side.asset not in transferred} & lent

    def without_debt(self, external: Sequence[MovedAsset], sides: dict[str, Side]) -> dict[str, Side]:
        """Return the net movements without tokens that were minted or burnt, unless that leaves none.

        A protocol mints and burns tokens that stand for a debt; they are no holdings.
        """
        burn_addresses = {*self.treatment.burn_addresses}
        minted = {self.asset_of(row) for row in external if not burn_addresses.isdisjoint((row.sender, row.recipient))}
        without_minted = {key: side for key, side in sides.items() if key not in minted}
        return without_minted or sides

    def gross(self, direction: str) -> dict[str, int]:
        """Return what moved in one direction, by asset, in smallest units.

        An unknown amount counts as 0, with an issue in the result.
        """
        gross: dict[str, int] = {}
        for row in self.of(direction):
            key = self.asset_of(row)
            gross[key] = gross.get(key, 0) + (self.quantity(row) or 0)
        return gross

    def prices(self) -> dict[str, Side]:
        """Return the last movement with known value and amount of each asset of the transaction."""
        prices = dict[str, Side]()
        for row in (*self.record.assets_in, *self.record.assets_out):
            value = money_of(row)
            if value is not None and (quantity := self.quantity(row)):
                prices[self.asset_of(row)] = Side(self.asset_of(row), quantity, value, self.strength(row))
        return prices

    def token_key(self, token: str) -> str:
        """Return the key of a token, or of the coin for an empty text."""
        key = f"{self.record.chain}:{token}"
        return self.treatment.aliases.get(key, key) if token else self.native

    def value_reader(self, *, has_coins: bool) -> Callable[[str, int], Side]:
        """Return a function that gives an amount of an asset its value in this transaction.

        With `has_coins`, the fee gives a price of the coin if nothing else does.
        """
        prices, fee = self.prices(), self.record.fee
        if has_coins and self.native not in prices and (quantity := self.quantity(fee)):
            prices[self.native] = Side(self.native, quantity, money_of(fee))

        def value_at(asset: str, quantity: int) -> Side:
            price = prices.get(asset)
            return Side(asset, quantity, None) if price is None else price.part(quantity)

        return value_at

    def coins(self, raw: int) -> Side:
        """Return native coins with their value by a movement or by the fee; without one if neither has a price."""
        return self.value_reader(has_coins=True)(self.native, raw) if raw else Side(self.native, 0, None)

    def strength(self, asset: MovedAsset) -> Strength:
        """Return the strength of an asset's price at the block of the transaction."""
        record = self.record
        return self.treatment.strengths.get((record.chain, record.height, asset.contract), FEED_STRENGTH)

    def asset_of(self, asset: MovedAsset) -> str:
        """Return the key of an asset, with the number of a collectible, and store how it is shown."""
        if (cached_key := self._keys.get(id(asset))) is not None:
            return cached_key
        key = self._keys[id(asset)] = self.treatment.key_of(asset)
        block, first_blocks, last_blocks = self.record.height, self.result.first_blocks, self.result.last_blocks
        first_blocks[key] = min(block, first_blocks.get(key, block))
        last_blocks[key] = max(block, last_blocks.get(key, block))
        if asset.decimals is not None and (key == asset.key or key not in self.result.facts):
            chain, _, contract = key.partition(":")
            self.result.facts[key] = AssetFacts(asset.symbol, asset.decimals, chain, contract)
        return key

    def quantity(self, asset: MovedAsset) -> int | None:
        """Return the amount in smallest units; None, with an issue in the result, if it is not known."""
        if asset.raw is None:
            issue = IssueDocument("pnl", asset.chain_contract, NO_AMOUNT)
            if issue not in self.result.issues:
                self.result.issues.append(issue)
        return asset.raw


def money_of(asset: MovedAsset) -> int | None:
    """Return the value of a moved asset in units of money; None if it is not known."""
    return None if asset.value is None else money(asset.value)
