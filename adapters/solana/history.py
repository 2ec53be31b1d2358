"""Histories of accounts: the transactions that name them or their token accounts, by slot.

A transfer of tokens names the recipient's token account, not the recipient. Open token accounts are listed by the node,
again for each later end of a span; closed ones are found in transactions that name the owner. If one is found after
older slots were read without it, the result reports an unexplained change. So it does for token accounts whose owner
the node did not record. Slots before the first block of every endpoint count as unread.

Stake instructions are passed on to the reader of stake accounts, so that it does not read the same transactions again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa

from chainfolio.adapters.solana.datasets import DATASETS
from chainfolio.adapters.solana.forms import ParsedTokenAccount
from chainfolio.adapters.solana.layouts import STAKE, TOKEN_PROGRAMS
from chainfolio.adapters.solana.listed_transactions import FINAL, FULL, MAX_PARALLEL, ListedTransaction, signatures
from chainfolio.adapters.solana.node import MAX_TIME_S, Node, pruned_until
from chainfolio.adapters.solana.parsing import slot_and_content
from chainfolio.adapters.solana.rows import LocatedChange, tables, tx_indexes
from chainfolio.adapters.solana.spans import collect
from chainfolio.adapters.solana.stake_calls import StakeCall, parse_stake_transaction
from chainfolio.adapters.solana.stake_histories import StakeHistories
from chainfolio.adapters.solana.transactions import FetchedTransaction, change, ownerless_changes, token_accounts_of
from chainfolio.blocks import Block, Span
from chainfolio.budgets import Budget
from chainfolio.chain_results import SpanTables, UnexplainedChange
from chainfolio.errors import BadAnswer, HistoryUnavailable, SourceError, UnsupportedMethod
from chainfolio.transport import metering
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed

METHOD: Final = "signatures"  # how the rows were found, as tables record it
MAX_ROUNDS: Final = 1_000  # of transactions that name further token accounts
PIECE_SIZE: Final = 200  # transactions per piece of a span
LAST_BLOCK_SLOTS: Final = 256  # the last slots of a piece, in which its newest block is looked for


class _ReadTransaction(NamedTuple):
    """A transaction and its stake instructions; None if the node did not record inner instructions."""

    entry: FetchedTransaction
    calls: tuple[StakeCall, ...] | None


@dataclass(slots=True)
class _ListCache:
    """The listed transactions of one address in the slots of `span`, the oldest first."""

    span: Span
    listings: list[ListedTransaction]


@dataclass(frozen=True, slots=True)
class _TokenAccounts:
    """Token accounts of one owner: those that were open at `slot`, and closed ones that transactions name."""

    slot: int
    addresses: frozenset[str] = frozenset()


class _PrunedNode(HistoryUnavailable):
    """The first block of an endpoint, at the slot `first_block`, is later than the start of the span."""

    def __init__(self, source: str, slot: int, first_block: int) -> None:
        super().__init__(source, slot, f"the first block that the node has is {first_block}")
        self.first_block = first_block


@dataclass(slots=True)
class AccountHistory:
    """Reads histories of accounts, and caches lists of transactions for the next piece of a span."""

    node: Node
    stake_histories: StakeHistories
    _lists: dict[str, _ListCache] = field(default_factory=dict)  # by address
    _token_accounts: dict[str, _TokenAccounts] = field(default_factory=dict)  # by owner

    async def collect(
        self,
        span: Span,
        accounts: Sequence[str],
        datasets: Sequence[str],
        before: Block | None,
        budget: Budget | None,
    ) -> SpanTables:
        """Read the first transactions of a span, as `AccountHistoryReader.collect_accounts` defines it."""
        with metering.charge_to(budget):
            if before is not None or span.first > self.node.finalized:
                return await self._collect_blocks(span, accounts, datasets, before)
            span = Span(span.first, max(span.first, min(span.last, self.node.finalized)))
            return await self._collect_final(span, accounts, datasets)

    async def _collect_blocks(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], before: Block | None
    ) -> SpanTables:
        """Read whole blocks that are not final: the lists of accounts may be of another branch."""
        blocks = await collect(self.node, self.node.key, span, datasets, (), before)
        rows = _rows_of(blocks.tables, accounts)
        methods = dict.fromkeys(datasets, METHOD)
        return SpanTables(
            span, rows, blocks.last, blocks.blocks, _event_count(rows), is_linked=True, read_methods=methods
        )

    async def _collect_final(self, span: Span, accounts: Sequence[str], datasets: Sequence[str]) -> SpanTables:
        """Return the rows of the first piece of a span of final slots, by the listed transactions.

        Slots before the first block of every endpoint are a piece of their own without rows, whose datasets count as
        unread.
        """
        errors: dict[str, SourceError] = {}  # the last one of each endpoint

        async def read(endpoint: Endpoint) -> _Piece:
            """Read the piece from an endpoint; store its error and raise it."""
            try:
                return await self._read_piece(span, accounts, endpoint)
            except SourceError as error:
                errors[endpoint.url] = error
                raise

        try:
            piece = await self.node.with_any(read, kind="history")
        except SourceError:
            first_blocks = [each.first_block for each in errors.values() if isinstance(each, _PrunedNode)]
            if not first_blocks or not all(
                isinstance(each, _PrunedNode | UnsupportedMethod) for each in errors.values()
            ):
                raise
            unread = Span(span.first, min(span.last, min(first_blocks) - 1))
            return SpanTables(unread, _rows_of(tables(self.node.key, [], datasets), accounts), None)
        rows = _rows_of(tables(self.node.key, piece.changes, datasets), accounts)
        methods = dict.fromkeys(datasets, METHOD)
        return SpanTables(
            piece.span, rows, piece.last, [], _event_count(rows), read_methods=methods, unexplained=piece.unexplained
        )

    async def _read_piece(self, span: Span, accounts: Sequence[str], endpoint: Endpoint) -> _Piece:
        """Read the oldest transactions of a span, about `PIECE_SIZE`, from one endpoint.

        Stores token accounts and stake calls that they name, once all was read. Raises BadAnswer if token accounts do
        not end, _PrunedNode if the first block of the endpoint is later than the start of the span.
        """
        owned = {each: await self._known_token_accounts(endpoint, each, span.last) for each in accounts}
        transactions: dict[str, _ReadTransaction] = {}
        late: set[tuple[str, str]] = set()  # owners with token accounts that were found only now
        for _ in range(MAX_ROUNDS):
            addresses = {*accounts, *(each for token_accounts in owned.values() for each in token_accounts)}
            piece, listings = _first_piece(span, await self._list(endpoint, sorted(addresses), span))
            missing = [each for each in listings if each.signature not in transactions]
            if not missing:
                break
            for each, read in zip(missing, await _read_transactions(endpoint, missing), strict=True):
                transactions[each.signature] = read
                for owner, address in token_accounts_of(endpoint.name, read.entry):
                    if owner in owned and address not in owned[owner]:
                        owned[owner].add(address)
                        late.add((owner, address))
        else:
            raise BadAnswer(endpoint.name, f"names token accounts of {accounts[0]} without an end")
        reads = [transactions[each.signature] for each in listings]
        changes = [_change(endpoint.name, each, read.entry) for each, read in zip(listings, reads, strict=True)]
        changes.sort(key=lambda each: (each.slot, each.tx_index))
        unexplained = await self._late_account_changes(endpoint, late, span)
        unexplained += self._ownerless_changes(endpoint.name, owned, [each.entry for each in reads])
        last = await _last_block(self.node, endpoint, piece)
        self._pass_on_stake_calls(accounts, piece, reads)
        for account, addresses in owned.items():
            before = self._token_accounts.get(account, _TokenAccounts(span.last))
            slot = max(before.slot, span.last)
            self._token_accounts[account] = _TokenAccounts(slot, before.addresses | addresses)
        return _Piece(piece, changes, last, unexplained)

    async def _known_token_accounts(self, endpoint: Endpoint, account: str, last: int) -> set[str]:
        """Return the stored token accounts, and the open ones if the stored list is older than `last`.

        A transaction that opens a token account, or gives one to another owner, need not name that owner.
        """
        cache = self._token_accounts.get(account)
        if cache is None or cache.slot < last:
            open_accounts = await _open_token_accounts(endpoint, account, last)
            return open_accounts | (cache.addresses if cache else frozenset())
        return set(cache.addresses)

    def _pass_on_stake_calls(self, accounts: Sequence[str], piece: Span, reads: Sequence[_ReadTransaction]) -> None:
        """Store the stake instructions of a piece in the reader of stake accounts.

        Nothing is stored if those of one transaction are unknown.
        """
        if any(read.calls is None for read in reads):
            return
        calls = [call for read in reads for call in read.calls or ()]
        for account in accounts:
            self.stake_histories.add_scanned(account, piece, calls)

    async def _list(self, endpoint: Endpoint, addresses: Sequence[str], span: Span) -> list[ListedTransaction]:
        """Return the transactions of a span that name some addresses, each once and the oldest first.

        New lists are cached. Other readers may replace cached lists meanwhile, so the lists are those that were read
        here. Raises _PrunedNode if a list was read, and the first block of the endpoint is later than the span's start:
        an endpoint lists no transactions before its first block.
        """
        caches = {address: await self._list_address(endpoint, address, span) for address in addresses}
        new = {address: cache for address, cache in caches.items() if self._lists.get(address) is not cache}
        if new:
            # After the lists: nodes drop blocks while they are read.
            if first_served := await pruned_until(endpoint, span.first):
                raise _PrunedNode(endpoint.name, span.first, first_served)
            self._lists |= new
        by_signature = {each.signature: each for cache in caches.values() for each in cache.listings}
        return sorted((each for each in by_signature.values() if each.slot in span), key=lambda each: each.slot)

    async def _list_address(self, endpoint: Endpoint, address: str, span: Span) -> _ListCache:
        """Return the listed transactions of one address in a span or more, cached or new ones.

        Only slots above the cached ones are listed again, or all slots if the span begins before them. The list counts
        up to its newest transaction, or to the end of the span: finality may rise while it is read. Raises NodeBehind
        if the end of the span is not final yet at the endpoint.
        """
        cache = self._lists.get(address)
        if cache is None or span.first < cache.span.first:
            cache = _ListCache(Span(span.first, span.first), [])
            new = await signatures(endpoint, address, span.first, span.last)
        elif cache.span.last < span.last:
            new = await signatures(endpoint, address, cache.span.last + 1, span.last)
        else:
            return cache
        covered = Span(cache.span.first, max([span.last, *(each.slot for each in new[:1])]))
        return _ListCache(covered, [*cache.listings, *reversed(new)])

    def _ownerless_changes(
        self, source: str, owned: Mapping[str, Collection[str]], entries: Iterable[FetchedTransaction]
    ) -> tuple[UnexplainedChange, ...]:
        """Return a change for each balance of an own token account that moved while the node recorded no owner.

        Nodes recorded none in their first years. Who owned the token account then is not known, so its amount is 0.
        """
        owners = {address: owner for owner, addresses in owned.items() for address in addresses}
        changes = {
            (owners[address], entry.slot, mint): address
            for entry in entries
            for address, mint in ownerless_changes(source, entry)
            if address in owners
        }
        asset = self.node.facts.info.token_asset
        return tuple(
            UnexplainedChange(owner, slot, asset(mint), 0, f"the node did not record whose token account {address} was")
            for (owner, slot, mint), address in sorted(changes.items())
        )

    async def _late_account_changes(
        self, endpoint: Endpoint, late: Iterable[tuple[str, str]], span: Span
    ) -> tuple[UnexplainedChange, ...]:
        """Return a change for each token account that was found late and has transactions before the span.

        Its amount is 0, and its slot the last one of these transactions.
        """
        changes: list[UnexplainedChange] = []
        for owner, address in sorted(late) if span.first else ():
            older = [each for each in await signatures(endpoint, address, 0, span.first) if each.slot < span.first]
            if older:
                reason = f"the token account {address} was not known yet when older slots were read"
                changes.append(UnexplainedChange(owner, older[0].slot, self.node.facts.info.native.asset, 0, reason))
        return tuple(changes)


@dataclass(frozen=True, slots=True)
class _Piece:
    """The first part of a span, with its newest block if that is among its last slots."""

    span: Span
    changes: list[LocatedChange]
    last: Block | None
    unexplained: tuple[UnexplainedChange, ...]


def _rows_of(all_rows: dict[str, pa.Table], accounts: Sequence[str]) -> dict[str, pa.Table]:
    """Return the rows of tables that concern some accounts."""
    return {
        name: next(each for each in DATASETS.values() if each.table.name == name).rows_of_accounts(table, accounts)
        for name, table in all_rows.items()
    }


def _event_count(rows: dict[str, pa.Table]) -> int:
    return len(rows["transfers"]) if "transfers" in rows else 0


def _first_piece(span: Span, listings: Sequence[ListedTransaction]) -> tuple[Span, Sequence[ListedTransaction]]:
    """Return the slots with the first `PIECE_SIZE` transactions, and all transactions in these slots."""
    if len(listings) <= PIECE_SIZE:
        return span, listings
    last = listings[PIECE_SIZE - 1].slot
    return Span(span.first, last), [each for each in listings if each.slot <= last]


async def _open_token_accounts(endpoint: Endpoint, account: str, min_slot: int) -> set[str]:
    """Read the addresses of an account's token accounts at a final slot from `min_slot` on."""
    addresses = set()
    for program in TOKEN_PROGRAMS:
        options = {"encoding": "jsonParsed", **FINAL, "minContextSlot": min_slot}
        answer = await endpoint.ask_one(Request("getTokenAccountsByOwner", (account, {"programId": program}, options)))
        listings = typed(endpoint.name, slot_and_content(endpoint.name, answer)[1], list[ParsedTokenAccount])
        addresses |= {each.pubkey for each in listings}
    return addresses


