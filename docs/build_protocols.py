"""Writes `docs/protocols.md` from protocol files, families and their tests: `python -m docs.build_protocols`."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path

from chainfolio.configs.generate import kinds
from chainfolio.indexer.families import families
from chainfolio.indexer.protocol_files import load
from chainfolio.indexer.registry import Protocol
from chainfolio.protocols import ProtocolFamily

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("protocols.md")
PROTOCOLS = ROOT / "configs" / "protocols"
# What a test file uses, and what that proves of the families that it names.
PROOFS = (
    ("tests.protocols.published", "answers of its own code, replayed"),
    ("recorded import", "recorded reads of real wallets"),
    ("deployment import", "its own code on the local chain"),
    ("solana.ledger import", "accounts of its layout in a ledger"),
    ("tests.protocols.world", "contracts on the local chain"),
)
# Kinds of positions that a family decodes apart from each other, if there are several.
PRODUCTS = {
    **dict.fromkeys(
        (
            "aave",
            "aave_v2",
            "aave_v3",
            "compound_v2",
            "compound_v3",
            "euler_v2",
            "morpho_blue",
            "kamino_lending",
            "marginfi",
        ),
        ("supplied", "borrowed"),
    ),
    "aura": ("staked shares", "locked AURA"),
    "convex": ("staked shares", "locked CVX"),
    "fluid_vault": ("supplied", "borrowed"),
    "eigenlayer": ("restaked tokens", "restaked ether", "queued withdrawals"),
    "gear_staking": ("staked", "withdrawals"),
    "liquity": ("troves", "stability pool", "staked LQTY"),
    "pendle_yield": ("principal tokens", "yield tokens"),
    "slipstream": ("positions", "staked positions"),
    "solidly": ("pools", "gauges"),
    "symbiotic": ("restaked tokens", "withdrawals"),
    "uniswap_v3": ("positions", "staked positions"),
    "venus_vault": ("staked", "withdrawals"),
}
HEAD = """\
# Protocols

Generated from `configs/protocols`, the families and their tests by `python -m docs.build_protocols`. A family decodes
one kind of position; a protocol is a file that names families and contracts. [Add a protocol](how-to/add-a-protocol.md)
says how to write both.

"""
UNPROVEN = """\
## Families without a proof

These decoders are written from the protocols' published interfaces, and no code or recording has proven them. Their
positions are shown without value, and the answer says so. You can prove one. Record a position with your own node
(`chainfolio record`, `chainfolio test-protocol`). Compare the amounts with the protocol's own page. Then name the
family in the setting `proven`, and it counts ([decision 171](decisions/0171-unproven-decoders.md)).
""".splitlines()


def page() -> str:
    """The whole page."""
    registry = load([PROTOCOLS], kinds())
    written = {path.stem for path in PROTOCOLS.glob("*.toml")}
    files = [protocol for protocol in registry.protocols if protocol.key in written]
    forks = [protocol for protocol in registry.protocols if protocol.key not in written]
    counts = Counter(name for protocol in forks for name in protocol.families)
    lines = [
        *_table(("protocol", "chains", "families", "not decoded"), map(_protocol_row, files)),
        "",
        "## Products",
        "",
        "A product is a kind of position in a protocol: *supplied to Aave V3*, *staked in a gauge of Aerodrome*.",
        "Products of unproven families count apart.",
        "",
        *_table(
            ("kind of chain", "products", "with the protocols of `forks.csv`", "unproven"), _product_rows(files, forks)
        ),
        "",
        "## Families",
        "",
        f"`forks.csv` names {len(forks)} more protocols with unreviewed code. They count only if real assets and",
        "the account's own actions confirm them ([decision 16](decisions/0016-trusted-shares.md)).",
        "",
        *_table(
            ("family", "chains", "positions", "protocols in `forks.csv`", "proof"),
            (
                _family_row(name, family, counts[name], [each.key for each in files if name in each.families])
                for name, family in sorted(families().items())
                if family.is_proven
            ),
        ),
        "",
        *UNPROVEN,
        *_table(
            ("family", "chains", "positions"),
            (
                _family_row(name, family, 0, [])[:3]
                for name, family in sorted(families().items())
                if not family.is_proven
            ),
        ),
    ]
    return HEAD + "\n".join(lines) + "\n"


def _product_rows(files: Sequence[Protocol], forks: Sequence[Protocol]) -> Iterator[Sequence[str]]:
    """Yield the numbers of products for each kind of chain: of our files, of these and forks, and unproven ones."""
    chain_kinds, installed, fork_keys = kinds(), families(), {protocol.key for protocol in forks}
    counts: Counter[tuple[str, str]] = Counter()
    for protocol in (*files, *forks):
        for name in protocol.families:
            family = installed[name]
            column = "unproven" if not family.is_proven else "forks" if protocol.key in fork_keys else "files"
            count = len(PRODUCTS.get(name, ("one",)))
            for kind in {chain_kinds[chain] for chain in protocol.contracts} or {family.kind}:
                counts[kind, column] += count
    for kind in sorted({kind for kind, _ in counts}):
        own, forked, unproven = (counts[kind, column] for column in ("files", "forks", "unproven"))
        yield kind, str(own), str(own + forked), str(unproven)


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    cells = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(row) + " |" for row in cells]


def _protocol_row(protocol: Protocol) -> tuple[str, ...]:
    chains = ", ".join(sorted(protocol.contracts)) or "all"
    undecoded = ", ".join(role.replace("_", " ") for role in protocol.undecoded)
    return protocol.name, chains, ", ".join(f"`{name}`" for name in protocol.families), undecoded


def _family_row(name: str, family: ProtocolFamily, fork_count: int, protocols: Collection[str]) -> tuple[str, ...]:
    module = importlib.import_module(f"chainfolio.adapters.{family.kind}.protocols.{name}")
    summary = (module.__doc__ or "").strip().splitlines()[0].rstrip(".").replace("|", "/")
    return f"`{name}`", family.kind, summary, str(fork_count or ""), "; ".join(proofs(name, family.kind, protocols))


def proofs(name: str, kind: str, protocols: Collection[str]) -> list[str]:
    """Return what the tests that name a family, or for recorded reads its `protocols`, prove of it."""
    families_named = re.compile(rf'"{name}"|protocols\.{name}\b|protocols import [^\n]*\b{name}\b')
    replayed = re.compile(rf'outcomes\(\s*"{name}"|"published", families\(\)\["{name}"\]')
    recorded = re.compile("|".join(rf'"{key}"' for key in (name, *protocols)))
    # Tests of programs on Solana name the program in one word.
    programs = re.compile(rf"\b(?:{'|'.join(name.split('_'))})", re.IGNORECASE)
    marks = {
        "tests.protocols.published": replayed,
        "recorded import": recorded,
        "solana.ledger import": programs if kind == "solana" else families_named,
    }
    texts = _tests_by_mark()
    return [
        proof for mark, proof in PROOFS if any(marks.get(mark, families_named).search(text) for text in texts[mark])
    ]


@cache
def _tests_by_mark() -> dict[str, list[str]]:
    """Return the texts of the tests that have each mark of `PROOFS`."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    return {mark: [text for text in texts if mark in text] for mark, _ in PROOFS}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
