"""Move shares into collectibles that a contract created for them: requests of withdrawals, which pay later."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import UNSET

from chainfolio.portfolio.pnl.containers import Container, Containers
from chainfolio.portfolio.pnl.entries import Kind
from chainfolio.portfolio.pnl.record_rows import RecordRows
from chainfolio.portfolio.pnl.trade_value import Side


def requested(
    rows: RecordRows, containers: Containers, burn_addresses: Collection[str]
) -> list[tuple[Kind, Side]] | None:
    """Move what shares stand for into the collectibles of a transaction, and return the movements.

    None, and nothing is moved, unless each collectible was created by the contract that took one payment of shares.
    """
    created, given = rows.external("in"), rows.external("out")
    if not created or len(created) != len(given):
        return None
    for row, share in zip(created, given, strict=True):
        is_new = row.nft is not UNSET and row.sender in burn_addresses and row.contract == share.recipient
        if not is_new or rows.asset_of(share) not in containers.by_share:
            return None
    movements = list[tuple[Kind, Side]]()
    for row, share in zip(created, given, strict=True):
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
