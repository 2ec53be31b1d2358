"""Spam detection flags hostile names and no real tokens, and needs more than one reason."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from chainfolio.assets import Asset
from chainfolio.contracts import Holding, Position, Snapshot, Spam
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.document import Portfolio, SpamDocument, wallet_only
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.merge import merge
from chainfolio.portfolio.nav import nav
from chainfolio.portfolio.overview import overview
from chainfolio.portfolio.spam import (
    MASS_RECIPIENTS,
    REASONS,
    SPAM_FROM,
    WEIGHTS,
    KnownTokens,
    TokenArrival,
    TokenFacts,
    judge,
)
from chainfolio.portfolio.valuation import valuate
from tests.portfolio.examples import ALICE, CHAINS, USDC, erc20, price, snapshot

DATA = Path(__file__).parents[3] / "shared" / "data"
THERE = Asset("eip155:1", "erc20", "0x" + "5a" * 20)
ORIGINALS = KnownTokens.of(
    [
        (Asset("eip155:1", "erc20", f"0x{number:040x}"), symbol, name)
        for number, (symbol, name) in enumerate(
            [
                ("ETH", "Ether"),
                ("USDC", "USD Coin"),
                ("USDT", "Tether USD"),
                ("stETH", "Lido Staked Ether"),
                ("BAL", "Balancer"),
                ("1INCH", "1inch"),
                ("UNI", "Uniswap"),
                ("DAI", "Dai Stablecoin"),
            ]
        )
    ]
)
SENT = TokenArrival(transfer_count=1, is_own_action=False, recipients=1)
DROPPED = replace(SENT, recipients=MASS_RECIPIENTS)
# As such tokens are named; the sites are made up.
HOSTILE = (
    ("USDC-GIFT.COM", "Visit usdc-gift.com to claim 1000 USDC"),
    ("$ ETHGET.IO", "$ Claim at ethget.io"),
    ("AAVE REWARD", "Visit https://aave-reward.example to get it"),
    ("\u2705 UNI", "www.uni-v4.example"),
    ("LIDO", "! stETH airdrop t.me/lido_drop"),
    ("LDO-drop.xyz", "You are eligible: claim your prize"),
    ("Voucher", "\U0001f381 $5000 voucher at 5k-voucher.top"),
    ("USD\u0421", "USD Coin"),  # Cyrillic C
    ("\u0405TETH", "Staked"),  # Cyrillic S
    ("U\u0405DT", "Tether USD"),
    ("\uff35\uff33\uff24\uff23", "fullwidth"),
    ("\U0001d414\U0001d412\U0001d403\U0001d402", "mathematical bold"),
    ("U\u0336S\u0336DC", "crossed out"),
    ("\ua4f4\ua4e2\ua4d3\ua4da", "Lisu"),
    ("\u13a0ai", "\u0415thereum Cl\u0430ssic"),
    ("lINCH", "small L for a one"),
    ("usdc\u200b", "zero width space"),
    ("\u202eCDSU", "right to left"),
    ("USDC", "an unlisted one, sent by a stranger"),
    ("ETH", "Ether"),
    ("gift.cash", "gift.cash"),
)


def facts(symbol: str, name: str, **more: Any) -> TokenFacts:
    return replace(TokenFacts(THERE, symbol, name, is_listed=False, is_priced=False, arrival=SENT), **more)


@pytest.mark.parametrize(("symbol", "name"), HOSTILE)
def test_hostile_names_that_a_stranger_sends_are_spam(symbol: str, name: str) -> None:
    judgement = judge(facts(symbol, name), ORIGINALS)
    assert judgement is not None
    assert judgement.score >= SPAM_FROM
    assert {"UNSOLICITED", "NO_PRICE"} < set(judgement.reasons)
    assert list(judgement.reasons) == sorted(judgement.reasons, key=REASONS.index)


@pytest.mark.parametrize(("symbol", "name"), HOSTILE)
def test_what_is_on_the_list_is_never_spam(symbol: str, name: str) -> None:
    assert judge(facts(symbol, name, is_listed=True, arrival=DROPPED), ORIGINALS) is None


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("UNI-V2", "Uniswap V2"),
        ("yvDAI", "DAI yVault"),
        ("aEthUSDC", "Aave Ethereum USDC"),
        ("s\u039eTH", "Synth Ether"),
        ("crvFRAX", "Curve.fi FRAX/USDC"),
        ("BAI", "not Balancer"),
        ("sdCRV-gauge", "Stake DAO rewards"),
        ("", ""),
    ],
)
def test_an_unknown_token_with_an_honest_name_is_not_spam_because_somebody_sent_it(symbol: str, name: str) -> None:
    assert (
        judge(facts(symbol, name, arrival=TokenArrival(transfer_count=2, is_own_action=True, recipients=0)), ORIGINALS)
        is None
    )
    assert judge(facts(symbol, name, arrival=None), ORIGINALS) is None
    if "reward" not in name:
        assert judge(facts(symbol, name), ORIGINALS) is None


def test_a_token_that_many_are_sent_at_once_is_spam_without_a_price_and_is_not_with_one() -> None:
    judgement = judge(facts("MOON", "Moon", arrival=DROPPED), ORIGINALS)
    assert judgement == Spam(65, ("MASS_TRANSFER", "UNSOLICITED", "NO_PRICE"))
    assert judge(facts("MOON", "Moon", arrival=DROPPED, is_priced=True), ORIGINALS) is None
    assert judge(facts("MOON", "Moon", arrival=replace(DROPPED, recipients=MASS_RECIPIENTS - 1)), ORIGINALS) is None


def test_a_balance_that_no_transfer_explains_counts_against_a_token() -> None:
    judgement = judge(
        facts("MOON", "Moon", arrival=TokenArrival(transfer_count=0, is_own_action=False, recipients=0)), ORIGINALS
    )
    assert judgement is not None
    assert "NO_TRANSFER" in judgement.reasons


@pytest.mark.parametrize(
    ("net", "balance", "is_forged"),
    [(-1, 5, True), (-1, 0, True), (5, 0, True), (5, 5, False), (5, 1, False), (0, 0, False), (5, None, False)],
)
def test_transfers_that_the_balance_contradicts_are_forged(net: int, balance: int | None, is_forged: bool) -> None:
    judged = judge(facts("USDC", "USD Coin", balance=balance, arrival=replace(SENT, net=net)), ORIGINALS)
    assert judged is not None
    assert ("FORGED" in judged.reasons) is is_forged


@pytest.mark.parametrize("hidden", ["\u0336", "\u200b", "\x07"], ids=["mark", "format", "control"])
def test_a_symbol_with_invisible_characters_looks_like_the_one_without(hidden: str) -> None:
    judged = judge(facts(f"US{hidden}DC", ""), ORIGINALS)
    assert judged is not None
    assert "LOOKALIKE" in judged.reasons


def test_what_the_holder_did_with_a_token_speaks_for_it_but_does_not_clear_a_trap() -> None:
    own_arrival = TokenArrival(transfer_count=2, is_own_action=True, recipients=MASS_RECIPIENTS)
    assert judge(facts("USDC", "bought elsewhere", arrival=own_arrival), ORIGINALS) is None
    assert judge(facts("USD\u0421", "USD Coin", arrival=own_arrival), KnownTokens.of([])) is None
    assert judge(facts("MOON", "Moon", arrival=own_arrival), ORIGINALS) is None
    assert (
        judge(facts("USDC-GIFT.COM", "Visit https://usdc-gift.com to claim", arrival=own_arrival), ORIGINALS)
        is not None
    )


@pytest.mark.parametrize("reason", REASONS)
def test_no_reason_is_enough_by_itself(reason: Any) -> None:
    assert WEIGHTS[reason] < SPAM_FROM
    assert WEIGHTS.keys() == set(REASONS)


@given(st.text(max_size=40), st.text(max_size=120), st.booleans())
def test_any_text_is_judged_the_same_twice_and_never_by_one_reason(symbol: str, name: str, is_own: bool) -> None:
    each = facts(symbol, name, arrival=TokenArrival(1, is_own, 0))
    judgement = judge(each, ORIGINALS)
    assert judgement == judge(each, ORIGINALS)
    assert judgement is None or (SPAM_FROM <= judgement.score <= 100 and len(judgement.reasons) > 1)


# --- real tokens -----------------------------------------------------------------------------------------------------


def real() -> list[tuple[int, Asset, str, str]]:
    """Chain, asset, symbol and name of real tokens."""
    with gzip.open(DATA / "evm" / "token_metadata.jsonl.gz") as lines:
        list_rows = [json.loads(line) for line in lines]
    tokens = [
        (each["chain_id"], token(each), each["expected"]["symbol"] or "", each["expected"]["name"] or "")
        for each in list_rows
        if each.get("expected")
    ]
    for list_ in ("tokens_uniswap_default.json.gz", "tokens_aave.json.gz"):
        with gzip.open(DATA / "registry" / list_) as rows:
            read = json.load(rows)
        each_of = read if isinstance(read, list) else read["tokens"]
        for row in each_of:
            asset = Asset(f"eip155:{row['chainId']}", "erc20", row["address"].lower())
            tokens.append((row["chainId"], asset, row["symbol"], row["name"]))
    return tokens


def token(row: Mapping[str, Any]) -> Asset:
    return Asset(f"eip155:{row['chain_id']}", "erc20", row["token"])


@pytest.mark.skipif(not DATA.is_dir(), reason="the recorded tokens are not here")
def test_no_real_token_is_spam_listed_or_held_by_its_own_deed_and_none_by_its_name() -> None:
    tokens = real()
    assert len(tokens) > 1_500
    originals = KnownTokens.of((asset, symbol, name) for _, asset, symbol, name in tokens)
    no_known_tokens = KnownTokens.of([])
    chains = {each[0] for each in tokens}
    by_chain = {chain: KnownTokens.of(each[1:] for each in tokens if each[0] == chain) for chain in chains}
    for chain, asset, symbol, name in tokens:
        each = TokenFacts(asset, symbol, name, is_listed=True, is_priced=False, arrival=DROPPED)
        assert judge(each, originals) is None
        unlisted = replace(each, is_listed=False, arrival=TokenArrival(1, True, 0))
        assert judge(unlisted, originals) is None, (symbol, name)
        assert judge(replace(unlisted, arrival=None), by_chain[chain]) is None, (symbol, name)
        assert judge(replace(unlisted, arrival=SENT), no_known_tokens) is None, (symbol, name)


# --- in answers ------------------------------------------------------------------------------------------------------

FAKE = "0x" + "fa" * 20
DOLLAR = erc20().asset
VERDICT = Spam(95, ("LOOKALIKE", "NO_PRICE"))


REAL, LIE = erc20(), erc20(FAKE, 6, "USD\u0421")


def spam_snapshot() -> Snapshot:
    """Five dollars, and nine million that are none."""
    holdings = (Holding(ALICE, REAL, 5_000_000), Holding(ALICE, LIE, 9_000_000_000))
    prices = (price(REAL, "1"), price(LIE, "1000"))
    return replace(snapshot(*holdings, prices=prices), spam={(ALICE, LIE.asset): VERDICT})


def document(spam: bool = False) -> Portfolio:
    return portfolio(ALICE, valuate([spam_snapshot()]), CHAINS, updated_ms=1, options=Options(spam=spam))


def assets(portfolio: Portfolio) -> list[tuple[str, str, object]]:
    wallet = portfolio.asset_by_protocols["wallet"].chains["ethereum"].protocol_positions["WALLET"]
    return [(asset.contract, asset.value, asset.spam) for asset in wallet.assets]


def test_spam_is_in_sight_with_its_reasons_and_in_no_sum() -> None:
    spam_document = document()
    expected = SpamDocument(95, ("LOOKALIKE", "NO_PRICE"))
    assert assets(spam_document) == [(USDC, "5", UNSET), (FAKE, "9000000", expected)]
    assert (spam_document.networth, spam_document.chains["ethereum"].value, spam_document.spam_assets) == ("5", "5", 1)
    wallet = wallet_only(spam_document)
    assert (wallet.networth, wallet.spam_assets) == ("5", 1)
    assert nav(valuate([spam_snapshot()])).nav == 5
    (row,) = overview([spam_document])
    assert (row.symbol, row.value, row.percentage) == ("USDC", "5", "100")


def test_spam_is_in_the_sums_of_who_asks_for_it_and_still_flagged() -> None:
    spam_document = document(spam=True)
    assert (spam_document.networth, spam_document.spam_assets) == ("9000005", 1)
    assert assets(spam_document) == assets(document())


def test_spam_of_one_member_stays_apart_in_the_portfolio_of_a_group() -> None:
    unflagged = replace(spam_snapshot(), spam={})
    both = merge([document(), portfolio(ALICE, valuate([unflagged]), CHAINS, updated_ms=1)], "virtual:x")
    assert (both.networth, both.spam_assets) == ("9000010", 1)
    assert sorted(value_ for _, value_, _ in assets(both)) == ["10", "9000000", "9000000"]
    doubled = merge([document(), document()], "virtual:x")
    assert (doubled.networth, doubled.spam_assets) == ("10", 1)
    assert assets(doubled)[-1] == (FAKE, "18000000", SpamDocument(95, ("LOOKALIKE", "NO_PRICE")))


@pytest.mark.parametrize(
    ("spam", "replaces"), [((ALICE, DOLLAR), ()), ((ALICE, THERE), (THERE,))], ids=["part", "share"]
)
def test_a_position_of_spam_is_in_sight_and_in_no_sum_unless_that_is_asked_for(
    spam: tuple[str, Asset], replaces: tuple[Asset, ...]
) -> None:
    part = Holding(ALICE, erc20(), 5_000_000, "vaults", "VAULT")
    position = Position(ALICE, "vaults", "VAULT", "USDC", (part,), rewards=(part,), replaces=replaces)
    wallet_snapshot = snapshot(prices=(price(part.token, "1"),))
    wallet_snapshot = replace(wallet_snapshot, positions=(position,), spam={spam: Spam(90, ("LINK",))})
    valued = valuate([wallet_snapshot])
    assert [each.is_counted for each in valued.all_holdings] == [False, False]
    assert [each.value_usd for each in (valued, valued.with_spam())] == [0, 10]
    assert valuate([replace(wallet_snapshot, spam={})]).value_usd == 10
