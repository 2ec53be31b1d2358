"""When conditions hold, by fakes of the engine; and what a check stores of it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET

from chainfolio.alerts import conditions, service, transactions
from chainfolio.alerts.conditions import Holding, holding
from chainfolio.alerts.rules import active_of
from chainfolio.alerts.service import AlertService
from chainfolio.engine import reconciliations as results
from chainfolio.errors import NotFound
from chainfolio.settings import Alerts
from chainfolio.storage.state import alerts
from chainfolio.storage.state.jobs import STOPPED, JobRun
from tests.alerts.receivers import Desk, desk

WALLET = "0x" + "ab" * 20
CHAIN = SimpleNamespace(key="eip155:1", kind="evm")


def rule(kind: str, subject: str = "", bound: str = "") -> alerts.Rule:
    return alerts.Rule("alr_1", "acc_1", kind, subject, bound, "tgt_1", "{}", 0)


def answering(value: Any) -> Any:
    """An asynchronous function with one answer."""

    async def answer(*_: Any, **__: Any) -> Any:
        return value

    return answer


def state_with(value: Any) -> Any:
    return SimpleNamespace(database=SimpleNamespace(read_async=answering(value)))


async def facts(engine: Any, of: alerts.Rule, state: Any = None) -> dict[str, dict[str, Any]]:
    return dict((await holding(engine, state, of)).facts)


def portfolio(completeness: str, *rates: Any) -> Any:
    loans = [
        SimpleNamespace(health_rate=rate, vault_address="", pool_address=f"0x{number}", name="Loan")
        for number, rate in enumerate(rates)
    ]
    entry = SimpleNamespace(protocol_positions={"lending": SimpleNamespace(protocol_positions=loans)})
    protocol = SimpleNamespace(key="aave", chains={"eip155:1": entry})
    return SimpleNamespace(asset_by_protocols={"aave": protocol}, completeness=completeness)


@pytest.mark.parametrize("completeness", ["complete", "partial"])
async def test_loans_under_the_bound_are_unhealthy_and_a_partial_answer_is_known_as_such(completeness: str) -> None:
    engine: Any = SimpleNamespace(portfolios=answering([portfolio(completeness, "1.1", "1.2", UNSET, "0.9")]))
    result = await holding(engine, None, rule("health-factor", WALLET, "under 1.2"))  # type: ignore[arg-type]
    assert [each["healthFactor"] for each in result.facts.values()] == ["1.1", "0.9"]
    assert result.is_complete is (completeness == "complete")


@pytest.mark.parametrize(("bound", "crossed"), [("over 9.99", True), ("over 10", False), ("under 10.01", True)])
async def test_a_price_beyond_the_bound_is_crossed(bound: str, crossed: bool) -> None:
    price = SimpleNamespace(usd=Decimal("10.00"), source="fixed")
    report = SimpleNamespace(price=price, block=SimpleNamespace(height=7), chain="eip155:1", asset="coin")
    engine: Any = SimpleNamespace(explain_price=answering(report))
    held_facts = await facts(engine, rule("price", "coin", bound))
    assert ([each["usd"] for each in held_facts.values()] == ["10.00"]) is crossed
    report.price = None
    with pytest.raises(NotFound, match="no price"):
        await facts(engine, rule("price", "coin", bound))


@pytest.mark.parametrize(
    ("slashed", "status", "rewards", "reason"),
    [
        (True, "exited_slashed", [], "slashed"),
        (False, "active_ongoing", [(3, 0), (3, 0)], "offline"),
        (False, "active_ongoing", [(3, 0), (2, 1)], None),
        (False, "active_ongoing", [], None),
        (False, "exited_unslashed", [(3, 0)], None),
    ],
)
async def test_a_validator_is_slashed_or_offline(
    monkeypatch: pytest.MonkeyPatch, slashed: bool, status: str, rewards: list[tuple[int, int]], reason: str | None
) -> None:
    rows = [SimpleNamespace(attestations_missed=missed, attestations_included=included) for missed, included in rewards]
    source = SimpleNamespace(
        details=answering(SimpleNamespace(validator=SimpleNamespace(index=5, status=status, slashed=slashed))),
        recent=answering(SimpleNamespace(first=0, last=9)),
        rewards=answering(SimpleNamespace(rows=rows)),
    )
    monkeypatch.setattr(conditions, "records", lambda _: source)
    assert [*await facts(SimpleNamespace(system=None), rule("validator", "5"))] == ([reason] if reason else [])


async def test_balances_credits_jobs_and_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    system = SimpleNamespace(tail=None, account_chains=[CHAIN, SimpleNamespace(key="solana", kind="solana")])
    monkeypatch.setattr(results, "issues", lambda *_, **__: [SimpleNamespace(reason="7 of 8")])
    held_facts = await facts(SimpleNamespace(system=system), rule("balance", WALLET))
    assert held_facts == {"eip155:1": {"address": WALLET, "chain": "eip155:1", "reason": "7 of 8"}}

    assert [*await facts(None, rule("credits", bound="under 5"), state_with(4))] == ["credits"]
    assert await facts(None, rule("credits", bound="under 5"), state_with(5)) == {}

    errors = {"a": "x", "b": "y", "d": "", "stopped": STOPPED}
    runs = [JobRun(name, "c", 1, 2, 1, error) for name, error in errors.items()]
    assert [*await facts(None, rule("job"), state_with(runs))] == ["a c", "b c"]
    assert [*await facts(None, rule("job", "b"), state_with(runs))] == ["b c"]

    endpoints = [SimpleNamespace(endpoint="one", quarantined=True), SimpleNamespace(endpoint="two", quarantined=False)]
    chains = [
        SimpleNamespace(key="good", healthy=True, reason="", endpoints=endpoints),
        SimpleNamespace(key="bad", healthy=False, reason="", endpoints=[]),
    ]
    engine = SimpleNamespace(readiness=answering(SimpleNamespace(chains=chains)))
    assert [*await facts(engine, rule("endpoint"))] == ["good one", "bad"]
    assert [*await facts(engine, rule("endpoint", "bad"))] == ["bad"]


def checking(at: Desk) -> AlertService:
    """The service of a desk, without chains."""
    system: Any = SimpleNamespace(
        settings=SimpleNamespace(alerts=Alerts()), environment=SimpleNamespace(clock=at.clock)
    )
    return AlertService(SimpleNamespace(system=system), lambda: at.state)  # type: ignore[arg-type]


async def test_a_partial_check_ends_nothing_and_any_error_lets_other_rules_be_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk(tmp_path) as at:
        first, second = at.rule("/dev/null", "file"), at.rule("/dev/null", "file")
        answers: dict[str, Any] = {second.id: Holding({})}

        async def hold(engine: Any, state: Any, of: alerts.Rule) -> Holding:
            if isinstance(answer := answers[of.id], Exception):
                raise answer
            assert isinstance(answer, Holding)
            return answer

        monkeypatch.setattr(service, "holding", hold)
        checker = checking(at)

        async def check(answer: Holding | Exception) -> tuple[int, list[str], str]:
            answers[first.id] = answer
            at.clock.now_s += 100
            new = await checker.check(all_rules=True)
            stored = {each.id: each for each in at.state.database.read(alerts.rules)}
            assert stored[second.id].checked_us == at.clock.now_us()
            return new, active_of(stored[first.id]), stored[first.id].problem

        assert await check(Holding({"a": {}, "b": {}})) == (2, ["a", "b"], "")
        assert await check(Holding({"b": {}, "c": {}}, is_complete=False)) == (1, ["a", "b", "c"], "")
        assert await check(NotFound("no loans")) == (0, ["a", "b", "c"], "no loans")
        assert await check(ZeroDivisionError("secret")) == (0, ["a", "b", "c"], "an unexpected ZeroDivisionError")
        assert await check(Holding({"c": {}})) == (0, ["c"], "")
        assert await check(Holding({"a": {}, "c": {}})) == (1, ["a", "c"], "")


def test_the_body_of_an_event_has_at_most_fifty_assets_of_a_side() -> None:
    asset = SimpleNamespace(symbol="X" * 999, chain_contract="c", balance="1", value="2", sender="s", recipient="r")
    transaction: Any = SimpleNamespace(
        assets_in=(asset,) * 3000,
        assets_out=(asset,),
        type="MULTICALL",
        protocol=SimpleNamespace(key="p"),
        sender="s",
        timestamp="7",
        block_number=5,
        hash="0x1",
        user=SimpleNamespace(address="s"),
    )
    of = alerts.Rule("alr_1", "acc_1", "incoming", WALLET, "over 5999", "tgt_1", '{"eip155:1": 1}', 0)
    event, matches = transactions._of_transaction(CHAIN, of, transaction)
    assert matches
    assert b'"assetsInCount":3000' in event.body
    assert b'"valueUsd":"6000"' in event.body
    assert event.body.count(b'"recipient"') == 0
    assert event.body.count(b'"symbol"') == 50
    assert len(event.body) < 20_000

    parts = [SimpleNamespace(**vars(asset) | {"value": value}) for value in ("9" * 30, "0.1")]
    transaction.assets_in = parts
    event, _ = transactions._of_transaction(CHAIN, of, transaction)
    assert f'"valueUsd":"{"9" * 30}.1"'.encode() in event.body, "the sum is exact"
