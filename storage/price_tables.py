"""The table of the tail for prices that are not in the lake yet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from chainfolio.blocks import Block

if TYPE_CHECKING:
    from chainfolio.storage.tail_database import Rows, Transaction

MAX_PENDING_PRICES: Final = 200_000  # at blocks that are not final; older ones are deleted


class PriceTables(ABC):
    """Prices (JSON) by chain, block and asset, from their calculation until they are in the lake."""

    @abstractmethod
    def _read(self, sql: str, *arguments: object) -> Rows: ...

    @abstractmethod
    def hold(self, name: str, subject: str) -> AbstractContextManager[None]:
        """Hold a lock among all processes during the block."""

    @abstractmethod
    def _write(self, chain: str = "") -> AbstractContextManager[Transaction]: ...

    def store_prices(self, chain: str, block: Block, prices: Mapping[str, bytes]) -> dict[str, bytes]:
        """Store prices of a block by asset, and return the stored ones of these assets.

        Of blocks that are not final, the oldest prices beyond MAX_PENDING_PRICES are deleted. An earlier price of an
        asset stays and is returned.

        Args:
            block: Final if its hash is empty.
        """
        with self._write(chain) as tx:
            tx.run_many(
                # Not ON CONFLICT DO NOTHING, which uses up numbers in PostgreSQL.
                "INSERT INTO prices (chain, height, hash, time_us, asset, price) SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE "
                "NOT EXISTS (SELECT 1 FROM prices WHERE chain = ?1 AND height = ?2 AND asset = ?5 AND hash = ?3)",
                [(chain, block.height, block.hash, block.time_us, asset, price) for asset, price in prices.items()],
            )
            tx.run(
                "DELETE FROM prices WHERE hash <> '' AND chain = ? AND number <= "
                "(SELECT max(number) FROM prices WHERE chain = ?) - ?",
                *(chain, chain, MAX_PENDING_PRICES),
            )
            rows = tx.rows(
                "SELECT asset, price FROM prices WHERE chain = ? AND height = ? AND hash = ?",
                *(chain, block.height, block.hash),
            )
        return {asset: price for asset, price in rows if asset in prices}

    def prices(self, chain: str, height: int) -> list[tuple[str, str, bytes]]:
        """Return hash, asset and price (JSON) of the prices of a height that are not in the lake yet."""
        return self._read("SELECT hash, asset, price FROM prices WHERE chain = ? AND height = ?", chain, height)

    def has_prices(self, chain: str) -> bool:
        """Return True if prices of the chain are stored here."""
        return bool(self._read("SELECT 1 FROM prices WHERE chain = ? LIMIT 1", chain))

    def last_final_price(self, chain: str) -> int | None:
        """Return the highest height with prices of a final block; None if there is none."""
        height: int | None = self._read("SELECT max(height) FROM prices WHERE chain = ? AND hash = ''", chain)[0][0]
        return height

    def pending_prices(self, chain: str, last: int) -> list[tuple[int, int, str, int, str, bytes]]:
        """Return number, height, hash, time (µs), asset and price of all prices up to a height, by number."""
        return self._read(
            "SELECT number, height, hash, time_us, asset, price FROM prices WHERE chain = ? AND height <= ? "
            "ORDER BY number",
            chain,
            last,
        )

    def lock_prices(self, chain: str) -> AbstractContextManager[None]:
        """Lock a chain's prices while they are moved to the lake, in this process only.

        Raises:
            Locked: Another process has the lock.
        """
        return self.hold(f"{chain}.prices", f"the prices of {chain}")

    def drop_prices(self, chain: str, numbers: Iterable[int]) -> None:
        """Delete prices by their number: they are in the lake now, or their block left the chain."""
        with self._write(chain) as tx:
            tx.run_many("DELETE FROM prices WHERE number = ?", [(each,) for each in numbers])
