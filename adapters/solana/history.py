"""What concerns some accounts alone: the transactions that name them or their token accounts, in the order of slots.

Who is sent tokens is not named by the transaction, but the token account is: those that an account has now are listed,
those that are closed are found in transactions that name it. One that is found too late for what was read before is
told as not explained. What was done with stake is told to whoever reads stake accounts, which looks at nothing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from adapters.solana.datasets import DATASETS
from adapters.solana.forms import U64, TokenAccount
from adapters.solana.layouts import STAKE, TOKEN_PROGRAMS
from adapters.solana.node import MAX_TIME_S, Node, first_block
from adapters.solana.parsing import slot_and_content
from adapters.solana.rows import Done, places, tables
from adapters.solana.stake_calls import StakeCall, staked
from adapters.solana.transactions import Found, change, token_accounts_of
from chainfolio.blocks import Block, Span
from chainfolio.budgets import Budget
from chainfolio.chains import Collected, Unexplained
from chainfolio.errors import BadAnswer, HistoryUnavailable
from transport import metering
from transport.endpoint import Endpoint
from transport.wire import Request, typed

if TYPE_CHECKING:
    from adapters.solana.chain import SolanaChain

WAY: Final = "signatures"
PAGE: Final = 1000
MAX_PAGES: Final = 10_000  # of the transactions of one address
MAX_ROUNDS: Final = 1_000  # in which transactions name further token accounts
AT_ONCE: Final = 200  # transactions of one piece
TOGETHER: Final = 16  # of them that are on their way at once
LOOK_BACK: Final = 256  # slots among which the newest block is looked for
FULL: Final = {"encoding": "json", "maxSupportedTransactionVersion": 0, "commitment": "finalized"}
FINAL: Final = {"commitment": "finalized"}


class Listed(msgspec.Struct):
    """A transaction as `getSignaturesForAddress` lists it."""

    signature: str
    slot: U64


class _Read(NamedTuple):
    """A transaction, and what it had the stake program do; None where the node does not keep that."""

    entry: Found
    calls: tuple[StakeCall, ...] | None


@dataclass(slots=True)
class _Known:
    """The transactions of one address up to a slot, the oldest first."""

    top: int
    listed: list[Listed]


@dataclass(slots=True)
class AccountHistory:
    """Reads the histories of accounts of one chain. What was listed is kept for the next piece of the same span."""

    chain: SolanaChain
    _known: dict[str, _Known] = field(default_factory=dict)
    _token_accounts: dict[str, set[str]] = field(default_factory=dict)  # by owner

    async def collect(
        self,
        span: Span,
        accounts: Sequence[str],
        datasets: Sequence[str],
        before: Block | None,
        budget: Budget | None,
    ) -> Collected:
        """As `ReadsAccounts.collect_accounts` has it."""
        with metering.on(budget):
            if before is not None or span.first > self.chain.node.finalized:
                return await self._linked(span, accounts, datasets, before)
            span = Span(span.first, max(span.first, min(span.last, self.chain.node.finalized)))
            return await self._final(span, accounts, datasets)

    async def _linked(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], before: Block | None
    ) -> Collected:
        """Blocks that may still go are read whole: what is listed of accounts may be of another branch."""
        found = await self.chain.collect(span, datasets, (), before)
        rows = {
            name: next(each for each in DATASETS.values() if each.table.name == name).concerning(table, accounts)
            for name, table in found.tables.items()
        }
        events = len(rows["transfers"]) if "transfers" in rows else 0
        return Collected(span, rows, found.last, found.chain, events, is_linked=True, ways=dict.fromkeys(datasets, WAY))

    async def _final(self, span: Span, accounts: Sequence[str], datasets: Sequence[str]) -> Collected:
        node = self.chain.node
        found = await node.with_any(partial(self._read, span, accounts), kind="history")
        rows = tables(self.chain.key, found.done, datasets)
        rows = {
            name: next(each for each in DATASETS.values() if each.table.name == name).concerning(table, accounts)
            for name, table in rows.items()
        }
        events = len(rows["transfers"]) if "transfers" in rows else 0
        return Collected(
            found.span, rows, found.last, [], events, ways=dict.fromkeys(datasets, WAY), unexplained=found.unexplained
        )

    async def _read(self, span: Span, accounts: Sequence[str], endpoint: Endpoint) -> _Piece:
        """The oldest transactions of a span, as many as go at once, by one endpoint."""
        for account in accounts:
            if account not in self._token_accounts:
                self._token_accounts[account] = await _open_accounts(endpoint, account)
        done: dict[str, _Read] = {}
        late: set[tuple[str, str]] = set()
        for _ in range(MAX_ROUNDS):
            addresses = {*accounts, *(each for own in accounts for each in self._token_accounts[own])}
            listed = await self._listed(endpoint, sorted(addresses), span)
            piece, wanted = _oldest(span, listed)
            missing = [each for each in wanted if each.signature not in done]
            if not missing:
                break
            for each, read in zip(missing, await _transactions(endpoint, missing), strict=True):
                done[each.signature] = read
                for owner, address in token_accounts_of(endpoint.name, read.entry):
                    if owner in accounts and address not in self._token_accounts[owner]:
                        self._token_accounts[owner].add(address)
                        late.add((owner, address))
        else:
            raise BadAnswer(endpoint.name, f"names token accounts of {accounts[0]} without an end")
        reads = [done[each.signature] for each in wanted]
        made = [_done(endpoint.name, each, read.entry) for each, read in zip(wanted, reads, strict=True)]
        made.sort(key=lambda each: (each.slot, each.tx_index))
        calls = [call for read in reads for call in read.calls or ()]
        is_whole = all(read.calls is not None for read in reads)
        if is_whole and (served := await first_block(endpoint)) <= piece.last:  # of what was before, it lists nothing
            for account in accounts:
                self.chain.stake_histories.saw(account, Span(max(piece.first, served), piece.last), calls)
        told = await self._told(endpoint, late, span)
        return _Piece(piece, made, await _last(self.chain.node, endpoint, piece), told)

    async def _listed(self, endpoint: Endpoint, addresses: Sequence[str], span: Span) -> list[Listed]:
        """The transactions of a span that name some addresses, each once, the oldest first."""
        for address in addresses:
            known = self._known.get(address)
            if known is None or known.top < span.last:
                down_to = span.first if known is None else known.top + 1
                new = await signatures(endpoint, address, down_to)
                before = [] if known is None else known.listed
                self._known[address] = _Known(self.chain.node.finalized, [*before, *reversed(new)])
        found = {each.signature: each for address in addresses for each in self._known[address].listed}
        return sorted((each for each in found.values() if each.slot in span), key=lambda each: each.slot)

    async def _told(self, endpoint: Endpoint, late: Iterable[tuple[str, str]], span: Span) -> tuple[Unexplained, ...]:
        """Token accounts that had transactions before the heights that are read, when nobody knew of them."""
        told = []
        for owner, address in sorted(late):
            if span.first == 0:
                continue
            older = [each for each in await signatures(endpoint, address, 0) if each.slot < span.first]
            if older:
                reason = f"the token account {address} was not known yet when older slots were read"
                told.append(Unexplained(owner, older[0].slot, self.chain.info.native.asset, 0, reason))
        return tuple(told)


@dataclass(frozen=True, slots=True)
class _Piece:
    """What was read of the beginning of a span."""

    span: Span
    done: list[Done]
    last: Block | None
    unexplained: tuple[Unexplained, ...]


def _oldest(span: Span, listed: Sequence[Listed]) -> tuple[Span, Sequence[Listed]]:
    """The first transactions, whole slots of them, and the heights that they are all of."""
    if len(listed) <= AT_ONCE:
        return span, listed
    last = listed[AT_ONCE - 1].slot
    return Span(span.first, last), [each for each in listed if each.slot <= last]


async def signatures(endpoint: Endpoint, address: str, down_to: int) -> list[Listed]:
    """The transactions that name an address, down to a slot, the newest first. Only an empty page is the end: endpoints
    cut pages where they like. BadAnswer where pages do not end."""
    found: list[Listed] = []
    for _ in range(MAX_PAGES):
        if found and found[-1].slot < down_to:
            break
        options: dict[str, Any] = {"limit": PAGE, **FINAL, **({"before": found[-1].signature} if found else {})}
        page = typed(
            endpoint.name, await endpoint.one(Request("getSignaturesForAddress", (address, options))), list[Listed]
        )
        if not page:
            break
        slots = [*(each.slot for each in found[-1:]), *(each.slot for each in page)]
        if slots != sorted(slots, reverse=True) or {each.signature for each in page} & {
            each.signature for each in found[-1:]
        }:
            raise BadAnswer(endpoint.name, "lists transactions of an address out of their order")
        found += page
    else:
        raise BadAnswer(
            endpoint.name, f"lists transactions of {address} without an end",
            remedy="read it from another node, or begin at a later slot (start_block)",
        )  # fmt: skip
    if len({each.signature for each in found}) != len(found):
        raise BadAnswer(endpoint.name, "lists a transaction of an address twice")
    return [each for each in found if each.slot >= down_to]


async def _open_accounts(endpoint: Endpoint, account: str) -> set[str]:
    """The token accounts that an account has now."""
    found = set()
    for program in TOKEN_PROGRAMS:
        options = {"encoding": "jsonParsed", **FINAL}
        answer = await endpoint.one(Request("getTokenAccountsByOwner", (account, {"programId": program}, options)))
        listed = typed(endpoint.name, slot_and_content(endpoint.name, answer)[1], list[TokenAccount])
        found |= {each.pubkey for each in listed}
    return found


async def _transactions(endpoint: Endpoint, listed: Sequence[Listed]) -> list[_Read]:
    """Some transactions, in their order. HistoryUnavailable where a node has lost one that it lists."""
    gate = asyncio.Semaphore(TOGETHER)

    async def one(each: Listed) -> _Read:
        async with gate:
            return await endpoint.big(Request("getTransaction", (each.signature, FULL)), partial(_found, each))

    return list(await asyncio.gather(*(one(each) for each in listed)))


def _found(listed: Listed, source: str, content: bytes | memoryview) -> _Read:
    found = typed(source, content, Found | None)  # type: ignore[arg-type]
    if found is None:
        raise HistoryUnavailable(source, listed.slot, "the node lists a transaction that it does not have")
    if found.slot != listed.slot:
        raise BadAnswer(source, f"a transaction of slot {found.slot} that is listed in slot {listed.slot}")
    about = staked(source, bytes(content)) if STAKE.encode() in bytes(content) else None
    return _Read(found, about.calls if about else ())


def _done(source: str, listed: Listed, entry: Found) -> Done:
    slot = listed.slot
    if entry.blockTime is None:
        raise HistoryUnavailable(source, slot, "the node does not know its time")
    if not 0 <= entry.blockTime < MAX_TIME_S:
        raise BadAnswer(source, f"a transaction of slot {slot} at a time that cannot be")
    changed = change(source, entry, slot)
    if changed.signature != listed.signature:
        raise BadAnswer(source, f"another transaction than the one that it lists in slot {slot}")
    (number,) = places(source, [changed.signature])
    return Done(slot, entry.blockTime * 1_000_000, number, changed)


async def _last(node: Node, endpoint: Endpoint, span: Span) -> Block | None:
    """The newest block of a span, where it is among the last slots."""
    first = max(span.first, span.last - LOOK_BACK + 1)
    listed = await endpoint.one(Request("getBlocks", (first, span.last, FINAL)), height=span.last)
    slots = typed(endpoint.name, listed, list[int])
    return await node.header_at(endpoint, slots[-1]) if slots else None
