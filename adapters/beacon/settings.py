"""The settings of a beacon chain."""

from __future__ import annotations

from typing import Annotated

import msgspec

from chainfolio.chain_settings import doc
from chainfolio.errors import BadSettings
from chainfolio.transport.settings import EndpointSettings
from chainfolio.validators import normalised_id


def canonical(text: str) -> str:
    """Return the normal form of a validator's index, public key or withdrawal address.

    Raises:
        BadSettings: The text is none of these.
    """
    name = normalised_id(text)
    if name is None:
        raise BadSettings("validators", f"`{text:.120}` is no index, no public key and no withdrawal address")
    return name


class BeaconSettings(EndpointSettings, forbid_unknown_fields=True, frozen=True):
    """Settings of a beacon chain: its nodes, and the validators that are indexed. Slots are its heights."""

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
    concurrency: Annotated[int, doc("spans that are read at once; of more than 20,000 validators two at most")] = 4

    @property
    def chosen(self) -> list[str]:
        """The indexed validators in their normal form, empty for all."""
        return [canonical(each) for each in self.validators]

    def check(self, section: str) -> None:
        """Check all values.

        Raises:
            BadSettings: A value is invalid.
        """
        EndpointSettings.check(self, section)
        if self.requests < 1:
            raise BadSettings(section, "requests is at least 1")
        if self.contracts:
            raise BadSettings(f"{section}.contracts", "a beacon chain has no contracts", remedy="name validators")
        for each in self.validators:
            try:
                canonical(each)
            except BadSettings as error:
                raise BadSettings(f"{section}.validators", error.reason) from None
