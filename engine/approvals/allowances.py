"""Allowances and collectible operators that are still in force at one block, and their value at risk.

The index has the approval events. The contracts are asked for the allowances that are left: an allowance is spent
without an event, and an event may be false.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from chainfolio import amounts
from chainfolio.addresses import rules_of
from chainfolio.blocks import Block
from chainfolio.capabilities import Capability, require_capability
from chainfolio.contracts import Holding, Issue, Price, Token
from chainfolio.engine.approvals.pages import AMOUNT, COLUMNS, approval, approvals_page, assets, time_us
from chainfolio.engine.results import Allowance, Approval, ApprovalsPage, EventPosition, Operator
from chainfolio.engine.rows import ChainIndex, rows_of
from chainfolio.engine.snapshots.snapshotter import LIVE_LAG_S, Snapshotter
from chainfolio.engine.stored_heads import StoredHead
from chainfolio.errors import BadAnswer, SourceError
from chainfolio.messages import public
from chainfolio.plans import Plan, run_batched
from chainfolio.portfolio.valuation import value_holding
from chainfolio.tables import ACCOUNT_APPROVALS, ACCOUNT_TRANSFERS

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.approvals import AllowanceState
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

State = TypeVar("State")
UNLIMITED: Final = 2**255  # an allowance of 2^256-1 that is partly spent still counts as unlimited


@dataclass(frozen=True, slots=True)
class CurrentApprovals:
    """The allowances of tokens and the operators of collectibles at one block."""

    block: Block
    allowances: tuple[Allowance, ...]
    operators: tuple[Operator, ...] = ()
    issues: tuple[Issue, ...] = ()

    @property
    def at_risk(self) -> Decimal:
        """Return the USD at risk: each holding counts once, at most its balance; unpriced ones count 0."""
        allowances_by_holding: defaultdict[tuple[str, str], list[Allowance]] = defaultdict(list)
        for each in self.allowances:
            if each.at_risk is not None:
                allowances_by_holding[each.approval.owner, each.approval.token].append(each)
        return amounts.total([_shared_risk(each) for each in allowances_by_holding.values()])

    @property
    def unpriced(self) -> int:
        """Return the number of allowances whose value at risk is not known."""
        return sum(each.at_risk is None for each in self.allowances)


def _shared_risk(allowances: Sequence[Allowance]) -> Decimal:
    """Return the USD of one holding that its spenders could take together, at most its balance."""
    first = allowances[0]
    assert first.balance is not None, "a value at risk needs a balance"
    raw = min(first.balance, sum(each.raw or 0 for each in allowances))
    return _value_usd(first.approval.owner, first.token, raw, first.price) or amounts.ZERO


def _value_usd(owner: str, token: Token, raw: int, price: Price | None) -> Decimal | None:
    """Return the USD value: 0 for a raw amount of 0, None without a price."""
    if raw == 0:
        return amounts.ZERO
    return value_holding(Holding(owner, token, raw), "", Block(0, "", "", 0), price).value_usd


# --- approval events of the index ------------------------------------------------------------------------------------


def latest_events(
    lake: Lake, tail: Tail, chain: str, owners: Sequence[str], keys: Sequence[str], column: str
) -> pl.DataFrame:
    """Return the last approval event of each key, newest first; only events that fill `column` count."""
    import polars as pl

    rows = rows_of(
        ChainIndex(lake, tail, chain), ACCOUNT_APPROVALS, owners, COLUMNS, where=pl.col(column).is_not_null()
    )
    return rows.sort("height", "log_index").unique(keys, keep="last").sort("height", "log_index", descending=True)


def latest_amounts(lake: Lake, tail: Tail, chain: str, owners: Sequence[str]) -> list[Approval]:
    """Return the last approval of each owner, token and spender, newest first, revoked ones included."""
    rows = latest_events(lake, tail, chain, owners, ("account", "token", "spender"), AMOUNT)
    return [approval(row) for row in rows.iter_rows(named=True)]


def latest_operators(
    lake: Lake, tail: Tail, chain: str, owners: Sequence[str], burn_addresses: Collection[str]
) -> list[Operator]:
    """Return the operators of collections and single collectibles by their last events, newest first.

    Revoked ones are left out; an approval of one of `burn_addresses` revokes. Nothing is read from the node.
    """
    for_all = latest_events(lake, tail, chain, owners, ("account", "token", "spender"), "approved")
    single = latest_events(lake, tail, chain, owners, ("token", "token_id"), "token_id")
    operators = [
        Operator(
            position=EventPosition(row["height"], row["log_index"], row["tx_hash"]),
            time_us=time_us(row["time"]),
            token=row["token"],
            owner=row["account"],
            spender=row["spender"],
            token_id=None if row["token_id"] is None else amounts.raw_from_bytes(row["token_id"]),
        )
        for row in (*for_all.iter_rows(named=True), *single.iter_rows(named=True))
        if row["approved"] is not False and row["spender"] not in burn_addresses
    ]
    return sorted(operators, key=lambda each: (each.position.height, each.position.log_index), reverse=True)


def editions(
    lake: Lake, tail: Tail, chain: str, owners: Sequence[str], standards: Collection[str]
) -> dict[str, dict[str, set[int]]]:
    """Return the token ids of semi-fungible standards in the accounts' transfers, by account and contract.

    Each account has an entry. Ids that left the account again are among them.
    """
    import polars as pl

    columns, edition = ("account", "token", "token_id"), pl.col("standard").is_in(sorted(standards))
    rows = rows_of(ChainIndex(lake, tail, chain), ACCOUNT_TRANSFERS, owners, columns, where=edition)
    ids: dict[str, dict[str, set[int]]] = {owner: {} for owner in owners}
    for owner, token, number in rows.iter_rows():
        ids[owner].setdefault(token, set()).add(amounts.raw_from_bytes(number))
    return ids


# --- state of the approvals on chain ---------------------------------------------------------------------------------


async def allowances(
    snapshotter: Snapshotter, approvals: Sequence[Approval], block: Block, labels: Mapping[str, str]
) -> tuple[Allowance, ...]:
    """Read and price the allowances left at a block, in the order of `approvals`: about two requests.

    The raw allowance is None if the contract refuses the call.

    Raises:
        MissingCapability: The chain has no approvals.
        BadAnswer: A token or an allowance could not be read.
        SourceError: The node does not answer.
    """
    token_asset = snapshotter.chain.info.token_asset
    tokens = {each.token: token_asset(each.token) for each in approvals}
    context = await snapshotter.token_context(tokens.values(), block)
    if context.issues:
        raise BadAnswer(snapshotter.chain.key, f"{context.issues[0].adapter}: {context.issues[0].reason}")
    by_key = {contract: context.tokens[asset] for contract, asset in tokens.items()}
    plan = require_capability(snapshotter.chain, Capability.APPROVALS).allowances(approvals)
    states = await _run(snapshotter, block, plan)
    prices = {price.asset: price for price in context.quotes.prices}
    return tuple(
        _allowance(each, state, by_key[each.token], prices.get(by_key[each.token].asset), labels.get(each.spender))
        for each, state in zip(approvals, states, strict=True)
    )


def _allowance(
    approval: Approval, state: AllowanceState, token: Token, price: Price | None, label: str | None
) -> Allowance:
    """Return an allowance with its value at risk: that of the balance if the allowance is greater.

    It is unlimited if it is at least UNLIMITED or above the supply. The value at risk is None if the allowance, the
    balance or the price is unknown.
    """
    raw, balance, supply = state
    at_risk = None if raw is None or balance is None else _value_usd(approval.owner, token, min(raw, balance), price)
    unlimited = raw is not None and (raw >= UNLIMITED or (supply is not None and 0 < supply < raw))
    return Allowance(approval, token, raw, unlimited, balance, price, at_risk, label)


async def operators(
    snapshotter: Snapshotter, approved: Sequence[Operator], block: Block, labels: Mapping[str, str]
) -> tuple[Operator, ...]:
    """Return the operators that are still approved at a block, with the number that each could move.

    Their order stays.

    Raises:
        MissingCapability: The chain has no approvals.
        BadAnswer: The approvals could not be read.
        SourceError: The node does not answer.
    """
    owners = sorted({each.owner for each in approved})
    lake, tail, key = snapshotter.lake, snapshotter.tail, snapshotter.chain.key
    approves = require_capability(snapshotter.chain, Capability.APPROVALS)
    ids = await asyncio.to_thread(editions, lake, tail, key, owners, approves.edition_standards)
    states = await _run(snapshotter, block, approves.operators(approved, ids))
    return tuple(
        replace(each, standard=state.standard, movable_count=state.movable, label=labels.get(each.spender))
        for each, state in zip(approved, states, strict=True)
        if state is not None
    )


async def _run(snapshotter: Snapshotter, block: Block, plan: Plan[Sequence[State]]) -> Sequence[State]:
    """Return the result of a plan at a block; raise BadAnswer if the plan failed."""
    report = (await run_batched({"approvals": plan}, lambda reads: snapshotter.chain.answer(reads, block)))["approvals"]
    if report.result is None:
        raise BadAnswer(snapshotter.chain.key, f"what is left of approvals could not be read: {report.reason}")
    return report.result


Labels = Callable[[str, Iterable[str]], dict[str, str]]  # from a chain and spenders to the names of known ones


class KnownSpenders(Protocol):
    """Names of spenders, and the addresses of Permit2."""

    def labels(self, chain: str, spenders: Iterable[str], /) -> dict[str, str]:
        """Return the names of known spenders on a chain."""

    def permit2(self, chain: str, /) -> tuple[str, ...]:
        """Return the addresses of Permit2 on a chain."""


async def read_current_approvals(snapshotter: Snapshotter, owners: Sequence[str], labels: Labels) -> CurrentApprovals:
    """Read all allowances and operators of owners at the newest indexed block.

    The greatest value at risk comes first, unknown ones last. Used-up allowances are left out; unreadable ones stay.
    Errors as of `allowances` and `operators`.
    """
    lake, tail, key = snapshotter.lake, snapshotter.tail, snapshotter.chain.key
    block = await snapshotter.newest_block()
    events = await asyncio.to_thread(latest_amounts, lake, tail, key, owners)
    allowed = await asyncio.to_thread(
        latest_operators, lake, tail, key, owners, rules_of(snapshotter.chain.kind).burn_addresses
    )
    names = labels(key, {event.spender for event in events} | {operator.spender for operator in allowed})
    allowances_left = await allowances(snapshotter, [each for each in events if each.raw], block, names)
    operators_left = await operators(snapshotter, allowed, block, names)
    return CurrentApprovals(
        block, tuple(sorted((each for each in allowances_left if each.raw != 0), key=_order)), operators_left
    )


async def stored_approvals(
    snapshotter: Snapshotter, owners: Sequence[str], labels: Labels, head: StoredHead
) -> CurrentApprovals:
    """Return the stored approvals, newest first, without asking the node.

    Allowances, balances, prices and values at risk are None, and `unlimited` is False: only the node knows them. The
    block is that of `head`, and issues say what is unknown. Approvals of 0 are left out.
    """
    lake, tail, key = snapshotter.lake, snapshotter.tail, snapshotter.chain.key
    events = await asyncio.to_thread(latest_amounts, lake, tail, key, owners)
    approvals = [each for each in events if each.raw]
    burn_addresses = rules_of(snapshotter.chain.kind).burn_addresses
    stored_operators = await asyncio.to_thread(latest_operators, lake, tail, key, owners, burn_addresses)
    assets = {each.token: snapshotter.chain.info.token_asset(each.token) for each in approvals}
    tokens = await asyncio.to_thread(snapshotter.book.stored, set(assets.values()))
    names = labels(key, {each.spender for each in approvals} | {each.spender for each in stored_operators})
    unread_allowances = [
        Allowance(each, tokens[assets[each.token]], None, False, None, None, None, names.get(each.spender))
        for each in approvals
    ]
    operators = tuple(replace(each, label=names.get(each.spender)) for each in stored_operators)
    unread = Issue(key, "allowances", "the node does not answer: what is left of approvals, and at risk, is not known")
    return CurrentApprovals(
        head.block, tuple(unread_allowances), operators, (unread,) if head.issue is None else (head.issue, unread)
    )


def _order(allowance: Allowance) -> tuple[bool, Decimal, bool, int, int]:
    risk, position = allowance.at_risk, allowance.approval.position
    value_usd = amounts.ZERO if risk is None else risk.copy_negate()
    return risk is None, value_usd, not allowance.unlimited, -position.height, -position.log_index


async def read_page(
    snapshotter: Snapshotter,
    head: StoredHead,
    owners: Sequence[str],
    limit: int,
    start: EventPosition | None,
    include: Collection[str],
    spenders: KnownSpenders,
) -> ApprovalsPage:
    """Return a page of approvals from `start` (None: the newest) on, with holdings of the tokens.

    Without the node, the page has events only, and issues; an issue, too, if only the holdings could not be read.
    Errors as of `approvals_page` and `with_state`.

    Args:
        include: Any of "allowance", "operators" and "permit2": what is read in addition.
    """
    lake, tail, chain = snapshotter.lake, snapshotter.tail, snapshotter.chain
    begin, lag = start or head.block.height, chain.info.blocks_in(LIVE_LAG_S)
    items, end = await asyncio.to_thread(approvals_page, lake, tail, chain.key, owners, limit, begin, lag)
    if head.issue is not None:
        unread = (Issue(chain.key, each, f"the node does not answer: `{each}` is left out") for each in include)
        return ApprovalsPage(tuple(items), end, issues=(head.issue, *unread))
    page = ApprovalsPage(tuple(items), end)
    try:
        page = replace(page, assets=await assets(snapshotter, {(item.owner, item.token) for item in items}))
    except SourceError as error:
        reason = f"holdings of the approved tokens could not be read: {public(error.reason)}"
        page = replace(page, issues=(Issue(chain.key, "assets", reason),))
    if not include:
        return page
    return await with_state(
        page,
        snapshotter,
        owners,
        include,
        spenders.labels,
        first=start is None,
        permit2=spenders.permit2(chain.key),
    )


async def with_state(
    page: ApprovalsPage,
    snapshotter: Snapshotter,
    owners: Sequence[str],
    include: Collection[str],
    labels: Labels,
    *,
    first: bool,
    permit2: Collection[str] = (),
) -> ApprovalsPage:
    """Return the page with the state that `include` names, all at one block.

    Operators, and the allowances inside the contracts `permit2`, are added to a first page only; else they are None.
    Allowances are those of approvals that no later approval replaced. Errors as of `allowances`, `operators` and
    `read_permit2_allowances`.

    Args:
        first: True for the page of the newest approvals.
    """
    from chainfolio.engine.approvals.permit2 import read_permit2_allowances

    lake, tail, key = snapshotter.lake, snapshotter.tail, snapshotter.chain.key
    block = await snapshotter.newest_block()
    allowed = None
    if "operators" in include and first:
        allowed = await asyncio.to_thread(
            latest_operators, lake, tail, key, owners, rules_of(snapshotter.chain.kind).burn_addresses
        )
    permit2_allowances = (
        await read_permit2_allowances(snapshotter, owners, permit2, block) if "permit2" in include and first else None
    )
    spenders = {each.spender for each in (*page.items, *(allowed or ()), *(permit2_allowances or ()))}
    names = labels(key, spenders)
    allowances_left: tuple[Allowance, ...] = ()
    if "allowance" in include:
        allowances_left = await allowances(
            snapshotter, await asyncio.to_thread(unreplaced, page.items, lake, tail, key), block, names
        )
    operators_left = None if allowed is None else await operators(snapshotter, allowed, block, names)
    return replace(
        page,
        block=block,
        allowances={each.approval.position: each for each in allowances_left},
        operators=operators_left,
        permit2_allowances=permit2_allowances,
        labels=names,
    )


def unreplaced(approvals: Collection[Approval], lake: Lake, tail: Tail, chain: str) -> list[Approval]:
    """Return the approvals that no later one of the same owner, token and spender has replaced."""
    owners = sorted({each.owner for each in approvals})
    newest = {each.position for each in latest_amounts(lake, tail, chain, owners)} if owners else set()
    return [each for each in approvals if each.position in newest]
