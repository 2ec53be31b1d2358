"""The settings of an EVM chain."""

from __future__ import annotations

from typing import Annotated, ClassVar

from chainfolio.chain_settings import doc, is_http
from chainfolio.errors import BadSettings
from chainfolio.transport.settings import EndpointSettings

INTEGRITY = ("off", "bloom", "roots")


class EvmSettings(EndpointSettings, forbid_unknown_fields=True, frozen=True):
    """The settings of an EVM chain: its endpoints, and how their answers are checked.

    The properties of the chain itself are in its facts (`configs/chains`).
    """

    SECRETS: ClassVar[tuple[str, ...]] = ("rpc", "explorer")

    chain_id: Annotated[int, doc("refuse to start where the facts have another chain id; 0: do not compare")] = 0
    explorer: Annotated[str, doc("an explorer's API for internal transfers, where no endpoint can trace")] = ""
    integrity: Annotated[str, doc('how answers are checked: `"off"`, `"bloom"`, `"roots"`')] = "bloom"
    sample: Annotated[int, doc('with `"roots"`: one block in so many is proven whole, at most 10,000 at once')] = 100
    quorum: Annotated[int, doc("so many endpoints have to give the same answer")] = 1

    def check(self, section: str) -> None:
        """Check every value.

        Raises:
            BadSettings: A value is invalid; it names the first one.
        """
        EndpointSettings.check(self, section)
        if self.integrity not in INTEGRITY:
            raise BadSettings(f"{section}.integrity", f"`{self.integrity}` is none of {', '.join(INTEGRITY)}")
        if self.explorer and not is_http(self.explorer):
            raise BadSettings(f"{section}.explorer", "an explorer's interface is an http:// or https:// address")
        if self.sample < 1 or self.quorum < 1:
            raise BadSettings(section, "sample and quorum are at least 1")
        if self.quorum > max(1, endpoint_count := len(set(self.rpc))):
            raise BadSettings(
                f"{section}.quorum",
                f"{self.quorum} endpoints have to agree, and rpc names {endpoint_count}",
                remedy="name at least so many different endpoints, one more to decide between two, or lower quorum",
            )
