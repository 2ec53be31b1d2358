"""A demo deletes what a demo made, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainfolio.cli.demo_folder import MADE, MARKER, reserved_folder
from chainfolio.cli.main import main
from chainfolio.errors import BadRequest, Locked


def fill(folder: Path) -> None:
    """Write files as a demo leaves them, and one that a person added."""
    for name in MADE:
        path = folder / name
        if "." in name or name == "pepper":
            path.write_text("old")
        else:
            path.mkdir()
            (path / "inside").write_text("old")
    (folder / "notes.txt").write_text("mine")


@pytest.mark.parametrize("name", ["precious.txt", "lake", ".hidden", "chainfolio.toml"])
def test_a_folder_with_other_files_is_refused_and_unchanged(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(BadRequest, match=f"no demo made: {name}") as raised, reserved_folder(tmp_path):
        pass
    assert raised.value.remedy == "name an empty or a new folder: chainfolio demo --data DIR"
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [(name, "mine")]


def test_the_command_refuses_such_a_folder_before_it_starts_a_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state.db").write_text("accounts")
    assert main(["demo", "--once", "--data", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert "state.db" in printed.err
    assert "anvil" not in printed.err
    assert (tmp_path / "state.db").read_text() == "accounts"


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BadRequest, match="is not a folder"), reserved_folder(tmp_path / "file"):
        pass


def test_the_folder_of_an_earlier_demo_loses_what_that_demo_made(tmp_path: Path) -> None:
    with reserved_folder(tmp_path / "new" / "demo"):
        fill(tmp_path / "new" / "demo")
    with reserved_folder(tmp_path / "new" / "demo"):
        assert {each.name for each in (tmp_path / "new" / "demo").iterdir()} == {MARKER, "notes.txt"}


def test_a_link_in_the_folder_is_removed_and_what_it_points_to_stays(tmp_path: Path) -> None:
    (tmp_path / "production").mkdir()
    (tmp_path / "production" / "rows").write_text("mine")
    with reserved_folder(tmp_path / "demo"):
        (tmp_path / "demo" / "lake").symlink_to(tmp_path / "production")
    with reserved_folder(tmp_path / "demo"):
        assert not (tmp_path / "demo" / "lake").exists()
    assert (tmp_path / "production" / "rows").read_text() == "mine"


def test_the_folder_of_a_running_demo_is_refused(tmp_path: Path) -> None:
    with (
        reserved_folder(tmp_path),
        pytest.raises(Locked, match="held by process"),
        reserved_folder(tmp_path),
    ):
        pass
