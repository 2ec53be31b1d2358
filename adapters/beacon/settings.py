"""The settings of a beacon chain."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from chainfolio.chain_settings import ChainSettings, doc, is_http
from chainfolio.errors import BadSettings
from chainfolio.validators import named


def canonical(written: str) -> str:
    """The one form of what names validators: an index, a public key, or the address to which they withdraw; BadSettings
    for anything else."""
    found = named(written)
    if found is None:
        raise BadSettings("validators", f"`{written:.120}` is no index, no public key and no withdrawal address")
    return found


class BeaconSettings(ChainSettings, forbid_unknown_fields=True, frozen=True):
    """A beacon chain: its nodes, and of which validators it is indexed. Slots are its heights."""

    ENDPOINTS: ClassVar[str] = "nodes"
    SECRETS: ClassVar[tuple[str, ...]] = ("nodes",)
    PATHS: ClassVar[tuple[str, ...]] = ("facts",)

    nodes: Annotated[list[str], doc("beacon nodes, each an `http://` or `https://` address or `env:NAME`")] = (
        msgspec.field(default_factory=list)
    )
    facts: Annotated[str, doc("file with the chain's facts; empty: `configs/chains/KEY.toml`")] = ""
    validators: Annotated[
        list[str], doc("index only these: indexes, public keys, or addresses to which validators withdraw; empty: all")
    ] = msgspec.field(default_factory=list)
    execution: Annotated[
        str,
        doc("key of the chain to which validators withdraw: its portfolios show the stake; empty: as the facts say"),
    ] = ""
    stake_in_portfolios: Annotated[
        bool, doc("whether portfolios of the execution chain show what the wallet's validators have")
    ] = True
    requests: Annotated[int, doc("requests to the nodes on their way at once")] = 16
    timeout_s: Annotated[int, doc("seconds after which a request to a node is given up")] = 60

    @property
    def chosen(self) -> list[str]:
        """The validators that it is indexed of, each in its one form; none for all."""
        return [canonical(each) for each in self.validators]

    def check(self, section: str) -> None:
        """Whether every value can be meant; BadSettings names the first that cannot."""
        ChainSettings.check(self, section)
        if not all(is_http(url) for url in self.nodes):
            raise BadSettings(f"{section}.nodes", "a node is an http:// or https:// address")
        if self.requests < 1 or self.timeout_s < 1:
            raise BadSettings(section, "requests and timeout_s are at least 1")
        if self.contracts:
            raise BadSettings(f"{section}.contracts", "a beacon chain has no contracts", remedy="name validators")
        for each in self.validators:
            try:
                canonical(each)
            except BadSettings as error:
                raise BadSettings(f"{section}.validators", error.reason) from None
