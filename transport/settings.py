"""Settings of every chain with HTTP endpoints: addresses, rate and time limits."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

import msgspec

from chainfolio.chain_settings import ChainSettings, doc, is_http
from chainfolio.errors import BadSettings


class EndpointSettings(ChainSettings, forbid_unknown_fields=True, frozen=True):
    """A chain with endpoints. Properties of the chain itself are in its facts (`configs/chains`)."""

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
        """Return the settings of one process, with its share of the parallel requests and of the rate."""
        part = ChainSettings.share(self, processes)
        return msgspec.structs.replace(part, max_rps=self.max_rps and max(1, self.max_rps // processes))

    def check(self, section: str) -> None:
        """Check addresses, timeout and rate after what all chains share.

        Raises:
            BadSettings: The first invalid value.
        """
        ChainSettings.check(self, section)
        if not all(is_http(url) for url in self.rpc):
            raise BadSettings(f"{section}.rpc", "an endpoint is an http:// or https:// address")
        if self.timeout_s < 1 or self.max_rps < 0:
            raise BadSettings(section, "timeout_s is at least 1, max_rps at least 0")
