"""Whole blocks of a span: what was done in each, linked from block to block."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from adapters.tron.forms import Info, Transaction, Whole
from adapters.tron.leaves import leaves
from adapters.tron.node import TronNode, is_empty
from adapters.tron.roots import root, tree
from adapters.tron.rows import Read, read, tables
from adapters.tron.signers import Signed, signers
from chainfolio.blocks import Block, Span
from chainfolio.chains import Collected
from chainfolio.errors import BadAnswer, NodeBehind, Reorged
from transport.wire import typed

if TYPE_CHECKING:
    from adapters.tron.chain import TronChain


# Nodes take blocks of two million bytes of each other, and five signatures of a transaction.
MAX_BYTES: Final = 4_000_000
MAX_SIGNATURES: Final = 100
MAX_JSON: Final = 16 * MAX_BYTES
TOO_LARGE: Final = "a block that is larger than any that Tron has"


class Exchange(msgspec.Struct):
    """An exchange of the chain itself: the tokens that lie in it, in hexadecimal."""

    exchange_id: int
    first_token_id: str
    second_token_id: str


async def collect(
    chain: TronChain,
    span: Span,
    datasets: Sequence[str],
    contracts: Sequence[str],
    before: Block | None,
    watched: Collection[str] = (),
) -> Collected:
    """Return the rows of a span, from blocks that follow each other and the block before.

    Raises:
        BadAnswer: A block is not what its header says.
        Reorged: A block does not follow the one before it.
    """
    blocks = await blocks_at(chain, range(span.first, span.last + 1), watched)
    _check_links(chain.key, blocks, before)
    found = tables(chain.key, blocks, datasets, contracts, chain.exchanges)
    chained = [each.block for each in blocks]
    events = len(found["transfers"]) if "transfers" in found else 0
    untold = tuple(told for each in blocks for told in each.untold)
    return Collected(span, found, chained[-1], chained, events, 0, True, unexplained=untold)


async def blocks_at(chain: TronChain, heights: Iterable[int], watched: Collection[str] = ()) -> list[Read]:
    """Read the blocks at some heights from one endpoint, and the tokens of exchanges that they use.

    Args:
        chain: Remembers these tokens.
        heights: Without duplicates.
        watched: Accounts all of whose transactions have their signers compared, if signatures are sampled.
    """
    blocks = await chain.node.with_any(partial(_blocks, list(heights), chain, watched), kind="blocks")
    unknown = sorted({each for block in blocks for each in block.exchanges} - chain.exchanges.keys())
    for exchange in unknown:
        chain.exchanges[exchange] = await chain.node.with_any(partial(_tokens, exchange), kind="exchange")
    return blocks


async def _blocks(heights: Sequence[int], chain: TronChain, watched: Collection[str], endpoint: TronNode) -> list[Read]:
    found = await asyncio.gather(*(_block(endpoint, height, chain, watched) for height in heights))
    blocks = {block.block.height: block for block, _ in found}
    for each in await chain.may_sign.strange(endpoint, [each for _, signed in found for each in signed]):
        blocks[each.height].note(each.owner, each.reason)
    return list(blocks.values())


async def _block(
    endpoint: TronNode, height: int, chain: TronChain, watched: Collection[str]
) -> tuple[Read, list[Signed]]:
    """Return a block with a checked root, and those of the checked transactions that others than the owner signed.

    Block 0 is checked by its id, and nobody signed it.
    """
    asked = {"num": height}
    given, infos = await asyncio.gather(
        endpoint.read("/wallet/getblockbynum", asked, _whole),
        endpoint.read("/wallet/gettransactioninfobyblocknum", asked, _infos),
    )
    if given is None:
        raise NodeBehind(endpoint.name, f"does not have block {height}")
    whole, came_to = given
    found = read(endpoint.name, height, whole, infos, chain.facts)
    if not height:
        return found, []
    chain.roots.check(endpoint.name, whole, came_to)
    hashes = found.transactions_of(watched)
    paid = zip(found.paid, whole.transactions, strict=True)
    checked = [(row, done) for row, done in paid if chain.signature_check.selects(done.txID, hashes)]
    signed = zip(checked, await signers([done for _, done in checked]), strict=True)
    return found, [Signed(row[4], height, row[3], by) for (row, _), by in signed if by != (row[4],)]


def _whole(source: str, content: bytes) -> tuple[Whole, str] | None:
    """A block and the root that its transactions come to: by what mostly is in them, else by all that is shown."""
    if is_empty(content):
        return None
    if len(content) > MAX_JSON:
        raise BadAnswer(source, TOO_LARGE)
    whole = typed(source, content, Whole)
    _check_size(source, whole.transactions)
    usual, said = root(source, whole.transactions), whole.block_header.raw_data.txTrieRoot
    return whole, usual if usual == said or _shown(content) != said else said


def _check_size(source: str, done: Sequence[Transaction]) -> None:
    """Whether so much can be in a block: a header is quickly made up, and each signature takes its time to check."""
    digits = sum(len(each.raw_data_hex) + sum(map(len, each.signature)) for each in done)
    if digits > 2 * MAX_BYTES or any(len(each.signature) > MAX_SIGNATURES for each in done):
        raise BadAnswer(source, TOO_LARGE)


def _shown(content: bytes) -> str | None:
    try:
        return tree(leaves(content))
    except ValueError:
        return None


def _infos(source: str, content: bytes) -> list[Info]:
    """The receipts of a block; of one without transactions some nodes say that there is nothing."""
    return [] if is_empty(content) else typed(source, content, list[Info])


async def _tokens(exchange: int, endpoint: TronNode) -> tuple[str | None, str | None]:
    """The two tokens of an exchange, which stay the same."""
    told = await endpoint.told("/wallet/getexchangebyid", {"id": exchange}, Exchange)
    if told.exchange_id != exchange:
        raise BadAnswer(endpoint.name, f"gives exchange {told.exchange_id} for {exchange}")
    first, second = (_token(endpoint.name, each) for each in (told.first_token_id, told.second_token_id))
    return first, second


def _token(source: str, written: str) -> str | None:
    try:
        name = bytes.fromhex(written).decode("ascii")
    except ValueError:
        raise BadAnswer(source, f"an exchange of {written[:40]!r}, which is no token") from None
    if name != "_" and not name.isdecimal():
        raise BadAnswer(source, f"an exchange of {name[:40]!r}, which is no token")
    return None if name == "_" else name


def _check_links(chain: str, blocks: Sequence[Read], before: Block | None) -> None:
    """Whether each block follows the one before it."""
    last = before
    for each in blocks:
        if last is not None and each.block.parent != last.hash:
            raise Reorged(chain, last.height, last.hash)
        last = each.block
