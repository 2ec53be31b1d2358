"""`chainfolio doctor`: is everything there, and does every endpoint do what it is needed for?"""

from __future__ import annotations

import argparse
import platform
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from chainfolio.capabilities import missing_capabilities
from chainfolio.cli import stores
from chainfolio.cli.common import Commands, settings_file, show_json, show_table, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.errors import BadRequest, ChainfolioError
from chainfolio.kinds import kind_of

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.indexer.wiring import System

LIBRARIES = ("aiohttp", "polars", "deltalake", "duckdb", "pyarrow", "msgspec")


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("doctor", parents=[common], help=GROUPS["doctor"], description=__doc__)
    command.add_argument(
        "--reinstate", metavar="HOST", help="believe an endpoint again that was quarantined, by its name in the report"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the state of stores, files, chains, endpoints and protocol packages; return the exit code.

    The code is that of the first fault: 5 for a broken store, 2 for a bad file, 3 for a broken endpoint, and 7 for a
    broken package of protocols or a protocol's file whose family is not installed. With --reinstate, the quarantine of
    an endpoint is ended first.
    """
    if options.reinstate:
        with_system(options, partial(reinstate, name=options.reinstate))
    file = settings_file(options)
    report = {"settings": file and str(file.resolve())} | with_system(options, examine)
    if options.json:
        show_json(report)
    else:
        _show(report)
    if any(not store["ok"] for store in report["stores"]):
        return 5
    if any(not file["ok"] for file in report["files"]):
        return 2
    if any(not endpoint["ok"] for endpoint in report["endpoints"]):
        return 3
    return 7 if report["unread"] or any(not package["ok"] for package in report["protocols"]) else 0


def _version(package: str) -> str:
    """Return the version of a package, or that it is not installed.

    The smallest environment lacks those of extras.
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


async def examine(system: System) -> dict[str, Any]:
    """Return the report for --json: versions, stores, files, protocol packages, chains and endpoints.

    Keys are `versions` (by name), and the lists `stores`, `files`, `protocols`, `unread`, `chains` and `endpoints`.
    Rows have their problem, and faults are not raised. A chain that cannot be built has one endpoint row named `-`.
    """
    endpoints, chains = [], []
    for key in sorted(system.settings.chains):
        try:
            chain = system.chain(key)
        except ChainfolioError as error:
            endpoints.append({"chain": key, "endpoint": "-", "ok": False, "problem": str(error)})
            continue
        chains.append(chain_row(chain))
        endpoints += [{"chain": key, **row} for row in await chain.examine()]
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in LIBRARIES}},
        "stores": stores.examined(system),
        "files": stores.files(system),
        "protocols": [
            {
                "provider": each.provider,
                "module": each.module,
                "ok": not each.problem,
                "families": sorted(family.name for family in each.families),
                "problem": each.problem,
                "remedy": each.remedy,
            }
            for each in system.packages
        ],
        "unread": [
            {
                "protocol": each.protocol.key,
                "families": list(each.families),
                "problem": each.problem,
                "remedy": each.remedy,
            }
            for each in system.unread
        ],
        "chains": chains,
        "endpoints": endpoints,
    }


def chain_row(chain: Chain) -> dict[str, Any]:
    """Return the row of a chain with its datasets, capabilities and missing capabilities."""
    return {
        "chain": chain.key,
        "kind": chain.kind,
        "datasets": list(chain.datasets),
        "capabilities": sorted(chain.capabilities),
        "lacks": missing_capabilities(chain),
    }


async def reinstate(system: System, name: str) -> None:
    """Delete the evidence against an endpoint; BadRequest if no quarantined endpoint has that name."""
    chains = system.settings.chains.values()
    identities = {
        identity
        for chain in chains
        for endpoint, identity in kind_of(chain.adapter).identities(chain)
        if endpoint == name
    }
    if not sum(system.tail.reinstate(each) for each in identities):
        raise BadRequest(
            "reinstate", f"no endpoint `{name}` is quarantined", remedy="take the name from `chainfolio doctor`"
        )


def _show(report: dict[str, Any]) -> None:
    """Print the report as lines: versions, stores, protocols and chains; then a table of endpoints."""
    print("  ".join(f"{name} {number}" for name, number in report["versions"].items()))
    print(f"settings: {report['settings'] or 'no file, all defaults'}")
    for store in (*report["stores"], *report["files"]):
        print(f"{store['store']}: {'ok' if store['ok'] else store['problem']} ({store['remedy'] or store['place']})")
    for package in report["protocols"]:
        outcome = (
            f"{len(package['families'])} installed" if package["ok"] else f"{package['problem']}; {package['remedy']}"
        )
        print(f"protocols of {package['provider']} ({package['module']}): {outcome}")
    for each in report["unread"]:
        print(f"protocol {each['protocol']}: {each['problem']}; {each['remedy']}")
    for chain in report["chains"]:
        lacks = f"; lacks {', '.join(chain['lacks'])}" if chain["lacks"] else ""
        print(f"{chain['chain']} ({chain['kind']}): has {', '.join(chain['capabilities']) or 'nothing special'}{lacks}")
    names = (
        "chain",
        "endpoint",
        "head",
        "final",
        "lagBlocks",
        "headAgeS",
        "latencyMs",
        "oldestState",
        "reads",
        "problem",
    )
    rows = [[str(endpoint.get(name, "-")) for name in names] for endpoint in report["endpoints"]]
    if rows:
        show_table("", [(name, "") for name in names], rows)
    else:
        print('no chain is configured: add [chains.ethereum] with rpc = ["http://…"] to chainfolio.toml')
