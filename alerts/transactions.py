"""Events of an account's transactions, by the same records as `/v1/transactions`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec

from chainfolio.alerts.events import event
from chainfolio.alerts.kinds import is_crossed
from chainfolio.amounts import total
from chainfolio.assets import account
from chainfolio.engine.results import TransactionFilter
from chainfolio.portfolio.document import UNKNOWN

if TYPE_CHECKING:
    from chainfolio.alerts.activity import Activity, Log
    from chainfolio.chains import Chain
    from chainfolio.engine.service import Engine
    from chainfolio.portfolio.transactions import TransactionAssetDocument, TransactionDocument
    from chainfolio.storage.state.alerts import Rule
    from chainfolio.storage.state.deliveries import Event

PAGE: Final = 250
MAX_ASSETS: Final = 50  # in the body of an event, of each side; there is a count of all
OF_LOGS: Final = ("approval", "liquidation")


@dataclass(frozen=True, slots=True)
class DerivedEvents:
    """Events of a span.

    Attributes:
        events: In the order of the blocks.
        present: Ids of events whose transaction is there, also if its value or its type gives no event now.
    """

    events: Sequence[Event]
    present: frozenset[str] = frozenset()


def of_logs(chain: Chain, rules: Sequence[Rule], activity: Activity) -> DerivedEvents:
    """Return the events of one account's rules about approvals and liquidations in a span."""
    return _derived(chain, rules, [each for rule in rules for each in _of_logs(chain, rule, activity)])


async def of_transactions(engine: Engine, chain: Chain, rules: Sequence[Rule], activity: Activity) -> DerivedEvents:
    """Return the events of one account's rules about transactions in a span.

    Raises:
        NotFound: The account has more transactions than are served.
        SourceError: A node that is needed does not answer.
        StoreError: The index cannot be read.
    """
    rules = [rule for rule in rules if rule.kind not in OF_LOGS]
    events: list[Event] = []
    present: set[str] = set()
    for transaction in await _transactions(engine, chain, activity) if rules else ():
        for rule in rules:
            if _has_assets(rule, transaction):
                new, matches = _of_transaction(chain, rule, transaction)
                present.add(new.id)
                events += [new] if matches else []
    return _derived(chain, rules, events, frozenset(present))


def _derived(
    chain: Chain, rules: Sequence[Rule], events: Sequence[Event], present: frozenset[str] = frozenset()
) -> DerivedEvents:
    """Return those events that are above the start of their rule, in the order of the blocks."""
    first = {rule.id: msgspec.json.decode(rule.starts, type=dict[str, int])[chain.key] for rule in rules}
    counted = [each for each in events if (each.height or 0) > first[each.rule_id]]
    return DerivedEvents(sorted(counted, key=lambda each: each.height or 0), present)


async def _transactions(engine: Engine, chain: Chain, activity: Activity) -> list[TransactionDocument]:
    """Return the account's transactions of the span, the oldest first."""
    filters = TransactionFilter(
        PAGE,
        0,
        newest_first=False,
        networks=(chain.key,),
        since_us=activity.first_us,
        until_us=activity.last_us,
    )
    transactions: list[TransactionDocument] = []
    while True:
        page, _ = await engine.records([account(activity.account)], filters, stored_heads=engine.heads)
        span = activity.span
        transactions += [each for each in page.document.transactions if span.first <= each.block_number <= span.last]
        if page.end is None:
            return transactions
        filters = replace(filters, offset=page.end.count, after=page.end)


def _of_logs(chain: Chain, rule: Rule, activity: Activity) -> Iterator[Event]:
    """Yield the events of approvals or liquidations, if the rule is about them."""
    if rule.kind == "approval":
        for grant in activity.grants:
            amount = "all" if grant.raw is None else str(grant.raw)
            details = {"token": grant.token, "spender": grant.spender, "raw": amount}
            yield _of_log(chain, rule, grant.log, details)
    elif rule.kind == "liquidation":
        for log, contract in activity.liquidations:
            yield _of_log(chain, rule, log, {"contract": contract})


def _of_log(chain: Chain, rule: Rule, log: Log, details: dict[str, Any]) -> Event:
    data = _facts(chain, rule, log.height, log.tx_hash, log.time_us // 1_000_000) | details
    key = f"{log.height} {log.tx_hash} {log.log_index} {msgspec.json.encode(details).decode()}"
    return event(rule, key, log.time_us, data, chain=chain.key, height=log.height)


def _has_assets(rule: Rule, transaction: TransactionDocument) -> bool:
    """Return True if a transaction moves what the rule is about, whatever its value."""
    if rule.kind == "transaction":
        return True
    return bool(transaction.assets_in if rule.kind == "incoming" else transaction.assets_out)


def _of_transaction(chain: Chain, rule: Rule, transaction: TransactionDocument) -> tuple[Event, bool]:
    """Return the event of a rule for a transaction, and True if it meets the rule's conditions.

    Spam meets only rules of the kind `transaction`. Assets without a value count as zero in the compared value.
    """
    assets: dict[str, Any] = {"assetsIn": [], "assetsInCount": 0, "assetsOut": [], "assetsOutCount": 0}
    if rule.kind in ("incoming", "transaction"):
        assets |= {"assetsIn": _assets(transaction.assets_in), "assetsInCount": len(transaction.assets_in)}
    if rule.kind != "incoming":
        assets |= {"assetsOut": _assets(transaction.assets_out), "assetsOutCount": len(transaction.assets_out)}
    details = {"type": transaction.type, "protocol": transaction.protocol.key, "from": transaction.sender}
    matches = rule.kind == "transaction" or transaction.type != "SPAM"
    if rule.kind in ("incoming", "outgoing"):
        side = transaction.assets_in if rule.kind == "incoming" else transaction.assets_out
        value = total([Decimal(each.value) for each in side if each.value != UNKNOWN])
        matches = matches and is_crossed(rule.bound, value)
        details |= {"valueUsd": f"{value:f}", "bound": rule.bound}
    if rule.kind == "approval-used":
        matches = matches and transaction.sender != transaction.user.address
    time_s = int(transaction.timestamp)
    data = _facts(chain, rule, transaction.block_number, transaction.hash, time_s) | details | assets
    height = transaction.block_number
    key = f"{height} {transaction.hash}"
    return event(rule, key, time_s * 1_000_000, data, chain=chain.key, height=height), matches


def _facts(chain: Chain, rule: Rule, height: int, tx_hash: str, time_s: int) -> dict[str, Any]:
    return {"address": rule.subject, "chain": chain.key, "block": height, "hash": tx_hash, "time": time_s}


def _assets(assets: Sequence[TransactionAssetDocument]) -> list[dict[str, str]]:
    return [_asset(each) for each in assets[:MAX_ASSETS]]


def _asset(asset: TransactionAssetDocument) -> dict[str, str]:
    """Return an asset for the body of an event: its symbol is cut to 80 characters."""
    return {
        "symbol": asset.symbol[:80],
        "asset": asset.chain_contract,
        "amount": asset.balance,
        "valueUsd": asset.value,
        "from": asset.sender,
        "to": asset.recipient,
    }
