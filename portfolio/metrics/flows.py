"""What came from outside and what was taken out, transaction by transaction: the flows of a performance.

Only what the values have in them can flow. A swap of one valued asset for another is no flow, and neither is a deposit
in a protocol whose positions are valued, nor a fee. An asset without a value lies outside: what is paid for it is taken
out, what it is sold for comes in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Final, NamedTuple

from chainfolio import amounts
from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.pnl.records import asset_key
from chainfolio.portfolio.transactions import TransactionAssetDocument, TransactionDocument

EARNED: Final = frozenset({"CLAIM", "COLLECT"})  # what lies in a protocol earned it: a gain, and no flow
ONE_WAY: Final = frozenset({"TRANSFERIN", "TRANSFEROUT", "BRIDGEIN", "BRIDGEOUT", "DONATION", "EXPENSE", "AIRDROP"})
EXCHANGES: Final = frozenset({"SWAP", "WRAP", "UNWRAP"})


class ValuationScope(NamedTuple):
    """What the values of two moments have in them: the keys of assets (`chain:contract`) and of protocols. `outside`
    are assets that are held without a value, or are taken for spam."""

    assets: Collection[str] = frozenset()
    outside: Collection[str] = frozenset()
    protocols: Collection[str] = frozenset()


class NetMovement(NamedTuple):
    """What moved of one asset, whose contract is shown as `chain:contract`: how much (None: nobody knows) and its
    value, negative where it left."""

    contract: str
    amount: Decimal | None
    value: Decimal | None

    @property
    def is_inflow(self) -> bool:
        """Whether more came than left."""
        return self.amount is None or self.amount > 0


def flow_of(
    record: TransactionDocument, own_wallets: Collection[str], scope: ValuationScope, is_trusted: Callable[[str], bool]
) -> Decimal | None:
    """What a transaction of one wallet brought from outside, in USD at its block, negative for what it took out. `own`
    are all wallets that are measured together. None where the worth of something that is measured is not known at that
    block: what others do with a token that is not `vouched` for, by its contract, may be invented."""
    if record.type == "SPAM":
        return amounts.ZERO
    movements = dict(_net_movements(record, own_wallets))
    if record.sender not in own_wallets:
        movements = dict(_trusted_movements(movements, scope, is_trusted))
    directions = {net.is_inflow for net in movements.values()}
    if record.type in EARNED and directions == {True}:
        return amounts.ZERO
    if record.type not in ONE_WAY | EXCHANGES and record.protocol.key in scope.protocols:
        return amounts.ZERO
    in_scope = {key: net for key, net in movements.items() if _is_in_scope(key, net, scope)}
    if len(directions) == 2 and len(in_scope) == len(movements):
        return amounts.ZERO
    values = [net.value for net in in_scope.values()]
    known_values = [value for value in values if value is not None]
    return amounts.total(known_values) if len(known_values) == len(values) else None


def _is_in_scope(key: str, net: NetMovement, scope: ValuationScope) -> bool:
    """Whether an asset is measured. What is held neither before nor after came and left in between."""
    return key in scope.assets or (key not in scope.outside and net.value is not None)


def _trusted_movements(
    movements: Mapping[str, NetMovement], scope: ValuationScope, is_trusted: Callable[[str], bool]
) -> Iterator[tuple[str, NetMovement]]:
    """What others moved: a token that nobody vouches for has no worth then, and counts where the values have it."""
    for key, net in movements.items():
        if is_trusted(net.contract):
            yield key, net
        elif key in scope.assets:
            yield key, net._replace(value=None)


def _net_movements(record: TransactionDocument, own_wallets: Collection[str]) -> Iterator[tuple[str, NetMovement]]:
    """By asset what moved between the wallet and others, without what came back."""
    rows_by_asset: dict[str, list[tuple[TransactionAssetDocument, int]]] = {}
    for assets, sign in ((record.assets_in, 1), (record.assets_out, -1)):
        for asset in assets:
            if (asset.sender if sign > 0 else asset.recipient) not in own_wallets:
                rows_by_asset.setdefault(asset_key(asset), []).append((asset, sign))
    for key, rows in rows_by_asset.items():
        balances, values = ([(getattr(row, name), sign) for row, sign in rows] for name in ("balance", "value"))
        net = NetMovement(rows[0][0].chain_contract, _sum(balances), _sum(values))
        if net.amount != 0:
            yield key, net


def _sum(parts: Iterable[tuple[str, int]]) -> Decimal | None:
    all_parts = list(parts)
    if any(text == UNKNOWN for text, _ in all_parts):
        return None
    numbers = [(Decimal(text), sign) for text, sign in all_parts]
    return amounts.total([number if sign > 0 else number.copy_negate() for number, sign in numbers])
