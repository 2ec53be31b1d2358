"""Payments of the protocol to accounts: withdrawals of validators, and coins minted by deposits."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.evm.accounts.bodies import BodyReader
from chainfolio.adapters.evm.datasets.transactions import FullBlock
from chainfolio.adapters.evm.facts import load
from chainfolio.adapters.evm.roots import Withdrawal, check_withdrawals, header_hash, list_root
from chainfolio.blocks import Span
from chainfolio.errors import Contradiction
from tests.evm.limited import SETS, Provider, served
from tests.evm.paying import GWEI, PAYS, Paying, paying_chain, root_of
from tests.evm.scoped import Rows, indexed_rows, merged_rows, scoped

CONFIGS = Path(__file__).parents[2] / "configs"
BLOCKS = Path(__file__).parents[3] / "shared" / "data" / "beacon" / "blocks"
OF_PLACES = ("transactions", "native", "internal", *PAYS)
pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def paying() -> Iterator[Paying]:
    with paying_chain() as chain:
        yield chain


async def rows(paying: Paying, has: str, span: Span, accounts: Sequence[str]) -> tuple[Rows, Rows, dict[str, str], Any]:
    """Return scoped rows, rows of a full index, the methods by dataset, and the unexplained amounts."""
    provider = Provider(paying.node.url, SETS[has], paying.answer)
    explorer = has == "explorer"
    async with served(paying.node, paying.local.deployment, provider, explorer=explorer, pays=PAYS) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        pieces = await scoped(chain, span, accounts, OF_PLACES)
    async with served(
        paying.node, paying.local.deployment, Provider(paying.node.url, fault=paying.answer), pays=PAYS
    ) as chain:
        await chain.heads()
        expected = await indexed_rows(chain, span, accounts, OF_PLACES)
    gaps = [each for piece in pieces for each in piece.unexplained]
    return merged_rows(pieces), expected, dict(pieces[-1].read_methods), gaps


@pytest.mark.slow("indexes a chain at nodes with different methods")
@pytest.mark.parametrize("has", list(SETS))
async def test_withdrawals_and_mints_of_accounts_are_the_rows_of_a_whole_index_whatever_a_node_has(
    paying: Paying, has: str
) -> None:
    span, accounts = Span(0, paying.node.height), [paying.address_of("alice"), paying.address_of("bob")]
    scoped_rows, expected, methods, gaps = await rows(paying, has, span, accounts)
    assert scoped_rows == expected
    assert gaps == []
    assert set(methods) == set(OF_PLACES)
    withdrawals = [row for row in scoped_rows["transfers"] if row["standard"] == "withdrawal"]
    sums = {
        account: sum(int.from_bytes(r["raw"], "big") for r in withdrawals if r["recipient"] == account)
        for account in accounts
    }
    assert sums == {paying.address_of("alice"): (80_000_018 + 32 * GWEI) * GWEI, paying.address_of("bob"): 28 * GWEI}
    assert {(row["tx_index"], row["log_index"], row["sender"]) for row in withdrawals} == {(0, -1, "0x" + "0" * 40)}
    assert [row["item"] for row in withdrawals[:3]] == [1, 2, 3]  # the stranger has the first
    assert {row["tx_hash"] for row in withdrawals} == {
        paying.node.rpc("eth_getBlockByNumber", hex(height), False)["hash"] for height in paying.withdrawn
    }
    minted = [
        (row["item"], int.from_bytes(row["raw"], "big"))
        for row in scoped_rows["transfers"]
        if row["standard"] == "mint"
    ]
    assert minted == [(-1, 11), (-1, 6)] * 4


@pytest.mark.parametrize("has", ["traces", "state"])
async def test_withdrawals_in_blocks_that_may_still_go_are_rows_too(paying: Paying, has: str) -> None:
    span, accounts = Span(paying.node.height - 40, paying.node.height), [paying.address_of("alice")]
    provider = Provider(paying.node.url, SETS[has], paying.answer)
    async with served(paying.node, paying.local.deployment, provider, pays=PAYS) as chain:
        await chain.heads()
        before = await chain.block(span.first - 1)
        (piece,) = await scoped(chain, span, accounts, OF_PLACES, before=before)
    async with served(
        paying.node, paying.local.deployment, Provider(paying.node.url, fault=paying.answer), pays=PAYS
    ) as chain:
        expected = await indexed_rows(chain, span, accounts, OF_PLACES)
    assert merged_rows([piece]) == expected
    assert {"withdrawal", "mint"} <= {row["standard"] for row in expected["transfers"]}
    assert set(piece.read_methods) == set(OF_PLACES)
    assert piece.unexplained == ()


async def test_a_node_with_traces_and_without_state_of_the_past_does_not_give_withdrawals(paying: Paying) -> None:
    """Only past balances show withdrawals: without them the dataset counts as unread, not as empty."""

    def pruned(ask: dict[str, Any]) -> dict[str, Any] | None:
        if ask["method"] in ("eth_getBalance", "eth_getTransactionCount"):
            return {"error": {"code": -32000, "message": "missing trie node 0xabc (path ) state is not available"}}
        return paying.answer(ask)

    span = Span(0, paying.node.height)
    provider = Provider(paying.node.url, SETS["traces"], pruned)
    async with served(paying.node, paying.local.deployment, provider, pays=PAYS) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        pieces = await scoped(chain, span, [paying.address_of("alice")], OF_PLACES)
    assert set(pieces[-1].read_methods) == {"transactions", "native", "internal", "mints"}


async def test_a_chain_whose_protocol_pays_no_coins_has_no_such_datasets_whatever_its_blocks_say(
    paying: Paying,
) -> None:
    """Gnosis' withdrawals are of a token, and a field of a block is no movement."""
    span, accounts = Span(0, paying.node.height), [paying.address_of("alice"), paying.address_of("bob")]
    async with served(
        paying.node, paying.local.deployment, Provider(paying.node.url, SETS["state"], paying.answer)
    ) as chain:
        assert not set(PAYS) & set(chain.datasets)
        await chain.heads()
        chain.node.finalized = span.last
        pieces = await scoped(chain, span, accounts, ("transactions", "native", "internal"))
    gap_heights = {each.height for piece in pieces for each in piece.unexplained}
    assert {*paying.withdrawn, *paying.minted} <= gap_heights
    assert not {"withdrawal", "mint"} & {row["standard"] for row in merged_rows(pieces)["transfers"]}


