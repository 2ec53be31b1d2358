"""Marinade's tickets and shares of its pool: bytes by Marinade's own interface, on a real node too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest
from solders.keypair import Keypair
from solders.pubkey import Pubkey

from chainfolio.adapters.solana.account_reads import derived
from chainfolio.adapters.solana.chain import SolanaChain
from chainfolio.adapters.solana.layouts import SYSTEM, TOKEN
from chainfolio.adapters.solana.positions import Claim, Unreadable
from chainfolio.adapters.solana.protocols import marinade_pool, marinade_ticket
from chainfolio.interactions import Interactions
from chainfolio.localchain.solana.node import SolanaNode
from chainfolio.localchain.solana.programs import associated_account, send_coins
from chainfolio.plans import Unknown, run_batched, run_offline
from chainfolio.protocols import DecodedPosition, InstalledProtocol, InstalledProtocols, TokenAmount
from tests.solana.ledger import Ledger, mint, token_account
from tests.solana.vendor_accounts import (
    MARINADE,
    MARINADE_STATE,
    MSOL_MINT,
    NOBODY,
    RENT,
    TICKETED,
    marinade_bytes,
    ticket_bytes,
)

OWNER, TICKET, POOL_MINT, VAULT = (str(Keypair().pubkey()) for _ in range(4))
CONTRACTS: Final = {"program": (MARINADE,), "state": (MARINADE_STATE,)}
INSTALLED: Final = InstalledProtocols(
    tuple(InstalledProtocol("marinade", each.FAMILY, CONTRACTS, {}) for each in (marinade_ticket, marinade_pool))
)
EPOCH: Final = 700
CLAIM: Final = Claim(OWNER, TICKET, MARINADE, 1_760_000_000, 1, EPOCH * 432_000 + 1_000, EPOCH, CONTRACTS)
SOL_LEG: Final = derived(MARINADE, (MARINADE_STATE, b"liq_sol"))


@pytest.fixture(scope="module")
def state() -> bytes:
    """The account that says everything, with 1,000 shares of its pool."""
    return marinade_bytes(5_583_457_484, lpMint=POOL_MINT, msolLeg=VAULT, lpSupply=1_000)


def tickets(state: bytes, content: bytes, claim: Claim = CLAIM) -> Sequence[DecodedPosition]:
    """Decode a ticket offline."""
    ledger = Ledger()
    ledger.put(MARINADE_STATE, MARINADE, state)
    ledger.put(TICKET, MARINADE, content)
    positions: Sequence[DecodedPosition] = run_offline(marinade_ticket.FAMILY.position(claim), ledger)
    return positions


def shares(
    state: bytes, raw: int, *, sol: int = RENT + 77_777, vault: int = 5_001, supply: int = 1_000
) -> Sequence[DecodedPosition]:
    """Decode an amount of shares offline."""
    ledger = Ledger()
    ledger.put(MARINADE_STATE, MARINADE, state)
    issuer = derived(MARINADE, (MARINADE_STATE, b"liq_mint"))
    ledger.put(POOL_MINT, TOKEN, mint(supply, 9, issuer))
    ledger.put_vault(VAULT, MSOL_MINT, NOBODY, vault)
    ledger.put(SOL_LEG, SYSTEM, b"", lamports=sol)
    claim = replace(CLAIM, subject=POOL_MINT, raw=raw)
    positions: Sequence[DecodedPosition] = run_offline(marinade_pool.FAMILY.position(claim), ledger)
    return positions


@pytest.mark.parametrize(
    ("created_epoch", "name", "wait_s"),
    [
        (700, "Unstake ticket (due in epoch 701)", 431_000 * 2 // 5 + 1_800),
        (699, "Unstake ticket (due)", 1_800 - 400),
        (698, "Unstake ticket (due)", None),
    ],
)
def test_a_ticket_is_its_lamports_and_when_they_are_there(
    state: bytes, created_epoch: int, name: str, wait_s: int | None
) -> None:
    [position] = tickets(state, ticket_bytes(OWNER, 7_000_000_001, created_epoch))
    assert position.supplied == (TokenAmount(SYSTEM, 7_000_000_001),)
    assert (position.position_type, position.name, position.unverified) == ("STAKED", name, "")
    assert position.unlock_s == (0 if wait_s is None else CLAIM.time_s + wait_s)


def test_a_ticket_that_was_paid_or_is_gone_is_nothing(state: bytes) -> None:
    assert tickets(state, ticket_bytes(OWNER, 0, 1)) == []
    assert run_offline(marinade_ticket.FAMILY.position(CLAIM), Ledger()) == []


def test_tickets_that_nobody_can_rely_on_have_no_value(state: bytes) -> None:
    [position] = tickets(state, ticket_bytes(OWNER, TICKETED + 1, 1))
    assert position.unverified == marinade_ticket.NOT_COVERED
    [position] = tickets(state, ticket_bytes(OWNER, 5, 1, state=str(Keypair().pubkey())))
    assert position.unverified == marinade_ticket.UNLISTED_INSTANCE


@pytest.mark.parametrize(
    ("ticket", "reason"),
    [
        ((NOBODY, 5, 1), "a ticket of 1111"),
        ((OWNER, 5, 701), "which is to come"),
        ((OWNER, 5, 2**64 - 1), "which is to come"),
    ],
)
def test_a_ticket_of_somebody_else_or_of_an_epoch_to_come_is_said(
    state: bytes, ticket: tuple[str, int, int], reason: str
) -> None:
    with pytest.raises(Exception, match=reason):
        tickets(state, ticket_bytes(*ticket))


@pytest.mark.parametrize(("cut", "reason"), [(slice(87), "it has 87 bytes"), (slice(1, None), "bytes")])
def test_a_ticket_that_breaks_off_is_said(state: bytes, cut: slice, reason: str) -> None:
    with pytest.raises(Exception, match=reason):
        tickets(state, ticket_bytes(OWNER, 5, 1)[cut])
    with pytest.raises(Exception, match="another kind"):
        tickets(state, b"\1" + ticket_bytes(OWNER, 5, 1)[1:])


def test_a_share_of_the_pool_is_its_part_of_both_sides_rounded_down(state: bytes) -> None:
    [position] = shares(state, 333)
    assert position.supplied == (
        TokenAmount(SYSTEM, 333 * 77_777 // 1_000),
        TokenAmount(MSOL_MINT, 333 * 5_001 // 1_000),
    )
    assert (position.position_type, position.replaces, position.pool) == ("LIQUIDITYPOOL", (POOL_MINT,), POOL_MINT)
    [burned] = shares(state, 333, supply=900)
    assert burned.supplied[0].raw == 333 * 77_777 // 900
    [full] = shares(state, 1_000, supply=1_200)
    assert [each.raw for each in full.supplied] == [77_777, 5_001]


def test_a_pool_that_cannot_be_is_said_and_never_zero(state: bytes) -> None:
    for lie in ({"raw": 1_001}, {"raw": 5, "sol": RENT - 1}, {"raw": 5, "supply": 0}):
        with pytest.raises(Exception, match="issued less"):
            shares(state, **lie)


def test_other_tokens_are_no_shares(state: bytes) -> None:
    ledger = Ledger()
    ledger.put(POOL_MINT, TOKEN, mint(1_000, 9, str(Keypair().pubkey())))
    claim = replace(CLAIM, subject=POOL_MINT, raw=5)
    assert run_offline(marinade_pool.FAMILY.position(claim), ledger) == []
    assert run_offline(marinade_pool.FAMILY.position(claim), Ledger()) == []


@pytest.mark.node
async def test_a_real_node_finds_tickets_by_their_owner_and_shares_by_their_mint(
    node: SolanaNode, chain: SolanaChain, state: bytes
) -> None:
    owner = Keypair().pubkey()
    send_coins(node, owner, 10**9)
    for content in (ticket_bytes(str(owner), 11, 0), ticket_bytes(str(owner), 22, 0), ticket_bytes(NOBODY, 33, 0)):
        node.put(Keypair().pubkey(), MARINADE, content, 10**7)
    node.put(Pubkey.from_string(MARINADE_STATE), MARINADE, state, 10**8)
    issuer = derived(MARINADE, (MARINADE_STATE, b"liq_mint"))
    node.put(Pubkey.from_string(POOL_MINT), TOKEN, mint(1_000, 9, issuer), 10**7)
    node.put(Pubkey.from_string(VAULT), TOKEN, token_account(MSOL_MINT, NOBODY, 5_001), 10**7)
    node.put(Pubkey.from_string(SOL_LEG), SYSTEM, b"", RENT + 77_777)
    at = associated_account(owner, Pubkey.from_string(POOL_MINT), Pubkey.from_string(TOKEN))
    node.put(at, TOKEN, token_account(POOL_MINT, str(owner), 10), 10**7)
    head = (await chain.heads()).latest
    reader = chain.account_reader(INSTALLED).at(head)
    reports = await run_batched(
        {"own": reader.read(str(owner), Interactions(), ())}, lambda reads: chain.answer(reads, head), max_rounds=64
    )
    account_state = reports["own"].result
    assert account_state is not None, reports
    parts = [sorted((asset.reference, raw) for asset, raw in each.supplied.items()) for each in account_state.positions]
    assert sorted(parts) == [[("501", 11)], [("501", 22)], [("501", 777), (MSOL_MINT, 50)]]
    assert not [each for each in account_state.issues if each.makes_partial]


def test_a_mint_that_could_not_be_read_is_said_and_not_taken_for_another_token() -> None:
    with pytest.raises(Unreadable, match="busy"):
        run_offline(marinade_pool.FAMILY.position(CLAIM), lambda asked: Unknown("busy"))
