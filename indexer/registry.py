"""The protocols by key, chain and contract. `protocol_files.py` reads them."""

from __future__ import annotations

import difflib
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal

import msgspec

from chainfolio.errors import BadSettings
from chainfolio.kinds import readable_kinds
from chainfolio.portfolio.activity import Rule
from chainfolio.portfolio.facts import ProtocolFacts
from chainfolio.portfolio.pictures import named_images
from chainfolio.portfolio.transactions import TransactionType
from chainfolio.protocols import InstalledProtocol, ProtocolFamily, UnreadProtocol

# The id of a protocol is the UUIDv5 of its key in this name space.
NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_DNS, "protocols.chainfolio")
SIZES: Final = ("small", "large")


class TypedFunctions(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The transaction type of calls of some functions of a protocol.

    Attributes:
        functions: The called functions. If there are none, any call counts that moves something between the account and
            a contract of the protocol, also a call of a router or of a wallet contract.
        needs: The calls must give (`loss`) or bring (`gain`) something, burn all that they give (`burnt`), bring a new
            collectible (`collectible minted`), create or destroy one share for something else (`issued`,
            `redeemed`), or be sent by the account (`sent`).
    """

    type: TransactionType
    functions: list[str]
    needs: Literal["gain", "loss", "sent", "burnt", "minted", "collectible minted", "issued", "redeemed"]

    @property
    def rule(self) -> Rule:
        """The rule by which transactions are typed."""
        return Rule(self.type, frozenset([self.needs]), functions=frozenset(self.functions))


class Protocol(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One protocol as described by its file.

    Attributes:
        contracts: Addresses by chain key and role. A role is read by a family, or one of `labels` or `undecoded`.
        families: The decoders of its positions.
        options: Facts about this fork that the decoders need.
        labels: Roles of contracts that only have a name.
        undecoded: Roles of contracts with positions that no decoder reads.
        is_fork: The code of its contracts was not reviewed: their claims count only if real assets and the account's
            own actions confirm them.
        transactions: Types of calls of its functions; the first match counts.
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
        """The id, which depends on the key only."""
        return str(uuid.uuid5(NAMESPACE, self.key))

    @property
    def deployments(self) -> Iterator[tuple[str, str, str]]:
        """Chain, role and address of each contract."""
        for chain, roles in self.contracts.items():
            for role, addresses in roles.items():
                for address in addresses:
                    yield chain, role, address


@dataclass(frozen=True, slots=True)
class UnreadableProtocol:
    """A protocol whose file names `families` that are not installed: its positions cannot be read."""

    protocol: Protocol
    families: tuple[str, ...]
    installed: tuple[str, ...]

    @property
    def problem(self) -> str:
        """The error, as a sentence."""
        names = ", ".join(f"`{each}`" for each in self.families)
        return f"its file names the famil{'ies' if len(self.families) > 1 else 'y'} {names}, which no package installs"

    @property
    def document(self) -> UnreadProtocol:
        """The protocol as reported in responses."""
        return UnreadProtocol(self.protocol.key, self.protocol.name, self.problem)

    @property
    def remedy(self) -> str:
        """The fix, as a sentence."""
        matches = difflib.get_close_matches(self.families[0], self.installed, 1)
        meant = f" (did you mean `{matches[0]}`?)" if matches else ""
        return f"correct `families` in {file_name(self.protocol.key)}{meant}, or install the package that has it"


class Registry:
    """Protocols by key, chain and contract. A contract belongs to one protocol of its chain."""

    def __init__(self, protocols: Sequence[Protocol], families: Mapping[str, ProtocolFamily] | None = None) -> None:
        """Index protocols by contract and chain.

        Raises:
            BadSettings: A contract belongs to two protocols.
        """
        self._families = families or {}
        self.protocols = tuple(sorted(protocols, key=lambda each: (each.name.casefold(), each.key)))
        self._at: dict[str, dict[str, Protocol]] = {}
        for protocol in self.protocols:
            for chain, role, address in protocol.deployments:
                owner = self._at.setdefault(address, {}).setdefault(chain, protocol)
                if owner is not protocol:
                    key_path = f"contracts.{chain}.{role}"
                    raise BadSettings(file_name(protocol.key), f"{key_path}: {address} belongs to {owner.key} already")

    def with_image_urls(self, template: str) -> Registry:
        """Return a registry in which protocols without images have the ones of a template of the settings."""
        if not template:
            return self
        changed = [
            each if each.images else msgspec.structs.replace(each, images=named_images(template, each.key))
            for each in self.protocols
        ]
        return Registry(changed, self._families)

    def with_protocols(self, protocols: Sequence[Protocol]) -> Registry:
        """Return a registry with more protocols.

        Raises:
            BadSettings: A protocol has a key or a contract that exists already.
        """
        if not protocols:
            return self
        for protocol in protocols:
            if any(protocol.key == each.key for each in self.protocols):
                raise BadSettings(file_name(protocol.key), f"there is a protocol `{protocol.key}` already")
            for chain, role, address in protocol.deployments:
                for _, owner in self.of(address, [chain]):
                    key_path = f"contracts.{chain}.{role}"
                    raise BadSettings(file_name(protocol.key), f"{key_path}: {address} belongs to {owner.key} already")
        return Registry([*self.protocols, *protocols], self._families)

    def on(self, chain: str) -> tuple[Protocol, ...]:
        """Return the protocols of a chain, by name."""
        return tuple(each for each in self.protocols if chain in each.contracts)

    def of(self, contract: str, chains: Collection[str]) -> list[tuple[str, Protocol]]:
        """Return chain and protocol of a contract (canonical address) on those of the chains that have one."""
        by_chain = self._at.get(contract, {})
        return [(chain, by_chain[chain]) for chain in sorted(by_chain) if chain in chains]

    def label(self, contract: str, chain: str) -> str | None:
        """Return the name of a contract on a chain: its protocol and its role; None if it is unknown.

        The role is left out if it is the protocol's key.
        """
        protocol = self._at.get(contract, {}).get(chain)
        if protocol is None:
            return None
        roles = [role for key, role, address in protocol.deployments if (key, address) == (chain, contract)]
        return protocol.name if roles[0] == protocol.key else f"{protocol.name}: {roles[0].replace('_', ' ')}"

    def undecoded(self, chain: str) -> dict[str, UnreadProtocol]:
        """Return the contracts of a chain whose positions no decoder reads."""
        return {
            address: UnreadProtocol(protocol.key, protocol.name, "there is no decoder for them")
            for protocol in self.protocols
            for role in protocol.undecoded
            for address in protocol.contracts.get(chain, {}).get(role, ())
        }

    def rows(self, chain: str, kind: str, families: Mapping[str, ProtocolFamily]) -> tuple[InstalledProtocol, ...]:
        """Return the protocols of a chain whose families are installed.

        A protocol without contracts is on all chains of the kind of its family.
        """
        theirs = readable_kinds(kind)
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

    def unread(self, families: Collection[str]) -> tuple[UnreadableProtocol, ...]:
        """Return the protocols that name families that are not installed."""
        return tuple(
            UnreadableProtocol(each, missing, tuple(sorted(families)))
            for each in self.protocols
            if (missing := tuple(name for name in each.families if name not in families))
        )

    @cached_property
    def facts(self) -> dict[str, ProtocolFacts]:
        """The facts about each protocol that documents show."""
        return {each.key: ProtocolFacts(each.key, each.name, each.images, self._rules(each)) for each in self.protocols}

    def _rules(self, protocol: Protocol) -> tuple[Rule, ...]:
        """Return the rules of a protocol's file, then those of its families."""
        families = [self._families[name] for name in protocol.families if name in self._families]
        roles = [each.roles for family in families for each in family.calls]
        calls = [typed for family in families for typed in typed_calls(family)]
        return tuple(
            _rule(protocol, typed, of_roles)
            for typed, of_roles in (*((each, ()) for each in protocol.transactions), *zip(calls, roles, strict=True))
        )


def _rule(protocol: Protocol, typed: TypedFunctions, roles: Sequence[str]) -> Rule:
    """Return a rule; without functions, it is about the protocol's contracts in some roles, or about all."""
    if typed.functions:
        return typed.rule
    addresses = (address for _, role, address in protocol.deployments if not roles or role in roles)
    return replace(typed.rule, counterparties=frozenset(addresses))


def typed_calls(family: ProtocolFamily) -> list[TypedFunctions]:
    """Return what calls of a family's functions mean.

    Raises:
        BadSettings: One of its `calls` has an unknown type or need.
    """
    try:
        return [
            msgspec.convert({"type": each.type, "needs": each.needs, "functions": each.functions}, TypedFunctions)
            for each in family.calls
        ]
    except (msgspec.ValidationError, AttributeError, TypeError) as error:
        raise BadSettings(family.name, f"calls: {error}") from None


def file_name(key: str) -> str:
    """Return the name of a protocol's file."""
    return f"{key}.toml"
