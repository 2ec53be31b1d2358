"""A chain that is added to the settings file: nothing that another process writes meanwhile is lost."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest

from chainfolio.api.errors import Problem
from chainfolio.cli import added_chain
from chainfolio.settings_file import load

RPC = "http://127.0.0.1:1/key"


def test_no_part_of_a_key_is_shown_whatever_its_signs(tmp_path: Path) -> None:
    path = tmp_path / "chainfolio.toml"
    path.write_text("a = \"https://h.example/it's-KEY x\"\nb = 'postgresql://u:KEY/more@db.example/x'\n")
    before = added_chain.preview(path, "local", "evm", "http://127.0.0.1:1").before
    assert "https://h.example/…" in before
    assert "KEY" not in before
    assert "more" not in before


@pytest.mark.parametrize("rpc", ['http://a/"]\n[server]', "http://a/\\", "http://é/ü", "http://a/'#x", 'http://a/"""'])
def test_an_endpoint_is_one_text_of_the_file(here: Path, rpc: str) -> None:
    for key in ("local", "a.b", 'a"b'):
        (here / "t.toml").write_text(added_chain.section(key, "evm", "http://a/x").replace("http://a/x", "env:IT"))
        assert load(here / "t.toml", {"IT": "http://a"}).chains[key].endpoints == ["http://a"]
    assert tomllib.loads(added_chain.section("local", "solana", rpc))["chains"]["local"] == {
        "adapter": "solana",
        "rpc": [rpc],
        "index": "accounts",
    }


@pytest.mark.parametrize("before", [None, "# mine\n"], ids=["new", "existing"])
def test_a_file_that_another_process_writes_at_the_same_time_stays(
    here: Path, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    file, check = here / "chainfolio.toml", added_chain._check
    if before is not None:
        file.write_text(before)
    seen = added_chain.preview(file, "local", "evm", RPC).seen

    def faster(draft: Path) -> None:
        check(draft)
        file.write_text("# other\n")

    monkeypatch.setattr(added_chain, "_check", faster)
    with pytest.raises(Problem, match="has changed since you saw it"):
        added_chain.write(file, "local", "evm", RPC, seen)
    assert file.read_text() == "# other\n"
    assert [each.name for each in here.iterdir()] == ["chainfolio.toml"]


def test_a_link_to_the_file_stays_a_link_and_only_the_owner_may_read(here: Path) -> None:
    real, file = here / "real.toml", here / "chainfolio.toml"
    real.write_text("# mine\n")
    real.chmod(0o644)
    file.symlink_to(real)
    added_chain.write(file, "local", "evm", RPC, added_chain.preview(file, "local", "evm", RPC).seen)
    assert file.is_symlink()
    assert load(real, {}).chains["local"].endpoints == [RPC]
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", [b"\xff\xfe", None], ids=["not text", "a folder"])
def test_a_file_that_cannot_be_read_is_refused(here: Path, text: bytes | None) -> None:
    file = here / "chainfolio.toml"
    file.mkdir() if text is None else file.write_bytes(text)
    with pytest.raises(Problem, match="cannot be read"):
        added_chain.preview(file, "local", "evm", RPC)
