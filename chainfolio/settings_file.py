"""Read the settings: one TOML file, `CHAINFOLIO_…` variables over it, secrets as `env:NAME`.

An unknown key is an error with a suggestion; nothing starts with an option that was silently ignored.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

from chainfolio.chain_settings import (
    DEFAULT_KIND,
    ChainSettings,
    decode_settings,
    explain_error,
    list_keys,
)
from chainfolio.errors import BadSettings
from chainfolio.kinds import ChainKind, kind_of
from chainfolio.settings import SECTIONS, Accounts, Server, Settings, Snapshots, Store
from chainfolio.settings_checks import check

# Our variables that are no settings: the path of the file, the key of a client, the options of tests.
NOT_SETTINGS = ("CHAINFOLIO_CONFIG", "CHAINFOLIO_KEY", "CHAINFOLIO_LOCALCHAIN_HOME", "CHAINFOLIO_TESTS")


def load(path: Path | None, env: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings in a file (None: all defaults), overridden by the environment.

    Values `env:NAME` are read from the environment, and relative paths are those from the folder of the file.

    Raises:
        BadSettings: names the key and the file with a mistake.
    """
    tree: dict[str, object] = {}
    if path is not None:
        try:
            tree = tomllib.loads(path.read_bytes().decode())
        except FileNotFoundError:
            raise BadSettings(
                str(path), "there is no such settings file", remedy="give an existing one with --config"
            ) from None
        except OSError as error:
            raise BadSettings(str(path), f"cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadSettings(str(path), f"not valid TOML: {error}") from None
    overriding = _override(tree, env)
    _lists(tree)
    settings = _typed(_secrets(tree, env, ""), ", ".join([*([str(path)] if path else []), *overriding]))
    check(settings)
    return settings if path is None else _with_absolute_paths(settings, path.parent)


def _with_absolute_paths(settings: Settings, folder: Path) -> Settings:
    """Return the settings with relative paths resolved against `folder`, that of the settings file."""

    def path(text: str) -> str:
        return str(folder / text) if text and "://" not in text else text

    def store(store_settings: Store) -> Store:
        scheme, mark, file = store_settings.url.partition("sqlite:///")
        return Store(f"{mark}{folder / file}") if mark and not scheme and file else store_settings

    return msgspec.structs.replace(
        settings,
        data=path(settings.data),
        prices_file=path(settings.prices_file),
        protocols=path(settings.protocols),
        state=store(settings.state),
        tail=store(settings.tail),
        lake=msgspec.structs.replace(settings.lake, uri=path(settings.lake.uri)),
        chains={key: chain.with_absolute_paths(folder) for key, chain in settings.chains.items()},
    )


def _override(tree: dict[str, object], env: Mapping[str, str]) -> list[str]:
    """Write settings from the environment into the tree, and return the names of the variables.

    CHAINFOLIO_SERVER_PORT=1 is server.port; a longer path needs `__` between its parts, as in
    CHAINFOLIO_CHAINS__ETHEREUM__RPC=a,b.

    Raises:
        BadSettings: a part of the path is not a section.
    """
    secrets = _secret_variables([tree, *(value for name, value in env.items() if name.startswith("CHAINFOLIO_"))])
    names = sorted(name for name in env if name.startswith("CHAINFOLIO_") and name not in {*NOT_SETTINGS, *secrets})
    for name in names:
        body = name.removeprefix("CHAINFOLIO_").lower()
        keys = body.split("__") if "__" in body else _known_path(body)
        spot = tree
        for key in keys[:-1]:
            section = spot.setdefault(key, {})
            if not isinstance(section, dict):
                raise BadSettings(name, f"{key} is not a section")
            spot = section
        spot[keys[-1]] = _VariableText(env[name])
    return names


class _VariableText(str):
    """The value of a variable; it may be a list."""


def _lists(tree: dict[str, object]) -> None:
    """Split texts of variables at commas, in place, where their key is a list."""
    chains = tree.get("chains")
    tables = chains.items() if isinstance(chains, dict) else ()
    section_types: dict[str, type[msgspec.Struct]] = {"server": Server, "accounts": Accounts, "snapshots": Snapshots}
    sections: list[tuple[object, type[msgspec.Struct]]] = [
        (tree.get(name), kind) for name, kind in section_types.items()
    ]
    sections += [(table, _kind(key, table).settings) for key, table in tables if isinstance(table, dict)]
    for table, kind in sections:
        if isinstance(table, dict):
            texts = {name: value for name, value in table.items() if isinstance(value, _VariableText)}
            table |= {name: value.split(",") for name, value in texts.items() if name in list_keys(kind)}


def _known_path(body: str) -> list[str]:
    section, _, key = body.partition("_")
    return [section, key] if section in SECTIONS and key else [body]


def _secret_variables(node: object) -> set[str]:
    """Return the variables that are named by `env:NAME`: they are values, and no settings."""
    if isinstance(node, dict):
        return _secret_variables(list(node.values()))
    if isinstance(node, list):
        return {name for each in node for name in _secret_variables(each)}
    return {node.removeprefix("env:")} if isinstance(node, str) and node.startswith("env:") else set()


def _secrets(node: Any, env: Mapping[str, str], path: str) -> Any:
    """Return the tree with variables in place of every `env:NAME`, and as plain texts.

    Raises:
        BadSettings: Names the key whose variable is not set.
    """
    if isinstance(node, dict):
        return {key: _secrets(value, env, f"{path}.{key}".lstrip(".")) for key, value in node.items()}
    if isinstance(node, list):
        return [_secrets(value, env, path) for value in node]
    if isinstance(node, str) and node.startswith("env:"):
        name = node.removeprefix("env:")
        if name not in env:
            raise BadSettings(path, f"the environment variable {name} is not set")
        return env[name]
    return str(node) if isinstance(node, _VariableText) else node


class _Chains(msgspec.Struct):
    """The tables of chains before their kinds are known."""

    chains: dict[str, dict[str, object]] = {}


def _typed(tree: dict[str, object], source: str) -> Settings:
    """Return the tree in its types; each chain is decoded by the kind that its `adapter` names.

    Raises:
        BadSettings: A key or a value is not valid.
    """
    try:
        settings = msgspec.convert({**tree, "chains": {}}, Settings, strict=False)
        tables = msgspec.convert(tree, _Chains).chains
    except msgspec.ValidationError as error:
        raise BadSettings(source, explain_error(str(error), _meant)) from None
    return msgspec.structs.replace(settings, chains={key: _chain(key, tables[key], source) for key in tables})


def _meant(key: str, section: str) -> str:
    """Return the key or section that an unknown key probably stands for; empty if none is similar.

    It has its whole path if it is in another section.
    """
    sections = _sections()
    keys = [(each, name) for each, kind in sections.items() for name in kind.__struct_fields__]
    matches = difflib.get_close_matches(key, [name for _, name in keys], 1)
    if not matches:
        return ""
    name = matches[0]
    key_section = section if (section, name) in keys else next(each for each, key_name in keys if key_name == name)
    if not key_section and (name in sections or name == "chains"):
        return f"`[{name}]`"
    if key_section == section:
        return f"`{name}`"
    return f"`{name}` in [{key_section}]" if key_section else f"`{name}` at the top"


def _sections() -> dict[str, type[msgspec.Struct]]:
    """Return the types of the sections by their names; the top of the file has an empty name."""
    fields = msgspec.structs.fields(Settings)
    typed = {field.name: get_args(field.type)[0] if get_args(field.type) else field.type for field in fields}
    return {"": Settings} | {
        name: kind for name, kind in typed.items() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    }


def _chain(key: str, table: dict[str, object], source: str) -> ChainSettings:
    return decode_settings(_kind(key, table).settings, table, source, f"chains.{key}")


def _kind(key: str, table: Mapping[str, object]) -> ChainKind:
    """Return the kind of chain that a table names.

    Raises:
        BadSettings: names the chain if the kind is not installed.
    """
    try:
        return kind_of(str(table.get("adapter", DEFAULT_KIND)))
    except BadSettings as error:
        raise BadSettings(f"chains.{key}.adapter", error.reason, remedy=error.remedy) from None