async def _read_transactions(endpoint: Endpoint, listings: Sequence[ListedTransaction]) -> list[_ReadTransaction]:
    """Read transactions in order, at most `MAX_PARALLEL` at once.

    Raises HistoryUnavailable if the node lost one that it lists, BadAnswer if it has it in another slot.
    """
    gate = asyncio.Semaphore(MAX_PARALLEL)

    async def read(each: ListedTransaction) -> _ReadTransaction:
        async with gate:
            request = Request("getTransaction", (each.signature, FULL))
            return await endpoint.ask_large(request, partial(_parse_transaction, each))

    return list(await asyncio.gather(*map(read, listings)))


def _parse_transaction(listing: ListedTransaction, source: str, content: bytes | memoryview) -> _ReadTransaction:
    """Return a listed transaction with its calls of the stake program.

    Raises HistoryUnavailable if the node lacks it, BadAnswer if it is of another slot.
    """
    entry = typed(source, content, FetchedTransaction | None)  # type: ignore[arg-type]
    if entry is None:
        raise HistoryUnavailable(source, listing.slot, "the node lists a transaction that it does not have")
    if entry.slot != listing.slot:
        raise BadAnswer(source, f"a transaction of slot {entry.slot} that is listed in slot {listing.slot}")
    has_stake_program = STAKE.encode() in bytes(content)
    stake_transaction = parse_stake_transaction(source, bytes(content)) if has_stake_program else None
    return _ReadTransaction(entry, stake_transaction.calls if stake_transaction else ())


