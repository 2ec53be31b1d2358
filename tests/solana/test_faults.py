"""Faults of nodes, chains and providers give typed errors or the right value, never a wrong number."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import msgspec
import pytest

from chainfolio.adapters.solana.account_reads import AccountRead
from chainfolio.adapters.solana.layouts import STAKE, TOKEN, TOKEN_2022, BadLayout, Mint, mint
from chainfolio.adapters.solana.reads import Wallet, WalletRead
from chainfolio.adapters.solana.refusals import CODES, meaning
from chainfolio.adapters.solana.transactions import FetchedTransaction, change, paired_transfers
from chainfolio.addresses import SOLANA
from chainfolio.blocks import Block, Span
from chainfolio.engine.history.joint_reads import JointChain
from chainfolio.errors import (
    BadAnswer,
    BadRequest,
    HistoryUnavailable,
    NoBlock,
    NodeBehind,
    Reorged,
    SourceError,
    Unavailable,
    UnsupportedMethod,
)
from chainfolio.plans import Unknown
from chainfolio.transport.exchange import RateLimited
from chainfolio.transport.wire import RpcError
from tests.json_rpc import Refuse
from tests.solana.fakes import HOME, MINT, WALLET, FakeNode, account, header, token_account, transaction
from tests.solana.ledger import Ledger
from tests.solana.ledger_node import FAILURES, LedgerNode

SIGNATURE = "5vBFfTGrcdkE7ZdsUDSU2kRkhoFp4EgKtLLB6h2m1uQoG5wCddCkFGnNjXaHrV2r1kZ8CpJfh7UcWJ9tFXAyKc8Q"


async def wallet(node: FakeNode, *urls: str) -> Wallet:
    """Read the wallet through the chain of a node."""
    chain = node.chain(*urls)
    [result] = await chain.answer([WalletRead(WALLET)], (await chain.heads()).latest)
    assert isinstance(result, Wallet)
    return result


def holding(*accounts: Any) -> FakeNode:
    """A node whose wallet has these token accounts of the old program."""
    node = FakeNode()
    node.answers = {
        **node.answers,
        "getTokenAccountsByOwner": lambda params: node.at(accounts if params[1]["programId"] == TOKEN else []),
    }
    return node


@pytest.mark.parametrize(
    "text",
    [
        WALLET[:-1],
        WALLET + "1",
        *(WALLET.replace("a", alike, 1) for alike in ("0", "O", "I", "l", "\u0430", "\uff41", "a\u200b")),
    ],
)
def test_addresses_of_the_wrong_length_or_alphabet_are_none(text: str) -> None:
    assert SOLANA.canonical(text) is None
    with pytest.raises(BadRequest, match="not a Solana address"):
        SOLANA.address(text)


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_of_the_chain_is_a_typed_error(code: int) -> None:
    error = meaning("node", "getBlock", RpcError(code, "some words"), 9)
    assert isinstance(error, SourceError)
    expected = {
        -32001: HistoryUnavailable,
        -32004: NodeBehind,
        -32007: NoBlock,
        -32009: NoBlock,
        -32010: UnsupportedMethod,
        -32011: HistoryUnavailable,
        -32015: UnsupportedMethod,
        -32016: NodeBehind,
        -32005: Unavailable,
    }
    assert type(error) is expected.get(code, type(error))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (429, "Too many requests for a specific RPC call"),
        (-32429, "rate limited"),
        (-32005, "Too many requests"),
        (-32007, "50/second request limit reached - reduce calls per second"),
        (-32097, "credits exhausted"),
        (-32003, "daily request count exceeded, request rate limited"),
        (-32603, "compute units quota exceeded"),
        (0, "Your app has exceeded its compute units per second capacity"),
    ],
)
def test_rate_limits_are_understood_in_each_providers_spelling(code: int, message: str) -> None:
    assert type(meaning("node", "getSlot", RpcError(code, message))) is RateLimited


async def test_answers_of_different_slots_are_read_again_until_they_are_of_one() -> None:
    node = holding(token_account())
    node.moves = 1  # every answer about accounts is of a newer slot than the one before
    result = await wallet(node)
    assert (result.lamports, result.tokens[MINT].raw) == (5, 7)
    assert result.block.height > 100
    assert result.block.hash == f"hash{result.block.height}"


async def test_answers_that_never_come_together_are_an_error() -> None:
    node = FakeNode()
    node.moves = 1
    node.answers = {
        **node.answers,
        "getTokenAccountsByOwner": lambda params: node.at([token_account(str(node.slot))]),
    }
    with pytest.raises((Unavailable, BadAnswer)):
        await wallet(node)


async def test_a_minimum_slot_that_is_not_reached_is_waited_for() -> None:
    node, refusals = FakeNode(), [3]

    def late(params: Any) -> Any:
        if refusals[0]:
            refusals[0] -= 1
            raise Refuse(-32016, "Minimum context slot has not been reached")
        return node.at([])

    node.answers = {**node.answers, "getProgramAccounts": late}
    assert (await wallet(node)).lamports == 5


async def test_a_minimum_slot_that_is_never_reached_is_an_error() -> None:
    def never(params: Any) -> Any:
        raise Refuse(-32016, "Minimum context slot has not been reached")

    with pytest.raises((Unavailable, NodeBehind)):
        await wallet(FakeNode(getTokenAccountsByOwner=never))


@pytest.mark.parametrize("slot", [100.0, 1e18, -1, "100", None, 2**63])
async def test_slots_that_are_no_whole_number_are_refused(slot: Any) -> None:
    with pytest.raises(BadAnswer):
        await wallet(FakeNode(getTokenAccountsByOwner=lambda params: {"context": {"slot": slot}, "value": []}))
    with pytest.raises(SourceError):
        await FakeNode(getSlot=lambda params: slot).chain().heads()


@pytest.mark.parametrize("clock", [b"", bytes(39), bytes(41), bytes(40)])
async def test_a_clock_that_is_longer_shorter_or_of_another_slot_is_refused(clock: bytes) -> None:
    node = FakeNode()
    accounts = [account("1" * 32, 5), account("Sysvar", 1, clock)]
    node.answers = {**node.answers, "getMultipleAccounts": lambda params: node.at(accounts)}
    with pytest.raises(BadAnswer, match="clock"):
        await wallet(node)


@pytest.mark.parametrize("failure", [(-32010, "excluded from account secondary indexes"), *FAILURES])
async def test_a_refused_search_for_stake_is_said_and_makes_the_answer_partial(failure: tuple[int, str]) -> None:
    def excluded(params: Any) -> Any:
        raise Refuse(*failure)

    result = await wallet(FakeNode(getProgramAccounts=excluded))
    assert [(note.subject, note.is_partial) for note in result.notes] == [(WALLET, True)]
    assert result.lamports == 5


@pytest.mark.parametrize("amount", [7, 7.0, "7.5", "-1", "1e3", "", "99999999999999999999999", None])
async def test_amounts_that_are_no_whole_text_are_left_out_and_said(amount: Any) -> None:
    result = await wallet(holding(token_account(amount), token_account("9", address=MINT)))
    assert result.tokens[MINT].raw == 9
    assert [(note.subject, note.is_partial) for note in result.notes] == [(HOME, True)]


@pytest.mark.parametrize(
    "accounts",
    [
        [token_account(), token_account()],  # the same twice
        [token_account(owner=HOME)],  # of another owner
        [token_account(), token_account(decimals=9, address=MINT)],  # one mint, two kinds of decimals
    ],
)
async def test_token_accounts_that_contradict_each_other_are_refused(accounts: list[Any]) -> None:
    with pytest.raises(BadAnswer):
        await wallet(holding(*accounts))


@pytest.mark.parametrize("lamports", [5.0, 1e18, -1, "5"])
async def test_lamports_that_are_no_whole_number_are_refused(lamports: Any) -> None:
    node = FakeNode()
    strange = {"data": ["", "base64"], "owner": "1" * 32, "lamports": lamports}
    node.answers = {**node.answers, "getMultipleAccounts": lambda params: node.at([strange, node.clock()])}
    with pytest.raises(BadAnswer, match="wrong shape"):
        await wallet(node)


def extended(*extensions: tuple[int, bytes]) -> bytes:
    """A mint of Token-2022 with 6 decimals and extensions, by number."""
    plain = struct.pack("<36xQBB36x", 7, 6, 1) + bytes(165 - 82) + b"\1"
    return plain + b"".join(struct.pack("<HH", number, len(body)) + body for number, body in extensions)


def test_an_extension_that_nobody_knows_is_passed_over_and_the_next_one_is_read() -> None:
    assert mint(extended((999, bytes(3)), (9, b"")), TOKEN_2022) == Mint(7, 6, (9,))


@pytest.mark.parametrize(
    "content",
    [
        extended((9, b""), (9, b"")),
        extended((9, bytes(9)))[:-1],
        extended((19, bytes(64) + b"\xff\xff\xff\xff")),
    ],
)
def test_extensions_that_come_twice_or_break_off_make_no_mint(content: bytes) -> None:
    with pytest.raises(BadLayout):
        mint(content, TOKEN_2022)


@pytest.mark.parametrize("size", [0, 81, 83, 165, 166, 355])
def test_a_mint_that_is_longer_or_shorter_than_its_layout_is_none(size: int) -> None:
    with pytest.raises(BadLayout):
        mint(bytes(size), TOKEN)


async def test_a_slot_that_was_skipped_has_no_block_and_one_that_is_to_come_is_waited_for() -> None:
    def block(params: Any) -> Any:
        if params[0] == 50:
            raise Refuse(-32007, "Slot 50 was skipped, or missing due to ledger jump to recent snapshot")
        return None if params[0] in (40, 200) else header(params[0])

    chain = FakeNode(getBlock=block).chain()
    await chain.heads()
    with pytest.raises(NoBlock):
        await chain.block(50)
    assert [each.height for each in await chain.blocks([49, 50, 51])] == [49, 51]
    with pytest.raises(NodeBehind):
        await chain.block(200)
    with pytest.raises(HistoryUnavailable):
        await chain.block(40)


def spanning(slots: list[int], parents: dict[int, int]) -> FakeNode:
    """A node with blocks at some slots; each follows the one before, or the parent that is named."""

    def block(params: Any) -> Any:
        slot = params[0]
        parent = parents.get(slot, slot - 1)
        return {**header(slot), "parentSlot": parent, "previousBlockhash": f"hash{parent}", "transactions": []}

    return FakeNode(getBlock=block, getBlocks=lambda params: slots)


async def test_long_gaps_are_skipped_by_the_word_of_the_next_block() -> None:
    chain = spanning([10, 90], {90: 10}).chain()
    await chain.heads()
    piece = await chain.collect(Span(10, 95), ["blocks"])
    assert [each.height for each in piece.blocks] == [10, 90]


async def test_a_block_that_a_node_leaves_out_is_noticed() -> None:
    chain = spanning([10, 90], {90: 50}).chain()
    await chain.heads()
    with pytest.raises(BadAnswer, match="block 50 is left out"):
        await chain.collect(Span(10, 95), ["blocks"])


async def test_a_slot_on_another_branch_is_a_reorganisation() -> None:
    chain = spanning([11], {}).chain()
    await chain.heads()
    with pytest.raises(Reorged):
        await chain.collect(Span(11, 11), ["blocks"], before=Block(10, "other", "", 0))


def listing(pages: list[list[dict[str, Any]]], **meta: Any) -> FakeNode:
    """A node that lists transactions of the wallet in these pages."""
    remaining = list(pages)
    return FakeNode(
        getSignaturesForAddress=lambda params: remaining.pop(0) if params[0] == WALLET and remaining else [],
        getTransaction=lambda params: (
            None if meta.get("lost") else transaction(meta.get("slot", 60), params[0], **meta)
        ),
        getBlocks=lambda params: [params[1]],
    )


def list_entry(slot: int, signature: str = SIGNATURE) -> dict[str, Any]:
    """A transaction as lists name it."""
    return {"signature": signature, "slot": slot, "err": None}


async def rows(node: FakeNode, table: str = "transactions") -> list[dict[str, Any]]:
    """Return the rows of one table by the wallet's history."""
    chain = node.chain()
    await chain.heads()
    piece = await chain.collect_accounts(Span(0, 100), [WALLET], ["transactions", "native", "transfers"])
    records: list[dict[str, Any]] = piece.tables[table].to_pylist()
    return records


