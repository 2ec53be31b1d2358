"""Read and check files of protocols: `configs/protocols/*.toml`, `forks.csv`, those of packages."""

from __future__ import annotations

import csv
import difflib
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from chainfolio.addresses import AddressRules, abbreviated, all_rules, rules_of
from chainfolio.errors import BadRequest, BadSettings
from chainfolio.indexer.file_versions import FileVersion
from chainfolio.indexer.registry import SIZES, Protocol, Registry, file_name, typed_calls
from chainfolio.kinds import readable_kinds
from chainfolio.portfolio.document import WALLET
from chainfolio.protocols import ProtocolFamily

if TYPE_CHECKING:
    from chainfolio.indexer.families import Package


Value = TypeVar("Value")
FORKS: Final = "forks.csv"  # many protocols in one file: a row for each contract
_COLUMNS: Final = ["protocol", "name", "family", "chain", "role", "address"]
_KEY = re.compile(r"[a-z][a-z0-9_]{0,31}\Z")


def load(folders: Sequence[Path], chains: Mapping[str, str]) -> Registry:
    """Load the protocols of some folders. A file replaces one with its name in an earlier folder.

    Contracts that a protocol file names are left out of the lists of forks. Files that did not change are read once in
    a process.

    Args:
        chains: The kind of each chain that files may name.

    Raises:
        BadSettings: A file is invalid; it names the file and the key.
    """
    files = {path.name: path for folder in folders for path in sorted(folder.glob("*.toml"))}
    forks = {folder / FORKS: None for folder in folders if (folder / FORKS).exists()}
    return _load(tuple(map(FileVersion.of, files.values())), tuple(map(FileVersion.of, forks)), tuple(chains.items()))


@lru_cache(maxsize=8)
def _load(
    files: Sequence[FileVersion], fork_lists: Sequence[FileVersion], chain_kinds: Sequence[tuple[str, str]]
) -> Registry:
    """Load protocols and lists of forks.

    A fork is left out if a protocol has its key. It loses the contracts that a protocol of `files` has, and is left out
    if it has no others.

    Raises:
        BadSettings: A file is invalid, or a contract belongs to two protocols.
    """
    protocols = [_protocol(each, chain_kinds) for each in files]
    used = {(chain, address) for protocol in protocols for chain, _, address in protocol.deployments}
    keys = {protocol.key for protocol in protocols}
    for each in fork_lists:
        forks = (_without_contracts(fork, used) for fork in _forks(each, chain_kinds))
        protocols += [fork for fork in forks if fork.contracts and fork.key not in keys]
    return Registry(protocols)


@lru_cache(maxsize=256)
def _protocol(file: FileVersion, chain_kinds: Sequence[tuple[str, str]]) -> Protocol:
    return protocol_of(file.path, dict(chain_kinds))


@lru_cache(maxsize=8)
def _forks(file: FileVersion, chain_kinds: Sequence[tuple[str, str]]) -> Sequence[Protocol]:
    return forks_of(file.path, dict(chain_kinds))


def _without_contracts(protocol: Protocol, used: Collection[tuple[str, str]]) -> Protocol:
    """Return the protocol without those of its contracts (chain, address) that are in `used`."""
    if not any((chain, address) in used for chain, _, address in protocol.deployments):
        return protocol
    contracts: dict[str, dict[str, list[str]]] = {}
    for chain, role, address in protocol.deployments:
        if (chain, address) not in used:
            contracts.setdefault(chain, {}).setdefault(role, []).append(address)
    return msgspec.structs.replace(protocol, contracts=contracts)


def kinds_of_files(folder: Path) -> dict[str, str]:
    """Return the kind of each chain that has a file in a folder; files that did not change are read once."""
    return {path.stem: _kind_of_file(FileVersion.of(path)) for path in sorted(folder.glob("*.toml"))}


@lru_cache(maxsize=256)
def _kind_of_file(file: FileVersion) -> str:
    return str(tomllib.loads(file.path.read_text()).get("kind", ""))


def forks_of(path: Path, chains: Mapping[str, str]) -> list[Protocol]:
    """Load the protocols of a CSV file with one row per contract.

    Args:
        chains: The kind of each chain that the file may name.

    Raises:
        BadSettings: A line is invalid.
    """
    protocols: dict[str, Protocol] = {}
    with path.open(newline="", encoding="utf-8") as file:
        lines = csv.reader(file)
        if next(lines, None) != _COLUMNS:
            raise BadSettings(path.name, f"the first line is not `{','.join(_COLUMNS)}`")
        for line in lines:
            _add_contract(protocols, line, f"{path.name}:{lines.line_num}", chains)
    return list(protocols.values())


