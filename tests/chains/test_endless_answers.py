"""Nodes whose answers never end: every search has a bound, and its error names the cause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from chainfolio.adapters.beacon import registry as beacon_registry
from chainfolio.adapters.beacon import selection as beacon_selection
from chainfolio.adapters.beacon.selection import ValidatorSelector
from chainfolio.adapters.evm.accounts import logs as account_logs
from chainfolio.adapters.solana import history as solana_history
from chainfolio.adapters.solana import listed_transactions
from chainfolio.adapters.solana.account_fields import KEY_SIZE
from chainfolio.adapters.starknet import changes as starknet_changes
from chainfolio.block_search import block_before, blocks_before
from chainfolio.blocks import Block, Span, Spans
from chainfolio.chain_blocks import MAX_SKIPPED, newest_block_in, times_at
from chainfolio.engine.history.joint_reads import JointChain
from chainfolio.engine.stored_prices.past_prices import _Node
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, HistoryUnavailable, Unavailable
from chainfolio.indexer.collect import Collector
from chainfolio.indexer.progress import Progress
from chainfolio.indexer.work import Work
from chainfolio.plans import Unknown
from chainfolio.pricing.http_reads import HttpGet
from chainfolio.scopes import account_filter
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from tests.evm.fakes import ALICE, wired
from tests.evm.fakes import FakeNode as EvmNode
from tests.evm.test_account_faults import all_chunks, chain_of_events
from tests.json_rpc import Refuse
from tests.solana.fakes import WALLET, FakeNode, header, transaction
from tests.starknet.fakes import FakeNode as FakeStarknet
from tests.starknet.test_history_faults import living, read

HEAD = 400_000_000
PAST_US = 1_600_000_000 * 10**6
MOST = 4 * MAX_SKIPPED  # requests of a search that gives up


def without_old_blocks(code: int) -> FakeNode:
    """A Solana node that has its newest block alone, and says `code` of the others."""

    def block(params: Any) -> Any:
        if params[0] < HEAD:
            raise Refuse(code, f"Slot {params[0]} was skipped, or missing in long-term storage")
        return header(params[0])

    node = FakeNode(getBlock=block, getBlocks=lambda params: [])
    node.slot = HEAD
    return node


SIGNATURE_SIZE = 64
Search = Callable[[Any], Any]
SEARCHES: dict[str, Search] = {
    "newest_block_in": lambda chain: newest_block_in(chain, Span(0, HEAD - 1)),
    "times_at": lambda chain: times_at(chain, {5, HEAD - 1}),
    "block_before": lambda chain: block_before(chain, PAST_US),
    "blocks_before": lambda chain: blocks_before(
        Block(HEAD, "", "", 2 * PAST_US), [PAST_US + day for day in range(300)], chain.blocks, source=chain.key
    ),
}


@pytest.mark.slow("searches to the end of what a search may take")
@pytest.mark.parametrize("code", [-32007, -32009])
@pytest.mark.parametrize("search", SEARCHES)
async def test_search_among_heights_that_are_all_skipped_ends_and_names_the_cause(search: str, code: int) -> None:
    node = without_old_blocks(code)
    chain = node.chain()
    await chain.heads()
    with pytest.raises(HistoryUnavailable, match=r"solana: .* said to have no block.*use an archive node"):
        await SEARCHES[search](chain)
    assert node.asked.count("getBlock") <= MOST


async def test_search_of_blocks_that_are_cleaned_up_ends_at_the_first() -> None:
    node = without_old_blocks(-32001)
    chain = node.chain()
    await chain.heads()
    with pytest.raises(HistoryUnavailable, match="archive node"):
        await newest_block_in(chain, Span(0, HEAD - 1))
    assert node.asked.count("getBlock") < 100


async def test_history_of_an_account_ends_if_all_old_slots_are_skipped(tmp_path: Path) -> None:
    node = without_old_blocks(-32007)
    chain, lake, tail = node.chain(), Lake(str(tmp_path / "lake")), Tail(tmp_path / "tail.db")
    await chain.heads()
    datasets = ("transactions", "native", "transfers")
    work = Work(Spans([Span(0, HEAD - 1)]), datasets, (account_filter(WALLET),))
    collector = Collector(chain, lake, tail, Environment(), Progress(Environment().clock, 1))
    with pytest.raises(HistoryUnavailable, match="use an archive node"):
        await collector.run([work])
    tail.close()
    assert node.asked.count("getBlock") <= MOST


async def test_longest_run_of_skipped_heights_is_looked_through() -> None:
    node = without_old_blocks(-32007)
    below = HEAD - MAX_SKIPPED // 2
    node.answers = {
        **node.answers,
        "getBlock": lambda params: header(params[0]) if params[0] <= below else skip_heights(),
    }

    def skip_heights() -> Any:
        raise Refuse(-32007, "skipped")

    chain = node.chain()
    chain.node.finalized = HEAD
    newest = await newest_block_in(chain, Span(0, HEAD))
    assert newest is not None
    assert newest.height == below


def base58(number: int, size: int) -> str:
    """A key or a signature that no other test has."""
    from solders.pubkey import Pubkey
    from solders.signature import Signature

    content = (number + 1).to_bytes(size, "little")
    return str(Pubkey.from_bytes(content) if size == KEY_SIZE else Signature.from_bytes(content))


async def test_list_of_transactions_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed_transactions, "MAX_PAGES", 50)
    pages = 0

    def page(params: Any) -> Any:
        nonlocal pages
        pages += 1
        return [{"signature": base58(pages, SIGNATURE_SIZE), "slot": 60, "err": None}]

    chain = FakeNode(getSignaturesForAddress=page).chain()
    await chain.heads()
    with pytest.raises(BadAnswer, match=r"without an end.*another node"):
        await chain.collect_accounts(Span(0, 90), [WALLET], ["transactions"])
    assert pages == 50


async def test_token_accounts_that_lead_to_further_ones_without_an_end_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(solana_history, "MAX_ROUNDS", 20)
    order: dict[str, int] = {WALLET: 0}

    def signatures(params: Any) -> Any:
        address, options = params
        number = order.setdefault(address, len(order))
        return [] if "before" in options else [{"signature": base58(number, SIGNATURE_SIZE), "slot": 60, "err": None}]

    def token_transaction(params: Any) -> Any:
        number = next(each for each in order.values() if base58(each, SIGNATURE_SIZE) == params[0])
        document = transaction(60, params[0])
        document["transaction"]["message"]["accountKeys"][1] = base58(1000 + number, KEY_SIZE)
        token_balance = {
            "accountIndex": 1,
            "mint": base58(7, KEY_SIZE),
            "owner": WALLET,
            "uiTokenAmount": {"amount": "1", "decimals": 0},
        }
        document["meta"]["postTokenBalances"] = [token_balance]
        return document

    chain = FakeNode(getSignaturesForAddress=signatures, getTransaction=token_transaction).chain()
    await chain.heads()
    with pytest.raises(BadAnswer, match=r"names token accounts of .* without an end"):
        await chain.collect_accounts(Span(0, 90), [WALLET], ["transfers"])
    assert len(order) == 20


async def test_nonces_that_rise_and_fall_are_refused_before_every_block_is_asked_for() -> None:
    node, request_count = living(), 0

    def nonce(params: Any) -> str:
        nonlocal request_count
        request_count += 1
        height = node.height(params[0])
        return hex(height * 7919 % 1000 + (500 if height == node.final else 0))

    node.head, node.final = 900, 890
    node.answers = {**node.answers, "starknet_getNonce": nonce}
    with pytest.raises(BadAnswer, match="is lower after block"):
        await read(node, Span(0, 890))
    assert request_count < 20


async def test_logs_that_are_new_in_every_answer_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_logs, "MAX_REPEATS", 20)
    node, answers = EvmNode(chain_of_events()), 0

    def fewer_left_out(params: list[Any]) -> Any:
        nonlocal answers
        answers += 1
        return EvmNode.eth_getLogs(node, params)[: answers // 3]

    node.on["eth_getLogs"] = fewer_left_out
    over = wired(node, checked=True)
    with pytest.raises(BadAnswer, match=r"gives new logs of blocks .* whenever it is asked"):
        await all_chunks(over, [ALICE], 90)


NUMBERS = (
    "effective_balance",
    "activation_eligibility_epoch",
    "activation_epoch",
    "exit_epoch",
    "withdrawable_epoch",
)


class Registry:
    """Nodes of a beacon chain with validators without an end."""

    key = "beacon"

    async def read(self, path: str, kind: Any, body: Any) -> Any:
        """Return as many as are requested."""
        texts = {"pubkey": "0x" + "aa" * 48, "withdrawal_credentials": "0x" + "00" * 32}
        row = {"balance": "0", "validator": {**dict.fromkeys(NUMBERS, "0"), **texts, "slashed": False}}
        return msgspec.convert([{**row, "index": each} for each in body["ids"]], kind, strict=False)


async def test_registry_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beacon_registry, "MAX_VALIDATORS", 100)
    monkeypatch.setattr(beacon_registry, "PAGE_SIZE", 10)
    monkeypatch.setattr(beacon_selection, "PAGE_SIZE", 10)
    with pytest.raises(BadAnswer, match="more than 100 validators"):
        await ValidatorSelector(Registry()).indexes(["0x" + "bb" * 20])  # type: ignore[arg-type]

    async def part(first: int, count: int) -> Any:
        return type("Part", (), {"index": np.arange(first, first + count), "__len__": lambda self: count})()

    with pytest.raises(BadAnswer, match="more than 100 validators"):
        await beacon_registry.Registry(Registry(), None)._read_pages(part)  # type: ignore[arg-type]


class Gone:
    """A chain that answers at no block, and says so block by block."""

    key = "gone"

    def __init__(self, error: Exception) -> None:
        self.error, self.asked = error, 0

    async def answer_each(self, requests: Sequence[tuple[Block, Sequence[Any]]]) -> list[Any]:
        """An error for each block."""
        self.asked += 1
        assert self.asked < 10, "it is asked without an end"
        return [self.error] * len(requests)


ERRORS = [HistoryUnavailable("node", 5, "pruned"), Unavailable("node", "down")]
BLOCKS = [Block(height, f"0x{height}", "0x", height) for height in (5, 6)]
READ = HttpGet("https://one.test")


@pytest.mark.parametrize("error", ERRORS, ids=["pruned", "down"])
async def test_prices_of_blocks_that_no_node_answers_are_lost(error: Any) -> None:
    node = _Node(Gone(error))  # type: ignore[arg-type]
    answers = await node.answers([(block, READ) for block in BLOCKS])
    assert answers == [Unknown(error.reason)] * 2
    assert node.unavailable.keys() == {5, 6}


@pytest.mark.parametrize("error", ERRORS, ids=["pruned", "down"])
async def test_snapshots_of_blocks_that_no_node_answers_fail(error: Any) -> None:
    shared = JointChain(Gone(error), 2)  # type: ignore[arg-type]
    outcomes = await asyncio.gather(*(shared.answer([READ], block) for block in BLOCKS), return_exceptions=True)
    assert [type(each) for each in outcomes] == [type(error)] * 2


async def test_balances_that_change_in_every_block_are_read_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starknet_changes, "MAX_INTERVALS", 50)
    node, widest = living(), 0

    def balance(params: Any) -> list[str]:
        return [hex(node.height(params[1]) % 7), "0x0"]

    async def post(source: str, url: str, body: bytes, timeout_s: float) -> Any:
        nonlocal widest
        widest = max(widest, body.count(b"starknet_call"))
        return await FakeStarknet.post(node, source, url, body, timeout_s)

    node.head, node.final = 900, 890
    node.answers = {**node.answers, "starknet_call": balance}
    node.post = post  # type: ignore[method-assign]
    piece = await read(node, Span(0, 890))
    assert 0 < piece.span.last < 200
    assert widest <= 250
