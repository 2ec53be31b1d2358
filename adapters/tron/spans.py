"""Collect the rows of whole blocks, checked against their headers and linked from block to block."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from chainfolio.adapters.tron.forms import FullBlock, Transaction, TransactionInfo
from chainfolio.adapters.tron.leaves import encode_transactions
from chainfolio.adapters.tron.node import Node, TronNode, is_empty
from chainfolio.adapters.tron.roots import RootCheck, merkle_root, transactions_root
from chainfolio.adapters.tron.rows import BlockRows, block_rows, build_tables
from chainfolio.adapters.tron.signers import Permissions, SignatureCheck, SignedTransaction, recover_all
from chainfolio.blocks import Block, Span, check_links
from chainfolio.chain_results import SpanTables
from chainfolio.errors import BadAnswer, NodeBehind
from chainfolio.transport.wire import typed

# Nodes take blocks of two million bytes of each other, and five signatures of a transaction.
MAX_BYTES: Final = 4_000_000
MAX_SIGNATURES: Final = 100
MAX_JSON: Final = 16 * MAX_BYTES
TOO_LARGE: Final = "a block that is larger than any that Tron has"


class Exchange(msgspec.Struct):
    """An exchange of the chain itself, with its two tokens in hexadecimal."""

    exchange_id: int
    first_token_id: str
    second_token_id: str


class SpanReader:
    """Reads whole blocks of one chain, and checks them.

    Attributes:
        exchanges: The two tokens of each exchange that appeared in a block; None is the native coin.
    """

    def __init__(self, node: Node, signature_check: SignatureCheck) -> None:
        self.node = node
        self.exchanges: dict[int, tuple[str | None, str | None]] = {}
        self._root_check, self._signer_permissions = RootCheck(), Permissions()
        self._signature_check = signature_check

    async def collect(
        self,
        span: Span,
        datasets: Sequence[str],
        contracts: Sequence[str],
        before: Block | None,
        watched: Collection[str] = (),
    ) -> SpanTables:
        """Return the rows of a span, from blocks that follow each other and the block before.

        Args:
            span: Heights, both ends included.
            datasets: Names of datasets.
            contracts: Tokens whose transfers and approvals are kept; all if empty.
            before: The block before the span, None if the first link is not checked.
            watched: As in `collect_blocks`.

        Raises:
            BadAnswer: A block is not what its header says.
            Reorged: A block does not follow the one before it.
        """
        blocks = await self.collect_blocks(range(span.first, span.last + 1), watched)
        headers = [each.block for each in blocks]
        check_links(self.node.key, headers, before)
        tables = build_tables(self.node.key, blocks, datasets, contracts, self.exchanges)
        events = len(tables["transfers"]) if "transfers" in tables else 0
        unexplained = tuple(change for each in blocks for change in each.unexplained)
        return SpanTables(span, tables, headers[-1], headers, events, 0, True, unexplained=unexplained)

    async def collect_blocks(self, heights: Iterable[int], watched: Collection[str] = ()) -> list[BlockRows]:
        """Read the blocks at some heights from one endpoint, and cache the tokens of their exchanges.

        Args:
            heights: Without duplicates.
            watched: Accounts all of whose transactions have their signers compared, if signatures are sampled.

        Raises:
            BadAnswer: A block is not what its header says.
            NodeBehind: A block does not exist yet.
        """
        blocks = await self.node.with_any(partial(self._read_blocks, list(heights), watched), kind="blocks")
        missing = sorted({exchange for block in blocks for exchange in block.exchanges} - self.exchanges.keys())
        for exchange in missing:
            self.exchanges[exchange] = await self.node.with_any(partial(_exchange_tokens, exchange), kind="exchange")
        return blocks

    async def _read_blocks(
        self, heights: Sequence[int], watched: Collection[str], endpoint: TronNode
    ) -> list[BlockRows]:
        """Read blocks and their rows; note transactions whose signers had no permission."""
        results = await asyncio.gather(*(self._read_block(endpoint, height, watched) for height in heights))
        blocks = {block.block.height: block for block, _ in results}
        signed = [each for _, transactions in results for each in transactions]
        for transaction in await self._signer_permissions.filter_unauthorized(endpoint, signed):
            blocks[transaction.height].note(transaction.owner, transaction.reason)
        return list(blocks.values())

    async def _read_block(
        self, endpoint: TronNode, height: int, watched: Collection[str]
    ) -> tuple[BlockRows, list[SignedTransaction]]:
        """Return a block with a checked root, and the transactions that have other signers than their owner.

        Signers are compared for the transactions that `SignatureCheck` selects. Block 0 is checked by its id, and has
        no signatures.

        Raises:
            NodeBehind: The endpoint does not have the block.
            BadAnswer: It is another block, or malformed.
        """
        body = {"num": height}
        response, infos = await asyncio.gather(
            endpoint.read("/wallet/getblockbynum", body, _decode_block),
            endpoint.read("/wallet/gettransactioninfobyblocknum", body, _decode_infos),
        )
        if response is None:
            raise NodeBehind(endpoint.name, f"does not have block {height}")
        full_block, root = response
        rows = block_rows(endpoint.name, height, full_block, infos, self.node.facts)
        if not height:
            return rows, []
        self._root_check.check(endpoint.name, full_block, root)
        hashes = rows.transactions_of(watched)
        pairs = zip(rows.transactions, full_block.transactions, strict=True)
        checked = [(row, each) for row, each in pairs if self._signature_check.selects(each.txID, hashes)]
        recovered = zip(checked, await recover_all([each for _, each in checked]), strict=True)
        return rows, [
            SignedTransaction(row.sender, height, row.hash, signers)
            for (row, _), signers in recovered
            if signers != (row.sender,)
        ]


def _decode_block(source: str, content: bytes) -> tuple[FullBlock, str] | None:
    """Return a block and the root of its transactions, None if the node has no such block.

    The root is computed from the usual fields, and from all shown ones if the former does not match.

    Raises:
        BadAnswer: The block is malformed or too large.
    """
    if is_empty(content):
        return None
    if len(content) > MAX_JSON:
        raise BadAnswer(source, TOO_LARGE)
    full_block = typed(source, content, FullBlock)
    _check_size(source, full_block.transactions)
    root, expected = transactions_root(source, full_block.transactions), full_block.block_header.raw_data.txTrieRoot
    return full_block, root if root == expected or _root_of_all_fields(content) != expected else expected


def _check_size(source: str, transactions: Sequence[Transaction]) -> None:
    """Refuse a block larger than Tron allows: its header may be made up, and each signature costs time."""
    digits = sum(len(each.raw_data_hex) + sum(map(len, each.signature)) for each in transactions)
    if digits > 2 * MAX_BYTES or any(len(each.signature) > MAX_SIGNATURES for each in transactions):
        raise BadAnswer(source, TOO_LARGE)


def _root_of_all_fields(content: bytes) -> str | None:
    try:
        return merkle_root(encode_transactions(content))
    except ValueError:
        return None


def _decode_infos(source: str, content: bytes) -> list[TransactionInfo]:
    """Return the receipts of a block. For one without transactions some nodes answer `{}`."""
    return [] if is_empty(content) else typed(source, content, list[TransactionInfo])


async def _exchange_tokens(exchange: int, endpoint: TronNode) -> tuple[str | None, str | None]:
    """Return the two tokens of an exchange, which never change."""
    response = await endpoint.read_typed("/wallet/getexchangebyid", {"id": exchange}, Exchange)
    if response.exchange_id != exchange:
        raise BadAnswer(endpoint.name, f"gives exchange {response.exchange_id} for {exchange}")
    return _decode_token(endpoint.name, response.first_token_id), _decode_token(endpoint.name, response.second_token_id)


def _decode_token(source: str, token_id: str) -> str | None:
    """Return the number of a TRC-10 token, None for TRX; raise BadAnswer for anything else."""
    try:
        name = bytes.fromhex(token_id).decode("ascii")
    except ValueError:
        raise BadAnswer(source, f"an exchange of {token_id[:40]!r}, which is no token") from None
    if name != "_" and not name.isdecimal():
        raise BadAnswer(source, f"an exchange of {name[:40]!r}, which is no token")
    return None if name == "_" else name
