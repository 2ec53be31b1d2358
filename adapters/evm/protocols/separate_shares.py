"""Positions of lenders in which two shares stand for the same asset, such as two vaults of one token."""

from __future__ import annotations

from dataclasses import replace

from chainfolio.protocols import DecodedPosition


def separate_shares(position: DecodedPosition) -> list[DecodedPosition]:
    """Move further shares of the same asset into separate positions, after the given position.

    Amounts of one asset in one position are added. Then nobody can tell which share they stand for: units that others
    sent would look like growth of a deposit. Debts, rewards and health stay in the first position.

    Args:
        position: Its tokens in `replaces` are the shares of its supplied parts, in the same order.

    Raises:
        ValueError: It has another number of shares than of supplied parts.
    """
    first, further, assets = list[int](), list[int](), set[str]()
    for index, (_, part) in enumerate(zip(position.replaces, position.supplied, strict=True)):
        is_further = bool(part.raw) and part.token in assets
        (further if is_further else first).append(index)
        assets |= {part.token} if part.raw else set()
    if not further:
        return [position]
    others = [
        replace(
            position,
            supplied=(position.supplied[index],),
            replaces=(position.replaces[index],),
            borrowed=(),
            rewards=(),
            health=None,
            unknown="",
            pool=position.replaces[index],
        )
        for index in further
    ]
    supplied = tuple(position.supplied[index] for index in first)
    return [replace(position, supplied=supplied, replaces=tuple(position.replaces[index] for index in first)), *others]
