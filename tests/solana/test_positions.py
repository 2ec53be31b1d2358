"""Reads of positions: all accounts of a snapshot at one slot, and no requests without positions."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import pytest

from chainfolio.adapters.solana import positions
from chainfolio.adapters.solana.layouts import TOKEN
from chainfolio.adapters.solana.positions import Claim, DecoderPlan, Family
from chainfolio.adapters.solana.protocols.orca_whirlpool import FAMILY
from chainfolio.positions import AccountState
from chainfolio.protocols import DecodedPosition, InstalledProtocol, InstalledProtocols, TokenAmount
from tests.solana import ledger_node
from tests.solana.changes import key
from tests.solana.fakes import WALLET, FakeNode
from tests.solana.ledger import Ledger
from tests.solana.ledger_node import LedgerNode
from tests.solana.sdk import run_jobs
from tests.solana.test_whirlpools import NOW_S, drawn
from tests.solana.whirlpools import PROGRAM, Position, write

INSTALLED: Final = InstalledProtocols((InstalledProtocol("orca", FAMILY, {"program": (PROGRAM,)}, {}),))


async def read(node: FakeNode, *accounts: str, installed: InstalledProtocols = INSTALLED) -> dict[str, AccountState]:
    """Read accounts through the chain of a node, for one snapshot."""
    return await ledger_node.read(node, *accounts, installed=installed)


@pytest.fixture(scope="module")
def position() -> Position:
    """Any position."""
    return drawn(random.Random(21))


@pytest.fixture(scope="module")
def pool(position: Position) -> Ledger:
    """The accounts of that position."""
    ledger = Ledger()
    write(ledger, position, vaults=2**64 - 1)
    return ledger


async def test_all_accounts_of_a_snapshot_are_of_one_slot_though_one_alone_has_positions(
    position: Position, pool: Ledger
) -> None:
    first, second, third = key(), key(), key()
    node = LedgerNode(pool, {first: [], second: [position.mint], third: [key()]})
    states = await read(node, first, second, third)
    assert {account: len(state.positions) for account, state in states.items()} == {first: 0, second: 1, third: 0}
    assert len({state.block for state in states.values()}) == 1
    [held_position] = states[second].positions
    assert (held_position.protocol, held_position.type, held_position.pool) == (
        "orca",
        "LIQUIDITYPOOL",
        position.pool.address,
    )
    closing, *_ = run_jobs(position.sdk_jobs(NOW_S))
    assert sorted(held_position.supplied.values()) == sorted([closing["tokenEstA"], closing["tokenEstB"]])
    assert [asset.reference for asset in held_position.replaces] == [position.mint]
    assert not any(state.issues for state in states.values())


@pytest.mark.parametrize("tokens", [0, 1])
async def test_a_wallet_without_positions_takes_no_more_than_one_look_for_them(tokens: int) -> None:
    node = LedgerNode(Ledger(), {WALLET: [key() for _ in range(tokens)]})
    node.moves = 0
    await read(node, WALLET)
    wallet = ["getMultipleAccounts", "getTokenAccountsByOwner", "getTokenAccountsByOwner", "getProgramAccounts"]
    wallet.append("getAssetsByOwner")
    assert sorted(node.asked) == sorted(wallet + ["getMultipleAccounts"] * tokens)


async def test_a_position_that_comes_while_positions_are_read_is_among_them(position: Position, pool: Ledger) -> None:
    second = drawn(random.Random(22))
    write(pool, second, vaults=2**64 - 1)
    node = LedgerNode(pool, {WALLET: [position.mint]})
    looks = 0

    def later(params: Any) -> Any:
        nonlocal looks
        looks += params[1]["programId"] == TOKEN
        if looks == 2:
            node.tokens[WALLET] = [position.mint, second.mint]
        return node._tokens(params)

    node.answers = {**node.answers, "getTokenAccountsByOwner": later}
    states = await read(node, WALLET)
    assert {each.pool for each in states[WALLET].positions} == {position.pool.address, second.pool.address}


async def test_positions_that_change_faster_than_they_are_read_are_said_to_be_unknown(
    position: Position, pool: Ledger
) -> None:
    node = LedgerNode(pool, {WALLET: [position.mint]})

    def always_new(params: Any) -> Any:
        if params[1]["programId"] == TOKEN and node.slot > 102:
            node.tokens[WALLET] = [position.mint, key()]
        return node._tokens(params)

    node.moves, node.answers = 0, {**node.answers, "getTokenAccountsByOwner": always_new}
    real = node._accounts

    def moving(params: Any) -> Any:
        node.slot += 1
        return real(params)

    node.answers = {**node.answers, "getMultipleAccounts": moving}
    states = await read(node, WALLET)
    assert states[WALLET].positions == ()
    [issue] = states[WALLET].issues
    assert (issue.makes_partial, issue.reason) == (True, "its positions change faster than they can be read")


async def test_a_position_that_cannot_be_read_is_an_issue_and_spoils_nothing_else(
    position: Position, pool: Ledger
) -> None:
    second = drawn(random.Random(23))
    write(pool, second, vaults=2**64 - 1)
    broken = Ledger(dict(pool.accounts))
    broken.put(second.address, PROGRAM, broken.accounts[second.address][1][:-1])
    states = await read(LedgerNode(broken, {WALLET: [second.mint, position.mint]}), WALLET)
    assert [each.pool for each in states[WALLET].positions] == [position.pool.address]
    [issue] = states[WALLET].issues
    assert (issue.subject, issue.makes_partial) == (second.mint, True)
    assert "a position of orca could not be read" in issue.reason


async def test_a_decoder_that_raises_is_an_issue(position: Position, pool: Ledger) -> None:
    def broken(claim: Any) -> Any:
        yield []
        raise ZeroDivisionError("nothing to divide by")

    rows = (*INSTALLED.rows, InstalledProtocol("new", Family("new", position=broken), {"program": (PROGRAM,)}, {}))
    states = await read(LedgerNode(pool, {WALLET: [position.mint]}), WALLET, installed=InstalledProtocols(rows))
    assert [each.protocol for each in states[WALLET].positions] == ["orca"]
    assert "ZeroDivisionError: nothing to divide by" in states[WALLET].issues[0].reason


def saying(result: Any = None, **overrides: Any) -> InstalledProtocols:
    """Orca, whose decoder says something more of each position that it reads, or returns something else."""

    def position(claim: Claim) -> DecoderPlan:
        read = yield from FAMILY.position(claim)
        return [replace(each, **overrides) for each in read] if result is None else result

    return InstalledProtocols((replace(INSTALLED.rows[0], family=replace(FAMILY, position=position)),))


async def test_what_a_decoder_says_beside_amounts_is_in_the_answer(position: Position, pool: Ledger) -> None:
    overrides = {"health": Decimal("1.25"), "vault": key(), "unlock_s": 7, "remark": "of two", "unknown": "its farm"}
    states = await read(LedgerNode(pool, {WALLET: [position.mint]}), WALLET, installed=saying(**overrides))
    [held_position] = states[WALLET].positions
    assert (held_position.health, held_position.vault, held_position.unlock_s) == (
        overrides["health"],
        overrides["vault"],
        7,
    )
    assert [(each.adapter, each.subject, each.reason, each.makes_partial) for each in states[WALLET].issues] == [
        ("orca", position.mint, f"not known of {WALLET}: its farm", True),
        ("orca", position.mint, f"of {WALLET}: of two", False),
    ]
    assert {each.account for each in states[WALLET].issues} == {WALLET}


async def test_why_a_position_has_no_value_is_said_and_what_else_is_unknown_of_it_leaves_nothing_out(
    position: Position, pool: Ledger
) -> None:
    node = LedgerNode(pool, {WALLET: [position.mint]})
    states = await read(node, WALLET, installed=saying(unverified="it is odd", unknown="its farm"))
    [held_position] = states[WALLET].positions
    assert held_position.unverified == "it is odd"
    assert [(each.reason, each.makes_partial) for each in states[WALLET].issues] == [
        (f"not counted for {WALLET}, since it cannot be verified: it is odd", False),
        (f"not known of {WALLET}: its farm", False),
    ]


async def test_a_share_that_anybody_could_have_made_counts_only_where_the_account_came_by_it(
    position: Position, pool: Ledger
) -> None:
    states = await read(LedgerNode(pool, {WALLET: [position.mint]}), WALLET, installed=saying(is_unlisted=True))
    [held_position] = states[WALLET].positions
    assert (
        {each.reference for each in held_position.unlisted_shares}
        == {each.reference for each in held_position.required_assets}
        == {position.mint}
    )


async def test_a_position_with_nothing_in_it_is_none_and_what_is_unknown_of_it_is_said(
    position: Position, pool: Ledger
) -> None:
    empty = saying(DecodedPosition("LENDING", (TokenAmount(key(), 0),), unknown="what it earned"))
    states = await read(LedgerNode(pool, {WALLET: [position.mint]}), WALLET, installed=empty)
    assert states[WALLET].positions == ()
    assert [(each.reason, each.makes_partial) for each in states[WALLET].issues] == [
        (f"not known of {WALLET}: what it earned", True)
    ]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (7, "a int, not a DecodedPosition"),
        ("nothing", "a str, not"),
        ([None], "a NoneType, not"),
        (DecodedPosition("STEAKED"), "did you mean `STAKED`?"),
        (DecodedPosition("LENDING", TokenAmount(TOKEN, 1)), "is a comma missing?"),  # type: ignore[arg-type]
        (DecodedPosition("LENDING", (TokenAmount("0x" + "ab" * 20, 1),)), "no address as the chain has it"),
        (DecodedPosition("LENDING", (TokenAmount(TOKEN, -1),)), "-1 units"),
        (DecodedPosition("LENDING", (TokenAmount(TOKEN, 1.5),)), "1.5 units"),  # type: ignore[arg-type]
        (DecodedPosition("LENDING", (TokenAmount(TOKEN, 1),), health=1.5), "`health`"),  # type: ignore[arg-type]
        (DecodedPosition("LENDING", (TokenAmount(TOKEN, 1),), health=Decimal("NaN")), "`health`"),
        (DecodedPosition("LENDING", replaces=("nothing",)), "`replaces`"),
        (DecodedPosition("LENDING", remark=None), "`remark` is a NoneType"),  # type: ignore[arg-type]
    ],
)
async def test_a_decoder_that_returns_what_is_no_position_spoils_nothing_else(
    position: Position, pool: Ledger, result: Any, message: str
) -> None:
    rows = (*INSTALLED.rows, *saying(result).rows)
    states = await read(LedgerNode(pool, {WALLET: [position.mint]}), WALLET, installed=InstalledProtocols(rows))
    assert [each.pool for each in states[WALLET].positions] == [position.pool.address]
    [issue] = states[WALLET].issues
    assert (issue.subject, issue.makes_partial, message in issue.reason) == (position.mint, True, True)


async def test_an_account_that_was_sent_thousands_of_tokens_is_read_and_what_was_not_looked_at_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(positions, "MAX_CLAIMS", 3)
    states = await read(LedgerNode(Ledger(), {WALLET: [key() for _ in range(5)]}), WALLET)
    [issue] = states[WALLET].issues
    assert (issue.makes_partial, issue.reason) == (
        True,
        "2 tokens of which there is one were not looked at for positions",
    )
