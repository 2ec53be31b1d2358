"""MarginFi: bytes by the interface in MarginFi's SDK, and every amount by its own arithmetic."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Final

import pytest
from solders.keypair import Keypair

from chainfolio.adapters.solana import positions
from chainfolio.adapters.solana.chain import SolanaChain
from chainfolio.adapters.solana.marginfi import YEAR_S
from chainfolio.adapters.solana.positions import SHARED, Claim
from chainfolio.adapters.solana.protocols.marginfi import FAMILY, NOT_COVERED
from chainfolio.localchain.solana.node import SolanaNode
from chainfolio.plans import run_offline
from chainfolio.protocols import DecodedPosition, InstalledProtocol, InstalledProtocols
from tests.solana.changes import Change, debt_of, itself, key, sized, spliced, strange, taken_over, without
from tests.solana.fakes import WALLET
from tests.solana.ledger import Ledger
from tests.solana.ledger_node import LedgerNode, read, read_of
from tests.solana.marginfi import ALL, NOW_S, ONE, PROGRAM, Account, Bank, sdk_amounts, write

pytestmark = pytest.mark.xdist_group("marginfi")  # one process loads the SDK of the vendor
CONTRACTS: Final = {"lending": (PROGRAM,)}
INSTALLED: Final = InstalledProtocols((InstalledProtocol("marginfi", FAMILY, CONTRACTS, {}),))
ELAPSED: Final = (0, 1, 60, 600)  # seconds since banks were counted


def decoded(ledger: Ledger, stored: Account, time_s: int = NOW_S, group: str = "") -> list[DecodedPosition]:
    """Decode an account offline; `group` is the group that the protocol's file names."""
    claim = Claim(WALLET, stored.address, PROGRAM, time_s, 1, 1, 700, contracts={**CONTRACTS, "group": (group,)})
    return list(run_offline(FAMILY.position(claim), ledger))


def sides(position: DecodedPosition, stored: Account) -> tuple[dict[str, int], dict[str, int]]:
    """Return the assets and the debts by bank."""
    at = {each.mint: address for address, each in stored.banks.items()}
    return {at[each.token]: each.raw for each in position.supplied}, {
        at[each.token]: each.raw for each in position.borrowed
    }


