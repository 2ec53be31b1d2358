"""What many holdings are worth, account by account: the arithmetic of `valuation.worth`, on columns, and as exact.

All prices are written as integers of one unit. A raw has limbs of 64 bits and a price limbs of 32; their products are
summed as 128-bit integers by the power that they stand for. What is so fine or so large that it does not fit is valued
one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from chainfolio import amounts
from portfolio.ledger import RAW_BYTES

if TYPE_CHECKING:
    import polars as pl

MAX_PLACES: Final = 72  # of the unit
MAX_BITS: Final = 256  # of a price in it
RAW_LIMBS: Final = RAW_BYTES // 8
BITS: Final = 32  # of a limb of a price
EXTRA: Final = 4  # words that carrying adds: a sum of products has 127 bits
# A product of limbs has 96 bits and at most four stand for one power, so that so many rows cannot overflow 127 bits.
MAX_ROWS: Final = 2**29


class Quote(NamedTuple):
    """What one asset is worth: its decimals, the price of an amount of one, and what its market could pay at most."""

    decimals: int
    usd: Decimal
    depth_usd: Decimal | None = None

    @property
    def places(self) -> int:
        """How many decimal places the worth of its smallest unit, and its bound, have."""
        depth = None if self.depth_usd is None else _exponent(self.depth_usd)
        return -min(_exponent(self.usd) - self.decimals, 0 if depth is None else depth)

    def worth(self, raw: int) -> Decimal:
        """What so many smallest units are worth."""
        value = amounts.value_of(amounts.amount(raw, self.decimals), self.usd)
        return value if self.depth_usd is None else min(value, self.depth_usd)


def values_by_account(holdings: pl.DataFrame, quotes: Mapping[Any, Quote]) -> dict[Any, Decimal]:
    """The exact value of all that each account holds: columns `account`, `asset` and `raw` (32 bytes), and the quotes
    of the assets that have a price. What has none is worth nothing here; an account of nothing else is not in it.

    Prices are above zero, bounds are not below it."""
    import polars as pl

    assert holdings.height < MAX_ROWS, f"not more than {MAX_ROWS:,} holdings together"
    assert (holdings["raw"].bin.size() == RAW_BYTES).all(), f"a raw has {RAW_BYTES} bytes"
    places, units = _units(quotes)
    names = [f"price{at}" for at in range(_limbs(units))]
    bounds = {asset: _most(quotes[asset], unit, places) for asset, unit in units.items()}
    prices = _frame(holdings["asset"].dtype, units, bounds, names)
    capped, wide = (pl.col("raw") > pl.col("most")).fill_null(value=False), (pl.col("raw2") | pl.col("raw3")) > 0
    priced = holdings.lazy().join(prices.lazy(), on="asset").with_columns(_raw_limbs())
    rows = priced.with_columns(capped=capped, wide=wide).drop("raw", "most").collect()
    bounded, plain = rows.filter(pl.col("capped")), rows.lazy().filter(~pl.col("capped"))
    found: defaultdict[Any, int] = defaultdict(int)
    for raw_limbs, some in ((RAW_LIMBS // 2, plain.filter(~pl.col("wide"))), (RAW_LIMBS, plain.filter(pl.col("wide")))):
        sums = some.group_by("account").agg(_products(raw_limbs, names)).collect()
        for account, total in zip(sums["account"].to_list(), _carried(sums.drop("account")), strict=True):
            found[account] += total
    for account, asset, count in bounded.group_by("account", "asset").agg(pl.len()).iter_rows():
        found[account] += count * _integer(quotes[asset].depth_usd or amounts.ZERO, places)
    values = {account: amounts.EXACT.scaleb(Decimal(units), -places) for account, units in found.items()}
    odd = [asset for asset in quotes if asset not in units]
    return values if not odd else _with_odd(values, holdings, odd, quotes)


def _units(quotes: Mapping[Any, Quote]) -> tuple[int, dict[Any, int]]:
    """How many decimal places the unit has, and in it what the smallest unit of each asset is worth that fits."""
    fine = {asset: quote.places for asset, quote in quotes.items() if quote.places <= MAX_PLACES}
    places = max(fine.values(), default=0)
    units = {asset: _integer(quotes[asset].usd, places - quotes[asset].decimals) for asset in fine}
    return places, {asset: unit for asset, unit in units.items() if unit.bit_length() <= MAX_BITS}


def _integer(value: Decimal, places: int) -> int:
    return int(amounts.EXACT.scaleb(value, places))


def _exponent(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), f"not a price: {value}"
    return exponent


def _most(quote: Quote, unit: int, places: int) -> bytes | None:
    """The largest raw that is worth no more than the bound; None where all are."""
    if quote.depth_usd is None:
        return None
    most = _integer(quote.depth_usd, places) // unit
    return most.to_bytes(RAW_BYTES, "big") if most < amounts.MAX_RAW else None


def _limbs(units: Mapping[Any, int]) -> int:
    """How many limbs the largest price has; at least two, which are as wide as one of a raw: no power is left out."""
    return max(2, -(-max(units.values(), default=0).bit_length() // BITS))


def _frame(
    key: pl.DataType, units: Mapping[Any, int], bounds: Mapping[Any, bytes | None], names: Sequence[str]
) -> pl.DataFrame:
    """A row for each asset: the limbs of its price, the least significant first, and the largest raw that its bound
    allows."""
    import numpy as np
    import polars as pl

    written = b"".join(unit.to_bytes(MAX_BITS // 8, "little") for unit in units.values())
    limbs = np.frombuffer(written, "<u4").reshape(-1, MAX_BITS // BITS)
    columns = {name: pl.Series(name, limbs[:, at].copy(), pl.UInt32) for at, name in enumerate(names)}
    assets, most = pl.Series("asset", list(units), key), pl.Series("most", list(bounds.values()), pl.Binary)
    return pl.DataFrame({"asset": assets, **columns, "most": most})


def _raw_limbs() -> list[pl.Expr]:
    """The limbs of the raws, the least significant first."""
    import polars as pl

    starts = [RAW_BYTES - 8 * (at + 1) for at in range(RAW_LIMBS)]
    cut = [pl.col("raw").bin.slice(start, 8).bin.reinterpret(dtype=pl.UInt64, endianness="big") for start in starts]
    return [limb.alias(f"raw{at}") for at, limb in enumerate(cut)]


def _products(raw_limbs: int, prices: Sequence[str]) -> list[pl.Expr]:
    """The sums of the products of all limbs, by the power of 2^32 that they stand for."""
    import polars as pl

    found: defaultdict[int, list[pl.Expr]] = defaultdict(list)
    for at in range(raw_limbs):
        for power, price in enumerate(prices):
            product = pl.col(f"raw{at}").cast(pl.Int128) * pl.col(price).cast(pl.Int128)
            found[2 * at + power].append(product)
    return [pl.sum_horizontal(parts).sum().alias(f"power{power}") for power, parts in sorted(found.items())]


def _carried(sums: pl.DataFrame) -> list[int]:
    """Of each row the sum of its columns, each standing for the next power of 2^32."""
    import numpy as np
    import polars as pl

    words = np.empty((sums.height, sums.width + EXTRA), "<u4")
    over = pl.DataFrame({"over": pl.zeros(sums.height, pl.Int128, eager=True)})
    for at in range(words.shape[1]):
        part = pl.col("over") if at >= sums.width else pl.col("over") + sums.to_series(at)
        cut = over.select(over=part // 2**BITS, word=(part % 2**BITS).cast(pl.UInt32))
        words[:, at] = cut["word"].to_numpy()
        over = cut
    written, size = words.tobytes(), words.itemsize * words.shape[1]
    return [int.from_bytes(written[at : at + size], "little") for at in range(0, len(written), size)]


def _with_odd(
    values: Mapping[Any, Decimal], holdings: pl.DataFrame, odd: Sequence[Any], quotes: Mapping[Any, Quote]
) -> dict[Any, Decimal]:
    """The same with the holdings of odd assets, one by one."""
    import polars as pl

    found = defaultdict(list[Decimal], {account: [value] for account, value in values.items()})
    rows = holdings.filter(pl.col("asset").is_in(pl.Series(odd, dtype=holdings["asset"].dtype).implode()))
    for account, asset, raw in rows.select("account", "asset", "raw").iter_rows():
        found[account].append(quotes[asset].worth(amounts.raw_from_bytes(raw)))
    return {account: amounts.total(parts) for account, parts in found.items()}
