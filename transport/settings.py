"""The settings that every chain has whose nodes are asked over HTTP: which endpoints, how often, how patiently."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

import msgspec

from chainfolio.chain_settings import ChainSettings, doc, is_http
from chainfolio.errors import BadSettings


class EndpointSettings(ChainSettings, forbid_unknown_fields=True, frozen=True):
    """A chain with endpoints. What the chain is like is in its facts (`configs/chains`)."""

    ENDPOINTS: ClassVar[str] = "rpc"
    SECRETS: ClassVar[tuple[str, ...]] = ("rpc",)
    PATHS: ClassVar[tuple[str, ...]] = ("facts",)

    rpc: Annotated[list[str], doc("endpoints, each an `http://` or `https://` address or `env:NAME`")] = msgspec.field(
        default_factory=list
    )
    facts: Annotated[str, doc("file with the chain's facts; empty: `configs/chains/KEY.toml`")] = ""
    hedge: Annotated[bool, doc("ask a second endpoint where the first is unusually slow")] = True
    max_rps: Annotated[int, doc("requests a second to each endpoint at most; 0: no limit")] = 0
    timeout_s: Annotated[int, doc("seconds after which a request to an endpoint is given up")] = 60

    def share(self, processes: int) -> Self:
        """One process's part of what the nodes are asked at once, and in a second."""
        part = ChainSettings.share(self, processes)
        return msgspec.structs.replace(part, max_rps=self.max_rps and max(1, self.max_rps // processes))

    def check(self, section: str) -> None:
        """Whether every value can be meant; BadSettings names the first that cannot."""
        ChainSettings.check(self, section)
        if not all(is_http(url) for url in self.rpc):
            raise BadSettings(f"{section}.rpc", "an endpoint is an http:// or https:// address")
        if self.timeout_s < 1 or self.max_rps < 0:
            raise BadSettings(section, "timeout_s is at least 1, max_rps at least 0")