def drawn(chance: random.Random, limit: int) -> Account:
    """Any account: in up to sixteen banks of any kind."""
    group = key()

    def bank() -> Bank:
        assets = chance.randrange(1, limit) * ONE
        utils = sorted(chance.sample(range(1, ALL), chance.randint(0, 5)))
        rates = sorted(chance.randrange(ALL // 10) for _ in range(len(utils) + 2))
        fees = tuple(chance.choice((0, chance.randrange(ONE // 10))) for _ in range(4))
        return Bank(
            key(),
            group,
            key(),
            key(),
            (chance.randrange(ONE, 2 * ONE), chance.randrange(ONE, 2 * ONE)),
            (assets, chance.choice((0, chance.randrange(assets)))),
            fees=(fees[0], fees[1], fees[2], fees[3]),
            ends=(rates[0], rates[-1]),
            points=tuple(zip(utils, rates[1:-1], strict=True)),
        )

    banks = [bank() for _ in range(chance.randint(1, 16))]
    lending = [each for each in banks if each.shares[1] > 2 * ONE and chance.random() < 0.4]
    assets = tuple((each, chance.randrange(ONE, each.shares[0] + 2 * ONE)) for each in banks if each not in lending)
    return Account(
        key(), group, WALLET, assets, tuple((each, chance.randrange(ONE, each.shares[1])) for each in lending)
    )


def test_what_is_there_and_what_is_owed_is_what_marginfis_own_arithmetic_gives_to_the_unit() -> None:
    chance = random.Random(5)
    # Up to a thousand million units to the unit: a share is worth so much times 2^48, and no finer.
    cases = [(drawn(chance, chance.choice((10**6, 10**9))), NOW_S + seconds) for seconds in ELAPSED * 6]
    ledger = Ledger()
    write(ledger, *(each for each, _ in cases))
    for (each, time_s), expected in zip(cases, sdk_amounts(ledger, *cases), strict=True):
        [position] = decoded(ledger, each, time_s)
        assert sides(position, each) == expected
        assert (position.position_type, position.pool, position.replaces) == ("LENDING", each.group, ())


def test_interest_of_months_is_as_far_from_the_sdk_as_what_the_program_cuts_off() -> None:
    chance = random.Random(9)
    accounts, elapsed = [drawn(chance, 10**14) for _ in range(8)], 100 * 86_400
    ledger = Ledger()
    write(ledger, *accounts)
    for each, expected in zip(
        accounts, sdk_amounts(ledger, *((account, NOW_S + elapsed) for account in accounts)), strict=True
    ):
        [position] = decoded(ledger, each, NOW_S + elapsed)
        for computed, reference in zip(sides(position, each), expected, strict=True):
            assert computed.keys() == reference.keys()
            # What a share is worth has forty-eight bits behind the point, and so have rates, on their way of ten steps.
            assert all(abs(reference[at] - raw) <= 16 * reference[at] // ONE + 1 for at, raw in computed.items())


def pair(**overrides: Any) -> Account:
    """An account with something in one bank, and a debt in another."""
    group = key()
    asset_bank, debt_bank = (Bank(key(), group, key(), key(), **overrides) for _ in range(2))
    return Account(key(), group, WALLET, ((asset_bank, 10**9 * ONE),), ((debt_bank, 10**6 * ONE),))


def stored(*accounts: Account) -> Ledger:
    """A ledger with accounts."""
    ledger = Ledger()
    write(ledger, *accounts)
    return ledger


@pytest.fixture(scope="module")
def first() -> Account:
    """One that nothing is wrong with."""
    return pair()


@pytest.fixture(scope="module")
def first_ledger(first: Account) -> Ledger:
    """Return a ledger with the accounts of the first account's group."""
    return stored(first)


def test_what_the_program_takes_is_paid_by_who_owes_where_the_flag_of_the_group_says_so() -> None:
    # Half is lent, at 5 % a year; the program takes a fifth of that and one per cent more.
    flat = pair(shares=(10**12 * ONE, 5 * 10**11 * ONE), points=(), ends=(ALL // 200, ALL // 200))
    group, other_group = key(), key()
    taking, not_taking = (
        replace(
            flat,
            address=key(),
            group=at,
            program=(flags, ONE // 100, ONE // 5),
            assets=(),
            debts=((replace(flat.debts[0][0], address=key(), group=at), 10**6 * ONE),),
        )
        for at, flags in ((group, 1), (other_group, 0))
    )
    ledger = stored(taking, not_taking)
    [[with_fees], [without]] = (decoded(ledger, each, NOW_S + YEAR_S) for each in (taking, not_taking))
    assert (with_fees.borrowed[0].raw, without.borrowed[0].raw) == (1_070_000, 1_050_000)


def test_a_bank_of_which_nothing_is_lent_earns_nothing() -> None:
    idle = replace(pair(shares=(10**12 * ONE, 0), curve=0), debts=())
    [position] = decoded(stored(idle), idle, NOW_S + YEAR_S)
    assert position.supplied[0].raw == 10**9


def test_less_than_a_share_that_is_owed_is_no_debt() -> None:
    dust = pair()
    dust = replace(dust, debts=((dust.debts[0][0], ONE - 1),))
    [position] = decoded(stored(dust), dust)
    assert (position.borrowed, position.unverified) == ((), "")


def test_an_account_that_is_gone_or_empty_is_nothing(first: Account) -> None:
    empty = replace(first, assets=(), debts=())
    assert decoded(stored(empty), empty) == []
    assert decoded(Ledger(), first) == []


def test_in_a_group_that_no_file_names_counts_what_could_be_taken_out_now_and_no_debt(
    first: Account, first_ledger: Ledger
) -> None:
    lender = replace(first, address=key(), debts=())
    ledger = stored(lender)
    assert (decoded(ledger, lender)[0].unverified, decoded(ledger, lender)[0].remark) == ("", SHARED)
    assert decoded(ledger, lender, group=lender.group)[0].remark == ""
    bank = lender.assets[0][0]
    ledger.put_vault(bank.vault, bank.mint, key(), 10**6)
    assert (decoded(ledger, lender)[0].unverified, decoded(ledger, lender)[0].remark) == (NOT_COVERED, "")
    assert decoded(ledger, lender, group=lender.group)[0].unverified == ""
    assert decoded(first_ledger, first)[0].unverified == NOT_COVERED
    assert decoded(first_ledger, first, group=first.group)[0].unverified == ""


def test_what_several_accounts_have_in_a_bank_has_to_lie_in_its_vault_together(monkeypatch: pytest.MonkeyPatch) -> None:
    account = replace(pair(), debts=())
    sibling, stranger = replace(account, address=key()), replace(account, address=key(), owner=key())
    ledger, bank = stored(account, sibling, stranger), account.assets[0][0]
    for raw, unverified in ((2 * 10**9, ""), (2 * 10**9 - 1, NOT_COVERED)):
        ledger.put_vault(bank.vault, bank.mint, key(), raw)
        assert [decoded(ledger, each)[0].unverified for each in (account, sibling)] == [unverified] * 2
    monkeypatch.setattr(positions, "MAX_SIBLINGS", 1)
    for raw, unverified in ((10**12, ""), (10**12 - 1, NOT_COVERED)):
        ledger.put_vault(bank.vault, bank.mint, key(), raw)
        assert decoded(ledger, account)[0].unverified == unverified


def lending(account: Account) -> str:
    """Return the address of the first asset's bank."""
    return account.assets[0][0].address


def group_of(account: Account) -> str:
    """Return the address of the group."""
    return account.group


def vault_of(account: Account) -> str:
    """Return the address of the vault of the first asset's bank."""
    return account.assets[0][0].vault


def without_debt(ledger: Ledger, account: Account) -> None:
    """A vault holds another token, and nothing is owed."""
    spliced(72 + 104 + 56, bytes(16), itself)(ledger, account)
    strange(vault_of)(ledger, account)


def duplicate_bank(ledger: Ledger, account: Account) -> None:
    """Let two balances of the account name one bank."""
    balance = ledger.accounts[account.address][1][72 : 72 + 104]
    spliced(72 + 104, balance, itself)(ledger, account)


MINUS: Final = b"\xff" * 16


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (sized(-1, itself), "2311 bytes"),
        (sized(8, itself), "2320 bytes"),
        (spliced(0, b"\0", itself), "another kind"),
        (spliced(40, bytes(32), itself), "an account of 1111"),
        (sized(-1, lending), "1863 bytes"),
        (sized(8, debt_of), "1872 bytes"),
        (spliced(0, b"\0", lending), "another kind"),
        (without(lending), "there is no account"),
        (taken_over(lending), "it belongs to"),
        (without(group_of), "there is no account"),
        (sized(1, group_of), "1065 bytes"),
        (without_debt, "another token"),
        (spliced(41, bytes(32), lending), "a bank of another group"),
        (spliced(785, b"\3", lending), "another protocol"),
        (spliced(72 + 104 + 36, b"\1", itself), "a premium"),
        (spliced(72 + 40, MINUS, itself), "less than nothing"),
        (spliced(72 + 104 + 56, MINUS, itself), "less than nothing"),
        (spliced(80, MINUS, lending), "less than nothing"),
        (spliced(256, MINUS, debt_of), "less than nothing"),
        (spliced(96, bytes(16), debt_of), "less than nothing"),
        (duplicate_bank, "two places for one"),
        (spliced(72 + 40, b"\xff" * 15, itself), "more than there is in a bank"),
        (spliced(72 + 104 + 56, b"\xff" * 15, itself), "more than there is in a bank"),
        (spliced(288, b"\xff" * 7, debt_of), "a time that is to come"),
        (spliced(544, b"\0", debt_of), "a curve"),
        (spliced(516, bytes(4), lending), "no rate"),
        (spliced(80, b"\xff" * 15, lending), "cannot have counted"),
        (spliced(96, b"\xff" * 15, debt_of), "cannot have"),
    ],
)
def test_what_an_account_cannot_be_is_said_and_never_zero(
    first: Account, first_ledger: Ledger, change: Change, reason: str
) -> None:
    ledger = Ledger(dict(first_ledger.accounts), dict(first_ledger.lamports))
    change(ledger, first)
    with pytest.raises(Exception, match=reason):
        decoded(ledger, first, NOW_S + 9)


async def test_accounts_are_found_by_their_owner_and_owe_what_they_borrowed() -> None:
    accounts = (pair(time_s=1), replace(pair(time_s=1), owner=key()))
    states = await read(LedgerNode(stored(*accounts), {WALLET: []}), WALLET, installed=INSTALLED)
    [position] = states[WALLET].positions
    assert (position.protocol, position.type, position.pool) == ("marginfi", "LENDING", accounts[0].group)
    assert sum(position.borrowed.values()) >= 10**6
    assert [(each.reason, each.makes_partial) for each in states[WALLET].issues] == [
        (f"not counted for {WALLET}, since it cannot be verified: {NOT_COVERED}", False)
    ]


@pytest.mark.node
async def test_a_real_node_has_accounts_at_the_time_of_the_snapshot(node: SolanaNode, chain: SolanaChain) -> None:
    owner = str(Keypair().pubkey())
    account, ledger = replace(pair(time_s=1), owner=owner), Ledger()
    write(ledger, account)
    state = await read_of(node, chain, ledger, owner, INSTALLED)
    assert state.block is not None
    [(assets, debts)] = sdk_amounts(ledger, (account, state.block.time_us // 10**6))
    [position] = state.positions
    assert [*position.supplied.values(), *position.borrowed.values()] == [*assets.values(), *debts.values()]
