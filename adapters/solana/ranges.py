"""What a position between two ticks is worth, in pools of concentrated liquidity: amounts, fees and rewards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from adapters.solana.account_layouts import PoolTick, RangePosition, TokenAccount
from adapters.solana.positions import Unreadable
from adapters.solana.ticks import MAX_TICK, amounts, earned, inside
from chainfolio.protocols import DecodedPosition, TokenAmount

NOT_COVERED: Final = "its pool does not have what it says that the position is worth"


class RangePool(Protocol):
    """What pools of all families say."""

    @property
    def mint_a(self) -> str: ...
    @property
    def mint_b(self) -> str: ...
    @property
    def root(self) -> int: ...
    @property
    def tick(self) -> int: ...
    @property
    def spacing(self) -> int: ...
    @property
    def growth_a(self) -> int: ...
    @property
    def growth_b(self) -> int: ...


def checked(stored: RangePosition, mint: str) -> RangePosition:
    """A position that is that of a token; Unreadable where it is not."""
    if stored.mint != mint or not -MAX_TICK <= stored.lower < stored.upper <= MAX_TICK:
        raise Unreadable("it is the position of another token, or lies between no ticks")
    return stored


def places(stored: RangePosition, pool: RangePool, ticks: int) -> list[tuple[int, int]]:
    """The first tick of the array of each of its two, and their places there; arrays have so many ticks."""
    if not pool.spacing or stored.lower % pool.spacing or stored.upper % pool.spacing:
        raise Unreadable("its pool has no spacing, or has no such ticks")
    size = ticks * pool.spacing
    return [(tick // size * size, tick % size // pool.spacing) for tick in (stored.lower, stored.upper)]


def worth(
    stored: RangePosition, pool: RangePool, roots: tuple[int, int], ticks: Sequence[PoolTick],
    vaults: Sequence[TokenAccount], rewards: Sequence[tuple[int, str, int, TokenAccount]],
) -> DecodedPosition:  # fmt: skip
    """What a position is worth, by the roots of its ticks, the vaults, and each reward: number, mint, growth, vault."""
    if {each.pool for each in ticks} != {stored.pool}:
        raise Unreadable("its ticks are those of another pool")
    raws = amounts(stored.liquidity, pool.root, *roots)
    mints = (pool.mint_a, pool.mint_b)
    fees = [
        _earned(stored, pool.tick, ticks, pool.growth_a, "a"), _earned(stored, pool.tick, ticks, pool.growth_b, "b"),
    ]  # fmt: skip
    paid = [TokenAmount(mint, fee) for mint, fee in zip(mints, fees, strict=True)]
    for number, mint, growth, vault in rewards:
        # What programs pay is what is owed, as far as it is there.
        paid.append(TokenAmount(mint, min(_earned(stored, pool.tick, ticks, growth, str(number)), held(vault, mint))))
    covered = all(
        held(vault, mint) >= raw + fee for vault, mint, raw, fee in zip(vaults, mints, raws, fees, strict=True)
    )
    return DecodedPosition(
        "LIQUIDITYPOOL",
        supplied=tuple(TokenAmount(mint, raw) for mint, raw in zip(mints, raws, strict=True)),
        rewards=summed(paid),
        pool=stored.pool,
        replaces=(stored.mint,),
        unverified="" if covered else NOT_COVERED,
    )


def _earned(stored: RangePosition, tick: int, ticks: Sequence[PoolTick], whole: int, of: str) -> int:
    """What was earned of one token and not collected: `a` and `b` are fees, numbers are rewards."""
    lower, upper = (
        (at, bool(each.used), getattr(each, f"beyond_{of}"))
        for at, each in zip((stored.lower, stored.upper), ticks, strict=True)
    )
    grown = inside(tick, lower, upper, whole) - getattr(stored, f"seen_{of}")
    return earned(getattr(stored, f"owed_{of}"), grown, stored.liquidity)


def held(vault: TokenAccount, mint: str) -> int:
    """What a vault has of a token; Unreadable where it is one of another."""
    if vault.mint != mint:
        raise Unreadable(f"a vault of its pool holds another token: {vault.mint}")
    return vault.raw


def summed(several: Iterable[TokenAmount]) -> tuple[TokenAmount, ...]:
    """Each token once: a reward may be of the same as the fees."""
    sums: dict[str, int] = {}
    for each in several:
        sums[each.token] = sums.get(each.token, 0) + each.raw
    return tuple(TokenAmount(token, raw) for token, raw in sums.items())
