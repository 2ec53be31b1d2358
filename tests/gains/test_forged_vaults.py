"""Vault events of strangers, forged or of their own vaults, do not change the gains of a wallet."""

from __future__ import annotations

import pytest

from chainfolio.adapters.evm.events import TRANSFER
from chainfolio.adapters.evm.positions.token_transfers import ZERO_TOPIC
from chainfolio.adapters.evm.protocols import euler_v2, extrafi, fluid_vault, liquity
from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.vaults import typed_by_vaults
from chainfolio.portfolio.transactions import TransactionAssetDocument, TransactionUser
from chainfolio.position_changes import EventLog, VaultChange
from tests.portfolio.test_pnl_records import NOBODY, asset, record

ME, STRANGER, LAYER, VAULT, FORGED, TOKEN, MANAGER = ("0x" + digit * 40 for digit in "abcdef1")
TREATMENT = Treatment(burn_addresses={NOBODY}, is_trusted=lambda contract: contract != "chain:scam")


def topic(address: str) -> str:
    return "0x" + "0" * 24 + address[2:]


def encode_words(*numbers: int) -> bytes:
    return b"".join((number % 2**256).to_bytes(32, "big") for number in numbers)


def operated(contract: str, collateral: int, debt: int) -> EventLog:
    """The event of a vault of Fluid, for a position of ME."""
    me = int(ME, 16)
    return EventLog(contract, (fluid_vault.OPERATED,), encode_words(me, 9, collateral, debt, me))


def layer_event(vault: str, supplied: int, borrowed: int) -> EventLog:
    """The event of the liquidity layer."""
    return EventLog(
        LAYER, (fluid_vault.MOVED, topic(vault), topic(TOKEN)), encode_words(supplied, borrowed, 0, 0, 0, 0)
    )


@pytest.mark.parametrize(("collateral", "debt"), [(0, 0), (5, 0), (0, 5)])
def test_a_vault_that_the_layer_does_not_name_changes_nothing(collateral: int, debt: int) -> None:
    logs = [layer_event(VAULT, 5, 5), operated(FORGED, collateral, debt)]
    assert fluid_vault.vault_changes(logs, {"liquidity": (LAYER,)}) == []


def test_only_a_vault_that_moved_something_has_a_change() -> None:
    logs = [layer_event(VAULT, 5, 0), operated(VAULT, 5, 0)]
    assert [(each.token, each.raw) for each in fluid_vault.vault_changes(logs, {"liquidity": (LAYER,)})] == [("", 0)]
    assert fluid_vault.vault_changes([layer_event(VAULT, 5, 0), operated(VAULT, 0, 0)], {"liquidity": (LAYER,)}) == []


def typed(
    changes: list[VaultChange] | None,
    assets_in: list[TransactionAssetDocument],
    assets_out: list[TransactionAssetDocument],
    *,
    sender: str = STRANGER,
    called: str = FORGED,
) -> tuple[str, bool]:
    """Return the type of a transfer to ME, and whether its gains are not known."""
    moves = record(
        "TRANSFERIN", assets_in, assets_out, sender=sender, recipient=called, user=TransactionUser(address=ME)
    )
    [result], unread = typed_by_vaults([moves], {("chain", "0x1"): changes}, [ME], TREATMENT)
    return result.type, bool(unread)


def test_nothing_that_left_makes_no_change_of_a_vault_own() -> None:
    change = VaultChange("loan", LAYER, VAULT + ME[2:], None, "", 0)
    assets = [asset("usdc", "1000", other=STRANGER)]
    assert typed([change], assets, [asset("usdc", "0", other=LAYER)]) == ("TRANSFERIN", False)


def test_strangers_cannot_make_the_cost_of_a_token_unknown() -> None:
    with pytest.raises(ValueError, match=extrafi.UNREAD):
        extrafi.vault_changes([EventLog(MANAGER, (topic(STRANGER),), b"")], {"position_manager": (MANAGER,)})
    dust = [asset("usdc", "1", other=STRANGER)]
    for forged in ([], [asset("usdc", "0", other=MANAGER)], [asset("scam", "1", other=MANAGER)]):
        assert typed(None, dust, forged) == ("TRANSFERIN", False)


