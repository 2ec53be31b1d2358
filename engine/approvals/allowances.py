"""What approvals still allow: read from the chain at one block by its hash, and what of it could be taken now.

The index says which approvals there were, the contracts say what is left of them: an allowance is spent without an
event, and an event need not be true.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeVar

from chainfolio import amounts
from chainfolio.addresses import rules_of
from chainfolio.blocks import Block
from chainfolio.chains import Capability, require_capability
from chainfolio.contracts import Holding, Issue, Price, Token
from chainfolio.engine.answers import Allowance, Approval, ApprovalsPage, Operator, Place
from chainfolio.engine.approvals.pages import AMOUNT, COLUMNS, approval, time_us
from chainfolio.engine.rows import rows_of
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.stored_heads import StoredHead
from chainfolio.errors import BadAnswer
from chainfolio.plans import Plan, run_batched
from chainfolio.portfolio.valuation import value_holding
from chainfolio.tables import ACCOUNT_APPROVALS, ACCOUNT_TRANSFERS

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.approvals import AllowanceState
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

State = TypeVar("State")
UNLIMITED: Final = 2**255  # who is allowed 2^256-1 and has spent some of it is as free as before


@dataclass(frozen=True, slots=True)
class Standing:
    """What approvals allow at one block: those of amounts, and who may move collectibles."""

    block: Block
    allowances: tuple[Allowance, ...]
    operators: tuple[Operator, ...] = ()
    issues: tuple[Issue, ...] = ()

    @property
    def at_risk(self) -> Decimal:
        """What could be taken, in USD: of each holding once, whoever may take it. What has no price is not in it."""
        held: defaultdict[tuple[str, str], list[Allowance]] = defaultdict(list)
        for each in self.allowances:
            if each.at_risk is not None:
                held[each.approval.owner, each.approval.token].append(each)
        return amounts.total([_together(each) for each in held.values()])

    @property
    def unpriced(self) -> int:
        """How many allowances have a risk that nobody can tell."""
        return sum(each.at_risk is None for each in self.allowances)


def _together(same: Sequence[Allowance]) -> Decimal:
    """What several spenders could take of one holding: no more than there is."""
    first = same[0]
    assert first.balance is not None, "what is at risk is of a known balance"
    raw = min(first.balance, sum(each.raw or 0 for each in same))
    return _value_usd(first.approval.owner, first.token, raw, first.price) or amounts.ZERO


def _value_usd(owner: str, token: Token, raw: int, price: Price | None) -> Decimal | None:
    """USD; exactly nothing of nothing, None of what has no price or no amount."""
    if raw == 0:
        return amounts.ZERO
    return value_holding(Holding(owner, token, raw), "", Block(0, "", "", 0), price).value_usd


# --- which approvals there are ---------------------------------------------------------------------------------------


def latest(lake: Lake, tail: Tail, chain: str, owners: Sequence[str], keys: Sequence[str], column: str) -> pl.DataFrame:
    """The last approval event of each key, by owners, the newest first: of those that say something in a column."""
    import polars as pl

    rows = rows_of(lake, tail, chain, ACCOUNT_APPROVALS, owners, COLUMNS, where=pl.col(column).is_not_null())
    return rows.sort("height", "log_index").unique(keys, keep="last").sort("height", "log_index", descending=True)


def latest_amounts(lake: Lake, tail: Tail, chain: str, owners: Sequence[str]) -> list[Approval]:
    """The last approval of an amount of each owner, token and spender, the newest first; revoked ones too."""
    rows = latest(lake, tail, chain, owners, ("account", "token", "spender"), AMOUNT)
    return [approval(row) for row in rows.iter_rows(named=True)]


def latest_operators(
    lake: Lake, tail: Tail, chain: str, owners: Sequence[str], nobody: Collection[str]
) -> list[Operator]:
    """Who was last allowed to move collectibles, by the events: all of a collection, or one of them. To allow
    `nobody` is to take back."""
    for_all = latest(lake, tail, chain, owners, ("account", "token", "spender"), "approved")
    single = latest(lake, tail, chain, owners, ("token", "token_id"), "token_id")
    operators = [
        Operator(
            place=Place(row["height"], row["log_index"], row["tx_hash"]),
            time_us=time_us(row["time"]),
            token=row["token"],
            owner=row["account"],
            spender=row["spender"],
            token_id=None if row["token_id"] is None else amounts.raw_from_bytes(row["token_id"]),
        )
        for row in (*for_all.iter_rows(named=True), *single.iter_rows(named=True))
        if row["approved"] is not False and row["spender"] not in nobody
    ]
    return sorted(operators, key=lambda each: (each.place.height, each.place.log_index), reverse=True)


def editions(
    lake: Lake, tail: Tail, chain: str, owners: Sequence[str], standards: Collection[str]
) -> dict[str, dict[str, set[int]]]:
    """The ids of editions, of which several can be held, that accounts have met, by account and contract."""
    import polars as pl

    columns, edition = ("account", "token", "token_id"), pl.col("standard").is_in(sorted(standards))
    rows = rows_of(lake, tail, chain, ACCOUNT_TRANSFERS, owners, columns, where=edition)
    ids: dict[str, dict[str, set[int]]] = {owner: {} for owner in owners}
    for owner, token, number in rows.iter_rows():
        ids[owner].setdefault(token, set()).add(amounts.raw_from_bytes(number))
    return ids


# --- what the chain says of them -------------------------------------------------------------------------------------


async def allowances(
    snapshotter: Snapshotter, approvals: Sequence[Approval], block: Block, labels: Mapping[str, str]
) -> tuple[Allowance, ...]:
    """What is left of approvals at a block, and what it is worth, in their order: about two requests.

    SourceError where the node does not answer. A contract that refuses has an allowance of None: it is not known.
    """
    token_asset = snapshotter.chain.info.token_asset
    tokens = {each.token: token_asset(each.token) for each in approvals}
    about = await snapshotter.token_context(tokens.values(), block)
    if about.issues:
        raise BadAnswer(snapshotter.chain.key, f"{about.issues[0].adapter}: {about.issues[0].reason}")
    known = {contract: about.tokens[asset] for contract, asset in tokens.items()}
    plan = require_capability(snapshotter.chain, Capability.APPROVALS).allowances(approvals)
    states = await _run(snapshotter, block, plan)
    prices = {price.asset: price for price in about.quotes.prices}
    return tuple(
        _allowance(each, state, known[each.token], prices.get(known[each.token].asset), labels.get(each.spender))
        for each, state in zip(approvals, states, strict=True)
    )


def _allowance(
    approval: Approval, state: AllowanceState, token: Token, price: Price | None, label: str | None
) -> Allowance:
    raw, balance, supply = state
    at_risk = None if raw is None or balance is None else _value_usd(approval.owner, token, min(raw, balance), price)
    unlimited = raw is not None and (raw >= UNLIMITED or (supply is not None and 0 < supply < raw))
    return Allowance(approval, token, raw, unlimited, balance, price, at_risk, label)


async def operators(
    snapshotter: Snapshotter, approved: Sequence[Operator], block: Block, labels: Mapping[str, str]
) -> tuple[Operator, ...]:
    """Those who may still move collectibles at a block, in their order, each with how many it could take."""
    owners = sorted({each.owner for each in approved})
    lake, tail, key = snapshotter.lake, snapshotter.tail, snapshotter.chain.key
    approves = require_capability(snapshotter.chain, Capability.APPROVALS)
    ids = await asyncio.to_thread(editions, lake, tail, key, owners, approves.edition_standards)
    states = await _run(snapshotter, block, approves.operators(approved, ids))
    return tuple(
        replace(each, standard=state.standard, held=state.movable, label=labels.get(each.spender))
        for each, state in zip(approved, states, strict=True)
        if state is not None
    )


async def _run(snapshotter: Snapshotter, block: Block, plan: Plan[Any, Any, Sequence[State]]) -> Sequence[State]:
    report = (await run_batched({"approvals": plan}, lambda reads: snapshotter.chain.answer(reads, block)))["approvals"]
    if report.result is None:
        raise BadAnswer(snapshotter.chain.key, f"what is left of approvals could not be read: {report.reason}")
    return report.result


Labels = Callable[[str, Iterable[str]], dict[str, str]]  # the names of known spenders, by chain and address


async def standing(snapshotter: Snapshotter, owners: Sequence[str], labels: Labels) -> Standing:
    """All that owners' approvals still allow, at the newest block that is indexed, the greatest risk first, then what
    nobody can tell."""
    lake, tail, key = snapshotter.lake, snapshotter.tail, snapshotter.chain.key
    block = await snapshotter.newest_block()
    events = await asyncio.to_thread(latest_amounts, lake, tail, key, owners)
    allowed = await asyncio.to_thread(
        latest_operators, lake, tail, key, owners, rules_of(snapshotter.chain.kind).burn_addresses
    )
    names = labels(key, {event.spender for event in events} | {operator.spender for operator in allowed})
    left = await allowances(snapshotter, [each for each in events if each.raw], block, names)
    may = await operators(snapshotter, allowed, block, names)
    return Standing(block, tuple(sorted((each for each in left if each.raw != 0), key=_order)), may)


async def stored_standing(
    snapshotter: Snapshotter, owners: Sequence[str], labels: Labels, head: StoredHead
) -> Standing:
    """Return the approvals that were last given, without a node: what is left of them, and at risk, is not known."""
    lake, tail, key = snapshotter.lake, snapshotter.tail, snapshotter.chain.key
    events = await asyncio.to_thread(latest_amounts, lake, tail, key, owners)
    given = [each for each in events if each.raw]
    nobody = rules_of(snapshotter.chain.kind).burn_addresses
    may = await asyncio.to_thread(latest_operators, lake, tail, key, owners, nobody)
    assets = {each.token: snapshotter.chain.info.token_asset(each.token) for each in given}
    tokens = await asyncio.to_thread(snapshotter.book.stored, set(assets.values()))
    names = labels(key, {each.spender for each in given} | {each.spender for each in may})
    left = [
        Allowance(each, tokens[assets[each.token]], None, False, None, None, None, names.get(each.spender))
        for each in given
    ]
    operators = tuple(replace(each, label=names.get(each.spender)) for each in may)
    unread = Issue(key, "allowances", "the node does not answer: what is left of approvals, and at risk, is not known")
    return Standing(head.block, tuple(left), operators, (unread,) if head.issue is None else (head.issue, unread))


def _order(allowance: Allowance) -> tuple[bool, Decimal, bool, int, int]:
    risk, place = allowance.at_risk, allowance.approval.place
    value_usd = amounts.ZERO if risk is None else risk.copy_negate()
    return risk is None, value_usd, not allowance.unlimited, -place.height, -place.log_index


async def included(
    page: ApprovalsPage,
    snapshotter: Snapshotter,
    owners: Sequence[str],
    include: Collection[str],
    labels: Labels,
    *,
    first: bool,
    permit2: Collection[str] = (),
) -> ApprovalsPage:
    """A page with what was asked for beside its events, all at one block; operators, and what is allowed inside the
    contracts `permit2`, are listed on a first page."""
    from chainfolio.engine.approvals.permit2 import permitted

    lake, tail, key = snapshotter.lake, snapshotter.tail, snapshotter.chain.key
    block = await snapshotter.newest_block()
    allowed = None
    if "operators" in include and first:
        allowed = await asyncio.to_thread(
            latest_operators, lake, tail, key, owners, rules_of(snapshotter.chain.kind).burn_addresses
        )
    inside = await permitted(snapshotter, owners, permit2, block) if "permit2" in include and first else None
    spenders = {each.spender for each in (*page.items, *(allowed or ()), *(inside or ()))}
    names = labels(key, spenders)
    left: tuple[Allowance, ...] = ()
    if "allowance" in include:
        left = await allowances(
            snapshotter, await asyncio.to_thread(current, page.items, lake, tail, key), block, names
        )
    may = None if allowed is None else await operators(snapshotter, allowed, block, names)
    return replace(
        page,
        block=block,
        allowances={each.approval.place: each for each in left},
        operators=may,
        permitted=inside,
        labels=names,
    )


def current(approvals: Collection[Approval], lake: Lake, tail: Tail, chain: str) -> list[Approval]:
    """Those of some approvals that no later one of the same owner, token and spender has replaced."""
    owners = sorted({each.owner for each in approvals})
    newest = {each.place for each in latest_amounts(lake, tail, chain, owners)} if owners else set()
    return [each for each in approvals if each.place in newest]
