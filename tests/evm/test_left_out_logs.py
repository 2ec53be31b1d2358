"""Real nodes that omit, alter or invent logs of an account: faults that receipts reveal, and others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from chainfolio.adapters.evm.accounts.logs import INCOMPLETE
from chainfolio.adapters.evm.chain import EvmChain
from chainfolio.blocks import Span
from chainfolio.chain_results import SpanTables
from chainfolio.errors import BadAnswer
from chainfolio.indexer.scopes import groups as groups_of
from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import tx
from chainfolio.localchain.node import LocalNode
from chainfolio.tables import APPROVALS, TRANSACTIONS, TRANSFERS
from tests.evm.anvil import Local, chain_of, populated
from tests.evm.fakes import errors_of
from tests.evm.limited import Provider, changing, served
from tests.evm.scoped import Rows, indexed_rows, merged_rows, scoped

DATASETS = ("transactions", "native", "transfers", "approvals", "events")
TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
APPROVAL = "0x8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925"
pytestmark = pytest.mark.node
Log = dict[str, Any]


@dataclass
class Lived:
    """A chain on which alice paid, approved and was paid, with the logs that a test omits."""

    local: Local
    transfer: Log  # alice pays
    approval: Log  # alice approves
    arrival: Log  # another account pays alice

    @property
    def node(self) -> LocalNode:
        return self.local.node

    @property
    def alice(self) -> str:
        return self.local.deployment.accounts["alice"].lower()

    @property
    def span(self) -> Span:
        return Span(0, self.node.height)


@pytest.fixture(scope="module")
def lived() -> Iterator[Lived]:
    with LocalNode() as node:
        local = populated(node)
        alice, bob = (local.deployment.accounts[name] for name in ("alice", "bob"))
        dai = local.deployment.tokens["DAI"].address
        logs = []
        for payment in (
            tx(alice, dai, "transfer(address,uint256)", bob, 700),
            tx(alice, dai, "approve(address,uint256)", bob, 7 * WAD),
            tx(bob, dai, "transfer(address,uint256)", alice, 70),
        ):
            node.mine(5)
            height = node.settle([payment])
            logs += node.rpc("eth_getLogs", {"fromBlock": hex(height), "toBlock": hex(height)})
        node.mine(80)
        assert [log["topics"][0] for log in logs] == [TRANSFER, APPROVAL, TRANSFER]
        yield Lived(local, *logs)


def log_key(log: Log) -> tuple[str, str]:
    return log["blockNumber"], log["logIndex"]


def without(lived: Lived, *lost: Log) -> Provider:
    """The node without some logs, however they are asked for; their receipts hold them."""
    lost_keys = {log_key(log) for log in lost}
    answer = changing(lived.node, eth_getLogs=lambda logs: [log for log in logs if log_key(log) not in lost_keys])
    return Provider(lived.node.url, fault=answer)


def altered(lived: Lived, log: Log) -> Provider:
    """The node, which gives a log with another amount where logs are asked for."""
    changed = {**log, "data": "0x" + f"{10**24:064x}"}
    return Provider(
        lived.node.url,
        fault=changing(
            lived.node, eth_getLogs=lambda logs: [changed if log_key(each) == log_key(log) else each for each in logs]
        ),
    )


def forging(lived: Lived, log: Log, **changes: Any) -> Provider:
    """The node, whose receipt of a log's transaction holds one more log, changed like this."""

    def forge(receipt: Log) -> Log:
        if receipt is None or receipt["transactionHash"] != log["transactionHash"]:
            return receipt
        last = receipt["logs"][-1]
        extra = {**last, "logIndex": hex(int(last["logIndex"], 16) + 1), **changes}
        return {**receipt, "logs": [*receipt["logs"], extra]}

    return Provider(
        lived.node.url,
        fault=changing(
            lived.node,
            eth_getTransactionReceipt=forge,
            eth_getBlockReceipts=lambda receipts: [forge(each) for each in receipts],
        ),
    )


async def reference(lived: Lived) -> Rows:
    async with chain_of(lived.local) as chain:
        await chain.heads()
        return await indexed_rows(chain, lived.span, [lived.alice], DATASETS)


async def read(chain: EvmChain, lived: Lived, *, linked: bool = False) -> list[SpanTables]:
    """Read all pieces as an indexer does: logs first, transactions at their positions afterwards."""
    await chain.heads()
    span, before = (Span(1, lived.node.height), await chain.block(0)) if linked else (lived.span, None)
    if not linked:
        chain.node.finalized = span.last
    groups = [[name for name in DATASETS if name in group] for group in groups_of(chain.datasets)]
    return [
        piece
        for datasets in filter(None, groups)
        for piece in await scoped(chain, span, [lived.alice], datasets, before=before, with_receipt_rows=True)
    ]


