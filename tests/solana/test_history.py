"""Histories of accounts on a real node: every transaction with a change, and sums equal to balances."""

from __future__ import annotations

import pyarrow as pa
import pytest
from solders.keypair import Keypair
from solders.pubkey import Pubkey

from chainfolio.adapters.solana.chain import SolanaChain
from chainfolio.adapters.solana.reads import Wallet, WalletRead
from chainfolio.blocks import Span
from chainfolio.budgets import Budget
from chainfolio.chain_results import SpanTables
from chainfolio.errors import OverBudget
from chainfolio.localchain.solana.node import SolanaNode
from chainfolio.localchain.solana.programs import (
    FEE,
    TOKEN,
    TOKEN_2022,
    account_closing,
    account_opening,
    associated_account,
    create_mint,
    second_account,
    send_coins,
    token_issue,
    token_transfer,
)

pytestmark = pytest.mark.node
DATASETS = ("transactions", "native", "transfers")


async def head(node: SolanaNode, chain: SolanaChain) -> int:
    """Let everything so far become final."""
    node.rpc("surfnet_timeTravel", {"absoluteSlot": node.rpc("getSlot") + 100})
    heads = await chain.heads()
    return heads.finalized


async def history(node: SolanaNode, chain: SolanaChain, owner: Pubkey) -> list[SpanTables]:
    """Return all pieces of an account's history."""
    last, first, pieces = await head(node, chain), 0, list[SpanTables]()
    while first <= last:
        piece = await chain.collect_accounts(Span(first, last), [str(owner)], DATASETS)
        pieces.append(piece)
        first = piece.span.last + 1
    return pieces


def net(pieces: list[SpanTables], owner: str, token: str | None) -> int:
    """Return the net amount of a token, or of coins if `token` is None, in an account's rows."""
    total = 0
    for row in pa.concat_tables([each.tables["transfers"] for each in pieces]).to_pylist():
        if row["token"] == token:
            raw = int.from_bytes(row["raw"], "big")
            total += raw * ((row["recipient"] == owner) - (row["sender"] == owner))
    if token is None:
        for row in pa.concat_tables([each.tables["transactions"] for each in pieces]).to_pylist():
            total -= int.from_bytes(row["fee"], "big") * (row["sender"] == owner)
    return total


async def test_the_rows_of_an_account_add_up_to_what_it_has(node: SolanaNode, chain: SolanaChain) -> None:
    wallet, friend, token, taxed = Keypair(), Keypair(), create_mint(node, 6), create_mint(node, 2, FEE)
    owner, recipient = wallet.pubkey(), friend.pubkey()
    send_coins(node, owner, 3 * 10**9)
    extra, steps = second_account(node, owner, token)  # nothing but a token account's address shows whose it is
    node.send([*steps, token_issue(node, token, extra.pubkey(), 77)], extra)
    for each, program in ((token, TOKEN), (taxed, TOKEN_2022)):
        token_accounts = [associated_account(holder, each, program) for holder in (owner, recipient)]
        opening = [account_opening(node, holder, each, program) for holder in (owner, recipient)]
        node.send([*opening, token_issue(node, each, token_accounts[0], 10_000, program)])
        decimals = 6 if each == token else 2
        node.send([token_transfer(each, token_accounts[0], token_accounts[1], owner, 2_500, decimals, program)], wallet)
    node.send(
        [
            token_transfer(
                token, associated_account(recipient, token), associated_account(owner, token), recipient, 500, 6
            )
        ],
        friend,
    )
    pieces = await history(node, chain, owner)
    [result] = await chain.answer([WalletRead(str(owner))], (await chain.heads()).latest)
    assert isinstance(result, Wallet)
    assert result.tokens[str(token)].raw == net(pieces, str(owner), str(token)) == 77 + 10_000 - 2_500 + 500
    assert result.tokens[str(taxed)].raw == net(pieces, str(owner), str(taxed)) == 7_500
    assert result.lamports == net(pieces, str(owner), None)
    assert not any(each.unexplained for each in pieces)
    assert all(each.read_methods.keys() == set(DATASETS) for each in pieces)


async def test_closed_token_accounts_are_found_through_transactions(node: SolanaNode, chain: SolanaChain) -> None:
    wallet, token = Keypair(), create_mint(node, 0)
    owner, taker = wallet.pubkey(), Keypair().pubkey()
    send_coins(node, owner, 10**9)
    source, destination = associated_account(owner, token), associated_account(taker, token)
    node.send([account_opening(node, owner, token), account_opening(node, taker, token)])
    node.send([token_issue(node, token, source, 9)])  # does not name the owner
    node.send([token_transfer(token, source, destination, owner, 9, 0), account_closing(source, owner)], wallet)
    pieces = await history(node, chain, owner)
    assert net(pieces, str(owner), str(token)) == 0
    transfers = pa.concat_tables([each.tables["transfers"] for each in pieces]).to_pylist()
    assert sorted(
        (row["sender"] == str(owner), int.from_bytes(row["raw"], "big"))
        for row in transfers
        if row["token"] == str(token)
    ) == [(False, 9), (True, 9)]
    [result] = await chain.answer([WalletRead(str(owner))], (await chain.heads()).latest)
    assert result.lamports == net(pieces, str(owner), None)  # the rent came back, too


async def test_a_transaction_that_failed_costs_its_fee_and_moves_nothing(node: SolanaNode, chain: SolanaChain) -> None:
    before = node.rpc("getSlot")
    nowhere, recipient = Keypair().pubkey(), Keypair().pubkey()
    impossible = token_transfer(create_mint(node, 0), nowhere, recipient, node.payer.pubkey(), 1, 0)
    signature = node.send([impossible], fails=True)
    last = await head(node, chain)
    piece = await chain.collect_accounts(Span(max(0, before - 1), last), [str(node.payer.pubkey())], DATASETS)
    (row,) = [each for each in piece.tables["transactions"].to_pylist() if each["hash"] == signature]
    assert (row["status"], int.from_bytes(row["fee"], "big")) == (0, 5_000)
    assert not [each for each in piece.tables["transfers"].to_pylist() if each["tx_hash"] == signature]


async def test_a_history_costs_about_a_request_a_transaction_and_ends_with_its_budget(
    node: SolanaNode, chain: SolanaChain
) -> None:
    owner = Keypair().pubkey()
    for number in range(40):
        send_coins(node, owner, 10**6 + number)
    last, before = await head(node, chain), chain.requests
    piece = await chain.collect_accounts(Span(0, last), [str(owner)], DATASETS)
    assert len(piece.tables["transactions"]) == 0  # it sent and was called by none: whose fee it was is another's
    assert net([piece], str(owner), None) == sum(10**6 + number for number in range(40))
    assert chain.requests - before <= 40 + 8
    with pytest.raises(OverBudget):
        await chain.collect_accounts(Span(0, last), [str(Keypair().pubkey())], DATASETS, budget=Budget(max_requests=1))
