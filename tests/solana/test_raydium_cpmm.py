"""Shares of Raydium's constant-product pools: bytes and amounts as its SDK encodes and computes them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from chainfolio.adapters.solana import positions
from chainfolio.adapters.solana.account_reads import derived
from chainfolio.adapters.solana.layouts import TOKEN
from chainfolio.adapters.solana.positions import Claim, Unreadable
from chainfolio.adapters.solana.protocols.raydium_cpmm import FAMILY
from chainfolio.plans import Unknown, run_offline
from chainfolio.protocols import DecodedPosition, InstalledProtocol, InstalledProtocols
from tests.solana.changes import Change, itself, key, sized, strange, without
from tests.solana.fakes import WALLET
from tests.solana.ledger import Ledger, mint
from tests.solana.ledger_node import LedgerNode, read
from tests.solana.raydium import CPMM, Reserves
from tests.solana.sdk import Small, run_job, run_jobs

INSTALLED: Final = InstalledProtocols((InstalledProtocol("raydium", FAMILY, {"cpmm": (CPMM,)}, {}),))
SHARES: Final = 10**15


def drawn(chance: random.Random) -> Reserves:
    """Any pool."""
    fees = tuple((chance.randrange(2**40), chance.randrange(2**40)) for _ in range(3))
    return Reserves((key(), key()), (key(), key()), SHARES, (fees[0], fees[1], fees[2]))


def stored(pool: Reserves, vaults: tuple[int, int] = (2**60, 2**63), **other_mint: Any) -> Ledger:
    """A pool with its mint and its vaults."""
    ledger = Ledger()
    ledger.put(pool.address, CPMM, run_job("raydium", **pool.job(**other_mint)))
    ledger.put(pool.share, TOKEN, mint(SHARES, 9, pool.authority))
    for at, token, raw in zip(pool.vaults, pool.mints, vaults, strict=True):
        ledger.put_vault(at, token, pool.authority, raw)
    return ledger


def decoded(ledger: Any, share: str, raw: int) -> Sequence[DecodedPosition]:
    """Decode an amount of shares offline."""
    positions: Sequence[DecodedPosition] = run_offline(FAMILY.position(Claim(WALLET, share, CPMM, 0, raw)), ledger)
    return positions


@pytest.mark.parametrize("seed", range(8))
def test_a_share_is_its_part_without_the_fees_of_others_as_raydiums_sdk_has_it(seed: int) -> None:
    chance = random.Random(seed)
    pool, raw = drawn(chance), chance.choice((1, SHARES, chance.randrange(SHARES)))
    vaults = (chance.randrange(2**43, 2**64), chance.randrange(2**43, 2**64))
    [position] = decoded(stored(pool, vaults), pool.share, raw)
    expected = run_job("raydium_withdrawn", pool=pool.facade(), vaults=list(vaults), raw=raw)
    assert [(each.token, each.raw) for each in position.supplied] == list(zip(pool.mints, expected, strict=True))
    assert (position.position_type, position.pool, position.replaces) == ("LIQUIDITYPOOL", pool.address, (pool.share,))


def test_addresses_are_where_raydiums_sdk_says() -> None:
    pool = drawn(random.Random(1))
    addresses = run_jobs(
        [
            ("raydium_address", {"of": "getPdaLpMint", "arguments": [CPMM, pool.address]}),
            ("raydium_address", {"of": "getPdaPoolAuthority", "arguments": [CPMM]}),
            ("raydium_address", {"of": "getCpmmPdaAmmConfigId", "arguments": [CPMM, Small(0)]}),
            ("raydium_address", {"of": "getCpmmPdaPoolId", "arguments": [CPMM, pool.config, *pool.mints]}),
        ]
    )
    assert addresses == [pool.share, pool.authority, pool.config, pool.address]


def test_other_tokens_are_no_shares_and_no_pool_is_looked_for() -> None:
    ledger = Ledger()
    other_mint = key()
    ledger.put(other_mint, TOKEN, mint(5, 9, key()))

    def nothing_but_mints(read: Any) -> Any:
        assert read.layout == "mint"
        return ledger(read)

    assert decoded(nothing_but_mints, other_mint, 5) == []
    assert decoded(nothing_but_mints, key(), 5) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without(itself), "was not found"),
        (sized(-1), "636 bytes"),
        (sized(1), "638 bytes"),
        (without(lambda pool: pool.vaults[1]), "there is no account"),
        (strange(lambda pool: pool.vaults[0]), "another token"),
    ],
)
def test_what_a_pool_cannot_be_is_said_and_never_zero(change: Change, reason: str) -> None:
    pool = drawn(random.Random(5))
    ledger = stored(pool)
    change(ledger, pool)
    with pytest.raises(Exception, match=reason):
        decoded(ledger, pool.share, 5)


@pytest.mark.parametrize(
    "lie",
    [{"vaults": (5, 2**63)}, {"lpAmount": 4}, {"lpAmount": 0}, {"lpAmount": SHARES - 1}, {"fundFeesMintB": 2**64 - 1}],
)
def test_a_pool_that_owes_more_than_it_has_or_issued_less_gives_nothing(lie: Mapping[str, Any]) -> None:
    pool = drawn(random.Random(5))
    with pytest.raises(Exception, match="issued less than the account has, or owes more"):
        decoded(stored(pool, **lie), pool.share, 5)


def test_a_pool_that_names_the_mint_of_another_is_not_believed() -> None:
    pool = drawn(random.Random(5))
    ledger = stored(pool)
    ledger.put(key(), CPMM, ledger.accounts[pool.address][1])
    [position] = decoded(ledger, pool.share, 5)
    assert position.pool == pool.address
    poolless = Ledger({**ledger.accounts})
    del poolless.accounts[pool.address]
    with pytest.raises(Exception, match="was not found"):
        decoded(poolless, pool.share, 5)


def test_an_endpoint_that_does_not_look_for_pools_leaves_a_share_unknown() -> None:
    pool = drawn(random.Random(5))
    ledger = stored(pool)
    assert derived(CPMM, (b"pool_lp_mint", pool.address)) == pool.share
    with pytest.raises(Exception, match="no such lists"):
        decoded(lambda asked: ledger(asked) if hasattr(asked, "pick") else Unknown("no such lists"), pool.share, 5)


async def test_a_wallet_with_a_share_has_a_position_in_place_of_the_token() -> None:
    pool = drawn(random.Random(6))
    node = LedgerNode(stored(pool), {WALLET: {pool.share: (SHARES // 3, 9), key(): (5, 6)}})
    states = await read(node, WALLET, installed=INSTALLED)
    [position] = states[WALLET].positions
    assert [asset.reference for asset in position.replaces] == [pool.share]
    assert sorted(asset.reference for asset in position.supplied) == sorted(pool.mints)
    assert not states[WALLET].issues


async def test_of_the_pools_of_many_shares_that_were_sent_some_are_looked_for_and_the_rest_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(positions, "MAX_SEARCHES", 2)
    pools = [drawn(random.Random(seed)) for seed in range(4)]
    ledger = Ledger()
    for pool in pools:
        ledger.accounts |= stored(pool).accounts
    node = LedgerNode(ledger, {WALLET: {pool.share: (SHARES // 3, 9) for pool in pools}})
    node.moves = 0
    states = await read(node, WALLET, installed=INSTALLED)
    assert len(states[WALLET].positions) == 2
    assert [each.makes_partial for each in states[WALLET].issues] == [True, True]
    assert all("would have to be looked for" in each.reason for each in states[WALLET].issues)
    assert node.asked.count("getProgramAccounts") == 2 * (1 + 2)  # of stake and of two pools, and once more


async def test_a_wallet_whose_pools_nobody_looks_for_is_partial_and_says_so() -> None:
    pool = drawn(random.Random(6))
    node = LedgerNode(stored(pool), {WALLET: {pool.share: (5, 9)}})

    node.refuse_lists(CPMM)
    states = await read(node, WALLET, installed=INSTALLED)
    assert states[WALLET].positions == ()
    [issue] = states[WALLET].issues
    assert (issue.subject, issue.makes_partial) == (pool.share, True)


def test_a_mint_that_could_not_be_read_is_said_and_not_taken_for_another_token() -> None:
    with pytest.raises(Unreadable, match="busy"):
        decoded(lambda asked: Unknown("busy"), key(), 5)
