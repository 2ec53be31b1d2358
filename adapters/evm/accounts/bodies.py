"""The transactions of some accounts, from full blocks at the heights where they did something."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from adapters.evm import logs as columns
from adapters.evm.accounts.named import Sent, named
from adapters.evm.accounts.receipt_logs import ReceiptLogs, logs_of_receipt, naming
from adapters.evm.accounts.remembered import Remembered
from adapters.evm.datasets.internal import Place
from adapters.evm.datasets.transactions import Done, FullBlock, Receipt, Transaction, done_key, matched
from adapters.evm.datasets.withdrawals import GWEI
from adapters.evm.facts import MINTS, WITHDRAWALS
from adapters.evm.logs import Logs
from adapters.evm.node import Header, raw_blocks, results_of
from adapters.evm.proven import are_receipts_proven, proven_receipts, written
from adapters.evm.roots import check_header, check_transactions, check_withdrawals
from chainfolio.errors import BadAnswer, Reorged, Unsupported
from transport.endpoint import Endpoint
from transport.wire import Request, typed

if TYPE_CHECKING:
    from adapters.evm.chain import EvmChain

FIRST, MOST = 50, 500  # full blocks of the first request, and of any
PLACES = "by_place"  # what is learnt of an endpoint: whether it gives a transaction by its place
ANSWER = 15_000_000  # bytes of one answer, about: 50 blocks of a busy chain


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """A block, and those of its transactions that concern some accounts; `names` are the hashes of all. With a header
    the block has those alone that were known by hash. `logs`: those that receipts hold and that name the accounts, from
    the endpoint `source`; of all receipts of the block if it `is_proven`, else of those that were read."""

    full: FullBlock
    own: tuple[Done, ...]
    logs: Logs
    names: tuple[str, ...]
    source: str
    is_proven: bool = False
    header: Header | None = None

    @property
    def place(self) -> Place:
        """The block as its inside is asked for."""
        full = self.full
        return Place(full.height, full.time_s, full.hash.lower(), self.names)

    def paid(self, account: str) -> int:
        """What the transactions changed of an account's coins."""
        total = 0
        for done in self.own:
            raw = int(done.sent.value, 16) if done.status != 0 and done.recipient else 0
            total += raw * ((done.recipient == account) - (done.sent.sender.lower() == account))
            total += (done.minted - done.fee) * (done.sent.sender.lower() == account)
        return total

    def withdrawn(self, account: str) -> int:
        """What validators withdrew to an account."""
        every = self.full.withdrawals or ()
        return GWEI * sum(int(each.amount, 16) for each in every if each.address.lower() == account)

    def key(self) -> Hashable:
        """What two equal ones share."""
        paid = tuple((each.address.lower(), int(each.amount, 16)) for each in self.full.withdrawals or ())
        return self.full.hash.lower(), paid, tuple(done_key(each) for each in self.own), tuple(written(self.logs))


def receipt_logs(bodies: Collection[Body]) -> ReceiptLogs:
    """The logs that the receipts of some blocks hold."""
    return ReceiptLogs(
        columns.join([body.logs for body in bodies]), {body.full.height: body.source for body in bodies},
        frozenset(body.full.height for body in bodies if body.is_proven),
    )  # fmt: skip


