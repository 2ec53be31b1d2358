"""Shares of Raydium's first AMM program: bytes and parts by its SDK, profits by the program's rule."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from decimal import Decimal, localcontext
from typing import Any, Final

import pytest

from chainfolio.adapters.solana.layouts import TOKEN
from chainfolio.adapters.solana.positions import Claim
from chainfolio.adapters.solana.protocols.raydium_amm import FAMILY, NOT_OPEN
from chainfolio.plans import Unknown, run_offline
from chainfolio.protocols import DecodedPosition, InstalledProtocol, InstalledProtocols
from tests.solana.changes import Change, itself, key, sized, spliced, strange, without
from tests.solana.fakes import WALLET
from tests.solana.ledger import Ledger, mint
from tests.solana.ledger_node import FAILURES, LedgerNode, read
from tests.solana.raydium_amm import AMM, AUTHORITY, Pool, write
from tests.solana.sdk import run_job, run_jobs

INSTALLED: Final = InstalledProtocols((InstalledProtocol("raydium", FAMILY, {"amm": (AMM,)}, {}),))


def pool_of(raws: tuple[int, int], profit_basis: tuple[int, int], **overrides: Any) -> Pool:
    """A pool of nine and six decimals, unless others are named."""
    return Pool(key(), key(), key(), (key(), key()), (key(), key()), raws, profit_basis, **overrides)


MORE: Final = 10**15 + 10**9 - 1
PLAIN: Final = pool_of((10**15, 10**15), (10**15, 10**18))
EARNING: Final = pool_of((10**15, 10**15), (10**14, 10**17))


@pytest.fixture(scope="module")
def plain() -> bytes:
    """A pool that earned nothing since profits were taken."""
    [content] = run_jobs([PLAIN.job()])
    return bytes(content)


def decoded(ledger: Any, pool: Pool, raw: int) -> Sequence[DecodedPosition]:
    """Decode an amount of shares offline."""
    positions: Sequence[DecodedPosition] = run_offline(FAMILY.position(Claim(WALLET, pool.share, AMM, 0, raw)), ledger)
    return positions


def amounts(ledger: Any, pool: Pool, raw: int) -> list[int]:
    """Return the amounts of both tokens that the shares are worth."""
    [position] = decoded(ledger, pool, raw)
    assert [each.token for each in position.supplied] == list(pool.mints)
    return [each.raw for each in position.supplied]


@pytest.mark.parametrize("seed", range(6))
def test_a_share_is_its_part_without_what_is_the_protocols_as_raydiums_sdk_has_it(seed: int) -> None:
    chance = random.Random(seed)
    raws = (chance.randrange(2**42, 2**63), chance.randrange(2**42, 2**63))
    taken_profits = (chance.randrange(2**40), chance.randrange(2**40))
    # Nothing was earned since profits were last taken, or the pool takes none any more: then the SDK says all.
    status = chance.choice((3, 6))
    profit_basis = (
        (raws[0] - taken_profits[0], (raws[1] - taken_profits[1]) * 1_000) if status == 6 else (2**100, 2**100)
    )
    pool = pool_of(raws, profit_basis, taken_profits=taken_profits, status=status)
    raw = chance.randrange(1, pool.shares)
    expected = run_job("raydium_withdrawn", pool=pool.facade(), vaults=list(raws), raw=raw, first=True)
    ledger = write(pool)
    assert amounts(ledger, pool, raw) == expected
    [position] = decoded(ledger, pool, raw)
    assert (position.position_type, position.pool, position.replaces, position.unverified) == (
        "LIQUIDITYPOOL",
        pool.address,
        (pool.share,),
        "",
    )


def test_of_what_a_pool_earned_the_protocols_part_is_taken_first() -> None:
    # It had 100 and 400 of both tokens, and has a tenth more: 12 hundredths of 10 and of 40 are the protocol's.
    pool = pool_of((110 * 10**9, 440 * 10**6), (100 * 10**9, 400 * 10**9), shares=100)
    assert amounts(write(pool), pool, 1) == [(110 * 10**9 - 1_200_000_000) // 100, (440 * 10**6 - 4_800_000) // 100]


def test_a_price_that_moved_is_no_profit() -> None:
    pool = pool_of((200 * 10**9, 200 * 10**6), (100 * 10**9, 400 * 10**9), shares=100)
    assert amounts(write(pool), pool, 1) == [2 * 10**9, 2 * 10**6]


@pytest.mark.parametrize("seed", range(6))
def test_profits_are_what_both_tokens_grew_by_at_the_price_of_now(seed: int) -> None:
    chance = random.Random(seed)
    decimals = (chance.randrange(5, 10), chance.randrange(5, 10))
    unit = 10 ** max(decimals)
    raws = (chance.randrange(10**14, 10**17), chance.randrange(10**14, 10**17))
    now = [raw * unit // 10**each for raw, each in zip(raws, decimals, strict=True)]
    profit_basis = (now[0] * chance.randrange(10, 99) // 100, now[1] * chance.randrange(10, 99) // 100)
    pool = pool_of(raws, profit_basis, decimals=decimals, shares=10)
    computed = amounts(write(pool), pool, 1)
    with localcontext(prec=60):
        ratio = (Decimal(profit_basis[0] * profit_basis[1]) / Decimal(now[0] * now[1])).sqrt()
        for raw, each in zip(raws, computed, strict=True):
            expected = (raw - raw * (1 - ratio) * 12 / 100) / 10
            assert abs(expected - each) < 2


@pytest.mark.parametrize("profit", [0, 5])
def test_profits_too_small_to_be_paid_of_both_tokens_are_not_taken(profit: int) -> None:
    pool = pool_of((10**15 + profit, 10**9 + profit), (10**15, 10**12), shares=10**9)
    assert amounts(write(pool), pool, 10**8) == [(10**15 + profit) // 10, (10**9 + profit) // 10]


def test_a_share_too_small_to_get_of_both_tokens_gets_nothing_as_the_program_refuses_it() -> None:
    pool = pool_of((10**15, 10), (10**15, 10_000), shares=10**9)
    assert amounts(write(pool), pool, 10**6) == [0, 0]


def test_a_share_of_a_closed_pool_is_shown_without_a_value() -> None:
    pool = pool_of((10**15, 10**15), (10**15, 10**18), status=2)
    assert [each.unverified for each in decoded(write(pool), pool, 5 * 10**8)] == [NOT_OPEN]


def test_other_tokens_are_no_shares_and_no_pool_is_looked_for() -> None:
    ledger, pool = Ledger(), pool_of((5, 5), (5, 5))
    ledger.put(pool.share, TOKEN, mint(5, 9, key()))

    def nothing_but_mints(read: Any) -> Any:
        assert read.layout == "mint"
        return ledger(read)

    assert decoded(nothing_but_mints, pool, 5) == []
    assert decoded(nothing_but_mints, pool_of((5, 5), (5, 5)), 5) == []
    with pytest.raises(Exception, match="busy"):
        decoded(lambda asked: Unknown("busy"), pool, 5)


def counts(pool: Pool) -> str:
    """Return the address of the account with the amounts at the last profit."""
    return pool.counts


def doubled(ledger: Ledger, pool: Pool) -> None:
    """Two pools name the share."""
    ledger.put(key(), *ledger.accounts[pool.address])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without(itself), "was not found"),
        (doubled, "was not found"),
        (sized(-1), "was not found"),
        (sized(1), "was not found"),
        (without(counts), "there is no account"),
        (sized(-1, counts), "2207 bytes"),
        (sized(1, counts), "2209 bytes"),
        (spliced(0, bytes(32), counts), "counted for another pool"),
        (strange(lambda pool: pool.vaults[1]), "another token"),
        (spliced(1_024, b"\xff" * 32, counts), "has less than when profits were last taken"),
    ],
)
def test_what_a_pool_cannot_be_is_said_and_never_zero(plain: bytes, change: Change, reason: str) -> None:
    ledger = write(PLAIN, plain)
    change(ledger, PLAIN)
    with pytest.raises(Exception, match=reason):
        decoded(ledger, PLAIN, 5 * 10**8)


LIES: Final[Sequence[tuple[Mapping[str, int], str]]] = (
    ({"status": 0}, "no known status"),
    ({"status": 8}, "no known status"),
    ({"baseDecimal": 20}, "decimals"),
    ({"quoteDecimal": 2**64 - 1}, "decimals"),
    ({"systemDecimalValue": 0}, "no unit"),
    ({"pnlDenominator": 0}, "no unit"),
    ({"status": 1}, "book of orders"),
    ({"status": 5}, "book of orders"),
    ({"lpReserve": 0}, "issued less"),
    ({"lpReserve": 10**12 - 2}, "issued less"),
    ({"lpReserve": 5 * 10**8}, "issued less"),
    ({"quoteNeedTakePnl": 10**15}, "owes more"),
    ({"pnlNumerator": 10, "pnlDenominator": 9}, "takes more"),
    ({"baseNeedTakePnl": 10**15}, "owes more"),
    ({"quoteNeedTakePnl": 2**64 - 1}, "owes more"),
    ({"systemDecimalValue": 1}, "has less than"),
    ({"pnlNumerator": 2**64 - 1}, "takes more than its pool has"),
)


@pytest.fixture(scope="module")
def lies() -> list[bytes]:
    """Return the contents of false pools, encoded in one run."""
    return run_jobs([EARNING.job(**lie) for lie, _ in LIES])


@pytest.mark.parametrize("number", range(len(LIES)))
def test_numbers_of_a_liar_are_said_and_never_zero(lies: Sequence[bytes], number: int) -> None:
    with pytest.raises(Exception, match=LIES[number][1]):
        decoded(write(EARNING, lies[number]), EARNING, 5 * 10**8)


def test_nobody_has_all_shares_for_some_are_locked() -> None:
    pool = pool_of((10**15, 10**15), (10**15, 10**18), shares=5 * 10**8)
    ledger = write(pool)
    assert len(decoded(ledger, pool, pool.shares - 1)) == 1
    with pytest.raises(Exception, match="issued less"):
        decoded(ledger, pool, pool.shares)


# Amounts are counted in units, and cut off: nothing is left of one side, or one side of less looks like as much.
@pytest.mark.parametrize(
    ("raws", "profit_basis", "unit", "decimals"),
    [((5, 10**15), (0, 0), 1, (9, 6)), ((10**15, 5), (0, 0), 1, (6, 9)), ((10**6, 10**6), (MORE, MORE), 10**9, (0, 0))],
)
def test_a_pool_that_is_counted_in_units_too_large_pays_nobody(
    raws: tuple[int, int], profit_basis: tuple[int, int], unit: int, decimals: tuple[int, int]
) -> None:
    pool = pool_of(raws, profit_basis, decimals=decimals)
    [content] = run_jobs([pool.job(systemDecimalValue=unit)])
    with pytest.raises(Exception, match="pays nothing out"):
        decoded(write(pool, content), pool, 5 * 10**8)


def test_a_list_that_names_the_pool_of_another_share_is_not_believed(plain: bytes) -> None:
    ledger = write(PLAIN, plain)
    ledger.put(EARNING.share, TOKEN, mint(5, 9, AUTHORITY))
    with pytest.raises(Exception, match=r"^the pool that was found is of another share$"):
        decoded(lambda asked: ledger(asked) if hasattr(asked, "pick") else (PLAIN.address,), EARNING, 5)


async def test_a_wallet_with_a_share_has_a_position_in_place_of_the_token(plain: bytes) -> None:
    node = LedgerNode(write(PLAIN, plain), {WALLET: {PLAIN.share: (10**9, 9), key(): (5, 6)}})
    states = await read(node, WALLET, installed=INSTALLED)
    [position] = states[WALLET].positions
    assert [asset.reference for asset in position.replaces] == [PLAIN.share]
    assert sorted(asset.reference for asset in position.supplied) == sorted(PLAIN.mints)
    assert not states[WALLET].issues


@pytest.mark.parametrize("failure", [(-32010, "excluded from account secondary indexes"), *FAILURES])
async def test_a_wallet_whose_pools_nobody_looks_for_is_partial_and_says_so(
    plain: bytes, failure: tuple[int, str]
) -> None:
    node = LedgerNode(write(PLAIN, plain), {WALLET: {PLAIN.share: (10**9, 9)}})

    node.refuse_lists(AMM, *failure)
    states = await read(node, WALLET, installed=INSTALLED)
    assert states[WALLET].positions == ()
    assert {asset.reference: raw for asset, raw in states[WALLET].balances.items()} == {PLAIN.share: 10**9}
    [issue] = states[WALLET].issues
    assert (issue.subject, issue.makes_partial) == (PLAIN.share, True)
