"""Prices in accounts of Solana: Pyth's and those of stake pools, in bytes of the vendors' SDKs."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import pytest

from chainfolio.assets import Asset, asset
from chainfolio.blocks import Block
from chainfolio.errors import BadSettings
from chainfolio.plans import run_offline
from chainfolio.price_sources import Quotes
from chainfolio.pricing.liquid_stake import LiquidStake
from chainfolio.pricing.programs import MAX_CLOCK_SKEW_S
from chainfolio.pricing.pyth_accounts import PythAccounts
from chainfolio.pricing.registry import build_sources
from chainfolio.pricing.source_chain import query_sources
from tests.solana.ledger import Ledger
from tests.solana.sdk import Small, run_job
from tests.solana.vendor_accounts import (
    FEED,
    JITO_MINT,
    JITO_POOL,
    MARINADE,
    MARINADE_STATE,
    MSOL_MINT,
    POOLS,
    PUSH,
    RECEIVER,
    SOL_FEED_AT,
    marinade_bytes,
    pyth_bytes,
    stake_pool_bytes,
)

PRICES: Final = tomllib.loads((Path(__file__).parents[2] / "configs" / "prices.toml").read_text())
SOLANA: Final = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
SOL: Final = asset(f"{SOLANA}/slip44:501")
JITO, MSOL = (asset(f"{SOLANA}/token:{mint}") for mint in (JITO_MINT, MSOL_MINT))
NOW_S: Final = 1_760_000_000
BLOCK: Final = Block(300, "hash", "before", NOW_S * 1_000_000)


@pytest.fixture(scope="module")
def stored() -> Ledger:
    """The accounts of the shipped configuration: SOL at 150.25 USD, JitoSOL at 1.25 SOL, mSOL at 1.3 SOL."""
    ledger = Ledger()
    ledger.put(SOL_FEED_AT, RECEIVER, pyth_bytes(NOW_S - 3))
    ledger.put(JITO_POOL, POOLS, stake_pool_bytes(JITO.reference, 12_500_000_000_000_000, 10_000_000_000_000_000))
    ledger.put(MARINADE_STATE, MARINADE, marinade_bytes(5_583_457_484))
    return ledger


def priced(ledger: Ledger, *assets: Asset, block: Block = BLOCK) -> Quotes:
    """Return the quotes of the shipped sources of Solana."""
    tree = {name: PRICES[name] for name in ("pyth_accounts", "liquid_stake")}
    quotes: Quotes = run_offline(query_sources(build_sources(tree, {}, "solana", "solana"), assets, block), ledger)
    return quotes


def refusal(ledger: Ledger, of: Asset = SOL, block: Block = BLOCK) -> str:
    """Return the reason why an asset has no price."""
    quotes = priced(ledger, of, block=block)
    assert not quotes.prices
    return quotes.refused[0].reason


def changed(ledger: Ledger, address: str, owner: str, content: bytes) -> Ledger:
    """The accounts with another one."""
    return Ledger({**ledger.accounts, address: (owner, content)})


def test_accounts_that_the_vendors_wrote_give_exact_prices(stored: Ledger) -> None:
    prices_of = {price.asset: price for price in priced(stored, SOL, JITO, MSOL).prices}
    assert prices_of[SOL].usd == Decimal("150.25")
    assert (prices_of[SOL].source, prices_of[SOL].time_us) == ("pyth_accounts", (NOW_S - 3) * 1_000_000)
    assert prices_of[SOL].confidence == 1 - Decimal("0.000033")
    assert prices_of[JITO].usd == Decimal("187.8125")
    assert Fraction(prices_of[MSOL].usd) == Fraction(5_583_457_484, 2**32) * Fraction(Decimal("150.25"))
    assert prices_of[JITO].detail == f"what pool {JITO_POOL} redeems → {SOL} → pyth_accounts"
    assert [call.read.label[:2] for call in prices_of[JITO].calls] == [
        ("getMultipleAccounts", JITO_POOL),
        ("getMultipleAccounts", SOL_FEED_AT),
    ]


def test_the_account_of_a_feed_is_where_pyth_says() -> None:
    assert run_job("pyth_address", receiver=PUSH, feed=FEED, shard=Small(0)) == SOL_FEED_AT


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"price": 0}, "the price is zero"),
        ({"price": -5}, "the price is not above zero"),
        ({"conf": 151_000_000}, "Pyth is not sure of it"),
        ({"exponent": Small(-77)}, "an exponent of -77"),
        ({"publishTime": NOW_S - 121}, "the price is stale: seen 121 s before the block, 120 s are allowed"),
        ({"publishTime": NOW_S + MAX_CLOCK_SKEW_S + 1}, "the price was seen 31 s after the block"),
        ({"feedId": b"\x01" * 32}, "the account of the price is that of another feed"),
        ({"verificationLevel": {"partial": {"numSignatures": Small(5)}}}, "its price was not verified in full"),
    ],
)
def test_what_pyth_is_not_sure_of_is_no_price(stored: Ledger, fields: dict[str, Any], reason: str) -> None:
    assert reason in refusal(changed(stored, SOL_FEED_AT, RECEIVER, pyth_bytes(NOW_S - 3, **fields)))


def test_a_price_that_is_a_little_newer_than_a_slow_clock_is_of_the_block(stored: Ledger) -> None:
    ledger = changed(stored, SOL_FEED_AT, RECEIVER, pyth_bytes(NOW_S + MAX_CLOCK_SKEW_S))
    assert priced(ledger, SOL).prices[0].time_us == BLOCK.time_us


@pytest.mark.parametrize(
    ("owner", "cut", "reason"),
    [
        (PUSH, slice(None), f"it belongs to the program {PUSH}"),
        (RECEIVER, slice(-1), "it has 132 bytes"),
        (RECEIVER, slice(0), "it has 0 bytes"),
        (RECEIVER, slice(1, None), "it has 132 bytes"),
    ],
)
def test_an_account_of_another_program_or_length_is_no_price(
    stored: Ledger, owner: str, cut: slice, reason: str
) -> None:
    content = stored.accounts[SOL_FEED_AT][1][cut]
    assert reason in refusal(changed(stored, SOL_FEED_AT, owner, content))


def test_an_account_with_more_bytes_or_another_mark_is_no_price(stored: Ledger) -> None:
    content = stored.accounts[SOL_FEED_AT][1]
    assert "it has 163 bytes" in refusal(changed(stored, SOL_FEED_AT, RECEIVER, content + bytes(30)))
    assert "another kind of account" in refusal(changed(stored, SOL_FEED_AT, RECEIVER, bytes(8) + content[8:]))


def test_a_feed_without_an_account_has_no_price() -> None:
    assert refusal(Ledger()) == f"there is no account {SOL_FEED_AT}"


@pytest.mark.parametrize(
    ("mint", "lamports", "supply", "reason"),
    [
        (JITO.reference, 5, 0, "has issued nothing"),
        (JITO.reference, 0, 5, "has issued nothing"),
        (JITO.reference, 2**64 - 1, 1, "which cannot be"),
        (JITO.reference, 1, 2**64 - 1, "which cannot be"),
        (MSOL.reference, 5, 5, "issues another token"),
    ],
)
def test_a_pool_that_has_nothing_or_belongs_to_another_token_is_no_price(
    stored: Ledger, mint: str, lamports: int, supply: int, reason: str
) -> None:
    assert reason in refusal(changed(stored, JITO_POOL, POOLS, stake_pool_bytes(mint, lamports, supply)), JITO)


def test_a_pool_of_another_program_is_no_price(stored: Ledger) -> None:
    _, content = stored.accounts[JITO_POOL]
    assert f"it belongs to the program {MARINADE}" in refusal(changed(stored, JITO_POOL, MARINADE, content), JITO)
    assert "it has 610 bytes" in refusal(changed(stored, JITO_POOL, POOLS, content[:-1]), JITO)
    assert "another kind of account" in refusal(changed(stored, JITO_POOL, POOLS, b"\2" + content[1:]), JITO)


def test_a_token_of_staked_coins_without_a_price_of_the_coin_has_none(stored: Ledger) -> None:
    ledger = Ledger({at: each for at, each in stored.accounts.items() if at != SOL_FEED_AT})
    assert "has no price: there is no account" in refusal(ledger, JITO)


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({"pyth_accounts": {"solana": {"receiver": RECEIVER, "push_oracle": "x", "feeds": {}}}}, "push_oracle is 'x'"),
        ({"pyth_accounts": {"solana": {"receiver": RECEIVER, "push_oracle": PUSH, "shard": -1}}}, "shard is -1"),
        ({"pyth_accounts": {"solana": {"receiver": RECEIVER, "push_oracle": PUSH, "feeds": {str(SOL): ""}}}}, "feeds"),
        ({"pyth_accounts": {"solana": {"receiver": RECEIVER, "oracle": PUSH}}}, "unknown key oracle"),
        ({"liquid_stake": {"solana": {str(JITO): {}}}}, "needs `native`"),
        ({"liquid_stake": {"solana": {"native": str(SOL), str(JITO): {"pool": JITO_POOL}}}}, "needs exactly program"),
        ({"liquid_stake": {"solana": {"native": str(SOL), str(SOL): {}}}}, "not a token of Solana"),
        (
            {
                "liquid_stake": {
                    "solana": {"native": str(SOL), str(JITO): {"program": POOLS, "layout": "vault", "pool": JITO_POOL}}
                }
            },
            "layout is 'vault'",
        ),
    ],
)
def test_sections_that_cannot_be_meant_are_refused(section: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSettings) as caught:
        build_sources(section, {}, "solana", "solana")
    assert reason in str(caught.value)


def test_a_chain_without_a_section_has_sources_that_know_nothing() -> None:
    sources = build_sources({"pyth_accounts": {}, "liquid_stake": {}}, {}, "solana", "solana")
    assert [type(each) for each in sources] == [PythAccounts, LiquidStake]
    assert priced(Ledger()).prices == ()
    assert not any(each.knows(SOL) for each in sources)  # type: ignore[attr-defined]
