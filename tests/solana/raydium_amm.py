"""Pools of Raydium's first AMM program, encoded by the layout of Raydium's SDK.

The handling of profits follows the public source of the program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from solders.pubkey import Pubkey

from chainfolio.adapters.solana.account_reads import derived
from chainfolio.adapters.solana.layouts import TOKEN
from tests.solana.ledger import Ledger, mint
from tests.solana.sdk import Job, run_jobs
from tests.solana.vendor_accounts import NOBODY

AMM: Final = "675kPX9MHTjS2zt1qfr1NYHuzeLXfQM9H24wFSUt1Mp8"
AUTHORITY: Final = derived(AMM, (b"amm authority",))
PLAIN: Final = (
    "nonce",
    "maxOrder",
    "depth",
    "state",
    "resetFlag",
    "minSize",
    "volMaxCutRatio",
    "amountWaveRatio",
    "baseLotSize",
    "quoteLotSize",
    "minPriceMultiplier",
    "maxPriceMultiplier",
    "minSeparateNumerator",
    "minSeparateDenominator",
    "tradeFeeNumerator",
    "tradeFeeDenominator",
    "swapFeeNumerator",
    "swapFeeDenominator",
    "quoteTotalPnl",
    "baseTotalPnl",
    "poolOpenTime",
    "punishPcAmount",
    "punishCoinAmount",
    "orderbookToInitTime",
    "swapBaseInAmount",
    "swapQuoteOutAmount",
    "swapBase2QuoteFee",
    "swapQuoteInAmount",
    "swapBaseOutAmount",
    "swapQuote2BaseFee",
)
STRANGE: Final = ("openOrders", "marketId", "marketProgramId", "withdrawQueue", "lpVault", "owner")


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of two tokens: vault amounts, the protocol's share, and the amounts at the last profit.

    `profit_basis` is in units in which both tokens have the same number of decimals.
    """

    address: str
    share: str
    counts: str
    mints: tuple[str, str]
    vaults: tuple[str, str]
    raws: tuple[int, int]
    profit_basis: tuple[int, int]
    taken_profits: tuple[int, int] = (0, 0)
    decimals: tuple[int, int] = (9, 6)
    shares: int = 10**12
    status: int = 6

    def facade(self, **overrides: int) -> dict[str, Any]:
        """Return the fields as Raydium's SDK names them, with some replaced."""
        return {
            **{name: number for number, name in enumerate(PLAIN)},
            **dict.fromkeys(STRANGE, NOBODY),
            "status": self.status,
            "baseDecimal": self.decimals[0],
            "quoteDecimal": self.decimals[1],
            "systemDecimalValue": 10 ** max(self.decimals),
            "pnlNumerator": 12,
            "pnlDenominator": 100,
            "baseNeedTakePnl": self.taken_profits[0],
            "quoteNeedTakePnl": self.taken_profits[1],
            "baseVault": self.vaults[0],
            "quoteVault": self.vaults[1],
            "baseMint": self.mints[0],
            "quoteMint": self.mints[1],
            "lpMint": self.share,
            "targetOrders": self.counts,
            "lpReserve": self.shares,
            "padding": [0, 0, 0],
            **overrides,
        }

    def job(self, **overrides: int) -> Job:
        """Return the SDK job that encodes the account, with some fields replaced."""
        fields = {"layout": "liquidityStateV4Layout", "discriminator": "", "fields": self.facade(**overrides)}
        return "raydium", fields

    @property
    def counting(self) -> bytes:
        """`TargetOrders`: whose it is, fifty orders, eight numbers, eight sums, and what was counted."""
        pool_key, (raw_a, raw_b) = bytes(Pubkey.from_string(self.address)), self.profit_basis
        target_amounts = raw_b.to_bytes(16, "little") + raw_a.to_bytes(16, "little")
        return pool_key + b"\7" * (50 * 16 + 8 * 8 + 8 * 16) + target_amounts + b"\7" * (50 * 16 + 42 * 8 + 16)


def write(pool: Pool, content: bytes = b"") -> Ledger:
    """A pool with all that belongs to it; its bytes, if they were made already."""
    ledger = Ledger()
    ledger.put(pool.address, AMM, content or run_jobs([pool.job()])[0])
    ledger.put(pool.counts, AMM, pool.counting)
    ledger.put(pool.share, TOKEN, mint(pool.shares - 1, 6, AUTHORITY))
    for at, token, raw in zip(pool.vaults, pool.mints, pool.raws, strict=True):
        ledger.put_vault(at, token, AUTHORITY, raw)
    return ledger
