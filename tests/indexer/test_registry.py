"""The registry of protocols: read strictly, and every mistake told with its file and key."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.errors import BadSettings
from chainfolio.indexer.families import installed
from chainfolio.indexer.protocol_files import add_packages, forks_of, load
from chainfolio.indexer.registry import NAMESPACE
from chainfolio.indexer.wiring import System
from chainfolio.settings import Settings

ONE, TWO = "0x" + "01" * 20, "0x" + "02" * 20
SOLANA = "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA"
CHAINS = {"base": "evm", "ethereum": "evm"}
GOOD = f'key = "aave3"\nname = "Aave V3"\ncontracts.ethereum.pool = ["{ONE}"]\n'


def write(folder: Path, **files: str) -> Path:
    for key, text in files.items():
        (folder / f"{key}.toml").write_text(text)
    return folder


def test_protocols_are_found_by_chain_and_by_contract(tmp_path: Path) -> None:
    other_toml = f'key = "lido"\nname = "lido"\ncontracts.base.a = ["{ONE}"]\ncontracts.ethereum = {{b = ["{TWO}"]}}\n'
    registry = load([write(tmp_path, lido=other_toml, aave3=GOOD)], CHAINS)
    assert [each.key for each in registry.on("ethereum")] == ["aave3", "lido"]
    assert [each.key for each in registry.on("base")] == ["lido"]
    assert registry.on("linea") == ()
    assert [(chain, each.key) for chain, each in registry.of(ONE, CHAINS)] == [("base", "lido"), ("ethereum", "aave3")]
    assert [chain for chain, _ in registry.of(ONE, ["ethereum"])] == ["ethereum"]
    assert registry.of("0x" + "03" * 20, CHAINS) == []


def test_an_id_is_made_from_the_key_alone(tmp_path: Path) -> None:
    (protocol,) = load([write(tmp_path, aave3=GOOD)], CHAINS).protocols
    assert protocol.uuid == str(uuid.uuid5(NAMESPACE, "aave3")) == "8b49d5a3-740d-53b3-942d-653c8616c4f0"
    assert uuid.UUID(protocol.uuid).version == 5


def test_documents_are_told_names_and_pictures(tmp_path: Path) -> None:
    text = GOOD + 'images = {small = "https://images.example/a.svg"}\n'
    facts = load([write(tmp_path, aave3=text)], CHAINS).facts["aave3"]
    assert (facts.name, facts.images) == ("Aave V3", {"small": "https://images.example/a.svg"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("key =", "aave3.toml: Invalid value"),
        ('key = "aave3"\nname = "Aave"', "missing required field `contracts`"),
        (GOOD + "site = 'x'", "unknown field `site`"),
        (GOOD.replace("aave3", "aave2"), "`aave2` is not a protocol key that the file is named after"),
        (GOOD.replace("Aave V3", " "), "name and contracts are not empty"),
        ('key = "aave3"\nname = "Aave"\ncontracts = {}', "name and contracts are not empty"),
        (GOOD.replace("ethereum", "etherium"), "contracts.etherium: no such chain (one of base, ethereum)"),
        (
            GOOD.replace(ONE, "0x12"),
            "ethereum.pool: '0x12' is no contract's EVM address (0x + 40 hex digits)",
        ),
        (GOOD.replace(ONE, "0x" + "AB" * 20), f"is not the one form of an address (write 0x{'ab' * 20})"),
        (GOOD.replace(ONE, "0x" + "00" * 20), "is no contract's EVM address"),
        (GOOD.replace(f'["{ONE}"]', f'"{ONE}"'), "Expected `array`, got `str`"),
        (GOOD + 'images.small = "logo.png"', "images.small: pictures are"),
        (GOOD + 'images.huge = "https://x.example/a.png"', "images.huge: pictures are"),
    ],
)
def test_a_mistake_is_told_with_its_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadSettings) as caught:
        load([write(tmp_path, aave3=text)], CHAINS)
    assert str(caught.value).startswith("aave3.toml: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "address", "message"),
    [
        ("solana", SOLANA, ""),
        ("solana", ONE, f"'{ONE}' is no contract's Solana address (base58)"),
        ("evm", SOLANA, f"'{SOLANA}' is no contract's EVM address"),
        ("starknet", ONE + "0" * 24, ""),
        ("starknet", "0x" + "0" * 64, "is no contract's Starknet address"),
        ("starknet", "0x0" + "1" * 62, f"is not the one form of an address (write 0x00{'1' * 62})"),
        ("", SOLANA, ""),
        ("", ONE, ""),
        ("", "0x12", "is no contract's EVM or Solana or Tron or Starknet"),
        ("without_rules", "anything", ""),
    ],
)
def test_an_address_is_one_of_the_kind_of_its_chain(tmp_path: Path, kind: str, address: str, message: str) -> None:
    folder, kinds_by_chain = write(tmp_path, aave3=GOOD.replace(ONE, address)), {"ethereum": kind}
    if not message:
        assert load([folder], kinds_by_chain).on("ethereum")
        return
    with pytest.raises(BadSettings) as caught:
        load([folder], kinds_by_chain)
    assert message in str(caught.value)


TRON = "TGjYzgCyPobsNS9n6WcbdLVR9dH7mWqFx7"


@pytest.mark.parametrize(
    ("family", "role", "fits"), [("compound_v2", "comptroller", True), ("orca_whirlpool", "", False)]
)
def test_families_of_another_kind_read_chains_whose_kind_says_so(
    tmp_path: Path, family: str, role: str, fits: bool
) -> None:
    """Contracts of Tron understand the calls of the EVM's decoders, and those of Solana's mean nothing there."""
    text = f'key = "just"\nname = "Just"\nfamilies = ["{family}"]\n[contracts.tron]\n{role or "program"} = ["{TRON}"]\n'
    (tmp_path / "just.toml").write_text(text)
    kinds = {"tron": "tron", "solana": "solana", "ethereum": "evm"}
    registry = load([tmp_path], kinds)
    if not fits:
        with pytest.raises(BadSettings, match="reads chains of the kind solana, and tron is of the kind tron"):
            add_packages(registry, installed(), kinds, ())
        return
    add_packages(registry, installed(), kinds, ())
    families = {each.name: each for package in installed() for each in package.families}
    (row,) = registry.rows("tron", "tron", families)
    assert (row.protocol, dict(row.contracts)) == ("just", {"comptroller": (TRON,)})
    assert not registry.rows("ethereum", "evm", families)


@pytest.mark.parametrize("key", ["wallet", "Aave3", "aave-3", "3aave", "a" * 33])
def test_a_key_is_a_word_that_is_not_taken(tmp_path: Path, key: str) -> None:
    with pytest.raises(BadSettings, match="is not a protocol key"):
        load([write(tmp_path, **{key: GOOD.replace("aave3", key)})], CHAINS)


def test_a_contract_belongs_to_one_protocol_of_a_chain(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=f"contracts.ethereum.pool: {ONE} belongs to aave3 already"):
        load([write(tmp_path, aave3=GOOD, spark=GOOD.replace("aave3", "spark").replace("Aave V3", "Spark"))], CHAINS)


def test_the_shipped_registry_is_read_once() -> None:
    system = System(Settings())
    assert {"aave3", "lido", "uniswap3"} <= {each.key for each in system.registry.on("ethereum")}
    assert system.registry is system.registry


async def test_the_contracts_that_cannot_be_read_are_those_of_their_chain(tmp_path: Path) -> None:
    text = 'key = "mine"\nname = "Mine"\nfamilies = ["nothing_like_it"]\n'
    for chain, pair in (("local", "ab"), ("base", "cd")):
        text += f'[contracts.{chain}]\nvault = ["0x{pair * 20}"]\n'
    (tmp_path / "mine.toml").write_text(text)
    chains = {"local": EvmSettings(rpc=["http://127.0.0.1:9"])}
    system = System(Settings(data=str(tmp_path), protocols=str(tmp_path), chains=chains))
    assert list(system.installed_protocols(system.chain("local")).unread) == ["0x" + "ab" * 20]
    await system.close()


def test_a_type_of_transaction_that_there_is_not_is_told(tmp_path: Path) -> None:
    for wrong in ('type = "TRADE"\nneeds = "loss"', 'type = "SWAP"\nneeds = "lost"', 'type = "SWAP"\nneed = "loss"'):
        text = GOOD + f'\n[[transactions]]\n{wrong}\nfunctions = ["swap"]\n'
        with pytest.raises(BadSettings, match=r"aave3.toml: .*transactions"):
            load([write(tmp_path, aave3=text)], CHAINS)


SWAP = f'key = "swap"\nname = "Swap"\nfamilies = ["uniswap_v2"]\n{{}}[contracts.base]\nfactory = ["{ONE}"]\n{{}}\n'


@pytest.mark.parametrize(
    ("extra", "roles", "message"),
    [
        ("", f'router = ["{TWO}"]', "contracts.base.router: no decoder reads this role (name it in `labels`"),
        ("", f'factori = ["{TWO}"]', "no decoder reads this role (did you mean `factory`?)"),
        ('labels = ["routers"]\n', "", "labels, undecoded: there is no role `routers` in `contracts`"),
        ('options.protocol_fees = "1/6"\n', "", "options.protocol_fees: no decoder reads this option (did you mean"),
        ('options.x = "1/6"\n', "", "options.x: no decoder reads this option (remove it)"),
    ],
)
def test_a_role_or_option_that_no_decoder_reads_is_told(tmp_path: Path, extra: str, roles: str, message: str) -> None:
    write(tmp_path, swap=SWAP.format(extra, roles))
    with pytest.raises(BadSettings) as caught:
        _ = System(Settings(protocols=str(tmp_path))).registry
    assert str(caught.value).startswith("swap.toml: ")
    assert message in str(caught.value)


def test_a_family_that_finds_nobody_by_a_file_is_told(tmp_path: Path) -> None:
    write(tmp_path, swap=SWAP.format('labels = ["router"]\n', "").replace("factory", "router"))
    with pytest.raises(BadSettings, match="uniswap_v2 finds no accounts without a contract as `factory`"):
        _ = System(Settings(protocols=str(tmp_path))).registry


def test_every_shipped_protocol_is_read_or_its_undecoded_contracts_are_named() -> None:
    registry = System(Settings()).registry
    without = [each for each in registry.protocols if not each.families]
    assert {each.key for each in without} >= {"bubblegum", "rocketpool"}
    silent = [each for each in without if not each.undecoded]  # names alone: they hold no positions
    assert {each.key for each in silent if each.contracts.keys() != {"solana"}} == {"beacon", "gnosis_bridge"}
    rocket = next(each for each in without if each.key == "rocketpool")
    undecoded = registry.undecoded("ethereum")
    assert {rocket.contracts["ethereum"][role][0] in undecoded for role in rocket.undecoded} == {True}
    assert {rocket.contracts["ethereum"][role][0] in undecoded for role in rocket.labels} == {False}


HEADER = "protocol,name,family,chain,role,address\n"
FORK = f"pan,Pan Swap,uniswap_v2,base,factory,{TWO}\n"


def test_a_row_of_forks_is_a_protocol_like_one_with_a_file(tmp_path: Path) -> None:
    (write(tmp_path, aave3=GOOD) / "forks.csv").write_text(
        HEADER + FORK + f"pan,Pan Swap,uniswap_v2,ethereum,factory,{TWO}\n"
    )
    registry = load([tmp_path], CHAINS)
    assert [each.key for each in registry.on("ethereum")] == ["aave3", "pan"]
    (pan,) = registry.on("base")
    assert (pan.name, pan.families, pan.contracts["base"]) == ("Pan Swap", ["uniswap_v2"], {"factory": [TWO]})


def test_what_a_file_names_is_no_forks_and_a_fork_without_contracts_is_none(tmp_path: Path) -> None:
    fork_rows = f"pan,Pan Swap,uniswap_v2,ethereum,factory,{ONE}\naave3,Aave,uniswap_v2,base,factory,{TWO}\n"
    (write(tmp_path, aave3=GOOD) / "forks.csv").write_text(HEADER + fork_rows)
    registry = load([tmp_path], CHAINS)
    assert [(each.key, each.name) for each in registry.protocols] == [("aave3", "Aave V3")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the first line is not"),
        (HEADER + FORK.replace(TWO, ""), "forks.csv:2: not the 6 values"),
        (HEADER + FORK.replace("\n", ",more\n"), "forks.csv:2: not the 6 values"),
        (HEADER + FORK.replace("base", "bass"), "bass is no such chain (one of base, ethereum)"),
        (HEADER + FORK.replace("pan,", "Pan,"), "`Pan` is not a protocol key"),
        (HEADER + FORK.replace("pan,", "wallet,"), "`wallet` is not a protocol key"),
        (HEADER + FORK.replace(TWO, "0x" + "0" * 40), "factory: '0x0000"),
        (HEADER + FORK.replace(TWO, "0x" + "AB" * 20), "forks.csv:2: factory: 0xABAB"),
        (HEADER + FORK + FORK.replace("Pan Swap", "Pot Swap").replace(TWO, ONE), "forks.csv:3: pan is Pan Swap"),
    ],
)
def test_a_line_of_forks_that_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "forks.csv").write_text(text)
    with pytest.raises(BadSettings) as raised:
        forks_of(tmp_path / "forks.csv", CHAINS)
    assert message in str(raised.value)
