"""Kinds of chain, found by the name that `adapter` has in the settings.

A kind is a value at the entry point `chainfolio.chains`. Built-in kinds are registered there too, but are imported
from `adapters/<name>/kind.py`, so a process that uses only these does not scan the installed packages.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from chainfolio.chain_settings import ChainSettings
from chainfolio.errors import BadSettings, ChainfolioError, NotSupported

if TYPE_CHECKING:
    from chainfolio.abi import AbiFamilies
    from chainfolio.chains import Chain
    from chainfolio.datasets import Dataset
    from chainfolio.environment import Environment
    from chainfolio.reads import ContractRead
    from chainfolio.recordings import DecoderKit

ENTRY_POINT_GROUP = "chainfolio.chains"
BUILTIN_PACKAGE = "chainfolio.adapters"
_USED: dict[str, ChainKind] = {}


@dataclass(frozen=True, slots=True)
class AnswerStore:
    """A cache of endpoint responses across restarts, by the endpoint's identity and the request's name."""

    read: Callable[[str, Sequence[str], int, int], Mapping[str, bytes]]  # written between two moments
    write: Callable[[str, Mapping[str, bytes], int], None]  # the moment is now
    drop: Callable[[str], None]  # all of an endpoint


@dataclass(frozen=True, slots=True)
class EndpointMemory:
    """Stored facts about endpoints, by an identity without secrets: capabilities, quarantine evidence.

    A kind may also store facts about accounts, by names that it chooses.
    """

    capabilities: Callable[[str], Mapping[str, int]] = lambda endpoint: {}
    on_capability: Callable[[str, str, int], None] = lambda endpoint, name, value: None
    quarantined: Callable[[str], bytes | None] = lambda endpoint: None
    on_quarantine: Callable[[str, bytes], None] = lambda endpoint, evidence: None
    answers: AnswerStore | None = None  # None: every answer is requested anew


class ChainKind(Protocol):
    """A kind of chain. `settings` is the type of its `[chains.KEY]`, which checks itself.

    It may have the rules of its addresses as `addresses` (`chainfolio.addresses`), and be one that `SelectsFunctions`,
    `CallsContracts`, `HasDecoderKit`, `OffersFamilies` or `UsesFamilies`.
    """

    @property
    def name(self) -> str:
        """The value of `adapter` in the settings: `evm`."""

    @property
    def settings(self) -> type[ChainSettings]:
        """The type of `[chains.KEY]`: the keys of all kinds, and those of this kind."""

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """The datasets that its chains may have, by name. Kinds that use the same name mean the same."""

    def build(
        self, key: str, settings: Any, environment: Environment, *, configs: Path, memory: EndpointMemory
    ) -> Chain:
        """Make a chain from its settings and the files below `configs`; no node is contacted yet."""

    def identities(self, settings: Any) -> Sequence[tuple[str, str]]:
        """Return each endpoint's name in reports, and the identity under which it is stored."""


@runtime_checkable
class SelectsFunctions(Protocol):
    """A kind of chain whose call data begins with a selector: the bytes that identify the function."""

    def selector(self, function: str) -> bytes:
        """Return the selector of a function such as `transfer(address,uint256)`."""


@runtime_checkable
class CallsContracts(Protocol):
    """A kind of chain whose contracts are read by calling functions, for price sources that ask contracts."""

    def call(self, contract: str, function: str, args: tuple[object, ...] = ()) -> ContractRead:
        """Return the read of a function such as `balanceOf(address)(uint256)`."""


def contract_calls(name: str) -> Callable[..., ContractRead]:
    """Return the function that makes contract reads on a kind of chain.

    It takes contract, function and arguments.

    Raises:
        NotSupported: the kind has no contract reads.
    """
    kind = kind_of(name)
    if not isinstance(kind, CallsContracts):
        raise NotSupported(f"a read of a contract on a chain of the kind `{name}`")
    return kind.call


@runtime_checkable
class HasDecoderKit(Protocol):
    """A kind of chain whose decoders of protocols can be scaffolded, recorded and replayed."""

    @property
    def decoder_kit(self) -> DecoderKit:
        """The tools that scaffold, record and replay decoders."""


def decoder_kit(name: str) -> DecoderKit:
    """Return the kit for decoders of a kind of chain.

    Raises:
        NotSupported: the kind has none.
    """
    kind = kind_of(name)
    if not isinstance(kind, HasDecoderKit):
        remedy = "its package can offer `decoder_kit`, as chainfolio.recordings.DecoderKit says"
        raise NotSupported(f"what scaffolds, records or replays decoders of the kind `{name}`", remedy=remedy)
    return kind.decoder_kit


@runtime_checkable
class OffersFamilies(Protocol):
    """A kind of chain with families of protocols for other kinds whose contracts take the same calls."""

    @property
    def abi_families(self) -> AbiFamilies:
        """The families, as in `chainfolio.abi`."""


@runtime_checkable
class UsesFamilies(Protocol):
    """A kind of chain whose contracts are read by the families of another kind."""

    @property
    def families_of(self) -> str:
        """The name of the other kind."""


def readable_kinds(kind: str) -> frozenset[str]:
    """Return the kinds whose protocol families read chains of a kind: itself, and the one it uses.

    Only itself if the kind is not installed.
    """
    try:
        chain_kind = kind_of(kind)
    except BadSettings:
        return frozenset([kind])
    # Not `isinstance`: it takes 70 us for a protocol with a property, and is called for each of 1,300 protocols.
    families_of: str | None = getattr(chain_kind, "families_of", None)
    return frozenset([kind] if families_of is None else [kind, families_of])


