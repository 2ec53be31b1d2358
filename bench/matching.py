"""Measure the cost of installed protocols: match a wallet with all, and with those of files only.

python -m bench.matching [--repeat 15]
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from dataclasses import dataclass

from bench.figures import Figure, main
from bench.places import ROOT
from chainfolio.adapters.evm.positions.interactions import ContractInteractions
from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.shares import Shares
from chainfolio.adapters.evm.reads import Call
from chainfolio.configs.generate import kinds
from chainfolio.indexer.families import families
from chainfolio.indexer.protocol_files import load
from chainfolio.indexer.registry import Protocol, Registry
from chainfolio.plans import Unknown

CHAIN = "binance"  # the chain with most forks
ACCOUNT = "0x" + "11" * 20
TOKENS, COUNTERPARTIES, SHARES = 300, 200, 10
CROWD, CONTRACTS = 400, 8000
BAR_MS = 1.0


@dataclass(frozen=True, slots=True)
class Durations:
    """Results of one set of protocols: seconds of matching, calls to new tokens, and number of matches."""

    protocols: int
    contracts: int
    matching_ms: float
    questions: int
    matches: int


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    start_s = time.perf_counter()
    all_protocols = load([ROOT / "configs" / "protocols"], kinds())
    load_ms = 1000 * (time.perf_counter() - start_s)
    files = {path.stem for path in (ROOT / "configs" / "protocols").glob("*.toml")}
    from_files = Registry([each for each in all_protocols.protocols if each.key in files])
    with_forks, without, crowded = (
        measure(each, options.repeat) for each in (all_protocols, from_files, crowd(all_protocols))
    )
    ratio = with_forks.matching_ms / without.matching_ms
    return [
        Figure(
            "matching",
            f"the same wallet: ms with {crowded.protocols} protocols of {crowded.contracts:,} contracts on one chain",
            f"{crowded.matching_ms:.2f}, {crowded.questions} questions to a new token",
            f"≤ {BAR_MS:g}",
            crowded.matching_ms <= BAR_MS,
        ),
        Figure(
            "matching",
            f"{TOKENS} tokens and {COUNTERPARTIES} counterparties of a wallet on {CHAIN}: ms with "
            f"{with_forks.protocols} protocols of {with_forks.contracts:,} contracts there",
            f"{with_forks.matching_ms:.2f}, {ratio:.2f} x that with {without.protocols}; loaded in {load_ms:.0f} ms",
            f"≤ {BAR_MS:g}",
            with_forks.matching_ms <= BAR_MS,
        ),
        Figure(
            "matching",
            "questions to a token that is met for the first time, all in the round that there is anyway",
            f"{with_forks.questions} (without forks {without.questions})",
        ),
    ]


def crowd(registry: Registry) -> Registry:
    """Return the registry with so many more forks that one chain has 8,000 contracts, at random addresses."""
    kinds = sorted(
        {(each.families[0], role) for each in registry.protocols if each.is_fork for _, role, _ in each.deployments}
    )
    chance = random.Random(2)
    forks = []
    for number in range(CROWD):
        family, role = kinds[number % len(kinds)]
        addresses = [f"0x{chance.getrandbits(160):040x}" for _ in range(CONTRACTS // CROWD)]
        forks.append(Protocol(f"crowd{number}", "One", {CHAIN: {role: addresses}}, families=[family], is_fork=True))
    return registry.with_protocols(forks)


def measure(registry: Registry, repeat: int) -> Durations:
    """Match one wallet: every token answers, `SHARES` of them with a factory that is listed."""
    installed = registry.rows(CHAIN, "evm", families())
    listed_factories = sorted(
        address
        for row in installed
        for role, addresses in row.contracts.items()
        if (row.family.name, role) == ("uniswap_v2", "factory")
        for address in addresses
    )
    chance = random.Random(1)
    tokens = [f"0x{chance.getrandbits(160):040x}" for _ in range(TOKENS)]
    counterparties = [f"0x{chance.getrandbits(160):040x}" for _ in range(COUNTERPARTIES)]
    protocols = Protocols(installed)
    shares = Shares(protocols)
    questions = shares.questions(tokens)
    factories = {token: listed_factories[at % len(listed_factories)] for at, token in enumerate(tokens[:SHARES])}
    shares.store_answers(questions, [_answer(call, factories) for call in questions])
    interactions = ContractInteractions(frozenset(tokens), {}, dict.fromkeys(counterparties, frozenset(tokens[:1])))
    took, matches = [], 0
    for _ in range(repeat + 1):  # the first one makes the indexes
        start_s = time.perf_counter()
        position_matches = [
            *protocols.by_contract(ACCOUNT, interactions),
            *shares.by_token(ACCOUNT, tokens, interactions.sent),
        ]
        position_matches += shares.third_parties(ACCOUNT, tokens, interactions.sent)
        position_matches += [share for token in tokens if (share := shares.share(ACCOUNT, token, interactions.sent))]
        took.append(1000 * (time.perf_counter() - start_s))
        matches = len(position_matches)
    assert matches >= SHARES, f"{matches} of {SHARES} shares were matched"
    contracts = sum(len(addresses) for row in installed for addresses in row.contracts.values())
    return Durations(len(installed), contracts, statistics.median(took[1:]), len(questions) // TOKENS, matches)


def _answer(call: Call, factories: dict[str, str]) -> str | Unknown:
    """Return an address for `factory`, `token0` and `token1` of a pair; Unknown for other calls."""
    if call.to in factories and call.signature.startswith(("factory()", "token0()", "token1()")):
        return factories[call.to]
    return Unknown("it refuses", "contract")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--repeat", type=int, default=15)


if __name__ == "__main__":
    main(__doc__, run, add)
