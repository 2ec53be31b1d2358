"""Accounts that take several rounds are read again at one block, with their collectibles; names alone are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from chainfolio.adapters.tron.forms import Wallet
from chainfolio.adapters.tron.one_block import OneBlock
from chainfolio.adapters.tron.reads import Call, WalletRead, WalletState, encode_word
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.engine.snapshots import collectibles
from chainfolio.engine.snapshots.trust import Trust
from chainfolio.plans import Plan, read, run_batched
from chainfolio.protocols import InstalledProtocols
from tests.tron.fakes import ALICE, BOB, USDT, FakeNode

BALANCE, NAME, FOLLOW_UP = (Call(f"T{name}", f"{name}()(uint256)", ()) for name in ("balance", "name", "behind"))


def rounds(plan: Plan[Any]) -> Iterator[list[Any]]:
    """Yield the reads of a plan round by round; each answer is 7."""
    answers: Any = None
    while True:
        try:
            reads = next(plan) if answers is None else plan.send(answers)
        except StopIteration:
            return
        if reads:
            yield list(reads)
        answers = [7] * len(reads)


def test_a_round_of_names_alone_is_no_reason_to_ask_again() -> None:
    def reading(first: bool) -> Plan[Any]:
        (balance,) = yield [BALANCE]
        if first:
            yield [NAME]
        return balance

    assert list(rounds(OneBlock("tron").read(reading))) == [[BALANCE], [NAME]]


def test_what_an_answer_led_to_is_asked_again_with_it_and_without_names() -> None:
    def reading(first: bool) -> Plan[Any]:
        (balance,) = yield [BALANCE]
        follow_up = yield [FOLLOW_UP, *([NAME] if first else [])]
        return balance, follow_up[0]

    assert list(rounds(OneBlock("tron").read(reading))) == [[BALANCE], [FOLLOW_UP, NAME], [BALANCE, FOLLOW_UP]]


async def test_collectibles_are_of_the_block_of_accounts_that_take_several_rounds() -> None:
    """The collectible leaves its owner after the first round; the account is read again after the second."""
    chain, height = FakeNode().chain(), 0
    reader = chain.account_reader(InstalledProtocols()).at(Block(0, "", "", 0))
    collectible = Asset("tron:728126428", "trc721", USDT, "5")

    async def answer(reads: Sequence[Any]) -> list[Any]:
        nonlocal height
        height += bool(reads)
        owner = ALICE if height == 1 else BOB
        return [
            WalletState(Block(height, "", "", 0), Wallet())
            if isinstance(each, WalletRead)
            else encode_word(owner if each.function == "ownerOf(uint256)" else 0)
            for each in reads
        ]

    def account(first: bool) -> Plan[int]:
        yield [WalletRead(ALICE)]
        state = yield from read(WalletRead(BOB))
        return state.block.height

    trust = Trust(lambda asset: True)
    plans: dict[str, Plan[Any]] = {
        "account": reader.one_block.read(account),
        "collectibles": collectibles.read(chain, [(ALICE, collectible)], trust, reader),
    }
    reports = await run_batched(plans, answer)
    assert (reports["account"].result, reports["collectibles"].result) == (3, ([], []))
