"""Run all or some benchmarks in sequence, then update the table in the README.

python -m bench [rate full …] [--quick]
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from collections.abc import Sequence

from bench import figures
from bench.places import MissingPrerequisite

# With --quick: short runs that show whether everything works.
QUICK = {
    "rate": ("--repeat", "2", "--times", "3"),
    "clients": ("--repeat", "1", "--epochs", "20"),
    "full": ("--repeat", "1"),
    "cache": ("--repeat", "2"),
    "kills": ("--kills", "3"),
    "rolling": ("--rounds", "1"),
    "outages": ("--kills", "6", "--away", "2"),
    "snapshot": ("--tokens", "500"),
    "first": ("--repeat", "1"),
    "lookup": ("--rows", "1000000", "--repeat", "5"),
    "checksums": ("--rows", "200000", "--repeat", "3"),
    "ledger": ("--calls", "20000", "--every", "3"),
    "limits": ("--seconds", "65"),
    "byzantine": ("--reads", "3000"),
    "mutants": ("--mutants", "2000"),
    "wallets": ("--wallets", "4000", "--repeat", "1"),
    "positions": ("--repeat", "2"),
    "reorgs": ("--storms", "30", "--deep", "3"),
    "pnl": ("--entries", "20000"),
    "gains": ("--blocks", "100"),
    "history": ("--days", "20", "--kills", "2"),
    "pools": ("--tokens", "60", "--repeat", "1"),
    "solana": ("--repeat", "3"),
    "starknet": ("--blocks", "100", "--repeat", "1"),
    "tron": ("--blocks", "100", "--repeat", "1"),
    "valuation": ("--holdings", "100000", "--accounts", "2000", "--assets", "500", "--repeat", "1"),
    "queue_simulation": ("--seeds", "3", "--chains", "20", "--ranges", "6"),
    "recompute": ("--accounts", "1000", "--days", "10", "--repeat", "1"),
    "workers": ("--blocks", "800", "--repeat", "1"),
    "validators": ("--epochs", "10", "--network", "60000", "--years-of", "3", "--repeat", "3"),
    "face": ("--repeat", "1", "--tokens", "500"),
    "accounts": ("--parts", "rows", "--kills", "3"),
}


def run(names: Sequence[str], *, quick: bool) -> int:
    """Run each benchmark in a separate process; return the number that failed. `quick` means few repeats."""
    failed = 0
    for name in names:
        print(f"\n=== {name}: {_summary(name)}", flush=True)
        arguments = QUICK.get(name, ()) if quick else ()
        failed += subprocess.run([sys.executable, "-m", f"bench.{name}", *arguments], check=False).returncode != 0
    return failed


def _summary(name: str) -> str:
    return (importlib.import_module(f"bench.{name}").__doc__ or "").splitlines()[0]


def main() -> int:
    """Run the benchmarks of the command line; return 1 if one failed, else 0.

    Without --quick, the table of the README is written anew.
    """
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(figures.ORDER)}; all, if none is named")
    parser.add_argument("--quick", action="store_true", help="few repeats: whether it works, not how fast")
    chosen = parser.parse_args()
    names = chosen.names or list(figures.ORDER)
    for name in names:
        if name not in figures.ORDER:
            parser.error(f"there is no benchmark `{name}`")
    try:
        failed = run(names, quick=chosen.quick)
    except MissingPrerequisite as error:
        sys.exit(str(error))
    if not chosen.quick:
        figures.rewrite()
        print(f"\nthe table in {figures.README.name} is new")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
