"""`chainfolio portfolio --from`: many wallets at one block, each as if alone; wrong lines are named."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chainfolio.cli.demo import index_chain, prepare
from chainfolio.cli.progress_bar import Bar, Lines
from chainfolio.cli.wallets import Run as Progress
from chainfolio.cli.wallets import read_accounts
from chainfolio.indexer.wiring import System
from chainfolio.localchain.deploy import Deployment, deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import trade
from chainfolio.settings import Settings
from tests.cli.conftest import ALICE, Run
from tests.indexer.clock import ManualClock

STRANGER = "0x" + "12" * 20
CHAINS = '[chains.ethereum]\nrpc = ["{url}"]\n'


def test_a_file_has_an_address_a_line_with_comments_and_none_twice(here: Path) -> None:
    lines = ["# whales", "", f"  {ALICE}  # the first", STRANGER, ALICE.upper().replace("0X", "0x"), "\t"]
    (here / "wallets.txt").write_text("\n".join(lines))
    rows = read_accounts("wallets.txt")
    assert [account.address for account in rows] == [ALICE, STRANGER]
    assert list(rows.values()) == ["line 3 of wallets.txt", "line 4 of wallets.txt"]


@pytest.mark.parametrize("line", ["0x1234", "vitalik", "\x00", f"{ALICE} {STRANGER}", "0x" + "g" * 40])
def test_a_line_that_is_no_address_is_told_with_its_number(run: Run, here: Path, line: str) -> None:
    (here / "wallets.txt").write_text(f"{ALICE}\n\n{line}\n{STRANGER}\n")
    ran = run("portfolio", "--from", "wallets.txt", "--json")
    assert ran.code == 2
    assert ran.error["field"] == "from"
    assert ran.error["message"].startswith("from: line 3 of wallets.txt: ")


def test_bytes_that_are_no_text_are_a_malformed_line(run: Run, here: Path) -> None:
    (here / "wallets.txt").write_bytes(ALICE.encode() + b"\n\xff\xfe\x00\n")
    assert "line 2 of" in run("portfolio", "--from", "wallets.txt", "--json").error["message"]


def test_refusals_name_what_is_wrong(run: Run, here: Path, dead: str) -> None:
    (here / "wallets.txt").write_text(f"{ALICE}\n")
    assert run("portfolio", "--json").error["field"] == "address"
    assert run("portfolio", "--from", "nowhere.txt", "--json").error["message"].startswith("from: nowhere.txt: ")
    assert run("portfolio", "--from", ".", "--json").error["field"] == "from"
    for batch in ("0", "-3", "10001"):
        assert run("portfolio", "--from", "wallets.txt", "--batch", batch, "--json").error["field"] == "batch"
    assert run("portfolio", "--from", "wallets.txt", "--json").error["field"] == "chains"
    (here / "chainfolio.toml").write_text(CHAINS.format(url=dead) + CHAINS.format(url=dead).replace("ethereum", "base"))
    assert run("portfolio", "--from", "wallets.txt", "--json").error["field"] == "chain"
    args = ("portfolio", "--from", "wallets.txt", "--chain", "base", "--json")
    assert run(*args, "--block", "-1").error["field"] == "block"
    (here / "wallets.txt").write_text(f"{ALICE}\nJUPyiwrYJFskUPiHa7hkeR8VUtAeFoSYbKedZNsDvCN\n")
    assert "line 2 of wallets.txt" in run(*args).error["message"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Deployment, int]]:
    """A chain with wallets, indexed: its settings file, and the block to ask for."""
    folder = tmp_path_factory.mktemp("world") / "data"
    with LocalNode() as node:
        deployment = deploy(node)
        trade(node, deployment, blocks=12)
        height = node.height
        node.mine(3)
        asyncio.run(_indexed(prepare(folder, node, deployment, 0)))
        yield folder / "chainfolio.toml", deployment, height


async def _indexed(settings: Settings) -> None:
    system = System(settings)
    try:
        await index_chain(system, quiet=True)
    finally:
        await system.close()


def _without_age(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in each.items() if key != "lastUpdated"} for each in documents]


@pytest.mark.slow("reads many wallets in batches of many sizes")
@pytest.mark.node
def test_many_are_what_each_is_alone_in_the_order_of_the_file_whatever_the_batch(
    run: Run, here: Path, world: tuple[Path, Deployment, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, deployment, height = world
    wallets = [account.lower() for account in deployment.accounts.values()] + [STRANGER]
    (here / "wallets.txt").write_text("\n".join(reversed(wallets)))
    options = ("--config", str(config), "--chain", "local", "--block", str(height), "--json")
    alone = [_without_age(run("portfolio", wallet, *options).json)[0] for wallet in reversed(wallets)]
    assert any(len(each["assetByProtocols"]) > 1 for each in alone)
    for batch in ("1", "3", "500"):
        ran = run("portfolio", "--from", "wallets.txt", "--batch", batch, *options)
        assert ran.code == 0
        assert _without_age([json.loads(line) for line in ran.out.splitlines()]) == alone, batch
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{wallets[0]}\n{STRANGER}\n"))
    ran = run("portfolio", wallets[1], STRANGER, "--from", "-", *options)
    assert [json.loads(line)["address"] for line in ran.out.splitlines()] == [wallets[1], STRANGER, wallets[0]]


@pytest.mark.node
def test_the_value_of_each_of_many_is_its_net_worth_at_that_block_in_columns_or_not(
    run: Run, here: Path, world: tuple[Path, Deployment, int]
) -> None:
    config, deployment, height = world
    wallets = [account.lower() for account in deployment.accounts.values()] + [STRANGER]
    (here / "wallets.txt").write_text("\n".join(wallets))
    options = ("--config", str(config), "--from", "wallets.txt", "--chain", "local", "--block", str(height))
    documents = [json.loads(line) for line in run("portfolio", *options, "--json").out.splitlines()]
    assert len({each["networth"] for each in documents}) > 2
    for batch in ("2", "500"):
        ran = run("nav", *options, "--batch", batch, "--json")
        rows = [json.loads(line, parse_float=str, parse_int=str) for line in ran.out.splitlines()]
        values = [(each["address"], each["nav"], int(each["unpricedAssets"]), each["completeness"]) for each in rows]
        assert values == [
            (each["address"], each["networth"], each["unpricedAssets"], each["completeness"]) for each in documents
        ]
    head, names, *lines = run("nav", *options).out.splitlines()
    assert head.startswith(f"local, block {height} 0x")
    assert names.split() == ["address", "net", "asset", "value"]
    assert [line.split()[0] for line in lines] == wallets
    assert lines[-1].split()[1:] == ["0.00", "USD"]


@pytest.mark.node
def test_one_value_of_many_has_no_block_and_values_at_a_block_are_in_fiat(
    run: Run, here: Path, world: tuple[Path, Deployment, int]
) -> None:
    config, _, height = world
    assert run("nav", "--json").error["field"] == "address"
    assert run("nav", STRANGER, "--block", "1", "--json").error["field"] == "chain"
    (here / "wallets.txt").write_text(f"{STRANGER}\n")
    options = ("--config", str(config), "--from", "wallets.txt", "--block", str(height), "--json")
    assert run("nav", *options, "--batch", "0").error["field"] == "batch"
    assert run("nav", *options, "--currency", "ETH").error["field"] == "currency"
    assert "must be one of" in run("nav", *options, "--currency", "GBP").error["message"]


@pytest.mark.node
def test_the_table_has_a_line_a_wallet_and_says_the_one_block(
    run: Run, here: Path, world: tuple[Path, Deployment, int]
) -> None:
    config, deployment, _ = world
    alice = deployment.accounts["alice"].lower()
    (here / "wallets.txt").write_text(f"{alice}\n{STRANGER}\n")
    ran = run("portfolio", "--config", str(config), "--from", "wallets.txt", "--batch", "1")
    block, _, first, second = ran.out.splitlines()
    assert re.fullmatch(r"local, block \d+ 0x[0-9a-f]{64}", block)
    assert re.fullmatch(rf"{alice} +[\d,]+\.\d\d +[1-9]\d* +0", first)
    assert second.split() == [STRANGER, "0.00", "0", "0"]
    assert run("portfolio", "--config", str(config), "--from", "wallets.txt", "--block", "9999999").code == 2


@pytest.mark.node
def test_a_file_without_an_address_is_no_wallet_and_no_error(
    run: Run, here: Path, world: tuple[Path, Deployment, int]
) -> None:
    (here / "wallets.txt").write_text("# nobody yet\n")
    ran = run("portfolio", "--config", str(world[0]), "--from", "wallets.txt", "--json")
    assert (ran.code, ran.out) == (0, "")


def test_a_run_says_its_rate_its_requests_and_what_is_left() -> None:
    clock = ManualClock()
    progress = Progress(clock, 2_000)
    assert progress.described() == "0 % of 2,000 wallets, 0/s, 0 requests"
    clock.now_s += 10  # the first batch pays for what is loaded
    progress.add(500, 9)
    assert progress.described() == "25 % of 2,000 wallets, 50/s, 9 requests, 30 s left"
    clock.now_s += 2
    progress.add(500, 12)
    assert progress.described() == "50 % of 2,000 wallets, 250/s, 12 requests, 4 s left"
    clock.now_s += 4
    progress.add(1_000, 18)
    assert progress.described() == "100 % of 2,000 wallets, 250/s, 18 requests"


def test_a_bar_is_drawn_over_itself_and_ended_lines_come_apart(capsys: pytest.CaptureFixture[str]) -> None:
    bar, lines = Bar("local"), Lines("local")
    bar(0.5, 0.0, lambda: "half")
    bar(0.6, 0.05, lambda: "too soon")
    bar.clear()
    bar(0.75, 0.06, lambda: "drawn again")
    bar(1.0, 0.07, lambda: "all")
    drawn = capsys.readouterr().err
    assert "too soon" not in drawn
    assert drawn.split("\r\x1b[2K")[1:] == [
        "local ████████░░░░░░░░ half",
        "",
        "local ████████████░░░░ drawn again",
        "local ████████████████ all\n",
    ]
    for seconds in (0.0, 5.0, 9.0, 10.0):
        lines(0.1, seconds, lambda: "some")
    assert capsys.readouterr().err == "local: some\n" * 2
