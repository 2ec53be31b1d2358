"""The settings of an EVM chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec

from chainfolio.chain_settings import ChainSettings, doc, is_http
from chainfolio.errors import BadSettings

INTEGRITY = ("off", "bloom", "roots")


class EvmSettings(ChainSettings, forbid_unknown_fields=True, frozen=True):
    """An EVM chain: its endpoints, and how far they are believed. What the chain is like is in its facts
    (`configs/chains`)."""

    ENDPOINTS: ClassVar[str] = "rpc"
    SECRETS: ClassVar[tuple[str, ...]] = ("rpc", "explorer")
    PATHS: ClassVar[tuple[str, ...]] = ("facts",)
    RENAMED: ClassVar[Mapping[str, str]] = {**ChainSettings.RENAMED, "witnesses": "quorum"}

    rpc: Annotated[list[str], doc("endpoints, each an `http://` or `https://` address or `env:NAME`")] = msgspec.field(
        default_factory=list
    )
    facts: Annotated[str, doc("file with the chain's facts; empty: `configs/chains/KEY.toml`")] = ""
    chain_id: Annotated[int, doc("refuse to start where the facts have another chain id; 0: do not compare")] = 0
    explorer: Annotated[str, doc("an explorer's API for internal transfers, where no endpoint can trace")] = ""
    integrity: Annotated[str, doc('how answers are checked: `"off"`, `"bloom"`, `"roots"`')] = "bloom"
    sample: Annotated[int, doc('with `"roots"`: one block in so many is proven whole')] = 100
    quorum: Annotated[int, doc("so many endpoints have to give the same answer")] = 1
    hedge: Annotated[bool, doc("ask a second endpoint where the first is unusually slow")] = True
    max_rps: Annotated[int, doc("requests a second to each endpoint at most; 0: no limit")] = 0
    timeout_s: Annotated[int, doc("seconds after which a request to an endpoint is given up")] = 60

    def share(self, processes: int) -> EvmSettings:
        """One process's part of what the nodes are asked at once, and in a second."""
        part = ChainSettings.share(self, processes)
        return msgspec.structs.replace(part, max_rps=self.max_rps and max(1, self.max_rps // processes))

    def check(self, section: str) -> None:
        """Whether every value can be meant; BadSettings names the first that cannot."""
        ChainSettings.check(self, section)
        if self.integrity not in INTEGRITY:
            raise BadSettings(f"{section}.integrity", f"`{self.integrity}` is none of {', '.join(INTEGRITY)}")
        if not all(is_http(url) for url in self.rpc):
            raise BadSettings(f"{section}.rpc", "an endpoint is an http:// or https:// address")
        if self.explorer and not is_http(self.explorer):
            raise BadSettings(f"{section}.explorer", "an explorer's interface is an http:// or https:// address")
        if self.timeout_s < 1 or self.sample < 1 or self.quorum < 1 or self.max_rps < 0:
            raise BadSettings(section, "timeout_s, sample and quorum are at least 1, max_rps at least 0")
        if self.quorum > max(1, named := len(set(self.rpc))):
            raise BadSettings(
                f"{section}.quorum", f"{self.quorum} endpoints have to agree, and rpc names {named}",
                remedy="name at least so many different endpoints, one more to decide between two, or lower quorum",
            )  # fmt: skip