@pytest.mark.parametrize(
    ("sender", "called", "assets_out"),
    [(ME, MANAGER, []), (STRANGER, ME, []), (STRANGER, FORGED, [asset("weth", "5", other=MANAGER)])],
    ids=["own transaction", "call of an own contract wallet", "something left"],
)
def test_changes_of_a_wallet_that_no_protocol_could_read_are_not_known(
    sender: str, called: str, assets_out: list[TransactionAssetDocument]
) -> None:
    assets = [asset("usdc", "70", other=MANAGER)]
    assert typed(None, assets, assets_out, sender=sender, called=called)[1]


SECOND = ME[:-2] + "07"  # an account of the same owner


def called(target: str) -> EventLog:
    """The event of Euler's connector for a call by ME."""
    prefix = ME[: euler_v2.PREFIX] + "0" * 26
    return EventLog(MANAGER, (euler_v2.CALLED, topic(ME), prefix, topic(target)), b"")


def transfer(token: str, sender: str, recipient: str, raw: int = 5) -> EventLog:
    return EventLog(token, (TRANSFER, sender, recipient), encode_words(raw))


@pytest.mark.parametrize(
    ("logs", "is_changed"),
    [
        ([transfer(TOKEN, topic(ME), topic(VAULT)), transfer(VAULT, ZERO_TOPIC, topic(ME))], True),
        ([transfer(TOKEN, topic(ME), topic(VAULT)), transfer(VAULT, ZERO_TOPIC, topic(SECOND))], True),
        ([transfer(VAULT, topic(ME), topic(SECOND))], True),
        ([transfer(VAULT, topic(SECOND), ZERO_TOPIC), transfer(TOKEN, topic(VAULT), topic(ME))], True),
        ([transfer(VAULT, topic(ME), topic(STRANGER))], False),
        ([transfer(TOKEN, topic(ME), topic(STRANGER)), transfer(VAULT, ZERO_TOPIC, topic(ME))], False),
        ([transfer(TOKEN, topic(ME), topic(VAULT)), transfer(VAULT, ZERO_TOPIC, topic(STRANGER))], False),
        ([transfer(TOKEN, topic(ME), topic(VAULT))], False),
        ([], False),
    ],
    ids=[
        "deposit",
        "deposit for another account",
        "shares to another account",
        "redemption",
        "shares to somebody",
        "payment beside a deposit",
        "deposit for somebody",
        "payment to the target",
        "no token",
    ],
)
def test_a_call_through_the_connector_of_euler_deposits_only_for_shares_of_the_owner(
    logs: list[EventLog], is_changed: bool
) -> None:
    changes = euler_v2.vault_changes([called(VAULT), *logs], {"evc": (MANAGER,)})
    assert [(each.vault, each.token) for each in changes] == ([(ME[: euler_v2.PREFIX], "")] if is_changed else [])


def test_a_redemption_beside_the_change_of_a_trove_is_not_known() -> None:
    contracts = {"borrower_operations": (VAULT,), "lusd": (TOKEN,), "trove_manager": (MANAGER,)}
    updated, redeemed = EventLog(VAULT, (liquity.UPDATED, topic(ME)), b""), EventLog(MANAGER, (liquity.REDEEMED,), b"")
    burnt = transfer(TOKEN, topic(ME), ZERO_TOPIC)
    (change,) = liquity.vault_changes([burnt, transfer(TOKEN, topic(STRANGER), ZERO_TOPIC), updated], contracts)
    assert (change.vault, change.token, change.raw) == (VAULT + topic(ME)[2:], TOKEN, -5)
    assert liquity.vault_changes([burnt, redeemed], contracts) == []
    assert liquity.vault_changes([burnt, updated._replace(contract=FORGED)], contracts) == []
    with pytest.raises(ValueError, match=liquity.ALSO_REDEEMED):
        liquity.vault_changes([burnt, updated, redeemed], contracts)
