"""Address poisoning: found by equal ends of addresses and by the order of their first transfers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chainfolio.addresses import EVM, TRON
from chainfolio.assets import ZERO_ADDRESS, Asset
from chainfolio.contracts import TransactionDetails
from chainfolio.portfolio.activity import Activity, Movement
from chainfolio.portfolio.poisoning import Counterparties, Interaction, poisoning
from chainfolio.portfolio.statement import record
from chainfolio.portfolio.transactions import Flag, TransactionDocument
from tests.portfolio.test_activity import CALL, ETHER, ME, SCENE, USDC

FAKE = Asset("eip155:1", "erc20", "0x" + "fa" * 20)
REAL, FALSE = "0xabcd" + "1" * 32 + "9876", "0xabcd" + "2" * 32 + "9876"
OTHER = "0xabcd" + "1" * 32 + "9877"
COIN = 10**18
CIRCLE = Counterparties.of(
    [
        Interaction(REAL, ETHER, (100, 3), 5 * COIN),
        Interaction(REAL, USDC, (90, 0), 500),
        Interaction(REAL, USDC, (80, 7), 400),
        Interaction(FALSE, ETHER, (200, 0), 1),
        Interaction(OTHER, ETHER, (10, 0), COIN),
        Interaction(ZERO_ADDRESS, ETHER, (1, 0), 1),
    ],
    EVM,
    18,
)


def move(counterparty: str, raw: int, token: Asset = ETHER, direction: Any = "in") -> Movement:
    return Movement(1, 0, direction, "native" if token.is_native else "erc20", token, raw, counterparty)


def activity_with(*movements: Movement, sender: str = FALSE, height: int = 300) -> Activity:
    details = TransactionDetails(sender, ME, None, 0, 21_000, False, CALL)
    return Activity("local", ME, height, 1_000_000, 0, "0x" + "77" * 32, movements, (), details)


def render(activity: Activity, trusted: frozenset[Asset] = frozenset({USDC})) -> TransactionDocument:
    return record(activity, replace(SCENE, counterparties={ME: CIRCLE}, trusted=trusted))


def test_how_alike_two_addresses_look_and_what_is_dust_is_the_chains_to_say() -> None:
    assert EVM.visible_part(REAL) == EVM.visible_part(FALSE) == "abcd9876" != EVM.visible_part(OTHER)
    real, false = "TNPeeaaFB7K9cmo4uQpcU32zGK8G1NYqeL", "TNPeeKKFB7K9cmo4uQpcU32zGK8G1NYqeL"
    dealt = Counterparties.of([Interaction(real, ETHER, (1, 0), 1)], TRON, 6)
    assert TRON.visible_part(real) == TRON.visible_part(false) == "NPeeYqeL"
    assert dealt.resembled(false, (2, 0)) == real
    assert [dealt.is_dust(move(false, raw), real) for raw in (99, 100)] == [True, False]


def test_whoever_was_met_first_is_the_real_one() -> None:
    assert CIRCLE.resembled(FALSE, (200, 0)) == REAL
    assert CIRCLE.resembled(REAL, (500, 0)) is None
    assert CIRCLE.resembled(FALSE, (80, 7)) is None, "at that time nobody had met the real one yet"
    assert CIRCLE.resembled(FALSE, (80, 8)) == REAL
    assert CIRCLE.resembled("0xabce" + "2" * 32 + "9876", (500, 0)) is None
    assert CIRCLE.resembled("0x0000" + "2" * 32 + "0000", (500, 0)) is None, "nobody deals with the zero address"


@pytest.mark.parametrize(
    ("movements", "type_"),
    [
        ([move(FALSE, 1)], "SPAM"),
        ([move(FALSE, COIN // 100)], "SPAM"),
        ([move(FALSE, 4, USDC)], "SPAM"),
        ([move(FALSE, 0, USDC, "out")], "SPAM"),
        ([move(FALSE, 500, FAKE, "out")], "SPAM"),
        # A real payment counts, also from a look-alike address.
        ([move(FALSE, COIN)], "TRANSFERIN"),
        ([move(FALSE, 5, USDC)], "TRANSFERIN"),
        ([move(FALSE, 500, USDC, "out")], "TRANSFEROUT"),
        ([move(FALSE, 1), move(OTHER, COIN)], "TRANSFERIN"),
    ],
)
def test_next_to_nothing_from_a_look_alike_is_spam_and_money_is_only_flagged(
    movements: list[Movement], type_: str
) -> None:
    document = render(activity_with(*movements))
    assert document.type == type_
    assert Flag("POISONING", "begins and ends like an address met before", FALSE, REAL) in document.flags


def test_what_the_wallet_sends_to_a_look_alike_is_flagged_and_never_spam() -> None:
    document = render(activity_with(move(FALSE, 1, ETHER, "out"), sender=ME))
    assert document.type != "SPAM"
    assert [(flag.kind, flag.address, flag.resembles) for flag in document.flags] == [("POISONING", FALSE, REAL)]


def test_who_moves_nothing_in_the_name_of_others_is_flagged_without_any_resemblance() -> None:
    document = render(activity_with(move(OTHER, 0, USDC, "out"), sender=OTHER))
    assert document.type == "SPAM"
    (flag,) = document.flags
    assert (flag.kind, flag.address) == ("POISONING", OTHER)


def test_an_honest_record_has_no_flag() -> None:
    for activity in (activity_with(move(REAL, COIN), sender=REAL), activity_with(move(OTHER, 1), sender=OTHER)):
        assert render(activity).flags == ()
        assert not poisoning(activity, CIRCLE, {USDC}).only
