"""A lending of Jupiter's Earn, written by the coder of Jupiter's SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from solders.keypair import Keypair

from chainfolio.adapters.solana.account_reads import derived
from chainfolio.adapters.solana.layouts import TOKEN
from chainfolio.adapters.solana.protocols.jupiter_earn import PRICE
from tests.solana.ledger import Ledger, mint
from tests.solana.sdk import Small, run_jobs
from tests.solana.vendor_accounts import NOBODY

EARN: Final = "jup3YeL8QhtSx1e253b2FDvsMNC87fDrgQZivbrndc9"
LIQUIDITY: Final = "jupeiUmn818Jg1ekPURTpr4mFo29p46vygyykFJ3wZC"
REWARDS: Final = "jup7TthsMgcR9Y3L277b8Eo9uboVSmu1utkuXHNUKar"
CONTRACTS: Final = {"earn": (EARN,), "liquidity": (LIQUIDITY,), "rewards": (REWARDS,)}
NOW_S: Final = 1_760_000_000
SUPPLY: Final = 10**15
MINT: Final = str(Keypair().pubkey())
SHARE: Final = derived(EARN, (b"f_token_mint", MINT))
ADMIN: Final = derived(EARN, (b"lending_admin",))
LENDING: Final = derived(EARN, (b"lending", MINT, SHARE))
RESERVE: Final = derived(LIQUIDITY, (b"reserve", MINT))
MODEL: Final = derived(REWARDS, (b"lending_rewards_rate_model", MINT))
Written = Mapping[str, tuple[str, bytes]]


def lending_accounts(price: int, old: int, now: int, borrowed: int = 50) -> Written:
    """Return the accounts of a lending, encoded by Jupiter's coder.

    `price` is the value of a share, `old` and `now` the exchange price of the reserve at the last update and
    now.
    """
    lending = {
        "mint": MINT,
        "fTokenMint": SHARE,
        "lendingId": Small(1),
        "decimals": Small(6),
        "rewardsRateModel": MODEL,
        "liquidityExchangePrice": old,
        "tokenExchangePrice": price,
        "lastUpdateTimestamp": NOW_S - 50,
        "tokenReservesLiquidity": RESERVE,
        "supplyPositionOnLiquidity": NOBODY,
        "bump": Small(255),
    }
    reserve = {
        "mint": MINT,
        "vault": NOBODY,
        "borrowRate": Small(4_000),
        "feeOnInterest": Small(1_000),
        "lastUtilization": Small(6_000),
        "lastUpdateTimestamp": NOW_S if borrowed else 0,
        "supplyExchangePrice": now,
        "borrowExchangePrice": 2 * PRICE,
        "maxUtilization": Small(9_500),
        "totalSupplyWithInterest": 80,
        "totalSupplyInterestFree": 20,
        "totalBorrowWithInterest": borrowed,
        "totalBorrowInterestFree": 10,
        "totalClaimAmount": 7,
        "interactingProtocol": NOBODY,
        "interactingTimestamp": 8,
        "interactingBalance": 9,
    }
    rewards = {
        "mint": MINT,
        "startTvl": 0,
        "duration": 0,
        "startTime": 0,
        "yearlyReward": 0,
        "nextDuration": 0,
        "nextRewardAmount": 0,
        "bump": Small(254),
    }
    jobs = {"lending": lending, "tokenReserve": reserve, "lendingRewardsRateModel": rewards}
    content = run_jobs([("jupiter", {"account": name, "fields": each}) for name, each in jobs.items()])
    owners = ((LENDING, EARN), (RESERVE, LIQUIDITY), (MODEL, REWARDS))
    return {at: (owner, each) for (at, owner), each in zip(owners, content, strict=True)}


def stored(accounts: Written) -> Ledger:
    """The accounts with the mint of the shares."""
    ledger = Ledger()
    for at, (owner, content) in accounts.items():
        ledger.put(at, owner, content)
    ledger.put(SHARE, TOKEN, mint(SUPPLY, 6, ADMIN))
    return ledger
