"""Wallets on a real node with the real programs: coins, tokens of both programs, stake."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from solders.instruction import AccountMeta, Instruction
from solders.keypair import Keypair
from solders.pubkey import Pubkey
from spl.memo.constants import MEMO_PROGRAM_ID as MEMO

from chainfolio.adapters.solana.accounts import describe
from chainfolio.adapters.solana.chain import SolanaChain
from chainfolio.adapters.solana.layouts import EXTENSION_NOTES, STAKE_HISTORY, TOKEN
from chainfolio.adapters.solana.layouts import TOKEN_2022 as NEW
from chainfolio.adapters.solana.reads import Mint, MintBalance, MintRead, Wallet, WalletRead
from chainfolio.errors import WrongChain
from chainfolio.interactions import Interactions
from chainfolio.localchain.errors import RpcError
from chainfolio.localchain.solana.node import SolanaNode
from chainfolio.localchain.solana.programs import (
    BUDGET,
    FEE,
    HOOKED,
    INTEREST,
    PAUSABLE,
    SCALED,
    SEALED,
    STILL,
    STILLBORN,
    TAKEN,
    TOKEN_2022,
    WRAPPED,
    account_closing,
    account_creation,
    account_opening,
    associated_account,
    create_mint,
    create_stake,
    create_vote_account,
    freezing,
    second_account,
    send_coins,
    thawing,
    token_issue,
    token_transfer,
    wrap_coins,
)
from chainfolio.plans import Unknown, run_batched
from chainfolio.positions import AccountState
from chainfolio.protocols import InstalledProtocols
from tests.solana.ledger import token_account

pytestmark = pytest.mark.node


@pytest.fixture
def wallet(node: SolanaNode) -> Keypair:
    """A new account with two coins."""
    new = Keypair()
    send_coins(node, new.pubkey(), 2 * 10**9)
    return new


def issue_tokens(node: SolanaNode, owner: Pubkey, of_mint: Pubkey, raw: int, program: Pubkey) -> None:
    """Tokens come to an owner who had none."""
    to = associated_account(owner, of_mint, program)
    node.send([account_opening(node, owner, of_mint, program), token_issue(node, of_mint, to, raw, program)])


async def read(chain: SolanaChain, owner: Pubkey) -> Wallet:
    """Read an account now."""
    [wallet_state] = await chain.answer([WalletRead(str(owner))], (await chain.heads()).latest)
    assert isinstance(wallet_state, Wallet)
    return wallet_state


async def test_coins_and_all_token_accounts_of_a_mint_are_summed_to_the_unit(
    node: SolanaNode, chain: SolanaChain, wallet: Keypair
) -> None:
    owner, token = wallet.pubkey(), create_mint(node, 6)
    issue_tokens(node, owner, token, 1_000, Pubkey.from_string(TOKEN))
    second, steps = second_account(node, owner, token)
    node.send([*steps, token_issue(node, token, second.pubkey(), 2**63)], second)
    wallet_state = await read(chain, owner)
    assert wallet_state.lamports == node.rpc("getBalance", str(owner))["value"] == 2 * 10**9
    assert wallet_state.tokens == {str(token): MintBalance(2**63 + 1_000, 6, TOKEN)}
    assert (wallet_state.stakes, wallet_state.notes) == ((), ())


@pytest.mark.usefixtures("wallet")  # before anything happened there, this node has no block
async def test_an_account_that_was_never_used_has_nothing(chain: SolanaChain) -> None:
    wallet_state = await read(chain, Keypair().pubkey())
    assert (wallet_state.lamports, wallet_state.tokens, wallet_state.stakes, wallet_state.notes) == (0, {}, (), ())


async def test_wrapped_coins_are_a_token_and_no_coins(node: SolanaNode, chain: SolanaChain, wallet: Keypair) -> None:
    wrap_coins(node, wallet.pubkey(), 12_345)
    wallet_state = await read(chain, wallet.pubkey())
    assert wallet_state.tokens == {str(WRAPPED): MintBalance(12_345, 9, TOKEN)}
    assert wallet_state.lamports == 2 * 10**9


async def test_a_fee_that_a_transfer_withholds_belongs_to_nobody_who_got_it(
    node: SolanaNode, chain: SolanaChain, wallet: Keypair
) -> None:
    token, to = create_mint(node, 6, FEE), Keypair().pubkey()
    issue_tokens(node, wallet.pubkey(), token, 1_000_000, TOKEN_2022)
    source, destination = (associated_account(each, token, TOKEN_2022) for each in (wallet.pubkey(), to))
    node.send(
        [
            account_opening(node, to, token, TOKEN_2022),
            token_transfer(token, source, destination, wallet.pubkey(), 250_000, 6, TOKEN_2022),
        ],
        wallet,
    )
    assert (await read(chain, wallet.pubkey())).tokens == {str(token): MintBalance(750_000, 6, NEW)}
    wallet_state = await read(chain, to)
    assert wallet_state.tokens == {str(token): MintBalance(247_500, 6, NEW)}
    assert [(each.subject, each.is_partial) for each in wallet_state.notes] == [(str(token), False)]
    assert "2500 more of it are withheld" in wallet_state.notes[0].reason


async def test_frozen_tokens_are_counted_and_said(node: SolanaNode, chain: SolanaChain, wallet: Keypair) -> None:
    owner, token = wallet.pubkey(), create_mint(node, 0)
    issue_tokens(node, owner, token, 7, Pubkey.from_string(TOKEN))
    node.send([freezing(node, token, associated_account(owner, token))])
    wallet_state = await read(chain, owner)
    assert wallet_state.tokens == {str(token): MintBalance(7, 0, TOKEN)}
    assert [each.reason for each in wallet_state.notes] == [
        "7 of it are frozen: its issuer does not allow transfers of them"
    ]


async def test_tokens_that_cannot_be_moved_are_counted_and_said(
    node: SolanaNode, chain: SolanaChain, wallet: Keypair
) -> None:
    token = create_mint(node, 2, STILL)
    issue_tokens(node, wallet.pubkey(), token, 7, TOKEN_2022)
    wallet_state = await read(chain, wallet.pubkey())
    assert wallet_state.tokens == {str(token): MintBalance(7, 2, NEW)}
    assert "it cannot be transferred" in [each.reason for each in wallet_state.notes]


@pytest.mark.parametrize(
    ("size", "number"),
    [
        (FEE, 1),
        (SEALED, 4),
        (STILL, 9),
        (INTEREST, 10),
        (TAKEN, 12),
        (HOOKED, 14),
        (SCALED, 25),
        (PAUSABLE, 26),
    ],
)
async def test_what_a_mint_does_to_amounts_is_said_to_who_holds_some(
    node: SolanaNode, chain: SolanaChain, wallet: Keypair, size: int, number: int
) -> None:
    token, owner = create_mint(node, 3, size), str(wallet.pubkey())
    issue_tokens(node, wallet.pubkey(), token, 1_234, TOKEN_2022)
    assert await read_with_reasons(chain, owner, token) == (
        {chain.facts.token_asset(str(token)): 1_234},
        [EXTENSION_NOTES[number]],
    )


async def read_with_reasons(chain: SolanaChain, owner: str, token: Pubkey) -> tuple[Any, list[str]]:
    """Return the balances of an account and the reasons of the issues of a mint; fail if one is partial."""
    head = (await chain.heads()).latest
    reader = chain.account_reader(InstalledProtocols()).at(head)
    plan = reader.read(owner, Interactions(), ())
    reports = await run_batched({"one": plan}, lambda reads: chain.answer(reads, head))
    state = reports["one"].result
    assert isinstance(state, AccountState)
    assert not any(issue.makes_partial for issue in state.issues)
    return state.balances, [issue.reason for issue in state.issues if issue.subject == str(token)]


async def test_accounts_that_are_frozen_from_the_start_get_nothing_until_they_are_thawed(
    node: SolanaNode, chain: SolanaChain, wallet: Keypair
) -> None:
    owner, token = str(wallet.pubkey()), create_mint(node, 2, STILLBORN)
    token_address, asset = associated_account(wallet.pubkey(), token, TOKEN_2022), chain.facts.token_asset(str(token))
    node.send([account_opening(node, wallet.pubkey(), token, TOKEN_2022)])
    with pytest.raises(RpcError, match="Account is frozen"):
        node.send([token_issue(node, token, token_address, 5, TOKEN_2022)])
    balances, reasons = await read_with_reasons(chain, owner, token)
    assert (balances, reasons) == ({}, ["0 of it are frozen: its issuer does not allow transfers of them"])
    node.send([thawing(node, token, token_address), token_issue(node, token, token_address, 5, TOKEN_2022)])
    assert await read_with_reasons(chain, owner, token) == ({asset: 5}, [EXTENSION_NOTES[6]])


async def test_a_program_that_a_mint_names_decides_on_transfers(
    node: SolanaNode, chain: SolanaChain, wallet: Keypair
) -> None:
    owner, to = wallet.pubkey(), Keypair().pubkey()
    remaining = {}
    for hook in (BUDGET, MEMO):  # one agrees to all that it is asked, the other to nothing that is no text
        token = create_mint(node, 2, HOOKED, hook)
        issue_tokens(node, owner, token, 9, TOKEN_2022)
        token_accounts = (associated_account(owner, token, TOKEN_2022), associated_account(to, token, TOKEN_2022))
        plain = token_transfer(token, *token_accounts, owner, 4, 2, TOKEN_2022)
        transfer = Instruction(plain.program_id, plain.data, [*plain.accounts, AccountMeta(hook, False, False)])
        with nullcontext() if hook == BUDGET else pytest.raises(RpcError, match="missing required signature"):
            node.send([account_opening(node, to, token, TOKEN_2022), transfer], wallet)
        remaining[hook] = (await read_with_reasons(chain, str(owner), token))[0][chain.facts.token_asset(str(token))]
    assert remaining == {BUDGET: 5, MEMO: 9}


def sealed(available: bytes) -> bytes:
    """Return the extension of a confidential balance, for the end of a token account.

    `available` is encrypted.
    """
    pending, counters = bytes(128), bytes(32)
    content = b"\1" + bytes(range(32)) + pending + available.ljust(64, b"\0") + bytes(36) + b"\1\1" + counters
    return b"\2" + struct.pack("<HH", 5, len(content)) + content


async def test_a_confidential_balance_is_not_known_and_an_empty_one_is_nothing(
    node: SolanaNode, chain: SolanaChain, wallet: Keypair
) -> None:
    owner, token = wallet.pubkey(), create_mint(node, 2, SEALED)
    token_address, plain = associated_account(owner, token, TOKEN_2022), token_account(str(token), str(owner), 7)
    node.put(token_address, NEW, plain + sealed(b""), 10**7)
    wallet_state = await read(chain, owner)
    assert (wallet_state.tokens, wallet_state.notes) == ({str(token): MintBalance(7, 2, NEW)}, ())
    node.put(token_address, NEW, plain + sealed(b"\x2a"), 10**7)
    wallet_state = await read(chain, owner)
    assert wallet_state.tokens == {str(token): MintBalance(7, 2, NEW)}
    [note] = wallet_state.notes
    assert (note.subject, note.is_partial) == (str(token), True)
    assert "confidential" in note.reason


@pytest.mark.parametrize(
    "corrupt",
    [
        lambda content: content[:108] + b"\0" + content[109:],
        lambda content: content[:164],
        lambda content: content + b"\0",
        lambda content: bytes(165),
        lambda content: b"",
    ],
    ids=["not initialised", "shorter", "longer", "blank", "empty"],
)
async def test_what_is_no_token_account_holds_nothing_and_spoils_nothing(
    node: SolanaNode, chain: SolanaChain, wallet: Keypair, corrupt: Callable[[bytes], bytes]
) -> None:
    owner, token, other_mint = wallet.pubkey(), create_mint(node, 2), create_mint(node, 3)
    issue_tokens(node, owner, other_mint, 9, Pubkey.from_string(TOKEN))
    node.put(associated_account(owner, token), TOKEN, corrupt(token_account(str(token), str(owner), 7)), 10**7)
    wallet_state = await read(chain, owner)
    assert wallet_state.tokens == {str(other_mint): MintBalance(9, 3, TOKEN)}


async def test_a_closed_token_account_is_gone_and_one_opened_again_counts_anew(
    node: SolanaNode, chain: SolanaChain, wallet: Keypair
) -> None:
    owner, token = wallet.pubkey(), create_mint(node, 6)
    node.send([account_opening(node, owner, token)])
    assert (await read(chain, owner)).tokens == {str(token): MintBalance(0, 6, TOKEN)}
    node.send([account_closing(associated_account(owner, token), owner)], wallet)
    assert (await read(chain, owner)).tokens == {}
    issue_tokens(node, owner, token, 5, Pubkey.from_string(TOKEN))
    assert (await read(chain, owner)).tokens == {str(token): MintBalance(5, 6, TOKEN)}


async def test_stake_accounts_of_the_withdrawer_are_found_with_their_state(
    node: SolanaNode, chain: SolanaChain, wallet: Keypair
) -> None:
    owner, vote = wallet.pubkey(), create_vote_account(node)
    given_to, idle = create_stake(node, owner, 10**10, vote, 99), create_stake(node, owner, 3 * 10**9, None)
    wallet_state = await read(chain, owner)
    by_address = {each.address: each for each in wallet_state.stakes}
    assert by_address.keys() == {str(given_to), str(idle)}
    first, second = by_address[str(given_to)], by_address[str(idle)]
    assert (first.lamports, first.voter, first.state, first.unlock_s) == (10**10, str(vote), "activating", 99)
    assert first.delegated == 10**10 - node.rent(200)
    assert (second.lamports, second.delegated, second.state) == (3 * 10**9, 0, "inactive")
    assert (await read(chain, node.payer.pubkey())).stakes == ()  # who may only delegate has nothing


async def test_stake_is_active_as_far_as_the_history_of_the_cluster_says(
    node: SolanaNode, chain: SolanaChain, wallet: Keypair
) -> None:
    owner, vote = wallet.pubkey(), create_vote_account(node)
    address = create_stake(node, owner, 10**10, vote)
    delegation, epoch = 10**10 - node.rent(200), node.rpc("getEpochInfo")["epoch"]
    node.rpc("surfnet_timeTravel", {"absoluteEpoch": epoch + 1})
    send_coins(node, owner, 1)  # this node's clock account is that of its newest transaction
    cluster = struct.pack("<5Q", 1, epoch, 10**15, 10**15, 0)  # as much was to come as was active
    lain = node.rpc("getAccountInfo", STAKE_HISTORY, {"encoding": "base64"})["value"]
    try:
        node.put(Pubkey.from_string(STAKE_HISTORY), lain["owner"], cluster, 10**9)
        wallet_state = await read(chain, owner)
    finally:
        node.put(Pubkey.from_string(STAKE_HISTORY), lain["owner"], bytes(8), lain["lamports"])
    assert [(each.state, each.delegated, each.active) for each in wallet_state.stakes] == [
        ("activating", delegation, delegation * 9 // 100)
    ]
    expected = f"{delegation * 9 // 100} of {delegation} lamports of the delegation are active"
    assert [(note.subject, note.reason) for note in wallet_state.notes] == [(str(address), expected)]
    [after] = (await read(chain, owner)).stakes
    assert (after.state, after.active) == ("active", delegation), "without a history it has arrived"


async def test_several_wallets_are_read_at_one_slot(node: SolanaNode, chain: SolanaChain) -> None:
    owners = [Keypair().pubkey() for _ in range(3)]
    for number, owner in enumerate(owners):
        send_coins(node, owner, 10**9 + number)
    wallets = await chain.answer([WalletRead(str(owner)) for owner in owners], (await chain.heads()).latest)
    assert [each.lamports for each in wallets] == [10**9, 10**9 + 1, 10**9 + 2]
    assert len({each.block for each in wallets}) == 1


async def test_what_is_no_mint_has_no_decimals(node: SolanaNode, chain: SolanaChain, wallet: Keypair) -> None:
    blank = Keypair()
    node.send([account_creation(node, blank, 82, Pubkey.from_string(TOKEN))], blank)
    head = (await chain.heads()).latest
    real, absent, person, empty = await chain.answer(
        [MintRead(str(each)) for each in (create_mint(node, 4), Keypair().pubkey(), wallet.pubkey(), blank.pubkey())],
        head,
    )
    assert real == Mint(0, 4, authority=str(node.payer.pubkey()))
    assert isinstance(absent, Unknown)
    assert absent.cause == "absent"
    assert [isinstance(each, Unknown) and each.cause for each in (person, empty)] == ["contract", "contract"]
    asset = chain.facts.token_asset(str(blank.pubkey()))
    reports = await run_batched({"": describe([asset])}, lambda reads: chain.answer(reads, head))
    assert reports[""].result is not None
    assert reports[""].result[asset].decimals is None


async def test_an_owner_that_no_key_has_is_read_like_any(node: SolanaNode, chain: SolanaChain) -> None:
    owner, _ = Pubkey.find_program_address([b"vault"], node.payer.pubkey())
    assert not owner.is_on_curve()
    token = create_mint(node, 6)
    send_coins(node, owner, 10**9)
    issue_tokens(node, owner, token, 5, Pubkey.from_string(TOKEN))
    wallet_state = await read(chain, owner)
    assert (wallet_state.lamports, wallet_state.tokens, wallet_state.notes) == (
        10**9,
        {str(token): MintBalance(5, 6, TOKEN)},
        (),
    )


async def test_a_mint_whose_decimals_changed_has_those_of_now(
    node: SolanaNode, chain: SolanaChain, wallet: Keypair
) -> None:
    token = create_mint(node, 6)
    issue_tokens(node, wallet.pubkey(), token, 5, Pubkey.from_string(TOKEN))
    assert (await read(chain, wallet.pubkey())).tokens == {str(token): MintBalance(5, 6, TOKEN)}
    lain = node.rpc("getAccountInfo", str(token), {"encoding": "base64"})["value"]
    content = bytearray(base64.b64decode(lain["data"][0]))
    content[44] = 9  # where a mint keeps its decimals
    node.put(token, TOKEN, bytes(content), lain["lamports"])
    assert (await read(chain, wallet.pubkey())).tokens == {str(token): MintBalance(5, 9, TOKEN)}
    (changed,) = await chain.answer([MintRead(str(token))], (await chain.heads()).latest)
    assert changed == Mint(5, 9, authority=str(node.payer.pubkey()))


async def test_an_address_of_a_program_is_read_and_said(chain: SolanaChain) -> None:
    wallet_state = await read(chain, Pubkey.from_string(TOKEN))
    assert wallet_state.lamports > 0
    assert ["and no wallet" in each.reason for each in wallet_state.notes] == [True]


async def test_a_node_of_another_chain_is_refused(
    node: SolanaNode, chain: SolanaChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(chain.facts), "genesis", str(Keypair().pubkey()))
    with pytest.raises(WrongChain, match="serves another chain"):
        await chain.heads()
