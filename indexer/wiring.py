"""Parts put together from settings: the one place where chains, stores and price sources meet."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from chainfolio.assets import account
from chainfolio.chain_settings import ACCOUNTS
from chainfolio.chains import Capability, having
from chainfolio.errors import BadRequest, BadSettings
from chainfolio.kinds import EndpointMemory, built
from chainfolio.seams import Seams
from chainfolio.settings import Settings
from chainfolio.tables import BLOCKS
from chainfolio.validators import HasValidators
from indexer.scopes import Scope, can_be_read, indexed_for_all
from storage.tail import Watch

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.protocols import InstalledProtocols, ProtocolFamily
    from indexer.families import Package
    from indexer.follow import Follower
    from indexer.registry import Registry, Unread
    from pricing.http_reads import Http
    from storage.lake import Lake
    from storage.tail import Tail

CONFIGS = Path(__file__).resolve().parent.parent / "configs"

log = logging.getLogger("chainfolio.protocols")


@dataclass(slots=True)
class System:
    """Everything one process works with. Chains are built when they are first asked for. One that `keeps_nothing` has
    an empty lake and a tail in memory, and writes no file."""

    settings: Settings
    seams: Seams = field(default_factory=Seams)
    configs: Path = CONFIGS
    keeps_nothing: bool = False
    _lake: Lake | None = None
    _tail: Tail | None = None
    _chains: dict[str, Chain] = field(default_factory=dict)
    _known: tuple[Registry, tuple[Package, ...]] | None = None
    _spenders: Registry | None = None
    _http: Http | None = None

    @property
    def lake(self) -> Lake:
        """The lake of the settings."""
        if self._lake is None:
            from storage.lake import Lake

            self._lake = Lake(self.settings.lake_uri)
        return self._lake

    @property
    def tail(self) -> Tail:
        """The tail of the settings."""
        if self._tail is None:
            from storage.tail import IN_MEMORY, Tail

            if self.keeps_nothing:
                self._tail = Tail(IN_MEMORY)
                return self._tail
            url = self.settings.tail_url
            if not url.startswith("sqlite:///"):
                raise BadSettings("tail.url", "only sqlite:///… is served by this release")
            self._tail = Tail(url.removeprefix("sqlite:///"))
        return self._tail

    def chain(self, key: str) -> Chain:
        """A configured chain by its key."""
        if key not in self._chains:
            settings = self.settings.chains.get(key)
            if settings is None:
                known = ", ".join(sorted(self.settings.chains)) or "none"
                raise BadRequest(
                    "chain", f"{key} is not configured", remedy=f"configured are: {known}; add [chains.{key}]"
                )
            self._chains[key] = built(
                settings.adapter, key, settings, self.seams, configs=self.configs, memory=self.memory
            )
        return self._chains[key]

    @property
    def memory(self) -> EndpointMemory:
        """What the tail keeps about endpoints."""
        return EndpointMemory(self.tail.capabilities, self.tail.learn, self.tail.quarantined, self.tail.quarantine)

    def alone(self, key: str, endpoint: str) -> Chain:
        """A configured chain at one endpoint only, whoever serves it and whatever is held against it; the caller closes
        it."""
        settings = self.chain(key).settings.at(endpoint)
        memory = EndpointMemory(self.tail.capabilities, self.tail.learn)
        return built(settings.adapter, key, settings, self.seams, configs=self.configs, memory=memory)

    @property
    def chains(self) -> list[Chain]:
        """All configured chains, by key."""
        return [self.chain(key) for key in sorted(self.settings.chains)]

    @property
    def account_chains(self) -> list[Chain]:
        """Those of them that have accounts, by key."""
        return [chain for chain in self.chains if not isinstance(chain, HasValidators)]

    @property
    def used(self) -> list[Chain]:
        """The chains that somebody has asked for, by key."""
        return [self._chains[key] for key in sorted(self._chains)]

    @property
    def registry(self) -> Registry:
        """The protocols of the configs, of the settings' own folder and of installed packages."""
        return self._protocols[0]

    @property
    def packages(self) -> tuple[Package, ...]:
        """The installed packages of protocols, ours first; one that cannot be used says why."""
        return self._protocols[1]

    @property
    def families(self) -> dict[str, ProtocolFamily]:
        """The families of protocols that can be used, by name."""
        return {family.name: family for package in self.packages for family in package.families}

    @property
    def unread(self) -> tuple[Unread, ...]:
        """The protocols whose files name families that are not installed."""
        return self.registry.unread(self.families)

    def warn(self) -> None:
        """Log what is installed or named but cannot be used: for processes that run on."""
        for package in self.packages:
            if package.problem:
                log.warning("protocols of %s: %s (%s)", package.provider, package.problem, package.remedy)
        for each in self.unread:
            log.warning("protocol %s: %s (%s)", each.protocol.key, each.problem, each.remedy)

    @property
    def _protocols(self) -> tuple[Registry, tuple[Package, ...]]:
        if self._known is None:
            from indexer.families import installed
            from indexer.registry import joined, load

            folders = [Path(self.settings.protocols)] if self.settings.protocols else []
            own = {path.stem for folder in folders for path in folder.glob("*.toml")}
            kinds = self.chain_kinds
            known = load([self.configs / "protocols", *folders], kinds)
            self._known = joined(known, installed(), kinds, own)
        return self._known

    @property
    def spenders(self) -> Registry:
        """The contracts of the configs that people allow to spend for them, beside those of the protocols."""
        if self._spenders is None:
            from indexer.registry import load

            self._spenders = load([self.configs / "spenders"], self.chain_kinds)
        return self._spenders

    def permit2(self, chain: str) -> tuple[str, ...]:
        """Where Permit2 lies on a chain, by its file among the spenders."""
        found = (each.contracts[chain] for each in self.spenders.on(chain) if each.key == "permit2")
        return tuple(address for roles in found for address in roles.get("permit2", ()))

    def labels(self, chain: str, spenders: Iterable[str]) -> dict[str, str]:
        """What those of some spenders are called that are known on a chain."""
        found = {each: self.spenders.label(each, chain) or self.registry.label(each, chain) for each in spenders}
        return {each: label for each, label in found.items() if label is not None}

    @property
    def chain_kinds(self) -> dict[str, str]:
        """The chains that files may name, those of the configs and of the settings, and of which kind each is."""
        files = sorted((self.configs / "chains").glob("*.toml"))
        named = {path.stem: str(tomllib.loads(path.read_text()).get("kind", "")) for path in files}
        return named | {key: each.adapter for key, each in self.settings.chains.items()}

    def datasets(self, chain: Chain) -> tuple[str, ...]:
        """The datasets to index on a chain: those of its settings, else the usual ones."""
        return check_datasets(chain, chain.settings.datasets or chain.usual)

    def followed(self, chain: Chain) -> tuple[str, ...]:
        """The datasets that are indexed for everybody: where a chain is indexed for accounts only, the headers of the
        blocks alone."""
        return self._headers(chain) if chain.settings.index == ACCOUNTS else self.datasets(chain)

    def _headers(self, chain: Chain) -> tuple[str, ...]:
        return tuple(name for name in (BLOCKS.name,) if name in chain.datasets)

    def scope(self, chain: Chain) -> Scope:
        """The accounts whose histories are wanted: those that are watched, and those of the settings."""
        if not can_be_read(chain):
            return Scope()
        given = {account(each) for each in self.settings.accounts.watch}
        begin = chain.settings.start_block
        wanted = {each.address: Watch(each.address, begin) for each in given if each.kind == chain.kind}
        watches = self.tail.watches(chain.key, self.seams.clock.now_us())
        wanted |= {each.account: each for each in watches if each.account not in wanted}
        return Scope(tuple(sorted(wanted.values(), key=lambda each: each.account)))

    def answered(self, chain: Chain, accounts: Sequence[str] = ()) -> tuple[str, ...]:
        """The datasets that answers about accounts count on: of one that is not usual, and that nobody named, only
        where it is indexed as far as the dataset that is named after its table. A chain that was indexed without it
        goes on answering, and says what is missing. Of accounts that are watched, the nodes may lack some."""
        watched = {each.account for each in self.scope(chain).watches}
        if chain.settings.index == ACCOUNTS or (accounts and watched.issuperset(accounts)):
            every = chain.datasets.values()
            return tuple(
                each.name
                for each in every
                if not each.loss or indexed_for_all(self.tail, chain.key, each.name, accounts)
            )
        wanted = self.datasets(chain)
        if chain.settings.datasets:
            return wanted
        found = [name for name in wanted if chain.datasets[name].is_usual]
        for each in chain.datasets.values():
            own, base = (indexed_for_all(self.tail, chain.key, name, accounts) for name in (each.name, each.table.name))
            if not each.is_usual and base and all(own.covers(span) for span in base):
                found.append(each.name)
        return tuple(found)

    def events(self, chain: Chain, datasets: Sequence[str]) -> tuple[str, ...]:
        """The filters that the dataset `events` is wanted of: what rules of the chain's protocols ask for,
        and what Permit2 says of its allowances.

        No decoder is loaded where it is not among the datasets, or no file says which one reads a contract there.
        """
        if "events" not in datasets:
            return ()
        has_rules = any(each.families for each in self.registry.on(chain.key))
        of_rules = chain.account_reader(self.installed(chain)).events if has_rules else ()
        permits = self.permit2(chain.key)
        of_permits = having(chain, Capability.APPROVALS).permission_filters(permits) if permits else ()
        return tuple(sorted({*of_rules, *of_permits}))

    def follower(self, chain: Chain, *, alone: bool = False) -> Follower:
        """What follows a chain at its head, with all that is indexed of it; whoever uses it holds the chain's lock.

        `alone`: the accounts that are watched, and what is indexed for everybody only where that was begun.
        """
        from indexer.follow import Follower

        datasets = self.followed(chain)
        if alone and not any(self.tail.indexed_ranges(chain.key, name) for name in datasets if name != BLOCKS.name):
            datasets = self._headers(chain)
        events = self.events(chain, datasets)
        return Follower(chain, self.lake, self.tail, self.seams, datasets, events, self.scope(chain))

    def installed(self, chain: Chain) -> InstalledProtocols:
        """The protocols of a chain, with what of them cannot be read."""
        from chainfolio.protocols import InstalledProtocols

        unread = {
            address: each.told for each in self.unread for key, _, address in each.protocol.places if key == chain.key
        }
        return InstalledProtocols(
            self.registry.rows(chain.key, chain.kind, self.families),
            tuple(each.issue for each in self.packages if each.problem),
            self.registry.undecoded(chain.key) | unread,
        )

    @property
    def http(self) -> Http:
        """What sends the HTTP reads of price sources."""
        if self._http is None:
            from pricing.http_reads import Http

            self._http = Http(self.seams)
        return self._http

    async def close(self) -> None:
        """Let go of connections and files."""
        if self._http is not None:
            await self._http.close()
        for chain in self._chains.values():
            await chain.close()
        if self._tail is not None:
            self._tail.close()


def check_datasets(chain: Chain, names: Sequence[str]) -> tuple[str, ...]:
    """Names of datasets, each of which the chain has; BadRequest with what there is."""
    for name in names:
        if name not in chain.datasets:
            raise BadRequest(
                "datasets", f"{chain.key} has no dataset `{name}`", remedy=f"there are: {', '.join(chain.datasets)}"
            )
        if chain.datasets[name].of_positions:
            raise BadRequest(
                "datasets", f"`{name}` of {chain.key} can be read of accounts alone",
                remedy="it is read of every account that is watched",
            )  # fmt: skip
    return tuple(dict.fromkeys(names))
