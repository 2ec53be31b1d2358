"""The tools: each reads from the engine what a command reads, and answers in short."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from chainfolio.agents.compact import Answer, Row, quoted
from chainfolio.agents.lookups import protocol_answer, token_answer, validator_answer
from chainfolio.agents.rows import holding_rows, query_rows
from chainfolio.engine.gains.pnl import PnlRequest, pnl, zone_of
from chainfolio.engine.named_accounts import accounts_of, chains_with_past, one_chain, pinned_chain
from chainfolio.engine.prices.reasons import tree
from chainfolio.engine.requests.days import days_between, read_day_values, today
from chainfolio.engine.requests.portfolios import portfolios
from chainfolio.engine.requests.reconciliations import Extent, on_each_chain, reconciliations
from chainfolio.engine.requests.transactions import transaction_filter
from chainfolio.engine.results import MAX_PAGE
from chainfolio.errors import BadRequest, ChainfolioError
from chainfolio.exports.approval_rows import SHEET as APPROVAL_COLUMNS
from chainfolio.exports.approval_rows import approval_rows, document
from chainfolio.exports.dataset import issue_text
from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.facts import Options

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from chainfolio.engine.reconciliations import Reconciliation
    from chainfolio.engine.service import Engine
    from chainfolio.portfolio.transactions import TransactionAssetDocument, TransactionDocument
    from chainfolio.storage.sql_task import JsonResult

MAX_SQL_ROWS: Final = 200
SQL_SECONDS: Final = 20


@dataclass(frozen=True, slots=True)
class Services:
    """Answers that the engine does not have: status of chains, SQL over the lake, credits of the caller."""

    status: Callable[[], Awaitable[dict[str, Any]]]
    ask: Callable[[str, int, int], Awaitable[JsonResult]]
    credits: Callable[[], Awaitable[int]] | None = None


class Tools:
    """Questions of a model; each method is a tool. Amounts, prices and values are exact decimals as text."""

    def __init__(self, engine: Engine, services: Services) -> None:
        self._engine = engine
        self._services = services

    async def portfolio(self, address: str, chain: str = "", block: int | None = None, detail: bool = False) -> str:
        """Holdings of a wallet and in protocols with their value in USD, now or at a block of a chain."""
        accounts = await self._accounts([address], chain)
        (held,) = await portfolios(self._engine, accounts, chain or None, block, Options())
        rows = holding_rows(held)
        summary: dict[str, object] = {
            "address": held.address,
            "netWorthUsd": held.networth,
            "assets": len(rows),
            "unpriced": held.unpriced_assets,
            "spam": held.spam_assets,
            "byChain": {each.key: each.value for each in held.chains.values()},
        }
        issues = [issue_text(each) for each in held.issues]
        if block is None:
            at = await self._at(chain)
        else:
            at = {pinned_chain(self._engine.system, chain or None, block, accounts): {"block": block}}
        return Answer(summary, at, held.completeness, rows, issues, "value").text(detail=detail)

    async def net_worth(self, addresses: list[str], currency: str = "USD") -> str:
        """Net asset value of several wallets together, now, in a currency such as USD, EUR or ETH."""
        nav = await self._engine.nav(await self._accounts(addresses), currency.upper(), wait=True)
        summary = {"netWorth": f"{nav.nav:f}", "currency": nav.currency, "unpricedAssets": nav.unpriced_assets}
        return Answer(summary, await self._at(), nav.completeness, (), [*map(issue_text, nav.issues)]).text()

    async def history(
        self,
        addresses: list[str],
        first: str = "",
        last: str = "",
        interval: Literal["day", "week", "month"] = "week",
        detail: bool = False,
    ) -> str:
        """Value in USD of wallets at 00:00 UTC of days (YYYY-MM-DD), an interval apart; default: 30 days."""
        system = self._engine.system
        days = days_between(first or None, last or None, interval, today(system.environment.clock))
        accounts = await self._accounts(addresses)
        on = chains_with_past(system, accounts, ())
        values = await read_day_values(self._engine, accounts, on, days, retry=False)
        rows = [
            {
                "day": str(each.day),
                "address": each.account,
                "value": UNKNOWN if each.value is None else f"{each.value:f}",
                **({"reason": each.reason[:120]} if each.reason else {}),
            }
            for each in reversed(values)
        ]
        known = [each for each in values if each.value is not None]
        summary: Row = {"from": str(days[0]), "to": str(days[-1]), "days": len(days), "known": len(known)}
        complete = "complete" if len(known) == len(values) else "partial"
        return Answer(summary, await self._at(), complete, rows).text(detail=detail)

    async def transactions(
        self, address: str, chain: str = "", first: str = "", last: str = "", limit: int = 15, detail: bool = False
    ) -> str:
        """List a wallet's transactions, the newest first: type, protocol, what came and went, and the fee."""
        if not 1 <= limit <= MAX_PAGE:
            raise BadRequest("limit", f"{limit} is not between 1 and {MAX_PAGE}")
        accounts = await self._accounts([address], chain)
        question = transaction_filter(chain or None, limit, 0, first or None, last or None)
        page = await self._engine.transactions(accounts, question)
        content = page.document
        summary: Row = {
            "address": accounts[0].address,
            "shown": len(content.transactions),
            "more": page.end is not None,
        }
        rows = [_transaction(each) for each in content.transactions]
        issues = [issue_text(each) for each in content.issues]
        return Answer(summary, await self._at(chain), content.completeness, rows, issues).text(detail=detail)

    async def approvals(self, address: str, chain: str = "", detail: bool = False) -> str:
        """Allowances that a wallet gave on one chain, with the value at risk in USD, the greatest first."""
        accounts = await self._accounts([address], chain)
        key = one_chain(self._engine.system, chain or None, accounts, "approvals are those of one chain")
        current = await self._engine.allowances(key, accounts[0])
        report = document(accounts[0].address, key, current)
        names = ("symbol", "contract", "spender", "spenderLabel", "allowance", "unlimited", "valueAtRisk", "tokenId")
        rows = []
        for cells in approval_rows(report, current):
            row = dict(zip(APPROVAL_COLUMNS, cells, strict=True))
            row |= {name: quoted(str(row[name])) for name in ("symbol", "spenderLabel") if row[name]}
            if row["unlimited"]:
                del row["allowance"]
            rows.append({name: row[name] for name in names if row.get(name) not in (None, "", False)})
        summary: Row = {
            "address": accounts[0].address,
            "chain": key,
            "approvals": len(rows),
            "valueAtRiskUsd": report["valueAtRisk"],
            "unpriced": report["unpriced"],
        }
        issues = [issue_text(each) for each in report["issues"]]
        complete = "partial" if issues else "complete"
        return Answer(summary, await self._at(key), complete, rows, issues).text(detail=detail)

    async def gains(self, addresses: list[str], method: str = "fifo", chain: str = "", detail: bool = False) -> str:
        """Gains, income and fees in USD of one owner's wallets; methods: fifo, lifo, hifo, average, uk, ca."""
        request = PnlRequest(method, zone=zone_of(None, method), networks=(chain,) if chain else ())
        request.check()
        report = await pnl(self._engine, await self._accounts(addresses, chain), request)
        rows = [
            {
                "chain": each.chain,
                "token": quoted(each.symbol),
                "held": each.held,
                "cost": each.total_cost_basis,
                "open": each.open_pnl,
                "closed": each.closed_pnl,
                **({"reason": each.reason} if each.reason else {}),
            }
            for each in report.holdings
        ]
        summary: Row = {
            "method": report.method,
            "closedGainUsd": report.closed_pnl,
            "openGainUsd": report.open_pnl,
            "incomeUsd": report.income,
            "feesUsd": report.fees,
            "ofWhatIsKnown": {"closed": report.known.closed_pnl, "open": report.known.open_pnl},
            "notKnown": report.unknown,
        }
        issues = [issue_text(each) for each in report.issues]
        complete = "partial" if issues or report.unknown else "complete"
        return Answer(summary, await self._at(chain), complete, rows, issues).text(detail=detail)

    async def performance(self, addresses: list[str], first: str = "", last: str = "", currency: str = "USD") -> str:
        """Return of wallets over some days, time-weighted and money-weighted, with the largest fall."""
        days = days_between(first or None, last or None, "day", today(self._engine.system.environment.clock))
        report = await self._engine.performance(await self._accounts(addresses), days, currency.upper())
        fall = report.drawdown
        summary: Row = {
            "from": report.first_day,
            "to": report.last_day,
            "currency": report.currency,
            "startValue": report.start_value,
            "endValue": report.end_value,
            "netFlows": report.net_flows,
            "gain": report.gain,
            "timeWeightedReturn": report.time_weighted_return,
            "moneyWeightedReturn": report.money_weighted_return,
            "largestFall": None if fall is None else msgspec.to_builtins(fall),
        }
        issues = [*report.reasons, *report.remarks, *map(issue_text, report.issues)]
        return Answer(summary, await self._at(), report.completeness, (), issues).text()

    async def price(self, asset: str, at: str = "", detail: bool = False) -> str:
        """Price of an asset in USD (ETH, chain:address, CAIP-19), now or at a height or day, and its source."""
        moment = int(at) if at.isascii() and at.isdigit() else at or None
        report = tree(await self._engine.explain_price(asset, moment, ask=detail))
        block, price = report["block"], report["price"]
        summary: dict[str, object] = {"asset": report["asset"], "chain": report["chain"]}
        if price is None:
            summary |= {"usd": None, "reason": "no source has a price"}
        else:
            summary |= {name: price[name] for name in ("usd", "source", "confidence", "detail") if price[name]}
        rows = [
            {name: str(step[name])[:80] for name in ("source", "outcome", "usd", "reason") if step.get(name)}
            for step in report["sources"]
        ]
        seen: Row = {report["chain"]: {"block": block["height"], "ageSeconds": self._age_s(block["timeUs"])}}
        return Answer(summary, seen, "complete" if price else "partial", rows).text(detail=detail)

    async def reconcile(self, address: str, chain: str = "", detail: bool = False) -> str:
        """Compare indexed movements of a wallet with its balances on chain at checkpoints; store the result."""
        engine, accounts = self._engine, await self._accounts([address], chain)
        keys = [chain] if chain else []

        async def work(chain: Chain, owners: Sequence[str]) -> list[Reconciliation]:
            return (await reconciliations(chain, engine.snapshotter(chain), owners, Extent(None, None, 16, None)))[0]

        results = await on_each_chain(engine.system, accounts, keys, work)
        rows = [
            {
                "chain": each.chain,
                "blocks": f"{each.first_block} to {each.last_block}",
                "equal": each.is_equal,
                "assets": len(each.assets),
                "differences": len(each.differences),
                "notes": list(each.notes[:3]),
            }
            for each in results
        ]
        summary: Row = {"address": accounts[0].address, "isEqual": all(each.is_equal for each in results)}
        return Answer(summary, await self._at(chain), "complete", rows).text(detail=detail)

    async def status(self) -> str:
        """Chains that are configured: newest block, how far the index is behind, gaps, and what is wrong."""
        report = await self._services.status()
        chains = report["chains"]
        names = ("chain", "head", "newest", "behind", "problem", "hints")
        rows = [{name: each[name] for name in names if each[name] not in ("", [])} for each in chains]
        has_problem = any(each["problem"] for each in chains)
        complete = "partial" if has_problem else "complete"
        return Answer({"chains": len(rows)}, await self._at(), complete, rows).text(detail=True)

    async def sql(self, query: str, detail: bool = False) -> str:
        """Run one read-only SELECT in DuckDB over the indexed tables; see the resource chainfolio://tables."""
        result = await self._services.ask(query, MAX_SQL_ROWS, SQL_SECONDS)
        rows = query_rows([column.name for column in result.columns], result.rows)
        summary: Row = {"rows": len(rows), "more": result.more}
        return Answer(summary, await self._at(), "complete", rows).text(detail=detail)

    async def validator(self, validator: str) -> str:
        """State of a validator of the Ethereum beacon chain, by its index or public key."""
        return (await validator_answer(self._engine, validator)).text()

    async def token(self, asset: str) -> str:
        """What is known of a token: symbol (ETH), chain:address or CAIP-19."""
        return (await token_answer(self._engine, asset, await self._at())).text()

    async def protocol(self, name: str) -> str:
        """Protocols by a part of their name, or by the address of a contract."""
        return protocol_answer(self._engine, name).text()

    async def credits(self) -> str:
        """Credits of this account that can be spent now."""
        assert self._services.credits is not None, "only offered where accounts are"
        return Answer({"credits": await self._services.credits()}, {}, "complete").text()

    async def _accounts(self, names: Sequence[str], chain: str = "") -> list[Account]:
        """Return the accounts of addresses and names.

        Raises:
            BadRequest: there is no address.
        """
        if not names:
            raise BadRequest("addresses", "no address is given")
        return await accounts_of(self._engine.system, list(names), [chain] if chain else [], lambda text: None)

    async def _at(self, chain: str = "") -> dict[str, object]:
        """Return by chain `block` (the newest height) and `ageSeconds`, or `problem` if it cannot be read."""
        system = self._engine.system
        blocks: dict[str, object] = {}
        for each in [system.chain(chain)] if chain else system.account_chains:
            try:
                block = (await self._engine.heads.latest(each)).block
                blocks[each.key] = {"block": block.height, "ageSeconds": self._age_s(block.time_us)}
            except ChainfolioError as error:
                blocks[each.key] = {"problem": error.message[:120]}
        return blocks

    def _age_s(self, time_us: int) -> int:
        return max(0, (self._engine.system.environment.clock.now_us() - time_us) // 1_000_000)


def _transaction(each: TransactionDocument) -> Row:
    """Return a transaction in short: `time` is in UTC, `feeUsd` is there only if its user sent it.

    Names that others chose are quoted.
    """
    row: dict[str, object] = {
        "time": f"{datetime.fromtimestamp(int(each.timestamp), UTC):%Y-%m-%d %H:%M:%S}",
        "chain": each.chain.key,
        "hash": each.hash,
        "type": each.type,
        "in": [_moved(asset) for asset in each.assets_in],
        "out": [_moved(asset) for asset in each.assets_out],
    }
    if each.protocol.key != "unknown":
        row["protocol"] = quoted(each.protocol.name)
    if each.sender == each.user.address:
        row["feeUsd"] = each.fees_fiat
    if each.flags:
        row["warnings"] = [flag.kind for flag in each.flags]
    return row


def _moved(asset: TransactionAssetDocument) -> str:
    value = "" if asset.value == UNKNOWN else f" ({asset.value} USD)"
    return f"{asset.balance} {quoted(asset.symbol or asset.contract)}{value}"
