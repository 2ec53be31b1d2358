"""Derive the events of rules from newly indexed blocks.

No other module reports new blocks to this one. It reads the rows above its cursor. The cursor moves in the
transaction that stores the events, so that a killed process loses none and stores none twice. Rows that may still be
replaced are read again if their block has left the chain; events that are no longer derived are corrected.

A chain that is indexed whole has one cursor, and its new rows are read once, however many rules there are. A chain
that is indexed by account has one cursor for each account.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Final

import msgspec

from chainfolio.alerts.activity import Activity, read_activity
from chainfolio.alerts.events import base_of, correction, restored
from chainfolio.alerts.kinds import KINDS
from chainfolio.alerts.transactions import OF_LOGS, of_logs, of_transactions
from chainfolio.assets import account
from chainfolio.blocks import Block, Span, Spans
from chainfolio.chain_settings import EVERYTHING
from chainfolio.errors import ChainfolioError, NotFound
from chainfolio.indexer.scopes import indexed_for_all
from chainfolio.storage.state import alerts, deliveries
from chainfolio.storage.state.alerts import Cursor, Rule

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.engine.service import Engine
    from chainfolio.storage.state import State
    from chainfolio.storage.state.database import Transaction
    from chainfolio.storage.state.deliveries import Event

MAX_BLOCKS: Final = 2000  # in one step


@dataclass(slots=True)
class Scanner:
    """Stores the events of indexed blocks for all rules of a state store."""

    engine: Engine
    state: State

    async def run_once(self) -> int:
        """Read the new blocks of all chains, and return the number of stored events.

        What cannot be read now is read at the next call; the rules have the reason, and other chains do not wait.
        """
        stored = 0
        rules = [each for each in await self.state.database.read_async(alerts.rules) if KINDS[each.kind].of_blocks]
        cursors = await self.state.database.read_async(alerts.cursors) if rules else {}
        for chain in self.engine.system.account_chains:
            for name, group in self._groups(chain, rules).items():
                try:
                    stored += await self._catch_up(chain, group, cursors.get((chain.key, name)), name)
                except ChainfolioError as error:
                    await self._note(group, _chain_problem(chain.key) + error.message)
        return stored

    def _groups(self, chain: Chain, rules: Sequence[Rule]) -> dict[str, list[Rule]]:
        """Return the rules of a chain by the account of their cursor, empty for a chain that is indexed whole."""
        groups: dict[str, list[Rule]] = {}
        is_whole = chain.settings.index == EVERYTHING
        for rule in rules:
            if account(rule.subject).kind == chain.kind and chain.key in starts_of(rule):
                groups.setdefault("" if is_whole else rule.subject, []).append(rule)
        return groups

    async def _catch_up(self, chain: Chain, rules: Sequence[Rule], cursor: Cursor | None, name: str) -> int:
        """Read a chain step by step up to what is indexed, and return the number of stored events.

        It ends early after MAX_BLOCKS steps, if the chain changed during a step, or if another process was faster.
        """
        stored = 0
        first = min(starts_of(rule)[chain.key] for rule in rules)
        cursor_before = cursor
        if cursor is None or cursor.height < first:
            cursor = Cursor(chain.key, name, first, "", first)
        for _ in range(MAX_BLOCKS):
            step = await asyncio.to_thread(self._step, chain, rules, cursor)
            if step is None:
                return stored
            events = await self._derive(chain, rules, step)
            if not await asyncio.to_thread(self._is_unchanged, chain, step):
                return stored  # read again at the next call
            added = await self._store(cursor_before, step, events, rules)
            if added is None:
                return stored  # another process was faster
            stored += added
            cursor = cursor_before = step.cursor
        return stored

    # --- one step ----------------------------------------------------------------------------------------------------

    def _step(self, chain: Chain, rules: Sequence[Rule], cursor: Cursor) -> Step | None:
        """Return up to MAX_BLOCKS next heights with their activity; None if nothing changed since the cursor."""
        tail = self.engine.system.tail
        blocks = tail.blocks(chain.key)
        hashes = {block.hash for block in blocks}
        is_read_again = bool(cursor.hash) and cursor.hash not in hashes
        begin = cursor.final if is_read_again else cursor.height
        accounts = sorted({rule.subject for rule in rules})
        last = min(self._indexed_until(chain, accounts, begin), begin + MAX_BLOCKS)
        if last <= begin and not is_read_again:
            return None
        span = Span(begin + 1, last) if last > begin else None
        activity = [] if span is None else read_activity(self.engine.system, chain, accounts, span)
        top = max((block for block in blocks if block.height <= last), key=_height, default=None)
        lowest = blocks[0].height if blocks else last + 1
        final = max(cursor.final, min(last, lowest - 1))
        new = Cursor(chain.key, cursor.account, last, "" if top is None else top.hash, final)
        return Step(span, new, activity)

    def _indexed_until(self, chain: Chain, accounts: Sequence[str], height: int) -> int:
        """Return the last height up to which all rows above `height` are indexed for the accounts."""
        system = self.engine.system
        names = system.response_datasets(chain, accounts)
        required = [
            each.name
            for each in chain.datasets.values()
            if each.in_activity and not each.reward_protocol and (not each.loss or each.name in names)
        ]
        ranges = [indexed_for_all(system.tail, chain.key, name, accounts) for name in required]
        indexed = reduce(Spans.__and__, ranges) if ranges else Spans()
        return next((span.last for span in indexed if span.first <= height + 1 <= span.last), height)

    async def _derive(self, chain: Chain, rules: Sequence[Rule], step: Step) -> list[Event]:
        """Return the events of a step by height, and fill the sets of the step.

        Rules about transactions of an account that has too many are skipped, and the reason is stored.
        """
        by_account: dict[str, list[Rule]] = {}
        for rule in rules:
            by_account.setdefault(rule.subject, []).append(rule)
        events: list[Event] = []
        for activity in step.activity:
            group = by_account[activity.account]
            derived = [of_logs(chain, group, activity)]
            try:
                derived.append(await of_transactions(self.engine, chain, group, activity))
                step.evaluated.update(rule.id for rule in group)
            except NotFound as error:
                skipped = [rule for rule in group if rule.kind not in OF_LOGS]
                step.skipped.update(rule.id for rule in skipped)
                await self._note(skipped, _transactions_problem(chain.key) + error.message)
            for each in derived:
                events += each.events
                step.present.update(each.present)
        return sorted(events, key=lambda each: each.height or 0)

    def _is_unchanged(self, chain: Chain, step: Step) -> bool:
        """Return True if the blocks of a step are still there."""
        tail = self.engine.system.tail
        if not step.cursor.hash:
            return True
        after = {block.hash for block in tail.blocks(chain.key)}
        anchor = tail.anchor(chain.key)
        return step.cursor.hash in after or (anchor is not None and anchor.hash == step.cursor.hash)

    async def _store(
        self, cursor: Cursor | None, step: Step, events: Sequence[Event], rules: Collection[Rule]
    ) -> int | None:
        """Store events, corrections and the cursor, and clear the problems of rules that are over.

        Returns the number of events and corrections, or None, without storing, if another process moved the cursor.
        """
        now_us, ids = self.state.clock.now_us(), {rule.id for rule in rules}

        def work(tx: Transaction) -> int | None:
            if not alerts.move_cursor(tx, cursor, step.cursor):
                return None
            for rule in rules:
                if _is_solved(rule, step):
                    alerts.store_problem(tx, rule.id, "")
            return _store_corrected(tx, step, events, ids - step.skipped, now_us)

        return await self.state.write(work)

    async def _note(self, rules: Collection[Rule], problem: str) -> None:
        """Store why rules cannot be evaluated."""

        def work(tx: Transaction) -> None:
            for rule in rules:
                if rule.problem != problem:
                    alerts.store_problem(tx, rule.id, problem)

        await self.state.write(work)


@dataclass(frozen=True, slots=True)
class Step:
    """Heights that were read.

    Attributes:
        span: None if the cursor moves back to final heights, and nothing above them is indexed yet.
        present: Ids of events whose transaction is in the span, whatever its value or type is now.
        evaluated: Ids of rules of accounts with activity that were evaluated.
        skipped: Ids of rules that could not be evaluated.
    """

    span: Span | None
    cursor: Cursor
    activity: Sequence[Activity]
    present: set[str] = field(default_factory=set)
    evaluated: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)


def _store_corrected(
    tx: Transaction, step: Step, events: Sequence[Event], rule_ids: Collection[str], now_us: int
) -> int:
    """Store the events of a span, and corrections of stored ones not derived now; return their number.

    Events of other heights do not change. They are compared when their heights are read again.
    """
    if step.span is None:
        return 0
    stored = [each for each in deliveries.within(tx, step.cursor.chain, step.span) if each.rule_id in rule_ids]
    returns = Counter(base_of(each.id)[0] for each in stored if each.corrected)
    valid = {base_of(each.id)[0] for each in stored if not each.corrected}
    derived = {each.id for each in events} | step.present
    corrections = [each for each in stored if not each.corrected and base_of(each.id)[0] not in derived]
    new = [restored(each, returns[each.id]) for each in events if each.id not in valid]
    added = deliveries.add(tx, [*(correction(each, now_us) for each in corrections), *new], now_us)
    for each in corrections:
        deliveries.mark_corrected(tx, each.id)
    return added


def _chain_problem(chain: str) -> str:
    return f"{chain}: "


def _transactions_problem(chain: str) -> str:
    return f"{chain}, transactions: "


def _is_solved(rule: Rule, step: Step) -> bool:
    """Return True if a step shows that the stored problem of a rule is over."""
    chain = step.cursor.chain
    if rule.problem.startswith(_chain_problem(chain)):
        return True
    return rule.id in step.evaluated and rule.problem.startswith(_transactions_problem(chain))


def starts_of(rule: Rule) -> Mapping[str, int]:
    """Return the height of each chain above which events of a rule count."""
    return msgspec.json.decode(rule.starts, type=dict[str, int])


def _height(block: Block) -> int:
    return block.height
