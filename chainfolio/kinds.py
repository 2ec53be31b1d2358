"""Kinds of chain, found by the name that `adapter` has in the settings.

A kind is a value at the entry point `chainfolio.chains`, whoever wrote it. Ours are registered there too; but they lie
at `adapters/<name>/kind.py`, so no process that uses only ours has to look through the installed packages.
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
from chainfolio.errors import BadSettings, ChainfolioError, Unserved

if TYPE_CHECKING:
    from chainfolio.abi import AbiFamilies
    from chainfolio.chains import Chain
    from chainfolio.datasets import Dataset
    from chainfolio.reads import Read
    from chainfolio.recordings import DecoderKit
    from chainfolio.seams import Seams

GROUP = "chainfolio.chains"
OURS = "adapters"
_USED: dict[str, ChainKind] = {}


@dataclass(frozen=True, slots=True)
class EndpointMemory:
    """What is kept about endpoints over a restart, by an identity that holds no secret: what they can do, and the
    evidence where one is quarantined. A kind may keep what it learnt of accounts alike, by names of its own."""

    capabilities: Callable[[str], Mapping[str, int]] = lambda endpoint: {}
    on_capability: Callable[[str, str, int], None] = lambda endpoint, name, value: None
    quarantined: Callable[[str], bytes | None] = lambda endpoint: None
    on_quarantine: Callable[[str, bytes], None] = lambda endpoint, evidence: None


class ChainKind(Protocol):
    """A kind of chain. `settings` is the type of its `[chains.KEY]`, which checks itself.

    It may have the rules of its addresses as `addresses` (`chainfolio.addresses`), and be one that `SelectsFunctions`,
    `CallsContracts`, `HasDecoderKit`, `OffersFamilies` or `UsesFamilies`.
    """

    @property
    def name(self) -> str:
        """What `adapter` says: `evm`."""

    @property
    def settings(self) -> type[ChainSettings]:
        """The keys of `[chains.KEY]`: those that all kinds share, and its own."""

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """The datasets that its chains may have, by name. Kinds that use the same name mean the same."""

    def build(self, key: str, settings: Any, seams: Seams, *, configs: Path, memory: EndpointMemory) -> Chain:
        """One chain, from its settings and from the files below `configs`. Nothing is asked of a node yet."""

    def identities(self, settings: Any) -> Sequence[tuple[str, str]]:
        """Each endpoint of a chain: the name that reports show, and the identity under which it is remembered."""


@runtime_checkable
class SelectsFunctions(Protocol):
    """A kind of chain whose call data begins with a selector: the bytes that say which function they call."""

    def selector(self, function: str) -> bytes:
        """The selector of a function such as `transfer(address,uint256)`."""


@runtime_checkable
class CallsContracts(Protocol):
    """A kind of chain whose contracts are read by calling their functions: for sources of prices that ask contracts."""

    def call(self, contract: str, function: str, args: tuple[Any, ...] = ()) -> Read:
        """The read of a function such as `balanceOf(address)(uint256)`."""


def contract_calls(name: str) -> Callable[..., Read]:
    """What makes reads of contracts on a kind of chain, from contract, function and arguments; Unserved where the
    kind has none."""
    kind = kind_of(name)
    if not isinstance(kind, CallsContracts):
        raise Unserved(f"a read of a contract on a chain of the kind `{name}`")
    return kind.call


@runtime_checkable
class HasDecoderKit(Protocol):
    """A kind of chain whose decoders of protocols can be scaffolded, recorded and replayed."""

    @property
    def decoder_kit(self) -> DecoderKit:
        """What does it."""


def decoder_kit(name: str) -> DecoderKit:
    """The kit for decoders of a kind of chain; Unserved where the kind has none."""
    kind = kind_of(name)
    if not isinstance(kind, HasDecoderKit):
        remedy = "its package can offer `decoder_kit`, as chainfolio.recordings.DecoderKit says"
        raise Unserved(f"what scaffolds, records or replays decoders of the kind `{name}`", remedy=remedy)
    return kind.decoder_kit


@runtime_checkable
class OffersFamilies(Protocol):
    """A kind of chain whose families of protocols other kinds can use, whose contracts understand the same calls."""

    @property
    def abi_families(self) -> AbiFamilies:
        """The families, as `chainfolio.abi` has it."""


@runtime_checkable
class UsesFamilies(Protocol):
    """A kind of chain whose contracts are read by the families of another kind."""

    @property
    def families_of(self) -> str:
        """The name of the other kind."""


def readable_by(kind: str) -> frozenset[str]:
    """The kinds whose families of protocols read chains of a kind: its own, and the one that it names."""
    try:
        found = kind_of(kind)
    except BadSettings:
        return frozenset([kind])
    return frozenset([kind, found.families_of] if isinstance(found, UsesFamilies) else [kind])


def families_of(kind: str) -> AbiFamilies:
    """The families that a kind of chain uses of another one; Unserved where it does not, or that one offers none."""
    found = kind_of(kind)
    offers = kind_of(found.families_of) if isinstance(found, UsesFamilies) else found
    if not isinstance(offers, OffersFamilies):
        raise Unserved(f"families of protocols for chains of the kind `{kind}`")
    return offers.abi_families


@runtime_checkable
class IdentifiesChains(Protocol):
    """A kind of chain whose endpoints say which chain they serve."""

    def identity(self, key: str, settings: Any, *, configs: Path) -> str:
        """Return what identifies a chain among those of this kind, from its settings and the files below `configs`.

        Raises:
            BadSettings: the chain is of another kind, or its file has a mistake.
        """

    async def served(self, node: Probe) -> str | None:
        """Return the identity of the chain that a node serves; None if the node is of another kind.

        Raises:
            SourceError: the node cannot be reached, refuses access, or is overloaded.
        """


class Probe(Protocol):
    """A node of which nothing is known but its URL."""

    async def call(self, method: str) -> Any:
        """Return the result of a JSON-RPC call without parameters; None if the node does not serve the method."""

    async def read(self, path: str, body: Any = None) -> Any:
        """Return the JSON that a path answers to a GET, or to a POST of `body`; None if the answer is not JSON."""


@lru_cache(16)
def kind_of(name: str) -> ChainKind:
    """The kind with a name; BadSettings where none is installed, or where it cannot be used."""
    if name in ours():
        return _usable(name, import_module(f"{OURS}.{name}.kind").KIND)
    from importlib.metadata import entry_points

    entries = {entry.value: entry for entry in entry_points(group=GROUP) if entry.name == name}
    if not entries:
        raise BadSettings(
            "adapter", f"no kind of chain `{name}` is installed", remedy=f"one of {', '.join(sorted(installed()))}"
        )
    if len(entries) > 1:
        reason = f"several packages have a kind of chain `{name}`: {', '.join(sorted(entries))}"
        raise BadSettings("adapter", reason, remedy="uninstall all but one")
    (entry,) = entries.values()
    try:
        found = entry.load()
    except (Exception, SystemExit) as error:  # third-party code: the operator hears which package it is
        reason = f"the package of `{name}` ({entry.value}) cannot be loaded: {type(error).__name__}: {error}"
        raise BadSettings("adapter", reason) from error
    return _usable(name, found)


def datasets() -> dict[str, Dataset]:
    """The datasets of all kinds that this process has to do with, by name: ours, and those of configured chains."""
    kinds = [*(kind_of(name) for name in sorted(ours())), *_USED.values()]
    found: dict[str, Dataset] = {}
    for kind in kinds:
        for name, dataset in kind.datasets.items():
            found.setdefault(name, dataset)
    return found


@lru_cache(1)
def ours() -> frozenset[str]:
    """The names of the kinds that come with Chainfolio."""
    return frozenset(module.name for module in pkgutil.iter_modules(import_module(OURS).__path__) if module.ispkg)


def installed() -> frozenset[str]:
    """The names of all kinds that are installed."""
    from importlib.metadata import entry_points

    return ours() | {entry.name for entry in entry_points(group=GROUP)}


def _usable(name: str, found: Any) -> ChainKind:
    settings = getattr(found, "settings", None)
    if not (isinstance(settings, type) and issubclass(settings, ChainSettings) and callable(found.build)):
        raise BadSettings("adapter", f"what is installed as `{name}` is no kind of chain")
    kind: ChainKind = found
    if name not in ours():
        from chainfolio.kind_checks import kind_fault

        _USED.pop(name, None)
        if fault := kind_fault(name, kind, datasets()):
            raise BadSettings("adapter", f"the kind of chain `{name}` cannot be used: {fault}")
    _USED[name] = kind
    return kind


def built(
    kind: str, key: str, settings: ChainSettings, seams: Seams, *, configs: Path, memory: EndpointMemory
) -> Chain:
    """One chain of a kind; BadSettings where what a package makes is no chain of this kind."""
    made_by = kind_of(kind)
    if kind in ours():
        return made_by.build(key, settings, seams, configs=configs, memory=memory)
    from chainfolio.kind_checks import chain_fault

    where = f"chains.{key}"
    try:
        chain = made_by.build(key, settings, seams, configs=configs, memory=memory)
        fault = chain_fault(chain, key, kind, made_by.datasets)
    except ChainfolioError:
        raise
    except Exception as error:  # third-party code: the operator hears which package it is
        reason = f"the kind of chain `{kind}` cannot make it: {type(error).__name__}: {error}"
        raise BadSettings(where, reason) from error
    if fault:
        raise BadSettings(where, f"what the kind of chain `{kind}` makes is no chain: {fault}")
    return chain
