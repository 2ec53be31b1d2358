"""Net values of many accounts, computed on columns: the exact results of `worths.net_worth`.

All prices are integers of one common unit. A raw has limbs of 64 bits and a price limbs of 32; their products are
summed as 128-bit integers per power of 2^32. Assets that are too fine or too large for this are valued one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from chainfolio import amounts
from chainfolio.portfolio.ledger import RAW_BYTES

if TYPE_CHECKING:
    import polars as pl

Key = TypeVar("Key", int, str)  # accounts and assets have keys of one type

MAX_PLACES: Final = 72  # of the unit
MAX_BITS: Final = 256  # of a price in it
RAW_LIMBS: Final = RAW_BYTES // 8
BITS: Final = 32  # of a limb of a price
EXTRA: Final = 4  # words that carrying adds: a sum of products has 127 bits
# A product of limbs has 96 bits and at most four stand for one power, so that so many rows cannot overflow 127 bits.
MAX_ROWS: Final = 2**29


class AssetQuote(NamedTuple):
    """The price of one asset in USD per whole unit, its decimals, and the most that its market could pay."""

    decimals: int
    usd: Decimal
    depth_usd: Decimal | None = None

    @property
    def decimal_places(self) -> int:
        """The decimal places of the value of the smallest unit, or of the bound if it has more."""
        depth = None if self.depth_usd is None else _exponent(self.depth_usd)
        return -min(_exponent(self.usd) - self.decimals, 0 if depth is None else depth)

    def value(self, raw: int) -> Decimal:
        """Return the value of `raw` smallest units in USD, limited by the bound."""
        value = amounts.value_of(amounts.amount(raw, self.decimals), self.usd)
        return value if self.depth_usd is None else min(value, self.depth_usd)


def values_by_account(holdings: pl.DataFrame, quotes: Mapping[Key, AssetQuote]) -> dict[Key, Decimal]:
    """Return the exact value in USD of each account's holdings.

    Args:
        holdings: Columns `account`, `asset` and `raw` (32 bytes).
        quotes: Quotes by asset; prices are above zero, bounds not below. Assets without one count for nothing.

    Returns:
        Values by account. An account without any quoted asset is absent.
    """
    import polars as pl

    assert holdings.height < MAX_ROWS, f"not more than {MAX_ROWS:,} holdings together"
    assert (holdings["raw"].bin.size() == RAW_BYTES).all(), f"a raw has {RAW_BYTES} bytes"
    unit_places, units = _units(quotes)
    names = [f"price{i}" for i in range(_limbs(units))]
    bounds = {asset: _max_raw(quotes[asset], unit, unit_places) for asset, unit in units.items()}
    prices = _price_frame(holdings["asset"].dtype, units, bounds, names)
    capped, wide = (pl.col("raw") > pl.col("most")).fill_null(value=False), (pl.col("raw2") | pl.col("raw3")) > 0
    priced = holdings.lazy().join(prices.lazy(), on="asset").with_columns(_raw_limbs())
    rows = priced.with_columns(capped=capped, wide=wide).drop("raw", "most").collect()
    bounded, plain = rows.filter(pl.col("capped")), rows.lazy().filter(~pl.col("capped"))
    totals: defaultdict[Key, int] = defaultdict(int)
    for raw_limbs, part in ((RAW_LIMBS // 2, plain.filter(~pl.col("wide"))), (RAW_LIMBS, plain.filter(pl.col("wide")))):
        sums = part.group_by("account").agg(_products(raw_limbs, names)).collect()
        for account, total in zip(sums["account"].to_list(), _row_totals(sums.drop("account")), strict=True):
            totals[account] += total
    for account, asset, count in bounded.group_by("account", "asset").agg(pl.len()).iter_rows():
        totals[account] += count * _integer(quotes[asset].depth_usd or amounts.ZERO, unit_places)
    values = {account: amounts.EXACT.scaleb(Decimal(units), -unit_places) for account, units in totals.items()}
    oversized = [asset for asset in quotes if asset not in units]
    return values if not oversized else _add_oversized(values, holdings, oversized, quotes)


def _units(quotes: Mapping[Key, AssetQuote]) -> tuple[int, dict[Key, int]]:
    """Return the common unit's decimal places, and each asset's smallest unit valued in it.

    Assets whose prices are too fine or too large are absent.
    """
    fine = {asset: quote.decimal_places for asset, quote in quotes.items() if quote.decimal_places <= MAX_PLACES}
    unit_places = max(fine.values(), default=0)
    units = {asset: _integer(quotes[asset].usd, unit_places - quotes[asset].decimals) for asset in fine}
    return unit_places, {asset: unit for asset, unit in units.items() if unit.bit_length() <= MAX_BITS}


def _integer(value: Decimal, exponent: int) -> int:
    return int(amounts.EXACT.scaleb(value, exponent))


def _exponent(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), f"not a price: {value}"
    return exponent


def _max_raw(quote: AssetQuote, unit: int, unit_places: int) -> bytes | None:
    """Return the largest raw whose value is within the bound; None if every raw is."""
    if quote.depth_usd is None:
        return None
    max_raw = _integer(quote.depth_usd, unit_places) // unit
    return max_raw.to_bytes(RAW_BYTES, "big") if max_raw < amounts.MAX_RAW else None


def _limbs(units: Mapping[Key, int]) -> int:
    """Return the number of limbs of the largest price, at least two: two span one limb of a raw."""
    return max(2, -(-max(units.values(), default=0).bit_length() // BITS))


def _price_frame(
    key: pl.DataType, units: Mapping[Key, int], bounds: Mapping[Key, bytes | None], names: Sequence[str]
) -> pl.DataFrame:
    """Return a row per asset of `units`: `asset`, the 32-bit limbs of its price, the lowest first, and `most`.

    Args:
        key: Type of the column `asset`.
        units: Price of a raw unit by asset.
        bounds: Largest raw amount of each asset, big-endian, for the column `most`; None without a bound.
        names: Columns of the limbs, enough for the largest price.
    """
    import numpy as np
    import polars as pl

    packed = b"".join(unit.to_bytes(MAX_BITS // 8, "little") for unit in units.values())
    limbs = np.frombuffer(packed, "<u4").reshape(-1, MAX_BITS // BITS)
    columns = {name: pl.Series(name, limbs[:, i].copy(), pl.UInt32) for i, name in enumerate(names)}
    max_raws = pl.Series("most", [bounds[each] for each in units], pl.Binary)
    return pl.DataFrame({"asset": pl.Series("asset", list(units), key), **columns, "most": max_raws})


def _raw_limbs() -> list[pl.Expr]:
    """Return the 64-bit limbs of the column `raw` as columns `raw0` and so on, the lowest first."""
    import polars as pl

    starts = [RAW_BYTES - 8 * (i + 1) for i in range(RAW_LIMBS)]
    cut = [pl.col("raw").bin.slice(start, 8).bin.reinterpret(dtype=pl.UInt64, endianness="big") for start in starts]
    return [limb.alias(f"raw{i}") for i, limb in enumerate(cut)]


def _products(raw_limbs: int, prices: Sequence[str]) -> list[pl.Expr]:
    """Return the sums of the products of limbs, as columns `power0` and so on, the lowest first.

    A column counts units of 2^32 to that power. Raw limbs have 64 bits, price limbs 32.
    """
    import polars as pl

    by_power: defaultdict[int, list[pl.Expr]] = defaultdict(list)
    for i in range(raw_limbs):
        for power, price in enumerate(prices):
            product = pl.col(f"raw{i}").cast(pl.Int128) * pl.col(price).cast(pl.Int128)
            by_power[2 * i + power].append(product)
    return [pl.sum_horizontal(parts).sum().alias(f"power{power}") for power, parts in sorted(by_power.items())]


def _row_totals(sums: pl.DataFrame) -> list[int]:
    """Return the total of each row, which must not be negative: column `i` counts units of 2^(32 * i)."""
    import numpy as np
    import polars as pl

    limbs = np.empty((sums.height, sums.width + EXTRA), "<u4")
    over = pl.DataFrame({"over": pl.zeros(sums.height, pl.Int128, eager=True)})
    for i in range(limbs.shape[1]):
        part = pl.col("over") if i >= sums.width else pl.col("over") + sums.to_series(i)
        cut = over.select(over=part // 2**BITS, word=(part % 2**BITS).cast(pl.UInt32))
        limbs[:, i] = cut["word"].to_numpy()
        over = cut
    packed, size = limbs.tobytes(), limbs.itemsize * limbs.shape[1]
    return [int.from_bytes(packed[i : i + size], "little") for i in range(0, len(packed), size)]


def _add_oversized(
    values: Mapping[Key, Decimal], holdings: pl.DataFrame, oversized: Sequence[Key], quotes: Mapping[Key, AssetQuote]
) -> dict[Key, Decimal]:
    """Return the values with the holdings of `oversized` assets added, one by one."""
    import polars as pl

    parts_by_account = defaultdict(list[Decimal], {account: [value] for account, value in values.items()})
    rows = holdings.filter(pl.col("asset").is_in(pl.Series(oversized, dtype=holdings["asset"].dtype).implode()))
    for account, asset, raw in rows.select("account", "asset", "raw").iter_rows():
        parts_by_account[account].append(quotes[asset].value(amounts.raw_from_bytes(raw)))
    return {account: amounts.total(parts) for account, parts in parts_by_account.items()}
