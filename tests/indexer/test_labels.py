"""Labels of addresses from public lists, as approvals show them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from chainfolio.errors import BadSettings
from chainfolio.indexer.labels import HEADER, SOURCES, AddressLabels
from chainfolio.indexer.wiring import CONFIGS, System
from chainfolio.settings import Settings

ONE, TWO, THREE, FOUR = ("0x" + digit * 40 for digit in "1234")
LINES = f"""{HEADER}
base,{ONE},gate-io,exchange,defillama
ethereum,{ONE},"Fake, ""Wrapped"" Ether",exploit,forta-2023|revoke-whois
ethereum,{TWO},,phishing,forta-2023
evm,{THREE},Magic Eden,spender,revoke-whois
"""


def labels(folder: Path, text: str = LINES) -> AddressLabels:
    path = folder / "labels.csv"
    path.write_text(text, encoding="utf-8")
    return AddressLabels(path)


def test_a_label_says_its_kind_and_its_sources(tmp_path: Path) -> None:
    all_labels = labels(tmp_path)
    texts = {
        (chain, address): label.text
        for chain in ("base", "ethereum")
        for address in (ONE, TWO, THREE, FOUR)
        if (label := all_labels.find(address, chain, "evm")) is not None
    }
    assert texts == {
        ("base", ONE): "gate-io (exchange, DefiLlama)",
        ("ethereum", ONE): 'Fake, "Wrapped" Ether (exploit, Forta, 2023, Revoke.cash)',
        ("ethereum", TWO): "phishing (Forta, 2023)",
        ("base", THREE): "Magic Eden (spender, Revoke.cash)",
        ("ethereum", THREE): "Magic Eden (spender, Revoke.cash)",
    }
    assert all_labels.find(THREE, "solana", "solana") is None


def test_without_the_file_there_are_no_labels_and_a_wrong_one_is_an_error(tmp_path: Path) -> None:
    assert AddressLabels(tmp_path / "absent.csv").find(ONE, "base", "evm") is None
    with pytest.raises(BadSettings, match="the first line"):
        labels(tmp_path, "address,label\n").find(ONE, "base", "evm")


def test_our_own_names_come_before_those_of_lists() -> None:
    system = System(Settings())
    permit2 = system.permit2("ethereum")[0]
    with (CONFIGS / "labels.csv").open(newline="", encoding="utf-8") as file:
        exchange = next(row for row in csv.DictReader(file) if row["chain"] == "ethereum" and row["kind"] == "exchange")
    names = system.labels("ethereum", [permit2, exchange["address"], FOUR])
    assert names.keys() == {permit2, exchange["address"]}
    assert names[exchange["address"]] == f"{exchange['label']} (exchange, DefiLlama)"
    assert "(" not in names[permit2]


def test_shipped_labels_are_of_sources_with_open_licences_only() -> None:
    with (CONFIGS / "labels.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {source for row in rows for source in row["source"].split("|")} == SOURCES.keys()
    assert {row["kind"] for row in rows} == {"exchange", "spender", "phishing", "exploit", "sanctioned"}
    assert len({(row["chain"], row["address"]) for row in rows}) == len(rows)
