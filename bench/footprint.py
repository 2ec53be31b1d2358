"""Measure the size on disk of the smallest environment and of one with all extras, by package.

python -m bench.footprint

It adds up the files of the installed packages that each environment requires.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bench.figures import Figure, main
from bench.places import HERE

OURS = "chainfolio"


def required(name: str, extras: Iterable[str] = ()) -> set[str]:
    """Return the packages that `name` with extras requires; PackageNotFoundError if one is missing."""
    pending, visited = [(name, ""), *((name, extra) for extra in extras)], set[tuple[str, str]]()
    while pending:
        package, extra = pending.pop()
        if (package, extra) in visited:
            continue
        visited.add((package, extra))
        for requirement in requirements(package):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                dependency = canonicalize_name(requirement.name)
                pending += [(dependency, ""), *((dependency, extra_name) for extra_name in requirement.extras)]
    return {package for package, _ in visited} - {name}


def requirements(package: str) -> list[Requirement]:
    """Return what a package requires: ours by pyproject.toml, others by what is installed."""
    if package != OURS:
        return [Requirement(line) for line in distribution(package).requires or ()]
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    for extra, dependencies in project["optional-dependencies"].items():
        lines += [f"{line.partition(';')[0]}; extra == '{extra}'" for line in dependencies]
    return [Requirement(line) for line in lines]


def size(package: str) -> int:
    """Return the bytes of the files of an installed package."""
    paths = [Path(str(file.locate())) for file in distribution(package).files or ()]
    return sum(path.stat().st_size for path in paths if path.is_file())


def run(_: argparse.Namespace) -> list[Figure]:
    """Measure both environments and print the packages."""
    figures = []
    for title, extras in (("smallest environment", ()), ("all extras", ("all",))):
        sizes = {package: size(package) for package in required(OURS, extras)}
        print(f"{title}: {len(sizes)} packages")
        for package, count in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
            print(f"  {count / 1e6:8.1f} MB  {package}")
        figures.append(Figure("footprint", title, f"{sum(sizes.values()) / 1e6:,.0f} MB, {len(sizes)} packages"))
    return figures


if __name__ == "__main__":
    main(__doc__, run)