def abi_families_of(kind: str) -> AbiFamilies:
    """Return the protocol families that read a kind of chain: its own, or those of the kind that it uses.

    Raises:
        NotSupported: The kind has no families and uses those of no kind that has some.
    """
    chain_kind = kind_of(kind)
    offers = kind_of(chain_kind.families_of) if isinstance(chain_kind, UsesFamilies) else chain_kind
    if not isinstance(offers, OffersFamilies):
        raise NotSupported(f"families of protocols for chains of the kind `{kind}`")
    return offers.abi_families


@runtime_checkable
class IdentifiesChains(Protocol):
    """A kind of chain whose endpoints say which chain they serve."""

    def identity(self, key: str, settings: Any, *, configs: Path) -> str:
        """Return the identity of a chain of this kind, from its settings and the files in `configs`.

        Raises:
            BadSettings: the chain is of another kind, or its file has a mistake.
        """

    async def served(self, node: Probe) -> str | None:
        """Return the identity of the chain that a node serves; None if the node is of another kind.

        Raises:
            SourceError: the node cannot be reached, refuses access, or is overloaded.
        """


class Probe(Protocol):
    """A node known only by its URL."""

    async def call(self, method: str) -> object:
        """Return the result of a JSON-RPC call without parameters; None if the node does not serve the method."""

    async def read(self, path: str, body: object = None) -> object:
        """Return the JSON that a path answers to a GET, or to a POST of `body`; None if it is not JSON."""


@lru_cache(16)
def kind_of(name: str) -> ChainKind:
    """Import the kind with a name, register it as used, and return it.

    Raises:
        BadSettings: no such kind is installed, several are, or it cannot be used.
    """
    if name in builtin_kinds():
        return _usable(name, import_module(f"{BUILTIN_PACKAGE}.{name}.kind").KIND)
    from importlib.metadata import entry_points

    entries = {entry.value: entry for entry in entry_points(group=ENTRY_POINT_GROUP) if entry.name == name}
    if not entries:
        raise BadSettings(
            "adapter",
            f"no kind of chain `{name}` is installed",
            remedy=f"one of {', '.join(sorted(installed_kinds()))}",
        )
    if len(entries) > 1:
        reason = f"several packages have a kind of chain `{name}`: {', '.join(sorted(entries))}"
        raise BadSettings("adapter", reason, remedy="uninstall all but one")
    (entry,) = entries.values()
    try:
        loaded = entry.load()
    except (Exception, SystemExit) as error:  # third-party code: the operator hears which package it is
        from chainfolio.plugin_faults import load_fault

        reason = f"the package of `{name}` ({entry.value}) cannot be loaded: {load_fault(error)}"
        raise BadSettings("adapter", reason) from error
    return _usable(name, loaded)


def datasets() -> dict[str, Dataset]:
    """Return the datasets of the built-in kinds and of the other kinds that this process used, by name."""
    kinds = [*(kind_of(name) for name in sorted(builtin_kinds())), *_USED.values()]
    by_name: dict[str, Dataset] = {}
    for kind in kinds:
        for name, dataset in kind.datasets.items():
            by_name.setdefault(name, dataset)
    return by_name


@lru_cache(1)
def builtin_kinds() -> frozenset[str]:
    """Return the names of the kinds that come with Chainfolio."""
    return frozenset(
        module.name for module in pkgutil.iter_modules(import_module(BUILTIN_PACKAGE).__path__) if module.ispkg
    )


def installed_kinds() -> frozenset[str]:
    """Return the names of all kinds that are installed, also of those that cannot be used."""
    from importlib.metadata import entry_points

    return builtin_kinds() | {entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)}


def _usable(name: str, value: Any) -> ChainKind:
    """Return an installed object as a kind of chain, and register it as used.

    Raises BadSettings if it is no kind, or a kind of third parties that breaks a rule.
    """
    settings = getattr(value, "settings", None)
    if not (isinstance(settings, type) and issubclass(settings, ChainSettings) and callable(value.build)):
        raise BadSettings("adapter", f"what is installed as `{name}` is no kind of chain")
    kind: ChainKind = value
    if name not in builtin_kinds():
        from chainfolio.kind_checks import kind_fault

        _USED.pop(name, None)
        if fault := kind_fault(name, kind, datasets()):
            raise BadSettings("adapter", f"the kind of chain `{name}` cannot be used: {fault}")
    _USED[name] = kind
    return kind


def build_chain(
    kind: str, key: str, settings: ChainSettings, environment: Environment, *, configs: Path, memory: EndpointMemory
) -> Chain:
    """Make a chain of a kind.

    Raises:
        BadSettings: the settings are wrong, or what a package makes is not a chain of this kind.
    """
    chain_kind = kind_of(kind)
    if kind in builtin_kinds():
        return chain_kind.build(key, settings, environment, configs=configs, memory=memory)
    from chainfolio.kind_checks import chain_fault

    section = f"chains.{key}"
    try:
        chain = chain_kind.build(key, settings, environment, configs=configs, memory=memory)
        fault = chain_fault(chain, key, kind, chain_kind.datasets)
    except ChainfolioError:
        raise
    except Exception as error:  # third-party code: the operator hears which package it is
        reason = f"the kind of chain `{kind}` cannot make it: {type(error).__name__}: {error}"
        raise BadSettings(section, reason) from error
    if fault:
        raise BadSettings(section, f"what the kind of chain `{kind}` makes is no chain: {fault}")
    return chain
