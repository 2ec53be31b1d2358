"""Kamino's lending: bytes by the interface in Kamino's SDK, and every amount by its own arithmetic."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Final

import pytest
from solders.keypair import Keypair

from chainfolio.adapters.solana import positions
from chainfolio.adapters.solana.chain import SolanaChain
from chainfolio.adapters.solana.kamino import YEAR_S
from chainfolio.adapters.solana.positions import SHARED, Claim
from chainfolio.adapters.solana.protocols.kamino_lending import FAMILY, NOT_COVERED
from chainfolio.localchain.solana.node import SolanaNode
from chainfolio.plans import run_offline
from chainfolio.protocols import DecodedPosition, InstalledProtocol, InstalledProtocols
from tests.solana.changes import Change, debt_of, itself, key, sized, spliced, strange, taken_over, without
from tests.solana.fakes import WALLET
from tests.solana.kamino import BASIS_AT, KLEND, ONE, SLOT, Obligation, Reserve, sdk_amounts, write
from tests.solana.ledger import Ledger
from tests.solana.ledger_node import LedgerNode, read, read_of

pytestmark = pytest.mark.xdist_group("kamino")  # one process loads the SDK of the vendor
NOW_S: Final = 1_760_000_000
ELAPSED: Final = (0, 1, 2, 3, 4, 5, 600)  # slots since reserves were counted
CONTRACTS: Final = {"lending": (KLEND,)}
INSTALLED: Final = InstalledProtocols((InstalledProtocol("kamino", FAMILY, CONTRACTS, {}),))


def decoded(ledger: Ledger, stored: Obligation, slot: int = SLOT, market: str = "") -> list[DecodedPosition]:
    """Decode an obligation offline; `market` is the market that the protocol's file names."""
    claim = Claim(WALLET, stored.address, KLEND, NOW_S, 1, slot, 700, contracts={**CONTRACTS, "market": (market,)})
    return list(run_offline(FAMILY.position(claim), ledger))


def sides(position: DecodedPosition, stored: Obligation) -> tuple[dict[str, int], dict[str, int]]:
    """Return the supplied and the borrowed amounts by reserve."""
    at = {each.mint: address for address, each in stored.reserves.items()}
    return {at[each.token]: each.raw for each in position.supplied}, {
        at[each.token]: each.raw for each in position.borrowed
    }