async def bodies(
    chain: EvmChain,
    heights: Sequence[int],
    accounts: Collection[str],
    hashes: Mapping[int, str],
    known: tuple[Sent, Remembered] | None = None,
) -> dict[int, Body]:
    """The blocks at some heights, each with the transactions of the accounts. `hashes`: which block it has to be, where
    that is known; Reorged where it is another one now. `known`: the hashes of these transactions, and headers that were
    read before."""

    proven = are_receipts_proven(chain.facts, chain.settings.integrity)

    async def at(endpoint: Endpoint) -> list[Body]:
        if known and not proven and endpoint.capabilities.get(PLACES, 1):
            try:
                return await _named(chain, endpoint, heights, accounts, *known)
            except Unsupported as refusal:
                endpoint.errors.note(refusal)
                endpoint.learn(PLACES, 0)
        found: list[Body] = []
        count, size = FIRST, 0
        while part := heights[len(found) : len(found) + count]:
            answers = await raw_blocks(endpoint, part, "eth_getBlockByNumber", True)
            size += sum(map(len, answers))
            found += await _read(chain, endpoint, part, answers, accounts, hashes)
            count = max(1, min(MOST, ANSWER * len(found) // size))
        return found

    if not heights:
        return {}
    read = await chain.node.agreed(
        at,
        key=Body.key,
        asked=lambda question: f"the transactions of block {heights[question]}",
        final=lambda question: chain.node.is_final(heights[question]),
        kind="account bodies",
    )
    return dict(zip(heights, read, strict=True))


async def _read(
    chain: EvmChain,
    endpoint: Endpoint,
    heights: Sequence[int],
    answers: Sequence[bytes],
    accounts: Collection[str],
    hashes: Mapping[int, str],
) -> list[Body]:
    blocks = []
    for height, answer in zip(heights, answers, strict=True):
        full = typed(endpoint.name, answer, FullBlock)
        if int(full.number, 16) != height:
            raise BadAnswer(endpoint.name, f"another block in answer to block {height}")
        if hashes.get(height, full.hash.lower()) != full.hash.lower():
            raise Reorged(endpoint.name, height, hashes[height])
        check_withdrawals(chain.facts, endpoint.name, full, hashed=chain.node.hashed)
        blocks.append(_of_chain(chain, full))
    every = [(full, range(len(full.transactions))) for full in blocks]
    proven = are_receipts_proven(chain.facts, chain.settings.integrity)
    receipts = await _proven(chain, endpoint, blocks, answers) if proven else {}
    own = await _own(chain, endpoint, accounts, every, receipts)
    return [
        Body(full, *own[full.hash], tuple(sent.hash.lower() for sent in full.transactions), endpoint.name, proven)
        for full in blocks
    ]


async def _proven(
    chain: EvmChain, endpoint: Endpoint, blocks: Sequence[FullBlock], answers: Sequence[bytes]
) -> dict[str, list[bytes]]:
    """All receipts of some blocks, by the hash of the block: they and the blocks are held against that hash."""
    headers = []
    for full, answer in zip(blocks, answers, strict=True):
        header = typed(endpoint.name, answer, Header)
        check_header(chain.facts, endpoint.name, answer)
        check_transactions(chain.facts, endpoint.name, answer, header.transactionsRoot)
        header.hash = header.hash.lower()
        header.transactions = [msgspec.Raw(msgspec.json.encode(sent.hash)) for sent in full.transactions]
        headers.append(header)
    receipts = await proven_receipts(chain.facts, endpoint, headers)
    return {
        full.hash: [bytes(each) for each in typed(endpoint.name, several, list[msgspec.Raw])]
        for full, several in zip(blocks, receipts, strict=True)
    }


async def _named(
    chain: EvmChain,
    endpoint: Endpoint,
    heights: Sequence[int],
    accounts: Collection[str],
    sent: Sent,
    kept: Remembered,
) -> list[Body]:
    """The same by the places of transactions that are known by hash."""
    read = await named(chain.node, endpoint, heights, sent, kept)
    blocks = [(_of_chain(chain, full), places) for _, _, full, places in read]
    own = await _own(chain, endpoint, accounts, blocks, {})
    return [Body(full, *own[full.hash], names, endpoint.name, header=header) for header, names, full, _ in read]


async def _own(
    chain: EvmChain,
    endpoint: Endpoint,
    accounts: Collection[str],
    blocks: Sequence[tuple[FullBlock, Sequence[int]]],
    given: Mapping[str, Sequence[bytes]],
) -> dict[str, tuple[tuple[Done, ...], Logs]]:
    """The transactions of blocks, at these places in them, that concern some accounts, with what their receipts say,
    and the logs of receipts that name the accounts; by the hash of the block. `given`: all receipts of blocks that were
    read already, by the same hash."""
    mine = [(full, *each) for full, places in blocks for each in zip(places, full.transactions, strict=True)]
    asked = [each for each in mine if each[0].hash in given or _may_concern(each[2], accounts)]
    reads = [Request("eth_getTransactionReceipt", (sent.hash,)) for full, _, sent in asked if full.hash not in given]
    answers = iter(await results_of(endpoint, reads))
    own: dict[str, list[Done]] = {full.hash: [] for full, _ in blocks}
    logs: dict[str, list[Logs]] = {full.hash: [] for full, _ in blocks}
    bloom = chain.settings.integrity != "off"
    for full, index, sent in asked:
        receipt = given[full.hash][index] if full.hash in given else next(answers)
        done = matched(endpoint.name, full, index, sent, typed(endpoint.name, receipt, Receipt))
        if {done.sent.sender.lower(), done.recipient} & set(accounts):
            own[full.hash].append(done)
        logs[full.hash].append(naming(logs_of_receipt(endpoint.name, full, done, receipt, bloom=bloom), [*accounts]))
    return {block_hash: (tuple(several), columns.join(logs[block_hash])) for block_hash, several in own.items()}


def _of_chain(chain: EvmChain, full: FullBlock) -> FullBlock:
    """A block without what the protocol of its chain does not pay in native coins, whatever its fields are for."""
    if WITHDRAWALS not in chain.facts.pays:
        full.withdrawals = None
    if MINTS not in chain.facts.pays:
        for sent in full.transactions:
            sent.mint = None
    return full


def _may_concern(sent: Transaction, accounts: Collection[str]) -> bool:
    """Whether a transaction is of these accounts: a contract that it created is named by the receipt alone."""
    return sent.to is None or sent.sender.lower() in accounts or sent.to.lower() in accounts