def reasons(pieces: list[SpanTables]) -> list[str]:
    return [each.reason for piece in pieces for each in piece.unexplained]


def histories(rows: Rows) -> Rows:
    """Return the rows of the account as stored: one per key, without rows that no topic shows."""
    stored: Rows = {}
    for table in (TRANSACTIONS, TRANSFERS, APPROVALS):
        by_key = {tuple(row[name] for name in table.key): row for row in rows[table.name]}
        stored[table.name] = [by_key[key] for key in sorted(by_key) if by_key[key].get("layout") != "indexed0"]
    return stored


@pytest.mark.slow("other logs are found in the same way", fast=["transfer-final blocks", "approval-blocks at the head"])
@pytest.mark.parametrize("linked", [False, True], ids=["final blocks", "blocks at the head"])
@pytest.mark.parametrize("kind", ["transfer", "approval"])
async def test_a_log_of_an_own_transaction_is_taken_from_its_receipt_and_the_node_is_named(
    lived: Lived, kind: str, linked: bool
) -> None:
    omitted = getattr(lived, kind)
    async with served(lived.node, lived.local.deployment, without(lived, omitted)) as chain:
        pieces = await read(chain, lived, linked=linked)
        assert histories(merged_rows(pieces)) == histories(await reference(lived))
        (endpoint,) = chain.node.endpoints
        assert endpoint.capabilities[INCOMPLETE] == 1
        assert endpoint.errors.counts["OmittedLogs"] == 1
        (reason,) = reasons(pieces)
        log = f"log {int(omitted['logIndex'], 16)} of transaction {omitted['transactionHash']}"
        assert reason.startswith(f"provider-0.test left out {log} in block {int(omitted['blockNumber'], 16)}")
        assert "add an endpoint" in reason


async def test_an_altered_log_is_taken_from_the_receipt(lived: Lived) -> None:
    async with served(lived.node, lived.local.deployment, altered(lived, lived.transfer)) as chain:
        pieces = await read(chain, lived)
        assert histories(merged_rows(pieces)) == histories(await reference(lived))
        assert len(reasons(pieces)) == 1


@pytest.mark.slow("other blocks of the same chain", fast=["final blocks"])
@pytest.mark.parametrize("linked", [False, True], ids=["final blocks", "blocks at the head"])
async def test_the_window_is_read_from_another_endpoint_and_nothing_is_left_to_say(lived: Lived, linked: bool) -> None:
    lossy = without(lived, lived.transfer, lived.arrival)
    async with served(lived.node, lived.local.deployment, lossy, Provider(lived.node.url)) as chain:
        pieces = await read(chain, lived, linked=linked)
        assert histories(merged_rows(pieces)) == histories(await reference(lived))
        first, second = chain.node.endpoints
        assert (first.capabilities.get(INCOMPLETE), second.capabilities.get(INCOMPLETE)) == (1, None)
        assert not reasons(pieces)


async def test_comparing_asks_nothing_more_and_believes_a_whole_answer(lived: Lived) -> None:
    """The reader asks for one receipt per transaction of the account, and for no other proof."""
    provider = Provider(lived.node.url)
    async with served(lived.node, lived.local.deployment, provider) as chain:
        pieces = await read(chain, lived)
        own_rows = merged_rows(pieces)["transactions"]
        created = [row for row in own_rows if row["recipient"] is None]
        assert provider.method_counts["eth_getTransactionReceipt"] >= len(own_rows) - len(created)
        assert provider.method_counts["eth_getBlockReceipts"] == 0
        assert not reasons(pieces)
        assert not errors_of(chain.node).get("provider-0.test", {}).get("OmittedLogs")


async def test_a_receipt_with_a_log_that_the_bloom_denies_is_refused(lived: Lived) -> None:
    forged = forging(lived, lived.transfer, address="0x" + "ba" * 20)
    async with served(lived.node, lived.local.deployment, forged) as chain:
        with pytest.raises(BadAnswer, match="which the bloom of its block denies"):
            await read(chain, lived)
    async with served(lived.node, lived.local.deployment, forged, Provider(lived.node.url)) as chain:
        assert histories(merged_rows(await read(chain, lived))) == histories(await reference(lived))
        assert chain.node.endpoints[1].capabilities.get(INCOMPLETE) is None


async def test_a_forged_receipt_accuses_no_other_endpoint(lived: Lived) -> None:
    """The bloom allows the forged log: the first endpoint contradicts itself, the second one does not."""
    forged = forging(lived, lived.transfer, data="0x" + f"{10**24:064x}")
    async with served(lived.node, lived.local.deployment, forged, Provider(lived.node.url)) as chain:
        pieces = await read(chain, lived)
        assert histories(merged_rows(pieces)) == histories(await reference(lived))
        liar, honest = chain.node.endpoints
        assert (liar.capabilities.get(INCOMPLETE), honest.capabilities.get(INCOMPLETE)) == (1, None)
        assert not honest.errors.counts
        (reason,) = reasons(pieces)
        assert "provider-0.test and provider-1.test contradict each other about log" in reason