def drawn(chance: random.Random, limit: int) -> Obligation:
    """Return a random obligation: up to eight deposits and five debts, each up to `limit`."""
    market = key()

    def reserve() -> Reserve:
        lent, available = chance.randrange(limit * ONE), chance.randrange(1, limit)
        curve = sorted(chance.sample(range(1, 10_000), chance.randint(0, 9)))
        rates = sorted(chance.randrange(30_000) for _ in range(len(curve) + 2))
        points = list(zip((0, *curve, 10_000), rates, strict=True))
        fees = tuple(chance.randrange(ONE * available // 9 + 1) for _ in range(3))
        return Reserve(
            key(),
            market,
            key(),
            key(),
            available,
            lent,
            chance.randrange(ONE, 2**130),
            (fees[0], fees[1], fees[2]),
            chance.randrange(available // 9 + 1, 2 * limit),
            host_bps=chance.choice((0, 100)),
            taken_percent=chance.choice((0, 15, 100)),
            curve=(*points, *(points[-1],) * (11 - len(points))),
        )

    supplying, lending = ([reserve() for _ in range(chance.randint(0, count))] for count in (8, 5))
    deposits = tuple((each, chance.randrange(1, each.shares + 1)) for each in supplying)
    debts = tuple(
        (each, chance.randrange(1, each.lent_sf + 2), chance.randrange(ONE, each.growth + 1)) for each in lending
    )
    return Obligation(key(), market, WALLET, deposits, debts)


def test_what_was_deposited_and_is_owed_is_what_kaminos_own_arithmetic_gives_to_the_unit() -> None:
    chance = random.Random(1)
    cases = [(drawn(chance, chance.choice((10**6, 10**9, 10**12))), SLOT + slots) for slots in ELAPSED * 6]
    ledger = Ledger()
    write(ledger, *(each for each, _ in cases))
    for (each, slot), expected in zip(cases, sdk_amounts(ledger, *cases), strict=True):
        positions = decoded(ledger, each, slot)
        assert [sides(position, each) for position in positions] == [expected] * any(expected)
        assert all(
            (position.position_type, position.pool, position.replaces) == ("LENDING", each.market, ())
            for position in positions
        )


def test_interest_of_months_is_as_far_from_the_sdk_as_what_the_program_cuts_off() -> None:
    chance = random.Random(99)
    obligations, elapsed = [drawn(chance, 10**15) for _ in range(6)], 20_000_000
    ledger = Ledger()
    write(ledger, *obligations)
    for each, expected in zip(
        obligations, sdk_amounts(ledger, *((obligation, SLOT + elapsed) for obligation in obligations)), strict=True
    ):
        [position] = decoded(ledger, each, SLOT + elapsed)
        for computed, reference in zip(sides(position, each), expected, strict=True):
            assert computed.keys() == reference.keys()
            for at, raw in computed.items():
                # The rate of a slot has sixty bits behind the point: what is cut off of it counts for each slot.
                # The SDK's rate, a number of a computer's sixteen digits, is as good.
                assert abs(reference[at] - raw) <= 8 * elapsed * reference[at] // ONE + 1


def test_interest_is_a_third_of_a_series_in_whole_numbers_as_the_program_cuts_them_off() -> None:
    flat = tuple((used, 1_000) for used in (0, *(10_000,) * 10))
    reserve = Reserve(key(), key(), key(), key(), 0, 10**12 * ONE, ONE, shares=10**12, taken_percent=0, curve=flat)
    stored = Obligation(key(), reserve.market, WALLET, ((reserve, 10**12),), ((reserve, 10**12 * ONE, ONE),))
    ledger = Ledger()
    write(ledger, stored)
    base = 1_000 * ONE // 10_000 // (2 * YEAR_S)
    for elapsed in (5, 1_000, 2 * YEAR_S):
        first = base * elapsed
        second = (first * base >> 60) * (elapsed - 1) // 2
        growth = ONE + first + second + (second * base >> 60) * (elapsed - 2) // 3
        [position] = decoded(ledger, stored, SLOT + elapsed)
        lent = 10**12 * ONE * growth >> 60
        assert (position.supplied[0].raw, position.borrowed[0].raw) == (lent >> 60, -(-lent // ONE))


def pair(**overrides: Any) -> Obligation:
    """An obligation with one deposit and one debt."""
    market = key()
    collateral, loan = (Reserve(key(), market, key(), key(), **overrides) for _ in range(2))
    return Obligation(key(), market, WALLET, ((collateral, 10**9),), ((loan, 10**6 * ONE, ONE),))


def stored(*obligations: Obligation, **overrides: Any) -> Ledger:
    """A ledger with obligations."""
    ledger = Ledger()
    write(ledger, *obligations, **overrides)
    return ledger


@pytest.fixture(scope="module")
def first() -> Obligation:
    """One that nothing is wrong with."""
    return pair()


@pytest.fixture(scope="module")
def first_ledger(first: Obligation) -> Ledger:
    """Return a ledger with the accounts of the first obligation."""
    return stored(first)


def test_rates_of_seconds_count_seconds_and_where_no_time_was_written_none() -> None:
    by_time, by_slot, never = pair(by_time=1, time_s=NOW_S - 5_000), pair(), pair(by_time=1)
    ledger = stored(by_time, by_slot, never)
    [position], [other_position] = (
        decoded(ledger, each, SLOT + slots) for each, slots in ((by_time, 77), (by_slot, 10_000))
    )
    assert [each.raw for each in (*position.supplied, *position.borrowed)] == [
        each.raw for each in (*other_position.supplied, *other_position.borrowed)
    ]
    [position], [fresh] = decoded(ledger, never, SLOT + 10**6), decoded(ledger, by_slot)
    assert position.supplied[0].raw == fresh.supplied[0].raw


@pytest.mark.parametrize(
    ("each_slot", "remaining", "bps", "reward"),
    [
        (5, 10**9, 10_000, 5_000),
        (5, 777, 10_000, 777),
        (0, 10**9, 10_000, 0),
        (5, 10**9, 0, 0),
        (10**9, 10**12, 20, 126_839),
    ],
)
def test_rewards_of_a_reserve_are_given_to_all_shares_up_to_what_its_market_allows(
    each_slot: int, remaining: int, bps: int, reward: int
) -> None:
    flat = ((0, 0), *((10_000, 0),) * 10)
    reserve = Reserve(key(), key(), key(), key(), curve=flat, shares=4 * 10**12, rewards=(each_slot, remaining))
    obligation = Obligation(key(), reserve.market, WALLET, ((reserve, reserve.shares),))
    [position] = decoded(stored(obligation, rewards_bps=bps), obligation, SLOT + 1_000)
    assert position.supplied[0].raw == 4 * 10**12 + reward


def test_an_obligation_that_is_gone_or_empty_is_nothing(first: Obligation) -> None:
    empty = replace(first, deposits=(), debts=())
    assert decoded(stored(empty), empty) == []
    assert decoded(Ledger(), first) == []


def test_debt_alone_is_shown_and_counts() -> None:
    obligation = replace(pair(), deposits=())
    [position] = decoded(stored(obligation), obligation)
    assert (position.supplied, position.borrowed[0].raw, position.unverified) == ((), 10**6, "")


def test_in_a_market_that_no_file_names_what_could_not_be_taken_out_now_has_no_value(
    first: Obligation, first_ledger: Ledger
) -> None:
    assert decoded(first_ledger, first)[0].unverified == ""
    drained = Ledger(dict(first_ledger.accounts), dict(first_ledger.lamports))
    reserve = first.deposits[0][0]
    drained.put_vault(reserve.vault, reserve.mint, key(), 10**6)
    assert decoded(drained, first)[0].unverified == NOT_COVERED
    assert decoded(drained, first, market=first.market)[0].unverified == ""


def test_what_several_obligations_have_in_a_reserve_has_to_lie_in_its_vault_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    obligation = replace(pair(), debts=())
    sibling, stranger = replace(obligation, address=key()), replace(obligation, address=key(), owner=key())
    ledger, reserve = stored(obligation, sibling, stranger), obligation.deposits[0][0]
    total = (
        decoded(ledger, obligation)[0].supplied[0].raw + decoded(ledger, sibling)[0].supplied[0].raw + 1
    )  # both in one
    for raw, unverified in ((total, ""), (total - 1, NOT_COVERED)):
        ledger.put_vault(reserve.vault, reserve.mint, key(), raw)
        assert [decoded(ledger, each)[0].unverified for each in (obligation, sibling)] == [unverified] * 2
    liquidity = 4 * 10**12  # what is there and what is lent
    monkeypatch.setattr(positions, "MAX_SIBLINGS", 1)
    for raw, unverified in ((liquidity, ""), (liquidity - 1, NOT_COVERED)):
        ledger.put_vault(reserve.vault, reserve.mint, key(), raw)
        assert decoded(ledger, obligation)[0].unverified == unverified


async def test_of_a_market_that_no_file_names_the_answer_says_that_others_may_claim_the_same() -> None:
    obligations = (replace(pair(slot=1), debts=()), replace(pair(slot=1), owner=key()))
    apart = await read(LedgerNode(stored(*obligations), {WALLET: []}), WALLET, installed=INSTALLED)
    both = await read(
        LedgerNode(stored(*obligations), {WALLET: [], obligations[1].owner: []}),
        WALLET,
        obligations[1].owner,
        installed=INSTALLED,
    )
    assert {issue.reason for issue in apart[WALLET].issues} == {f"of {WALLET}: {SHARED}"}
    assert not any(issue.makes_partial for issue in apart[WALLET].issues)
    for each in (apart, both):  # an account's amounts do not depend on the other accounts of the read
        assert [(position.pool, position.unverified) for position in each[WALLET].positions] == [
            (obligations[0].market, "")
        ]
        assert [issue.reason for issue in each[WALLET].issues] == [f"of {WALLET}: {SHARED}"]
    [row] = INSTALLED.rows
    with_market = InstalledProtocols((replace(row, contracts={**row.contracts, "market": (obligations[0].market,)}),))
    relied = await read(LedgerNode(stored(*obligations), {WALLET: []}), WALLET, installed=with_market)
    assert (len(relied[WALLET].positions), relied[WALLET].issues) == (1, ())


async def test_obligations_in_a_market_that_no_file_names_are_added_without_another_search() -> None:
    obligations = (pair(slot=1), pair(slot=1))
    node = LedgerNode(stored(*obligations), {WALLET: []})
    node.moves = 0
    states = await read(node, WALLET, installed=INSTALLED)
    assert [each.unverified for each in states[WALLET].positions] == ["", ""]
    assert node.asked.count("getProgramAccounts") == 2 * 2  # of stake and of obligations, and once more


def lent(obligation: Obligation) -> str:
    """Return the address of the deposit's reserve."""
    return obligation.deposits[0][0].address


def market(obligation: Obligation) -> str:
    """Return the address of the market."""
    return obligation.market


def vault_of(obligation: Obligation) -> str:
    """Return the address of the vault of the deposit's reserve."""
    return obligation.deposits[0][0].vault


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (sized(-1, itself), "3343 bytes"),
        (sized(1, itself), "3345 bytes"),
        (spliced(0, b"\0", itself), "another kind"),
        (spliced(64, bytes(32), itself), "an obligation of 1111"),
        (sized(-1, lent), "8623 bytes"),
        (sized(8, debt_of), "8632 bytes"),
        (spliced(0, b"\0", lent), "another kind"),
        (without(lent), "there is no account"),
        (taken_over(lent), "it belongs to"),
        (without(market), "there is no account"),
        (sized(1, market), "4665 bytes"),
        (strange(vault_of), "another token"),
        (spliced(32, bytes(32), lent), "a reserve of another market"),
        (spliced(32, bytes(32), debt_of), "a reserve of another market"),
        (spliced(2_592, bytes(8), lent), "issued less"),
        (spliced(2_592, b"\1" + bytes(7), lent), "issued less"),
        (spliced(16, b"\xff" * 8, debt_of), "a slot that is to come"),
        (spliced(BASIS_AT, b"\2", lent), "not known"),
        (spliced(344, b"\xff" * 16, lent), "more fees than it has"),
        (spliced(232, b"\xff" * 16, lent), "reserve"),
        (spliced(296, bytes(32), debt_of), "a rate that its reserve has never had"),
        (spliced(1_240, bytes(32), itself), "a rate that its reserve has never had"),
        (spliced(1_240, b"\xff" * 32, itself), "a rate that its reserve has never had"),
        (spliced(224, bytes(24), lent), "nothing left"),
        (spliced(232, (2**128 - 2**101).to_bytes(16, "little"), lent), "cannot have counted"),
        (spliced(4_920, bytes(88), lent), "no rate"),
        (spliced(4_940, bytes(4), lent), "no rate"),
    ],
)
def test_what_an_obligation_cannot_be_is_said_and_never_zero(
    first: Obligation, first_ledger: Ledger, change: Change, reason: str
) -> None:
    ledger = Ledger(dict(first_ledger.accounts), dict(first_ledger.lamports))
    change(ledger, first)
    with pytest.raises(Exception, match=reason):
        decoded(ledger, first, SLOT + 9)


async def test_obligations_are_found_by_their_owner_and_owe_what_they_borrowed() -> None:
    obligations = (pair(slot=1), pair(slot=1), replace(pair(slot=1), owner=key()))
    states = await read(LedgerNode(stored(*obligations), {WALLET: []}), WALLET, installed=INSTALLED)
    held_positions = states[WALLET].positions
    assert sorted(each.pool for each in held_positions) == sorted(each.market for each in obligations[:2])
    assert all(each.protocol == "kamino" and sum(each.borrowed.values()) >= 10**6 for each in held_positions)
    assert not any(each.makes_partial for each in states[WALLET].issues)


async def test_reserves_that_are_counted_anew_in_every_slot_are_no_obstacle() -> None:
    obligation = pair(slot=1)
    node = LedgerNode(stored(obligation), {WALLET: []})
    real = node.answers["getMultipleAccounts"]

    def used(params: Any) -> Any:
        for at in obligation.reserves:
            owner, content = node.ledger.accounts[at]
            node.ledger.put(at, owner, content[:16] + node.slot.to_bytes(8, "little") + content[24:])
        return real(params)

    node.answers = {**node.answers, "getMultipleAccounts": used}
    states = await read(node, WALLET, installed=INSTALLED)
    assert [each.pool for each in states[WALLET].positions] == [obligation.market]
    assert not any(each.makes_partial for each in states[WALLET].issues)


@pytest.mark.node
async def test_a_real_node_has_obligations_at_the_slot_of_the_snapshot(node: SolanaNode, chain: SolanaChain) -> None:
    owner = str(Keypair().pubkey())
    obligation, ledger = replace(pair(slot=1), owner=owner), Ledger()
    write(ledger, obligation)
    state = await read_of(node, chain, ledger, owner, INSTALLED)
    assert state.block is not None
    [(supplied, debts)] = sdk_amounts(ledger, (obligation, state.block.height))
    [position] = state.positions
    assert [*position.supplied.values(), *position.borrowed.values()] == [*supplied.values(), *debts.values()]