async def test_a_list_that_is_cut_short_is_read_to_its_empty_page() -> None:
    second = SIGNATURE[:-1] + "R"
    transactions = await rows(listing([[list_entry(60)], [list_entry(60, second)]]))
    assert {row["hash"] for row in transactions} == {SIGNATURE, second}


@pytest.mark.parametrize("pages", [[[list_entry(50), list_entry(60, HOME)]], [[list_entry(60)], [list_entry(60)]]])
async def test_lists_out_of_order_or_with_one_twice_are_refused(pages: list[Any]) -> None:
    with pytest.raises(BadAnswer):
        await rows(listing(pages))


async def test_a_transaction_that_a_node_lists_and_has_lost_is_said() -> None:
    with pytest.raises(HistoryUnavailable, match="lists a transaction that it does not have"):
        await rows(listing([[list_entry(60)]], lost=True))


async def test_a_transaction_of_another_slot_than_listed_is_refused() -> None:
    with pytest.raises(BadAnswer, match="listed in slot 61"):
        await rows(listing([[list_entry(61)]]))


async def test_a_transaction_without_meta_is_history_that_is_gone() -> None:
    node = listing([[list_entry(60)]])
    node.answers = {**node.answers, "getTransaction": lambda params: {**transaction(60, SIGNATURE), "meta": None}}
    with pytest.raises(HistoryUnavailable, match="is not kept"):
        await rows(node)


