"""Prices from pools of Orca and Raydium on Solana, with bytes and addresses of the vendors' SDKs."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import pytest
from solders.keypair import Keypair

from chainfolio.adapters.solana.account_reads import AccountRead, derived
from chainfolio.adapters.solana.layouts import TOKEN
from chainfolio.adapters.solana.ticks import orca_root
from chainfolio.assets import Asset, asset
from chainfolio.blocks import Block
from chainfolio.errors import BadSettings
from chainfolio.plans import Unknown, run_offline
from chainfolio.pool_prices import TOO_MANY_TOKENS
from chainfolio.price_sources import Quotes
from chainfolio.pricing.fixed import build_fixed
from chainfolio.pricing.registry import build_sources
from chainfolio.pricing.relatives import rounded
from chainfolio.pricing.solana_pools import MAX_TOKENS
from chainfolio.pricing.source_chain import query_sources
from tests.solana import ledger as accounts
from tests.solana.ledger import Ledger
from tests.solana.raydium import CPMM, Reserves
from tests.solana.sdk import Small, run_job, run_jobs
from tests.solana.vendor_accounts import NOBODY
from tests.solana.whirlpools import PROGRAM, Pool

PRICES: Final = tomllib.loads((Path(__file__).parents[2] / "configs" / "prices.toml").read_text())
SOLANA: Final = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
USDC, WSOL = (
    asset(f"{SOLANA}/token:{mint}")
    for mint in ("EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v", "So11111111111111111111111111111111111111112")
)
RAYDIUM: Final = "CAMMCzo5YL8w4VFF8KVHrK22GGUsp5VTaW7grrKgrWqK"
BLOCK: Final = Block(300, "hash", "before", 1_760_000_000 * 1_000_000)
TOKEN_A: Final = "4k3Dyjzvzp8eMZWUXbBCjEvwSkkk59S5iCNLY3QrkX6R"  # its bytes come before those of USDC
TOKEN_B: Final = "mSoLzYCxHdYgdzU16g5QSh3i5K3z3KZK7ytfqcJm7So"  # and these behind the bytes of wrapped SOL
DEEP: Final = 10**15


def key() -> str:
    """Return a new address that no account uses."""
    return str(Keypair().pubkey())


VAULTS: Final = (key(), key())


def orca(mints: tuple[str, str], tick: int, liquidity: int = DEEP, spacing: int = 64) -> Pool:
    """A pool of Orca at the price of a tick."""
    return Pool(mints, (key(), key()), spacing, orca_root(tick), tick, liquidity)


def stored(*pools: Pool, vaults: int = DEEP, mints: dict[str, int] | None = None) -> Ledger:
    """Return a ledger with pools of Orca, their vaults, and mints by their decimals."""
    ledger = Ledger()
    for mint, decimals in {USDC.reference: 6, WSOL.reference: 9, TOKEN_A: 6, TOKEN_B: 9, **(mints or {})}.items():
        ledger.put(mint, TOKEN, accounts.mint(10**18, decimals))
    for pool, content in zip(pools, run_jobs([pool.job for pool in pools]) if pools else [], strict=True):
        ledger.put(pool.address, PROGRAM, content)
        for mint, vault in zip(pool.mints, pool.vaults, strict=True):
            ledger.put_vault(vault, mint, pool.address, vaults)
    return ledger


def priced(ledger: Any, *assets: Asset) -> Quotes:
    """Return the quotes of the shipped venues at 1 USD for USDC and 150 USD for SOL."""
    usual = build_fixed({str(USDC): "1", str(WSOL): "150"}, "test")
    [pools] = build_sources({"solana_pools": PRICES["solana_pools"]}, {}, "solana", "solana")
    quotes: Quotes = run_offline(query_sources([usual, pools], assets, BLOCK), ledger)
    return quotes


def token(mint: str) -> Asset:
    """A token by its mint."""
    return asset(f"{SOLANA}/token:{mint}")


def test_a_token_is_worth_what_the_root_of_its_pool_says_exactly() -> None:
    pool = orca((TOKEN_A, USDC.reference), 12_345)
    [price] = priced(stored(pool), token(TOKEN_A)).prices
    assert price.usd == rounded(Fraction(pool.root**2, 2**128))
    assert (price.source, price.confidence) == ("solana_pools", Decimal("0.5"))
    assert price.depth_usd == Decimal(DEEP * pool.root >> 64) / 10**6 or price.depth_usd == Decimal(DEEP) / 10**6
    assert price.detail.startswith(f"whirlpool {pool.address}")
    assert {call.read.label[1] for call in price.calls} >= {pool.address, pool.vaults[1], TOKEN_A}


def test_a_token_that_is_the_second_of_its_pool_is_priced_the_other_way_round() -> None:
    pool = orca((WSOL.reference, TOKEN_B), -2_500)
    [price] = priced(stored(pool), token(TOKEN_B)).prices
    assert price.usd == rounded(150 / Fraction(pool.root**2, 2**128))
    depth = Decimal(min(DEEP, (DEEP << 64) // pool.root)) / 10**9 * 150
    assert price.depth_usd == depth


def raydium(mints: tuple[str, str], root: int, index: int = 1) -> dict[str, tuple[str, bytes]]:
    """A pool of Raydium with its vaults, by Raydium's own layout."""
    config = derived(RAYDIUM, (b"amm_config", index.to_bytes(2, "big")))
    address = derived(RAYDIUM, (b"pool", config, *mints))
    reward = dict.fromkeys(
        (
            "openTime",
            "endTime",
            "lastUpdateTime",
            "emissionsPerSecondX64",
            "totalEmissioned",
            "claimed",
            "growthGlobalX64",
        ),
        0,
    ) | {"state": Small(0), "mint": NOBODY, "vault": NOBODY, "creator": NOBODY}
    fields = {
        "bump": Small(255),
        "configId": config,
        "creator": NOBODY,
        "mintA": mints[0],
        "mintB": mints[1],
        "vaultA": VAULTS[0],
        "vaultB": VAULTS[1],
        "observationId": NOBODY,
        "mintDecimalsA": Small(6),
        "mintDecimalsB": Small(6),
        "tickSpacing": Small(10),
        "liquidity": DEEP,
        "sqrtPriceX64": root,
        "tickCurrent": Small(-7),
        "feeGrowthGlobalX64A": 1,
        "feeGrowthGlobalX64B": 2,
        "protocolFeesTokenA": 3,
        "protocolFeesTokenB": 4,
        "status": Small(0),
        "feeOn": Small(0),
        "rewardInfos": [reward] * 3,
        "tickArrayBitmap": bytes(128),
        "fundFeesTokenA": 0,
        "fundFeesTokenB": 0,
        "startTime": 0,
        "recentEpoch": 0,
        "dynamicFeeInfo": {},
    }
    content, told_config, told_pool = run_jobs(
        [
            ("raydium", {"layout": "PoolInfoLayout", "discriminator": "f7ede3f5d7c3de46", "fields": fields}),
            ("raydium_address", {"of": "getPdaAmmConfigId", "arguments": [RAYDIUM, Small(index)]}),
            ("raydium_address", {"of": "getPdaPoolId", "arguments": [RAYDIUM, config, *mints]}),
        ]
    )
    assert (told_config, told_pool) == (config, address)
    vaults = {
        vault: (TOKEN, accounts.token_account(mint, address, DEEP)) for vault, mint in zip(VAULTS, mints, strict=True)
    }
    return {address: (RAYDIUM, content), **vaults}


