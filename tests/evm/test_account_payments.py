"""What the protocol itself pays accounts: withdrawals of validators, and coins that deposits from elsewhere mint."""

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
from tests.evm.scoped import Rows, scoped, together, whole

CONFIGS = Path(__file__).parents[2] / "configs"
BLOCKS = Path(__file__).parents[3] / "shared" / "data" / "beacon" / "blocks"
OF_PLACES = ("transactions", "native", "internal", *PAYS)
pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def paying() -> Iterator[Paying]:
    with paying_chain() as found:
        yield found


async def rows(paying: Paying, has: str, span: Span, accounts: Sequence[str]) -> tuple[Rows, Rows, dict[str, str], Any]:
    """Of a scope and of a whole index, how they were read, and what is left unexplained."""
    provider = Provider(paying.node.url, SETS[has], paying.told)
    explorer = has == "explorer"
    async with served(paying.node, paying.local.deployment, provider, explorer=explorer, pays=PAYS) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        pieces = await scoped(chain, span, accounts, OF_PLACES)
    async with served(
        paying.node, paying.local.deployment, Provider(paying.node.url, fault=paying.told), pays=PAYS
    ) as chain:
        await chain.heads()
        wanted = await whole(chain, span, accounts, OF_PLACES)
    told = [each for piece in pieces for each in piece.unexplained]
    return together(pieces), wanted, dict(pieces[-1].read_methods), told


@pytest.mark.slow("indexes a chain at nodes with different methods")
@pytest.mark.parametrize("has", list(SETS))
async def test_withdrawals_and_mints_of_accounts_are_the_rows_of_a_whole_index_whatever_a_node_has(
    paying: Paying, has: str
) -> None:
    span, accounts = Span(0, paying.node.height), [paying.who("alice"), paying.who("bob")]
    found, wanted, ways, told = await rows(paying, has, span, accounts)
    assert found == wanted
    assert told == []
    assert set(ways) == set(OF_PLACES)
    paid = [row for row in found["transfers"] if row["standard"] == "withdrawal"]
    sums = {who: sum(int.from_bytes(r["raw"], "big") for r in paid if r["recipient"] == who) for who in accounts}
    assert sums == {paying.who("alice"): (80_000_018 + 32 * GWEI) * GWEI, paying.who("bob"): 28 * GWEI}
    assert {(row["tx_index"], row["log_index"], row["sender"]) for row in paid} == {(0, -1, "0x" + "0" * 40)}
    assert [row["item"] for row in paid[:3]] == [1, 2, 3]  # the stranger has the first
    assert {row["tx_hash"] for row in paid} == {
        paying.node.rpc("eth_getBlockByNumber", hex(height), False)["hash"] for height in paying.withdrawn
    }
    minted = [
        (row["item"], int.from_bytes(row["raw"], "big")) for row in found["transfers"] if row["standard"] == "mint"
    ]
    assert minted == [(-1, 11), (-1, 6)] * 4


@pytest.mark.parametrize("has", ["traces", "state"])
async def test_withdrawals_in_blocks_that_may_still_go_are_rows_too(paying: Paying, has: str) -> None:
    span, accounts = Span(paying.node.height - 40, paying.node.height), [paying.who("alice")]
    provider = Provider(paying.node.url, SETS[has], paying.told)
    async with served(paying.node, paying.local.deployment, provider, pays=PAYS) as chain:
        await chain.heads()
        before = await chain.block(span.first - 1)
        (piece,) = await scoped(chain, span, accounts, OF_PLACES, before=before)
    async with served(
        paying.node, paying.local.deployment, Provider(paying.node.url, fault=paying.told), pays=PAYS
    ) as chain:
        wanted = await whole(chain, span, accounts, OF_PLACES)
    assert together([piece]) == wanted
    assert {"withdrawal", "mint"} <= {row["standard"] for row in wanted["transfers"]}
    assert set(piece.read_methods) == set(OF_PLACES)
    assert piece.unexplained == ()


async def test_a_node_with_traces_and_without_state_of_the_past_does_not_give_withdrawals(paying: Paying) -> None:
    """Nothing but the balances of the past says where they are: the dataset counts as unread, and not as empty."""

    def pruned(ask: dict[str, Any]) -> dict[str, Any] | None:
        if ask["method"] in ("eth_getBalance", "eth_getTransactionCount"):
            return {"error": {"code": -32000, "message": "missing trie node 0xabc (path ) state is not available"}}
        return paying.told(ask)

    span = Span(0, paying.node.height)
    provider = Provider(paying.node.url, SETS["traces"], pruned)
    async with served(paying.node, paying.local.deployment, provider, pays=PAYS) as chain:
        await chain.heads()
        chain.node.finalized = span.last
        pieces = await scoped(chain, span, [paying.who("alice")], OF_PLACES)
    assert set(pieces[-1].read_methods) == {"transactions", "native", "internal", "mints"}