async def test_a_version_that_a_node_does_not_support_is_a_typed_error() -> None:
    def unknown(params: Any) -> Any:
        raise Refuse(-32015, "Transaction version (1) is not supported by the requesting client")

    node = listing([[list_entry(60)]])
    node.answers = {**node.answers, "getTransaction": unknown}
    with pytest.raises(UnsupportedMethod):
        await rows(node)


def token_balance(index: Any = 1, amount: Any = "7") -> dict[str, Any]:
    """Return the balance of a token account as a node writes it into a transaction."""
    return {"accountIndex": index, "mint": MINT, "owner": WALLET, "uiTokenAmount": {"amount": amount, "decimals": 6}}


@pytest.mark.parametrize(
    "meta",
    [
        {"preBalances": [10]},
        {"postBalances": [1, 2, 3]},
        {"preBalances": [1.5, 1]},
        {"preBalances": [1e18, 1]},
        {"postBalances": [18446744073709551615.0, 1]},
        {"fee": 1e30},
        {"fee": 5.0},
        {"postTokenBalances": [token_balance(2)]},
        {"postTokenBalances": [token_balance(amount=7.0)]},
        {"preTokenBalances": [token_balance()], "postTokenBalances": [token_balance(amount="-1")]},
        {"preTokenBalances": [token_balance()], "postTokenBalances": ["nothing"]},
        {"preTokenBalances": None, "postTokenBalances": [token_balance()]},
        {"preTokenBalances": {}, "postTokenBalances": {}},
        {"preTokenBalances": 7, "postTokenBalances": 7},
        *({"postTokenBalances": [token_balance(amount=each)]} for each in ("", "+1", "1_0", " 1", "\u0663", "9" * 21)),
    ],
)
async def test_balances_that_do_not_fit_the_accounts_are_refused(meta: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer):
        await rows(listing([[list_entry(60)]], **meta))


