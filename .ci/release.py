"""A release, step by step: version, changelog, build, checks, bill of materials.

make release                          what a release of this version would be, into dist/
make release ARGS="--write 1.1.0"     the version and the changelog in the files, for you to review and commit
make release ARGS=--publish           the same as the first, then tag and upload (needs twine's credentials)
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("Added", "Changed", "Fixed", "Removed", "Security")
VERSION = re.compile(r'^__version__ = "([^"]+)"', re.M)
FRAGMENT = re.compile(r"\*\*(\w+)\*\* (.+)", re.S)


class Refused(Exception):
    """A step that does not hold; the message names what to do."""


def version(root: Path) -> str:
    """Return the version that the package says."""
    (found,) = VERSION.findall((root / "chainfolio/__init__.py").read_text())
    return str(found)


def changes(root: Path) -> str:
    """Return the fragments of `changelog.d` as one section, grouped by their first word.

    Raises:
        Refused: a fragment begins with none of these words.
    """
    by_kind: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for path in fragments(root):
        for part in re.split(r"\n(?=\*\*)", path.read_text().strip()):
            match = FRAGMENT.fullmatch(part.strip())
            if match is None or match[1] not in by_kind:
                raise Refused(f"{path.name} begins with none of {', '.join(KINDS)}")
            by_kind[match[1]].append(" ".join(match[2].split()))
    return "\n".join(
        f"### {kind}\n\n" + "".join(f"- {each}\n" for each in some) for kind, some in by_kind.items() if some
    )


def fragments(root: Path) -> list[Path]:
    """Return the files of `changelog.d`, in order."""
    return sorted(path for path in (root / "changelog.d").glob("*.md") if path.name != "README.md")


def write(root: Path, new: str) -> None:
    """Set the version, and move the fragments into CHANGELOG.md under it.

    Raises:
        Refused: the version is malformed or not above the present one, or there is no change to release.
    """
    numbers = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", new)
    if numbers is None or _numbers(new) <= _numbers(version(root)):
        raise Refused(f"{new} is no version above {version(root)}: write it as 1.2.3")
    section = changes(root)
    if not section:
        raise Refused("there is nothing to release: changelog.d has no fragment")
    log = root / "CHANGELOG.md"
    unreleased = "\n## Unreleased\n\nSee [`changelog.d/`](changelog.d/).\n"
    head, mark, rest = log.read_text().partition(unreleased)
    if not mark:
        raise Refused("CHANGELOG.md has no section `Unreleased` that points to changelog.d")
    today = datetime.datetime.now(datetime.UTC).date()
    log.write_text(f"{head}{mark}\n## {new} ({today})\n\n{section}{rest}")
    module = root / "chainfolio/__init__.py"
    module.write_text(VERSION.sub(f'__version__ = "{new}"', module.read_text()))
    for path in fragments(root):
        path.unlink()


def _numbers(of: str) -> list[int]:
    return [int(part) for part in of.split(".")]


def build(root: Path, folder: Path) -> list[Path]:
    """Build sdist and wheel, and the wheel again from the sdist; return both files.

    Raises:
        Refused: the two wheels differ.
    """
    shutil.rmtree(folder, ignore_errors=True)
    _run(["hatchling", "build", "-d", str(folder)], root)
    (source,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    again = folder / "again"
    shutil.unpack_archive(source, again, filter="data")
    (unpacked,) = again.iterdir()
    _run(["hatchling", "build", "-t", "wheel", "-d", str(again)], unpacked)
    (second,) = again.glob("*.whl")
    if digest(second) != digest(wheel):
        raise Refused(f"{wheel.name} differs when it is built from {source.name}")
    shutil.rmtree(again)
    return [source, wheel]


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check(root: Path, built: list[Path]) -> None:
    """Check metadata and contents of what was built. Refused if one does not hold."""
    _run(["twine", "check", "--strict", *map(str, built)], root)
    _run(["check_wheel_contents", "--config", str(root / "pyproject.toml"), str(built[1])], root)


def bill(root: Path, folder: Path) -> Path:
    """Write the bill of materials of the locked packages in CycloneDX, and return its file."""
    file = folder / "sbom.cdx.json"
    _run(["cyclonedx_py", "requirements", "--output-reproducible", "-o", str(file), "requirements.lock"], root)
    return file


def _run(words: list[str], folder: Path) -> None:
    done = subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"{' '.join(words[:2])} ended with {done.returncode}\n{done.stdout}{done.stderr}")


def check_is_written(root: Path) -> None:
    """Check, before anything is built, that the changelog and the commit have what is published.

    Raises:
        Refused: fragments are left, or changes are not committed.
    """
    if fragments(root):
        raise Refused('fragments are left: first make release ARGS="--write VERSION", and commit')
    if subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True, check=True).stdout:
        raise Refused("there are changes that are not committed")


def main(arguments: list[str] | None = None) -> int:
    """Run the steps of a release; 1 if one does not hold."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--write", metavar="VERSION", help="set this version and move the fragments into CHANGELOG.md")
    parser.add_argument("--publish", action="store_true", help="tag the commit and upload what was built")
    options = parser.parse_args(arguments)
    try:
        if options.write:
            write(ROOT, options.write)
            print(f"chainfolio/__init__.py and CHANGELOG.md have {options.write}: review, commit, then make release")
            return 0
        print(f"version     {version(ROOT)}")
        print(f"changes     {len(fragments(ROOT))} fragments in changelog.d, {len(changes(ROOT).splitlines())} lines")
        if options.publish:
            check_is_written(ROOT)
        built = build(ROOT, ROOT / "dist")
        for path in built:
            print(f"built       {path.name}, {path.stat().st_size / 1e6:.1f} MB, SHA-256 {digest(path)}")
        check(ROOT, built)
        print("checked     twine check --strict, check-wheel-contents, the wheel of the sdist has the same bytes")
        print(f"materials   {bill(ROOT, ROOT / 'dist').name}, of requirements.lock")
        if not options.publish:
            print("nothing was tagged or uploaded: make release ARGS=--publish does that")
            return 0
        subprocess.run(["git", "tag", f"v{version(ROOT)}"], cwd=ROOT, check=True)
        _run(["twine", "upload", *map(str, built)], ROOT)
        print("uploaded; push the tag now")
        return 0
    except Refused as error:
        print(f"refused: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