def _add_contract(
    protocols: dict[str, Protocol], line: Sequence[str], location: str, chains: Mapping[str, str]
) -> None:
    """Add the contract of one line to its protocol; create the protocol if it is new.

    Raises:
        BadSettings: The line is invalid, or contradicts an earlier one.
    """
    if len(line) != len(_COLUMNS) or not all(line):
        raise BadSettings(location, f"not the {len(_COLUMNS)} values that the first line names")
    key, name, family, chain, role, address = line
    if not _KEY.match(key) or key == WALLET:
        raise BadSettings(location, f"`{key}` is not a protocol key")
    if chain not in chains:
        raise BadSettings(location, f"{chain} is no such chain", remedy=f"one of {', '.join(sorted(chains))}")
    _check_address(address, location, role, chains[chain])
    protocol = protocols.setdefault(key, Protocol(key, name, {}, families=[family], is_fork=True))
    if (protocol.name, protocol.families) != (name, [family]):
        raise BadSettings(location, f"{key} is {protocol.name} of the family {protocol.families[0]} in an earlier line")
    protocol.contracts.setdefault(chain, {}).setdefault(role, []).append(address)


def check_protocol(protocol: Protocol, families: Mapping[str, ProtocolFamily], kinds: Mapping[str, str]) -> None:
    """Check the roles, options and chains of a protocol, unless a family of it is not installed.

    Args:
        kinds: The kind of each known chain.

    Raises:
        BadSettings: No family reads a role or an option, a family cannot find accounts by the roles, or a family is for
            another kind of chain.
    """
    if any(name not in families for name in protocol.families):
        return
    protocol_families = [families[name] for name in protocol.families]
    _check_kinds(protocol, protocol_families, kinds)
    _check_roles(protocol, protocol_families)
    options = {option for family in protocol_families for option in family.options}
    for option in protocol.options.keys() - options:
        message = f"options.{option}: no decoder reads this option"
        raise BadSettings(file_name(protocol.key), message, remedy=_suggestion(option, options) or "remove it")
    deployed_roles = {role for _, role, _ in protocol.deployments}
    for family in protocol_families:
        if deployed_roles and not family.can_find_accounts(deployed_roles):
            alternatives = " or ".join(f"`{role}`" for role in sorted(family.lookup_roles))
            raise BadSettings(
                file_name(protocol.key),
                f"families: {family.name} finds no accounts without a contract as {alternatives}",
            )


def _check_kinds(protocol: Protocol, families: Sequence[ProtocolFamily], kinds: Mapping[str, str]) -> None:
    """Raise BadSettings if a family of a protocol cannot read a chain on which it has contracts."""
    for chain, roles in protocol.contracts.items():
        kind = kinds.get(chain)
        for family in families:
            if roles and kind not in (None, family.kind) and family.kind not in readable_kinds(kind):
                problem = f"contracts.{chain}: {family.name} reads chains of the kind {family.kind}"
                raise BadSettings(file_name(protocol.key), f"{problem}, and {chain} is of the kind {kinds[chain]}")


def _check_roles(protocol: Protocol, families: Sequence[ProtocolFamily]) -> None:
    """Raise BadSettings for a role that no decoder reads, or a label of a role without contracts."""
    read = {role for family in families for role in family.all_roles}
    path_by_role = {role: f"contracts.{chain}.{role}" for chain, role, _ in protocol.deployments}
    for role, key_path in path_by_role.items():
        if role not in read | {*protocol.labels, *protocol.undecoded}:
            raise BadSettings(
                file_name(protocol.key), f"{key_path}: no decoder reads this role", remedy=_role_fix(role, read)
            )
    for role in {*protocol.labels, *protocol.undecoded} - path_by_role.keys():
        raise BadSettings(file_name(protocol.key), f"labels, undecoded: there is no role `{role}` in `contracts`")


def _role_fix(role: str, read: Collection[str]) -> str:
    """Return the fix for a role that no decoder reads."""
    return (
        _suggestion(role, read) or "name it in `labels`, or in `undecoded` if it holds positions that no decoder reads"
    )


def _suggestion(name: str, names: Collection[str]) -> str:
    matches = difflib.get_close_matches(name, sorted(names), 1)
    return f"did you mean `{matches[0]}`?" if matches else ""


def add_packages(
    registry: Registry, packages: Sequence[Package], kinds: Mapping[str, str], operator_keys: Collection[str]
) -> tuple[Registry, tuple[Package, ...]]:
    """Add the protocol files of installed packages to a registry.

    A package's file cannot replace a protocol of the registry; the operator's files replace those of packages. The
    result for the same registry and packages is computed once in a process, unless a package's file changes.

    Args:
        kinds: The kind of each chain that files may name.
        operator_keys: Keys of the operator's files.

    Returns:
        The registry, and the packages; those with unusable files have a `problem`.

    Raises:
        BadSettings: A protocol of the registry has an unknown role or option, or a chain of another kind.
    """
    keys = _Identical(registry), tuple(_Identical(package) for package in packages)
    return _add_packages(*keys, _files_of(packages), tuple(kinds.items()), frozenset(operator_keys))


class _Identical(Generic[Value]):
    """A key of a cache that equals keys of the same object only: families need not be hashable."""

    def __init__(self, value: Value) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identical) and self.value is other.value


