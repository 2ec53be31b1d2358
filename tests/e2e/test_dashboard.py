"""The dashboard in a real browser, over the demo: its numbers are those of the API, at each width and theme."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from chainfolio import amounts
from chainfolio.cli.dashboard_link import new_link
from chainfolio.cli.state_store import open_state
from chainfolio.settings_file import load
from tests.e2e.browser import PROGRAM, browsing
from tests.e2e.dashboard_page import CAROL, HOSTILE, MUTE, WIDE, dollars, get, opened
from tests.e2e.running import ALICE, BOB, Demo, Running

pytestmark = [
    pytest.mark.node,
    pytest.mark.xdist_group("demo"),
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here"),
]
UNREADY = """(real => { window.fetch = async (path, ...more) => {
  if (!path.startsWith('/readyz')) return real(path, ...more);
  const state = {...await (await real(path, ...more)).json(), ready: false};
  state.chains.forEach(each => { each.healthy = false; });
  return new Response(JSON.stringify(state), {status: 503});
}; })(fetch)"""


def assets_in_sums(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The assets of a portfolio that its sums count, each with the list that it stands in."""
    for protocol in document["assetByProtocols"].values():
        for chain in protocol["chains"].values():
            for group in chain["protocolPositions"].values():
                for part in ({"assets": group["assets"]}, *group["protocolPositions"]):
                    for side, assets in part.items():
                        if isinstance(assets, list) and side.lower().endswith("assets"):
                            yield from ((side, asset) for asset in assets if "spam" not in asset)


async def test_the_numbers_of_the_portfolio_are_those_of_the_api(demo: Demo, tmp_path: Path) -> None:
    documents = get(demo, f"/v1/portfolio?addresses={ALICE},{BOB}&includeSources=true&includeExplorerUrls=true")
    async with opened(demo, tmp_path, f"portfolio?addresses={ALICE},{BOB}") as page:
        await page.once("document.querySelector('[data-ready]')")
        total = amounts.total([Decimal(document["networth"]) for document in documents])
        assert Decimal(await page.says("document.getElementById('networth').dataset.exact")) == total
        assert await page.says("document.getElementById('networth').textContent") == dollars(amounts.text(total))
        rows = "[...document.querySelectorAll('tr.asset button.number')].map(b => [b.dataset.exact, b.textContent])"
        values = await page.says(rows)
        expected = [
            str(-Decimal(asset["value"])) if side == "borrowAssets" else asset["value"]
            for document in documents
            for side, asset in assets_in_sums(document)
            if asset["value"] != "N/A"
        ]
        assert sorted(Decimal(exact) for exact, _ in values) == sorted(map(Decimal, expected))
        assert {text for exact, text in values if abs(Decimal(exact)) >= Decimal("0.01")} == {
            dollars(text) for text in expected if abs(Decimal(text)) >= Decimal("0.01")
        }
        pictures = "[...document.querySelectorAll('img.logo')].map(i => i.complete && i.naturalWidth > 0)"
        assert await page.says(pictures) == [True] * await page.says(
            "document.querySelectorAll('tr.chain, tr.protocol, tr.asset').length"
        )
        spam = {asset["contract"] for document in documents for asset in spam_of(document)}
        assert spam
        assert await page.says("document.querySelectorAll('#outside li').length") >= len(spam)


