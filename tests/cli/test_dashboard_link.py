"""`chainfolio serve` prints a link to the dashboard only at a terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from chainfolio.cli import serve
from chainfolio.cli.dashboard_link import OWNER
from chainfolio.cli.main import main
from chainfolio.cli.state_store import open_state
from chainfolio.settings import Settings
from chainfolio.settings_file import load


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings of a server that ends as soon as it would listen."""
    path = tmp_path / "chainfolio.toml"
    path.write_text(f'data = "{tmp_path}/data"\n[chains.ethereum]\nrpc = ["http://127.0.0.1:1"]\n')
    monkeypatch.setattr(serve, "serve", lambda *_, greeting: print(greeting, end=""))
    return path


def owners(config: Path) -> list[str]:
    state = open_state(load(config, {}))
    names = [account.name for account in state.accounts()]
    state.close()
    return names


def test_a_person_at_a_terminal_gets_a_link_to_one_account(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    links = []
    for _ in range(2):
        assert main(["serve", "--config", str(config), "--port", "8123"]) == 0
        links.append(capsys.readouterr().out.split()[-1])
    assert all(link.startswith("http://127.0.0.1:8123/#/portfolio?link=cf_live_") for link in links)
    assert links[0] != links[1]
    assert owners(config) == [OWNER]


@pytest.mark.parametrize("options", [(), ("--port", "0")], ids=["no terminal", "any port"])
def test_no_link_is_printed_where_nobody_can_use_it(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: bool(options))
    assert main(["serve", "--config", str(config), *options]) == 0
    assert capsys.readouterr().out == ""
    assert owners(config) == []


def test_a_server_for_others_prints_no_link(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(config.read_text() + '[server]\nhost = "0.0.0.0"\n')
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["serve", "--config", str(config)]) == 0
    assert capsys.readouterr().out == ""


def test_a_server_without_settings_begins_on_start_and_serves_again_with_what_was_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    served: list[list[str]] = []

    def add_chain(make: Any, config: Settings, *, greeting: str) -> bool:
        print(greeting, end="")
        assert make.keywords["file"] == Path("chainfolio.toml")
        served.append(list(config.chains))
        (tmp_path / "chainfolio.toml").write_text('[chains.ethereum]\nrpc = ["http://127.0.0.1:1"]\n')
        return len(served) == 1

    monkeypatch.setattr(serve, "serve", add_chain)
    assert main(["serve", "--port", "8123"]) == 0
    assert served == [[], ["ethereum"]]
    assert capsys.readouterr().out.count("http://127.0.0.1:8123/#/start?link=cf_live_") == 1


def test_a_settings_file_that_is_being_edited_leaves_the_old_settings(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Settings] = []

    def restart_once(_: Any, settings: Settings, *, greeting: str) -> bool:
        served.append(settings)
        config.write_text("[chains.eth")
        return len(served) == 1

    monkeypatch.setattr(serve, "serve", restart_once)
    assert main(["serve", "--config", str(config)]) == 0
    assert [list(each.chains) for each in served] == [["ethereum"], ["ethereum"]]