def _files_of(packages: Sequence[Package]) -> Sequence[FileVersion]:
    """Return the current files of packages; none if a folder cannot be read."""
    try:
        return tuple(FileVersion.of(path) for each in packages if each.folder for path in each.folder.glob("*.toml"))
    except OSError:
        return ()


@lru_cache(maxsize=8)
def _add_packages(
    same_registry: _Identical[Registry],
    same_packages: Sequence[_Identical[Package]],
    _: Sequence[FileVersion],
    chain_kinds: Sequence[tuple[str, str]],
    operator_keys: Collection[str],
) -> tuple[Registry, tuple[Package, ...]]:
    """Add the files of packages as `add_packages` does; a package whose files are wrong gets a problem.

    Raises BadSettings if a protocol of `same_registry` does not fit the families.
    """
    registry, packages, kinds = same_registry.value, [each.value for each in same_packages], dict(chain_kinds)
    checked = []
    installed = {family.name: family for package in packages for family in package.families}
    for package in packages:
        try:
            files = sorted(package.folder.glob("*.toml")) if package.folder and not package.problem else []
            protocols = [_foreign(path, kinds) for path in files if path.stem not in operator_keys]
            for protocol in protocols:
                check_protocol(protocol, installed, kinds)
            for family in package.families:
                typed_calls(family)
            registry = registry.with_protocols(protocols)
            checked.append(package)
        except (BadSettings, OSError) as error:
            checked.append(replace(package, families=(), problem=f"its files cannot be used: {error}"))
    usable = {family.name: family for package in checked for family in package.families}
    for protocol in registry.protocols:
        check_protocol(protocol, usable, kinds)
    return Registry(registry.protocols, usable), tuple(checked)


def _foreign(path: Path, chains: Mapping[str, str]) -> Protocol:
    """Load a file that may name unknown chains; their contracts are left out."""
    protocol = protocol_of(path, chains, allow_unknown=True)
    contracts = {chain: roles if chain in chains else {} for chain, roles in protocol.contracts.items()}
    return msgspec.structs.replace(protocol, contracts=contracts)


def protocol_of(path: Path, chains: Mapping[str, str], *, allow_unknown: bool = False) -> Protocol:
    """Load the protocol of a file, without the checks that need its families.

    Args:
        chains: The kind of each chain that the file may name.
        allow_unknown: Allow other chains too.

    Raises:
        BadSettings: The file is invalid, or is not named after the protocol's key.
    """
    try:
        protocol = msgspec.convert(tomllib.loads(path.read_text()), Protocol)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise BadSettings(path.name, str(error)) from None
    if protocol.key != path.stem or not _KEY.match(protocol.key) or protocol.key == WALLET:
        raise BadSettings(path.name, f"key: `{protocol.key}` is not a protocol key that the file is named after")
    if not protocol.name.strip() or not (protocol.contracts or protocol.families):
        raise BadSettings(path.name, "name and contracts are not empty")
    for size, link in protocol.images.items():
        if size not in SIZES or not link.startswith(("https://", "http://", "data:image/")):
            raise BadSettings(path.name, f"images.{size}: pictures are `small` and `large`, each an absolute URL")
    for chain in protocol.contracts:
        if not allow_unknown and chain not in chains:
            chain_names = ", ".join(sorted(chains))
            raise BadSettings(path.name, f"contracts.{chain}: no such chain", remedy=f"one of {chain_names}")
    for chain, role, address in protocol.deployments:
        _check_address(address, path.name, f"contracts.{chain}.{role}", chains.get(chain, ""))
    return protocol


def _check_address(address: str, file: str, key_path: str, kind: str) -> None:
    """Check that an address is canonical for its kind of chain, and is not a burn address.

    An empty `kind` allows the addresses of every kind. A kind without rules allows any text.

    Raises:
        BadSettings: It is not.
    """
    rules = _rules(kind)
    forms = [form for form in (_form(address, each) for each in rules) if form is not None]
    if address in forms or not rules:
        return
    names = " or ".join(each.name for each in rules)
    if forms:
        raise BadSettings(file, f"{key_path}: {address} is not the one form of an address", remedy=f"write {forms[0]}")
    raise BadSettings(
        file,
        f"{key_path}: {abbreviated(address)} is no contract's {names} address",
        remedy=" or ".join(each.form for each in rules),
    )


def _rules(kind: str) -> Sequence[AddressRules]:
    """Return the rules of addresses of a kind, of all kinds for ""; none for an unknown one."""
    if not kind:
        return all_rules()
    try:
        return [rules_of(kind)]
    except BadRequest:
        return []


def _form(address: str, rules: AddressRules) -> str | None:
    """Return the canonical form of a contract's address by the rules of a kind; None if it is invalid."""
    try:
        form = rules.canonical(address)
    except BadRequest:
        return None
    return None if form in rules.burn_addresses else form