def test_pools_of_orca_and_raydium_that_agree_are_surer_and_the_deepest_counts() -> None:
    pool = orca((TOKEN_A, USDC.reference), 500, DEEP // 2)
    ledger = stored(pool)
    ledger.accounts |= raydium(pool.mints, orca_root(510))
    [price] = priced(ledger, token(TOKEN_A)).prices
    assert price.confidence == Decimal("0.7")
    assert price.usd == rounded(Fraction(orca_root(510) ** 2, 2**128))
    assert price.detail.startswith("raydium clmm ")


def test_pools_that_are_far_apart_give_no_price_whichever_is_deeper() -> None:
    for deep_tick, shallow_tick in ((500, 1_600), (1_600, 500)):
        pools = orca((TOKEN_A, USDC.reference), deep_tick), orca((TOKEN_A, USDC.reference), shallow_tick, DEEP // 2, 8)
        quotes = priced(stored(*pools), token(TOKEN_A))
        assert not quotes.prices
        assert "apart, so one is moved" in quotes.refused[0].reason


def by_product(pool: Reserves, raws: tuple[int, int], **said: Any) -> dict[str, tuple[str, bytes]]:
    """A pool of Raydium by product with its vaults."""
    content = run_job("raydium", **pool.job(**said))
    vaults = {
        at: (TOKEN, accounts.token_account(mint, pool.authority, raw))
        for at, mint, raw in zip(pool.vaults, pool.mints, raws, strict=True)
    }
    return {pool.address: (CPMM, content), **vaults}


def reserves(mints: tuple[str, str]) -> Reserves:
    """Return the reserves of a constant-product pool that owes fees to others."""
    return Reserves(mints, VAULTS, 10**12, ((1, 2), (30, 40), (500, 600)), index=1)


@pytest.mark.parametrize("mints", [(TOKEN_A, USDC.reference), (WSOL.reference, TOKEN_B)])
def test_a_token_in_a_pool_by_product_is_worth_what_its_vaults_hold_without_the_fees_of_others(
    mints: tuple[str, str],
) -> None:
    first = mints[1] == USDC.reference
    ledger = stored()
    ledger.accounts |= by_product(reserves(mints), (7_000_000_000_531, 9_000_000_000_642))
    mint = mints[0] if first else mints[1]
    [price] = priced(ledger, token(mint)).prices
    assert price.usd == rounded(Fraction(9, 7) if first else Fraction(7 * 150, 9))
    assert (price.depth_usd, price.confidence) == (Decimal(9_000_000 if first else 7_000 * 150), Decimal("0.5"))
    assert price.detail.startswith("raydium cpmm ")


def test_a_pool_by_product_and_one_of_a_range_have_to_agree() -> None:
    pool = orca((TOKEN_A, USDC.reference), 0)
    for raw, agrees in ((10**13 * 105 // 100, True), (10**13 * 2, False)):
        ledger = stored(pool)
        ledger.accounts |= by_product(reserves(pool.mints), (10**13, raw))
        quotes = priced(ledger, token(TOKEN_A))
        assert bool(quotes.prices) == agrees
        assert agrees or "apart, so one is moved" in quotes.refused[0].reason


@pytest.mark.parametrize(
    ("raws", "fields"),
    [((10**13, 642), {}), ((531, 10**13), {}), ((0, 0), {}), ((10**13, 10**13), {"fundFeesMintA": 2**64 - 1})],
)
def test_a_pool_by_product_that_owes_all_that_it_has_prices_nothing(
    raws: tuple[int, int], fields: dict[str, int]
) -> None:
    ledger = stored()
    ledger.accounts |= by_product(reserves((TOKEN_A, USDC.reference)), raws, **fields)
    quotes = priced(ledger, token(TOKEN_A))
    assert [each.reason for each in quotes.refused] == ["none of its 1 pools could pay enough for a price"]


def test_vaults_of_another_token_or_of_two_owners_price_nothing() -> None:
    pool = reserves((TOKEN_A, USDC.reference))
    for at, mint, owner in ((0, TOKEN_B, pool.authority), (1, TOKEN_A, pool.authority), (1, USDC.reference, key())):
        ledger = stored()
        ledger.accounts |= by_product(pool, (10**13, 10**13))
        ledger.put_vault(pool.vaults[at], mint, owner, 10**13)
        assert not priced(ledger, token(TOKEN_A)).prices


@pytest.mark.parametrize(
    ("pool", "vaults"),
    [
        (orca((TOKEN_A, USDC.reference), 0), 4_999_999_999),
        (orca((TOKEN_A, USDC.reference), 0, 4_999_999_999), DEEP),
        (orca((TOKEN_A, USDC.reference), 0), 0),
    ],
)
def test_a_pool_that_is_thin_or_was_drained_prices_nothing(pool: Pool, vaults: int) -> None:
    quotes = priced(stored(pool, vaults=vaults), token(TOKEN_A))
    assert [each.reason for each in quotes.refused] == ["none of its 1 pools could pay enough for a price"]


@pytest.mark.parametrize("lie", ["another mint", "another owner", "nothing there"])
def test_a_vault_that_is_not_the_pools_own_counts_for_nothing(lie: str) -> None:
    pool = orca((TOKEN_A, USDC.reference), 0)
    ledger = stored(pool)
    if lie == "nothing there":
        del ledger.accounts[pool.vaults[1]]
    else:
        mint, owner = (TOKEN_B, pool.address) if lie == "another mint" else (USDC.reference, key())
        ledger.put_vault(pool.vaults[1], mint, owner, DEEP)
    assert not priced(ledger, token(TOKEN_A)).prices


def test_a_pool_of_other_mints_than_its_address_says_or_without_a_price_is_none() -> None:
    pool = orca((TOKEN_A, USDC.reference), 0)
    for change in (replace(pool, mints=(TOKEN_A, WSOL.reference)), replace(pool, root=0), replace(pool, liquidity=0)):
        ledger = stored(pool)
        [content] = run_jobs([change.job])
        ledger.put(pool.address, PROGRAM, content)
        assert priced(ledger, token(TOKEN_A)) == Quotes()


def test_a_pool_of_another_program_is_not_looked_at() -> None:
    pool = orca((TOKEN_A, USDC.reference), 0)
    ledger = stored(pool)
    ledger.put(pool.address, RAYDIUM, ledger.accounts[pool.address][1])
    assert priced(ledger, token(TOKEN_A)) == Quotes()


def test_a_token_without_a_mint_has_no_price() -> None:
    pool = orca((TOKEN_A, USDC.reference), 0)
    ledger = stored(pool)
    del ledger.accounts[TOKEN_A]
    [refusal] = priced(ledger, token(TOKEN_A)).refused
    assert refusal.reason == "the token does not say how many decimals it has"


def test_pools_that_could_not_be_read_are_no_reason_to_take_others() -> None:
    pool = orca((TOKEN_A, USDC.reference), 0)
    ledger, unreadable = stored(pool), orca((TOKEN_A, USDC.reference), 0, spacing=8).address

    def answered(read: AccountRead) -> Any:
        return Unknown("the node is gone") if read.address == unreadable else ledger(read)

    [refusal] = priced(answered, token(TOKEN_A)).refused
    assert refusal.reason == "its pools could not be read: the node is gone"


def test_more_tokens_than_are_looked_for_at_once_are_said() -> None:
    tokens = [token(key()) for _ in range(MAX_TOKENS + 2)]
    assert [each.reason for each in priced(stored(), *tokens).refused] == [TOO_MANY_TOKENS] * 2


def test_things_of_which_there_is_one_are_not_looked_for_and_take_no_places() -> None:
    pool = orca((TOKEN_A, USDC.reference), 0)
    ledger = stored(pool)
    mints = [key() for _ in range(MAX_TOKENS + 2)]
    for mint in mints:
        ledger.put(mint, TOKEN, accounts.mint(1, 0))
    quotes = priced(ledger, *map(token, mints), token(TOKEN_A))
    assert [each.asset for each in quotes.prices] == [token(TOKEN_A)]
    assert quotes.refused == ()


VENUE: Final = {"family": "raydium_clmm", "program": RAYDIUM, "indexes": [0]}


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({"pools": []}, "unknown key `pools`"),
        ({"quotes": {str(USDC): "0"}}, "what a pool has to have"),
        ({"quotes": {f"{SOLANA}/slip44:501": "5"}}, "not a token of Solana"),
        ({"venues": {}}, "is a list of sections"),
        ({"venues": [{"family": "uniswap_v2"}]}, "family is 'uniswap_v2'"),
        ({"venues": [VENUE | {"config": PROGRAM}]}, "raydium_clmm needs exactly family, indexes, program"),
        ({"venues": [VENUE | {"indexes": [65_536]}]}, "no list of whole numbers up to 65535"),
        ({"venues": [VENUE | {"program": "0x"}]}, "program is '0x', not an address"),
    ],
)
def test_venues_that_cannot_be_meant_are_refused(section: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSettings) as caught:
        build_sources({"solana_pools": {"solana": section}}, {}, "solana", "solana")
    assert reason in str(caught.value)
    assert ("one of " in caught.value.remedy) == ("family is" in reason)