async def test_what_tokens_moved_is_not_nothing_where_a_node_does_not_keep_it() -> None:
    def node_with(**meta: Any) -> FakeNode:
        node = listing([[list_entry(60)]])
        entry = transaction(60, SIGNATURE, preBalances=[10, 1, 1], postBalances=[5, 1, 1], **meta)
        entry["transaction"]["message"]["accountKeys"].append(TOKEN)
        node.answers = {**node.answers, "getTransaction": lambda params: entry}
        return node

    for untold in ({}, {"preTokenBalances": None, "postTokenBalances": None}):
        with pytest.raises(HistoryUnavailable, match="what token accounts had"):
            await rows(node_with(**untold))
        assert len(await rows(node_with(**untold, err="no"))) == 1
    assert len(await rows(node_with(preTokenBalances=[], postTokenBalances=[]))) == 1


@pytest.mark.parametrize(
    ("lamports", "balances", "raw"),
    [
        pytest.param(
            ([10, 5], [10, 0]), ([token_balance()], [token_balance()]), 7, id="closed-and-listed-on-both-sides"
        ),
        pytest.param(
            ([10, 0], [5, 5]), ([token_balance()], [token_balance()]), 7, id="opened-and-listed-on-both-sides"
        ),
        pytest.param(([10, 5], [5, 5]), ([], [token_balance()]), 7, id="opened-where-lamports-stood-before"),
        pytest.param(([10, 5], [5, 5]), ([token_balance()], []), 7, id="closed-where-lamports-stay"),
        pytest.param(([10, 5], [5, 5]), ([token_balance()], [token_balance()]), 0, id="unchanged"),
    ],
)
async def test_a_token_account_that_opens_or_closes_moves_its_balance(
    lamports: tuple[list[int], list[int]], balances: tuple[list[Any], list[Any]], raw: int
) -> None:
    (had, has), (before, after) = lamports, balances
    node = listing(
        [[list_entry(60)]], preBalances=had, postBalances=has, preTokenBalances=before, postTokenBalances=after
    )
    transfers = [row for row in await rows(node, "transfers") if row["standard"] != "native"]
    assert sum(int.from_bytes(row["raw"], "big") for row in transfers) == raw


