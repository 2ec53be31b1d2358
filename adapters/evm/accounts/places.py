"""The transactions of some accounts and the coins that calls moved for them: what no log tells.

Where they did something is found by the best way that an endpoint has, which is remembered: `trace_filter`, the search
of Erigon's kin, an explorer, else the state of past blocks. Bodies and receipts are read of these blocks alone. By the
state it shows, too, what a block changed of an account's coins: what its transactions and withdrawals do not explain,
calls have moved; what is not found inside of them either is told as unexplained.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapters.evm.accounts import otterscan, state
from adapters.evm.accounts.acts import Acts
from adapters.evm.accounts.bodies import Body, bodies
from adapters.evm.accounts.ends import Ends, ends_of, gained
from adapters.evm.accounts.inside import Wanted, moved_in
from adapters.evm.accounts.payments import paid_in, payments
from adapters.evm.accounts.remembered import Remembered
from adapters.evm.accounts.replayed import Rest, replayed
from adapters.evm.accounts.simulate import simulated
from adapters.evm.accounts.touched import Touched
from adapters.evm.accounts.trace_filter import TraceFilter
from adapters.evm.datasets.dataset import EvmDataset
from adapters.evm.datasets.internal import Moved
from adapters.evm.facts import WITHDRAWALS
from adapters.evm.node import Header
from chainfolio.blocks import Span
from chainfolio.chains import Unexplained
from chainfolio.errors import BadAnswer, HistoryUnavailable, Unsupported
from transport.endpoint import Endpoint

if TYPE_CHECKING:
    from adapters.evm.chain import EvmChain

WAY = "places"  # what is learnt of an endpoint: by which way it finds them


@dataclass(slots=True)
class Found:
    """What a window has of some accounts. `inside` is None where no endpoint can tell what calls moved, `has_payments`
    whether the blocks in which the protocol itself paid them are among the bodies."""

    touched: Touched
    bodies: Mapping[int, Body]
    inside: Mapping[int, Sequence[Moved]] | None
    unexplained: tuple[Unexplained, ...] = ()
    has_payments: bool = False

    def has(self, dataset: EvmDataset) -> bool:
        """Whether the rows of a dataset are known."""
        return self.inside is not None if dataset.of_traces else self.has_payments or not dataset.of_headers


class AccountPlaces:
    """Reads the places of one chain."""

    def __init__(self, chain: EvmChain, kept: Remembered) -> None:
        self.chain, self.kept = chain, kept
        self.acts = Acts()  # of the logs that were read before
        self._traces = TraceFilter()

    async def read(
        self,
        span: Span,
        accounts: Sequence[str],
        hashes: Mapping[int, str],
        headers: Sequence[Header] = (),
        *,
        inside: bool,
    ) -> Found:
        """Everything from the start of a span as far as goes at once. `hashes`: of blocks that may still go; `headers`:
        all of the span, where they were read."""
        source, touched = await self._touched(span, accounts, hashes)
        found = await self._found(touched, accounts, hashes, inside=inside)
        if touched.way == state.WAY or (hashes and not touched.heights):  # a quiet block at the head costs no more
            return found
        window = touched.span
        ends = await ends_of(self.chain.node, window, accounts, hashes)
        if await self._is_short([each for each in ends if each.unsent(found.bodies) > 0], window, hashes):
            note = f"{touched.way} leaves out transactions of blocks {window.first}..{window.last}"
            source.errors.note(BadAnswer(source.name, note))
            source.learn(WAY, 2)  # from now on by whatever does not list them
            touched = await self.chain.node.with_any(
                lambda endpoint: state.find(endpoint, window, accounts, hashes, self.acts.of(accounts, window)),
                kind="account places",
            )
            return await self._found(touched, accounts, hashes, inside=inside)
        rests = {each: each.unmoved(found.bodies, found.inside or {}) for each in ends}
        if headers:
            rests = {each: rest - paid_in(headers, each.account, self.chain.facts) for each, rest in rests.items()}
        elif ends and WITHDRAWALS in self.chain.facts.pays:
            return await self._paid(found, {each: rest for each, rest in rests.items() if rest}, accounts)
        if found.inside is not None:
            for each, rest in rests.items():
                found.unexplained += self._unexplained(window.last, {each.account: rest}, BETWEEN)
        return found

    async def touched(self, span: Span, accounts: Sequence[str]) -> Touched:
        """The final blocks of a span that concern some accounts, by the best way that an endpoint has."""
        return (await self._touched(span, accounts, {}))[1]

    async def _paid(self, found: Found, rests: Mapping[Ends, int], accounts: Sequence[str]) -> Found:
        """With the blocks in which the protocol itself paid accounts: those in which they have more than what was found
        of them explains."""
        found.has_payments = True
        if not rests:
            return found
        changed = await payments(self.chain.node, found.touched.span, [*rests], found.bodies, found.inside or {})
        new = sorted({each.height for each in changed} - found.bodies.keys())
        read = await bodies(self.chain, new, accounts, {})
        found.bodies = dict(sorted({**found.bodies, **read}.items()))
        for each in changed:
            body = found.bodies[each.height]
            rest = each.after - each.before - body.withdrawn(each.account)
            rest -= body.paid(each.account) if each.height in read else 0
            if found.inside is not None:
                found.unexplained += self._unexplained(each.height, {each.account: rest}, UNKNOWN)
        return found

    async def _found(
        self, touched: Touched, accounts: Sequence[str], hashes: Mapping[int, str], *, inside: bool
    ) -> Found:
        """What the blocks of a window hold of some accounts."""
        known = None if hashes or touched.sent is None else (touched.sent, self.kept)
        read = await bodies(self.chain, touched.heights, accounts, hashes, known)
        found = Found(touched, read, {})
        if touched.way == state.WAY:
            await self._explain(found)
        elif inside:
            found.inside = await self._moved(read, touched.inside)
        return found

    async def _is_short(self, suspects: Sequence[Ends], span: Span, hashes: Mapping[int, str]) -> bool:
        """Whether transactions are missing of accounts: a nonce says it of those without code. The nonce of a contract
        counts what it created, that of a delegated account what others sent for it."""
        names = [each.account for each in suspects]
        if not names:
            return False
        coded = await self.chain.node.with_any(
            lambda endpoint: state.with_code(endpoint, span.last, names, hashes), kind="account code"
        )
        return len(coded) < len(names)

    async def _touched(
        self, span: Span, accounts: Sequence[str], hashes: Mapping[int, str]
    ) -> tuple[Endpoint, Touched]:
        """The blocks of a window, and which endpoint found them."""

        async def at(endpoint: Endpoint) -> tuple[Endpoint, Touched]:
            ways = (self._traces.find, otterscan.find)
            for number in range(endpoint.capabilities.get(WAY, 0), len(ways)):
                try:
                    found = await ways[number](endpoint, span, accounts)
                except Unsupported as refusal:
                    endpoint.errors.note(refusal)
                    continue
                endpoint.learn(WAY, number)
                return endpoint, found
            endpoint.learn(WAY, len(ways))
            if self.chain.explorer is not None:
                return self.chain.explorer, await self.chain.explorer.touched(span, accounts)
            return endpoint, await state.find(endpoint, span, accounts, hashes, self.acts.of(accounts, span))

        return await self.chain.node.with_any(at, kind="account places")

    async def _moved(
        self, read: Mapping[int, Body], inside: Mapping[int, frozenset[str]]
    ) -> dict[int, list[Moved]] | None:
        """What some transactions moved inside; None where nobody can tell."""
        asked = [
            Wanted(read[height], index)
            for height, hashes in inside.items()
            for index, tx_hash in enumerate(read[height].place.transactions)
            if tx_hash in hashes
        ]
        found: defaultdict[int, list[Moved]] = defaultdict(list)
        try:
            moves = await self._inside(asked)
        except (Unsupported, HistoryUnavailable):
            return None
        for wanted, several in zip(asked, moves, strict=True):
            found[wanted.body.place.height] += several
        return found

    async def _inside(self, asked: Sequence[Wanted]) -> list[list[Moved]]:
        if self.chain.explorer is not None:
            return [await self.chain.explorer.inside(each.body.place, each.index) for each in asked]
        return await moved_in(self.chain.node, asked)

    # --- by the state ------------------------------------------------------------------------------------------------

    async def _explain(self, found: Found) -> None:
        """Look inside the blocks whose transactions and withdrawals do not explain how an account's coins changed."""
        found.has_payments = True
        left: dict[int, dict[str, int]] = {}
        for each in found.touched.changes:
            body = found.bodies[each.height]
            changed = each.after.coins - each.before.coins - body.paid(each.account) - body.withdrawn(each.account)
            if changed:
                left.setdefault(each.height, {})[each.account] = changed
        opened = await self._opened([found.bodies[height] for height in left])
        found.inside = {height: moves for height, moves in zip(left, opened.moves, strict=True) if moves}
        rests: dict[int, dict[str, int]] = {}
        for (height, mine), moves in zip(left.items(), opened.moves, strict=True):
            rests[height] = {account: raw - gained(moves or [], account) for account, raw in mine.items()}
            if any(rests[height].values()) and not opened.are_traced:
                found.inside.pop(height, None)  # a run that does not agree with the balances says nothing
                rests[height] = mine
        if not opened.are_traced:
            await self._replay(found, rests)
        for height, rest in rests.items():
            found.unexplained += self._unexplained(height, rest, UNTRACED if height in opened.closed else UNKNOWN)
        found.unexplained += self._unexplained(found.touched.span.last, dict.fromkeys(found.touched.coded), CODED)

    async def _replay(self, found: Found, rests: dict[int, dict[str, int]]) -> None:
        """Make transactions again whose calls must have paid accounts; what comes out even is a rest no more."""
        asked = [
            Rest(found.bodies[height], account, raw)
            for height, mine in rests.items()
            for account, raw in mine.items()
            if raw > 0 and account not in found.touched.coded
        ]
        for rest, moves in (await replayed(self.chain.node, asked)).items():
            height = rest.body.place.height
            rests[height] = {account: raw for account, raw in rests[height].items() if account != rest.account}
            assert found.inside is not None
            found.inside = {**found.inside, height: sorted([*found.inside.get(height, ()), *moves], key=_place)}

    def _unexplained(self, height: int, rest: Mapping[str, int | None], reason: str) -> tuple[Unexplained, ...]:
        """What is left of changes; None where it is not known how much."""
        coin = self.chain.info.native.asset
        return tuple(
            Unexplained(account, height, coin, raw or 0, reason) for account, raw in rest.items() if raw != 0
        )  # fmt: skip

    async def _opened(self, blocks: Sequence[Body]) -> _Opened:
        """What moved inside each block, by traces where a node has them, else by having a node run it again."""
        asked = [Wanted(body, index) for body in blocks for index in range(len(body.full.transactions))]
        try:
            moves = await moved_in(self.chain.node, asked)
        except (Unsupported, HistoryUnavailable):
            ran = await simulated(self.chain.node, blocks)
            closed = (body.place.height for body, moves in zip(blocks, ran, strict=True) if moves is None)
            return _Opened(ran, are_traced=False, closed=frozenset(closed))
        found: dict[int, list[Moved]] = {body.place.height: [] for body in blocks}
        for wanted, several in zip(asked, moves, strict=True):
            found[wanted.body.place.height] += several
        return _Opened([found[body.place.height] for body in blocks], are_traced=True)


@dataclass(frozen=True, slots=True)
class _Opened:
    """What moved inside some blocks; None of one that no endpoint can look into, whose height is in `closed`."""

    moves: Sequence[list[Moved] | None]
    are_traced: bool
    closed: frozenset[int] = frozenset()


UNTRACED = "no endpoint traces or simulates the block: calls inside its transactions may have moved these coins"
BETWEEN = (
    "since the window before, the coins changed by so much more than what was found explains: calls or fees of "
    "proposed blocks that no endpoint lists"
)
UNKNOWN = "neither transactions, withdrawals nor calls of the block explain this change"
CODED = (
    "the account has code: its coins can go and come within one interval of the search, and nonces do not show it; use "
    "an endpoint with trace_filter"
)


def _place(moved: Moved) -> int:
    return moved.tx_index
