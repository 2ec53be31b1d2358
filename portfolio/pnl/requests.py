"""Follow shares that pay later: in requests of withdrawals (collectibles) or after a time of waiting."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import Final

from chainfolio.portfolio.document import IssueDocument
from chainfolio.portfolio.pnl.containers import Container, Containers, settle
from chainfolio.portfolio.pnl.entries import Kind
from chainfolio.portfolio.pnl.record_rows import RecordRows
from chainfolio.portfolio.pnl.trade_value import Side

NO_PAYMENT: Final = "shares were given back and no payment is indexed: a gain that was paid in the coin is not counted"


def requested(
    rows: RecordRows, containers: Containers, burn_addresses: Collection[str]
) -> list[tuple[Kind, Side]] | None:
    """Move what shares stand for into the collectibles that they paid for.

    Return deposits and withdrawals.

    Deposits are of assets that the shares bought, withdrawals of shares inside them; there may be none. None, and
    nothing is moved, unless each collectible was created by the contract that took its payment, in their order.
    """
    created, payments = rows.external("in"), rows.external("out")
    if not created or len(created) != len(payments):
        return None
    for row, share in zip(created, payments, strict=True):
        is_new = row.is_collectible and row.sender in burn_addresses and row.contract == share.recipient
        if not is_new or rows.asset_of(share) not in containers.by_share:
            return None
    movements = list[tuple[Kind, Side]]()
    for row, share in zip(created, payments, strict=True):
        contents, bought, _ = containers.redeem({rows.asset_of(share): rows.quantity(share) or 0})
        for asset, raw in bought.items():
            movements.append(("deposit", Side(asset, raw, None)))
            containers.lots[asset] -= raw
            contents[asset] = contents.get(asset, 0) + raw
        inner = {asset: raw for asset, raw in contents.items() if asset in containers.by_share and asset not in bought}
        for asset, raw in inner.items():
            movements.append(("withdraw", Side(asset, contents.pop(asset), None)))
            for each, part in containers.by_share[asset].take(raw).items():
                contents[each] = contents.get(each, 0) + part
        containers.by_share.setdefault(rows.asset_of(row), Container()).put(1, contents)
    return movements


def wait(rows: RecordRows, shares: Mapping[str, int], containers: Containers) -> list[tuple[Kind, Side]]:
    """Keep what shares stand for that were given back for nothing yet, and return the movements.

    What went in stays deposited. Shares that were acquired otherwise are deposited now. The result has an issue if
    the shares may have paid at once: the native coin went in for them, or nothing that is known.
    """
    movements = list[tuple[Kind, Side]]()
    for share, raw in shares.items():
        contents, bought, _ = containers.redeem({share: raw})
        if rows.native in contents or not contents:
            rows.result.issues.append(IssueDocument("pnl", rows.record.hash, NO_PAYMENT))
        for asset, quantity in bought.items():
            movements.append(("deposit", Side(asset, quantity, None)))
            containers.lots[asset] -= quantity
            contents[asset] = contents.get(asset, 0) + quantity
        containers.waiting_units[share] = containers.waiting_units.get(share, 0) + raw
        waiting = containers.waiting.setdefault(share, {})
        for asset, quantity in contents.items():
            waiting[asset] = waiting.get(asset, 0) + quantity
    return movements


def claimed(
    kinds: Sequence[tuple[Kind, Side]],
    containers: Containers,
    contract: str,
    trade_value: str,
    untrusted: Collection[str] = (),
) -> tuple[list[tuple[Kind, Side]], list[tuple[Kind, Side]]]:
    """Split a withdrawal from a contract whose shares wait: other movements, and what the shares pay.

    A payment of less than what waits of its asset is a part of it. Shares that were acquired otherwise are sold for
    their part of the payment: as much of them as of what waits of its asset, or all if nothing else waits. The share
    itself and untrusted assets pay nothing.
    """
    waiting = containers.waiting.get(contract, {})
    payments = [
        kind in ("withdraw", "income") and side.asset != contract and side.asset not in untrusted
        for kind, side in kinds
    ]
    if not any(payments) or not any(waiting.values()):
        return list(kinds), []
    paid_sides = [side for (_, side), is_payment in zip(kinds, payments, strict=True) if is_payment]
    other_kinds = [each for each, is_payment in zip(kinds, payments, strict=True) if not is_payment]
    deposits = {asset: raw for asset, raw in waiting.items() if raw and asset != contract}
    bought, units = waiting.get(contract, 0), containers.waiting_units.get(contract, 0)
    is_payment = not deposits or any(side.asset in deposits for side in paid_sides)
    part = Fraction(bought, units) if bought and is_payment else Fraction(0)
    prices = [side.part(int(side.quantity * part)) for side in paid_sides]
    paid_sides = [side.without(price.quantity) for side, price in zip(paid_sides, prices, strict=True)]
    paid_sides = [side for side in paid_sides if side.quantity]
    raws = {side.asset: side.quantity for side in paid_sides}
    contents = {asset: min(raw, raws.get(asset, 0)) for asset, raw in deposits.items()}
    returned = max((Fraction(contents[asset], raw) for asset, raw in deposits.items()), default=Fraction(1))
    sold = ceil(bought * returned) if part else 0
    waiting.update({asset: raw - contents[asset] for asset, raw in deposits.items()}, **{contract: bought - sold})
    containers.waiting_units[contract] = units - sold - int((units - bought) * returned)
    settlements = settle({asset: raw for asset, raw in contents.items() if raw}, paid_sides, trade_value)
    if sold:
        containers.lots[contract] = containers.lots.get(contract, 0) + sold
        settlements.append(("withdraw", Side(contract, sold, None)))
        other_kinds += [("sell", Side(contract, sold, None)), *(("buy", side) for side in prices if side.quantity)]
    return other_kinds, settlements
