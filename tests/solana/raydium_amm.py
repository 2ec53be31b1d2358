"""Pools of Raydium's first program, written by the layout of Raydium's SDK; what profits were taken of, by the public
source of the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from solders.pubkey import Pubkey

from chainfolio.adapters.solana.account_reads import derived
from chainfolio.adapters.solana.layouts import TOKEN
from tests.solana.ledger import Ledger, mint
from tests.solana.sdk import Job, done
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
    """A pool of two tokens: what lies in its vaults, what of that is the protocol's, and what profits were last taken
    of, in units of which one token has so many as the unit."""

    address: str
    share: str
    counts: str
    mints: tuple[str, str]
    vaults: tuple[str, str]
    raws: tuple[int, int]
    counted: tuple[int, int]
    taken: tuple[int, int] = (0, 0)
    decimals: tuple[int, int] = (9, 6)
    shares: int = 10**12
    status: int = 6

    def facade(self, **other: int) -> dict[str, Any]:
        """As Raydium's SDK has it."""
        return {
            **{name: number for number, name in enumerate(PLAIN)},
            **dict.fromkeys(STRANGE, NOBODY),
            "status": self.status,
            "baseDecimal": self.decimals[0],
            "quoteDecimal": self.decimals[1],
            "systemDecimalValue": 10 ** max(self.decimals),
            "pnlNumerator": 12,
            "pnlDenominator": 100,
            "baseNeedTakePnl": self.taken[0],
            "quoteNeedTakePnl": self.taken[1],
            "baseVault": self.vaults[0],
            "quoteVault": self.vaults[1],
            "baseMint": self.mints[0],
            "quoteMint": self.mints[1],
            "lpMint": self.share,
            "targetOrders": self.counts,
            "lpReserve": self.shares,
            "padding": [0, 0, 0],
            **other,
        }

    def job(self, **other: int) -> Job:
        """What makes its bytes."""
        fields = {"layout": "liquidityStateV4Layout", "discriminator": "", "fields": self.facade(**other)}
        return "raydium", fields

    @property
    def counting(self) -> bytes:
        """`TargetOrders`: whose it is, fifty orders, eight numbers, eight sums, and what was counted."""
        own, (raw_a, raw_b) = bytes(Pubkey.from_string(self.address)), self.counted
        counted = raw_b.to_bytes(16, "little") + raw_a.to_bytes(16, "little")
        return own + b"\7" * (50 * 16 + 8 * 8 + 8 * 16) + counted + b"\7" * (50 * 16 + 42 * 8 + 16)


def write(pool: Pool, content: bytes = b"") -> Ledger:
    """A pool with all that belongs to it; its bytes, if they were made already."""
    ledger = Ledger()
    ledger.put(pool.address, AMM, content or done([pool.job()])[0])
    ledger.put(pool.counts, AMM, pool.counting)
    ledger.put(pool.share, TOKEN, mint(pool.shares - 1, 6, AUTHORITY))
    for at, token, raw in zip(pool.vaults, pool.mints, pool.raws, strict=True):
        ledger.put_vault(at, token, AUTHORITY, raw)
    return ledger