def spam_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The loose assets that are taken for spam."""
    wallet = document["assetByProtocols"]["wallet"]["chains"]["local"]["protocolPositions"]
    return [asset for group in wallet.values() for asset in group["assets"] if "spam" in asset]


async def test_one_click_shows_why_a_value_is_what_it_is(demo: Demo, tmp_path: Path) -> None:
    async with opened(demo, tmp_path, f"portfolio?addresses={ALICE}") as page:
        await page.once("document.querySelector('[data-ready]')")
        (document,) = get(demo, f"/v1/portfolio?addresses={ALICE}&includeSources=true&includeExplorerUrls=true")
        asset = max(
            (asset for _, asset in assets_in_sums(document) if asset["value"] != "N/A"),
            key=lambda asset: Decimal(asset["value"]),
        )
        await page.says("document.querySelector('tr.asset button.number').click()")
        text = await page.says("document.querySelector('dialog[open]').textContent")
        sources = asset["sources"]
        for part in (asset["value"], asset["balance"], asset["price"], *(sources[key] for key in ("raw", "blockHash"))):
            assert part in text, part
        for call in sources["calls"]:
            assert (call["signature"] or call["method"]) in text
        await page.do("Input.dispatchKeyEvent", type="keyDown", key="Escape", code="Escape", windowsVirtualKeyCode=27)
        await page.once("!document.querySelector('dialog[open]')")
        await page.says("document.getElementById('networth').click()")
        assert document["networth"] in await page.says("document.querySelector('dialog[open]').textContent")


@pytest.mark.slow("each page at each width and theme takes seconds", fast=["390-dark"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
async def test_no_page_overflows_and_a_keyboard_reaches_all(demo: Demo, tmp_path: Path, width: int, theme: str) -> None:
    to = demo.config.read_text().split('"2026-03-01" = "')[1][:10]
    async with opened(demo, tmp_path, f"portfolio?addresses={CAROL}&to={to}", width, theme) as page:
        for page_name in ("portfolio", "history", "transactions"):
            await page.says(f"location.hash = '#/{page_name}?addresses={CAROL}&to={to}'")
            await page.once(
                f"document.querySelector('[data-page={page_name}] .card .figures, [data-page={page_name}] .record')"
            )
            assert await page.says("document.documentElement.scrollWidth") <= width
            assert await page.says(WIDE) == []
            assert await page.says(MUTE) == []
        dark = await page.says("getComputedStyle(document.documentElement).backgroundColor")
        assert (dark == "rgb(15, 18, 23)") is (theme == "dark")
        await page.says("document.querySelector('.tools button').click()")
        assert await page.says("document.documentElement.dataset.theme") != theme
        assert page.complaints == []


@pytest.mark.slow("the days of a history are read one by one")
async def test_history_and_transactions_are_those_of_the_api(demo: Demo, tmp_path: Path) -> None:
    to = demo.config.read_text().split('"2026-03-01" = "')[1][:10]
    first_day = demo.config.read_text().split('"2026-02-01" = "')[1][:10]
    days = get(demo, f"/v1/performance?addresses={CAROL}&startDate={first_day}&endDate={to}")
    async with opened(demo, tmp_path, f"history?addresses={CAROL}&from={first_day}&to={to}") as page:
        await page.once("document.querySelector('[data-ready]')")
        await page.once("document.querySelector('.chart canvas')")
        day_values = await page.says(
            "[...document.querySelectorAll('[data-day]')].map(r => [r.dataset.day, r.cells[1].title])"
        )
        assert day_values == [[each["day"], each["value"]] for each in days["days"]]
        assert await page.says("document.querySelector('[data-stat=gain]').dataset.exact") == days["gain"]
        await page.says(f"location.hash = '#/transactions?addresses={CAROL}&hideSpam=false'")
        await page.once("(document.querySelector('.foot')?.scrollIntoView(), document.querySelector('#end'))")
        hashes: list[str] = []
        while (
            len(
                chunk := get(demo, f"/v1/transactions?addresses={CAROL}&limit=100&offset={len(hashes)}")["transactions"]
            )
            > 0
        ):
            hashes += [each["hash"] for each in chunk]
        assert await page.says("[...document.querySelectorAll('.record')].map(r => r.dataset.hash)") == hashes


async def test_approvals_are_those_of_the_api_by_value_at_risk(ethereum: Running, tmp_path: Path) -> None:
    account = ethereum.account("dashboard", plan="PRO", grants=("portfolio",))
    server = Demo(ethereum.url, ethereum.config, account.key, "", "")
    page_of_api = get(server, f"/v1/approvals/ethereum?addresses={ALICE}&limit=100&include=allowance,permit2")
    allowances = [
        each["allowance"] for each in page_of_api["items"] if each.get("allowance", {"amount": "0"})["amount"] != "0"
    ]
    risks = [each["valueAtRisk"] for each in (*allowances, *page_of_api["permit2"])]
    assert any(risk != "N/A" for risk in risks)
    async with opened(server, tmp_path, f"approvals?addresses={ALICE}", 390, "dark") as page:
        await page.once("document.querySelector('[data-ready]')")
        risk_texts = await page.says(
            "[...document.querySelectorAll('.risk')].map(r => [r.dataset.exact, r.textContent])"
        )
        assert sorted(exact for exact, _ in risk_texts) == sorted(risks)
        priced = [Decimal(exact) for exact, _ in risk_texts if exact != "N/A"]
        assert priced == sorted(priced, reverse=True)
        assert {text for exact, text in risk_texts if exact == "N/A"} <= {"N/A"}
        assert await page.says(WIDE) == []
        assert await page.says(MUTE) == []
        assert page.complaints == []


async def test_a_chain_without_permit2_shows_its_approvals_and_says_so(demo: Demo, tmp_path: Path) -> None:
    items = get(demo, f"/v1/approvals/local?addresses={ALICE}&limit=100&include=allowance")["items"]
    allowances = [each["allowance"] for each in items if each.get("allowance", {"amount": "0"})["amount"] != "0"]
    assert allowances
    async with opened(demo, tmp_path, f"approvals?addresses={ALICE}") as page:
        await page.once("document.querySelector('[data-ready]')")
        page_risks = await page.says("[...document.querySelectorAll('.risk')].map(each => each.dataset.exact)")
        assert sorted(page_risks) == sorted(each["valueAtRisk"] for each in allowances)
        assert "Permit2" in await page.says("document.querySelector('.inner p.bad').textContent")
        texts = await page.says("[...document.querySelectorAll('.revocation pre')].map(each => each.textContent)")
        transactions = [json.loads(text) for text in texts]
        assert len(transactions) == len(allowances)
        for transaction in transactions:
            assert transaction.pop("chainId") == int(demo.rpc("eth_chainId"), 16)
            assert transaction["from"] == ALICE
            assert int(demo.rpc("eth_call", transaction, "latest"), 16) == 1, "the token accepts it"
        links = await page.says("[...document.querySelectorAll('.revocation a')].map(each => each.href)")
        assert [link.partition("@")[0] for link in links] == [f"ethereum:{each['to']}" for each in transactions]


async def test_completeness_is_that_of_the_api(demo: Demo, tmp_path: Path) -> None:
    async with opened(demo, tmp_path, f"status?addresses={ALICE},{BOB}", 390) as page:
        await page.once("document.querySelector('[data-ready]')")
        (chain,) = get(demo, "/readyz")["chains"]
        cells = await page.says("[...document.querySelectorAll('[data-chain=local] td')].map(cell => cell.textContent)")
        assert cells[1:3] == [str(chain["indexed"]), str(chain["head"])]
        assert await page.says("document.querySelectorAll('[data-address] .badge.good').length") == 2
        assert await page.says(WIDE) == []
        assert await page.says(MUTE) == []
        await page.says("location.hash = '#/operations'")
        await page.once("document.querySelector('[data-page=operations][data-ready]')")
        (endpoint,) = get(demo, "/readyz")["chains"][0]["endpoints"]
        endpoint_cells = await page.says(
            "[...document.querySelectorAll('#endpoints tbody td')].map(each => each.textContent)"
        )
        assert (endpoint_cells[0], endpoint_cells[4]) == ("in use", str(endpoint["faults"]))
        failures = "[...document.querySelectorAll('#tasks tbody tr')].map(row => row.cells[2].textContent)"
        assert await page.says(failures) == [str(each["failures"]) for each in get(demo, "/readyz")["tasks"]]
        assert await page.says(WIDE) == []
        await page.says(UNREADY)
        for page_name in ("operations", "status"):
            await page.says(f"location.hash = '#/{page_name}?again'")
            await page.once(f"document.querySelector('[data-page={page_name}][data-ready] .badge.bad')")
        await page.says("location.hash = '#/constructor'")
        await page.once("document.querySelector('[data-page=portfolio]')")


async def test_new_blocks_are_offered_by_themselves(demo: Demo, tmp_path: Path) -> None:
    """The first stream breaks off in the middle of its second event, which the next one repeats."""
    script = """const real = fetch, seen = window.seen = []; window.fetch = async (path, options) => {
      if (!path.startsWith('/v1/events')) return real(path, options);
      seen.push(options.headers['Last-Event-ID'] ?? '');
      const answer = await real(path.replace('events', 'status'), {...options, signal: undefined});
      const statuses = await answer.json();
      const event = (id) => `id: ${id}\\nevent: status\\ndata: ${JSON.stringify(statuses)}\\n\\n`;
      const first = 'retry: 2000\\n\\n' + event('a');
      statuses[0].transactionsLastSync = '2099-01-01T00:00:00.000Z';
      const parts = seen.length === 1 ? [first.slice(0, 40), first.slice(40), event('b').slice(0, -9)] : [event('b')];
      return new Response(new Blob(parts).stream());
    };"""
    async with opened(demo, tmp_path, f"portfolio?addresses={ALICE}", script=script) as page:
        await page.once("document.getElementById('newer')")
        assert await page.says("window.seen") == ["", "a"], "the second stream goes on after the first"
        await page.says("document.getElementById('newer').click()")
        await page.once("document.querySelector('[data-ready]') && !document.getElementById('newer')")
        assert [each for each in page.complaints if "/v1/performance" not in each] == [], "there is no subscription"


async def test_a_hidden_page_has_no_stream_and_a_refused_one_comes_back(demo: Demo, tmp_path: Path) -> None:
    """A browser has six connections to a server, for all its pages together."""
    script = """const real = fetch, count = (name, by) => {
      const counts = document.documentElement.dataset;
      counts[name] = Number(counts[name] ?? 0) + by;
    };
    window.fetch = async (path, options) => {
      if (!path.startsWith('/v1/events')) return real(path, options);
      count('asked', 1);
      if (document.documentElement.dataset.asked === '1') return new Response('{}', {status: 429});
      const answer = await real(path, options);
      count('streams', 1);
      options.signal.addEventListener('abort', () => count('streams', -1));
      return answer;
    };
    let hidden = false;
    Object.defineProperty(document, 'hidden', {get: () => hidden});
    window.hide = (state) => { hidden = state; document.dispatchEvent(new Event('visibilitychange')); };"""
    counters = "document.documentElement.dataset"
    async with opened(demo, tmp_path, f"status?addresses={ALICE}", script=script) as page:
        await page.once(f"{counters}.streams === '1'")
        await page.says("window.hide(true)")
        await page.once(f"{counters}.streams === '0'")
        request_count = int(await page.says(f"{counters}.asked"))
        await page.says("window.hide(false)")
        await page.once(f"{counters}.streams === '1' && {counters}.asked === '{request_count + 1}'")
        await page.says("location.hash = '#/approvals'")
        await page.once(f"{counters}.streams === '0'")


async def test_names_that_attack_stay_text(demo: Demo, tmp_path: Path) -> None:
    script = (
        """const real = fetch; window.fetch = async (path, ...more) => {
      const answer = await real(path, ...more);
      if (!path.startsWith('/v1/portfolio')) return answer;
      const name = """
        + json.dumps(HOSTILE)
        + """;
      const change = (key, value) => key === 'symbol' || key === 'name' ? name : value;
      return new Response(JSON.stringify(JSON.parse(await answer.text(), change)), {status: answer.status});
    };"""
    )
    async with opened(demo, tmp_path, f"portfolio?addresses={ALICE}", 390, script=script) as page:
        await page.once("document.querySelector('[data-ready]')")
        await page.says("document.querySelector('tr.asset button.number').click()")
        assert await page.says("document.querySelector('img:not(.logo)') === null && document.body.id === ''")
        assert await page.says(WIDE) == []
        text = await page.says("document.querySelector('.holdings').textContent")
        assert not {"\u202e", "\u200b"} & set(text)
        assert max(map(len, await page.says("[...document.querySelectorAll('bdi')].map(b => b.textContent)"))) <= 400


async def test_the_link_of_the_demo_works_once(demo: Demo, tmp_path: Path) -> None:
    with closing(open_state(load(demo.config, {}))) as state:
        account = next(each for each in state.accounts() if each.name == "demo")
        link = new_link(state, account.id, demo.url, addresses=ALICE)
    async with browsing(tmp_path / "profile") as page:
        await page.open(link)
        await page.once("document.querySelector('#networth, form.login')")
        assert await page.says("document.querySelector('#networth') !== null")
        assert "link" not in await page.says("location.href + JSON.stringify(history.state)")
        assert await page.says("document.cookie") == "", "no script reads the session"
        await page.says("document.querySelector('.tools button:last-child').click()")
        await page.once("document.querySelector('form.login')")
        await page.says(f"location.hash = {json.dumps(link.partition('#')[2])}")
        await page.once("document.querySelector('form.login .bad').textContent !== ''")
        await page.says(f"document.getElementById('key').value = {json.dumps(demo.key)}")
        await page.says("document.querySelector('form.login button').click()")
        await page.once("document.querySelector('#networth')")


async def test_a_link_replaces_a_session_only_by_a_click(demo: Demo, tmp_path: Path) -> None:
    with closing(open_state(load(demo.config, {}))) as state:
        account, _ = state.create_account("other", credits=77)
        link = new_link(state, account.id, demo.url)
    async with opened(demo, tmp_path, "portfolio") as page:
        await page.says(f"location.hash = {json.dumps(link.partition('#')[2])}")
        await page.once("document.querySelector('#other')")
        assert "link" not in await page.says("location.href")
        assert await page.says("document.querySelector('.credits').textContent") != "77 credits"
        await page.says("document.querySelector('#other button').click()")
        await page.once("document.querySelector('.inner')")
        assert await page.says("document.querySelector('.credits').textContent") == "77 credits"
