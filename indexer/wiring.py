"""Build chains, stores and price sources from settings: the one place where they meet."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from chainfolio.assets import account
from chainfolio.capabilities import Capability, require_capability
from chainfolio.chain_settings import ACCOUNTS
from chainfolio.environment import Environment
from chainfolio.errors import BadRequest, BadSettings
from chainfolio.indexer.labels import AddressLabels
from chainfolio.indexer.scopes import Scope, can_be_read, indexed_for_all
from chainfolio.kinds import AnswerStore, EndpointMemory, build_chain
from chainfolio.settings import Settings
from chainfolio.storage.watches import WatchedAccount
from chainfolio.tables import BLOCKS

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.indexer.families import Package
    from chainfolio.indexer.follow import Follower
    from chainfolio.indexer.registry import Registry, UnreadableProtocol
    from chainfolio.pricing.http_reads import Http
    from chainfolio.protocols import InstalledProtocols, ProtocolFamily
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.object_store import ObjectStore
    from chainfolio.storage.tail import Tail

SQLITE = "sqlite:///"
CONFIGS = Path(__file__).resolve().parent.parent / "configs"

log = logging.getLogger("chainfolio.protocols")


@dataclass(slots=True)
class System:
    """The parts that one process uses. Chains are built when they are first used.

    Attributes:
        keeps_nothing: Use an empty lake and a tail in memory, and write no file.
        shares_answers: Reuse heads and reads at a block that another command made within the last minute.
        kinds: Load built-in protocol families for these kinds of chain only, with their libraries. None loads all.
    """

    settings: Settings
    environment: Environment = field(default_factory=Environment)
    configs: Path = CONFIGS
    keeps_nothing: bool = False
    shares_answers: bool = False
    kinds: frozenset[str] | None = None
    _lake: Lake | None = None
    _tail: Tail | None = None
    _chains: dict[str, Chain] = field(default_factory=dict)
    _loaded: tuple[Registry, tuple[Package, ...]] | None = None
    _spenders: Registry | None = None
    _address_labels: AddressLabels | None = None
    _http: Http | None = None

    @property
    def lake(self) -> Lake:
        """The lake of the settings."""
        if self._lake is None:
            from chainfolio.storage.lake import Lake

            self._lake = Lake(self.settings.lake_uri, self.object_store(self.settings.lake.uri))
        return self._lake

    def object_store(self, uri: str) -> ObjectStore | None:
        """Return the object store of the settings for an `s3://` address; None for any other address."""
        if not uri.startswith("s3://"):
            return None
        from chainfolio.storage.object_store import ObjectStore

        return ObjectStore.of(self.settings.lake.endpoint, self.settings.lake.region)

    @property
    def tail(self) -> Tail:
        """The tail that the settings name, or one in memory with `keeps_nothing`. Opened at the first access.

        Raises:
            BadSettings: `tail.url` is neither an SQLite path nor a PostgreSQL address.
        """
        if self._tail is None:
            from chainfolio.storage.tail import IN_MEMORY, POSTGRES, Tail

            if self.keeps_nothing:
                self._tail = Tail(IN_MEMORY)
                return self._tail
            url = self.settings.tail_url
            if not url.startswith((SQLITE, *POSTGRES)) or url == SQLITE:
                remedy = "sqlite:///path/to/tail.db or postgresql://user@host/name"
                raise BadSettings("tail.url", "not the address of a tail", remedy=remedy)
            self._tail = Tail(url.removeprefix(SQLITE))
        return self._tail

    def chain(self, key: str) -> Chain:
        """Return a configured chain by its key, built and stored at the first call.

        Raises:
            BadRequest: The chain is not configured.
        """
        if key not in self._chains:
            settings = self.settings.chains.get(key)
            if settings is None:
                keys = ", ".join(sorted(self.settings.chains)) or "none"
                raise BadRequest(
                    "chain", f"{key} is not configured", remedy=f"configured are: {keys}; add [chains.{key}]"
                )
            self._chains[key] = build_chain(
                settings.adapter, key, settings, self.environment, configs=self.configs, memory=self.memory
            )
        return self._chains[key]

    @property
    def memory(self) -> EndpointMemory:
        """The tables of the tail about endpoints."""
        tail = self.tail
        answers = AnswerStore(tail.recent_answers, tail.add_answers, tail.drop_answers) if self.shares_answers else None
        return EndpointMemory(tail.capabilities, tail.learn, tail.quarantined, tail.quarantine, answers)

    def at_endpoint(self, key: str, endpoint: str) -> Chain:
        """Return a configured chain at one endpoint, also if it is quarantined. The caller closes it."""
        settings = self.chain(key).settings.at(endpoint)
        memory = EndpointMemory(self.tail.capabilities, self.tail.learn)
        return build_chain(settings.adapter, key, settings, self.environment, configs=self.configs, memory=memory)

    @property
    def chains(self) -> list[Chain]:
        """The configured chains, by key."""
        return [self.chain(key) for key in sorted(self.settings.chains)]

    @property
    def account_chains(self) -> list[Chain]:
        """The configured chains that have accounts, by key."""
        return [chain for chain in self.chains if Capability.VALIDATORS not in chain.capabilities]

    @property
    def used_chains(self) -> list[Chain]:
        """The chains that were used so far, by key."""
        return [self._chains[key] for key in sorted(self._chains)]

    @property
    def registry(self) -> Registry:
        """The protocols of the configs, of the settings' folder and of installed packages."""
        return self._protocols[0]

    @property
    def packages(self) -> tuple[Package, ...]:
        """The installed packages of protocols, ours first. Unusable ones have a `problem`."""
        return self._protocols[1]

    @property
    def families(self) -> dict[str, ProtocolFamily]:
        """The usable families of protocols, by name; those of the setting `proven` are proven."""
        proven = self.settings.proven
        families = {family.name: family for package in self.packages for family in package.families}
        return families | {name: replace(families[name], is_proven=True) for name in proven if name in families}

    @property
    def unread(self) -> tuple[UnreadableProtocol, ...]:
        """The protocols whose files name families that are not installed."""
        from chainfolio.indexer.families import builtin_names

        return self.registry.unread(self.families.keys() | builtin_names())

    def log_problems(self) -> None:
        """Log packages and protocols that cannot be used, for services."""
        for package in self.packages:
            if package.problem:
                log.warning("protocols of %s: %s (%s)", package.provider, package.problem, package.remedy)
        for each in self.unread:
            log.warning("protocol %s: %s (%s)", each.protocol.key, each.problem, each.remedy)

    @property
    def _protocols(self) -> tuple[Registry, tuple[Package, ...]]:
        """The protocols and packages, loaded at the first use."""
        if self._loaded is None:
            from chainfolio.indexer.families import installed
            from chainfolio.indexer.protocol_files import add_packages, load

            folders = [Path(self.settings.protocols)] if self.settings.protocols else []
            operator_keys = {path.stem for folder in folders for path in folder.glob("*.toml")}
            kinds = self.chain_kinds
            base = load([self.configs / "protocols", *folders], kinds)
            registry, packages = add_packages(base, installed(self.kinds), kinds, operator_keys)
            self._loaded = registry.with_image_urls(self.settings.images.protocol), packages
        return self._loaded

    @property
    def spenders(self) -> Registry:
        """Known contracts that get allowances, in addition to those of the protocols."""
        if self._spenders is None:
            from chainfolio.indexer.protocol_files import load

            self._spenders = load([self.configs / "spenders"], self.chain_kinds)
        return self._spenders

    def permit2(self, chain: str) -> tuple[str, ...]:
        """Return the addresses of Permit2 on a chain."""
        contracts = (each.contracts[chain] for each in self.spenders.on(chain) if each.key == "permit2")
        return tuple(address for roles in contracts for address in roles.get("permit2", ()))

    def labels(self, chain: str, spenders: Iterable[str]) -> dict[str, str]:
        """Return the names of spenders on a chain: of spender files, else of protocols, else of label lists.

        Unknown spenders are left out.
        """
        kind = self.chain_kinds.get(chain, "")
        names = {}
        for each in spenders:
            listed = self.address_labels.find(each, chain, kind)
            name = self.spenders.label(each, chain) or self.registry.label(each, chain) or (listed and listed.text)
            if name:
                names[each] = name
        return names

    @property
    def address_labels(self) -> AddressLabels:
        """The labels of addresses from public lists."""
        if self._address_labels is None:
            self._address_labels = AddressLabels(self.configs / "labels.csv")
        return self._address_labels

    @property
    def chain_kinds(self) -> dict[str, str]:
        """The kind of each chain that files may name: those of the configs and of the settings."""
        from chainfolio.indexer.protocol_files import kinds_of_files

        return kinds_of_files(self.configs / "chains") | {
            key: each.adapter for key, each in self.settings.chains.items()
        }

    def datasets(self, chain: Chain) -> tuple[str, ...]:
        """Return the datasets to index on a chain: those of its settings, else the usual ones."""
        return check_datasets(chain, chain.settings.datasets or chain.default_datasets)

    def followed_datasets(self, chain: Chain) -> tuple[str, ...]:
        """Return the datasets that are indexed for all accounts.

        On a chain that is indexed for single accounts, these are the block headers only.
        """
        return self._headers(chain) if chain.settings.index == ACCOUNTS else self.datasets(chain)

    def _headers(self, chain: Chain) -> tuple[str, ...]:
        return tuple(name for name in (BLOCKS.name,) if name in chain.datasets)

    def scope(self, chain: Chain) -> Scope:
        """Return the accounts to index, by address: those of the settings, and those that are watched.

        Accounts of the settings are indexed from the chain's start block. Empty if the chain cannot read single
        accounts.
        """
        if not can_be_read(chain):
            return Scope()
        configured = {account(each) for each in self.settings.accounts.watch}
        begin = chain.settings.start_block
        by_account = {
            each.address: WatchedAccount(each.address, begin) for each in configured if each.kind == chain.kind
        }
        watches = self.tail.watches(chain.key, self.environment.clock.now_us())
        by_account |= {each.account: each for each in watches if each.account not in by_account}
        return Scope(tuple(sorted(by_account.values(), key=lambda each: each.account)))

    def response_datasets(self, chain: Chain, accounts: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the datasets on which responses about accounts are based.

        An unusual dataset that the settings do not name is used only if it is indexed as far as the dataset named after
        its table: a chain that was indexed without it still gives responses, with a remark. For watched accounts, and
        on a chain that is indexed by account, all datasets count, except those with a `loss` that are not indexed for
        these accounts.
        """
        watched = {each.account for each in self.scope(chain).watches}
        if chain.settings.index == ACCOUNTS or (accounts and watched.issuperset(accounts)):
            datasets_ = chain.datasets.values()
            return tuple(
                each.name
                for each in datasets_
                if not each.loss or indexed_for_all(self.tail, chain.key, each.name, accounts)
            )
        names = self.datasets(chain)
        if chain.settings.datasets:
            return names
        usual = [name for name in names if chain.datasets[name].is_default]
        for each in chain.datasets.values():
            dataset_ranges, table_ranges = (
                indexed_for_all(self.tail, chain.key, name, accounts) for name in (each.name, each.table.name)
            )
            if not each.is_default and table_ranges and all(dataset_ranges.covers(span) for span in table_ranges):
                usual.append(each.name)
        return tuple(usual)

    def event_filters(self, chain: Chain, datasets: Sequence[str]) -> tuple[str, ...]:
        """Return the filters for the dataset `events`: rules of the chain's protocols, and Permit2.

        No decoder is loaded if the dataset is not used, or if no file names a decoder for the chain.
        """
        if "events" not in datasets:
            return ()
        has_rules = any(each.families for each in self.registry.on(chain.key))
        of_rules = chain.account_reader(self.installed_protocols(chain)).events if has_rules else ()
        permits = self.permit2(chain.key)
        of_permits = require_capability(chain, Capability.APPROVALS).permission_filters(permits) if permits else ()
        return tuple(sorted({*of_rules, *of_permits}))

    def follower(self, chain: Chain, *, accounts_only: bool = False) -> Follower:
        """Return a follower of the chain's head. The caller holds the chain's lock.

        Args:
            accounts_only: Follow watched accounts; other datasets only if their indexing has started.
        """
        from chainfolio.indexer.follow import Follower

        datasets = self.followed_datasets(chain)
        if accounts_only and not any(
            self.tail.indexed_ranges(chain.key, name) for name in datasets if name != BLOCKS.name
        ):
            datasets = self._headers(chain)
        events = self.event_filters(chain, datasets)
        return Follower(chain, self.lake, self.tail, self.environment, datasets, events, self.scope(chain))

    def installed_protocols(self, chain: Chain) -> InstalledProtocols:
        """Return the protocols of a chain, and those that cannot be read."""
        from chainfolio.protocols import InstalledProtocols

        unread = {
            address: each.document
            for each in self.unread
            for key, _, address in each.protocol.deployments
            if key == chain.key
        }
        return InstalledProtocols(
            self.registry.rows(chain.key, chain.kind, self.families),
            tuple(each.issue for each in self.packages if each.problem),
            self.registry.undecoded(chain.key) | unread,
        )

    @property
    def http(self) -> Http:
        """The HTTP client of price sources."""
        if self._http is None:
            from chainfolio.pricing.http_reads import Http

            self._http = Http(self.environment)
        return self._http

    async def close(self) -> None:
        """Close all connections and files, even if closing one fails; then raise the first error."""
        errors: list[BaseException] = []
        for part in (self._http, *self._chains.values()):
            try:
                if part is not None:
                    await part.close()
            except BaseException as error:  # a cancellation must not leave the others open either
                errors.append(error)
        try:
            if self._tail is not None:
                self._tail.close()
        finally:
            if errors:
                raise errors[0]


def check_datasets(chain: Chain, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names without duplicates.

    Raises:
        BadRequest: The chain lacks a dataset, or can read it for single accounts only.
    """
    for name in names:
        if name not in chain.datasets:
            raise BadRequest(
                "datasets", f"{chain.key} has no dataset `{name}`", remedy=f"there are: {', '.join(chain.datasets)}"
            )
        if chain.datasets[name].reward_protocol:
            raise BadRequest(
                "datasets",
                f"`{name}` of {chain.key} can be read of accounts alone",
                remedy="it is read of every account that is watched",
            )
    return tuple(dict.fromkeys(names))