async def test_a_chain_whose_protocol_pays_no_coins_has_no_such_datasets_whatever_its_blocks_say(
    paying: Paying,
) -> None:
    """Gnosis' withdrawals are of a token, and a field of a block is no movement."""
    span, accounts = Span(0, paying.node.height), [paying.who("alice"), paying.who("bob")]
    async with served(
        paying.node, paying.local.deployment, Provider(paying.node.url, SETS["state"], paying.told)
    ) as chain:
        assert not set(PAYS) & set(chain.datasets)
        await chain.heads()
        chain.node.finalized = span.last
        pieces = await scoped(chain, span, accounts, ("transactions", "native", "internal"))
    told = {each.height for piece in pieces for each in piece.unexplained}
    assert {*paying.withdrawn, *paying.minted} <= told
    assert not {"withdrawal", "mint"} & {row["standard"] for row in together(pieces)["transfers"]}


@pytest.mark.parametrize("leaves_out", ["all", "one"])
async def test_a_node_that_leaves_withdrawals_out_is_caught_by_the_root_of_their_block(
    paying: Paying, leaves_out: str
) -> None:
    """None at all in any case; fewer than there are, where every hash is computed again."""
    height = min(paying.withdrawn)

    def lies(ask: dict[str, Any]) -> dict[str, Any] | None:
        told = paying.told(ask)
        if told and told["result"]["number"] == hex(height):
            told["result"]["withdrawals"] = told["result"]["withdrawals"][1:] if leaves_out == "one" else []
        return told

    async with served(paying.node, paying.local.deployment, Provider(paying.node.url, fault=lies), pays=PAYS) as chain:
        await chain.heads()
        chain.node.hashed = leaves_out == "one"
        with pytest.raises(Contradiction, match="withdrawals of block"):
            await chain.collect(Span(height, height), ["withdrawals"])
        with pytest.raises(Contradiction, match="withdrawals of block"):
            await BodyReader(chain.node, chain.settings.integrity).read([height], [paying.who("alice")], {})


@pytest.mark.skipif(not BLOCKS.is_dir(), reason="the recorded blocks are not here")
def test_the_withdrawals_of_a_recorded_block_have_the_root_that_its_hash_covers() -> None:
    told = json.loads(gzip.decompress((BLOCKS / "capella_7378495.http.jsonl.gz").read_bytes()).splitlines()[0])
    payload = told["json"]["data"]["message"]["body"]["execution_payload"]
    paid = [
        {
            "index": hex(int(each["index"])),
            "validatorIndex": hex(int(each["validator_index"])),
            "address": each["address"],
            "amount": hex(int(each["amount"])),
        }
        for each in payload["withdrawals"]
    ]
    sent = list_root([bytes.fromhex(each[2:]) for each in payload["transactions"]])
    numbers = {"number": "block_number", "gasLimit": "gas_limit", "gasUsed": "gas_used", "timestamp": "timestamp"}
    texts = {"parentHash": "parent_hash", "miner": "fee_recipient", "stateRoot": "state_root"}
    texts |= {"receiptsRoot": "receipts_root", "logsBloom": "logs_bloom", "extraData": "extra_data"}
    header = {
        "sha3Uncles": "0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347",
        "difficulty": "0x0",
        "nonce": "0x" + "0" * 16,
        "mixHash": payload["prev_randao"],
        "transactionsRoot": f"0x{sent.hex()}",
        "baseFeePerGas": hex(int(payload["base_fee_per_gas"])),
        "withdrawalsRoot": root_of(paid),
        **{name: payload[known] for name, known in texts.items()},
        **{name: hex(int(payload[known])) for name, known in numbers.items()},
    }
    assert len(paid) == 16
    assert f"0x{header_hash('recorded', header).hex()}" == payload["block_hash"]
    facts = load(CONFIGS / "chains" / "ethereum.toml")
    block = FullBlock(
        header["number"],
        payload["block_hash"],
        header["timestamp"],
        [],
        [Withdrawal(**each) for each in paid],
        root_of(paid),
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
        asked = []
        for most in (15_000_000, 40_000):
            monkeypatch.setattr("chainfolio.adapters.evm.accounts.bodies.ANSWER_BYTES", most)
            before = provider.requests
            read = await BodyReader(chain.node, chain.settings.integrity).read(heights, [paying.who("alice")], {})
            assert list(read) == list(heights)
            asked.append(provider.requests - before)
    few, many = asked
    assert few <= 4 < many
