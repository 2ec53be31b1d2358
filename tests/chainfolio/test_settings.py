"""Settings are read strictly: errors name the key, its file and a fix, and no secret is ever shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from chainfolio.adapters.beacon.settings import BeaconSettings
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.chain_settings import DEFAULT_KIND, masked
from chainfolio.cli.init import settings_text
from chainfolio.errors import BadSettings
from chainfolio.kinds import builtin_kinds
from chainfolio.settings import Quotas, Settings
from chainfolio.settings_file import load
from chainfolio.settings_keys import sections

FILE = "chainfolio.toml"
SECRET = "s3cr3t0123456789"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(FILE)


def loaded(path: Path, text: str | bytes, env: Mapping[str, str] | None = None) -> Settings:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load(path, env or {})


def settings_error(path: Path, text: str | bytes, env: Mapping[str, str] | None = None) -> BadSettings:
    with pytest.raises(BadSettings) as error:
        loaded(path, text, env)
    assert SECRET not in str(error.value)
    assert SECRET not in repr(error.value)
    return error.value


def test_without_a_file_everything_has_its_default() -> None:
    settings = load(None, {})
    assert settings == Settings()
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 8080)
    assert settings.state_url == "sqlite:///data/state.db"
    assert settings.tail_url == "sqlite:///data/tail.db"
    assert settings.lake_uri == "data/lake"


def test_stores_lie_in_data_unless_they_are_told_where(here: Path) -> None:
    settings = loaded(here, 'data = "d"\n[lake]\nuri = "s3://bucket/prefix"\n[tail]\nurl = "sqlite:///t.db"')
    assert (settings.lake_uri, settings.tail_url, settings.state_url) == (
        "s3://bucket/prefix",
        "sqlite:///t.db",
        "sqlite:///d/state.db",
    )


def test_quotas_have_defaults_a_section_and_variables(here: Path) -> None:
    assert load(None, {}).quotas == Quotas(addressbook=50, bundles=5, bundle_size=10)
    settings = loaded(here, "[quotas]\nbundles = 7", {"CHAINFOLIO_QUOTAS_BUNDLE_SIZE": "20"})
    assert settings.quotas == Quotas(addressbook=50, bundles=7, bundle_size=20)
    assert "did you mean `bundle_size`?" in str(settings_error(here, "[quotas]\nbundlesize = 1"))
    for wrong in ("addressbook = -1", "bundles = -1", "bundle_size = 0"):
        assert "at least" in str(settings_error(here, f"[quotas]\n{wrong}"))


# --- what is wrong is named ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[server]\nprot = 1", "unknown key `prot` in [server]; did you mean `port`?"),
        ("[chains.x]\nrcp = []", "unknown key `rcp` in [chains.x]; did you mean `rpc`?"),
        ("[chians.x]\nrpc = []", "unknown key `chians`; did you mean `[chains]`?"),
        ("[sever]\nport = 1", "unknown key `sever`; did you mean `[server]`?"),
        ("[server.limits]\nper_minute = 1", "unknown key `limits` in [server]; did you mean `[limits]`?"),
        (
            "[accounts]\naddressbook = 1",
            "unknown key `addressbook` in [accounts]; did you mean `addressbook` in [quotas]?",
        ),
        ("[limits]\ndata = 'x'", "unknown key `data` in [limits]; did you mean `data` at the top?"),
        ("port = 1", "unknown key `port`; did you mean `port` in [server]?"),
        ('[chains.b]\nadapter = "beacon"\nhttp = []', "unknown key `http` in [chains.b]; did you mean `rpc`?"),
        ("[chains.x]\nurl = 'x'", "unknown key `url` in [chains.x]; did you mean `rpc`?"),
        ("zzzzzz = 1", "unknown key `zzzzzz`"),
    ],
)
def test_an_unknown_key_is_an_error_with_a_suggestion(here: Path, text: str, message: str) -> None:
    assert str(settings_error(here, text)) == f"{FILE}: {message}"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("data = 5", "data"),
        ('[server]\nport = "many"', "server.port"),
        ("[server]\nport = 1.5", "server.port"),
        ('[chains.x]\nrpc = "http://a"', "rpc"),
        ("[chains.x]\nrpc = [1]", "rpc[0]"),
        ("[chains.x]\nspan = nan", "span"),
        ("[chains.x]\nspan = 1e400", "span"),
        ("[chains.x]\nspan = true", "span"),
        ("[chains]\nx = 5", "chains[...]"),
        ("chains = 5", "chains"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_its_place_and_file(here: Path, text: str, path: str) -> None:
    error = settings_error(here, text)
    assert error.message.startswith(f"{FILE}: Expected ")
    assert f"{path}`" in error.message


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[server]\nport = 65536", "server.port"),
        ("[server]\nport = -1", "server.port"),
        ("[server]\nworkers = 0", "server"),
        ("[server]\nmax_addresses = 0", "server"),
        ("[server]\nmax_transactions = 0", "server"),
        ("[server]\ncache_s = -1", "server"),
        ("[server]\nstop_notice_s = -1", "server"),
        ('log_level = "loud"', "log_level"),
        ('[chains.x]\nadapter = "fax"', "chains.x.adapter"),
        ('[chains.x]\nintegrity = "hope"', "chains.x.integrity"),
        ('[chains.x]\nadapter = "tron"\nsignatures = "some"', "chains.x.signatures"),
        ("[chains.x]\nspan = 0", "chains.x"),
        ("[chains.x]\nconcurrency = 0", "chains.x"),
        ("[chains.x]\ntimeout_s = 0", "chains.x"),
        ("[chains.x]\nstart_block = -1", "chains.x"),
        ("[chains.x]\nmax_rps = -1", "chains.x"),
    ],
)
def test_a_value_that_cannot_be_meant_is_named_with_its_key(here: Path, text: str, field: str) -> None:
    assert settings_error(here, text).field == field


@pytest.mark.parametrize(
    "url",
    [
        "",
        SECRET,
        f"ftp://host/{SECRET}",
        f"file:{SECRET}",
        f"ws://host/{SECRET}",
        f"//host/{SECRET}",
        "http://",
        f"http:///{SECRET}",
        f"http://:80/{SECRET}",
        f"http://host:port/{SECRET}",
        f"http://host:99999/{SECRET}",
        f"http://[::1/{SECRET}",
        f"http://host/{SECRET}\\n",
        f"https://user:{SECRET}@",
        f" http://host/{SECRET}",
    ],
)
def test_an_endpoint_that_is_no_http_address_is_refused_and_not_repeated(here: Path, url: str) -> None:
    assert settings_error(here, f'[chains.x]\nrpc = ["{url}"]').field == "chains.x.rpc"


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8545", "https://host/v2/key?a=b", "http://[::1]:8545", "HTTPS://user:word@host"]
)
def test_an_endpoint_may_be_any_http_address(here: Path, url: str) -> None:
    assert loaded(here, f'[chains.x]\nrpc = ["{url}"]').chains["x"].endpoints == [url]


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe",
        b"a = '\xe9'",
        "a = ",
        "a = 1\na = 2",
        "[server]\n[server]",
        "[a",
        "a: 1",
        "\t{",
        "a = 01",
        "a = 1" * 9,
    ],
)
def test_what_is_no_toml_is_said_with_its_file(here: Path, text: str | bytes) -> None:
    error = settings_error(here, text)
    assert error.field == FILE
    assert "not valid TOML" in error.message


def test_a_file_that_is_not_there_is_said(here: Path) -> None:
    with pytest.raises(BadSettings, match="no such settings file") as error:
        load(here, {})
    assert "--config" in error.value.remedy


def test_a_folder_is_no_settings_file(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="cannot be read"):
        load(tmp_path, {})


# --- the environment -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "read_value"),
    [
        ("CHAINFOLIO_DATA", "elsewhere", lambda s: s.data == "elsewhere"),
        ("CHAINFOLIO_LOG_LEVEL", "debug", lambda s: s.log_level == "debug"),
        ("CHAINFOLIO_PRICES_FILE", "p.toml", lambda s: s.prices_file == "p.toml"),
        ("CHAINFOLIO_SERVER_PORT", "99", lambda s: s.server.port == 99),
        ("CHAINFOLIO_SERVER_MAX_ADDRESSES", "3", lambda s: s.server.max_addresses == 3),
        ("CHAINFOLIO_SERVER__CACHE_S", "0", lambda s: s.server.cache_s == 0),
        ("CHAINFOLIO_SERVER_CORS", "false", lambda s: s.server.cors is False),
        ("CHAINFOLIO_LAKE_URI", "s3://b/p", lambda s: s.lake_uri == "s3://b/p"),
        ("CHAINFOLIO_CHAINS__ETHEREUM__RPC", "http://a,http://b", lambda s: len(s.chains["ethereum"].endpoints) == 2),
        ("CHAINFOLIO_CHAINS__ETHEREUM__AT_BLOCK", "true", lambda s: s.chains["ethereum"].at_block),
        ("CHAINFOLIO_CHAINS__ETHEREUM__DATASETS", "blocks", lambda s: s.chains["ethereum"].datasets == ["blocks"]),
    ],
)
def test_the_environment_overrides_the_file(here: Path, name: str, value: str, read_value: object) -> None:
    text = '[server]\nport = 1\n[chains.ethereum]\nrpc = ["http://x"]\n'
    assert callable(read_value)
    assert read_value(loaded(here, text, {name: value}))


def test_a_wrong_variable_is_named_beside_the_file(here: Path) -> None:
    error = settings_error(here, "[server]\nport = 1", {"CHAINFOLIO_SERVER_PORT": SECRET, "PATH": "x"})
    assert error.field == f"{FILE}, CHAINFOLIO_SERVER_PORT"
    with pytest.raises(BadSettings, match=r"^CHAINFOLIO_SEVER: unknown key `sever`; did you mean `\[server\]`\?"):
        load(None, {"CHAINFOLIO_SEVER": "1"})


def test_a_variable_cannot_go_below_what_is_no_section(here: Path) -> None:
    assert settings_error(here, 'data = "d"', {"CHAINFOLIO_DATA__X": "1"}).field == "CHAINFOLIO_DATA__X"


@pytest.mark.parametrize(
    "name",
    ["CHAINFOLIO_CONFIG", "CHAINFOLIO_KEY", "CHAINFOLIO_LOCALCHAIN_HOME", "CHAINFOLIO_TESTS", "CHAINFOLIO", "PORT"],
)
def test_variables_with_another_purpose_are_no_settings(name: str) -> None:
    assert load(None, {name: "anything"}) == Settings()


# --- secrets ---------------------------------------------------------------------------------------------------------


def test_a_secret_comes_from_the_environment(here: Path) -> None:
    text = '[chains.x]\nrpc = ["http://a", "env:NODE"]\n[state]\nurl = "env:STATE"'
    settings = loaded(here, text, {"NODE": f"https://h/{SECRET}", "STATE": f"postgresql://u:{SECRET}@h/db"})
    assert settings.chains["x"].endpoints == ["http://a", f"https://h/{SECRET}"]
    assert settings.state_url == f"postgresql://u:{SECRET}@h/db"


def test_a_secret_may_be_named_by_a_variable_too() -> None:
    settings = load(None, {"CHAINFOLIO_CHAINS__X__RPC": "http://a,env:NODE", "NODE": "http://b"})
    assert settings.chains["x"].endpoints == ["http://a", "http://b"]


def test_a_missing_secret_is_named_with_the_place_that_asks_for_it(here: Path) -> None:
    error = settings_error(here, '[chains.x]\nrpc = ["env:NODE"]')
    assert error.field == "chains.x.rpc"
    assert error.message == "chains.x.rpc: the environment variable NODE is not set"


@pytest.mark.parametrize(
    "url",
    [
        f"https://host/v2/{SECRET}",
        f"https://host?apikey={SECRET}",
        f"https://user:{SECRET}@host:8545/",
        f"https://{SECRET}@host",
        f"https://host#{SECRET}",
        f"http://good#{SECRET}@evil/",
        f"HTTPS://h/{SECRET}/",
    ],
)
def test_settings_never_show_what_may_be_a_key(here: Path, url: str) -> None:
    settings = loaded(here, '[chains.x]\nrpc = ["env:NODE"]\n[state]\nurl = "env:NODE"', {"NODE": url})
    for text in (
        repr(settings),
        str(settings),
        f"{settings!r}",
        repr(settings.chains),
        repr(settings.state),
        repr(settings.chains["x"]),
    ):
        assert SECRET not in text
    assert "EvmSettings(adapter='evm'" in repr(settings)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("", ""),
        ("sqlite:///data/state.db", "sqlite:///data/state.db"),
        ("postgresql://me:word@host:5432/db", "postgresql://host:5432/…"),
        ("https://host:8545/v2/key", "https://host:8545/…"),
        ("word", "…"),
        ("host/key?next=https://other", "…"),
    ],
)
def test_an_address_is_shown_by_its_host_alone(url: str, host: str) -> None:
    assert masked(url) == host


# --- where things lie ------------------------------------------------------------------------------------------------


def test_a_relative_path_is_one_from_the_folder_of_the_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From cron the working folder is another one: an empty store there would be taken for ours."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    home = tmp_path / "etc"
    settings = loaded(home / FILE, 'prices_file = "p.toml"\nprotocols = "own"\n[chains.x]\nfacts = "x.toml"')
    assert (settings.data, settings.prices_file, settings.protocols) == (
        f"{home}/data",
        f"{home}/p.toml",
        f"{home}/own",
    )
    assert getattr(settings.chains["x"], "facts", "") == f"{home}/x.toml"
    assert settings.state_url == f"sqlite:///{home}/data/state.db"
    stores = '[state]\nurl = "sqlite:///s.db"\n[tail]\nurl = "sqlite:////var/t.db"\n[lake]\nuri = "lake"'
    settings = loaded(home / FILE, f'data = "/var/data"\n{stores}')
    assert (settings.data, settings.state_url, settings.tail_url) == (
        "/var/data",
        f"sqlite:///{home}/s.db",
        "sqlite:////var/t.db",
    )
    assert settings.lake_uri == f"{home}/lake"
    settings = loaded(home / FILE, '[state]\nurl = "postgresql://h/n"\n[lake]\nuri = "s3://bucket/prefix"')
    assert (settings.state_url, settings.lake_uri) == ("postgresql://h/n", "s3://bucket/prefix")


def test_a_variable_that_the_file_names_is_a_value_whatever_it_is_called(here: Path) -> None:
    env = {"CHAINFOLIO_DATABASE": f"postgresql://me:{SECRET}@host/name", "CHAINFOLIO_SERVER_PORT": "9000"}
    settings = loaded(here, '[state]\nurl = "env:CHAINFOLIO_DATABASE"', env)
    assert (settings.state_url, settings.server.port) == (env["CHAINFOLIO_DATABASE"], 9000)
    assert "unknown key `database`" in str(settings_error(here, "", env))
    through = {"CHAINFOLIO_STATE_URL": "env:CHAINFOLIO_DATABASE", "CHAINFOLIO_DATABASE": "sqlite:////var/s.db"}
    assert loaded(here, "", through).state_url == "sqlite:////var/s.db"


# --- the reference ---------------------------------------------------------------------------------------------------


def test_every_key_says_what_it_means() -> None:
    keys = [key for section in sections(builtin_kinds()) for key in section.keys]
    assert len(keys) > 45
    assert [f"{key.section}.{key.name}" for key in keys if not key.meaning] == []
    assert [section.name for section in sections() if not section.meaning] == []
    port = next(key for key in keys if (key.section, key.name) == ("server", "port"))
    assert (port.kind, port.default, port.variable) == ("number", "8080", "CHAINFOLIO_SERVER_PORT")


@pytest.mark.parametrize("kind", [DEFAULT_KIND, "beacon"])
def test_a_file_with_every_default_in_it_is_the_same_as_none(here: Path, kind: str) -> None:
    """Read the comments that `chainfolio init` writes, without their marks. A kind may mean some of the
    keys that all share otherwise: those are written once, too."""
    text = settings_text("ethereum", "http://a", kind)
    plain = loaded(here, text)
    required = {
        DEFAULT_KIND: EvmSettings(rpc=["http://a"]),
        "beacon": BeaconSettings(adapter="beacon", rpc=["http://a"]),
    }
    assert plain == Settings(chains={"ethereum": required[kind]})
    names = {key.name for section in sections([kind]) for key in section.keys}
    assert names == {match[1] for match in re.finditer(r"^(?:# )?(\w+) = ", text, re.M)}
    assert loaded(here, re.sub(r"^# (?=\w+ = )", "", text, flags=re.M)) == plain


def test_a_variable_of_the_reference_sets_its_key(here: Path) -> None:
    for section in sections():
        for key in section.keys:
            if key.kind == "number" and key.section not in ("", "chains.KEY"):
                settings = loaded(here, "", {key.variable: str(int(key.default) + 1)})
                assert getattr(getattr(settings, key.section), key.name) == int(key.default) + 1
    assert loaded(here, "", {"CHAINFOLIO_CHAINS__KEY__SPAN": "7"}).chains["key"].span == 7