@pytest.mark.parametrize("signature", ["", "x", "1" * 88 + "1", SIGNATURE[:-1] + "R", "\u0663"])
async def test_another_transaction_than_the_one_that_was_asked_for_is_refused(signature: str) -> None:
    node = listing([[list_entry(60)]])
    node.answers = {**node.answers, "getTransaction": lambda params: transaction(60, signature)}
    with pytest.raises(BadAnswer):
        await rows(node)
    with pytest.raises(BadAnswer):
        await rows(listing([[list_entry(60, "x")]]))


@pytest.mark.parametrize("time", [-1, 2**37, 2**63 - 1])
async def test_a_transaction_of_a_time_that_cannot_be_is_refused(time: int) -> None:
    node = listing([[list_entry(60)]])
    node.answers = {**node.answers, "getTransaction": lambda params: {**transaction(60, SIGNATURE), "blockTime": time}}
    with pytest.raises(BadAnswer, match="at a time that cannot be"):
        await rows(node)


def test_a_transaction_that_names_accounts_by_tables_can_be_read_twice() -> None:
    loaded = {"writable": [MINT], "readonly": []}
    entry = msgspec.convert(
        transaction(60, SIGNATURE, preBalances=[10, 1, 0], postBalances=[5, 1, 0], loadedAddresses=loaded),
        FetchedTransaction,
    )
    assert change("node", entry, 60) == change("node", entry, 60)


async def test_endpoints_that_are_exchanged_between_reads_give_the_same_wallet() -> None:
    expected, both = await wallet(holding(token_account())), holding(token_account())
    failing = [True]

    def first(params: Any) -> Any:
        if failing.pop() if failing else False:
            raise Refuse(-32011, "Transaction history is not available from this node")
        return both.at([])

    both.answers = {**both.answers, "getProgramAccounts": first}
    assert await wallet(both, "http://one.test", "http://two.test") == expected


def test_movements_pair_equal_amounts_first_and_name_what_is_minted_and_burnt() -> None:
    assert paired_transfers({"a": -5, "b": -3, "c": 3, "d": 5}) == [("a", "d", 5), ("b", "c", 3)]
    assert paired_transfers({"a": -5, "b": 3}, "mint") == [("a", "b", 3), ("a", "mint", 2)]
    assert paired_transfers({"b": 3}, "mint") == [("mint", "b", 3)]


