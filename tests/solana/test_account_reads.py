"""Reads of program accounts: at one slot with a wallet, never of the past, and faults of nodes."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.adapters.solana.account_reads import AccountRead
from chainfolio.adapters.solana.account_records import MintFacts
from chainfolio.adapters.solana.layouts import SYSTEM, TOKEN
from chainfolio.adapters.solana.reads import WalletRead
from chainfolio.adapters.solana.state import MAX_AGE_SLOTS, PAST
from chainfolio.errors import BadAnswer, NodeBehind
from chainfolio.plans import Unknown
from tests.solana import ledger
from tests.solana.fakes import MINT, WALLET, FakeNode, account

READ = AccountRead(TOKEN, "mint", (MINT,))


def storing(**accounts: Any) -> FakeNode:
    """A node that answers with accounts by their addresses, and with its clock."""
    node = FakeNode()

    def answer_accounts(params: Any) -> Any:
        return node.at([node.clock() if each.startswith("SysvarC1ock") else accounts.get(each) for each in params[0]])

    node.answers = {**node.answers, "getMultipleAccounts": answer_accounts}
    return node


async def test_what_an_account_said_at_a_block_of_the_past_is_unknown() -> None:
    node = storing(**{MINT: account(TOKEN, 5, ledger.mint(7, 6))})
    chain, old = node.chain(), (await node.chain().heads()).latest
    assert await chain.answer([READ], old) == [MintFacts(7, 6, ())]
    node.slot += MAX_AGE_SLOTS + 1
    [unknown] = await chain.answer([READ], old)
    assert unknown == Unknown(PAST, "absent")
    await chain.heads()
    node.asked.clear()
    assert await chain.answer([READ], old) == [unknown]
    assert node.asked == []  # it is known without asking


async def test_accounts_that_are_read_with_a_wallet_are_of_its_slot() -> None:
    node = storing(**{MINT: account(TOKEN, 5, ledger.mint(7, 6)), WALLET: account(SYSTEM, 9)})
    node.moves = 1  # every answer is of another slot
    chain = node.chain()
    wallet, mint = await chain.answer([WalletRead(WALLET), READ], (await chain.heads()).latest)
    assert (wallet.lamports, mint) == (9, MintFacts(7, 6, ()))


async def test_accounts_that_change_faster_than_they_can_be_read_leave_the_wallet_readable() -> None:
    node = storing(**{WALLET: account(SYSTEM, 9)})
    supply = iter(range(10**6))

    def busy(params: Any) -> Any:
        return node.at(
            [
                node.clock()
                if each.startswith("SysvarC1ock")
                else account(SYSTEM, 9)
                if each == WALLET
                else account(TOKEN, 5, ledger.mint(next(supply), 6))
                for each in params[0]
            ]
        )

    node.moves, node.answers = 1, {**node.answers, "getMultipleAccounts": busy}
    mints = [
        AccountRead(TOKEN, "mint", (SYSTEM[:-1] + letter + digit,))
        for letter in "23456789ABCDEF"
        for digit in "123456789"
    ]
    chain = node.chain()
    wallet, *unknown = await chain.answer([WalletRead(WALLET), *mints], (await chain.heads()).latest)
    assert wallet.lamports == 9
    assert {type(each) for each in unknown} == {Unknown}
    assert "different slots" in unknown[0].reason


@pytest.mark.parametrize(
    "lie",
    [
        {"data": ["!!!", "base64"]},
        {"data": ["", "base58"]},
        {"data": None},
        {"lamports": 1.5},
        {"lamports": -1},
        {"owner": 7},
    ],
)
async def test_an_account_that_is_no_account_is_refused(lie: dict[str, Any]) -> None:
    node = storing(**{MINT: account(TOKEN, 5, ledger.mint(7, 6)) | lie})
    chain = node.chain()
    head = (await chain.heads()).latest
    with pytest.raises(BadAnswer):
        await chain.answer([READ], head)


async def test_as_many_accounts_as_were_asked_for_have_to_come() -> None:
    node = FakeNode()
    node.answers = {**node.answers, "getMultipleAccounts": lambda params: node.at([None, None])}
    chain = node.chain()
    head = (await chain.heads()).latest
    with pytest.raises(BadAnswer, match="2 accounts in answer to 1"):
        await chain.answer([READ], head)


@pytest.mark.parametrize("size", [0, 81, 83, 164, 10_000])
async def test_a_mint_of_another_length_is_unknown_and_never_zero(size: int) -> None:
    node = storing(**{MINT: account(TOKEN, 5, bytes(size))})
    chain = node.chain()
    [unknown] = await chain.answer([READ], (await chain.heads()).latest)
    assert isinstance(unknown, Unknown)
    assert unknown.cause == "contract"


async def test_an_account_as_it_was_before_the_block_is_not_taken_for_now() -> None:
    node = storing(**{MINT: account(TOKEN, 5, ledger.mint(7, 6))})
    chain = node.chain()
    head = (await chain.heads()).latest
    node.slot -= 1
    with pytest.raises(NodeBehind):
        await chain.answer([READ], head)
