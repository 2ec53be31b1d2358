"""External flows of a performance, per transaction: value that came in or was taken out.

Only assets that the values include can flow. A swap between two valued assets is no flow; neither is a deposit in a
protocol whose positions are valued, nor a fee. An asset without a value lies outside: money spent on it is taken out,
and money from its sale comes in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from decimal import Decimal
from typing import Final, NamedTuple

from chainfolio import amounts
from chainfolio.portfolio.pnl.record_kinds import DEPOSITS, WITHDRAWALS
from chainfolio.portfolio.pnl.transaction_records import MovedAsset, TransactionRecord

EARNED: Final = frozenset({"CLAIM", "COLLECT"})  # earned by positions in a protocol: a gain, and no flow
ONE_WAY: Final = frozenset({"TRANSFERIN", "TRANSFEROUT", "BRIDGEIN", "BRIDGEOUT", "DONATION", "EXPENSE", "AIRDROP"})
CONTAINED: Final = (DEPOSITS | WITHDRAWALS | {"OPENVAULT", "CLOSEVAULT"}) - ONE_WAY
EXCHANGES: Final = frozenset({"SWAP", "WRAP", "UNWRAP"})


class ValuationScope(NamedTuple):
    """The assets (`chain:contract`) and protocols that the values at two times include.

    `outside` are held assets without a value, or judged to be spam. `contained` are assets whose deposits are
    in the values, whichever contract took them.
    """

    assets: Collection[str] = frozenset()
    outside: Collection[str] = frozenset()
    protocols: Collection[str] = frozenset()
    contained: Collection[str] = frozenset()


class NetMovement(NamedTuple):
    """The net movement of one asset, with its contract as `chain:contract`.

    `raw` (smallest units) and `value` are negative if more left than came, and None if not known.
    """

    contract: str
    raw: int | None
    value: Decimal | None

    @property
    def is_inflow(self) -> bool:
        """True if more came than left, or if the amount is not known."""
        return self.raw is None or self.raw > 0


def flow_of(
    record: TransactionRecord, own_wallets: Collection[str], scope: ValuationScope, is_trusted: Callable[[str], bool]
) -> Decimal | None:
    """Return the external flow of one wallet's transaction, in USD at its block; negative if value left.

    It is zero for spam, for claims that only bring something, and for transactions of a measured protocol that are
    neither one-way transfers nor exchanges. It is zero also for deposits of contained assets and for exchanges of
    measured assets.

    Args:
        record: The transaction as that wallet's record.
        own_wallets: All wallets that are measured together.
        scope: The assets and protocols that the values include.
        is_trusted: Returns False for contracts whose movements by others may be invented.

    Returns:
        None if the value of a measured asset at that block is not known.
    """
    if record.type == "SPAM":
        return amounts.ZERO
    movements = dict(_net_movements(record, own_wallets))
    if record.sender not in own_wallets:
        movements = dict(_trusted_movements(movements, scope, is_trusted))
    directions = {net.is_inflow for net in movements.values()}
    if record.type in EARNED and directions == {True}:
        return amounts.ZERO
    if record.type not in ONE_WAY | EXCHANGES and record.protocol in scope.protocols:
        return amounts.ZERO
    in_scope = {key: net for key, net in movements.items() if _is_in_scope(key, net, scope)}
    if record.type in CONTAINED and in_scope.keys() <= set(scope.contained):
        return amounts.ZERO
    if len(directions) == 2 and len(in_scope) == len(movements):
        return amounts.ZERO
    values = [net.value for net in in_scope.values()]
    known_values = [value for value in values if value is not None]
    return amounts.total(known_values) if len(known_values) == len(values) else None


def _is_in_scope(key: str, net: NetMovement, scope: ValuationScope) -> bool:
    """Return True if an asset is measured.

    An asset in neither set came and left in between; it is measured if its value is known.
    """
    return key in scope.assets or (key not in scope.outside and net.value is not None)


def _trusted_movements(
    movements: Mapping[str, NetMovement], scope: ValuationScope, is_trusted: Callable[[str], bool]
) -> Iterator[tuple[str, NetMovement]]:
    """Yield the movements of a transaction that others sent.

    Those of untrusted tokens are left out unless the values include them, and lose their own value.
    """
    for key, net in movements.items():
        if is_trusted(net.contract):
            yield key, net
        elif key in scope.assets:
            yield key, net._replace(value=None)


def _net_movements(record: TransactionRecord, own_wallets: Collection[str]) -> Iterator[tuple[str, NetMovement]]:
    """Yield the net movement of each asset between own wallets and others, unless it is zero.

    Movements between own wallets are left out. Amounts or values are None if one of them is unknown.
    """
    rows_by_asset: dict[str, list[tuple[MovedAsset, int]]] = {}
    for assets, sign in ((record.assets_in, 1), (record.assets_out, -1)):
        for asset in assets:
            if (asset.sender if sign > 0 else asset.recipient) not in own_wallets:
                rows_by_asset.setdefault(asset.key, []).append((asset, sign))
    for key, rows in rows_by_asset.items():
        raws = [row.raw * sign for row, sign in rows if row.raw is not None]
        usd = [(row.value, sign) for row, sign in rows if row.value is not None]
        values = [value if sign > 0 else value.copy_negate() for value, sign in usd]  # exact, whatever the context
        raw = sum(raws) if len(raws) == len(rows) else None
        value = amounts.total(values) if len(values) == len(rows) else None
        if raw != 0:
            yield key, NetMovement(rows[0][0].chain_contract, raw, value)
