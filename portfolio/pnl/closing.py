"""The closing identity: what an account's transactions leave of each asset is what it holds.

For each asset, *opening + in - out = closing*, in its smallest unit. The opening is zero: gains are computed from the
first transaction on. The closing is what a portfolio holds, with positions unwrapped and without debts and claimable
rewards. The wallet must close to the unit. What lies in protocols may have grown, so it only needs to be at least what
was deposited. A pool exchanges its tokens: less of one is explained by more of another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final, NamedTuple

from msgspec import UNSET

from chainfolio import amounts
from chainfolio.portfolio.document import UNKNOWN, WALLET, AssetDocument, IssueDocument, Portfolio, every_asset
from chainfolio.portfolio.pnl.containers import SHARE
from chainfolio.portfolio.pnl.entries import UNASKED
from chainfolio.portfolio.pnl.gains import SHORT, Gain, Gains, RemainingLots
from chainfolio.portfolio.pnl.share_lots import NO_CONTENTS, NO_SHARES, ShareLots, position_shares, share_lots
from chainfolio.portfolio.transactions import raw_balance

NO_LOTS: Final = "no transaction that is indexed brought it"
DIFFERS: Final = "its wallet holds {held} of it, and {lots} by its transactions"
UNCLOSED: Final = "its transactions do not add up to what is held"
UNSEEN: Final = "no transaction that is indexed put it where it lies"
MAY_BE_SHARE: Final = (
    "its deposit is in no known position: tokens that others created for the wallets meanwhile ({count}, such as "
    "{first}) are in no sum, and one of them may be the share of this deposit"
)
ELSEWHERE: Final = "more of it was deposited than lies in protocols that are known"

MIN_TOKENS: Final = {"LIQUIDITYPOOL": 1, "FARMING": 2, "STAKED": 2}  # of a position that exchanges them, by its type
ROUNDING: Final = 2  # units that shares of a position may round away ...
ROUNDED_PARTS: Final = 10**9  # ... or a billionth of what was deposited, if that is more

Key = tuple[str, str]  # asset; wallet, if lots are kept per wallet
# The tokens of an open pool position, with the quantities that went in. If only one went in, its share is there too.
Pool = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HeldAsset:
    """The amounts of one asset in portfolios, in its smallest unit. Unknown `decimals` are None."""

    in_wallet: int = 0
    in_protocols: int = 0
    symbol: str = ""
    decimals: int | None = None

    @property
    def raw(self) -> int:
        """The total amount."""
        return self.in_wallet + self.in_protocols


class ClosingCheck(NamedTuple):
    """The identity of one asset, in its smallest unit.

    Attributes:
        asset: Key of the asset.
        wallet: The wallet, if lots are kept per wallet.
        moved: What the transactions left in the wallet: in less out, without deposits.
        held: What the portfolio holds.
        deposited: What the transactions put into protocols and did not take out.
        is_exchanged: A pool exchanged some of it, or for it.
    """

    asset: str
    wallet: str
    moved: int
    held: HeldAsset
    deposited: int = 0
    is_exchanged: bool = False

    @property
    def difference(self) -> int:
        """The balance of the wallet less its movements."""
        return self.held.in_wallet - self.moved

    @property
    def is_closed(self) -> bool:
        """True if the wallet closes to the unit."""
        return not self.difference

    @property
    def protocols_fault(self) -> str:
        """The reason for an unknown cost of the amount in protocols; empty if it is known."""
        return "" if self.is_exchanged else protocols_fault(self.held.in_protocols, self.deposited)

    @property
    def is_from_pool(self) -> bool:
        """True if a pool gave all that is held of it, so that it has no cost."""
        return self.is_exchanged and self.is_closed and not self.moved and not self.deposited

    @property
    def differences(self) -> Iterator[tuple[str, int, Callable[[int], str]]]:
        """Yield each part that does not close: place, amount, and a function from decimals to the reason."""
        if self.difference:
            reason = NO_LOTS if not self.moved else ""
            yield (
                "wallet",
                self.difference,
                lambda decimals: reason or difference_reason(self.held.in_wallet, self.moved, decimals),
            )
        if fault := self.protocols_fault:
            yield "protocols", self.held.in_protocols - self.deposited, lambda _: fault


@dataclass(frozen=True, slots=True)
class CurrentHoldings:
    """Facts of current portfolios about the assets of lots, by key.

    Attributes:
        max_values: What the market of an asset could pay for all of it, in USD, if its price says more.
        closings: The identity of each asset that could be checked.
        first_blocks: The block of the first transaction that moved an asset.
        is_trusted: Returns False for contracts whose amounts anybody can make up.
        share_values: What lots of shares are worth that portfolios show as positions; None if it is not known.
    """

    max_values: Mapping[str, Decimal] = field(default_factory=dict)
    closings: Mapping[Key, ClosingCheck] = field(default_factory=dict)
    first_blocks: Mapping[str, int] = field(default_factory=dict)
    is_trusted: Callable[[str], bool] = field(default=lambda contract: True)
    share_values: Mapping[Key, int | None] = field(default_factory=dict)

    @property
    def unclosed(self) -> frozenset[Key]:
        """The keys of assets that do not close."""
        return unclosed_keys(self.closings)


NOTHING_HELD: Final = HeldAsset()
NO_RENTS: Final[Mapping[Key, int]] = {}
NOTHING_CHECKED: Final = CurrentHoldings()


def owned_assets(document: Portfolio) -> Iterator[tuple[AssetDocument, bool]]:
    """Yield each asset that lots can stand for, and True if it lies in a protocol.

    Debt, rewards still to be claimed, and spam are left out.
    """
    for protocol in document.asset_by_protocols.values():
        for chain in protocol.chains.values():
            for positions in chain.protocol_positions.values():
                parts = [(asset, protocol.key != WALLET) for asset in positions.assets]
                for nested in positions.protocol_positions:
                    parts += [(each, True) for each in (*nested.assets, *nested.supply_assets, *nested.dex_assets)]
                yield from (part for part in parts if part[0].spam is UNSET)


def owed_assets(document: Portfolio) -> Iterator[AssetDocument]:
    """Yield each asset that is owed."""
    for protocol in document.asset_by_protocols.values():
        for chain in protocol.chains.values():
            for positions in chain.protocol_positions.values():
                for nested in positions.protocol_positions:
                    yield from nested.borrow_assets


def held_assets(
    portfolios: Iterable[Portfolio],
    aliases: Mapping[str, str],
    *,
    per_wallet: bool = False,
    shares: ShareLots = NO_SHARES,
) -> dict[Key, HeldAsset]:
    """Return what portfolios hold, by asset and, with `per_wallet`, wallet. `aliases` as in `Treatment`.

    Lots of `shares` are held in the wallet, in place of what they stand for in positions.
    """
    held = {key: HeldAsset(raw) for key, raw in shares.held.items()}
    for document in portfolios:
        for asset, is_inside in owned_assets(document):
            own_key = asset.chain_contract
            key = aliases.get(own_key, own_key), document.address if per_wallet else ""
            before, raw = held.get(key, NOTHING_HELD), raw_balance(asset) - shares.raw(asset)
            shows_symbol = not before.symbol or key[0] == own_key
            held[key] = HeldAsset(
                before.in_wallet + (0 if is_inside else raw),
                before.in_protocols + (raw if is_inside else 0),
                asset.symbol if shows_symbol else before.symbol,
                before.decimals if asset.decimal == UNKNOWN else int(asset.decimal),
            )
    return held


def with_rents(held: Mapping[Key, HeldAsset], rents: Mapping[Key, int]) -> dict[Key, HeldAsset]:
    """Return the holdings with the coins that open accounts need: no portfolio shows them."""
    return {
        **held,
        **{
            key: replace(each := held.get(key, NOTHING_HELD), in_protocols=each.in_protocols + raw)
            for key, raw in rents.items()
        },
    }


def shown_pools(portfolios: Iterable[Portfolio], aliases: Mapping[str, str], pools: Iterable[Pool]) -> tuple[Pool, ...]:
    """Return the pool positions of transactions that portfolios show: with tokens of theirs, and no others.

    A lender may hold the same tokens, and exchanges none of them. In farms, only several tokens show a staked pool. A
    pool that took one token alone is that of its share, and has all tokens that are shown for it.
    """
    positions = [
        (frozenset(aliases.get(asset.chain_contract, asset.chain_contract) for asset in assets), nested)
        for document in portfolios
        for protocol in document.asset_by_protocols.values()
        for chain in protocol.chains.values()
        for kind, positions in chain.protocol_positions.items()
        for nested in positions.protocol_positions
        if (assets := (*nested.assets, *nested.supply_assets)) and len(assets) >= MIN_TOKENS.get(kind, len(assets) + 1)
    ]
    shown_tokens = {tokens for tokens, _ in positions}
    tokens_of_shares = {share: tokens for tokens, position in positions for share in position_shares(position)}
    result = list[Pool]()
    for pool in pools:
        share = next((key for key, raw in pool.items() if raw == SHARE), "")
        if share and len(tokens := tokens_of_shares.get(share, frozenset())) > 1:
            result.append(dict.fromkeys(tokens, 0) | {key: raw for key, raw in pool.items() if key != share})
        elif not share and any(pool.values()) and any(tokens <= pool.keys() for tokens in shown_tokens):
            result.append(pool)
    return tuple(result)


def spam_assets(portfolios: Iterable[Portfolio]) -> set[str]:
    """Return the keys of assets that are spam in portfolios. They are in no sum, and need not close."""
    return {
        asset.chain_contract
        for document in portfolios
        for protocol in document.asset_by_protocols.values()
        for chain in protocol.chains.values()
        for asset in every_asset(chain)
        if asset.spam is not UNSET
    }


def closings(
    remaining: Iterable[RemainingLots],
    held: Mapping[Key, HeldAsset],
    is_checked: Callable[[str], bool],
    pools: Sequence[Pool] = (),
) -> dict[Key, ClosingCheck]:
    """Return the identity of each fungible asset that moved or is held, and that `is_checked`.

    `pools` are the open pool positions of the account, as of `shown_pools`.
    """
    result = {
        (lots.asset, lots.wallet): ClosingCheck(
            lots.asset,
            lots.wallet,
            lots.quantity + lots.unasked - lots.short - lots.deposited,
            held.get((lots.asset, lots.wallet), NOTHING_HELD),
            lots.deposited,
        )
        for lots in remaining
    }
    for key, amount in held.items():
        if key not in result and amount.raw:
            result[key] = ClosingCheck(*key, 0, amount)
    return {
        key: closing._replace(is_exchanged=_is_exchanged(closing, result, pools))
        for key, closing in sorted(result.items())
        if not is_collectible(key[0]) and is_checked(key[0])
    }


def _is_exchanged(closing: ClosingCheck, checked: Mapping[Key, ClosingCheck], pools: Sequence[Pool]) -> bool:
    """Return True if pools explain the difference of an asset in protocols.

    What one pool took may have been given by another one that shares a token with it.
    """
    of_asset = [pool for pool in pools if closing.asset in pool]
    missing = closing.deposited - closing.held.in_protocols
    if not missing or missing > sum(pool[closing.asset] for pool in of_asset):
        return False
    keys = {(token, closing.wallet) for token in _connected(closing.asset, pools)} & checked.keys()
    differences = [checked[key].deposited - checked[key].held.in_protocols for key in keys]
    return any((other < 0) is (missing > 0) for other in differences if abs(other) > ROUNDING)


def _connected(asset: str, pools: Sequence[Pool]) -> set[str]:
    """Return the tokens of the pools that an asset can reach from pool to pool, with the asset."""
    tokens, remaining = {asset}, list(pools)
    while reached := [pool for pool in remaining if not tokens.isdisjoint(pool)]:
        tokens.update(*reached)
        remaining = [pool for pool in remaining if pool not in reached]
    return tokens


def unclosed_keys(checked: Mapping[Key, ClosingCheck]) -> frozenset[Key]:
    """Return the keys of assets that do not close."""
    return frozenset(key for key, closing in checked.items() if not closing.is_closed)


def missing_share_issues(
    checked: Mapping[Key, ClosingCheck], created: Mapping[str, Collection[str]]
) -> list[IssueDocument]:
    """Return an issue for each deposited asset that no portfolio shows and whose share may have come unnoticed.

    Args:
        checked: The closing identities.
        created: Tokens that others created while deposits had no share, with the deposited assets.
    """
    issues = list[IssueDocument]()
    for asset in sorted({asset for (asset, _), each in checked.items() if each.protocols_fault == ELSEWHERE}):
        if tokens := sorted(token for token, assets in created.items() if asset in assets):
            issues.append(IssueDocument("pnl", asset, MAY_BE_SHARE.format(count=len(tokens), first=tokens[0])))
    return issues


def account_closings(
    document: Portfolio,
    remaining: Iterable[RemainingLots],
    aliases: Mapping[str, str],
    shares: Collection[str] = (),
    pools: Sequence[Pool] = (),
    rents: Mapping[Key, int] = NO_RENTS,
    contents: Mapping[str, Collection[str]] = NO_CONTENTS,
) -> dict[Key, ClosingCheck]:
    """Return the identity of each asset of one account on the chains that its portfolio has.

    Spam and `shares`, which stand for deposits, are left out. `pools` are the open pool positions of its transactions,
    and `rents` the coins that open accounts need. `contents` are those of open shares.
    """
    left_out, lots = spam_assets([document]) | set(shares), list(remaining)
    held = held_assets([document], aliases, shares=share_lots([document], lots, contents, aliases))
    return closings(
        lots,
        with_rents(held, rents),
        lambda asset: asset.partition(":")[0] in document.chains and asset not in left_out,
        shown_pools([document], aliases, pools),
    )


def is_collectible(asset: str) -> bool:
    """Return True for the key of one of a collection, which ends with its number."""
    return ":" in asset.partition(":")[2]


def lots_fault(lots: RemainingLots | None, in_wallet: int, decimals: int) -> str:
    """Return why the cost of what a wallet holds of an asset is not known; empty if it is.

    Args:
        lots: The remaining lots; None if no transaction moved the asset.
        in_wallet: The raw balance.
        decimals: For the amounts in the text.
    """
    if lots is None or not lots.quantity:
        return UNASKED if lots and lots.unasked else NO_LOTS
    if lots.cost is None:
        return lots.reason
    if lots.short:
        return SHORT
    if in_wallet != (expected := lots.quantity + lots.unasked - lots.deposited):
        return difference_reason(in_wallet, expected, decimals)
    return ""


def protocols_fault(in_protocols: int, deposited: int) -> str:
    """Return the reason for an unknown cost of the amount in protocols; empty if it is known.

    Positions may have earned something. They may have lost the rounding of their shares.
    """
    if in_protocols and not deposited:
        return UNSEEN
    return ELSEWHERE if deposited - in_protocols > max(ROUNDING, deposited // ROUNDED_PARTS) else ""


def difference_reason(in_wallet: int, expected: int, decimals: int) -> str:
    """Return a sentence with what a wallet holds, and what it should hold by its transactions."""
    texts = [amounts.text(amounts.amount(each, decimals)) for each in (in_wallet, expected)]
    return DIFFERS.format(held=texts[0], lots=texts[1])


def without_unclosed(gains: Gains, unclosed: Collection[Key]) -> Gains:
    """Return the gains with unknown costs for the assets that do not close; incomes keep their gain.

    Returns the same object if `unclosed` is empty. A key without a wallet stands for all wallets of a gain's asset.
    """
    if not unclosed:
        return gains
    return Gains([_gain(each, unclosed) for each in gains.gains], [_lots(each, unclosed) for each in gains.remaining])


def _gain(gain: Gain, unclosed: Collection[Key]) -> Gain:
    is_affected = (gain.asset, "") in unclosed or (gain.asset, gain.wallet) in unclosed
    return unclosed_gain(gain) if is_affected else gain


def unclosed_gain(gain: Gain) -> Gain:
    """Return the gain of an asset that does not close, without its cost. An income stays."""
    if gain.kind == "income" or gain.gain is None:
        return gain
    return gain._replace(cost=None, reason=UNCLOSED)


def _lots(lots: RemainingLots, unclosed: Collection[Key]) -> RemainingLots:
    is_unsolicited = lots.unasked and not lots.quantity
    if lots.cost is None or is_unsolicited or (lots.asset, lots.wallet) not in unclosed:
        return lots
    return lots._replace(cost=None, reason=UNCLOSED)
