"""The protocols of `configs/protocols/*.toml`: their keys, names, pictures, and where their contracts lie."""

from __future__ import annotations

import csv
import difflib
import re
import tomllib
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from chainfolio.addresses import AddressRules, every, rules_of, shown
from chainfolio.errors import BadRequest, BadSettings
from chainfolio.kinds import readable_by
from chainfolio.protocols import InstalledProtocol, ProtocolFamily, UnreadProtocol
from portfolio.activity import Rule
from portfolio.document import WALLET
from portfolio.facts import ProtocolFacts
from portfolio.transactions import TransactionType

if TYPE_CHECKING:
    from indexer.families import Package

# Whoever makes the id of a protocol from its key makes the same one: UUIDv5 in this name space.
NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_DNS, "protocols.chainfolio")
SIZES: Final = ("small", "large")
FORKS: Final = "forks.csv"  # many protocols in one file: a row for each contract
_COLUMNS: Final = ["protocol", "name", "family", "chain", "role", "address"]
_KEY = re.compile(r"[a-z][a-z0-9_]{0,31}\Z")


class TypedFunctions(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The type of calls of some functions of a protocol, if they gave (`loss`) or brought (`gain`) something, burnt all
    that they gave (`burnt`), brought a new collectible (`collectible minted`), or are the account's own (`sent`)."""

    type: TransactionType
    functions: Annotated[list[str], msgspec.Meta(min_length=1)]
    needs: Literal["gain", "loss", "sent", "burnt", "collectible minted"]

    @property
    def rule(self) -> Rule:
        """The same as transactions are typed by it."""
        return Rule(self.type, frozenset([self.needs]), functions=frozenset(self.functions))


class Protocol(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One protocol as its file describes it; `contracts` are addresses by chain key and by what they are there for.

    `families` are the decoders that read its positions; `options` what they have to know of this fork. Every role is
    one that a family reads, or one of `labels`, in which contracts are there for their names only, or of `undecoded`:
    who had to do with those has positions that nobody reads. `is_fork`: nobody read the code of its contracts, so what
    they claim counts only as far as real assets and the account's own acts bear it out. `transactions`: what calls of
    its functions are called; the first that fits.
    """

    key: str
    name: str
    contracts: dict[str, dict[str, list[str]]]
    images: dict[str, str] = {}
    families: list[str] = []
    options: dict[str, str] = {}
    labels: list[str] = []
    undecoded: list[str] = []
    is_fork: bool = False
    transactions: list[TypedFunctions] = []

    @property
    def uuid(self) -> str:
        """Its id: the same wherever its key is the same."""
        return str(uuid.uuid5(NAMESPACE, self.key))

    @property
    def places(self) -> Iterator[tuple[str, str, str]]:
        """Chain, role and address of each contract."""
        for chain, roles in self.contracts.items():
            for role, addresses in roles.items():
                for address in addresses:
                    yield chain, role, address


@dataclass(frozen=True, slots=True)
class Unread:
    """A protocol whose file names `families` that are not installed: its positions cannot be read."""

    protocol: Protocol
    families: tuple[str, ...]
    installed: tuple[str, ...]

    @property
    def problem(self) -> str:
        """What is wrong."""
        named = ", ".join(f"`{each}`" for each in self.families)
        return f"its file names the famil{'ies' if len(self.families) > 1 else 'y'} {named}, which no package installs"

    @property
    def told(self) -> UnreadProtocol:
        """The same as answers say it."""
        return UnreadProtocol(self.protocol.key, self.protocol.name, self.problem)

    @property
    def remedy(self) -> str:
        """What to do about it."""
        near = difflib.get_close_matches(self.families[0], self.installed, 1)
        meant = f" (did you mean `{near[0]}`?)" if near else ""
        return f"correct `families` in {_file(self.protocol.key)}{meant}, or install the package that has it"


class Registry:
    """Protocols by key, by chain and by contract. A contract belongs to one protocol of its chain."""

    def __init__(self, protocols: Sequence[Protocol]) -> None:
        self.protocols = tuple(sorted(protocols, key=lambda each: (each.name.casefold(), each.key)))
        self._at: dict[str, dict[str, Protocol]] = {}
        for protocol in self.protocols:
            for chain, role, address in protocol.places:
                other = self._at.setdefault(address, {}).setdefault(chain, protocol)
                if other is not protocol:
                    where = f"contracts.{chain}.{role}"
                    raise BadSettings(_file(protocol.key), f"{where}: {address} belongs to {other.key} already")

    def plus(self, more: Sequence[Protocol]) -> Registry:
        """These and more; BadSettings names the one of the others that has a key or a contract of these."""
        for protocol in more:
            if any(protocol.key == each.key for each in self.protocols):
                raise BadSettings(_file(protocol.key), f"there is a protocol `{protocol.key}` already")
            for chain, role, address in protocol.places:
                for _, other in self.of(address, [chain]):
                    where = f"contracts.{chain}.{role}"
                    raise BadSettings(_file(protocol.key), f"{where}: {address} belongs to {other.key} already")
        return Registry([*self.protocols, *more])

    def on(self, chain: str) -> tuple[Protocol, ...]:
        """The protocols of a chain, by name."""
        return tuple(each for each in self.protocols if chain in each.contracts)

    def of(self, contract: str, chains: Collection[str]) -> list[tuple[str, Protocol]]:
        """Chain and protocol of a contract, by its canonical address, on each of these chains where it is one's."""
        found = self._at.get(contract, {})
        return [(chain, found[chain]) for chain in sorted(found) if chain in chains]

    def label(self, contract: str, chain: str) -> str | None:
        """What a contract is called on a chain: its protocol, and what it is there for; None where nobody knows it."""
        protocol = self._at.get(contract, {}).get(chain)
        if protocol is None:
            return None
        roles = [role for key, role, address in protocol.places if (key, address) == (chain, contract)]
        return protocol.name if roles[0] == protocol.key else f"{protocol.name}: {roles[0].replace('_', ' ')}"

    def undecoded(self, chain: str) -> dict[str, UnreadProtocol]:
        """The contracts of a chain that hold positions which no decoder reads."""
        return {
            address: UnreadProtocol(protocol.key, protocol.name, "there is no decoder for them")
            for protocol in self.protocols
            for role in protocol.undecoded
            for address in protocol.contracts.get(chain, {}).get(role, ())
        }

    def rows(self, chain: str, kind: str, families: Mapping[str, ProtocolFamily]) -> tuple[InstalledProtocol, ...]:
        """The protocols of a chain whose families are installed. One without contracts is one of every chain of the
        `kind` that its family is for."""
        theirs = readable_by(kind)
        return tuple(
            InstalledProtocol(
                protocol.key,
                families[name],
                {role: tuple(addresses) for role, addresses in protocol.contracts.get(chain, {}).items()},
                protocol.options,
                protocol.is_fork,
            )
            for protocol in self.protocols
            for name in protocol.families
            if name in families
            and (families[name].kind in theirs if chain in protocol.contracts else families[name].kind == kind)
            and (chain in protocol.contracts or not protocol.contracts)
        )

    def unread(self, families: Collection[str]) -> tuple[Unread, ...]:
        """The protocols that name other families than these, which are installed."""
        return tuple(
            Unread(each, missing, tuple(sorted(families)))
            for each in self.protocols
            if (missing := tuple(name for name in each.families if name not in families))
        )

    @cached_property
    def facts(self) -> dict[str, ProtocolFacts]:
        """What documents show of each protocol."""
        return {
            each.key: ProtocolFacts(each.key, each.name, each.images, tuple(typed.rule for typed in each.transactions))
            for each in self.protocols
        }


def load(folders: Sequence[Path], chains: Mapping[str, str]) -> Registry:
    """The registry of some folders, whose files may name these chains, each with its kind; BadSettings says which file
    and key is wrong.

    A file of a later folder replaces one of the same name in an earlier one, and what it names there is no fork's.
    """
    files = {path.name: path for folder in folders for path in sorted(folder.glob("*.toml"))}
    protocols = [protocol_of(path, chains) for path in files.values()]
    forks = {folder / FORKS: None for folder in folders if (folder / FORKS).exists()}
    taken = {(chain, address) for protocol in protocols for chain, _, address in protocol.places}
    keys = {protocol.key for protocol in protocols}
    for path in forks:
        protocols += [each for each in forks_of(path, chains, taken) if each.contracts and each.key not in keys]
    return Registry(protocols)


def forks_of(path: Path, chains: Mapping[str, str], taken: Collection[tuple[str, str]] = ()) -> list[Protocol]:
    """The protocols of a file with a row for each contract, without contracts that are `taken` (chain and address);
    BadSettings names the line that is wrong. `chains`: those that it may name, each with its kind."""
    found: dict[str, Protocol] = {}
    with path.open(newline="", encoding="utf-8") as file:
        lines = csv.reader(file)
        if next(lines, None) != _COLUMNS:
            raise BadSettings(path.name, f"the first line is not `{','.join(_COLUMNS)}`")
        for line in lines:
            _add(found, line, f"{path.name}:{lines.line_num}", chains, taken)
    return list(found.values())


def _add(
    found: dict[str, Protocol], line: Sequence[str], where: str, chains: Mapping[str, str],
    taken: Collection[tuple[str, str]],
) -> None:  # fmt: skip
    """One more contract of one of the protocols."""
    if len(line) != len(_COLUMNS) or not all(line):
        raise BadSettings(where, f"not the {len(_COLUMNS)} values that the first line names")
    key, name, family, chain, role, address = line
    if not _KEY.match(key) or key == WALLET:
        raise BadSettings(where, f"`{key}` is not a protocol key")
    if chain not in chains:
        raise BadSettings(where, f"{chain} is no such chain", remedy=f"one of {', '.join(sorted(chains))}")
    _check_address(address, where, role, chains[chain])
    protocol = found.setdefault(key, Protocol(key, name, {}, families=[family], is_fork=True))
    if (protocol.name, protocol.families) != (name, [family]):
        raise BadSettings(where, f"{key} is {protocol.name} of the family {protocol.families[0]} in an earlier line")
    if (chain, address) not in taken:
        protocol.contracts.setdefault(chain, {}).setdefault(role, []).append(address)


def check(protocol: Protocol, families: Mapping[str, ProtocolFamily], kinds: Mapping[str, str]) -> None:
    """BadSettings where a file has a role or an option that none of its families reads, where a family finds nobody by
    it, or is for another kind of chain than one of its chains; silent where one of them is not installed, of which
    `unread` tells. `kinds`: the kind of each chain that is known."""
    if any(name not in families for name in protocol.families):
        return
    own = [families[name] for name in protocol.families]
    for chain, roles in protocol.contracts.items():
        for family in own:
            if roles and family.kind not in readable_by(kinds.get(chain, family.kind)):
                problem = f"contracts.{chain}: {family.name} reads chains of the kind {family.kind}"
                raise BadSettings(_file(protocol.key), f"{problem}, and {chain} is of the kind {kinds[chain]}")
    read = {role for family in own for role in family.all_roles}
    named = {role: f"contracts.{chain}.{role}" for chain, role, _ in protocol.places}
    for role, where in named.items():
        if role not in read | {*protocol.labels, *protocol.undecoded}:
            raise BadSettings(_file(protocol.key), f"{where}: no decoder reads this role", remedy=_instead(role, read))
    for role in {*protocol.labels, *protocol.undecoded} - named.keys():
        raise BadSettings(_file(protocol.key), f"labels, undecoded: there is no role `{role}` in `contracts`")
    options = {option for family in own for option in family.options}
    for option in protocol.options.keys() - options:
        said = f"options.{option}: no decoder reads this option"
        raise BadSettings(_file(protocol.key), said, remedy=_near(option, options) or "remove it")
    for family in own:
        if named and not family.finds_anybody(named):
            wanted = " or ".join(f"`{role}`" for role in sorted(family.finding_roles))
            raise BadSettings(
                _file(protocol.key), f"families: {family.name} finds nobody without a contract as {wanted}"
            )


def _instead(role: str, read: Collection[str]) -> str:
    """What to do about a role that nobody reads."""
    return _near(role, read) or "name it in `labels`, or in `undecoded` where positions lie there that nobody reads"


def _near(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), 1)
    return f"did you mean `{near[0]}`?" if near else ""


def joined(
    known: Registry, packages: Sequence[Package], kinds: Mapping[str, str], own: Collection[str]
) -> tuple[Registry, tuple[Package, ...]]:
    """What is known, with the protocol files of installed packages; a package whose files cannot be used says so.

    A package's file stands in for none that is known, but one of the operator's `own` (keys) for a package's.
    `kinds`: the chains that files may name, with the kind of each. BadSettings where a file that is known has a role or
    an option that none of its families reads, or names a chain of another kind.
    """
    checked = []
    installed = {family.name: family for package in packages for family in package.families}
    for package in packages:
        try:
            files = sorted(package.folder.glob("*.toml")) if package.folder and not package.problem else []
            more = [_foreign(path, kinds) for path in files if path.stem not in own]
            for protocol in more:
                check(protocol, installed, kinds)
            known = known.plus(more)
            checked.append(package)
        except (BadSettings, OSError) as error:
            checked.append(replace(package, families=(), problem=f"its files cannot be used: {error}"))
    usable = {family.name: family for package in checked for family in package.families}
    for protocol in known.protocols:
        check(protocol, usable, kinds)
    return known, tuple(checked)


def _foreign(path: Path, chains: Mapping[str, str]) -> Protocol:
    """A file that may name more chains than are known here: nothing is read on those."""
    protocol = protocol_of(path, chains, others=True)
    contracts = {chain: roles if chain in chains else {} for chain, roles in protocol.contracts.items()}
    return msgspec.structs.replace(protocol, contracts=contracts)


def protocol_of(path: Path, chains: Mapping[str, str], *, others: bool = False) -> Protocol:
    """The protocol in a file, which may name these chains, each with its kind, or `others` too; BadSettings says what
    is wrong with it."""
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
        if not others and chain not in chains:
            known = ", ".join(sorted(chains))
            raise BadSettings(path.name, f"contracts.{chain}: no such chain", remedy=f"one of {known}")
    for chain, role, address in protocol.places:
        _check_address(address, path.name, f"contracts.{chain}.{role}", chains.get(chain, ""))
    return protocol


def _check_address(address: str, file: str, where: str, kind: str) -> None:
    """BadSettings where an address is not in the one form of its kind of chain, of any kind where that is not known
    (`""`), or where it is nobody's. A kind that has no rules takes any text."""
    rules = _rules(kind)
    forms = [form for form in (_form(address, each) for each in rules) if form is not None]
    if address in forms or not rules:
        return
    names = " or ".join(each.name for each in rules)
    if forms:
        raise BadSettings(file, f"{where}: {address} is not the one form of an address", remedy=f"write {forms[0]}")
    raise BadSettings(
        file, f"{where}: {shown(address)} is no contract's {names} address",
        remedy=" or ".join(each.form for each in rules),
    )  # fmt: skip


def _rules(kind: str) -> Sequence[AddressRules]:
    if not kind:
        return every()
    try:
        return [rules_of(kind)]
    except BadRequest:
        return []


def _form(address: str, rules: AddressRules) -> str | None:
    """The one form of an address of a contract by the rules of a kind; None where it is none."""
    try:
        form = rules.canonical(address)
    except BadRequest:
        return None
    return None if form in rules.nobody else form


def _file(key: str) -> str:
    return f"{key}.toml"
