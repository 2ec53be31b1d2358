"""Take labels of addresses from a registry: those of sources whose licences let facts be carried over."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

# Sources of labels of addresses whose licences let facts be carried over (ISC, MIT, MIT, public domain).
LABEL_SOURCES = frozenset(("defillama", "revoke-whois", "forta-2023", "ofac"))
WARNINGS = ("sanctioned", "phishing", "exploit", "spender", "exchange")  # kinds, those that warn most first
LABELS = ("chain", "address", "label", "kind", "source")
ANY_EVM = "evm"  # the chain of labels that hold on every EVM chain


def address_labels(registry: Path, chains: set[str]) -> list[tuple[str, ...]]:
    """Return the labels of addresses that only sources with open licences name, by chain and address.

    An address has one label: the one that warns most.
    """
    found: dict[tuple[str, str], tuple[int, str, str, str]] = {}
    with gzip.open(registry / "labels.csv.gz", "rt", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            place, sources = (row["chain"], row["address"]), set(row["source"].split("|"))
            if row["chain"] in {*chains, ANY_EVM} and row["kind"] in WARNINGS and sources <= LABEL_SOURCES:
                label = WARNINGS.index(row["kind"]), row["label"], row["kind"], row["source"]
                found[place] = min(label, found.get(place, label))
    return [(*place, *label[1:]) for place, label in sorted(found.items())]
