"""A release: the same bytes from a commit wherever it is built, no test inside, and steps that refuse faults."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def release() -> ModuleType:
    """The module of `make release`."""
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the repository in another folder, with other permissions and times."""
    folder = tmp_path_factory.mktemp("copy") / "elsewhere"
    process = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, process.stdout.decode().split("\0")):
        source, target = ROOT / name, folder / name
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target, follow_symlinks=False)
            if not target.is_symlink():
                target.chmod(0o600 if target.suffix == ".py" else 0o664)
    return folder


@pytest.mark.slow("builds the wheel and the source archive twice")
def test_the_same_commit_gives_the_same_bytes(release: ModuleType, copy: Path, tmp_path: Path) -> None:
    here, second_build = release.build(ROOT, tmp_path / "here"), release.build(copy, tmp_path / "there")
    assert [path.name for path in here] == [path.name for path in second_build]
    with zipfile.ZipFile(here[1]) as first_zip, zipfile.ZipFile(second_build[1]) as second_zip:
        assert {each.filename: each.CRC for each in first_zip.infolist()} == {
            each.filename: each.CRC for each in second_zip.infolist()
        }
    assert [release.digest(path) for path in here] == [release.digest(path) for path in second_build]
    release.check(ROOT, here)
    with tarfile.open(here[0]) as source:
        tops = {Path(name).parts[1] for name in source.getnames()}
    assert tops == {"chainfolio", "CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "PKG-INFO", ".gitignore"}
    bill = release.bill(ROOT, tmp_path).read_text()
    assert '"specVersion"' in bill
    assert '"name": "polars"' in bill


def test_every_fragment_and_the_present_version_are_in_the_changelog(release: ModuleType) -> None:
    assert release.changes(ROOT) == "" or release.changes(ROOT).startswith("### ")
    assert f"\n## {release.version(ROOT)}" in (ROOT / "CHANGELOG.md").read_text()


def test_a_version_and_its_changes_are_written(release: ModuleType, tmp_path: Path) -> None:
    for name in ("CHANGELOG.md", "chainfolio/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "changelog.d").mkdir()
    with pytest.raises(release.Refused, match="nothing to release"):
        release.write(tmp_path, "9.0.0")
    (tmp_path / "changelog.d" / "1-one.md").write_text("**Fixed** One thing.\n**Added** Another\nthing.\n")
    for wrong in ("9", "9.0.0rc1", "0.0.1", release.version(tmp_path)):
        with pytest.raises(release.Refused, match="no version above"):
            release.write(tmp_path, wrong)
    release.write(tmp_path, "9.0.0")
    assert release.version(tmp_path) == "9.0.0"
    log = (tmp_path / "CHANGELOG.md").read_text()
    assert log.index("## Unreleased") < log.index("## 9.0.0 (") < log.index("### Added\n\n- Another thing.")
    assert log.index("- Another thing.") < log.index("### Fixed\n\n- One thing.")
    assert release.fragments(tmp_path) == []
    (tmp_path / "changelog.d" / "2-two.md").write_text("Something happened.\n")
    with pytest.raises(release.Refused, match=r"2-two\.md begins with none of"):
        release.changes(tmp_path)


def test_a_version_with_fragments_left_is_not_published(copy: Path) -> None:
    (copy / "changelog.d" / "1-one.md").write_text("**Fixed** One thing.\n")
    process = subprocess.run(
        [sys.executable, str(copy / ".ci" / "release.py"), "--publish"], capture_output=True, text=True, check=False
    )
    assert process.returncode == 1
    assert "refused: fragments are left" in process.stderr
    assert "built" not in process.stdout