async def test_many_past_blocks_are_answered_by_one_read_of_now() -> None:
    node = holding(token_account())
    chain = node.chain()
    head = (await chain.heads()).latest
    older = Block(head.height - 50, "older", "", head.time_us - 20_000_000)
    before = len(node.asked)
    answers = await chain.answer_each([(older, [WalletRead(WALLET)]), (head, [WalletRead(WALLET)] * 2), (head, [])])
    assert [len(each) for each in answers if isinstance(each, list)] == [1, 2, 0]
    assert node.asked[before:].count("getTokenAccountsByOwner") == 2  # one for each program


async def test_what_a_program_says_now_is_not_told_of_a_past_block() -> None:
    mint_now = account(TOKEN, 1, struct.pack("<36xQBB36x", 7, 6, 1))
    node = holding(token_account())
    plain = node.answers["getMultipleAccounts"]

    def answer_accounts(params: Any) -> Any:
        return node.at([mint_now]) if MINT in params[0] else plain(params)

    node.answers = {**node.answers, "getMultipleAccounts": answer_accounts}
    chain, mint_read = node.chain(), AccountRead(TOKEN, "mint", (MINT,))
    head = (await chain.heads()).latest
    node.slot += 1_000
    now = (await chain.heads()).latest
    both = [WalletRead(WALLET), mint_read]
    past, newest = await chain.answer_each([(head, both), (now, both)])
    assert isinstance(past, list)
    assert isinstance(newest, list)
    assert isinstance(past[1], Unknown)
    assert not isinstance(newest[1], Unknown)


async def test_histories_that_several_days_want_are_read_once() -> None:
    node = listing([[]])
    chain, spans = node.chain(), []
    await chain.heads()
    collect = chain.collect_accounts

    async def record_span(span: Span, *more: Any) -> Any:
        spans.append(span)
        return await collect(span, *more)

    chain.collect_accounts = record_span  # type: ignore[assignment, method-assign]
    shared = JointChain(chain, 2)
    reads = [shared.collect_accounts(Span(60, 90), [WALLET], ("transfers",)) for _ in range(5)]
    results = await asyncio.gather(*reads)
    assert (len(results), spans) == (5, [Span(60, 90)])


@pytest.mark.parametrize("lock", [{"unixTimestamp": 2**63 - 1, "epoch": 2**64 - 1}, {"unixTimestamp": -(2**63)}])
async def test_stake_that_a_stranger_locks_for_ever_takes_nothing_from_a_wallet(lock: dict[str, int]) -> None:
    meta = {"authorized": {"staker": HOME, "withdrawer": WALLET}, "rentExemptReserve": "2282880", "lockup": lock}
    data = {"parsed": {"info": {"meta": meta, "stake": None}, "type": "initialized"}, "program": "stake"}
    node = LedgerNode(Ledger(), {WALLET: []})
    stake = {"pubkey": HOME, "account": {"data": data, "owner": STAKE, "lamports": 2_282_880}}
    node.answers = {**node.answers, "getProgramAccounts": lambda params: node.at([stake])}
    result = await wallet(node)
    [each] = result.stakes
    assert (each.lamports, each.unlock_s) == (2_282_880, max(0, lock["unixTimestamp"]))
    assert result.notes == ()


@pytest.mark.parametrize(
    ("old", "new", "expected"), [("0", "7", (7, TOKEN)), ("7", "0", (7, TOKEN_2022)), ("3", "7", None)]
)
async def test_a_mint_that_was_closed_and_made_anew_by_the_other_program_takes_nothing_from_a_wallet(
    old: str, new: str, expected: tuple[int, str] | None
) -> None:
    node = FakeNode()

    def tokens(params: Any) -> Any:
        program = params[1]["programId"]
        each = token_account(old if program == TOKEN_2022 else new)
        return node.at([{**each, "account": {**each["account"], "owner": program}}])

    node.answers = {**node.answers, "getTokenAccountsByOwner": tokens}
    if expected is None:  # a mint is closed when there is nothing left of it
        with pytest.raises(BadAnswer, match="two programs"):
            await wallet(node)
    else:
        balance = (await wallet(node)).tokens[MINT]
        assert (balance.raw, balance.program) == expected