def _change(source: str, listing: ListedTransaction, entry: FetchedTransaction) -> LocatedChange:
    """Return a listed transaction's change with its time and index.

    Raises HistoryUnavailable if its time is unknown, BadAnswer if it is another transaction or its time impossible.
    """
    slot = listing.slot
    if entry.blockTime is None:
        raise HistoryUnavailable(source, slot, "the node does not know its time")
    if not 0 <= entry.blockTime < MAX_TIME_S:
        raise BadAnswer(source, f"a transaction of slot {slot} at a time that cannot be")
    tx_change = change(source, entry, slot)
    if tx_change.signature != listing.signature:
        raise BadAnswer(source, f"another transaction than the one that it lists in slot {slot}")
    (tx_index,) = tx_indexes(source, [tx_change.signature])
    return LocatedChange(slot, entry.blockTime * 1_000_000, tx_index, tx_change)


async def _last_block(node: Node, endpoint: Endpoint, span: Span) -> Block | None:
    """Read the newest block of a span; None if its last `LAST_BLOCK_SLOTS` slots have no block."""
    first = max(span.first, span.last - LAST_BLOCK_SLOTS + 1)
    answer = await endpoint.ask_one(Request("getBlocks", (first, span.last, FINAL)), height=span.last)
    slots = typed(endpoint.name, answer, list[int])
    return await node.header_at(endpoint, slots[-1]) if slots else None
