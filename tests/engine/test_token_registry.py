"""Tokens of the registry: found without an index, shown with their facts, read in few requests."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chainfolio.adapters.evm.facts import load
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.assets import account
from chainfolio.blocks import Span
from chainfolio.engine.service import Engine
from chainfolio.engine.snapshots.token_registry import HEADER, TokenRegistry
from chainfolio.errors import BadSettings
from chainfolio.indexer.wiring import CONFIGS, System
from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import Tx, created_address, tx, words
from chainfolio.localchain.hostile import deploy_hostile
from chainfolio.portfolio.document import AssetDocument, Portfolio, every_asset
from chainfolio.portfolio.facts import Options
from chainfolio.printable import clean
from chainfolio.scopes import account_filter
from chainfolio.settings import Settings
from tests.chains.evm import EvmSubject, evm

HOLDER = account("0x" + "b0" * 20)
INFO = load(CONFIGS / "chains" / "local.toml").info


def line(contract: str, lists: int, symbol: str) -> str:
    return f"{contract},{lists},18,{symbol},"


def write(path: Path, lines: list[str]) -> TokenRegistry:
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    return TokenRegistry(path, INFO)


def test_tokens_are_found_by_the_number_of_lists_that_name_them(tmp_path: Path) -> None:
    contracts = [f"0x{k:040x}" for k in range(6)]
    registry = write(tmp_path / "local.csv", [line(each, 8 - k, f"T{k}") for k, each in enumerate(contracts)])
    assert [asset.reference for asset in registry.assets_on(6)] == contracts[:3]
    assert [token.symbol for token in registry.tokens(8)] == ["T0"]
    assert registry.assets_on(9) == []
    assert len(registry.assets_on(1)) == len(registry) == 6
    assert registry.list_count(INFO.token_asset(contracts[5])) == 3
    assert registry.list_count(INFO.token_asset("0x" + "ff" * 20)) == 0


def test_a_chain_without_a_registry_has_no_candidates(tmp_path: Path) -> None:
    registry = TokenRegistry(tmp_path / "local.csv", INFO)
    assert (len(registry), registry.assets_on(1), list(registry.tokens(1))) == (0, [], [])


@pytest.mark.parametrize("lines", [["address,symbol"], [HEADER, "0x" + "11" * 20 + ",many,18,T,"]])
def test_a_registry_that_cannot_be_meant_is_refused_with_its_name(tmp_path: Path, lines: list[str]) -> None:
    path = tmp_path / "local.csv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(BadSettings, match=r"local\.csv"):
        TokenRegistry(path, INFO).assets_on(1)


# --- on a node -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(0) as chain:
        yield chain


@asynccontextmanager
async def engine(subject: EvmSubject, folder: Path, lines: list[str], registry_lists: int = 2) -> AsyncIterator[Engine]:
    """Yield an engine without an index, whose chain has this registry and no own token list."""
    configs = folder / "configs"
    shutil.copytree(CONFIGS, configs)
    write(configs / "tokens" / "local.csv", lines)
    chain = EvmSettings(rpc=[subject.node.url], registry_lists=registry_lists)
    settings = Settings(data=str(folder / "data"), chains={"local": chain}, protocols=str(folder / "protocols"))
    system = System(settings, configs=configs)
    try:
        yield Engine(system)
    finally:
        await system.close()


def mint(subject: EvmSubject, symbol: str, name: str) -> str:
    """Deploy a new token, mint some of it for the holder, and return its address."""
    deployer = subject.deployment.accounts["deployer"]
    nonce = int(subject.node.rpc("eth_getTransactionCount", deployer, "latest"), 16)
    creation = artifact("Token").creation(words(["string", "string", "uint8"], name, symbol, 18))
    contract = created_address(deployer, nonce)
    subject.node.settle([Tx(deployer, None, creation, gas=5_000_000)])
    subject.node.settle([tx(deployer, contract, "mint(address,uint256)", HOLDER.address, 5)])
    subject.mine(1)
    return contract.lower()


def loose(document: Portfolio) -> dict[str, AssetDocument]:
    chains = document.asset_by_protocols["wallet"].chains.values()
    return {asset.contract: asset for chain in chains for asset in every_asset(chain)}


async def read(engine: Engine) -> Portfolio:
    return (await engine.portfolios([HOLDER], Options(), wait=True, wallet_only=False))[0]


@pytest.mark.node
async def test_without_an_index_what_the_registry_names_is_found_and_what_is_not_held_is_not_shown(
    subject: EvmSubject, tmp_path: Path
) -> None:
    held_token, unheld, unnamed = mint(subject, "HELD", "Held"), subject.token("DAI"), mint(subject, "NEW", "New")
    lines = [
        line(held_token, 5, "HELD"),
        line(unheld, 5, "DAI"),
        *(line(f"0xc0de{k:036x}", 2, "X") for k in range(5_000)),
    ]
    async with engine(subject, tmp_path, lines) as running:
        document = await read(running)
        chain = running.system.chain("local")
        (health,) = chain.health()
        loose_assets = loose(document)
        assert loose_assets.keys() == {held_token}
        assert unnamed not in loose_assets
        assert (loose_assets[held_token].symbol, loose_assets[held_token].balance) == ("held", "0.000000000000000005")
        assert health.cost.reads["balanceOf"] == 5_002
        assert chain.requests == health.requests <= 4
        (missing,) = [issue for issue in document.issues if issue.adapter == "index"]
    assert document.completeness == "partial"
    assert "except the 5,002 tokens that public lists name" in missing.reason
    assert f"chainfolio watch {HOLDER} --chain local" in missing.reason


@pytest.mark.node
async def test_a_token_that_few_lists_name_is_said_to_be_so_and_one_that_looks_like_a_known_one_is_spam(
    subject: EvmSubject, tmp_path: Path
) -> None:
    listed_token, rarely_listed = mint(subject, "KNOWN", "Known"), mint(subject, "FEW", "Few")
    lookalike = mint(subject, "FAM\u039fUS", "Token")  # a Greek letter
    famous = "0x" + "fa" * 20
    lines = [
        line(famous, 9, "FAMOUS"),
        line(listed_token, 3, "KNOWN"),
        line(rarely_listed, 2, "FEW"),
        line(lookalike, 2, "FAMOUS"),
    ]
    async with engine(subject, tmp_path, lines) as running:
        document = await read(running)
    loose_assets = loose(document)
    assert {listed_token, rarely_listed, lookalike} <= loose_assets.keys()
    assert {issue.subject for issue in document.issues if issue.adapter == "registry"} == {rarely_listed, lookalike}
    assert document.spam_assets == 1
    assert "LOOKALIKE" in loose_assets[lookalike].spam.reasons  # type: ignore[union-attr]
    assert document.networth == "0"


@pytest.mark.node
async def test_tokens_of_the_registry_that_lie_or_break_spoil_nothing_else_and_show_no_character_that_misleads(
    subject: EvmSubject, tmp_path: Path
) -> None:
    """Decimals of the contract count if few lists name the token, else those of the lists."""
    held_token, hostile = mint(subject, "HELD", "Held"), deploy_hostile(subject.node, HOLDER.address)
    lines = [line(held_token, 5, "HELD"), line(hostile["decimals 77"].lower(), 4, "HOST")]
    lines += [line(each.lower(), 2, "HOST") for name, each in hostile.items() if name != "decimals 77"]
    async with engine(subject, tmp_path, lines) as running:
        document = await read(running)
    loose_assets = loose(document)
    assert (loose_assets[held_token].symbol, loose_assets[held_token].balance) == ("held", "0.000000000000000005")
    assert loose_assets[hostile["decimals 77"].lower()].balance == "1", "four lists say 18"
    assert loose_assets[hostile["decimals 0"].lower()].balance == str(WAD), "two lists say 18, and the contract 0"
    unread = {hostile[name].lower() for name in ("balance reverts", "balance loops", "balance of 0 bytes")}
    assert not unread & loose_assets.keys()
    assert document.completeness == "partial"
    assert document.networth == "0"
    texts_shown = [(asset.symbol, asset.name) for asset in loose_assets.values()]
    assert all(clean(text, 10_000) == text for texts in texts_shown for text in texts), texts_shown


@pytest.mark.node
async def test_an_operator_says_how_many_lists_have_to_name_a_token_that_is_looked_for(
    subject: EvmSubject, tmp_path: Path
) -> None:
    two, five = mint(subject, "TWO", "Two"), mint(subject, "FIVE", "Five")
    lines = [line(five, 5, "FIVE"), line(two, 2, "TWO")]
    for lists, expected in ((2, {two, five}), (4, {five}), (0, {five})):  # five lists make it one of the chain's list
        async with engine(subject, tmp_path / str(lists), lines, registry_lists=lists) as running:
            assert loose(await read(running)).keys() == expected


@pytest.mark.node
async def test_where_transfers_are_indexed_the_registry_is_not_asked(subject: EvmSubject, tmp_path: Path) -> None:
    held_token = mint(subject, "HELD", "Held")
    async with engine(subject, tmp_path, [line(held_token, 2, "HELD")]) as running:
        running.system.tail.add_ranges("local", [("transfers", "")], Span(0, subject.height))
        document = await read(running)
        assert running.system.chain("local").health()[0].cost.reads["balanceOf"] == 0
    assert held_token not in loose(document)
    assert [issue for issue in document.issues if issue.adapter == "index"] == []


@pytest.mark.node
async def test_the_registry_is_asked_for_the_accounts_alone_whose_transfers_are_not_indexed(
    subject: EvmSubject, tmp_path: Path
) -> None:
    held_token, watched = mint(subject, "HELD", "Held"), account("0x" + "b1" * 20)
    async with engine(subject, tmp_path, [line(held_token, 2, "HELD")]) as running:
        full_span, tail = Span(0, subject.height), running.system.tail
        tail.add_ranges("local", [("transfers", account_filter(watched.address))], full_span)
        block = await running.system.chain("local").block(subject.height)
        both = await running.at_pinned([HOLDER, watched], "local", block, Options(), past=True)
        assert running.system.chain("local").health()[0].cost.reads["balanceOf"] == 1
    assert [issue.adapter for issue in both[1].issues if issue.adapter == "index"] == []
    assert held_token in loose(both[0])


@pytest.mark.node
async def test_without_an_index_a_share_that_the_registry_names_is_a_position(tmp_path: Path) -> None:
    with evm(0) as subject:
        subject.trade(150, 1)
        vault = subject.deployment.contracts["Vault"].lower()
        accounts = [
            each
            for each in subject.deployment.accounts.values()
            if subject.balance(each.lower(), vault, subject.height)
        ]
        (tmp_path / "protocols").mkdir()
        described = f'key = "vault"\nname = "Vault"\nfamilies = ["erc4626"]\n[contracts.local]\nvault = ["{vault}"]\n'
        (tmp_path / "protocols" / "vault.toml").write_text(described)
        async with engine(subject, tmp_path, [line(vault, 2, "VAULT")]) as running:
            holder = account(accounts[0])
            (document,) = await running.portfolios([holder], Options(), wait=True, wallet_only=False)
            assert running.system.chain("local").requests <= 7
    assert document.asset_by_protocols.keys() == {"wallet", "vault"}
    assert vault not in loose(document)