@pytest.mark.parametrize("leaves_out", ["all", "one"])
async def test_a_node_that_leaves_withdrawals_out_is_caught_by_the_root_of_their_block(
    paying: Paying, leaves_out: str
) -> None:
    """None at all in any case; fewer than there are, where every hash is computed again."""
    height = min(paying.withdrawn)

    def lies(ask: dict[str, Any]) -> dict[str, Any] | None:
        response = paying.answer(ask)
        if response and response["result"]["number"] == hex(height):
            response["result"]["withdrawals"] = response["result"]["withdrawals"][1:] if leaves_out == "one" else []
        return response

    async with served(paying.node, paying.local.deployment, Provider(paying.node.url, fault=lies), pays=PAYS) as chain:
        await chain.heads()
        chain.node.hashed = leaves_out == "one"
        with pytest.raises(Contradiction, match="withdrawals of block"):
            await chain.collect(Span(height, height), ["withdrawals"])
        with pytest.raises(Contradiction, match="withdrawals of block"):
            await BodyReader(chain.node, chain.settings.integrity).read([height], [paying.address_of("alice")], {})


@pytest.mark.skipif(not BLOCKS.is_dir(), reason="the recorded blocks are not here")
def test_the_withdrawals_of_a_recorded_block_have_the_root_that_its_hash_covers() -> None:
    exchange = json.loads(gzip.decompress((BLOCKS / "capella_7378495.http.jsonl.gz").read_bytes()).splitlines()[0])
    payload = exchange["json"]["data"]["message"]["body"]["execution_payload"]
    entries = [
        {
            "index": hex(int(each["index"])),
            "validatorIndex": hex(int(each["validator_index"])),
            "address": each["address"],
            "amount": hex(int(each["amount"])),
        }
        for each in payload["withdrawals"]
    ]
    transactions_root = list_root([bytes.fromhex(each[2:]) for each in payload["transactions"]])
    numbers = {"number": "block_number", "gasLimit": "gas_limit", "gasUsed": "gas_used", "timestamp": "timestamp"}
    texts = {"parentHash": "parent_hash", "miner": "fee_recipient", "stateRoot": "state_root"}
    texts |= {"receiptsRoot": "receipts_root", "logsBloom": "logs_bloom", "extraData": "extra_data"}
    header = {
        "sha3Uncles": "0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347",
        "difficulty": "0x0",
        "nonce": "0x" + "0" * 16,
        "mixHash": payload["prev_randao"],
        "transactionsRoot": f"0x{transactions_root.hex()}",
        "baseFeePerGas": hex(int(payload["base_fee_per_gas"])),
        "withdrawalsRoot": root_of(entries),
        **{name: payload[source_name] for name, source_name in texts.items()},
        **{name: hex(int(payload[source_name])) for name, source_name in numbers.items()},
    }
    assert len(entries) == 16
    assert f"0x{header_hash('recorded', header).hex()}" == payload["block_hash"]
    facts = load(CONFIGS / "chains" / "ethereum.toml")
    block = FullBlock(
        header["number"],
        payload["block_hash"],
        header["timestamp"],
        [],
        [Withdrawal(**each) for each in entries],
        root_of(entries),
    )
    check_withdrawals(facts, "recorded", block, hashed=True)
    block.withdrawals = block.withdrawals[:-1] if block.withdrawals else None
    with pytest.raises(Contradiction, match="gave 15 withdrawals"):
        check_withdrawals(facts, "recorded", block, hashed=True)


async def test_as_many_bodies_are_asked_for_at_once_as_make_an_answer_of_some_megabytes(
    paying: Paying, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small blocks in few requests, large ones a few at a time."""
    heights, provider = range(1, 181), Provider(paying.node.url)
    async with served(paying.node, paying.local.deployment, provider) as chain:
        await chain.heads()
        request_counts = []
        for limit in (15_000_000, 40_000):
            monkeypatch.setattr("chainfolio.adapters.evm.accounts.bodies.ANSWER_BYTES", limit)
            before = provider.requests
            read = await BodyReader(chain.node, chain.settings.integrity).read(
                heights, [paying.address_of("alice")], {}
            )
            assert list(read) == list(heights)
            request_counts.append(provider.requests - before)
    requests_large, requests_small = request_counts
    assert requests_large <= 4 < requests_small
