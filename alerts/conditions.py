"""Conditions that rules check regularly: what a condition holds for now, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from chainfolio.alerts.kinds import is_crossed
from chainfolio.assets import account
from chainfolio.engine import reconciliations as reconciled
from chainfolio.engine.validators.records import records
from chainfolio.engine.validators.results import Range, Window
from chainfolio.errors import NotFound
from chainfolio.portfolio.facts import Options
from chainfolio.storage.state import jobs, ledger

if TYPE_CHECKING:
    from chainfolio.engine.service import Engine
    from chainfolio.portfolio.document import Portfolio, PositionDocument
    from chainfolio.storage.state import State
    from chainfolio.storage.state.alerts import Rule

Facts = Mapping[str, dict[str, Any]]  # facts of an event by the name of what the condition holds for
OFFLINE_EPOCHS: Final = 3  # without any attestation


@dataclass(frozen=True, slots=True)
class Holding:
    """Facts for each thing (loan, job, endpoint …) for which a condition holds.

    `is_complete` is False if something could not be read, and the condition may hold for more.
    """

    facts: Facts
    is_complete: bool = True


async def holding(engine: Engine, state: State, rule: Rule) -> Holding:
    """Check the condition of a rule now, and return the facts of each thing for which it holds.

    Empty if it holds for nothing. A portfolio that was read in part gives a result that is not complete, and no error.

    Raises:
        ChainfolioError: The condition cannot be checked now.
    """
    if rule.kind == "health-factor":
        return await _health(engine, rule)
    return Holding(await _CHECKS[rule.kind](engine, state, rule))


async def _health(engine: Engine, rule: Rule) -> Holding:
    """Return the loans of a wallet whose health is under the bound."""
    (portfolio,) = await engine.portfolios([account(rule.subject)], Options(), wait=True, wallet_only=False)
    loans = {}
    for name, position in _loans(portfolio):
        if is_crossed(rule.bound, Decimal(str(position.health_rate))):
            loans[name] = {"address": rule.subject, "position": name, "healthFactor": position.health_rate}
    return Holding(loans, portfolio.completeness == "complete")


def _loans(portfolio: Portfolio) -> Iterator[tuple[str, PositionDocument]]:
    """Yield the positions with a health factor and a name for each."""
    for protocol in portfolio.asset_by_protocols.values():
        for chain, entry in protocol.chains.items():
            for kind, positions in entry.protocol_positions.items():
                for number, each in enumerate(positions.protocol_positions):
                    if each.health_rate is not UNSET:
                        address = each.vault_address or each.pool_address or number
                        yield f"{chain} {protocol.key} {kind} {each.name} {address}", each


async def _price(engine: Engine, state: State, rule: Rule) -> Facts:
    """Return the asset with its price and source if the price is beyond the bound, else nothing.

    Raises NotFound if it has no price.
    """
    report = await engine.explain_price(rule.subject, None, ask=False)
    if report.price is None:
        raise NotFound(f"{rule.subject} has no price at block {report.block.height} of {report.chain}")
    if not is_crossed(rule.bound, report.price.usd):
        return {}
    facts = {"chain": report.chain, "block": report.block.height, "source": report.price.source}
    return {rule.subject: {"asset": str(report.asset), "usd": f"{report.price.usd:f}", "bound": rule.bound, **facts}}


async def _validator(engine: Engine, state: State, rule: Rule) -> Facts:
    """Return `slashed` or `offline` with facts if the validator is so, else nothing.

    It is offline if it is active, and no attestation of its last OFFLINE_EPOCHS epochs was included.
    """
    source = records(engine.system)
    validator = int(rule.subject) if rule.subject.isdigit() else rule.subject
    details = await source.details(validator)
    facts = {"validator": details.validator.index, "status": details.validator.status}
    if details.validator.slashed:
        return {"slashed": {**facts, "reason": "slashed"}}
    if details.validator.status != "active_ongoing":
        return {}
    day = await source.recent(1, "epoch")
    epochs = Range("epoch", max(day.first, day.last + 1 - OFFLINE_EPOCHS), day.last, "epoch")
    rewards = (await source.rewards(validator, epochs, Window(0, OFFLINE_EPOCHS))).rows
    is_offline = bool(rewards) and all(each.attestations_missed and not each.attestations_included for each in rewards)
    return {"offline": {**facts, "reason": "offline", "epoch": epochs.last}} if is_offline else {}


async def _balance(engine: Engine, state: State, rule: Rule) -> Facts:
    """Return address, chain and reason by chain, if its last reconciliation found a difference."""
    owner, tail = account(rule.subject), engine.system.tail
    differences = {}
    for chain in engine.system.account_chains:
        if chain.kind == owner.kind:
            for issue in reconciled.issues(tail, chain.key, [owner.address], natives=True):
                differences[chain.key] = {"address": owner.address, "chain": chain.key, "reason": issue.reason}
    return differences


async def _credits(engine: Engine, state: State, rule: Rule) -> Facts:
    """Return the account if its available credits are under the bound."""
    available = await state.database.read_async(lambda tx: ledger.available(tx, rule.account_id))
    facts = {"account": rule.account_id, "credits": available, "bound": rule.bound}
    return {"credits": facts} if is_crossed(rule.bound, Decimal(available)) else {}


async def _jobs(engine: Engine, state: State, rule: Rule) -> Facts:
    """Return the jobs whose last run failed, by name and chain: those of the name of the rule, or all."""
    runs = await state.database.read_async(jobs.every)
    return {
        f"{run.name} {run.chain}".strip(): {"job": run.name, "chain": run.chain, "reason": run.error[:300]}
        for run in runs
        if run.has_failed and rule.subject in ("", run.name)
    }


async def _endpoints(engine: Engine, state: State, rule: Rule) -> Facts:
    """Return unhealthy chains and quarantined endpoints, of one chain or of all."""
    problems: dict[str, dict[str, Any]] = {}
    for chain in (await engine.readiness()).chains:
        if rule.subject not in ("", chain.key):
            continue
        if not chain.healthy:
            problems[chain.key] = {"chain": chain.key, "reason": chain.reason or "unhealthy"}
        for each in chain.endpoints:
            if each.quarantined:
                facts = {"chain": chain.key, "endpoint": each.endpoint, "reason": "in quarantine"}
                problems[f"{chain.key} {each.endpoint}"] = facts
    return problems


_CHECKS: Final[Mapping[str, Callable[[Engine, State, Rule], Awaitable[Facts]]]] = {
    "price": _price,
    "validator": _validator,
    "balance": _balance,
    "credits": _credits,
    "job": _jobs,
    "endpoint": _endpoints,
}
