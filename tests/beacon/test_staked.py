"""The stake of validators stands in the portfolio of their withdrawal address, at the slot of its block."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chainfolio.blocks import Block
from chainfolio.cli.main import main
from chainfolio.contracts import Snapshot
from chainfolio.engine.validators.stakes import WITHDRAWALS_DATASET
from chainfolio.engine.wiring import snapshotter_of
from chainfolio.errors import Unavailable
from chainfolio.indexer.wiring import System
from chainfolio.settings_file import load
from tests.api.over_nodes import ask, served
from tests.beacon.both import Both, owner, running
from tests.beacon.conftest import chain_at

pytestmark = pytest.mark.node
ETH = 10**9  # gwei
STAYS, TOPPED_UP, LEAVES, GONE, MERGED, FRESH = 7, 3, 21, 22, 23, 65
NOWHERE = "0x" + "cd" * 20


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    """Validators that stay, leave, are gone, are topped up, merged into another, and one that is new."""
    with running() as nodes:
        nodes.advance(8, miss=[5])
        nodes.beacon.do("exit", validators=[GONE])
        nodes.beacon.do("consolidate", source=MERGED, target=MERGED)
        nodes.advance(84, miss=[11])
        nodes.beacon.do("deposit", validator=TOPPED_UP, amount=5 * ETH)
        nodes.beacon.do("deposit", amount=32 * ETH)
        nodes.beacon.do("exit", validators=[LEAVES])
        nodes.beacon.do("withdraw", validator=MERGED, amount=1 * ETH)
        nodes.advance(3)
        nodes.execution.rpc("anvil_setBalance", owner(STAYS), hex(2 * 10**18))
        yield nodes


@pytest.fixture(scope="module")
def config(both: Both, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = both.settings(tmp_path_factory.mktemp("staked"))
    assert main(["index", "own", "--config", str(path), "--json"]) == 0
    return path


def show_portfolio(config: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """A portfolio."""
    capsys.readouterr()
    assert main(["portfolio", *words, "--config", str(config), "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    return dict(document)


def staked(document: dict[str, Any]) -> dict[str, str]:
    """Return the amount of the native coin in each part of the stake, by its name."""
    beacon = document["assetByProtocols"].get("beacon")
    if beacon is None:
        return {}
    assert beacon["name"] == "Ethereum validators"
    ((kind, position),) = beacon["chains"]["local"]["protocolPositions"].items()
    assert kind == "STAKED"
    return {each["name"]: each["supplyAssets"][0]["balance"] for each in position["protocolPositions"]}


def stake_issues(document: dict[str, Any]) -> list[str]:
    """Return the messages about validators that are not known."""
    return [each["reason"] for each in document["issues"] if each["adapter"] == "validators"]


def eth(gwei: object) -> str:
    integer, fraction = divmod(int(str(gwei)), ETH)
    return f"{integer}.{fraction:09d}".rstrip("0").rstrip(".")


def test_a_stake_is_what_the_validator_has_at_the_slot_of_the_block(
    both: Both, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = show_portfolio(config, capsys, owner(STAYS))
    assert staked(document) == {"Staked (1 validator)": eth(both.validator("head", STAYS)["balance"])}
    assert stake_issues(document) == []
    (loose,) = document["assetByProtocols"]["wallet"]["chains"]["local"]["protocolPositions"]["WALLET"]["assets"]
    assert (loose["symbol"], loose["balance"]) == ("eth", "2"), "what is loose is not what is staked"
    height = 40  # slots 5 and 11 have no block: the block of slot 42 is the 40th
    past = show_portfolio(config, capsys, owner(STAYS), "--chain", "local", "--block", str(height))
    assert staked(past) == {"Staked (1 validator)": eth(both.validator(height + 2, STAYS)["balance"])}
    assert staked(past) != staked(document)


def test_what_is_deposited_waits_beside_the_balance_until_it_is_credited(
    both: Both, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert staked(show_portfolio(config, capsys, owner(TOPPED_UP))) == {
        "Staked (1 validator)": eth(both.validator("head", TOPPED_UP)["balance"]),
        "Deposits not credited yet (1 validator)": "5",
    }
    assert staked(show_portfolio(config, capsys, owner(FRESH))) == {"Deposits not credited yet (1 validator)": "32"}


def test_what_leaves_or_can_be_withdrawn_is_in_the_balance_once(
    both: Both, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exited, leaves, merged = (both.validator("head", each) for each in (GONE, LEAVES, MERGED))
    assert leaves["status"] == "active_exiting"
    assert staked(show_portfolio(config, capsys, owner(LEAVES))) == {"Leaving (1 validator)": eth(leaves["balance"])}
    names = {"withdrawal_possible": "Withdrawable", "withdrawal_done": "", "exited_unslashed": "Leaving"}
    expected = {f"{names[exited['status']]} (1 validator)": eth(exited["balance"])} if int(exited["balance"]) else {}
    assert staked(show_portfolio(config, capsys, owner(GONE))) == expected
    pending = both.beacon.call("/eth/v1/beacon/states/head/pending_partial_withdrawals")["data"]
    assert [each["validator_index"] for each in pending] == [str(MERGED)], "it waits to be paid, and is still there"
    assert staked(show_portfolio(config, capsys, owner(MERGED))) == {"Staked (1 validator)": eth(merged["balance"])}


def test_a_wallet_without_validators_has_no_stake(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = show_portfolio(config, capsys, NOWHERE)
    assert (staked(document), stake_issues(document)) == ({}, [])


def test_all_that_validators_own_is_in_the_portfolios_of_their_owners_once(both: Both, config: Path) -> None:
    owners = [owner(each) for each in range(FRESH + 1)]

    async def take_snapshot() -> Snapshot:
        system = System(load(config))
        try:
            return await snapshotter_of(system, system.chain("local")).take(owners)
        finally:
            await system.close()

    positions = asyncio.run(take_snapshot()).positions
    total = sum(each.raw for position in positions for each in position.supplied)
    state = both.beacon.call("/eth/v1/beacon/states/head/validators")["data"]
    waiting = both.beacon.call("/eth/v1/beacon/states/head/pending_deposits")["data"]
    assert total == (sum(int(each["balance"]) for each in state) + sum(int(each["amount"]) for each in waiting)) * 10**9


def test_the_settings_switch_it_off(both: Both, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = both.settings(tmp_path, "stake_in_portfolios = false\n")
    document = show_portfolio(config, capsys, owner(STAYS))
    assert (staked(document), stake_issues(document)) == ({}, [])


def test_a_stake_that_nobody_indexed_or_can_read_is_an_issue_and_never_zero(
    both: Both, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = both.settings(tmp_path)
    document = show_portfolio(config, capsys, owner(STAYS))
    assert stake_issues(document) == ["what validators have is not known: own is not indexed"]
    assert (document["completeness"], staked(document)) == ("partial", {})
    assert main(["index", "own", "--config", str(config), "--json", "--to", "24"]) == 0
    document = show_portfolio(config, capsys, owner(STAYS))
    assert stake_issues(document) == ["own is indexed up to slot 24: who became a validator later may be missing"]
    assert list(staked(document)) == ["Staked (1 validator)"]
    config.write_text(config.read_text().replace(both.beacon.url, "http://127.0.0.1:9"))
    document = show_portfolio(config, capsys, owner(STAYS))
    (reason,) = stake_issues(document)
    assert reason.startswith("what validators have could not be read: ")
    assert (document["completeness"], staked(document)) == ("partial", {})


@pytest.mark.slow("another test shows what cannot be read as an issue")
async def test_a_beacon_chain_that_cannot_be_read_costs_stakes_alone(both: Both, tmp_path: Path) -> None:
    config = both.settings(tmp_path)
    for state, reason in (("not indexed", "own is not indexed"), ("down", "what validators have could not be read")):
        folder = tmp_path / state
        folder.mkdir()
        if state == "down":
            await asyncio.to_thread(main, ["index", "own", "--config", str(config), "--json"])
            config.write_text(config.read_text().replace(both.beacon.url, "http://127.0.0.1:9"))
        async with served(config, folder) as world:
            for owned in (owner(STAYS), NOWHERE):
                for name in ("portfolio", "nav"):
                    response, cost = await ask(world, name, owned)
                    assert (response.status, cost) == (200, 1), (state, response.body)
                    document = response.json[0] if name == "portfolio" else response.json
                    issues = [each for each in document["issues"] if each["adapter"] == "validators"]
                    assert (document["completeness"], [each["subject"] for each in issues]) == ("partial", ["own"])
                    assert reason in issues[0]["reason"]
                response, _ = await ask(world, "wallet", owned)
                assert "validators" not in {each["adapter"] for each in response.json[0]["issues"]}, "it shows no stake"
            tenant = world.tenant("enterprise", grants=("enterprise",))
            if state == "down":
                before = await world.settled_balance(tenant)
                response = await tenant.ask("GET", f"/v1/beacon/validators/details/index/{STAYS}")
                assert (response.status, response.headers["Content-Type"].split(";")[0]) == (500, "text/plain")
                assert response.body.startswith(b"the validator could not be read")
                assert await world.settled_balance(tenant) == before


def test_of_named_validators_those_of_the_wallet_are_shown_and_the_rest_is_said_to_be_unknown(
    both: Both, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = both.settings(tmp_path, f'validators = ["{STAYS}", "{owner(LEAVES)}"]\n')
    assert main(["index", "own", "--config", str(config), "--json"]) == 0
    by_index, by_address = (show_portfolio(config, capsys, owner(each)) for each in (STAYS, LEAVES))
    assert list(staked(by_index)) == ["Staked (1 validator)"]
    assert stake_issues(by_index) == [
        "own is indexed of some validators only: others of this account are not looked for"
    ]
    assert (list(staked(by_address)), stake_issues(by_address)) == (["Leaving (1 validator)"], [])


async def test_a_block_that_the_beacon_chain_does_not_carry_has_no_stake(both: Both) -> None:
    chain = chain_at(both.beacon.url)
    header = both.execution.block()
    block = Block(
        int(header["number"], 16), header["hash"], header["parentHash"], int(header["timestamp"], 16) * 1_000_000
    )
    assert [each.owner for each in await chain.stakes([owner(STAYS)], [str(STAYS), "9"], block)] == [owner(STAYS)]
    for unknown_block, reason in (
        (replace(block, hash="0x" + "11" * 32), "does not carry block"),
        (replace(block, time_us=block.time_us + 1_000_000), "no slot begins at the time"),
        (replace(block, time_us=block.time_us + 6_000_000), "have no block at slot"),
        (replace(block, time_us=0), "of another chain"),
    ):
        with pytest.raises(Unavailable, match=reason):
            await chain.stakes([owner(STAYS)], [str(STAYS)], unknown_block)
    await chain.close()


async def test_where_no_beacon_chain_is_configured_the_portfolio_says_so_if_validators_withdraw_there(
    both: Both, tmp_path: Path
) -> None:
    system = System(load(both.settings(tmp_path, beacon=False)))
    local = system.chain("local")
    assert snapshotter_of(system, local).stakes is None, "no validators withdraw to a chain that pays no withdrawals"
    local.datasets = {**local.datasets, WITHDRAWALS_DATASET: local.datasets["transfers"]}  # type: ignore[misc]
    stakes = snapshotter_of(system, local).stakes
    assert stakes is not None
    positions, (issue,) = await stakes.of([owner(STAYS)], await local.block(3))
    assert (positions, issue.adapter, issue.makes_partial) == ([], "validators", False)
    assert issue.reason == "no beacon chain is configured: what validators have is not in it"
    await system.close()


async def test_whose_withdrawals_reached_a_wallet_is_known_by_its_block(both: Both, config: Path) -> None:
    system = System(load(config))
    stakes = snapshotter_of(system, system.chain("local")).stakes
    assert stakes is not None
    expected: dict[tuple[str, int], list[int]] = {}
    for slot in range(1, 64):
        if slot in (5, 11):
            continue
        body = both.beacon.call(f"/eth/v2/beacon/blocks/{slot}")["data"]["message"]["body"]
        for each in body["execution_payload"]["withdrawals"]:
            time_us = int(body["execution_payload"]["timestamp"]) * 1_000_000
            expected.setdefault((each["address"].lower(), time_us), []).append(int(each["validator_index"]))
    assert expected
    withdrawers = await stakes.withdrawing_validators(
        {address for address, _ in expected}, {time_us for _, time_us in expected}
    )
    assert withdrawers == expected
    assert await stakes.withdrawing_validators({owner(STAYS)}, set()) == {}
    await system.close()
