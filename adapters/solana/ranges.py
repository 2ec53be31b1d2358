"""Positions between two ticks of a concentrated-liquidity pool: their amounts, fees and rewards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from chainfolio.adapters.solana.account_records import PoolTick, RangePosition, TokenAccount
from chainfolio.adapters.solana.positions import Unreadable
from chainfolio.adapters.solana.ticks import MAX_TICK, amounts, collectable, growth_inside
from chainfolio.protocols import DecodedPosition, TokenAmount

NOT_COVERED: Final = "its pool does not have what it says that the position is worth"


class RangePool(Protocol):
    """The fields that pools of all families have."""

    @property
    def mint_a(self) -> str:
        """Mint of the first token."""

    @property
    def mint_b(self) -> str:
        """Mint of the second token."""

    @property
    def sqrt_price(self) -> int:
        """Square root of the price of token a in token b, times 2^64."""

    @property
    def tick(self) -> int:
        """Tick of the current price."""

    @property
    def tick_spacing(self) -> int:
        """Number of ticks between two that a position can use."""

    @property
    def fee_growth_a(self) -> int:
        """Fees in token a per unit of liquidity so far, times 2^64."""

    @property
    def fee_growth_b(self) -> int:
        """Fees in token b per unit of liquidity so far, times 2^64."""


class RangeReward(NamedTuple):
    """One reward of a pool. `growth` is its growth per unit of liquidity up to the slot, times 2^64."""

    number: int
    mint: str
    growth: int
    vault: TokenAccount


def check_position(position: RangePosition, mint: str) -> RangePosition:
    """Return a position that belongs to the NFT `mint`.

    Raises:
        Unreadable: It belongs to another NFT, or its ticks are invalid.
    """
    if position.mint != mint or not -MAX_TICK <= position.tick_lower < position.tick_upper <= MAX_TICK:
        raise Unreadable("it is the position of another token, or lies between no ticks")
    return position


def tick_locations(position: RangePosition, pool: RangePool, array_size: int) -> list[tuple[int, int]]:
    """Return the first tick of the array of the lower and the upper tick, with their indexes in it.

    Args:
        position: Has both ticks.
        pool: Has the tick spacing.
        array_size: Ticks per array.

    Raises:
        Unreadable: A tick is not a multiple of the pool's spacing.
    """
    spacing = pool.tick_spacing
    if not spacing or position.tick_lower % spacing or position.tick_upper % spacing:
        raise Unreadable("its pool has no spacing, or has no such ticks")
    width = array_size * spacing
    return [(tick // width * width, tick % width // spacing) for tick in (position.tick_lower, position.tick_upper)]


def decode_range(
    position: RangePosition,
    pool: RangePool,
    sqrt_prices: tuple[int, int],
    ticks: Sequence[PoolTick],
    vaults: Sequence[TokenAccount],
    rewards: Sequence[RangeReward],
) -> DecodedPosition:
    """Return the amounts, fees and rewards that closing a position pays.

    It is unverified if the vaults do not cover amounts and fees. Rewards are limited to the balances of their vaults.

    Args:
        position: The position.
        pool: Its pool.
        sqrt_prices: Square roots of the prices at the lower and the upper tick, times 2^64.
        ticks: The lower and the upper tick.
        vaults: The vaults of tokens a and b.
        rewards: The rewards of the pool.

    Raises:
        Unreadable: The ticks belong to another pool, or a vault holds another token.
    """
    if {tick.pool for tick in ticks} != {position.pool}:
        raise Unreadable("its ticks are those of another pool")
    raws = amounts(position.liquidity, pool.sqrt_price, *sqrt_prices)
    mints = (pool.mint_a, pool.mint_b)
    fees = [
        _collectable(position, pool.tick, ticks, pool.fee_growth_a, "a"),
        _collectable(position, pool.tick, ticks, pool.fee_growth_b, "b"),
    ]
    income = [TokenAmount(mint, fee) for mint, fee in zip(mints, fees, strict=True)]
    for number, mint, growth, vault in rewards:
        # Programs pay rewards as far as the vault has them.
        owed_raw = _collectable(position, pool.tick, ticks, growth, str(number))
        income.append(TokenAmount(mint, min(owed_raw, vault_balance(vault, mint))))
    is_covered = all(
        vault_balance(vault, mint) >= raw + fee for vault, mint, raw, fee in zip(vaults, mints, raws, fees, strict=True)
    )
    return DecodedPosition(
        "LIQUIDITYPOOL",
        supplied=tuple(TokenAmount(mint, raw) for mint, raw in zip(mints, raws, strict=True)),
        rewards=sum_by_token(income),
        pool=position.pool,
        replaces=(position.mint,),
        unverified="" if is_covered else NOT_COVERED,
    )


def _collectable(position: RangePosition, pool_tick: int, ticks: Sequence[PoolTick], growth: int, token: str) -> int:
    """Return the uncollected raw units of a fee (`token` is `a` or `b`) or of a reward (its number).

    Args:
        growth: The pool's growth per unit of liquidity so far.
    """
    lower, upper = (
        (tick, pool_record.is_initialized, getattr(pool_record, f"growth_outside_{token}"))
        for tick, pool_record in zip((position.tick_lower, position.tick_upper), ticks, strict=True)
    )
    current_growth = growth_inside(pool_tick, lower, upper, growth)
    new_growth = current_growth - getattr(position, f"checkpoint_{token}")
    return collectable(getattr(position, f"owed_{token}"), new_growth, position.liquidity)


def vault_balance(vault: TokenAccount, mint: str) -> int:
    """Return the balance of a vault in raw units.

    Raises:
        Unreadable: It holds another token than `mint`.
    """
    if vault.mint != mint:
        raise Unreadable(f"a vault of its pool holds another token: {vault.mint}")
    return vault.raw


def sum_by_token(token_amounts: Iterable[TokenAmount]) -> tuple[TokenAmount, ...]:
    """Return one amount per token: a reward may be in the token of the fees."""
    sums: dict[str, int] = {}
    for amount in token_amounts:
        sums[amount.token] = sums.get(amount.token, 0) + amount.raw
    return tuple(TokenAmount(token, raw) for token, raw in sums.items())