async def test_with_roots_a_forged_receipt_is_refused_by_the_receipts_root(lived: Lived) -> None:
    forged = forging(lived, lived.transfer, data="0x" + f"{10**24:064x}")
    urls = (forged, Provider(lived.node.url))
    async with served(lived.node, lived.local.deployment, *urls, integrity="roots") as chain:
        pieces = await read(chain, lived)
        assert histories(merged_rows(pieces)) == histories(await reference(lived))
        evidence = chain.node.endpoints[0].health.evidence
        assert evidence is not None
        assert evidence.truth.startswith("their root is not the header's")
        assert not reasons(pieces)


@pytest.mark.slow("other logs are found in the same way", fast=["transfer-final blocks", "arrival-blocks at the head"])
@pytest.mark.parametrize("linked", [False, True], ids=["final blocks", "blocks at the head"])
@pytest.mark.parametrize("kind", ["transfer", "approval", "arrival"])
async def test_with_roots_of_every_block_every_left_out_log_is_found_and_proven(
    lived: Lived, kind: str, linked: bool
) -> None:
    lossy = without(lived, getattr(lived, kind))
    settings: dict[str, Any] = {"integrity": "roots", "sample": 1}
    async with served(lived.node, lived.local.deployment, lossy, **settings) as chain:
        pieces = await read(chain, lived, linked=linked)
        assert histories(merged_rows(pieces)) == histories(await reference(lived))
        assert chain.node.endpoints[0].errors.counts["Contradiction"] == 1
        assert not reasons(pieces), "every block is proven: nothing more can be lacking"
    async with served(lived.node, lived.local.deployment, lossy, Provider(lived.node.url), **settings) as chain:
        pieces = await read(chain, lived, linked=linked)
        assert histories(merged_rows(pieces)) == histories(await reference(lived))
        evidence = chain.node.endpoints[0].health.evidence
        assert evidence is not None
        assert "left out log" in evidence.given
        assert "by its receipts root" in evidence.truth


async def test_without_roots_a_payment_by_others_that_a_single_node_leaves_out_is_not_noticed(lived: Lived) -> None:
    """The documentation describes this limit of the default; `reconcile` finds the payment."""
    async with served(lived.node, lived.local.deployment, without(lived, lived.arrival)) as chain:
        pieces = await read(chain, lived)
        scoped_rows, expected = (histories(rows)["transfers"] for rows in (merged_rows(pieces), await reference(lived)))
        assert [row["tx_hash"] for row in expected if row not in scoped_rows] == [lived.arrival["transactionHash"]]
        assert not reasons(pieces)


async def test_with_roots_few_blocks_are_proven_where_few_have_something(lived: Lived) -> None:
    """Receipts of the blocks that have something of the account alone, and no header but theirs."""
    provider = Provider(lived.node.url)
    async with served(lived.node, lived.local.deployment, provider, integrity="roots", sample=10**9) as chain:
        pieces = await read(chain, lived)
        rows = merged_rows(pieces)
        heights = {
            row["height"] for name in ("transactions", "transfers", "approvals", "logs") for row in rows.get(name, [])
        }
        assert len(heights) <= provider.method_counts["eth_getBlockReceipts"] <= 2 * len(heights)
        assert provider.method_counts["eth_getTransactionReceipt"] == 0


async def test_two_endpoints_that_agree_about_logs_and_leave_out_the_same_one_are_compared_with_receipts(
    lived: Lived,
) -> None:
    urls = (without(lived, lived.approval), without(lived, lived.approval))
    async with served(lived.node, lived.local.deployment, *urls, quorum=2) as chain:
        pieces = await read(chain, lived)
        assert histories(merged_rows(pieces)) == histories(await reference(lived))
        assert [endpoint.capabilities[INCOMPLETE] for endpoint in chain.node.endpoints] == [1, 1]


async def test_receipts_that_are_read_without_their_logs_give_all_rows_of_the_account(lived: Lived) -> None:
    """A restart between both reads stores no row twice."""
    async with served(lived.node, lived.local.deployment, Provider(lived.node.url)) as chain:
        await chain.heads()
        chain.node.finalized = lived.span.last
        pieces = await scoped(chain, lived.span, [lived.alice], ["transactions", "native"], with_receipt_rows=True)
        scoped_rows, expected = (histories(rows) for rows in (merged_rows(pieces), await reference(lived)))
        own_hashes = {row["hash"] for row in expected["transactions"]}
        for name in ("transfers", "approvals"):
            assert scoped_rows[name] == [row for row in expected[name] if row["tx_hash"] in own_hashes]
